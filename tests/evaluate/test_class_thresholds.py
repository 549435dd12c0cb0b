"""Thresholds of several classes against every offset tried out, scikit-learn's figures and what is known."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from glassformer.errors import DataError, InputError, ShapeError
from glassformer.evaluate.calibrate import (
    class_by_threshold,
    class_metric,
    cross_validated_metric,
    tune_class_thresholds,
    tune_threshold,
)
from glassformer.evaluate.predict import softmax


def shifted(n: int, classes: int, favored: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities [n, K] that favor class 0 too much by that offset, and classes drawn from the true ones."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1.5, (n, classes))
    true = softmax(logits)
    y = (true.cumsum(1) > rng.random((n, 1))).argmax(1)
    logits[:, 0] += favored
    return softmax(logits), y


def tried_out(p: np.ndarray, y: np.ndarray, metric: str) -> float:
    """The best figure over a grid of offsets of all classes but the last."""
    grid = np.linspace(-4, 4, 33)
    offsets = np.stack([*np.meshgrid(grid, grid), np.zeros((33, 33))], -1).reshape(-1, 3)
    return max(class_metric((np.log(p) + b).argmax(1), y, 3, metric) for b in offsets)


@pytest.mark.parametrize("metric", ["macro_f1", "accuracy"])
@pytest.mark.parametrize("seed", range(5))
def test_it_comes_near_the_best_of_all_offsets(seed, metric):
    p, y = shifted(83, 3, 1.3, seed)
    thresholds, value = tune_class_thresholds(p, y, metric)
    answers = class_by_threshold(p, thresholds)
    known = f1_score(y, answers, average="macro") if metric == "macro_f1" else accuracy_score(y, answers)
    assert value == pytest.approx(known)
    assert value >= class_metric(p.argmax(1), y, 3, metric)
    assert value >= tried_out(p, y, metric) - 0.03  # a search along one class at a time may end below it
    assert thresholds.sum() == pytest.approx(1)


def test_an_offset_is_found_again():
    p, y = shifted(20_011, 5, 2.0)
    thresholds, value = tune_class_thresholds(p, y)
    offsets = -np.log(thresholds)
    assert offsets[1:].mean() - offsets[0] == pytest.approx(2.0, abs=0.35)
    assert value > class_metric(p.argmax(1), y, 5, "macro_f1") + 0.05


def test_two_classes_are_the_threshold_on_the_second():
    p, y = shifted(211, 2, 0.9)
    one, best = tune_threshold(p[:, 1], y, "macro_f1")
    _, value = tune_class_thresholds(p, y)
    assert value == pytest.approx(best)
    assert np.array_equal(class_by_threshold(p, [1 - one, one]), (p[:, 1] >= one).astype(int))


def test_where_nothing_is_better_all_are_alike():
    y = np.arange(21) % 3
    thresholds, value = tune_class_thresholds(np.eye(3)[y] * 0.8 + 0.2 / 3, y)
    assert value == 1
    np.testing.assert_allclose(thresholds, 1 / 3)


def test_a_class_of_few_examples_has_no_offset_of_its_own():
    p, y = shifted(97, 3, 1.0)
    y[y == 2] = 1
    y[:4] = 2  # of all others
    offsets = -np.log(tune_class_thresholds(p, y)[0])
    neutral = -np.log(tune_class_thresholds(p[y < 2], y[y < 2])[0])
    assert not np.allclose(offsets[0] - offsets[2], 0)
    assert np.isfinite(neutral).all()  # a class that is not there at all does no harm
    assert class_metric(np.array([2, 2]), np.array([2, 2]), 3, "macro_f1") == 1


def test_probabilities_of_zero_are_never_chosen_for_it():
    p = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    assert class_by_threshold(p, [0.98, 0.01, 0.01]).tolist() == [0, 1]


def test_what_cannot_choose_is_refused():
    p, y = shifted(13, 3, 0.0)
    with pytest.raises(InputError, match="f1 is defined only for two classes"):
        tune_class_thresholds(p, y, "f1")
    with pytest.raises(InputError, match="Did you mean 'macro_f1'"):
        tune_class_thresholds(p, y, "macrof1")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="two classes or more"):
        tune_class_thresholds(p, np.zeros(13, int))
    with pytest.raises(ShapeError, match="do not match"):
        tune_class_thresholds(p, y[:5])


def test_examples_that_did_not_choose_are_answered_by_the_others():
    y = np.arange(35) % 3
    seen = []

    def answer(others: np.ndarray, own: np.ndarray) -> np.ndarray:
        assert set(others).isdisjoint(own)
        seen.extend(own.tolist())
        return y[own]

    assert cross_validated_metric(answer, lambda answers: float((answers == y).mean()), y) == 1
    assert sorted(seen) == list(range(35))
    assert cross_validated_metric(answer, lambda answers: 0.0, np.array([0, 0, 0, 1])) is None
