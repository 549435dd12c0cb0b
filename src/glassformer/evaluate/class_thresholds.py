"""A threshold for each of several classes: the answer is the class whose probability is the largest multiple
of its own threshold.

Of two classes that is one threshold ``t`` on the second, for ``p >= t`` says ``p / t >= (1-p) / (1-t)``. Of K
it is an offset ``-log(threshold)`` to each class's log-probability. Probabilities stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from glassformer.config import nearest
from glassformer.errors import DataError, InputError, ShapeError
from glassformer.evaluate.calibrate import Metric

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
        raise InputError(f"no metric {metric!r}", where="threshold", fix=nearest(metric, get_args(Metric)))
    if metric == "f1":
        what = "f1 is that of the second of two classes"
        raise InputError(what, where="threshold", fix="With more classes use macro_f1 or accuracy")
    if p.ndim != 2 or y.shape != p.shape[:1]:
        raise ShapeError(f"probabilities {p.shape} and targets {y.shape} do not fit")
    if len(np.unique(y)) < 2:
        raise DataError("thresholds need examples of two classes or more", where="threshold")
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
