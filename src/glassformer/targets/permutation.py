"""Paired permutation test and bootstrap statistics for regression.

The test (Fisher, 1935; Pitman, 1937) assumes that under the null hypothesis the two predictions for an
example are exchangeable. Correlations do not depend on the scale of a model. Therefore ranks are exchanged
for Spearman's correlation, and standardized numbers for Pearson's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from glassformer.errors import ShapeError
from glassformer.evaluate.compare import Statistic

MAX_SWAPS = 2**22  # numbers that are swapped at a time, to limit the memory


def correlation(counts: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Pearson's correlation ``[r]`` of resamples in which each example occurs ``counts`` ``[r, n]`` times."""
    n = counts.sum(1, keepdims=True)
    a = a - (counts * a).sum(1, keepdims=True) / n
    b = b - (counts * b).sum(1, keepdims=True) / n
    norm = (counts * a * a).sum(1) * (counts * b * b).sum(1)
    return (counts * a * b).sum(1) / np.sqrt(norm)


def midranks(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The rank ``[r, n]`` of each value in each resample; ties have their mean rank."""
    _, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(group[order]) > 0])
    group_sizes = np.add.reduceat(counts[:, order], starts, axis=1)  # [r, distinct]
    return (group_sizes.cumsum(1) - (group_sizes - 1) / 2)[:, group]


def number_statistic(measure: str, targets: ArrayLike, predicted: ArrayLike) -> Statistic:
    """The statistic of a measure in ``Numbers.compared``; 0 for resamples in which it is undefined.

    Args:
        targets: true numbers ``[n]``.
        predicted: predictions ``[S, n]`` with S seeds.
    """
    true, predictions = np.asarray(targets, np.float64), np.asarray(predicted, np.float64)
    if true.ndim != 1 or predictions.shape[1:] != true.shape:
        raise ShapeError(f"predictions {predictions.shape} are not of {len(true)} examples")

    def statistic(counts: np.ndarray) -> np.ndarray:
        weights = np.asarray(counts, np.float64)  # [c, n]
        return np.stack([_statistic(measure, weights, true, row) for row in predictions])

    return statistic


def _statistic(measure: str, weights: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """The measure ``[c]`` of resamples in which each example occurs ``weights`` ``[c, n]`` times."""
    n = weights.sum(1)
    if measure == "mae":
        return weights @ np.abs(predicted - true) / n
    with np.errstate(invalid="ignore", divide="ignore"):
        if measure == "r2":
            centered = true - true.mean()  # the squares of large numbers would lose precision
            mean = weights @ centered / n
            spread = weights @ centered**2 / n - mean**2
            varies = spread > 1e-12 * centered.var()
            values = 1 - weights @ (predicted - true) ** 2 / n / np.where(varies, spread, np.nan)
        elif measure == "pearson":
            values = correlation(weights, predicted[None] - predicted.mean(), true[None] - true.mean())
        else:
            values = correlation(weights, midranks(predicted, weights), midranks(true, weights))
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def permutation(
    measure: str,
    targets: ArrayLike,
    ours: ArrayLike,
    theirs: ArrayLike,
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, float]:
    """The two-sided paired permutation test of two models.

    Args:
        measure: one of ``Numbers.compared``.
        targets, ours, theirs: [n] true numbers, and the predictions of the two models.
        resamples: number of random exchanges, each of about half of the examples.

    Returns:
        ``difference``, the measure of the first model minus that of the second, and ``p``, which is never 0.
    """
    true, a, b = (np.asarray(x, np.float64) for x in (targets, ours, theirs))
    if true.ndim != 1 or not true.shape == a.shape == b.shape:
        raise ShapeError(f"predictions {a.shape} and {b.shape} are not of {true.shape} examples")
    a, b = (_without_scale(measure, x) for x in (a, b))
    ones = np.ones((1, len(true)))
    observed = float(np.subtract(*(_statistic(measure, ones, true, x)[0] for x in (a, b))))
    rng, step = np.random.default_rng(seed), max(1, min(resamples, MAX_SWAPS // max(len(true), 1)))
    num_extreme = 0
    for start in range(0, resamples, step):
        swapped = rng.random((min(step, resamples - start), len(true))) < 0.5
        first, second = np.where(swapped, b, a), np.where(swapped, a, b)
        differences = _row_statistics(measure, true, first) - _row_statistics(measure, true, second)
        num_extreme += int((np.abs(differences) >= abs(observed) - 1e-12).sum())
    return {"difference": observed, "p": (num_extreme + 1) / (resamples + 1)}


def _without_scale(measure: str, predicted: np.ndarray) -> np.ndarray:
    """Predictions ``[n]`` that can be exchanged between models: ranks, or standardized numbers."""
    from scipy.stats import rankdata

    if measure == "spearman":
        return rankdata(predicted)
    if measure != "pearson":
        return predicted
    return (predicted - predicted.mean()) / predicted.std() if np.ptp(predicted) else np.zeros(len(predicted))


def _row_statistics(measure: str, true: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """The measure ``[c]`` of each row of predictions ``[c, n]``; 0 if it is undefined."""
    from scipy.stats import rankdata

    if measure == "mae":
        return np.abs(predicted - true).mean(1)
    if measure == "r2":
        spread = true.var()
        return 1 - ((predicted - true) ** 2).mean(1) / spread if spread > 0 else np.zeros(len(predicted))
    if measure == "spearman":
        true, predicted = rankdata(true), rankdata(predicted, axis=1)
    true, predicted = true - true.mean(), predicted - predicted.mean(1, keepdims=True)
    norm = np.sqrt((true**2).sum() * (predicted**2).sum(1))
    return np.divide(predicted @ true, norm, out=np.zeros(len(predicted)), where=norm > 0)
