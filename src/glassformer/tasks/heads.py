"""Classification heads on vectors of a frozen backbone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.finite import finite
from glassformer.process import without_warnings

Kind = Literal["linear", "knn"]
KINDS = ("linear", "knn")
TEMPERATURE = 0.07  # of the softmax over cosines that weights neighbors (Wu et al., 2018; Caron et al., 2021)


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
        """Probabilities ``[n, C]`` for vectors ``[n, E]``; 0 for classes of no nearest example."""
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

    ``linear`` is a logistic regression with inverse regularization strength ``C``, ``knn`` nearest neighbors.
    """
    if kind not in KINDS:
        raise ConfigError(f"no head {kind!r}", where="head", fix=f"Known: {', '.join(KINDS)}")
    if neighbors < 1 or not C > 0:
        name, value = ("neighbors", neighbors) if neighbors < 1 else ("C", C)
        raise ConfigError(f"{name} = {value}", where=name, fix="Give a number above 0")
    vectors = np.asarray(vectors, np.float32)
    if kind == "knn":
        return NearestHead(unit(vectors), np.asarray(targets), neighbors, int(np.max(targets)) + 1)
    from sklearn.linear_model import LogisticRegression

    with without_warnings(r"sklearn\."):  # about few examples per class
        model = LogisticRegression(C=C, max_iter=1000).fit(vectors, targets)
    weight, bias = model.coef_.astype(np.float32), model.intercept_.astype(np.float32)
    if len(weight) == 1:  # for two classes, scikit-learn has only the weights of the second
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
    what = f"its head's arrays do not fit {classes} classes of vectors of {width} numbers"
    raise CheckpointError(what, where=where, fix="Save the model again")


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale each row to length 1. Rows of zeros are not changed."""
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
