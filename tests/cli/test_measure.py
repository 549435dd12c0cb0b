"""Balance and macro-F1 asked for: lines, tables, figures and simple models all go by them."""

import json

import numpy as np
import pytest

from glassformer.tasks.image_classification import estimator as of_pictures
from glassformer.tasks.text_classification import estimator as of_texts

from .every import VIT
from .tiny import pictures, sentences, sets, settings, write_csv

ASKED = ("--set", "class_weight=balanced", "--set", "monitor=macro_f1", "--set", "baselines=true")


@pytest.fixture
def weights(monkeypatch):
    """What the simple models are given: name -> the weight of each training example, by its class."""
    seen = {}

    def watch(module, name):
        real = getattr(module, name)

        def called(*args, **options):
            seen[name] = (np.asarray(args[1]), options)
            return real(*args, **options)

        monkeypatch.setattr(module, name, called)

    for name in ("tfidf_logistic", "bag_of_embeddings"):
        watch(of_texts, name)
    watch(of_pictures, "pixel_logistic")
    return seen


def balanced(targets: np.ndarray) -> np.ndarray:
    counts = np.bincount(targets)
    return len(targets) / (len(counts) * counts[targets])


def test_texts(gf, ok, tmp_path, weights):
    rows = [row for i, row in enumerate(sentences(90)) if row[1] == "pos" or i % 6 == 0]
    write_csv(tmp_path / "rare.csv", rows)
    result = ok("train", "--text", "rare.csv", "--out", "run", *settings(), *ASKED)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["measure"] == "macro_f1"
    assert {b["class_weight"] for b in metrics["baselines"].values()} == {"balanced"}
    for name in ("tfidf_logistic", "bag_of_embeddings"):
        targets, options = weights[name]
        np.testing.assert_allclose(options["sample_weight"], balanced(targets), rtol=1e-5)
    assert weights["tfidf_logistic"][1]["measure"] == "macro_f1"
    head = next(line for line in result.out.splitlines() if "accuracy" in line and "┃" in line)
    assert head.index("macro-F1") < head.index("accuracy")
    assert "the simple models were trained with the same class weights" in result.out
    assert "validation macro-F1: " in result.out
    epoch = next(line for line in result.out.splitlines() if line.startswith("epoch "))
    assert epoch.index("macro-F1") < epoch.index("(best)") < epoch.index("accuracy")
    shown = gf("evaluate", "run").out
    assert shown.index("macro-F1") < shown.index("accuracy") < shown.index("weighted F1")
    assert "average precision" in shown


def test_pictures(ok, tmp_path, weights):
    pictures(tmp_path / "folder", {"many": 31, "rare": 7}, (9, 11))
    result = ok("train", "--images", "folder", "--out", "run", *sets(*VIT), *ASKED)
    targets, options = weights["pixel_logistic"]
    np.testing.assert_allclose(options["sample_weight"], balanced(targets), rtol=1e-5)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["measure"] == "macro_f1"
    assert "the simple models were trained with the same class weights" in result.out


def test_folds(ok, tmp_path):
    write_csv(tmp_path / "reviews.csv", sentences(60))
    words = ("--text", "reviews.csv", "--folds", 2, "--out", "folds", *settings(), *ASKED[:4])
    result = ok("cross-validate", *words)
    assert "fold 1 of 2: macro-F1 0." in result.out
    head = next(line for line in result.out.splitlines() if "accuracy" in line and "┃" in line)
    assert head.index("macro-F1") < head.index("accuracy")
    assert "answers: macro-F1" in result.out
    page = (tmp_path / "folds" / "report.html").read_text(encoding="utf-8")
    assert "Macro-F1 on" in page
