"""Is a model as sure as it should be? Expected calibration error, temperature scaling, and the threshold.

Guo et al. (2017): one number divides all logits, chosen by the log loss on validation data. It changes how
sure the model says it is and, without a threshold, no answer. Few mistakes, or none, would drive that number
to 0 and every answer to certainty, so targets are smoothed by one mistake that was not made, as in Platt
(1999); decision 0172 has what other ways cost.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from glassformer.config import nearest
from glassformer.errors import DataError, InputError, ShapeError
from glassformer.evaluate.predict import softmax

BINS = 15  # of the stated probability, as in the paper
NORMAL = 1.959964  # deviations of the normal distribution within which 95 % lie
COLDEST, HOTTEST = 0.05, 20.0  # temperatures that are looked at
Metric = Literal["accuracy", "macro_f1", "f1"]  # f1: that of the second of two classes


@dataclass(frozen=True)
class Bin:
    """The answers given with about one probability."""

    low: float
    high: float
    n: int
    confidence: float  # mean stated probability
    accuracy: float


def log_loss(logits: ArrayLike, targets: ArrayLike, temperature: float = 1.0) -> float:
    """Mean negative log likelihood in nats, from logits ``[n, K]`` and class indices ``[n]``."""
    z = np.asarray(logits, np.float64) / temperature
    top = z.max(1, keepdims=True)
    total = np.log(np.exp(z - top).sum(1)) + top[:, 0]
    return float((total - z[np.arange(len(z)), np.asarray(targets)]).mean())


def smoothing(n: int) -> float:
    """What the targets of ``n`` examples leave to the other classes: one mistake in ``n + 2`` answers."""
    return 1 / (n + 2)


def smoothed_loss(logits: ArrayLike, targets: ArrayLike, temperature: float = 1.0) -> float:
    """Log loss where each target leaves ``smoothing(n)`` to the other classes, the same to each."""
    z, y = np.asarray(logits, np.float64) / temperature, np.asarray(targets)
    n, classes = z.shape
    own = z[np.arange(n), y]
    others = (z.sum(1) - own) / max(classes - 1, 1)
    return log_loss(z, y) + smoothing(n) * float((own - others).mean())


def fit_temperature(logits: ArrayLike, targets: ArrayLike) -> float:
    """The temperature with the lowest smoothed log loss, between ``COLDEST`` and ``HOTTEST``.

    Without a mistake among ``n`` answers their mean probability becomes about ``(n + 1) / (n + 2)``.

    Args:
        logits: [n, K] of data that the model was not trained on.
        targets: [n] class indices.

    Raises:
        DataError: no example.
        ShapeError: logits and targets do not fit.
    """
    from scipy.optimize import minimize_scalar

    z, y = np.asarray(logits, np.float64), np.asarray(targets)
    if z.ndim != 2 or y.shape != z.shape[:1]:
        raise ShapeError(f"logits {z.shape} and targets {y.shape} do not fit")
    if not len(y):
        raise DataError("no example to calibrate on", where="calibrate")
    # The loss is convex in the inverse temperature, and so has one valley in its logarithm.
    found = minimize_scalar(
        lambda log_t: smoothed_loss(z, y, float(np.exp(log_t))),
        bounds=(np.log(COLDEST), np.log(HOTTEST)),
        method="bounded",
        options={"xatol": 1e-7},
    )
    return float(np.exp(found.x))


def reliability(probabilities: ArrayLike, targets: ArrayLike, bins: int = BINS) -> list[Bin]:
    """The reliability curve: bins of equal width of the largest probability; empty ones are left out.

    Args:
        probabilities: [n, K].
        targets: [n] class indices.

    Raises:
        ShapeError: they do not fit.
    """
    p, y = np.asarray(probabilities, np.float64), np.asarray(targets)
    if p.ndim != 2 or y.shape != p.shape[:1]:
        raise ShapeError(f"probabilities {p.shape} and targets {y.shape} do not fit")
    stated, right = p.max(1), p.argmax(1) == y
    place = _place(stated, bins)
    return [
        Bin(
            k / bins,
            (k + 1) / bins,
            int(inside.sum()),
            float(stated[inside].mean()),
            float(right[inside].mean()),
        )
        for k in range(bins)
        if (inside := place == k).any()
    ]


def calibration_error(probabilities: ArrayLike, targets: ArrayLike, bins: int = BINS) -> float:
    """Expected calibration error: the gap between stated probability and accuracy, weighted by bin."""
    p, y = np.asarray(probabilities, np.float64), np.asarray(targets)
    if p.ndim != 2 or y.shape != p.shape[:1]:
        raise ShapeError(f"probabilities {p.shape} and targets {y.shape} do not fit")
    return gap_over_bins(p.max(1), p.argmax(1) == y, bins)


def gap_over_bins(stated: np.ndarray, right: np.ndarray, bins: int = BINS) -> float:
    """The mean gap of probabilities ``[n]`` and what came true of them, weighted by bin of equal width."""
    return _over_bins(_place(stated, bins), stated - right, bins)


def _place(stated: np.ndarray, bins: int) -> np.ndarray:
    """The bin of each probability: (low, high], as in the paper."""
    return np.clip(np.ceil(stated * bins).astype(int) - 1, 0, bins - 1)


def _over_bins(place: np.ndarray, gaps: np.ndarray, bins: int) -> float:
    return float(np.abs(np.bincount(place, gaps, bins)).sum() / max(len(gaps), 1))


def calibration_interval(
    probabilities: ArrayLike,
    targets: ArrayLike,
    *,
    bins: int = BINS,
    resamples: int = 1000,
    seed: int = 0,
    groups: ArrayLike | None = None,
) -> list[float]:
    """95 % interval of the calibration error over draws of the examples; see ``error_interval``.

    ``groups`` ``[n]``, numbers from 0: what is drawn together, such as the words of a sentence.
    """
    p, y = np.asarray(probabilities, np.float64), np.asarray(targets)
    stated, right = p.max(1), p.argmax(1) == y
    return error_interval(stated, right, groups, bins=bins, resamples=resamples, seed=seed)


def error_interval(
    stated: np.ndarray,
    right: np.ndarray,
    groups: ArrayLike | None = None,
    *,
    bins: int = BINS,
    resamples: int = 1000,
    seed: int = 0,
) -> list[float]:
    """95 % interval of the mean gap, weighted by bin, between what is stated and what is right.

    A sum of absolute gaps is above 0 by its noise alone, and a resample has yet more of it. So the interval
    is the bootstrap's basic one, reflected about the estimate, and its lower end also loses what resamples
    lie above the estimate on average. That end is 0 where as large an error is no surprise of a model without
    any: where the gaps' signs are drawn at random (the wild bootstrap), an example or a group at a time, more
    than one in 40 reaches it. An estimate that is low by chance hides noise of its own, so the upper end is
    that of the plain percentiles, less the same average, where this is higher. Few examples or groups widen
    both by Student's t. The interval always holds the estimate; how often it holds the truth:
    ``benchmarks/error_interval.py``.

    Args:
        stated: [n] probabilities.
        right: [n], 1 where what they are of came true.
        groups: [n], numbers from 0: what is drawn together; None: each by itself.
    """
    from scipy.stats import t

    place, gaps = _place(stated, bins), stated - right
    number = np.arange(len(stated)) if groups is None else np.asarray(groups)
    count, rng = int(number.max()) + 1, np.random.default_rng(seed)
    sizes, estimate = np.bincount(number, minlength=count), gap_over_bins(stated, right, bins)
    if not resamples:
        return [estimate, estimate]
    drawn = np.empty(resamples)
    for i in range(resamples):
        times = np.bincount(rng.integers(0, count, count), minlength=count)
        drawn[i] = _over_bins(place, times[number] * gaps, bins) * len(gaps) / max(times @ sizes, 1)
    chance = [
        _over_bins(place, rng.choice([-1.0, 1.0], count)[number] * gaps, bins) for _ in range(resamples)
    ]
    few = float(t.ppf(0.975, count - 1) / NORMAL * math.sqrt(count / (count - 1))) if count > 1 else 1.0
    mean, above = drawn.mean(), drawn.mean() - estimate
    low, high = (mean + few * (end - mean) for end in np.quantile(drawn, [0.025, 0.975]))
    surprise = estimate > np.quantile(chance, 0.975)
    lower = 2 * estimate - high - above if surprise else 0.0
    upper = max(2 * estimate - low, high - above)
    return [float(min(max(lower, 0.0), estimate)), float(max(upper, estimate))]


def describe(
    probabilities: ArrayLike, targets: ArrayLike, *, resamples: int = 1000, groups: ArrayLike | None = None
) -> dict[str, Any]:
    """Calibration error with its interval, log loss and the curve, ready for JSON."""
    p, y = np.asarray(probabilities, np.float64), np.asarray(targets)
    chosen = p[np.arange(len(y)), y].clip(np.finfo(np.float64).eps)
    return {
        "n": len(y),
        "ece": calibration_error(p, y),
        "ece_interval": calibration_interval(p, y, resamples=resamples, groups=groups),
        "log_loss": float(-np.log(chosen).mean()),
        "curve": [asdict(b) for b in reliability(p, y)],
    }


def tune_threshold(
    positive: ArrayLike, targets: ArrayLike, metric: Metric = "accuracy"
) -> tuple[float, float]:
    """The threshold on the second class's probability that serves a metric best, and its value.

    Among equally good ones the nearest to 0.5; thresholds lie half-way between neighbouring probabilities.

    Args:
        positive: [n] probabilities of the second class.
        targets: [n] class indices, 0 or 1.
        metric: accuracy; macro_f1, in which both classes count the same; f1 of the second class.

    Raises:
        DataError: one class only.
        InputError: an unknown metric.
    """
    p, y = np.asarray(positive, np.float64), np.asarray(targets)
    if metric not in get_args(Metric):
        raise InputError(f"no metric {metric!r}", where="threshold", fix=nearest(metric, get_args(Metric)))
    if set(np.unique(y).tolist()) != {0, 1}:
        raise DataError("a threshold needs examples of both classes", where="threshold")
    order = np.argsort(p, kind="stable")
    values, n, positives = p[order], len(y), int(y.sum())
    # Cut before position i: what stands from i on is called positive.
    cuts = np.flatnonzero(np.r_[True, np.diff(values) > 0, True])
    missed = np.r_[0, np.cumsum(y[order])][cuts]  # positives below the cut
    hits = positives - missed
    false = (n - cuts) - hits
    right0 = cuts - missed
    f1 = 2 * hits / np.maximum(2 * hits + false + missed, 1)
    f0 = 2 * right0 / np.maximum(2 * right0 + false + missed, 1)
    score = {"accuracy": (hits + right0) / n, "f1": f1, "macro_f1": (f0 + f1) / 2}[metric]
    edges = np.r_[0.0, values, 1.0 if values[-1] < 1 else np.nextafter(values[-1], 2)]
    thresholds = (edges[cuts] + edges[cuts + 1]) / 2
    thresholds = np.where(
        thresholds > edges[cuts], thresholds, edges[cuts + 1]
    )  # neighbours too close for one
    best = np.flatnonzero(score >= score.max() - 1e-12)
    chosen = best[np.abs(thresholds[best] - 0.5).argmin()]
    return float(thresholds[chosen]), float(score[chosen])


def probabilities_of(logits: ArrayLike, temperature: float = 1.0) -> np.ndarray:
    """``[n, K]`` rows that sum to 1."""
    return softmax(np.asarray(logits), temperature)
