"""Is a model as sure as it should be? Expected calibration error, temperature scaling, and the threshold.

Guo et al. (2017): one number divides all logits, chosen by the log loss on validation data. It changes how
sure the model says it is and, without a threshold, no answer. Few mistakes, or none, would drive that number
to 0 and every answer to certainty, so targets are smoothed by one mistake that was not made, as in Platt
(1999); decision 0172 has what other ways cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from glassformer.config import nearest
from glassformer.errors import BadValueError, DataError, InputError, OneClassError, ShapeError
from glassformer.evaluate.predict import softmax

BINS = 15  # of the stated probability, as in the paper
NORMAL = 1.959964  # deviations of the normal distribution within which 95 % lie
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0  # temperatures that are looked at
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
    """The temperature with the lowest smoothed log loss, between ``MIN_TEMPERATURE`` and ``MAX_TEMPERATURE``.

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
        bounds=(np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE)),
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
    ``benchmarks/quality/error_interval.py``.

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

    Among equally good ones the nearest to 0.5; thresholds lie half-way between neighboring probabilities.

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
        raise BadValueError(f"no metric {metric!r}", where="threshold", fix=nearest(metric, get_args(Metric)))
    if set(np.unique(y).tolist()) != {0, 1}:
        raise OneClassError("a threshold needs examples of both classes", where="threshold")
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
    )  # neighbors too close for one
    best = np.flatnonzero(score >= score.max() - 1e-12)
    chosen = best[np.abs(thresholds[best] - 0.5).argmin()]
    return float(thresholds[chosen]), float(score[chosen])


def probabilities_of(logits: ArrayLike, temperature: float = 1.0) -> np.ndarray:
    """``[n, K]`` rows that sum to 1."""
    return softmax(np.asarray(logits), temperature)


# --- a threshold for each of several classes ------------------------------------------------------
#
# The answer is the class whose probability is the largest multiple of its own threshold.
#
# Of two classes that is one threshold ``t`` on the second, for ``p >= t`` says ``p / t >= (1-p) / (1-t)``.
# Of K it is an offset ``-log(threshold)`` to each class's log-probability. Probabilities stay as they are.


FEW = 5  # examples of a class, below which a threshold of its own would be chance
FURTHEST = 12.0  # that an offset may be from 0: a factor of e^12
LEAST = 1e-300  # a probability of 0 counts as this
SWEEPS = 50  # over all classes, at most; a handful is usual
GAIN = 1e-12  # below which a figure is the same
FOLDS = 5  # of the figure on examples that did not choose


def class_by_threshold(probabilities: ArrayLike, thresholds: ArrayLike) -> np.ndarray:
    """Class numbers ``[n]`` of probabilities ``[n, K]`` by thresholds ``[K]``; equal ones: the likeliest."""
    return (_logs(probabilities) - np.log(np.asarray(thresholds, np.float64))).argmax(1)


def tune_class_thresholds(
    probabilities: ArrayLike, targets: ArrayLike, metric: Metric = "macro_f1"
) -> tuple[np.ndarray, float]:
    """The thresholds ``[K]`` that serve a metric best, and its value; they sum to 1, and are all 1/K where
    nothing is better than the likeliest class.

    A search along one class at a time, exact along it: of all offsets of this class, with those of the others
    as they are, the best one, and of equally good ones the nearest to 0. It ends where no class has a better
    one, which is a local optimum and never below the likeliest class. A class of fewer than ``FEW`` examples
    keeps its offset of 0.

    Args:
        probabilities: [n, K] of examples that the model was not trained on.
        targets: [n] class indices.
        metric: accuracy, or macro_f1, in which all classes count the same.

    Raises:
        DataError: no example, or none of a second class.
        InputError: another metric.
        ShapeError: probabilities and targets do not fit.
    """
    p, y = np.asarray(probabilities, np.float64), np.asarray(targets)
    if metric not in get_args(Metric):
        raise BadValueError(f"no metric {metric!r}", where="threshold", fix=nearest(metric, get_args(Metric)))
    if metric == "f1":
        what = "f1 is that of the second of two classes"
        raise InputError(what, where="threshold", fix="With more classes use macro_f1 or accuracy")
    if p.ndim != 2 or y.shape != p.shape[:1]:
        raise ShapeError(f"probabilities {p.shape} and targets {y.shape} do not fit")
    if len(np.unique(y)) < 2:
        raise OneClassError("thresholds need examples of two classes or more", where="threshold")
    scores, classes = _logs(p), p.shape[1]
    offsets = np.zeros(classes)
    able = np.flatnonzero(np.bincount(y, minlength=classes) >= FEW).tolist()
    value = figure_of(scores.argmax(1), y, classes, metric)
    for _ in range(SWEEPS):
        before = value
        for k in able:
            offset, reached = _along(scores, offsets, y, k, metric)
            if reached > value + GAIN:
                offsets[k], value = offset, reached
        if value <= before + GAIN:
            break
    shares = np.exp(offsets.min() - offsets)
    return shares / shares.sum(), value


