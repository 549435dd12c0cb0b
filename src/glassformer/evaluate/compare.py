"""Significance tests and bootstrap intervals of differences.

McNemar's test follows Dietterich (1998), the correction for multiple comparisons Holm (1979). Bootstrap
intervals include the variation between examples and between seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from glassformer.errors import DataError, ShapeError

EXACT_BELOW = 25  # number of disagreements from which chi-squared is accurate enough
CHUNK = 2**24  # number of random numbers that are drawn at a time, to limit the memory

# A function of the counts [c, n] of each example in c resamples; it returns the metric [S, c] of each of S
# seeds.
Statistic = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class McNemar:
    """The result of McNemar's test."""

    wins: int  # number of examples that only this model predicts correctly
    losses: int  # number of examples that only the baseline predicts correctly
    method: Literal["exact", "chi2"]
    p: float


def mcnemar(right: ArrayLike, baseline: ArrayLike) -> McNemar:
    """McNemar's two-sided test of two models on the same examples.

    The test is exact (binomial) for fewer than ``EXACT_BELOW`` disagreements, otherwise chi-squared with
    Edwards' correction.

    Args:
        right, baseline: [n] bool, whether each prediction of the model (of the baseline) is right.
    """
    from scipy.stats import binomtest, chi2

    a, b = np.asarray(right, bool), np.asarray(baseline, bool)
    if a.shape != b.shape or a.ndim != 1:
        raise ShapeError(f"predictions of shapes {a.shape} and {b.shape} are not for the same examples")
    wins, losses = int((a & ~b).sum()), int((~a & b).sum())
    disagreements = wins + losses
    if disagreements == 0:
        return McNemar(0, 0, "exact", 1.0)
    if disagreements < EXACT_BELOW:
        return McNemar(wins, losses, "exact", float(binomtest(wins, disagreements).pvalue))
    statistic = max(abs(wins - losses) - 1, 0) ** 2 / disagreements
    return McNemar(wins, losses, "chi2", float(chi2.sf(statistic, 1)))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values after Holm's step-down correction for multiple comparisons."""
    p = np.asarray(p_values, float)
    order = np.argsort(p, kind="stable")
    factors = len(p) - np.arange(len(p))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return corrected.tolist()


def accuracy_statistic(right: ArrayLike) -> Statistic:
    """The accuracy of each of S seeds under resampling.

    Args:
        right: [S, n] bool, whether each prediction is right.
    """
    hits = np.asarray(right, np.float32)
    return lambda counts: (hits @ counts.T) / counts.sum(1)


def macro_f1_statistic(targets: ArrayLike, predicted: ArrayLike, classes: int) -> Statistic:
    """Macro-F1 of each seed under resampling, over classes that occur in or are predicted for a resample.

    Args:
        targets: [n] class indices.
        predicted: [S, n] class indices.
    """
    one_hot = np.eye(classes, dtype=np.float32)
    sets = one_hot[np.asarray(targets)], one_hot[np.asarray(predicted)]
    return multilabel_f1_statistic(*sets, include_absent=False)


def multilabel_f1_statistic(
    targets: ArrayLike, predicted: ArrayLike, *, include_absent: bool = True
) -> Statistic:
    """Multi-label macro-F1 of each seed under resampling, see ``f1_statistic``.

    Args:
        targets: [n, K], 0 or 1.
        predicted: [S, n, K], 0 or 1.
    """
    y, predictions = np.asarray(targets, np.float32), np.asarray(predicted, np.float32)
    return f1_statistic(predictions * y, predictions + y, include_absent=include_absent)


def f1_statistic(
    hits: Sequence[Any] | np.ndarray, totals: Sequence[Any] | np.ndarray, *, include_absent: bool = True
) -> Statistic:
    """The mean F1 over K labels or kinds of spans, of each of S seeds under resampling.

    Args:
        hits: for each seed [n, K], the number of right predictions of each example.
        totals: for each seed [n, K], the number of predictions plus the number of true labels.
        include_absent: whether labels that are neither present nor predicted count as F1 0, as in the metrics
            of a run; otherwise they are excluded.
    """
    seeds = [tuple(np.asarray(x, np.float32) for x in seed) for seed in zip(hits, totals, strict=True)]

    def f1(counts: np.ndarray, hits: np.ndarray, totals: np.ndarray) -> np.ndarray:
        total = counts @ totals  # [c, K]
        f1 = np.divide(2 * (counts @ hits), total, out=np.zeros_like(total), where=total > 0)
        return f1.mean(-1) if include_absent else f1.sum(-1) / np.maximum((total > 0).sum(-1), 1)

    return lambda counts: np.stack([f1(counts, *seed) for seed in seeds])


