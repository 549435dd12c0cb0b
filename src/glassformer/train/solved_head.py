"""Linear heads on the vectors of a frozen encoder, fitted by logistic or ridge regression.

Fine-tuning starts from such a head (linear probing first; Kumar et al., 2022); with ``train_layers = 0`` it
is the final model. The regularization strength is chosen by cross-validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.process import one_thread, without_warnings

STRENGTHS = (1.0, 4.0, 16.0, 64.0)  # C of logistic regression, for vectors of mean length 1
PENALTIES = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)  # alpha of ridge regression, for the same vectors
FOLDS = 3
MOST = 5_000  # maximum number of examples in cross-validation
TOLERANCE = 1e-4  # of the solver; with 1e-3 the accuracy still changed by two points


@dataclass(frozen=True)
class SolvedHead:
    """A linear layer: ``vectors @ weight.T + bias``.

    Args:
        weight, bias: ``[C, D]`` and ``[C]``, fp32.
        strength: chosen by cross-validation.
        held_out: ``[n, C]`` fp64 cross-validated outputs; NaN for examples in no fold.
    """

    weight: np.ndarray
    bias: np.ndarray
    strength: float
    held_out: np.ndarray


def solve_classes(
    vectors: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None, seed: int = 0
) -> SolvedHead:
    """Multinomial logistic regression on vectors ``[n, D]``; targets ``[n]`` are class numbers from 0, each
    occurs."""
    classes = int(targets.max()) + 1

    def solve(rows: np.ndarray, strength: float, made: dict) -> tuple[np.ndarray, np.ndarray]:
        fitted = _regression(vectors[rows], targets[rows], strength, _of(weights, rows), made, 0)
        weight, bias = np.zeros((classes, vectors.shape[1])), np.full(classes, -np.inf)
        if len(fitted.classes_) == 2:  # scikit-learn has one row, for the second class
            weight[fitted.classes_] = np.concatenate([-fitted.coef_, fitted.coef_]) / 2
            bias[fitted.classes_] = np.concatenate([-fitted.intercept_, fitted.intercept_]) / 2
        else:
            weight[fitted.classes_], bias[fitted.classes_] = fitted.coef_, fitted.intercept_
        return weight, bias

    def loss(outputs: np.ndarray, rows: np.ndarray) -> float:
        shifted = outputs - outputs.max(1, keepdims=True)
        own = shifted[np.arange(len(rows)), targets[rows]]
        return float((np.log(np.exp(shifted).sum(1)) - own).mean())

    return _solved(vectors, solve, loss, STRENGTHS, list(_folds(targets, seed)))


def solve_label_sets(
    vectors: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None, seed: int = 0
) -> SolvedHead:
    """Multi-label: one logistic regression per label; ``targets`` ``[n, K]`` are 0 or 1."""
    labels = targets.shape[1]
    rare = 1 / (len(targets) + 2)  # smoothed share of a label that no example has

    def solve(rows: np.ndarray, strength: float, made: dict) -> tuple[np.ndarray, np.ndarray]:
        weight, bias = np.zeros((labels, vectors.shape[1])), np.zeros(labels)
        for k in range(labels):
            has = targets[rows, k].astype(int)
            if has.min() == has.max():
                bias[k] = np.log((1 - rare) / rare) * (1 if has[0] else -1)
                continue
            fitted = _regression(vectors[rows], has, strength, _of(weights, rows), made, k)
            weight[k], bias[k] = fitted.coef_[0], fitted.intercept_[0]
        return weight, bias

    def loss(outputs: np.ndarray, rows: np.ndarray) -> float:
        signed = np.where(targets[rows] > 0, outputs, -outputs)
        return float(np.logaddexp(0, -signed).mean())

    return _solved(vectors, solve, loss, STRENGTHS[:3], [next(_folds(None, seed, len(targets)))])


def solve_numbers(
    vectors: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None, seed: int = 0
) -> SolvedHead:
    """Ridge regression of standardized numbers ``[n]``."""

    def solve(rows: np.ndarray, strength: float, made: dict) -> tuple[np.ndarray, np.ndarray]:
        from sklearn.linear_model import Ridge

        fitted = Ridge(alpha=1 / strength).fit(vectors[rows], targets[rows], _of(weights, rows))
        return fitted.coef_.reshape(1, -1), np.reshape(fitted.intercept_, 1)

    def loss(outputs: np.ndarray, rows: np.ndarray) -> float:
        return float(((outputs[:, 0] - targets[rows]) ** 2).mean())

    strengths = tuple(1 / penalty for penalty in PENALTIES)
    return _solved(vectors, solve, loss, strengths, list(_folds(None, seed, len(targets))))


def _solved(
    vectors: np.ndarray,
    solve: Callable[[np.ndarray, float, dict], tuple[np.ndarray, np.ndarray]],
    loss: Callable[[np.ndarray, np.ndarray], float],
    strengths: Sequence[float],
    folds: list[tuple[np.ndarray, np.ndarray]],
) -> SolvedHead:
    """Choose the strength with the lowest held-out loss, and fit with it on all examples."""

    with one_thread():  # the steps are too short for several threads
        # Default without folds: C = 4 is best with one or two examples per class of banking77.
        best, best_loss, best_outputs = strengths[(len(strengths) - 1) // 2], np.inf, []
        made: list[dict] = [{} for _ in folds]  # fitted models per fold, for warm starts
        for strength in strengths if folds else ():
            outputs, losses = [], []
            for (rest, held), before in zip(folds, made, strict=True):
                weight, bias = solve(rest, strength, before)
                outputs.append(vectors[held] @ weight.T + bias)
                losses.append(loss(outputs[-1], held))
            if (mean := float(np.mean(losses))) > best_loss:
                break  # the loss is unimodal in the strength
            best, best_loss, best_outputs = strength, mean, outputs
        weight, bias = solve(np.arange(len(vectors)), best, {})
    held_out = np.full((len(vectors), len(weight)), np.nan)
    for (_, held), outputs in zip(folds, best_outputs, strict=False):
        held_out[held] = outputs
    return SolvedHead(weight.astype(np.float32), bias.astype(np.float32), best, held_out)


def _regression(
    vectors: np.ndarray, targets: np.ndarray, strength: float, weights: Any, made: dict, key: int
) -> Any:
    """Fit a logistic regression; the model is kept in ``made`` for a warm start of the next fit."""
    from sklearn.linear_model import LogisticRegression

    model = made.setdefault(key, LogisticRegression(max_iter=1000, tol=TOLERANCE, warm_start=True))
    with without_warnings(r"sklearn\."):
        return model.set_params(C=strength).fit(vectors, targets, weights)


def _of(weights: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    return None if weights is None else weights[rows]


def _folds(
    targets: np.ndarray | None, seed: int, n: int | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (training rows, held-out rows) of stratified folds of at most ``MOST`` rows; a class with fewer
    than ``FOLDS`` examples is in training only."""
    rng = np.random.default_rng(seed)
    n = len(targets) if targets is not None else n or 0
    order = np.sort(rng.permutation(n)[:MOST])
    if targets is None:
        place = np.empty(n, int)
        place[:] = -1
        place[rng.permutation(order)] = np.arange(len(order)) % FOLDS
    else:
        place = np.full(n, -1)
        start = 0
        for k in np.unique(targets[order]):
            own = rng.permutation(order[targets[order] == k])
            if len(own) >= FOLDS:
                place[own] = (start + np.arange(len(own))) % FOLDS
                start += len(own)
    chosen = np.zeros(n, bool)
    chosen[order] = True
    for fold in range(FOLDS):
        held = np.flatnonzero(place == fold)
        if len(held):
            yield np.flatnonzero(chosen & (place != fold)), held
