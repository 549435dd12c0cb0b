"""Metrics against scikit-learn's own, and what is refused."""

import json
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from glassformer.errors import DataError, GlassformerError, InputError, ShapeError
from glassformer.targets.multiclass import Classes


def draw(n: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(classes, 0.7), n), rng.integers(0, classes, n)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 60), st.integers(2, 5), st.integers(0, 10**6))
def test_figures_equal_scikit_learn(n, classes, seed):
    p, y = draw(n, classes, seed)
    got = Classes().score(p, y, list("abcde"[:classes]), bootstrap=0)
    chosen = p.argmax(1)
    assert got["n"] == n
    assert got["accuracy"] == pytest.approx(sk.accuracy_score(y, chosen))
    assert got["macro_f1"] == pytest.approx(sk.f1_score(y, chosen, average="macro", zero_division=0))
    assert got["log_loss"] == pytest.approx(sk.log_loss(y, p, labels=range(classes)))
    assert got["confusion"] == sk.confusion_matrix(y, chosen, labels=range(classes)).tolist()
    expected = sk.precision_recall_fscore_support(y, chosen, labels=range(classes), zero_division=0)
    for c, row in enumerate(got["per_class"]):
        assert [row["precision"], row["recall"], row["f1"], row["support"]] == pytest.approx(
            [column[c] for column in expected]
        )
    assert got["weighted_f1"] == pytest.approx(sk.f1_score(y, chosen, average="weighted", zero_division=0))
    if classes == 2 and 0 < y.sum() < n:
        assert got["roc_auc"] == pytest.approx(sk.roc_auc_score(y, p[:, 1]), abs=1e-6)
        assert got["average_precision"] == pytest.approx(sk.average_precision_score(y, p[:, 1]), abs=1e-6)
    elif len(np.unique(y)) == 1:
        assert [got["roc_auc"], got["average_precision"]] == [None, None]
    elif len(np.unique(y)) == classes:
        assert got["roc_auc"] == pytest.approx(sk.roc_auc_score(y, p, multi_class="ovr"), abs=1e-6)
        every = np.eye(classes)[y]
        assert got["average_precision"] == pytest.approx(sk.average_precision_score(every, p), abs=1e-6)
    assert json.loads(json.dumps(got)) == got


def test_a_class_without_examples_has_no_part_in_the_areas(monkeypatch):
    p, y = draw(97, 3, 5)
    y = np.where(y == 2, 0, y)
    got = Classes().score(p, y, list("abc"), bootstrap=0)
    areas = [sk.roc_auc_score(y == c, p[:, c]) for c in (0, 1)]
    assert got["roc_auc"] == pytest.approx(np.mean(areas), abs=1e-6)
    assert Classes().score(p, y, list("abc"), bootstrap=0, curves=False)["roc_auc"] is None
    monkeypatch.setattr("glassformer.targets.multiclass.MAX_SCORES", 97 * 3 - 1)
    too_many = Classes().score(p, y, list("abc"), bootstrap=0)
    why = dict.fromkeys(("roc_auc", "average_precision"), "there are more than 290 scores")
    assert too_many == got | {"roc_auc": None, "average_precision": None, "undefined": why}


def test_bootstrap_agrees_with_resampling_the_examples():
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 211)
    p = np.eye(3)[np.where(rng.random(211) < 0.7, y, rng.integers(0, 3, 211))]
    got = Classes().score(p, y, list("abc"), bootstrap=4000)
    rows = rng.integers(0, 211, (2000, 211))
    chosen = p.argmax(1)
    accuracy = [(y[r] == chosen[r]).mean() for r in rows]
    macro_f1 = [sk.f1_score(y[r], chosen[r], average="macro") for r in rows[:600]]
    assert got["accuracy_interval"] == pytest.approx(np.quantile(accuracy, [0.025, 0.975]), abs=0.01)
    assert got["macro_f1_interval"] == pytest.approx(np.quantile(macro_f1, [0.025, 0.975]), abs=0.015)
    assert got == Classes().score(p, y, list("abc"), bootstrap=4000)  # the same seed, the same interval


@pytest.mark.parametrize(
    ("p", "targets", "error", "said"),
    [
        (np.zeros((0, 2)), [], DataError, "no example to evaluate"),
        ([[0.2, 0.3, 0.5]], [0], ShapeError, r"\(1, 3\)"),
        ([[0.5, 0.5]], [0, 1], ShapeError, None),
        ([[0.5, 0.5]], [2], DataError, r"0\.\.1"),
        ([[0.5, 0.5]], [-1], DataError, None),
        ([[np.nan, 0.5]], [0], GlassformerError, "not finite"),
        ([[1.0]], [0], InputError, "two or more"),
    ],
)
def test_bad_input_is_named(p, targets, error, said):
    with pytest.raises(error, match=said):
        Classes().score(p, targets, np.array(["only"] if np.size(p) == 1 else ["a", "b"]))


def test_a_threshold_may_decide_instead_of_the_largest_probability():
    p, y = draw(31, 2, 0)
    predicted = (p[:, 1] >= 0.8).astype(int)
    got = Classes().score(p, y, ["a", "b"], predicted, bootstrap=0)
    assert got["accuracy"] == pytest.approx((predicted == y).mean())
    assert got["log_loss"] == pytest.approx(sk.log_loss(y, p))
    with pytest.raises(ShapeError, match="predicted classes"):
        Classes().score(p, y, ["a", "b"], predicted + 1)
    with pytest.raises(ShapeError, match="predicted classes"):
        Classes().score(p, y, ["a", "b"], predicted[:-1])


def test_each_figure_has_its_own_interval():
    y = np.array([0] * 90 + [1] * 7)  # always the first class: accurate, and useless
    p = np.tile([0.9, 0.1], (97, 1))
    found = Classes().score(p, y, ["a", "b"], bootstrap=200)
    assert found["accuracy"] == pytest.approx(90 / 97)
    assert found["macro_f1"] == pytest.approx(180 / 187 / 2)
    for figure in ("accuracy", "macro_f1"):
        low, high = found[f"{figure}_interval"]
        assert low < found[figure] < high
    # a thousand resamples unless said
    p, y = draw(31, 3, 5)
    score = partial(Classes().score, p, y, list("abc"))
    assert score() == score(bootstrap=1000, seed=0)
    assert score()["macro_f1_interval"] != score(seed=1)["macro_f1_interval"]
    # As float32 probabilities these four would tie.
    p = 1 - np.array([4e-9, 3e-9, 2e-9, 1e-9])
    got = Classes().score(np.stack([1 - p, p], 1), np.array([0, 0, 1, 1]), ["neg", "pos"])
    assert got["roc_auc"] == 1.0
