"""The gallery: every picture on the page is there and made by the command, and each draws from a tiny run."""

import csv
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from glassformer.errors import GlassformerError
from glassformer.report.published import published_rows
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.run import run_task

from .benchmark_tools import benchmark

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "gallery.md"
BLOCK = re.compile(
    r"<!-- picture: (?P<name>\S+) -->\n!\[(?P<alt>.+)\]\((?P<file>\S+)\)\n\n(?P<caption>.+)\n<!-- end -->"
)
SMALL = ("threads=1", "precision=fp32", "d_model=16", "num_heads=2", "d_ff=16", "num_layers=1")
RUNS = {
    "digits": (*SMALL, "epochs=2", "limit=60", "keep_epochs=true"),
    "europe-given": ("threads=1", "baselines=false", "epochs=1", "limit=120"),
    "europe-mlm": (*SMALL, "epochs=1", "limit=120", "validation_size=20"),
    "countries-word2vec-given": ("epochs=11", "limit=300"),
}


@pytest.fixture(scope="module")
def gallery() -> ModuleType:
    return benchmark("gallery")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Tiny runs of the kinds that the gallery draws from."""
    folder = tmp_path_factory.mktemp("runs")
    for name, settings in RUNS.items():
        run_task(load_recipe(name, [*settings]), folder / f"{name}-seed0")
    return folder


@pytest.fixture(scope="module")
def drawn(gallery, folder):
    """A picture's function by name -> what it draws from the runs of these recipes."""

    def draw(name: str, *recipes: str):
        found = [gallery.GalleryRun.of(gallery.find_run(recipe, [folder])) for recipe in recipes]
        return getattr(gallery, name)(*found)

    return draw


def svg_texts(content: bytes) -> list[str]:
    root = ET.fromstring(content)
    ground = next(e for e in root.iter() if e.tag.endswith("rect"))
    assert (root.tag, ground.get("fill")) == ("{http://www.w3.org/2000/svg}svg", "#ffffff")
    assert b"var(--" not in content
    return [e.text or "" for e in root.iter() if e.tag.endswith("text")]


def test_the_page_and_the_command_know_the_same_pictures(gallery):
    page = PAGE.read_text(encoding="utf-8")
    marks = re.findall("<!-- picture: (.+) -->", page)
    waiting = {name for name, picture in gallery.PICTURES.items() if picture.section and name not in marks}
    assert sorted(marks) == sorted(gallery.PICTURES.keys() - waiting)
    found = [match.group("name", "file", "alt", "caption") for match in BLOCK.finditer(page)]
    assert sorted(name for name, *_ in found) == sorted(marks)
    for name, file, alt, caption in found:
        path = PAGE.parent / file
        assert file == f"gallery/{name}.{gallery.PICTURES[name].ending}"
        assert 0 < path.stat().st_size <= gallery.MOST
        assert len(alt) > 20
        if name != "flowers-augmentation":  # no model has a part in it
            assert re.search(r"[Rr]ecipe `[\w-]+`.*seed \d.*; this run reached .*\d", caption), name
    on_disk = {path.name for path in (PAGE.parent / "gallery").iterdir()}
    assert on_disk == {Path(file).name for _, file, *_ in found}
    assert "/tmp" not in page


