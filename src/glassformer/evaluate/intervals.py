"""Confidence intervals of shares and of macro-F1.

In macro-F1, a class with two examples has the same weight as a class with two thousand. Resamples often miss
such a class or its errors, so percentile bootstrap intervals are too narrow (docs/decisions/0166). Here each
class has a Wilson interval (1927), which is valid for few examples. The intervals are combined by the squares
of their half-widths (Zou and Donner, 2008), with correlations from shared errors.

In shapes, K is the number of classes, S of seeds, and n of examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

Z = 1.959964  # 97.5 % quantile of the standard normal distribution
MIN_RULE_OF_THREE = 10  # minimum number of examples for the rule of three


def wilson(hits: np.ndarray, n: np.ndarray, z: float = 1.96) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's intervals of the shares ``hits / n``, valid also for small n; by default at 95 %."""
    center = (hits + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * np.sqrt(hits * (n - hits) / n + z * z / 4)
    # Exactly 0 without hits, and exactly 1 without misses: rounding could exclude the share.
    return np.where(hits == 0, 0.0, center - half), np.where(hits == n, 1.0, center + half)


def share_interval(share: float, n: int, bootstrap: Sequence[float] | None = None) -> list[float]:
    """95 % interval of a share of ``n`` examples.

    For a share of 0 or 1, all resamples are equal, so their interval has no width. Then the "rule of three"
    is used (Hanley and Lippman-Hand, 1983), or for few examples the exact bound 0.05^(1/n).

    Args:
        bootstrap: interval from resamples; None: Wilson's interval.
    """
    if share in (0, 1) and (bootstrap is None or bootstrap[0] == bootstrap[1]):
        width = 3 / n if n >= MIN_RULE_OF_THREE else 1 - 0.05 ** (1 / max(n, 1))
        return [1 - width, 1.0] if share else [0.0, width]
    if bootstrap is None:
        return [float(end) for end in wilson(np.array(share * n), np.array(n))]
    return list(bootstrap)


def macro_f1_interval(confusion: ArrayLike, *, resamples: int = 1000, seed: int = 0) -> list[float]:
    """95 % interval of single-label macro-F1 over classes that occur or are predicted.

    Args:
        confusion: [K, K] counts of examples, [true, predicted].
        resamples: number of resamples to estimate the bias of macro-F1 with few examples.
        seed: random seed of the resamples.
    """
    table = np.asarray(confusion, np.float64)
    table = table[:, seen][seen] if not (seen := table.sum(0) + table.sum(1) > 0).all() else table
    hits = np.diag(table)
    counts = _Counts(hits[None], table.sum(1), table.sum(0)[None], int(table.sum()), False)
    total = counts.totals[0]
    # An error in the row or column of class k changes its F1 by -slope, a hit by 2 / total - 2 * slope. The
    # covariance sums the products of these changes over the examples (delta method).
    slope = 2 * hits / total**2
    wrong = table - np.diag(hits)
    covariance = (wrong + wrong.T) * np.outer(slope, slope)
    variance = hits * (2 / total - 2 * slope) ** 2 + (wrong.sum(0) + wrong.sum(1)) * slope**2
    np.fill_diagonal(covariance, variance)
    return _interval(counts, covariance, variance[None], 0.0, _bias(counts, resamples, seed))


def multilabel_f1_interval(
    targets: ArrayLike,
    predicted: ArrayLike,
    *,
    include_absent: bool = True,
    resamples: int = 1000,
    seed: int = 0,
) -> list[float]:
    """95 % interval of macro-F1 for multi-label predictions and for means over seeds.

    The half-width due to seeds (Student's t interval) is added in squares, as in ``compare.bootstrap_means``.

    Args:
        targets: [n, K], 0 or 1.
        predicted: [S, n, K], 0 or 1, for the same examples.
        include_absent: whether classes that neither occur nor are predicted count as F1 0; otherwise they are
            excluded.
    """
    y, predictions = np.asarray(targets, np.float64), np.asarray(predicted, np.float64)
    hits = np.einsum("nk,snk->sk", y, predictions)  # [S, K]
    counts = _Counts(hits, y.sum(0), predictions.sum(1), len(y), include_absent)
    total, weight = np.maximum(counts.totals, 1), counts.weights()
    # The effect of each example on the F1 of each class and seed, [S, n, K].
    effects = (2 * predictions * y - (2 * hits / total)[:, None] * (predictions + y)) / total[:, None]
    mean_effect = np.einsum("sk,snk->nk", weight, effects) / len(predictions)
    seed_width_squared = _seed_width_squared(
        (weight * 2 * hits / total).sum(1), np.einsum("sk,snk->sn", weight, effects)
    )
    variances, bias = (effects**2).sum(1), _bias(counts, resamples, seed)
    return _interval(counts, mean_effect.T @ mean_effect, variances, seed_width_squared, bias)


class _Counts(NamedTuple):
    """The counts of K classes in the predictions of S seeds."""

    hits: np.ndarray  # [S, K] number of right predictions
    support: np.ndarray  # [K] number of true labels
    predicted: np.ndarray  # [S, K] number of predictions
    n: int  # number of examples
    include_absent: bool  # see ``multilabel_f1_interval``

    @property
    def totals(self) -> np.ndarray:
        return self.support + self.predicted

    def weights(self) -> np.ndarray:
        """The weight of each class in the mean of each seed ``[S, K]``."""
        is_included = (self.totals > 0) | self.include_absent
        return is_included / np.maximum(is_included.sum(1, keepdims=True), 1)


def _seed_width_squared(values: np.ndarray, effects: np.ndarray) -> float:
    """The squared half-width due to seeds, from their metrics ``[S]`` and effects of examples ``[S, n]``."""
    if (seeds := len(values)) == 1:
        return 0.0
    from scipy.stats import t

    example_variance = ((effects - effects.mean(0)) ** 2).sum() / (seeds - 1)
    seed_variance = max(float(values.var(ddof=1) - example_variance), 0.0)
    return float(t.ppf(0.975, seeds - 1)) ** 2 * seed_variance / seeds


def _interval(
    counts: _Counts, covariance: np.ndarray, variances: np.ndarray, seed_width_squared: float, bias: float
) -> list[float]:
    """The interval of macro-F1.

    Args:
        covariance: ``[K, K]`` of the F1 of the classes. With one seed only its correlations are used, so row
            and column k may be scaled.
        variances: ``[S, K]`` of the F1 of the classes in each seed.
        seed_width_squared: squared half-width due to seeds.
        bias: expected excess of macro-F1 with few examples.
    """
    hits, total, weight = counts.hits, counts.totals, counts.weights()
    union = np.maximum(total - hits, 1)  # F1 = 2 J / (1 + J) with the Jaccard index J, a share
    f1 = 2 * hits / np.maximum(total, 1)
    ends = [np.clip(end, 0, 1) for end in wilson(hits, union, Z)]
    low, high = (2 * end / (1 + end) for end in ends)
    low, high = np.minimum(low, f1), np.maximum(high, f1)
    # The more the predictions of the seeds differ, the narrower the interval of their mean.
    variance = np.diag(covariance)
    mean_seed_variance = (weight**2 * variances).mean(0) if len(hits) > 1 else variance
    shrink = np.sqrt(
        np.divide(
            variance, mean_seed_variance, out=np.ones_like(mean_seed_variance), where=mean_seed_variance > 0
        )
    )
    scale = np.sqrt(np.where(variance > 0, variance, 1))
    correlation = covariance / np.outer(scale, scale)
    np.fill_diagonal(correlation, 1)
    down, up = ((weight * (total > 0) * half).mean(0) * shrink for half in (f1 - low, high - f1))
    down, up = (
        float(np.sqrt(max(half @ correlation @ half, 0.0) + seed_width_squared)) for half in (down, up)
    )
    value = float((weight * f1).sum(1).mean())
    return [max(value - down - max(bias, 0.0), 0.0), min(value + up - min(bias, 0.0), 1.0)]


def _bias(counts: _Counts, resamples: int, seed: int) -> float:
    """The bias of macro-F1 for test sets of this size, estimated from simulated test sets.

    The simulation uses the error rates of the counts, after adding half a right and half a wrong example to
    each class.
    """
    hits, support, n, rng, bias = counts.hits, counts.support, counts.n, np.random.default_rng(seed), 0.0
    true_positive_rates = (hits + 0.5) / (support + 1)  # [S, K]
    false_positive_rates = (counts.predicted - hits) / np.maximum(n - support, 1)
    for tp_rate, fp_rate in zip(true_positive_rates, false_positive_rates, strict=True):
        positives = rng.binomial(n, support / n, (resamples, len(support)))
        tp, fp = rng.binomial(positives, tp_rate), rng.binomial(n - positives, np.minimum(fp_rate, 1))
        simulated = counts._replace(support=positives, predicted=tp + fp)
        f1 = simulated.weights() * 2 * tp / np.maximum(simulated.totals, 1)
        expected_tp, expected_fp = support * tp_rate, (n - support) * fp_rate
        expected = counts._replace(predicted=(expected_tp + expected_fp)[None])
        expected_f1 = expected.weights() * 2 * expected_tp / np.maximum(expected.totals, 1e-9)
        bias += float(f1.sum(1).mean() - expected_f1.sum()) / len(hits)
    return bias
