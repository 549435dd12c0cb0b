"""Pictures with several labels, or a number: folders of transformers are opened, ours by it, with equal logits."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

import glassformer as gf
from glassformer.export.hf_folder import export_hf

PICTURES = [np.random.default_rng(i).integers(0, 256, (15, 15, 3), np.uint8) for i in range(7)]
SETS = [["cat"], ["dog", "run"], [], ["cat", "dog"], ["run"], ["dog"], ["cat", "run"]]
NUMBERS = [3.5, -1.25, 6.0, 0.5, 2.0, 8.0, -4.0]
SIZES = {"hidden_size": 22, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 31}
SIZES |= {"image_size": 15, "patch_size": 5, "initializer_range": 0.5}
KINDS = {
    "several": {
        "problem_type": "multi_label_classification",
        "id2label": {0: "run", 1: "dog", 2: "cat"},
        "label2id": {"run": 0, "dog": 1, "cat": 2},
    },
    "number": {"problem_type": "regression", "num_labels": 1},
}


def written(folder, kind):
    torch.manual_seed(3)
    ViTForImageClassification(ViTConfig(**SIZES, **KINDS[kind])).eval().save_pretrained(folder)
    ViTImageProcessor(size={"height": 15, "width": 15}).save_pretrained(folder)
    return folder


def asked(folder) -> tuple[list[str], np.ndarray]:
    """The labels and logits ``[n, C]`` of transformers' class, by its own processor."""
    model = ViTForImageClassification.from_pretrained(folder).eval()
    batch = ViTImageProcessor.from_pretrained(folder)(PICTURES, return_tensors="pt")
    with torch.no_grad():
        return list(model.config.id2label.values()), model(**batch).logits.numpy()


def outputs(est, kind) -> np.ndarray:
    est.set_params(precision="fp32")
    return est.predict(PICTURES)[:, None] if kind == "number" else est.logits(PICTURES)


@pytest.mark.parametrize("kind", KINDS)
def test_theirs_are_answered_as_by_them(kind, tmp_path):
    est = gf.load(written(tmp_path / "theirs", kind))
    assert type(est) is (gf.ImageRegressor if kind == "number" else gf.ImageClassifier)
    names, wanted = asked(tmp_path / "theirs")
    order = [0] if kind == "number" else [names.index(label) for label in est.classes_]
    size = max(
        1.0, np.abs(wanted).max()
    )  # sums in another order are as far apart as the largest of them allows
    np.testing.assert_allclose(outputs(est, kind), wanted[:, order], atol=1e-5 * size)
    if kind == "several":
        chances = 1 / (1 + np.exp(-wanted[:, order].astype(np.float64)))
        np.testing.assert_allclose(est.predict_proba(PICTURES), chances, atol=1e-5)
        assert est.predict(PICTURES) == [tuple(est.classes_[row >= 0.5]) for row in chances]


@pytest.mark.parametrize("how", ["saved", "exported"])
@pytest.mark.parametrize("kind", KINDS)
def test_ours_open_as_theirs(kind, how, tmp_path):
    base, folder = written(tmp_path / "theirs", kind), tmp_path / how
    make, targets = (gf.ImageRegressor, NUMBERS) if kind == "number" else (gf.ImageClassifier, SETS)
    est = make(str(base), epochs=2, batch_size=3, precision="fp32", threads=1, seed=1).fit(PICTURES, targets)
    if how == "saved":
        est.save(folder)
    else:
        assert export_hf(est, folder, PICTURES)["whole"]
    assert json.loads((folder / "config.json").read_text())["problem_type"] == KINDS[kind]["problem_type"]
    names, found = asked(folder)
    assert kind == "number" or names == est.classes_.tolist()
    near = 1e-5 * (est.kind_.unit if kind == "number" else 1)  # the head's rows are multiplied by the unit
    np.testing.assert_allclose(outputs(est, kind), found, atol=near)
    np.testing.assert_allclose(outputs(gf.load(folder), kind), found, atol=near)
