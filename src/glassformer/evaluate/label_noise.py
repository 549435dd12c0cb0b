"""Detection of label errors by confident learning.

The method (Northcutt, Jiang and Chuang, 2021) needs out-of-fold probabilities. An example with the label i is
counted for class j if its p(j) reaches the mean of p(j) over the examples labeled j. Counts with i != j are
likely label errors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from glassformer.errors import DataError, ShapeError


@dataclass(frozen=True)
class LabelReview:
    """Likely label errors among n examples of K classes."""

    quality: np.ndarray  # [n]: probability of the example's label
    suggested: np.ndarray  # [n]: most probable class
    suspicious: np.ndarray  # [n] bool: whether the label is likely wrong
    order: np.ndarray  # [n]: suspicious examples first, then by the probability of the label, lowest first
    joint: np.ndarray  # [K, K]: estimated share of examples with label i (row) whose class is j
    max_probability: np.ndarray  # [n]: probability of the most probable class


def confident_joint(labels: ArrayLike, probabilities: ArrayLike) -> np.ndarray:
    """Estimated counts ``[K, K]`` by label (row) and true class (column); rows sum to the label counts.

    Args:
        labels: [n] class indices.
        probabilities: [n, K], out-of-fold.
    """
    y, p = _check(labels, probabilities)
    n, classes = p.shape
    count = np.bincount(y, minlength=classes)
    thresholds = np.array([p[y == k, k].mean() for k in range(classes)])
    exceeds = p >= thresholds - 1e-6  # tolerance for rounding errors
    confident = exceeds.any(1)
    # The class whose threshold is exceeded; if several are, the most probable class, as in cleanlab.
    true_class = np.where(exceeds.sum(1) > 1, p.argmax(1), exceeds.argmax(1))
    counts = np.zeros((classes, classes))
    np.add.at(counts, (y[confident], true_class[confident]), 1)
    # Classes without confident examples keep their label.
    np.fill_diagonal(counts, np.maximum(counts.diagonal(), 1))
    joint = counts / counts.sum(1, keepdims=True) * count[:, None]
    return _round_rows(joint * n / joint.sum(), count)


def review_labels(labels: ArrayLike, probabilities: ArrayLike) -> LabelReview:
    """Review every label; arguments and errors as in ``confident_joint``.

    For each label i and class j, ``confident_joint`` estimates the number c of errors. The c examples with
    the largest p(j) - p(i) are suspicious ("prune by noise rate"), except those whose label is the most
    probable class.
    """
    y, p = _check(labels, probabilities)
    n, classes = p.shape
    joint = confident_joint(y, p)
    suspicious = np.zeros(n, bool)
    for i in range(classes):
        labeled_i = np.flatnonzero(y == i)
        for j in range(classes):
            count = min(int(joint[i, j]), len(labeled_i) - 1)  # at least one example is not suspicious
            if i != j and count > 0:
                margin = p[labeled_i, j] - p[labeled_i, i]
                suspicious[labeled_i[np.argsort(-margin, kind="stable")[:count]]] = True
    suggested = p.argmax(1)
    suspicious &= suggested != y
    quality = p[np.arange(n), y]
    order = np.lexsort((quality, ~suspicious))
    return LabelReview(quality, suggested, suspicious, order, joint / n, p.max(1))


@dataclass(frozen=True)
class SetReview:
    """Likely label errors among n multi-label examples with K labels, each of which is present or absent."""

    quality: np.ndarray  # [n]: lowest probability that a label is correctly present or absent
    # [n, K] bool: labels that should be flipped between present and absent: the suspicious labels; if there
    # are none, the label with the lowest probability, if this is below one half.
    flips: np.ndarray
    suspicious: np.ndarray  # [n] bool: whether any label of the example is suspicious
    order: np.ndarray  # [n]: suspicious examples first, then by ``quality``, lowest first
    joint: np.ndarray  # [K, 2, 2]: estimated share by label (row) and truth (column), absent or present


def review_label_sets(is_present: ArrayLike, probabilities: ArrayLike) -> SetReview:
    """``review_labels`` for each label separately, except labels that all or no examples have.

    Args:
        is_present: [n, K], 0 or 1: whether an example has a label.
        probabilities: [n, K], out-of-fold, one probability per label.

    Raises:
        ShapeError: labels and probabilities differ in shape.
        DataError: every label belongs to all examples or to none.
    """
    y, p = np.asarray(is_present).astype(np.int64), np.asarray(probabilities, np.float64)
    if y.ndim != 2 or y.shape != p.shape:
        raise ShapeError(f"labels of shape {y.shape} do not match probabilities of shape {p.shape}")
    quality, is_wrong = np.where(y == 1, p, 1 - p), np.zeros(y.shape, bool)
    joint = np.zeros((y.shape[1], 2, 2))
    for k, count in enumerate(y.sum(0).tolist()):
        if not 0 < count < len(y):
            joint[k, int(count > 0), int(count > 0)] = 1
            continue
        review = review_labels(y[:, k], np.stack([1 - p[:, k], p[:, k]], 1))
        is_wrong[:, k], joint[k] = review.suspicious, review.joint
    if not ((y.sum(0) > 0) & (y.sum(0) < len(y))).any():
        what = "every label belongs to all examples or to none"
        raise DataError(what, where="review-labels", fix="Give examples with different labels")
    suspicious = np.asarray(is_wrong.any(1))
    certainty = np.where(is_wrong | ~suspicious[:, None], quality, np.inf)
    lowest, rest = certainty.min(1), np.flatnonzero(~suspicious)
    flips = is_wrong.copy()
    flips[rest, certainty[rest].argmin(1)] = lowest[rest] < 0.5
    return SetReview(lowest, flips, suspicious, np.lexsort((lowest, ~suspicious)), joint)


def _check(labels: ArrayLike, probabilities: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    y, p = np.asarray(labels), np.asarray(probabilities, np.float64)
    if p.ndim != 2 or p.shape[1] < 2 or y.shape != p.shape[:1]:
        raise ShapeError(f"labels of shape {y.shape} do not match probabilities of shape {p.shape}")
    if not len(y) or not np.isfinite(p).all():
        raise DataError("there are no probabilities, or some are not finite", where="review-labels")
    absent = np.flatnonzero(np.bincount(y, minlength=p.shape[1])[: p.shape[1]] == 0)
    if len(absent) or y.max() >= p.shape[1]:
        number = int(absent[0]) if len(absent) else int(y.max())
        raise DataError(
            f"class {number} has no example, or no column of probabilities", where="review-labels"
        )
    return y.astype(np.int64), p


def _round_rows(joint: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Integers whose rows sum to ``count``, as close to ``joint`` as possible."""
    out = joint.round().astype(np.int64)
    for i, row in enumerate(joint):
        while missing := int(count[i] - out[i].sum()):
            sign = 1 if missing > 0 else -1
            out[i, np.argsort(row - out[i])[::-sign][: abs(missing)]] += sign
    return out
