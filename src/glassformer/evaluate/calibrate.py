"""Calibration error, temperature scaling and decision thresholds.

Temperature scaling (Guo et al., 2017) divides all logits by one number that minimizes the log loss on
validation data. It changes probabilities but, unless there is a threshold, not the predicted labels. With few
or no errors the temperature would approach 0. Therefore targets are smoothed by one pseudo-error, as in Platt
(1999); docs/decisions/0172 compares alternatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from glassformer.config import suggest
from glassformer.errors import BadValueError, DataError, InputError, OneClassError, ShapeError

BINS = 15  # number of bins of the calibration error, as in the paper
Z_95 = 1.959964  # 97.5 % quantile of the standard normal distribution
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0  # bounds of the search
Metric = Literal["accuracy", "macro_f1", "f1"]  # f1: of the second of two classes


def _check_arrays(values: ArrayLike, targets: ArrayLike, noun: str = "probabilities") -> tuple[Any, Any]:
    """The values ``[n, K]``, fp64, and targets ``[n]``; raise ShapeError if their lengths differ."""
    p, y = np.asarray(values, np.float64), np.asarray(targets)
    if p.ndim != 2 or y.shape != p.shape[:1]:
        raise ShapeError(f"{noun} of shape {p.shape} do not match targets of shape {y.shape}")
    return p, y


def _check_metric(metric: str) -> None:
    if metric not in (known := get_args(Metric)):
        raise BadValueError(f"unknown metric {metric!r}", where="threshold", fix=suggest(metric, known))


def log_loss(logits: ArrayLike, targets: ArrayLike, temperature: float = 1.0) -> float:
    """Mean negative log likelihood in nats, from logits ``[n, K]`` and class indices ``[n]``."""
    z = np.asarray(logits, np.float64) / temperature
    top = z.max(1, keepdims=True)
    total = np.log(np.exp(z - top).sum(1)) + top[:, 0]
    return float((total - z[np.arange(len(z)), np.asarray(targets)]).mean())


def smoothing(n: int) -> float:
    """Target probability of all wrong classes together, for ``n`` examples: one pseudo-error in ``n + 2``."""
    return 1 / (n + 2)


def smoothed_loss(logits: ArrayLike, targets: ArrayLike, temperature: float = 1.0) -> float:
    """Log loss with smoothed targets: ``smoothing(n)`` is spread evenly over the wrong classes."""
    z, y = np.asarray(logits, np.float64) / temperature, np.asarray(targets)
    n, classes = z.shape
    true = z[np.arange(n), y]
    rest = (z.sum(1) - true) / max(classes - 1, 1)
    return log_loss(z, y) + smoothing(n) * float((true - rest).mean())


def fit_temperature(logits: ArrayLike, targets: ArrayLike) -> float:
    """The temperature with the lowest smoothed log loss, between ``MIN_TEMPERATURE`` and ``MAX_TEMPERATURE``.

    If all ``n`` predictions are right, their mean probability becomes about ``(n + 1) / (n + 2)``.

    Args:
        logits: [n, K] of data on which the model was not trained.
        targets: [n] class indices.
    """
    from scipy.optimize import minimize_scalar

    z, y = _check_arrays(logits, targets, "logits")
    if not len(y):
        raise DataError("there are no examples for the calibration", where="calibrate")
    # The loss is convex in the inverse temperature, so it is unimodal in the logarithm.
    result = minimize_scalar(
        lambda log_t: smoothed_loss(z, y, float(np.exp(log_t))),
        bounds=(np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE)),
        method="bounded",
        options={"xatol": 1e-7},
    )
    return float(np.exp(result.x))


def confidences(probabilities: ArrayLike, targets: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """The largest probability ``[n]`` of each example, and whether its class is right ``[n]``."""
    p, y = _check_arrays(probabilities, targets)
    return p.max(1), p.argmax(1) == y


def reliability_curve(confidence: np.ndarray, right: np.ndarray, bins: int = BINS) -> list[dict[str, Any]]:
    """The reliability curve of probabilities ``[n]`` and outcomes ``[n]``: one dict per non-empty bin."""
    indices = _bin_indices(confidence, bins)
    return [
        {
            "low": k / bins,
            "high": (k + 1) / bins,
            "n": int(in_bin.sum()),
            "confidence": float(confidence[in_bin].mean()),
            "accuracy": float(right[in_bin].mean()),
        }
        for k in range(bins)
        if (in_bin := indices == k).any()
    ]


def calibration_error(confidence: np.ndarray, right: np.ndarray, bins: int = BINS) -> float:
    """Expected calibration error: the mean gap between probabilities ``[n]`` and outcomes ``[n]``.

    The mean is over bins of equal width, weighted by the number of examples.
    """
    return _mean_gap(_bin_indices(confidence, bins), confidence - right, bins)


def _bin_indices(confidence: np.ndarray, bins: int) -> np.ndarray:
    """The bin of each probability; bins are (low, high], as in the paper."""
    return np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)


def _mean_gap(indices: np.ndarray, gaps: np.ndarray, bins: int) -> float:
    return float(np.abs(np.bincount(indices, gaps, bins)).sum() / max(len(gaps), 1))


def error_interval(
    confidence: np.ndarray,
    right: np.ndarray,
    groups: ArrayLike | None = None,
    *,
    bins: int = BINS,
    resamples: int = 1000,
    seed: int = 0,
) -> list[float]:
    """95 % interval of the ``calibration_error``.

    The error is a sum of absolute gaps, so noise makes it too large, and resamples have even more noise.
    Therefore the interval is the basic bootstrap interval (reflected at the estimate), and the mean excess of
    the resamples is subtracted from its lower end. The lower end is 0 if the error is not significant. This
    is tested with random signs of the gaps (wild bootstrap), as a perfectly calibrated model would have them:
    the error is significant if at most one in 40 of these errors reaches the estimate. The upper end is at
    least that of the percentile bootstrap minus the same excess, in case the estimate is low by chance.
    Student's t widens both ends for few examples or groups. The interval always contains the estimate.
    ``benchmarks/quality/error_interval.py`` measures its coverage.

    Args:
        confidence: [n] probabilities.
        right: [n] outcomes, 0 or 1.
        groups: [n] group numbers from 0 of examples that are resampled together, such as the words of a
            sentence; None: every example is resampled separately.
    """
    from scipy.stats import t

    indices, gaps = _bin_indices(confidence, bins), confidence - right
    group = np.arange(len(confidence)) if groups is None else np.asarray(groups)
    count, rng = int(group.max()) + 1, np.random.default_rng(seed)
    sizes, estimate = np.bincount(group, minlength=count), calibration_error(confidence, right, bins)
    if not resamples:
        return [estimate, estimate]
    resampled = np.empty(resamples)
    for i in range(resamples):
        times = np.bincount(rng.integers(0, count, count), minlength=count)  # how often each group is drawn
        resampled[i] = _mean_gap(indices, times[group] * gaps, bins) * len(gaps) / max(times @ sizes, 1)
    # Errors that a perfectly calibrated model could have.
    signs = (rng.choice([-1.0, 1.0], count)[group] for _ in range(resamples))
    calibrated = [_mean_gap(indices, sign * gaps, bins) for sign in signs]
    widening = float(t.ppf(0.975, count - 1) / Z_95 * math.sqrt(count / (count - 1))) if count > 1 else 1.0
    mean, excess = resampled.mean(), resampled.mean() - estimate
    low, high = (mean + widening * (end - mean) for end in np.quantile(resampled, [0.025, 0.975]))
    significant = estimate > np.quantile(calibrated, 0.975)
    lower = 2 * estimate - high - excess if significant else 0.0
    upper = max(2 * estimate - low, high - excess)
    return [float(min(max(lower, 0.0), estimate)), float(max(upper, estimate))]


def describe(
    probabilities: ArrayLike, targets: ArrayLike, resamples: int = 1000, groups: ArrayLike | None = None
) -> dict[str, Any]:
    """Calibration error with its interval, log loss and the curve, ready for JSON."""
    p, y = np.asarray(probabilities, np.float64), np.asarray(targets)
    likelihoods = p[np.arange(len(y)), y]
    return {"n": len(y)} | describe_outcomes(*confidences(p, y), likelihoods, resamples, groups)


def describe_outcomes(
    confidence: np.ndarray,
    right: np.ndarray,
    likelihoods: np.ndarray,
    resamples: int = 1000,
    groups: ArrayLike | None = None,
) -> dict[str, Any]:
    """Like ``describe``, from the arguments of ``error_interval``.

    Args:
        likelihoods: [n] probabilities of the true outcomes.
    """
    return {
        "ece": calibration_error(confidence, right),
        "ece_interval": error_interval(confidence, right, groups, resamples=resamples),
        "log_loss": float(-np.log(likelihoods.clip(np.finfo(np.float64).eps)).mean()),
        "curve": reliability_curve(confidence, right),
    }


def tune_threshold(
    positive: ArrayLike, targets: ArrayLike, metric: Metric = "accuracy"
) -> tuple[float, float]:
    """The threshold for the probability of the second class with the best metric, and the metric's value.

    Thresholds are half-way between adjacent probabilities. Of equally good ones, the closest to 0.5 is used.

    Args:
        positive: [n] probabilities of the second class.
        targets: [n] class indices, 0 or 1.
        metric: accuracy, macro_f1, or f1 of the second class.
    """
    p, y = np.asarray(positive, np.float64), np.asarray(targets)
    _check_metric(metric)
    if set(np.unique(y).tolist()) != {0, 1}:
        raise OneClassError("a threshold needs examples of both classes", where="threshold")
    order = np.argsort(p, kind="stable")
    values, n, positives = p[order], len(y), int(y.sum())
    # A cut at position i of the sorted examples: those from i on are predicted positive.
    cuts = np.flatnonzero(np.r_[True, np.diff(values) > 0, True])
    missed = np.r_[0, np.cumsum(y[order])][cuts]  # number of positives below each cut
    hits = positives - missed
    false_positives = (n - cuts) - hits
    true_negatives = cuts - missed
    f1 = 2 * hits / np.maximum(2 * hits + false_positives + missed, 1)
    f0 = 2 * true_negatives / np.maximum(2 * true_negatives + false_positives + missed, 1)
    score = {"accuracy": (hits + true_negatives) / n, "f1": f1, "macro_f1": (f0 + f1) / 2}[metric]
    edges = np.r_[0.0, values, 1.0 if values[-1] < 1 else np.nextafter(values[-1], 2)]
    thresholds = (edges[cuts] + edges[cuts + 1]) / 2
    # Between two adjacent floats there is no other float, so the upper one is the threshold.
    thresholds = np.where(thresholds > edges[cuts], thresholds, edges[cuts + 1])
    best = np.flatnonzero(score >= score.max() - 1e-12)
    index = best[np.abs(thresholds[best] - 0.5).argmin()]
    return float(thresholds[index]), float(score[index])


# --- one threshold per class ----------------------------------------------------------------------
#
# The predicted class has the largest ratio of probability to threshold.
#
# For two classes this is a threshold ``t`` for the second class: ``p >= t`` means ``p / t >= (1-p) / (1-t)``.
# For K classes the negative logarithm of the threshold is an offset, which is added to the log-probability.


MIN_TUNED_EXAMPLES = 5  # minimum number of examples of a class whose threshold is tuned
MAX_OFFSET = 12.0  # maximum absolute offset: a factor of e^12
MIN_PROBABILITY = 1e-300  # replaces smaller probabilities, so that logarithms are finite
MAX_SWEEPS = 50  # maximum number of passes over all classes; usually about five are needed
MIN_GAIN = 1e-12  # smaller differences of a metric are ties
FOLDS = 5  # number of folds of the cross-validated metric


def class_by_threshold(probabilities: ArrayLike, thresholds: ArrayLike) -> np.ndarray:
    """Predicted classes ``[n]`` from probabilities ``[n, K]`` and thresholds ``[K]``."""
    return (_log_probabilities(probabilities) - np.log(np.asarray(thresholds, np.float64))).argmax(1)


def tune_class_thresholds(
    probabilities: ArrayLike, targets: ArrayLike, metric: Metric = "macro_f1"
) -> tuple[np.ndarray, float]:
    """Thresholds ``[K]`` with the sum 1 that maximize a metric, and the metric's value.

    The offsets are optimized by exact coordinate ascent, one class at a time; of equally good offsets the
    smallest is used. The result is a local optimum. It is never worse than predicting the most probable class
    (all thresholds 1/K). The offset of classes with fewer than ``MIN_TUNED_EXAMPLES`` examples stays 0.

    Args:
        probabilities: [n, K] of examples on which the model was not trained.
        targets: [n] class indices.
        metric: accuracy or macro_f1.
    """
    p, y = _check_arrays(probabilities, targets)
    _check_metric(metric)
    if metric == "f1":
        what = "the metric f1 is defined only for two classes"
        raise InputError(what, where="threshold", fix="For more classes use macro_f1 or accuracy")
    if len(np.unique(y)) < 2:
        raise OneClassError("thresholds need examples of two classes or more", where="threshold")
    scores, classes = _log_probabilities(p), p.shape[1]
    offsets = np.zeros(classes)
    tunable = np.flatnonzero(np.bincount(y, minlength=classes) >= MIN_TUNED_EXAMPLES).tolist()
    value = class_metric(scores.argmax(1), y, classes, metric)
    for _ in range(MAX_SWEEPS):
        before = value
        for k in tunable:
            offset, new_value = _best_offset(scores, offsets, y, k, metric)
            if new_value > value + MIN_GAIN:
                offsets[k], value = offset, new_value
        if value <= before + MIN_GAIN:
            break
    thresholds = np.exp(offsets.min() - offsets)
    return thresholds / thresholds.sum(), value


def cross_validated_metric(
    predict: Callable[[np.ndarray, np.ndarray], np.ndarray],
    metric: Callable[[np.ndarray], float],
    targets: np.ndarray,
) -> float | None:
    """Cross-validated metric of a tuned decision rule: each fold uses the rule tuned on the other folds.

    Args:
        predict: function of the indices of the examples for tuning, and of the other examples; it returns the
            predicted classes of the other examples.
        metric: computes the metric of the predicted classes of all examples.
        targets: [n] class indices, for stratification.

    Returns:
        The metric; None if a class has fewer examples than ``FOLDS``.
    """
    from sklearn.model_selection import StratifiedKFold

    if np.unique(targets, return_counts=True)[1].min() < FOLDS:
        return None
    predicted = np.empty(len(targets), np.int64)
    for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(targets, targets):
        predicted[test] = predict(train, test)
    return metric(predicted)


def _log_probabilities(probabilities: ArrayLike) -> np.ndarray:
    return np.log(np.maximum(np.asarray(probabilities, np.float64), MIN_PROBABILITY))


def class_metric(predicted: np.ndarray, y: np.ndarray, classes: int, metric: str) -> float:
    """The accuracy of predicted classes ``[n]``, or macro-F1 over classes that occur or are predicted."""
    if metric == "accuracy":
        return float((predicted == y).mean())
    total = np.bincount(y, minlength=classes) + np.bincount(predicted, minlength=classes)
    hits = np.bincount(y[predicted == y], minlength=classes)
    return float((2 * hits[total > 0] / total[total > 0]).mean())


def _best_offset(
    scores: np.ndarray, offsets: np.ndarray, y: np.ndarray, k: int, metric: str
) -> tuple[float, float]:
    """The best offset of class ``k`` if the other offsets are fixed, and the value of the metric with it.

    The rival of an example is its best class other than ``k``. As the offset grows, one example after the
    other is predicted as ``k`` instead of its rival. Each of these changes affects only the counts of ``k``
    and of the rival, so the metric of all offsets is computed in one pass.
    """
    n, classes = scores.shape
    others = scores + offsets
    others[:, k] = -np.inf
    rival = others.argmax(1)
    required = others[np.arange(n), rival] - scores[:, k]  # offset from which an example is predicted as k
    order = np.argsort(required, kind="stable")
    required, rival, truth = required[order], rival[order], y[order]
    own_hits = np.r_[0, np.cumsum(truth == k)]  # [n + 1] hits of class k after each change
    support = np.bincount(y, minlength=classes)
    # The hits that the rivals lose. Examples are grouped by rival, and each group stays in order.
    by_rival = np.argsort(rival, kind="stable")
    sorted_rival = rival[by_rival]
    starts = np.r_[0, np.flatnonzero(np.diff(sorted_rival)) + 1]
    rank = np.arange(n) - np.repeat(starts, np.diff(np.r_[starts, n]))  # index within the group
    right = (truth == rival)[by_rival]
    before = np.cumsum(right) - right
    lost_hits = before - np.repeat(before[starts], np.diff(np.r_[starts, n]))  # earlier in the group
    predicted_counts = np.bincount(rival, minlength=classes)
    hits = np.bincount(rival[truth == rival], minlength=classes)
    if metric == "accuracy":
        total = hits.sum() - np.r_[0, np.cumsum(truth == rival)] + own_hits
        values = total / n
    else:

        def f1(hits: Any, predicted: Any, support: Any) -> Any:
            return 2 * hits / np.maximum(predicted + support, 1)

        remaining, rival_support = predicted_counts[sorted_rival] - rank, support[sorted_rival]
        remaining_hits = hits[sorted_rival] - lost_hits
        change = f1(remaining_hits - right, remaining - 1, rival_support)
        change = change - f1(remaining_hits, remaining, rival_support)
        # A class without examples is excluded from the mean once it is not predicted.
        excluded = (rival_support == 0) & (remaining == 1)
        f1_step, excluded_step = np.empty(n), np.empty(n, np.int64)
        f1_step[by_rival], excluded_step[by_rival] = change, excluded
        start = f1(hits, predicted_counts, support).sum() - f1(hits[k], predicted_counts[k], support[k])
        sums = start + np.r_[0.0, np.cumsum(f1_step)] + f1(own_hits, np.arange(n + 1), support[k])
        num_included = (support + predicted_counts > 0).sum() - np.r_[0, np.cumsum(excluded_step)]
        num_included[1:] += support[k] == 0  # without examples, k is included once it is predicted
        values = sums / np.maximum(num_included, 1)
    edges = np.r_[required[0] - 2.0, required, required[-1] + 2.0]
    middle = (edges[:-1] + edges[1:]) / 2
    usable = (np.diff(edges) > 1e-9) & (np.abs(middle) <= MAX_OFFSET)  # no offset is between equal edges
    if not usable.any():
        return float(offsets[k]), -np.inf
    best = np.flatnonzero(usable & (values >= values[usable].max() - MIN_GAIN))
    index = best[np.abs(middle[best]).argmin()]
    return float(middle[index]), float(values[index])
