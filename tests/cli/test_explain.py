"""glassformer explain: tables, pages, figures, and what cannot be."""

import json
import re

import numpy as np
import pytest

from glassformer import ImageClassifier, TextClassifier, load
from glassformer.cli.explain import _format_score
from glassformer.explain.methods import NETWORK_METHODS

from .tiny import sentences, sets, settings, write_csv

TEXT = "the film number 3 has a splendid ending"


def test_every_method_prints_a_table(ok, trained):
    for method in NETWORK_METHODS:
        said = ok("explain", trained, TEXT, "--method", method).out
        assert method in said
        assert "splendid" in said


def test_a_page_with_maps_and_a_judgement(ok, trained, tmp_path):
    words = "--method occlusion --set unit=word --trust --out map.html".split()
    result = ok("explain", trained, TEXT, "a dreadful plot", *words)
    page = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert page.count("<article") == 2
    assert len(re.findall("better than random orders in|The test cannot tell", page)) == 2
    assert '"pairHeads": 2' in page
    assert "unit word" in page
    assert page.count("<polyline") == 2 * 4
    assert "map.html" in result.out


def test_figures_as_json(ok, trained, tmp_path):
    (tmp_path / "two.txt").write_text("a splendid film\na dreadful film\n", encoding="utf-8")
    options = ("--method", "integrated_gradients", "--target", "neg", "--set", "steps=8", "--out", "map.json")
    ok("explain", trained, "two.txt", *options)
    values = json.loads((tmp_path / "map.json").read_text(encoding="utf-8"))
    assert [v["text"] for v in values] == ["a splendid film", "a dreadful film"]
    assert all(v["target"] == "neg" and v["method"] == "integrated_gradients" for v in values)
    assert all(len(v["scores"]) == len(v["tokens"]) for v in values)


def test_the_figures_of_trust_are_written(ok, trained, tmp_path):
    ok("explain", trained, TEXT, "a dreadful plot", "--trust", "--out", "map.json")
    for value in json.loads((tmp_path / "map.json").read_text(encoding="utf-8")):
        assert value["notes"] == [value["trust"]["verdict"]]
        assert value["trust"]["figures"].keys() == value["trust"]["random"]["figures"].keys()


def test_an_unfinished_integral_is_noted(ok, trained):
    options = ("--method", "integrated_gradients", *sets("steps=1", "max_steps=1", "tolerance=0"))
    result = ok("explain", trained, TEXT, *options)
    assert "note: the scores sum to the logit difference only within" in result.err


def test_the_default_is_that_of_python(gf, trained):
    found = json.loads(gf("explain", trained, "a splendid film", "--json").out)[0]
    assert found["method"] == load(trained).explain("a splendid film").method == "decomposition"
    read = json.loads(gf("explain", trained, "a splendid film", "--set", "head=0", "--json").out)[0]
    assert read["method"] == "attention"  # the first that has this option


def test_several_inputs_are_told_apart_and_special_tokens_said(gf, trained):
    out = gf("explain", trained, "a splendid film", "a dreadful plot", "--method", "rollout").out
    assert out.index("1 of 2: a splendid film") < out.index("2 of 2: a dreadful plot")
    assert out.count("special tokens: [CLS] 0.") == 2
    assert "1 of" not in gf("explain", trained, "a splendid film").out


def test_scores_far_below_one_keep_their_digits():
    small = [_format_score(score, are_small=True) for score in (3e-06, -4.2e-05, 0.0)]
    assert small == ["3.0e-06", "-4.2e-05", "0.0000"]
    assert _format_score(0.12345, are_small=False) == "0.1235"


@pytest.fixture(scope="module")
def of_pictures(tmp_path_factory):
    """A classifier of pictures with a folder of three: a good one, a line, and one that is text."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("of-pictures")
    images = np.random.default_rng(0).integers(0, 255, (4, 8, 8, 3), dtype=np.uint8)
    tiny = dict(image_size=8, patch_size=4, d_model=16, num_heads=2, epochs=1, threads=1)
    ImageClassifier("vit-tiny", **tiny).fit(images, ["a", "b", "a", "b"]).save(folder / "model")
    (folder / "files").mkdir()
    Image.fromarray(images[0]).save(folder / "files" / "good.png")
    Image.new("L", (3000, 20)).save(folder / "line.png")
    (folder / "text.png").write_text("no picture")
    return folder


def test_pictures_by_file_and_folder(gf, ok, refused, of_pictures, tmp_path):
    model, good = of_pictures / "model", of_pictures / "files" / "good.png"
    out = gf("explain", model, good, good.parent).out
    assert f"1 of 2: {str(good)[:40]}" in out
    assert "patch" in out
    ok("explain", model, good, "--out", "map.html")
    assert str(good) in (tmp_path / "map.html").read_text(encoding="utf-8")
    assert "line.png: of 3000 x 20 pixels" in refused("explain", model, good, of_pictures / "line.png")
    assert "text.png: is not an image" in refused("explain", model, good, of_pictures / "text.png")
    assert "this model reads images" in refused("explain", model, TEXT)


def test_a_file_under_the_column_of_the_training(gf, ok, tmp_path):
    rows = [(f"n{i}", text, label) for i, (text, label) in enumerate(sentences(41))]
    data = write_csv(tmp_path / "data.csv", rows, "name,body,label")
    ok("train", "--text", data, "--out", "run", *settings("text_column=body"))
    few = write_csv(tmp_path / "few.csv", [row[:2] for row in rows[:3]], "name,body")
    result = ok("explain", "run", few)
    assert "1 of 3: " + rows[0][1] in result.out
    result = gf("explain", "run", few, "--text-column", "name")
    assert "1 of 3: n0" in result.out


def test_a_model_without_attention_is_explained_by_what_it_has(ok, refused, tmp_path):
    clf = TextClassifier("textcnn", d_model=7, embedding_dim=5, min_count=1, epochs=1, threads=1)
    clf.fit(["a warm film", "a dull film"] * 5, ["good", "bad"] * 5).save(tmp_path / "textcnn")
    told = ok("explain", "textcnn", "a dull film")
    assert "· occlusion for" in told.out
    ok("explain", "textcnn", "a dull film", "--out", "page.html")
    assert "dull" in (tmp_path / "page.html").read_text(encoding="utf-8")
    said = refused("explain", "textcnn", "a dull film", "--method", "rollout")
    assert "'textcnn' has no attention to show. Use occlusion" in said


def test_rows_of_a_file_are_explained(ok, trained, tmp_path):
    table = write_csv(tmp_path / "t.csv", [("7", "a splendid film"), ("11", ""), ("13", "a plot")], "id,text")
    told = ok("explain", trained, table, "--row", 4, "--row", 2, "--json", "--method", "occlusion")
    assert [e["text"] for e in json.loads(told.out)] == ["a plot", "a splendid film"]
