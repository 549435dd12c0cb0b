"""A head trained on cached features of pictures is the head trained on a frozen encoder."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glassformer.tasks.image_classification.estimator import ImageClassifier
from glassformer.train import features

RNG = np.random.default_rng(0)
PICTURES = list(RNG.integers(0, 256, (37, 11, 11, 3), dtype=np.uint8))
LABELS = ["cat" if i % 3 else "dog" for i in range(37)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def counted(monkeypatch):
    """The pictures whose features were computed, one entry a table."""
    calls = []
    compute = features.predict_pictures

    def count(model, table, *args, **kwargs):
        calls.append(len(table))
        return compute(model, table, *args, **kwargs)

    monkeypatch.setattr(features, "predict_pictures", count)
    return calls


def make(**settings) -> ImageClassifier:
    shape = dict(image_size=11, patch_size=5, d_model=22, num_layers=2, num_heads=2, d_ff=13)
    common = dict(batch_size=7, epochs=3, lr=0.01, train_layers=0, precision="fp32")
    return ImageClassifier("vit-tiny", **(shape | common | settings))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("pooling", ["first", "mean", "max", "pooler"])
def test_equal_to_training_without_the_cache(monkeypatch, counted, pooling, precision):
    held = PICTURES[:13], LABELS[:13]
    settings = dict(
        pooling=pooling,
        precision=precision,
        class_weight="balanced",
        label_smoothing=0.1,
        head="mlp",
        head_hidden=11,
        head_dropout=0.2,
    )
    ours = make(**settings).fit(PICTURES, LABELS, validation=held)
    assert counted == [37, 13]
    monkeypatch.setattr("glassformer.tasks.image_classification.estimator.can_be_cached", lambda *_: False)
    plain = make(**settings).fit(PICTURES, LABELS, validation=held)
    assert counted == [37, 13]
    near = dict(rtol=1e-3, atol=1e-4) if precision == "fp32" else dict(rtol=0.05, atol=0.05)
    for name, wanted in plain.model_.state_dict().items():
        torch.testing.assert_close(ours.model_.state_dict()[name], wanted, **near)
    for a, b in zip(ours.history_, plain.history_, strict=True):
        assert a.keys() == b.keys()
        assert a["loss"] == pytest.approx(b["loss"], rel=near["rtol"])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("layers", [dict(train_layers=1), dict(train_layers=0, unfreeze_every=2)])
@pytest.mark.parametrize(("pooling", "held"), [("first", None), ("mean", (PICTURES[:13], LABELS[:13]))])
def test_the_upper_layers_learn_from_kept_rows(monkeypatch, counted, pooling, held, layers, precision):
    settings = dict(pooling=pooling, precision=precision, num_layers=3, **layers)
    ours = make(**settings).fit(PICTURES, LABELS, validation=held)
    assert counted == [37, 13][: 1 + bool(held)]
    monkeypatch.setattr("glassformer.tasks.image_classification.estimator.cached_layers", lambda *_: 0)
    plain = make(**settings).fit(PICTURES, LABELS, validation=held)
    assert counted == [37, 13][: 1 + bool(held)]
    start = make(**settings | dict(train_layers=0, unfreeze_every=0, lr=1e-9)).fit(PICTURES, LABELS)
    near = dict(rtol=1e-3, atol=1e-4) if precision == "fp32" else dict(rtol=0.05, atol=0.05)
    learned = set()
    for name, wanted in plain.model_.state_dict().items():
        found = ours.model_.state_dict()[name]
        torch.testing.assert_close(found, wanted, **near)
        if not torch.allclose(found, start.model_.state_dict()[name], atol=1e-6):
            learned.add(".".join(name.split(".")[:3]) if name.startswith("encoder.layers") else "head")
    assert learned == {"head", "encoder.layers.2"} or held  # which may choose weights from before it learned
    for a, b in zip(ours.history_, plain.history_, strict=True):
        assert a.get("loss", 0.0) == pytest.approx(b.get("loss", 0.0), rel=near["rtol"])


def test_rows_that_are_too_many_are_not_kept(monkeypatch, counted):
    monkeypatch.setattr(features, "MOST_ROWS", 37 * 5 * 22 * 4 - 1)
    make(epochs=1, train_layers=1).fit(PICTURES, LABELS)
    assert counted == []
    monkeypatch.setattr(features, "MOST_ROWS", 37 * 5 * 22 * 4)
    make(epochs=1, train_layers=1).fit(PICTURES, LABELS)
    assert counted == [37]


def test_kept_outputs_are_the_outputs(counted):
    clf = make().fit(PICTURES, LABELS)
    for _ in range(2):
        np.testing.assert_allclose(clf.kept_outputs(PICTURES[:13]), clf.outputs(PICTURES[:13]), atol=1e-5)
    assert counted == [37, 13]
    learned = make(train_layers=1).fit(PICTURES, LABELS)
    np.testing.assert_array_equal(learned.kept_outputs(PICTURES[:13]), learned.outputs(PICTURES[:13]))


def test_a_second_head_computes_no_features(counted):
    make().fit(PICTURES, LABELS)
    make(lr=0.1, head_dropout=0.3, class_weight="balanced").fit(PICTURES, LABELS)
    assert counted == [37]
    make(mean=(0.1, 0.2, 0.3)).fit(PICTURES, LABELS)  # the same bytes, read in another way
    assert counted == [37, 37]


@pytest.mark.parametrize(
    "settings",
    [
        dict(augment="light"),
        dict(mix="cutmix"),
        dict(patch_dropout=0.3),
        dict(train_layers=2),
        dict(pooling="attention"),
        dict(dropout=0.1),
    ],
)
def test_what_changes_from_step_to_step_is_not_kept(counted, settings):
    make(epochs=1, **settings).fit(PICTURES, LABELS)
    assert counted == []
