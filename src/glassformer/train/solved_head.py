"""Linear heads on the vectors of a frozen encoder, fitted by logistic or ridge regression.

Fine-tuning starts from such a head (linear probing first; Kumar et al., 2022). With ``train_layers = 0`` the
fitted head is final. The regularization strength is chosen by cross-validation.
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
MAX_EXAMPLES = 5_000  # maximum number of examples in cross-validation
TOLERANCE = 1e-4  # tolerance of the solver; 1e-3 changed the accuracy by up to two points


@dataclass(frozen=True)
class SolvedHead:
    """A linear layer: ``vectors @ weight.T + bias``.

    Args:
        weight, bias: ``[C, D]`` and ``[C]``, fp32.
        strength: the regularization strength, chosen by cross-validation.
        held_out: ``[n, C]`` fp64 cross-validated outputs; NaN for examples in no fold.
    """

    weight: np.ndarray
    bias: np.ndarray
    strength: float
    held_out: np.ndarray


def solve_classes(
    vectors: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None, seed: int = 0
) -> SolvedHead:
    """Multinomial logistic regression on vectors ``[n, D]``.

    Targets ``[n]`` are class indices from 0, and every class occurs.
    """
    classes = int(targets.max()) + 1

    def solve(rows: np.ndarray, strength: float, warm: dict) -> tuple[np.ndarray, np.ndarray]:
        model = _regression(vectors[rows], targets[rows], strength, _take(weights, rows), warm, 0)
        weight, bias = np.zeros((classes, vectors.shape[1])), np.full(classes, -np.inf)
        if len(model.classes_) == 2:  # scikit-learn has one row, for the second class
            weight[model.classes_] = np.concatenate([-model.coef_, model.coef_]) / 2
            bias[model.classes_] = np.concatenate([-model.intercept_, model.intercept_]) / 2
        else:
            weight[model.classes_], bias[model.classes_] = model.coef_, model.intercept_
        return weight, bias

    def loss(outputs: np.ndarray, rows: np.ndarray) -> float:
        shifted = outputs - outputs.max(1, keepdims=True)
        target_outputs = shifted[np.arange(len(rows)), targets[rows]]
        return float((np.log(np.exp(shifted).sum(1)) - target_outputs).mean())

    return _choose_strength(vectors, solve, loss, STRENGTHS, list(_folds(targets, seed)))


def solve_label_sets(
    vectors: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None, seed: int = 0
) -> SolvedHead:
    """Multi-label: one logistic regression per label; ``targets`` ``[n, K]`` are 0 or 1."""
    labels = targets.shape[1]
    rare_share = 1 / (len(targets) + 2)  # smoothed share of a label that no example has

    def solve(rows: np.ndarray, strength: float, warm: dict) -> tuple[np.ndarray, np.ndarray]:
        weight, bias = np.zeros((labels, vectors.shape[1])), np.zeros(labels)
        for k in range(labels):
            labels_k = targets[rows, k].astype(int)
            if labels_k.min() == labels_k.max():
                bias[k] = np.log((1 - rare_share) / rare_share) * (1 if labels_k[0] else -1)
                continue
            model = _regression(vectors[rows], labels_k, strength, _take(weights, rows), warm, k)
            weight[k], bias[k] = model.coef_[0], model.intercept_[0]
        return weight, bias

    def loss(outputs: np.ndarray, rows: np.ndarray) -> float:
        signed = np.where(targets[rows] > 0, outputs, -outputs)
        return float(np.logaddexp(0, -signed).mean())

    return _choose_strength(vectors, solve, loss, STRENGTHS[:3], [next(_folds(None, seed, len(targets)))])


def solve_numbers(
    vectors: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None, seed: int = 0
) -> SolvedHead:
    """Ridge regression of standardized numbers ``[n]``."""

    def solve(rows: np.ndarray, strength: float, warm: dict) -> tuple[np.ndarray, np.ndarray]:
        from sklearn.linear_model import Ridge

        model = Ridge(alpha=1 / strength).fit(vectors[rows], targets[rows], _take(weights, rows))
        return model.coef_.reshape(1, -1), np.reshape(model.intercept_, 1)

    def loss(outputs: np.ndarray, rows: np.ndarray) -> float:
        return float(((outputs[:, 0] - targets[rows]) ** 2).mean())

    strengths = tuple(1 / penalty for penalty in PENALTIES)
    return _choose_strength(vectors, solve, loss, strengths, list(_folds(None, seed, len(targets))))


def _choose_strength(
    vectors: np.ndarray,
    solve: Callable[[np.ndarray, float, dict], tuple[np.ndarray, np.ndarray]],
    loss: Callable[[np.ndarray, np.ndarray], float],
    strengths: Sequence[float],
    folds: list[tuple[np.ndarray, np.ndarray]],
) -> SolvedHead:
    """Choose the strength with the lowest held-out loss, and fit all examples with this strength."""
    with one_thread():  # the steps are too short for several threads
        # Default without folds: C = 4 is best with one or two examples per class of banking77.
        best_strength, best_loss, best_outputs = strengths[(len(strengths) - 1) // 2], np.inf, []
        warm_models: list[dict] = [{} for _ in folds]  # fitted models per fold, for warm starts
        for strength in strengths if folds else ():
            outputs, losses = [], []
            for (train_rows, validation_rows), models in zip(folds, warm_models, strict=True):
                weight, bias = solve(train_rows, strength, models)
                outputs.append(vectors[validation_rows] @ weight.T + bias)
                losses.append(loss(outputs[-1], validation_rows))
            if (mean := float(np.mean(losses))) > best_loss:
                break  # the loss is unimodal in the strength
            best_strength, best_loss, best_outputs = strength, mean, outputs
        weight, bias = solve(np.arange(len(vectors)), best_strength, {})
    held_out = np.full((len(vectors), len(weight)), np.nan)
    for (_, validation_rows), outputs in zip(folds, best_outputs, strict=False):
        held_out[validation_rows] = outputs
    return SolvedHead(weight.astype(np.float32), bias.astype(np.float32), best_strength, held_out)


def _regression(
    vectors: np.ndarray, targets: np.ndarray, strength: float, weights: Any, warm_models: dict, key: int
) -> Any:
    """Fit a logistic regression; ``warm_models`` keeps the model for a warm start of the next fit."""
    from sklearn.linear_model import LogisticRegression

    model = warm_models.setdefault(key, LogisticRegression(max_iter=1000, tol=TOLERANCE, warm_start=True))
    with without_warnings(r"sklearn\."):
        return model.set_params(C=strength).fit(vectors, targets, weights)


def _take(weights: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    return None if weights is None else weights[rows]


def _folds(
    targets: np.ndarray | None, seed: int, n: int | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (training rows, validation rows) of stratified folds of at most ``MAX_EXAMPLES`` rows.

    Examples of a class with fewer than ``FOLDS`` examples are only in training rows.
    """
    rng = np.random.default_rng(seed)
    n = len(targets) if targets is not None else n or 0
    order = np.sort(rng.permutation(n)[:MAX_EXAMPLES])
    row_folds = np.full(n, -1)
    if targets is None:
        row_folds[rng.permutation(order)] = np.arange(len(order)) % FOLDS
    else:
        start = 0
        for k in np.unique(targets[order]):
            members = rng.permutation(order[targets[order] == k])
            if len(members) >= FOLDS:
                row_folds[members] = (start + np.arange(len(members))) % FOLDS
                start += len(members)
    in_sample = np.zeros(n, bool)
    in_sample[order] = True
    for fold in range(FOLDS):
        validation_rows = np.flatnonzero(row_folds == fold)
        if len(validation_rows):
            yield np.flatnonzero(in_sample & (row_folds != fold)), validation_rows
