"""Rows whose weights only the Hub has, run in form: their own recipe on a tiny checkpoint and few examples.

Nothing is learned here. What is held to: every other key of the recipe, from the picture's size to the optimiser, makes
a run that ends with a report, and the run says which weights it took.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from glassformer import ImageClassifier, TextClassifier, save_pretrained
from glassformer.families.bert import bert
from glassformer.models.text import TextEncoder as Bert
from glassformer.report.published import find_row
from glassformer.tasks.run_folder import Run

from .tiny import sentences, write_csv


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of 24 pictures of two colours, of several sizes."""
    rng = np.random.default_rng(0)
    for i in range(24):
        label, level = (("hot", 200), ("cold", 60))[i % 2]
        file = tmp_path / "pictures" / label / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.normal(level, 20, (40 + i, 56, 3)).clip(0, 255).astype("uint8")
        Image.fromarray(pixels).save(file)
    return tmp_path / "pictures"


@pytest.fixture
def tiny_bert(tmp_path: Path) -> Path:
    """A BERT folder with a vocabulary and random weights."""
    texts, labels = zip(*sentences(20), strict=True)
    settings = {
        "d_model": 16,
        "num_layers": 1,
        "num_heads": 2,
        "d_ff": 16,
        "min_count": 1,
        "epochs": 1,
        "threads": 1,
    }
    clf = TextClassifier("encoder-mini", tokenizer="wordpiece", max_length=16, **settings).fit(texts, labels)
    size = clf.tokenizer_.get_vocab_size()
    folder = tmp_path / "tiny-bert"
    folder.mkdir()
    save_pretrained(Bert(bert(size, 32, 1, 2, 64)), folder)
    clf.tokenizer_.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def tiny_vit(tmp_path: Path) -> Path:
    """A ViT folder for 224 px with random weights."""
    folder = tmp_path / "tiny-vit"
    settings = {
        "patch_size": 56,
        "d_model": 16,
        "num_layers": 1,
        "num_heads": 2,
        "d_ff": 16,
        "epochs": 1,
        "threads": 1,
    }
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 255, (32, 32, 3), dtype=np.uint8) for _ in range(4)]
    ImageClassifier("vit-tiny", image_size=224, **settings).fit(images, ["a", "b", "a", "b"]).save(folder)
    return folder


def run(call, row: str, folder: Path, *changes: str) -> list[dict]:
    """The metrics of each recipe that a row gives."""
    words = ("epochs=1", "threads=1", "precision=fp32", "bootstrap=20", "baselines=false", *changes)
    result = call("reproduce", row, "--out", folder, *(w for c in words for w in ("--set", c)))
    assert result.code == 0, result.err
    assert "with settings of your own" in result.out
    given = find_row(row).given
    assert f"row {row}, " in result.out.splitlines()[0]
    assert all(name in result.out.splitlines()[0] for name in given)
    folders = [folder / name for name in given] if len(given) > 1 else [folder]
    assert all((each / "report.html").is_file() for each in folders)
    return [json.loads((each / "metrics.json").read_text(encoding="utf-8")) for each in folders]


def test_fine_tuning_bert(gf, tmp_path, tiny_bert):
    data = write_csv(tmp_path / "reviews.csv", sentences(40))
    (metrics,) = run(gf, "1", tmp_path / "r", f"model={tiny_bert}", f"source={data}", "test_size=8", "maps=1")
    assert str(tiny_bert) in metrics["weights_source"]


@pytest.mark.parametrize("row", ["2", "9", "10"])
def test_fine_tuning_vit(gf, tmp_path, pictures, tiny_vit, row):
    changes = f"model={tiny_vit}", f"source={pictures}", "validation_size=6", "test_size=6"
    runs = run(gf, row, tmp_path / "r", *changes, "robustness=false")
    assert len(runs) == (5 if row == "10" else 1)  # every rung of the ladder
    assert all(str(tiny_vit) in metrics["weights_source"] for metrics in runs)


@pytest.mark.parametrize(
    ("row", "done", "instead"),
    [
        (
            "1",
            (),
            "glassformer train imdb-minilm-best or glassformer train imdb-minilm-given or glassformer train imdb-own-bert-given or glassformer train imdb-minilm or glassformer train imdb-textcnn",
        ),
        (
            "10",
            (),
            "glassformer compare hotdog-ladder-cifar or glassformer compare hotdog-ladder-backbone or glassformer compare flowers-ladder-cifar or glassformer compare flowers-ladder-backbone",
        ),
        ("5", ("flowers-vit-given",), "glassformer train flowers-best"),
    ],
)
def test_weights_that_cannot_be_had_name_what_stands_for_them(
    refused, gf, tmp_path, monkeypatch, row, done, instead
):
    def run_task(recipe, folder, **options):
        Path(folder).mkdir(parents=True)
        return Run(folder, {"test": {"accuracy": 0.5}}, Path("report.html"))

    monkeypatch.setattr("glassformer.tasks.run.run_task", run_task)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    line = refused("reproduce", row)
    assert line.endswith(f"; in its place: {instead}")
    assert {p.name for p in (tmp_path / "runs").glob("*")} == {*done}
