"""What an error proposes can be done: near names only, the option that fits, the place in the file."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from .tiny import sentences, sets, settings, write_csv

LINEAR = ["--model", "tfidf", *sets("baselines=false", "bootstrap=7")]

RECIPE = """name = "x"
[data]
source = "reviews.csv"
[model]
model = "tfidf"
"""


@pytest.fixture(scope="module")
def linear(tmp_path_factory) -> Path:
    """A run of a linear model."""
    from glassformer.cli.app import main

    folder = tmp_path_factory.mktemp("linear")
    data = write_csv(folder / "reviews.csv", sentences(60))
    assert main(["train", "--text", str(data), *LINEAR, "--out", str(folder / "run")]) == 0
    return folder / "run"


def images(folder: Path, count: int = 3) -> Path:
    """A folder of small images."""
    folder.mkdir(parents=True)
    for i in range(count):
        Image.fromarray(np.full((8, 8, 3), 40 * i, np.uint8)).save(folder / f"{i}.png")
    return folder


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (bytes(range(1, 256)) * 8, "a.csv", "a.csv: not a text file (not UTF-8: byte 0x"),
        (
            bytes(range(256)) * 8,
            "a.csv",
            "not a text file, or a damaged one. If it is a file of another program",
        ),
        (b"text,label\na,b\n", "a.parquet", "it looks like text. If it is CSV, rename it to .csv"),
        (
            b'{"text": "a", "label": 1}\n{"text": "b" "label": 2}\n',
            "a.jsonl",
            "row 2: not JSON (expecting ',' del",
        ),
        (b'{"text": "a", "label": 1}\n{"text": "b",\n', "a.jsonl", "row 2: not JSON (it ends too early, "),
        (
            b"text,label\na,x\nb,y\n",
            "a.csv",
            "2 of 2 classes have only one example ('x', 'y'), but training, validation and test each",
        ),
        (b"text,label\na,x\nb,y\n", "a.csv", "Add examples (3 in all) of these classes"),
    ],
)
def test_a_table_that_cannot_be_used(refused, tmp_path, content, name, said):
    (tmp_path / name).write_bytes(content)
    assert said in refused("train", "--text", name, "--out", "out", *settings())


def test_only_a_near_name_is_proposed(refused, tmp_path):
    (tmp_path / "holes.csv").write_text("text,label\n")
    assert f"Check the path: 'nofile.csv' is relative to {tmp_path}" in refused(
        "train", "--text", "nofile.csv"
    )
    assert "Did you mean 'holes.csv'?" in refused("train", "--text", "hole.csv")
    assert "Did you mean 'holes.csv'?" in refused("train", "--text", "holes.tsv")


def test_the_text_column_is_no_label(refused, reviews):
    said = refused("train", "--text", reviews, "--text-column", "text", "--label-column", "text")
    assert said.endswith("Name another column with --label-column: label")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('source = "reviews.csv"', "source = reviews.csv", "Put text into quotes"),
        (
            'source = "reviews.csv"',
            'source = "review.csv"',
            "r.toml, [data] source: 'review.csv' does not exist",
        ),
        ('source = "reviews.csv"', 'source = "review.csv"', "Did you mean 'reviews.csv'?"),
        ("[model]", 'validation_size = "a"\n[model]', "r.toml, [data] validation_size: expected a number"),
        (
            "[model]",
            '[train]\nhead = "mlp"\n[model]',
            "r.toml, [train]: unknown key 'head'. It belongs under [model]",
        ),
        ("[data]", 'task = "sorting"\n[data]', "r.toml, task: no task 'sorting'"),
    ],
)
def test_a_recipe_names_its_file_section_and_key(refused, reviews, tmp_path, old, new, said):
    (tmp_path / "r.toml").write_text(RECIPE.replace(old, new))
    assert said in refused("train", "r.toml")
    assert "'glassformer new' writes a recipe" in refused("train", "s.toml")


def test_heads_that_do_not_divide_the_width_are_told_before_anything_is_read(refused):
    said = refused("train", "--text", "nowhere.csv", "--set", "d_model=64", "--set", "num_heads=3")
    assert said.startswith("error: num_heads: d_model 64 is not a multiple of num_heads 3. Use 1, 2, 4, ")


def test_a_run_that_cannot_be_resumed(gf, refused, trained, tmp_path, reviews):
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    shutil.rmtree(run / "model")
    said = refused("predict", run, "a film")
    assert (
        f"{run}: the run is finished, but its folder model/ is missing. Copy it back, or train again: "
        in said
    )
    began = gf("train", "--text", reviews, "--model", "tfidf", "--resume", "--out", "new")
    assert began.code == 0
    assert "note: nothing to resume in new: a new run begins" in began.err


def test_a_table_that_is_gone_is_missed_by_its_run(refused, ok, reviews):
    ok("train", "--text", reviews, *LINEAR, "--out", "run")
    reviews.unlink()
    Path("run/metrics.json").unlink()
    said = refused("train", "--resume", "--out", "run")
    assert f"run/config.toml, [data] source: {str(reviews)!r} does not exist. Put it back" in said


@pytest.mark.filterwarnings("default")
def test_a_separator_that_no_cell_has_is_noted(ok, tmp_path):
    rows = [(text, ["a|b", "b|c", "a|c"][i % 3]) for i, (text, _) in enumerate(sentences(60))]
    table = write_csv(tmp_path / "t.csv", rows)
    said = ok("train", "--text", table, *LINEAR, "--label-separator", ";", "--out", "run").err
    assert "note: no cell of 'label' has ';', but some have '|'" in said


def test_what_explains_a_linear_model(ok, refused, linear):
    for method in ("shap", "lime"):
        said = refused("explain", linear, "a film", "--method", method)
        assert f"unknown method {method!r}. For this model: weights, occlusion" in said
    assert "weights" in ok("explain", linear, "a film", "--target", "pos").out
    table = write_csv(Path("many.csv"), sentences(30))
    said = refused("explain", linear, table)
    assert (
        "many.csv: 30 inputs are too many: explain accepts 20 at most. Select rows: --row 2 --row 3" in said
    )
    assert "weights for linear models" in " ".join(ok("explain", "--help").out.replace("│", " ").split())


def test_options_of_another_kind_of_model(refused, linear, reviews, tmp_path):
    said = refused("predict", linear, "a film", "--labels", "a,b")
    assert (
        "--labels: labels to choose from are only for entailment models and sentence encoders (zero-shot)"
        in said
    )
    assert "--keep-table: needs an output file" in refused("predict", linear, reviews, "--keep-table")
    assert "such as all-minilm-l6-v2" in refused("embed", linear, "a film", "--out", "e.npy")
    assert "Name a run or saved model of Word2Vec" in refused("vectors", linear, "king")
    assert "not a saved model or run" in refused("predict", images(tmp_path / "pics"), "a film")


def test_images_and_texts_in_each_others_place(refused, linear, reviews, tmp_path):
    images(tmp_path / "pics" / "red")
    images(tmp_path / "pics" / "blue")
    assert "pics: contains images, not texts" in refused("evaluate", linear, "--data", "pics")
    assert "3 images, but no folders of classes. Move them into" in refused("train", "--images", "pics/red")
    said = refused("train", "--images", reviews)
    assert "no column of images (columns: text, label). For texts use a text model (--text)" in said


def test_too_little_memory_is_one_line_with_its_own_code(gf, monkeypatch, reviews):
    said = "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate"

    def train(*args, **kwargs):
        raise RuntimeError(f"{said} 1920000000000 bytes. Error code 12 (Cannot allocate memory)")

    monkeypatch.setattr("glassformer.cli.train.train", train)
    result = gf("train", "--text", reviews, "--model", "tfidf")
    assert result.code == 2
    assert result.err.startswith(
        "error: not enough memory: a single allocation needs 1.9 TB. Use a smaller model"
    )
    assert result.err.endswith("[out-of-memory]\n")
