"""Paired permutation test and bootstrap statistics for regression.

The test (Fisher, 1935; Pitman, 1937) assumes that under the null hypothesis the two predictions for an
example are exchangeable. Correlations do not depend on the scale of a model. Therefore ranks are exchanged
for Spearman's correlation, and standardized numbers for Pearson's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from glassformer.evaluate.compare import Statistic

MAX_SWAPS = 2**22  # maximum number of predictions that are exchanged at a time, to limit memory


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

    def statistic(counts: np.ndarray) -> np.ndarray:
        weights = np.asarray(counts, np.float64)  # [c, n]
        return _zero_if_undefined([number_metric(measure, true, x, weights) for x in predictions])

    return statistic


def _zero_if_undefined(values: ArrayLike) -> np.ndarray:
    """The values, with 0 for undefined ones."""
    return np.where(np.isfinite(values), values, 0.0)


def number_metric(
    measure: str, true: np.ndarray, predicted: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """A measure in ``Numbers.metrics`` ``[c]``; not finite if it is undefined.

    Args:
        true: ``[n]``.
        predicted: ``[n]``, or without weights ``[c, n]``.
        weights: how often each example occurs in each resample, ``[c, n]``; None: once.
    """
    from scipy.stats import rankdata

    counts = np.ones((1, len(true))) if weights is None else weights

    def mean(x: np.ndarray) -> np.ndarray:
        return (counts * x).sum(1) / counts.sum(1)

    if measure == "mae":
        return mean(np.abs(predicted - true))
    if measure == "mse":
        return mean((predicted - true) ** 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        centered = true - true.mean()  # the squares of large numbers would lose precision
        if measure == "r2":
            spread = mean(centered**2) - mean(centered) ** 2
            spread = np.where(spread > 1e-12 * centered.var(), spread, np.nan)
            return 1 - mean((predicted - true) ** 2) / spread
        if measure == "pearson":
            return correlation(counts, predicted - predicted.mean(-1, keepdims=True), centered)
        if weights is None:
            return correlation(counts, rankdata(predicted, axis=-1), rankdata(true))
        return correlation(counts, midranks(predicted, counts), midranks(true, counts))


def permutation(
    measure: str,
    targets: ArrayLike,
    ours: ArrayLike,
    theirs: ArrayLike,
    *,
    resamples: int = 2000,
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
    a, b = (_without_scale(measure, x) for x in (a, b))

    def difference(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        metrics = [number_metric(measure, true, x) for x in (first, second)]
        return np.subtract(*_zero_if_undefined(metrics))

    observed = float(difference(a[None], b[None])[0])
    rng, step = np.random.default_rng(0), max(1, min(resamples, MAX_SWAPS // max(len(true), 1)))
    num_extreme = 0
    for start in range(0, resamples, step):
        swapped = rng.random((min(step, resamples - start), len(true))) < 0.5
        differences = difference(np.where(swapped, b, a), np.where(swapped, a, b))
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