def unseen_figure(
    answer: Callable[[np.ndarray, np.ndarray], np.ndarray],
    figure: Callable[[np.ndarray], float],
    targets: np.ndarray,
    folds: int = FOLDS,
) -> float | None:
    """What a choice is worth on examples that did not choose: each fold is answered by what the others chose.

    Args:
        answer: (numbers of the examples that choose, numbers of others) -> class numbers of the others.
        figure: of the class numbers of all examples.
        targets: [n] class indices, whose shares every fold has.

    Returns:
        None where a class has fewer examples than there are folds: some of them could not choose.
    """
    from sklearn.model_selection import StratifiedKFold

    if np.unique(targets, return_counts=True)[1].min() < folds:
        return None
    answers = np.empty(len(targets), np.int64)
    for others, own in StratifiedKFold(folds, shuffle=True, random_state=0).split(targets, targets):
        answers[own] = answer(others, own)
    return figure(answers)


def _logs(probabilities: ArrayLike) -> np.ndarray:
    return np.log(np.maximum(np.asarray(probabilities, np.float64), LEAST))


def figure_of(answers: np.ndarray, y: np.ndarray, classes: int, metric: str) -> float:
    """Accuracy, or macro-F1 over the classes that are there or given, of class numbers ``[n]``."""
    if metric == "accuracy":
        return float((answers == y).mean())
    support, named = np.bincount(y, minlength=classes), np.bincount(answers, minlength=classes)
    hits = np.bincount(y[answers == y], minlength=classes)
    seen = support + named > 0
    return float((2 * hits[seen] / (support + named)[seen]).mean())


def _along(
    scores: np.ndarray, offsets: np.ndarray, y: np.ndarray, k: int, metric: str
) -> tuple[float, float]:
    """The best offset of class ``k`` beside those of the others, and the figure that it reaches.

    An example is answered with ``k`` from the offset on at which ``k`` overtakes the best of the others, its
    rival. In the order of these offsets each step changes the counts of ``k`` and of one rival alone.
    """
    n, classes = scores.shape
    others = scores + offsets
    others[:, k] = -np.inf
    rival = others.argmax(1)
    needed = others[np.arange(n), rival] - scores[:, k]
    order = np.argsort(needed, kind="stable")
    needed, rival, truth = needed[order], rival[order], y[order]
    taken = np.r_[0, np.cumsum(truth == k)]  # [n + 1] of class k that are answered so, after so many steps
    support = np.bincount(y, minlength=classes)
    # What the rivals lose, one after the other: each one's examples together, in their order.
    by_rival = np.argsort(rival, kind="stable")
    owner = rival[by_rival]
    starts = np.r_[0, np.flatnonzero(np.diff(owner)) + 1]
    place = np.arange(n) - np.repeat(starts, np.diff(np.r_[starts, n]))  # in its group, from 0
    right = (truth == rival)[by_rival]
    before = np.cumsum(right) - right
    gone = before - np.repeat(before[starts], np.diff(np.r_[starts, n]))  # hits that left before this one
    named, hits = np.bincount(rival, minlength=classes), np.bincount(rival[truth == rival], minlength=classes)
    if metric == "accuracy":
        total = hits.sum() - np.r_[0, np.cumsum(truth == rival)] + taken
        values = total / n
    else:

        def f1(hit: Any, given: Any, own: Any) -> Any:
            return 2 * hit / np.maximum(given + own, 1)

        left, own = named[owner] - place, support[owner]
        change = f1(hits[owner] - gone - right, left - 1, own) - f1(hits[owner] - gone, left, own)
        fewer = (own == 0) & (left == 1)  # a class that is not there and is given no more counts no more
        step, lost = np.empty(n), np.empty(n, np.int64)
        step[by_rival], lost[by_rival] = change, fewer
        begun = f1(hits, named, support).sum() - f1(hits[k], named[k], support[k])
        sums = begun + np.r_[0.0, np.cumsum(step)] + f1(taken, np.arange(n + 1), support[k])
        seen = (support + named > 0).sum() - np.r_[0, np.cumsum(lost)]
        seen[1:] += support[k] == 0  # where it is not there, it counts once it is given
        values = sums / np.maximum(seen, 1)
    edges = np.r_[needed[0] - 2.0, needed, needed[-1] + 2.0]
    middle = (edges[:-1] + edges[1:]) / 2
    apart = (np.diff(edges) > 1e-9) & (np.abs(middle) <= FURTHEST)  # between two that are alike is no place
    if not apart.any():
        return float(offsets[k]), -np.inf
    best = np.flatnonzero(apart & (values >= values[apart].max() - GAIN))
    chosen = best[np.abs(middle[best]).argmin()]
    return float(middle[chosen]), float(values[chosen])
