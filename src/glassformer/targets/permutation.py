"""Two models' numbers compared: statistics under resampling, and the paired permutation test.

The test takes two sets of predicted numbers for exchangeable (Fisher, 1935; Pitman, 1937): under "no
difference" either model could have made either of the two numbers of an example. Correlations do not see a
model's scale: cosines about 0.1 and about 0.9 may order the pairs alike. So ranks are exchanged for
Spearman's, and for Pearson's each number less its model's mean, in that model's standard deviations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from glassformer.errors import ShapeError
from glassformer.evaluate.compare import Statistic

AT_A_TIME = 2**22  # numbers that are swapped at a time, which bounds the memory


def correlation(counts: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Pearson of examples that are drawn ``counts`` ``[r, n]`` times each, ``[r]``."""
    n = counts.sum(1, keepdims=True)
    a = a - (counts * a).sum(1, keepdims=True) / n
    b = b - (counts * b).sum(1, keepdims=True) / n
    norm = (counts * a * a).sum(1) * (counts * b * b).sum(1)
    return (counts * a * b).sum(1) / np.sqrt(norm)


def midranks(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The rank of each value among those drawn, ties at their mean, ``[r, n]``."""
    _, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(group[order]) > 0])
    each = np.add.reduceat(counts[:, order], starts, axis=1)  # [r, distinct]
    return (each.cumsum(1) - (each - 1) / 2)[:, group]


@dataclass(frozen=True)
class Permutation:
    """The test's outcome."""

    difference: float  # of the measure, from the baseline
    p: float


def number_statistic(measure: str, targets: ArrayLike, predicted: ArrayLike) -> Statistic:
    """A measure of each seed under resampling; where a draw leaves it undefined it counts as 0.

    Args:
        measure: one of ``Numbers.compared``.
        targets: [n] true numbers.
        predicted: [S, n].

    Raises:
        ShapeError: they are not of the same examples.
    """
    true, seeds = np.asarray(targets, np.float64), np.asarray(predicted, np.float64)
    if true.ndim != 1 or seeds.shape[1:] != true.shape:
        raise ShapeError(f"answers {seeds.shape} are not of {len(true)} examples")

    def figure(counts: np.ndarray) -> np.ndarray:
        times = np.asarray(counts, np.float64)  # [c, n]
        return np.stack([_figure(measure, times, true, found) for found in seeds])

    return figure


def _figure(measure: str, times: np.ndarray, true: np.ndarray, found: np.ndarray) -> np.ndarray:
    """``[c]`` of examples that are drawn ``times`` ``[c, n]``."""
    n = times.sum(1)
    if measure == "mae":
        return times @ np.abs(found - true) / n
    with np.errstate(invalid="ignore", divide="ignore"):
        if measure == "r2":
            near = true - true.mean()  # the spread of large numbers would be lost beside their squares
            mean = times @ near / n
            spread = times @ near**2 / n - mean**2
            held = spread > 1e-12 * near.var()
            values = 1 - times @ (found - true) ** 2 / n / np.where(held, spread, np.nan)
        elif measure == "pearson":
            values = correlation(times, found[None] - found.mean(), true[None] - true.mean())
        else:
            values = correlation(times, midranks(found, times), midranks(true, times))
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def permutation(
    measure: str,
    targets: ArrayLike,
    ours: ArrayLike,
    theirs: ArrayLike,
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> Permutation:
    """The paired permutation test of two models, two-sided; its p is never 0.

    Args:
        measure: one of ``Numbers.compared``.
        targets, ours, theirs: [n] true numbers and those that the two models gave.
        resamples: random exchanges, each of about half of the examples.

    Raises:
        ShapeError: they are not of the same examples.
    """
    true, a, b = (np.asarray(x, np.float64) for x in (targets, ours, theirs))
    if true.ndim != 1 or not true.shape == a.shape == b.shape:
        raise ShapeError(f"answers {a.shape} and {b.shape} are not of {true.shape} examples")
    a, b = (_without_scale(measure, x) for x in (a, b))
    once = np.ones((1, len(true)))
    observed = float(np.subtract(*(_figure(measure, once, true, x)[0] for x in (a, b))))
    rng, step = np.random.default_rng(seed), max(1, min(resamples, AT_A_TIME // max(len(true), 1)))
    extreme, done = 0, 0
    while done < resamples:
        size = min(step, resamples - done)
        swapped = rng.random((size, len(true))) < 0.5
        first, second = np.where(swapped, b, a), np.where(swapped, a, b)
        apart = _of_rows(measure, true, first) - _of_rows(measure, true, second)
        extreme += int((np.abs(apart) >= abs(observed) - 1e-12).sum())
        done += size
    return Permutation(observed, (extreme + 1) / (resamples + 1))


def _without_scale(measure: str, found: np.ndarray) -> np.ndarray:
    """Predicted numbers ``[n]`` as a measure sees them, which two models' may be exchanged in."""
    from scipy.stats import rankdata

    if measure == "spearman":
        return rankdata(found)
    if measure != "pearson":
        return found
    return (found - found.mean()) / found.std() if np.ptp(found) else np.zeros(len(found))


def _of_rows(measure: str, true: np.ndarray, found: np.ndarray) -> np.ndarray:
    """A measure ``[c]`` of rows of predicted numbers ``[c, n]``; one that is not defined is 0."""
    from scipy.stats import rankdata

    if measure == "mae":
        return np.abs(found - true).mean(1)
    if measure == "r2":
        spread = true.var()
        return 1 - ((found - true) ** 2).mean(1) / spread if spread > 0 else np.zeros(len(found))
    if measure == "spearman":
        true, found = rankdata(true), rankdata(found, axis=1)
    true, found = true - true.mean(), found - found.mean(1, keepdims=True)
    norm = np.sqrt((true**2).sum() * (found**2).sum(1))
    return np.divide(found @ true, norm, out=np.zeros(len(found)), where=norm > 0)
