"""Heads of several labels at once, or of a number: folders of transformers are opened, ours by it, with equal logits."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.parity.hub_folders import make
from transformers import (
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    ViTImageProcessor,
)

import glassformer as gf
from glassformer.export.hf_folder import export_hf

TEXTS = [
    "the film is warm",
    "a dull plot",
    "where is the bad film in oslo ?",
    "funny",
    "warm and bad",
    "oslo",
    "a",
]
PICTURES = [np.random.default_rng(i).integers(0, 256, (8, 8, 3), np.uint8) for i in range(7)]
SETS = [["cat"], ["dog", "run"], [], ["cat", "dog"], ["run"], ["dog"], ["cat", "run"]]
NUMBERS = [3.5, -1.25, 6.0, 0.5, 2.0, 8.0, -4.0]
NAMES = {0: "run", 1: "dog", 2: "cat"}
TARGETS = {
    "several": {"problem_type": "multi_label_classification", "id2label": NAMES},
    "number": {"problem_type": "regression", "id2label": {0: "LABEL_0"}},
    "one output": {"id2label": {0: "LABEL_0"}},  # which is a number without being said to be one
}
ESTIMATORS = {
    ("bert", True): gf.TextRegressor,
    ("bert", False): gf.TextClassifier,
    ("vit", True): gf.ImageRegressor,
    ("vit", False): gf.ImageClassifier,
}
FAMILIES = pytest.mark.parametrize("family", ["bert", "vit"])


def asked(folder: Path, family: str, targets: Any) -> tuple[list[str], np.ndarray, float]:
    """The labels, the logits ``[n, C]`` and the loss of transformers' class, by its own tokenizer or processor."""
    if family == "vit":
        model = AutoModelForImageClassification.from_pretrained(folder).eval()
        batch = ViTImageProcessor.from_pretrained(folder)(PICTURES, return_tensors="pt")
    else:
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        batch = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    names = list(model.config.id2label.values())
    if isinstance(targets[0], list):
        targets = [[float(name in own) for name in names] for own in targets]
    with torch.no_grad():
        out = model(**batch, labels=torch.tensor(targets))
    return names, out.logits.numpy(), float(out.loss)


def outputs(est: Any) -> np.ndarray:
    """``[n, C]``."""
    est.set_params(precision="fp32")
    X = PICTURES if isinstance(est, gf.ImageClassifier | gf.ImageRegressor) else TEXTS
    return est.predict(X)[:, None] if hasattr(est, "predict_interval") else est.logits(X)


@FAMILIES
@pytest.mark.parametrize("target", TARGETS)
def test_theirs_are_answered_as_by_them(family, target, tmp_path):
    number, X = target != "several", PICTURES if family == "vit" else TEXTS
    y = NUMBERS if number else SETS
    theirs = make(tmp_path, family, "classification", **TARGETS[target])
    est = gf.load(theirs)
    assert type(est) is ESTIMATORS[family, number]
    names, wanted, _ = asked(theirs, family, y)
    order = (
        [0] if number else [names.index(label) for label in est.classes_]
    )  # sorted, and the head's rows with them
    size = max(
        1.0, np.abs(wanted).max()
    )  # sums in another order are as far apart as the largest of them allows
    np.testing.assert_allclose(outputs(est), wanted[:, order], atol=1e-5 * size)
    if not number:
        chances = 1 / (1 + np.exp(-wanted[:, order].astype(np.float64)))
        np.testing.assert_allclose(est.predict_proba(X), chances, atol=1e-5)
        assert est.predict(X) == [tuple(est.classes_[row >= 0.5]) for row in chances]
    copy = est.save(tmp_path / "ours")
    np.testing.assert_array_equal(outputs(gf.load(copy)), outputs(est))
    np.testing.assert_allclose(asked(copy, family, y)[1], wanted, atol=1e-5 * size)
    est.set_params(epochs=1).fit(X, y)  # trained further
    assert number or est.kind_.is_multilabel


@FAMILIES
@pytest.mark.parametrize("how", ["saved", "exported"])
@pytest.mark.parametrize("target", ["several", "number"])
def test_ours_open_as_theirs(family, target, how, tmp_path):
    number, X = target == "number", PICTURES if family == "vit" else TEXTS
    y = NUMBERS if number else SETS
    base, folder = make(tmp_path, family, "classification", **TARGETS[target]), tmp_path / how
    options = {"epochs": 2, "batch_size": 3, "precision": "fp32", "threads": 1, "seed": 1}
    options |= {"max_length": 19, "pooling": "pooler"} if family == "bert" else {}
    est = ESTIMATORS[family, number](str(base), **options).fit(X, y)
    if how == "saved":
        est.save(folder)
    else:
        assert export_hf(est, folder, X)["whole"]
    assert json.loads((folder / "config.json").read_text())["problem_type"] == TARGETS[target]["problem_type"]
    names, found, loss = asked(folder, family, y)
    assert number or names == est.classes_.tolist()
    near = 1e-5 * (est.kind_.unit if number else 1)  # the head's rows are multiplied by the unit
    np.testing.assert_allclose(outputs(est), found, atol=near)
    np.testing.assert_allclose(outputs(gf.load(folder)), found, atol=near)
    if number:
        assert loss == pytest.approx(float(np.square(found[:, 0] - NUMBERS).mean()), rel=1e-5)
    else:
        truth = torch.tensor([[float(name in own) for name in names] for own in SETS])
        wanted = torch.nn.functional.binary_cross_entropy_with_logits(torch.from_numpy(found), truth)
        assert loss == pytest.approx(float(wanted), rel=1e-5)


def test_onnx_gives_the_same_labels(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from glassformer.export.onnx_folder import export_onnx

    base = make(tmp_path, "bert", "classification", **TARGETS["several"])
    clf = gf.TextClassifier(str(base), max_length=19, epochs=1, precision="fp32", seed=1)
    clf.fit(TEXTS * 3, SETS * 3, validation=(TEXTS, SETS))
    clf.temperature_ = np.array([0.5, 1.0, 2.0])
    assert export_onnx(clf, tmp_path / "onnx", TEXTS)["labels_changed"] == 0
    about = json.loads((tmp_path / "onnx" / "onnx.json").read_text())
    assert (about["several"], about["threshold"]) == (True, clf.threshold_.tolist())
    done = subprocess.run(
        [sys.executable, tmp_path / "onnx" / "run.py", *TEXTS], capture_output=True, text=True, check=True
    )
    shares, given = clf.predict_proba(TEXTS), clf.predict(TEXTS)
    for line, row, labels in zip(done.stdout.splitlines(), shares, given, strict=True):
        cells = line.split("\t")
        assert tuple(cells[::2]) == (labels or ("(none)",))
        found = [float(x) for x in cells[1::2]]
        np.testing.assert_allclose(found, row[np.isin(clf.classes_, labels)], atol=2e-4)