def ratio_statistic(parts: ArrayLike, wholes: ArrayLike) -> Statistic:
    """The sum of ``parts`` [S, n] divided by that of ``wholes`` [n], of each of S seeds under resampling."""
    numerators, denominators = np.asarray(parts, np.float32), np.asarray(wholes, np.float32)
    return lambda counts: (numerators @ counts.T) / np.maximum(counts @ denominators, 1)


def bootstrap_means(
    models: Sequence[Statistic], n: int, *, resamples: int = 2000, seed: int = 0
) -> np.ndarray:
    """Bootstrap distribution of the mean metric over seeds of each of A models, ``[A, resamples]``.

    Examples are resampled with replacement, and all models with the same examples, so differences are paired.
    The variance between seeds, minus its part due to the examples, is added, with a quantile of Student's t
    with S - 1 degrees of freedom. Resampling the seeds, too, would count the noise of single predictions up
    to three times (Owen, 2007). With one seed, the result is valid only for this training.
    """
    if n < 1:
        raise DataError("there are no examples to resample", where="bootstrap")
    rng = np.random.default_rng(seed)
    step = max(1, min(resamples, CHUNK // n))
    resampled: list[list[np.ndarray]] = [[] for _ in models]
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        counts = np.stack([np.bincount(rng.integers(0, n, n), minlength=n) for _ in range(size)])
        for chunks, model in zip(resampled, models, strict=True):
            chunks.append(np.asarray(model(counts.astype(np.float32)), np.float64))  # [S, c]
    ones = np.ones((1, n), np.float32)  # each example once: the metric without resampling
    observed = [np.asarray(model(ones), np.float64)[:, 0] for model in models]
    joined = (np.concatenate(chunks, 1) for chunks in resampled)
    return np.stack([_add_seed_variance(*values, rng) for values in zip(observed, joined, strict=True)])


def _add_seed_variance(observed: np.ndarray, resampled: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Bootstrap means over seeds [resamples], from observed [S] and resampled metrics [S, resamples]."""
    seeds, mean = len(observed), resampled.mean(0)
    if seeds == 1:
        return mean
    total_variance = ((observed - observed.mean()) ** 2).sum() / (seeds - 1)
    example_variance = (resampled - mean).var(1).sum() / (seeds - 1)
    seed_variance = max(total_variance - example_variance, 0.0)
    return mean + np.sqrt(seed_variance / seeds) * rng.standard_t(seeds - 1, resampled.shape[1])


def bounds(values: np.ndarray) -> list[float]:
    """The 95 % percentile interval of bootstrapped values."""
    return np.quantile(values, [0.025, 0.975]).tolist()


def bootstrap_p(differences: np.ndarray) -> float:
    """Two-sided p-value of "no difference" from bootstrapped differences; never 0."""
    below, above = (differences <= 0).sum(), (differences >= 0).sum()
    return float(min(2 * (min(below, above) + 1) / (len(differences) + 1), 1.0))


def paired_difference(
    targets: ArrayLike,
    ours: ArrayLike,
    theirs: ArrayLike,
    classes: int,
    *,
    measure: Literal["accuracy", "macro_f1"] = "accuracy",
    resamples: int = 1000,
) -> dict[str, Any]:
    """The difference of the metrics of two models on the same examples, with its 95 % interval.

    The errors of two models are correlated. Therefore the difference can be significant although the
    intervals of the models overlap.

    Args:
        targets, ours, theirs: [n] class indices, or [n, K] of 0 and 1.
        classes: K.
        measure: the metric.

    Returns:
        ``measure``, ``value`` (ours - theirs, in [-1, 1]) and ``interval`` (paired percentile bootstrap).
    """
    y = np.asarray(targets)
    predictions = [np.asarray(ours)[None], np.asarray(theirs)[None]]  # [1, n] or [1, n, K]
    if measure == "accuracy":
        models = [accuracy_statistic((a == y).reshape(1, len(y), -1).all(-1)) for a in predictions]
    elif y.ndim == 2:
        models = [multilabel_f1_statistic(y, a) for a in predictions]
    else:
        models = [macro_f1_statistic(y, a, classes) for a in predictions]
    resampled = bootstrap_means(models, len(y), resamples=resamples)
    ones = np.ones((1, len(y)), np.float32)
    value = float(models[0](ones).item() - models[1](ones).item())
    return {"measure": measure, "value": value, "interval": bounds(resampled[0] - resampled[1])}
