"""Confidence intervals of shares and of macro-F1.

Macro-F1 gives a class with two examples the same weight as one with two thousand. Resamples often miss such a
class or its errors, so percentile bootstrap intervals are too narrow (decision 0166). Here each class has a
Wilson interval (1927), which is valid for few examples. The intervals are combined by the squares of their
half-widths (Zou and Donner, 2008), with correlations from shared errors.

K: classes, S: seeds, n: examples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

Z = 1.959964  # 97.5 % quantile of the standard normal distribution
FEW = 10  # minimum number of examples for the rule of three


def wilson(hits: np.ndarray, n: np.ndarray, z: float = 1.96) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's 95 % intervals of the shares ``hits / n``, valid also for small n."""
    center = (hits + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * np.sqrt(hits * (n - hits) / n + z * z / 4)
    # Exactly 0 without hits, exactly 1 with hits only, so that rounding does not exclude the share.
    return np.where(hits == 0, 0.0, center - half), np.where(hits == n, 1.0, center + half)


def share_interval(share: float, n: int, drawn: Sequence[float] | None = None) -> list[float]:
    """95 % interval of a share of ``n`` examples.

    For a share of 0 or 1, all resamples are alike and percentiles have no width. Then the "rule of three" is
    used (Hanley and Lippman-Hand, 1983), or with fewer than ``FEW`` examples the exact bound 0.05^(1/n).

    Args:
        drawn: interval from resamples; None: Wilson's interval.
    """
    if share in (0, 1) and (drawn is None or drawn[0] == drawn[1]):
        reach = 3 / n if n >= FEW else 1 - 0.05 ** (1 / max(n, 1))
        return [1 - reach, 1.0] if share else [0.0, reach]
    if drawn is None:
        return [float(end) for end in wilson(np.array(share * n), np.array(n))]
    return list(drawn)


def macro_f1_interval(confusion: ArrayLike, *, resamples: int = 1000, seed: int = 0) -> list[float]:
    """95 % interval of single-label macro-F1 over classes that occur or are predicted.

    Args:
        confusion: [K, K] counts of examples, [true, predicted].
        resamples: number of resamples to estimate the bias of macro-F1 with few examples.
        seed: random seed of the resamples.
    """
    table = np.asarray(confusion, np.float64)
    table = table[:, seen][seen] if not (seen := table.sum(0) + table.sum(1) > 0).all() else table
    hits, support, predicted_counts = np.diag(table), table.sum(1), table.sum(0)
    total = support + predicted_counts
    # The effect of one example of each cell on the F1 of each class, and the sums of products of effects.
    slope = 2 * hits / total**2
    wrong = table - np.diag(hits)
    covariance = (wrong + wrong.T) * np.outer(slope, slope)
    variance = hits * (2 / total - 2 * slope) ** 2 + (wrong.sum(0) + wrong.sum(1)) * slope**2
    np.fill_diagonal(covariance, variance)
    return _interval(hits[None], support, predicted_counts[None], covariance, variance[None], resamples, seed)


def macro_f1_interval_of_sets(
    targets: ArrayLike, predicted: ArrayLike, *, every: bool = True, resamples: int = 1000, seed: int = 0
) -> list[float]:
    """95 % interval of macro-F1 for multi-label predictions and for means over seeds.

    The variation between seeds is added as Student's t, as in ``compare.bootstrap_means``.

    Args:
        targets: [n, K], 0 or 1.
        predicted: [S, n, K], 0 or 1, for the same examples.
        every: whether classes that neither occur nor are predicted have F1 0, or are excluded.
    """
    truth, guess = np.asarray(targets, np.float64), np.asarray(predicted, np.float64)
    support, named = truth.sum(0), guess.sum(1)  # [K], [S, K]
    hits = np.einsum("nk,snk->sk", truth, guess)  # [S, K]
    total = np.maximum(support + named, 1)
    weight = _weights(support, named, every)
    adds = (2 * guess * truth - (2 * hits / total)[:, None] * (guess + truth)) / total[:, None]  # [S, n, K]
    each = (adds**2).sum(1)
    mean = np.einsum("sk,snk->nk", weight, adds) / len(guess)
    scatter = _seed_width((weight * 2 * hits / total).sum(1), np.einsum("sk,snk->sn", weight, adds))
    return _interval(
        hits, support, named, mean.T @ mean, each, resamples, seed, every=every, n=len(truth), scatter=scatter
    )


def _seed_width(values: np.ndarray, adds: np.ndarray) -> float:
    """The squared half-width due to seeds, from their metrics ``[S]`` and the effects of examples
    ``[S, n]``.
    """
    if (seeds := len(values)) == 1:
        return 0.0
    from scipy.stats import t

    by_examples = ((adds - adds.mean(0)) ** 2).sum() / (seeds - 1)
    seed_variance = max(float(values.var(ddof=1) - by_examples), 0.0)
    return float(t.ppf(0.975, seeds - 1)) ** 2 * seed_variance / seeds


def _weights(support: np.ndarray, guessed: np.ndarray, every: bool) -> np.ndarray:
    """The weight of each class in each seed's mean ``[S, K]``."""
    included = np.ones_like(guessed) if every else (support + guessed > 0).astype(np.float64)
    return included / np.maximum(included.sum(1, keepdims=True), 1)


def _interval(
    hits: np.ndarray,
    support: np.ndarray,
    named: np.ndarray,
    covariance: np.ndarray,
    variances: np.ndarray,
    resamples: int,
    seed: int,
    *,
    every: bool = False,
    n: int | None = None,
    scatter: float = 0.0,
) -> list[float]:
    """The interval from counts ``[S, K]`` (``support`` ``[K]``), covariances of the classes ``[K, K]`` (up to
    a scale per class) and their variances in each seed ``[S, K]``.
    """
    weight = _weights(support, named, every)
    union = np.maximum(support + named - hits, 1)  # F1 = 2 J / (1 + J) with the Jaccard index J, a share
    f1 = 2 * hits / np.maximum(support + named, 1)
    ends = [np.clip(end, 0, 1) for end in wilson(hits, union, Z)]
    low, high = (2 * end / (1 + end) for end in ends)
    low, high = np.minimum(low, f1), np.maximum(high, f1)
    seen = support + named > 0
    # The more the predictions of seeds differ, the narrower is the interval of their mean.
    variance = np.diag(covariance)
    separate = (weight**2 * variances).mean(0) if len(hits) > 1 else variance
    agreement = np.sqrt(np.divide(variance, separate, out=np.ones_like(separate), where=separate > 0))
    scale = np.sqrt(np.where(variance > 0, variance, 1))
    correlation = covariance / np.outer(scale, scale)
    np.fill_diagonal(correlation, 1)
    down, up = ((weight * seen * half).mean(0) * agreement for half in (f1 - low, high - f1))
    value, bias = (float((weight * f1).sum(1).mean()), _bias(hits, support, named, n, every, resamples, seed))
    down, up = (float(np.sqrt(max(half @ correlation @ half, 0.0) + scatter)) for half in (down, up))
    return [max(value - down - max(bias, 0.0), 0.0), min(value + up - min(bias, 0.0), 1.0)]


def _bias(
    hits: np.ndarray,
    support: np.ndarray,
    guessed: np.ndarray,
    n: int | None,
    every: bool,
    resamples: int,
    seed: int,
) -> float:
    """The bias of macro-F1 for test sets of this size, estimated from simulated test sets.

    Error rates are those of the counts, with half a right and half a wrong example added to each class.
    """
    n, rng, bias = int(support.sum()) if n is None else n, np.random.default_rng(seed), 0.0
    right = (hits + 0.5) / (support + 1)  # of the examples of each class, [S, K]
    wrong = (guessed - hits) / np.maximum(n - support, 1)  # of all others
    for rate, error_rate in zip(right, wrong, strict=True):
        has = rng.binomial(n, support / n, (resamples, len(support)))
        tp, fp = rng.binomial(has, rate), rng.binomial(n - has, np.minimum(error_rate, 1))
        drawn = _weights(has, tp + fp, every) * 2 * tp / np.maximum(has + tp + fp, 1)
        expected_hits, expected_errors = support * rate, (n - support) * error_rate
        truth = _weights(support, (expected_hits + expected_errors)[None], every)[0]
        truth = truth * 2 * expected_hits / np.maximum(support + expected_hits + expected_errors, 1e-9)
        bias += float(drawn.sum(1).mean() - truth.sum()) / len(hits)
    return bias
