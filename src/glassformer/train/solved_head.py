"""Heads on the vectors of a frozen encoder: logistic or ridge regression, nearest neighbors.

Fine-tuning starts from such a head (linear probing first; Kumar et al., 2022). With ``train_layers = 0`` the
fitted head is final. The regularization is chosen by cross-validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.finite import finite
from glassformer.process import one_thread, without_warnings

C_VALUES = (1.0, 4.0, 16.0, 64.0)  # C of logistic regression, for vectors of mean length 1
PENALTIES = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)  # alpha of ridge regression, for the same vectors
FOLDS = 3
MAX_EXAMPLES = 5_000  # maximum number of examples in cross-validation
TOLERANCE = 1e-4  # tolerance of the solver; 1e-3 changed the accuracy by up to two points


@dataclass(frozen=True)
class SolvedHead:
    """A linear layer: ``vectors @ weight.T + bias``.

    Args:
        weight, bias: ``[C, D]`` and ``[C]``, fp32.
        C: inverse regularization strength, chosen by cross-validation.
        held_out: ``[n, C]`` fp64 cross-validated outputs; NaN for examples that are in no fold.
    """

    weight: np.ndarray
    bias: np.ndarray
    C: float
    held_out: np.ndarray


def solve_classes(
    vectors: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None, seed: int = 0
) -> SolvedHead:
    """Multinomial logistic regression on vectors ``[n, D]``; ``targets`` ``[n]`` contain every class."""
    classes = int(targets.max()) + 1

    def solve(rows: np.ndarray, C: float, warm: dict) -> tuple[np.ndarray, np.ndarray]:
        model = _regression(vectors[rows], targets[rows], C, _take(weights, rows), warm, 0)
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

    return _choose_C(vectors, solve, loss, C_VALUES, list(_folds(targets, seed)))


def solve_label_sets(
    vectors: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None, seed: int = 0
) -> SolvedHead:
    """Multi-label: one logistic regression per label; ``targets`` ``[n, K]`` are 0 or 1."""
    labels = targets.shape[1]
    rare_share = 1 / (len(targets) + 2)  # smoothed share of a label that no example has

    def solve(rows: np.ndarray, C: float, warm: dict) -> tuple[np.ndarray, np.ndarray]:
        weight, bias = np.zeros((labels, vectors.shape[1])), np.zeros(labels)
        for k in range(labels):
            labels_k = targets[rows, k].astype(int)
            if labels_k.min() == labels_k.max():
                bias[k] = np.log((1 - rare_share) / rare_share) * (1 if labels_k[0] else -1)
                continue
            model = _regression(vectors[rows], labels_k, C, _take(weights, rows), warm, k)
            weight[k], bias[k] = model.coef_[0], model.intercept_[0]
        return weight, bias

    def loss(outputs: np.ndarray, rows: np.ndarray) -> float:
        signed = np.where(targets[rows] > 0, outputs, -outputs)
        return float(np.logaddexp(0, -signed).mean())

    return _choose_C(vectors, solve, loss, C_VALUES[:3], [next(_folds(None, seed, len(targets)))])


def solve_numbers(
    vectors: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None, seed: int = 0
) -> SolvedHead:
    """Ridge regression of standardized numbers ``[n]``."""

    def solve(rows: np.ndarray, C: float, warm: dict) -> tuple[np.ndarray, np.ndarray]:
        from sklearn.linear_model import Ridge

        model = Ridge(alpha=1 / C).fit(vectors[rows], targets[rows], _take(weights, rows))
        return model.coef_.reshape(1, -1), np.reshape(model.intercept_, 1)

    def loss(outputs: np.ndarray, rows: np.ndarray) -> float:
        return float(((outputs[:, 0] - targets[rows]) ** 2).mean())

    Cs = tuple(1 / penalty for penalty in PENALTIES)
    return _choose_C(vectors, solve, loss, Cs, list(_folds(None, seed, len(targets))))


def _choose_C(
    vectors: np.ndarray,
    solve: Callable[[np.ndarray, float, dict], tuple[np.ndarray, np.ndarray]],
    loss: Callable[[np.ndarray, np.ndarray], float],
    Cs: Sequence[float],
    folds: list[tuple[np.ndarray, np.ndarray]],
) -> SolvedHead:
    """Choose the C with the lowest held-out loss, and fit all examples with it."""
    with one_thread():  # the steps are too short for several threads
        # Used if there are no folds. With one or two examples per class of banking77, C = 4 is best.
        best_C, best_loss, best_outputs = Cs[(len(Cs) - 1) // 2], np.inf, []
        warm_models: list[dict] = [{} for _ in folds]  # fitted models per fold, for warm starts
        for C in Cs if folds else ():
            outputs, losses = [], []
            for (train_rows, validation_rows), models in zip(folds, warm_models, strict=True):
                weight, bias = solve(train_rows, C, models)
                outputs.append(vectors[validation_rows] @ weight.T + bias)
                losses.append(loss(outputs[-1], validation_rows))
            if (mean := float(np.mean(losses))) > best_loss:
                break  # the loss is unimodal in C
            best_C, best_loss, best_outputs = C, mean, outputs
        weight, bias = solve(np.arange(len(vectors)), best_C, {})
    held_out = np.full((len(vectors), len(weight)), np.nan)
    for (_, validation_rows), outputs in zip(folds, best_outputs, strict=False):
        held_out[validation_rows] = outputs
    return SolvedHead(weight.astype(np.float32), bias.astype(np.float32), best_C, held_out)


def _regression(
    vectors: np.ndarray, targets: np.ndarray, C: float, weights: Any, warm_models: dict, key: int
) -> Any:
    """Fit a logistic regression; ``warm_models`` stores the model, from which the next fit starts."""
    from sklearn.linear_model import LogisticRegression

    model = warm_models.setdefault(key, LogisticRegression(max_iter=1000, tol=TOLERANCE, warm_start=True))
    with without_warnings(r"sklearn\."):
        return model.set_params(C=C).fit(vectors, targets, weights)


def _take(weights: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    return None if weights is None else weights[rows]


def _folds(
    targets: np.ndarray | None, seed: int, n: int | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield indices (training, validation) of stratified folds of at most ``MAX_EXAMPLES`` examples.

    Examples of a class with fewer than ``FOLDS`` examples are used only for training.
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
    in_sample = np.zeros(n, bool)  # the examples that the folds use
    in_sample[order] = True
    for fold in range(FOLDS):
        validation_rows = np.flatnonzero(row_folds == fold)
        if len(validation_rows):
            yield np.flatnonzero(in_sample & (row_folds != fold)), validation_rows


Kind = Literal["linear", "knn"]
KINDS = ("linear", "knn")
# Temperature of the softmax over cosines that weights neighbors (Wu et al., 2018; Caron et al., 2021).
TEMPERATURE = 0.07


@dataclass(frozen=True)
class LinearHead:
    """A logistic regression: ``softmax(vectors @ weight.T + bias)``."""

    weight: np.ndarray  # [C, E] fp32
    bias: np.ndarray  # [C]

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """Probabilities ``[n, C]`` for vectors ``[n, E]``."""
        return _softmax(vectors @ self.weight.T + self.bias)

    def tensors(self) -> dict[str, np.ndarray]:
        """The arrays to save."""
        return {"weight": self.weight, "bias": self.bias}


@dataclass(frozen=True)
class NearestHead:
    """The weighted classes of the ``neighbors`` nearest examples by cosine."""

    ARRAYS: ClassVar = ("vectors", "targets", "numbers")  # names of the arrays in a file
    vectors: np.ndarray  # [m, E] fp32, each of length 1
    targets: np.ndarray  # [m] class indices
    neighbors: int
    classes: int

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """Probabilities ``[n, C]`` for vectors ``[n, E]``; 0 for classes without a near example."""
        cosines = unit(vectors) @ self.vectors.T  # [n, m]
        k = min(self.neighbors, len(self.vectors))
        nearest_rows = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
        weights = _softmax(np.take_along_axis(cosines, nearest_rows, 1) / TEMPERATURE)
        out = np.zeros((len(vectors), self.classes))
        for column in range(k):
            labels = self.targets[nearest_rows[:, column]]
            np.add.at(out, (np.arange(len(vectors)), labels), weights[:, column])
        return out

    def tensors(self) -> dict[str, np.ndarray]:
        """The arrays to save."""
        numbers = np.array([self.neighbors, self.classes])
        return dict(zip(self.ARRAYS, (self.vectors, self.targets.astype(np.int64), numbers), strict=True))


Head = LinearHead | NearestHead


def fit_head(
    vectors: np.ndarray, targets: np.ndarray, kind: Kind = "linear", neighbors: int = 5, C: float = 1.0
) -> Head:
    """Fit a head on vectors ``[n, E]`` with class indices ``[n]``.

    Args:
        kind: "linear": logistic regression; "knn": nearest neighbors.
        neighbors: number of neighbors of "knn".
        C: inverse regularization strength of "linear".
    """
    if kind not in KINDS:
        raise ConfigError(f"unknown head {kind!r}", where="head", fix=f"Known: {', '.join(KINDS)}")
    if neighbors < 1 or not C > 0:
        name, value = ("neighbors", neighbors) if neighbors < 1 else ("C", C)
        raise ConfigError(f"{name} = {value} is not above 0", where=name, fix="Give a number above 0")
    vectors = np.asarray(vectors, np.float32)
    if kind == "knn":
        return NearestHead(unit(vectors), np.asarray(targets), neighbors, int(np.max(targets)) + 1)
    from sklearn.linear_model import LogisticRegression

    with without_warnings(r"sklearn\."):  # about few examples per class
        model = LogisticRegression(C=C, max_iter=1000).fit(vectors, targets)
    weight, bias = model.coef_.astype(np.float32), model.intercept_.astype(np.float32)
    if len(weight) == 1:  # for two classes, scikit-learn has only the weights of the second class
        weight, bias = np.concatenate([0 * weight, weight]), np.concatenate([0 * bias, bias])
    return LinearHead(weight, bias)


def restore_head(tensors: dict[str, np.ndarray], width: int, classes: int, where: str) -> Head:
    """Restore a head from the arrays of ``tensors()``."""
    shapes = {name: array.shape for name, array in tensors.items()}
    if shapes == {"weight": (classes, width), "bias": (classes,)}:
        return LinearHead(tensors["weight"], tensors["bias"])
    has_arrays = shapes.keys() == {*NearestHead.ARRAYS}
    if has_arrays and shapes["vectors"][1:] == (width,) and shapes["numbers"] == (2,):
        targets, (k, count) = tensors["targets"], tensors["numbers"].tolist()
        is_valid = targets.shape == shapes["vectors"][:1] and len(targets) and k > 0 and count == classes
        if is_valid and targets.min() >= 0 and targets.max() < classes:
            return NearestHead(tensors["vectors"], targets, k, classes)
    what = f"the arrays of its head do not match {classes} classes and vectors of {width} numbers"
    raise CheckpointError(what, where=where, fix="Save the model again")


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale each vector to length 1, except vectors of zeros."""
    vectors = np.asarray(vectors, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        row = int(np.argmin(np.isfinite(lengths[:, 0])))
        what = "a vector has NaN, infinity, or numbers that are too large to compute its length"
        raise DataError(what, where=f"vectors, row {row + 1}", fix="Compute the vectors again")
    return vectors / np.maximum(lengths, 1e-12)


def _softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(finite(logits, "logits") - logits.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True)