def test_a_row_leads_to_a_heading_of_the_gallery():
    headings = re.findall(r"^#+ (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    shown = {row.number: row.gallery_heading for row in published_rows() if row.gallery_heading}
    assert set(shown.values()) <= anchors
    assert shown.keys() >= {2, 6, 7, 8, 11, 12}  # those that ask for figures, or show them
    for number, anchor in shown.items():
        page = (ROOT / "docs" / "results" / f"row-{number:02d}.md").read_text(encoding="utf-8")
        assert f"(../gallery.md#{anchor})" in page


def test_what_a_picture_classifier_gives(drawn, gallery):
    run = ("digits",)
    assert drawn("grid", *run).content.startswith(b"\x89PNG")
    matrix = drawn("confusion", *run)
    assert {"predicted", "true", *"0123456789"} <= set(svg_texts(matrix.content))
    curves = drawn("curves", *run)
    assert {"loss", "accuracy", "training", "validation", "test"} <= set(svg_texts(curves.content))
    assert curves.caption.startswith("Test accuracy after each epoch: ")
    assert any("parameters in all" in text for text in svg_texts(drawn("architecture", *run).content))
    assert "`limit = 60`" in matrix.caption
    assert "`epochs = 2`" in matrix.caption
    assert re.search(r"seed 0; this run reached \d+\.\d\d% on 60 test examples \(20", matrix.caption)


def test_pictures_before_and_after(drawn):
    made = drawn("before_and_after", "digits", "digits")
    texts = svg_texts(made.content)
    assert texts[:4] == ["rollout", "before", "rollout", "after"]
    assert made.content.count(b"<image ") == 3 * (2 + 4)  # each picture in color and in grey, and its maps
    assert made.caption.count("recipe `digits`") == 2
    made = drawn("by_two_arms", "digits", "digits")
    assert svg_texts(made.content)[:4] == ["rollout", "without", "rollout", "with"]
    assert made.caption.startswith("Trained without augmentation, the model classifies ")
    sheet = drawn("augmentation", "digits")
    assert sheet.content.startswith(b"\x89PNG")
    assert "original, shift, light, medium, strong, mixup, cutmix" in sheet.caption


def test_what_texts_give(drawn):
    made = drawn("maps", "europe-given")
    assert {"head 1", "head 2", "[CLS]", "spain"} <= set(svg_texts(made.content))
    made = drawn("fills", "europe-mlm")
    assert "[MASK] is the capital of France." in svg_texts(made.content)
    made = drawn("neighbors", "countries-word2vec-given")
    assert {"france, before", "france, after", "king, after"} <= set(svg_texts(made.content))


def test_an_alignment(gallery, tmp_path):
    pytest.importorskip("sacrebleu")
    file, run = tmp_path / "pairs.csv", tmp_path / "multi30k-rnn-additive-seed3"
    words = {"dog": "Hund", "cat": "Katze", "bird": "Vogel", "horse": "Pferd", "cow": "Kuh"}
    with file.open("w", newline="", encoding="utf-8") as out:
        rows = [(f"a {w} number {i}", f"ein {v} Nummer {i}") for i in range(7) for w, v in words.items()]
        csv.writer(out).writerows([("en", "de"), *rows])
    settings = [
        f"source={json.dumps(str(file))}",
        "test_size=5",
        "validation_size=3",
        "vocab_size=300",
        "epochs=1",
    ]
    run_task(load_recipe("multi30k-rnn-additive", [*settings, "d_model=16", "threads=1", "seed=3"]), run)
    assert gallery.find_run("multi30k-rnn-additive", [tmp_path]) == run
    made = gallery.alignment(gallery.GalleryRun.of(run))
    assert "dog" in "".join(svg_texts(made.content)) or "number" in "".join(svg_texts(made.content))
    assert " BLEU (20" in made.caption
    found = gallery.GalleryRun.of(run)  # a recipe as given is judged by greedy search
    given = replace(found, recipe=replace(found.recipe, name="multi30k-rnn-additive-given"))
    assert given.figure().endswith(" BLEU, greedy")
    assert str(tmp_path.parent) not in made.caption


def test_a_block_takes_the_place_of_the_one_before(gallery):
    page = "a\n<!-- picture: x -->\nold\n<!-- end -->\nb\n<!-- picture: y -->\n<!-- end -->\n"
    new = gallery.with_block(page, "x", "new\n")
    assert new == page.replace("old", "new")
    assert gallery.with_block(new, "x", "new\n") == new
    with pytest.raises(GlassformerError, match=r"no <!-- picture: z -->"):
        gallery.with_block(page, "z", "")
    joined = gallery.with_block(page, "flowers-ladder-maps", "new\n")
    assert joined.startswith(page)
    assert joined.endswith("<!-- picture: flowers-ladder-maps -->\nnew\n<!-- end -->\n")
    assert "### ViT explanations without and with augmentation\n\nRollout of [CLS]" in joined
    assert gallery.with_block(joined, "flowers-ladder-maps", "new\n") == joined


def test_an_arm_of_a_study_is_found_in_its_folder(gallery, tmp_path):
    run = tmp_path / "runs" / "ladder" / "arms" / "strong" / "seed-0"
    run.mkdir(parents=True)
    with pytest.raises(GlassformerError, match="no finished run of ladder/strong"):
        gallery.find_run("ladder/strong", [tmp_path / "runs"])
    (run / "metrics.json").write_text("{}", encoding="utf-8")
    assert gallery.find_run("ladder/strong", [tmp_path / "runs"]) == run


def test_a_published_run_is_read_from_its_result_file(gallery):
    run = gallery.GalleryRun.published("imdb-encoder-small-given")
    made = gallery.curves(run)
    assert {"training", "test", "epoch 5"} <= set(svg_texts(made.content))
    assert len(re.findall(r"\d\d\.\d%", made.caption.partition(". Each")[0])) == 5
    with pytest.raises(GlassformerError, match=r"no grid\.png"):
        gallery.grid(run)
    with pytest.raises(GlassformerError, match="no such result file"):
        gallery.GalleryRun.published("none")


def test_a_run_that_is_missing_is_one_line(gallery, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["gallery.py", "--runs", str(tmp_path), "--only", "imdb-fills"])
    before = PAGE.read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match=r"^imdb-fills: .*no finished run of imdb-mlm-given"):
        gallery.main()
    assert PAGE.read_text(encoding="utf-8") == before


def test_a_picture_too_large_is_not_written(gallery, folder, monkeypatch):
    monkeypatch.setitem(gallery.PICTURES, "small", gallery.Picture(("digits",), gallery.confusion))
    content, text = gallery.make("small", [folder])
    assert text.startswith("![A table of 10 by 10 counts.")
    monkeypatch.setattr(gallery, "MOST", len(content) - 1)
    with pytest.raises(GlassformerError, match=r"at most [\d,]+ are committed"):
        gallery.make("small", [folder])
