"""Figures, thresholds and calibration of several labels per example, beside scikit-learn and by hand."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, log_loss, roc_auc_score

from glassformer.errors import DataError, GlassformerError, ShapeError
from glassformer.evaluate.calibrate import calibration_error
from glassformer.targets.multilabel import (
    LabelSets,
    binary_loss,
    describe_labels,
    fit_temperatures,
    sigmoid,
    tune_thresholds,
)

NAMES = ["a", "b", "c", "d", "e"]


@pytest.fixture
def answers():
    rng = np.random.default_rng(3)
    y = (rng.random((211, 5)) < [0.5, 0.3, 0.1, 0.03, 0.0]).astype(int)
    p = sigmoid(rng.normal(size=y.shape) + 2 * y - 1)
    return p, y


def test_figures_are_scikit_learns(answers):
    p, y = answers
    found, given = LabelSets().score(p, y, NAMES, bootstrap=50), p > 0.5
    assert found["accuracy"] == accuracy_score(y, given)
    for average in ("macro", "micro", "weighted"):
        assert found[f"{average}_f1"] == pytest.approx(f1_score(y, given, average=average, zero_division=0))
    losses = [log_loss(y[:, k], p[:, k], labels=[0, 1]) for k in range(5)]
    assert found["log_loss"] == pytest.approx(np.mean(losses), rel=1e-6)
    known = [k for k in range(5) if 0 < y[:, k].sum() < 211]
    for key, area in (("average_precision", average_precision_score), ("roc_auc", roc_auc_score)):
        wanted = np.mean([area(y[:, k], p[:, k].astype(np.float32)) for k in known])
        assert found[key] == pytest.approx(wanted)
    assert [row["support"] for row in found["per_class"]] == y.sum(0).tolist()
    assert found["per_class"][4]["average_precision"] is None
    for key in ("accuracy", "macro_f1", "micro_f1"):
        low, high = found[f"{key}_interval"]
        assert low < found[key] < high
    assert LabelSets().score(p, y, NAMES, bootstrap=0, curves=False)["roc_auc"] is None


def test_thresholds_decide_and_pairs_are_counted():
    y = np.array([[1, 1], [1, 1], [0, 1], [0, 0]])
    given = np.array([[1, 1], [1, 0], [0, 1], [0, 0]], bool)
    found = LabelSets().score(np.full((4, 2), 0.4), y, ["x", "y"], given, bootstrap=0)
    assert found["accuracy"] == 0.75
    shares = {"of_first": 1.0, "of_second": 2 / 3, "lift": 2 * 4 / (2 * 3)}
    assert found["together"] == [{"labels": ["x", "y"], "count": 2, "predicted": 1, **shares}]
    assert found["labels_per_example"] == {"true": 1.25, "predicted": 1.0}
    assert found["macro_f1_interval"] is None


def test_thresholds_are_the_best_of_all_that_there_are(answers):
    p, y = answers

    def f1(true, probabilities, cut):
        given = probabilities >= cut
        return 2 * (true * given).sum() / (true.sum() + given.sum())

    found = tune_thresholds(p, y)
    for k in range(3):
        best = max(f1(y[:, k], p[:, k], cut) for cut in np.unique(p[:, k]))
        assert f1_score(y[:, k], p[:, k] >= found[k]) == pytest.approx(best)
    best = max(f1(y, p, cut) for cut in np.unique(p))
    assert f1_score(y.ravel(), p.ravel() >= found[4]) == pytest.approx(best)  # no example: that of all


def test_temperatures_undo_a_scale_of_each_label():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(20_000, 3)) * 2
    y = (rng.random(z.shape) < sigmoid(z)).astype(int)
    scale = np.array([0.5, 1.0, 3.0])
    np.testing.assert_allclose(fit_temperatures(z * scale, y), scale, rtol=0.08)
    assert binary_loss(z, y) == pytest.approx(log_loss(y.ravel(), sigmoid(z).ravel()))
    assert (
        calibration_error(sigmoid(z)[:, 1], y[:, 1]) < 0.01 < calibration_error(sigmoid(3 * z)[:, 1], y[:, 1])
    )
    # calibration by hand
    p, y = np.array([[0.25, 0.9], [0.25, 0.9]]), np.array([[0, 1], [1, 1]])
    found = describe_labels(p, y, resamples=20)
    assert found["ece_per_label"] == pytest.approx([0.25, 0.1])
    assert found["ece"] == pytest.approx(0.175)
    assert [b["n"] for b in found["curve"]] == [2, 2]
    assert found["log_loss"] == pytest.approx(-np.log([0.75, 0.25, 0.9, 0.9]).mean())
    # what does not fit is refused
    with pytest.raises(ShapeError):
        LabelSets().score(np.zeros((3, 4)), np.zeros((3, 4)), NAMES)
    with pytest.raises(GlassformerError, match="not finite"):
        LabelSets().score(np.full((1, 5), np.nan), np.zeros((1, 5)), NAMES)
    with pytest.raises(DataError, match="no example"):
        LabelSets().score(np.zeros((0, 5)), np.zeros((0, 5)), NAMES)
