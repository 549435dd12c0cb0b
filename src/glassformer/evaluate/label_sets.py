"""How good and how sure a model of several labels an example is: micro and macro F1, thresholds, calibration.

Each label is a yes or no of its own: a probability, a threshold above which it is given, a temperature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from glassformer.data.label_sets import as_sets, together
from glassformer.errors import DataError, ShapeError
from glassformer.evaluate.calibrate import (
    BINS,
    error_interval,
    fit_temperature,
    gap_over_bins,
    tune_threshold,
)
from glassformer.evaluate.intervals import macro_f1_interval_of_sets, share_interval
from glassformer.finite import finite, undefined

HALF = 0.5  # the threshold of a label where none was chosen
FEW = 5  # examples with a label, below which its own threshold would be chance
SHOWN = 10  # pairs of labels
TINY = np.finfo(np.float64).eps


def sigmoid(logits: ArrayLike, temperature: Any = 1.0) -> np.ndarray:
    """``[n, K]`` logits as probabilities, fp64; ``temperature``: one, or ``[K]``."""
    z = np.asarray(logits, np.float64) / np.asarray(temperature, np.float64)
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def binary_loss(logits: ArrayLike, targets: ArrayLike) -> float:
    """Mean negative log likelihood in nats of every yes or no ``[n, K]``, from logits."""
    z, y = np.asarray(logits, np.float64), np.asarray(targets, np.float64)
    return float((np.logaddexp(0.0, z) - z * y).mean())


def tune_thresholds(probabilities: ArrayLike, targets: ArrayLike) -> np.ndarray:
    """For each label the threshold with the best F1 ``[K]``; where fewer than ``FEW`` examples have it (or
    lack it), the one that gives the best F1 of all labels together.

    Args:
        probabilities: [n, K], of data that the model was not trained on.
        targets: [n, K], 0 or 1.

    Raises:
        ShapeError: they do not fit.
    """
    p, y = _fitting(probabilities, targets)
    flat = y.reshape(-1)
    common = tune_threshold(p.reshape(-1), flat, "f1")[0] if 0 < flat.sum() < flat.size else HALF
    out = np.full(p.shape[1], common)
    for k, has in enumerate(y.sum(0).tolist()):
        if min(has, len(y) - has) >= FEW:
            out[k] = tune_threshold(p[:, k], y[:, k], "f1")[0]
    return out


def fit_temperatures(logits: ArrayLike, targets: ArrayLike) -> np.ndarray:
    """The temperature of each label ``[K]`` with the lowest smoothed log loss; that of all labels together
    where fewer than ``FEW`` examples have it, or lack it.

    Raises:
        DataError: no example.
        ShapeError: they do not fit.
    """
    z, y = _fitting(logits, targets)

    def of(column: np.ndarray, has: np.ndarray) -> float:
        return fit_temperature(np.stack([np.zeros_like(column), column], 1), has)

    out = np.full(z.shape[1], of(z.reshape(-1), y.reshape(-1)))
    for k, has in enumerate(y.sum(0).tolist()):
        if min(has, len(y) - has) >= FEW:
            out[k] = of(z[:, k], y[:, k])
    return out


def label_curve(probabilities: ArrayLike, targets: ArrayLike, bins: int = BINS) -> list[dict[str, Any]]:
    """How often labels hold that are stated with about one probability, in bins of equal width; none empty.

    Args:
        probabilities, targets: [n], of one label, or of all labels one after the other.
    """
    p, y = np.asarray(probabilities, np.float64), np.asarray(targets)
    place = np.clip(np.ceil(p * bins).astype(int) - 1, 0, bins - 1)
    return [
        {
            "low": k / bins,
            "high": (k + 1) / bins,
            "n": int(inside.sum()),
            "confidence": float(p[inside].mean()),
            "accuracy": float(y[inside].mean()),
        }
        for k in range(bins)
        if (inside := place == k).any()
    ]


def label_error(probabilities: ArrayLike, targets: ArrayLike, bins: int = BINS) -> float:
    """Expected calibration error: the mean gap of probability and share over the bins of ``label_curve``."""
    return gap_over_bins(np.asarray(probabilities, np.float64), np.asarray(targets), bins)


def describe_labels(probabilities: ArrayLike, targets: ArrayLike, *, resamples: int = 1000) -> dict[str, Any]:
    """Calibration error over all labels with its interval over examples, and of each; log loss, the curve."""
    p, y = _fitting(probabilities, targets)
    examples = np.repeat(np.arange(len(y)), y.shape[1])  # whose labels are drawn together
    likely = np.where(y > 0, p, 1 - p).clip(TINY)
    return {
        "n": len(y),
        "ece": label_error(p.reshape(-1), y.reshape(-1)),
        "ece_interval": error_interval(p.reshape(-1), y.reshape(-1), examples, resamples=resamples),
        "ece_per_label": [label_error(p[:, k], y[:, k]) for k in range(p.shape[1])],
        "log_loss": float(-np.log(likely).mean()),
        "curve": label_curve(p.reshape(-1), y.reshape(-1)),
    }


def _fitting(values: ArrayLike, targets: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    p, y = np.asarray(values, np.float64), np.asarray(targets).astype(np.int64)
    if p.ndim != 2 or p.shape != y.shape:
        raise ShapeError(f"values {p.shape} and targets {y.shape} do not fit")
    if not len(p):
        raise DataError("no example to judge", fix="Give a split that is not empty")
    return p, y


class LabelSetMeter:
    """Figures of several labels an example, in the words of ``ClassificationMeter``.

    Args:
        classes: the K labels in the order of the probability columns.
        curves: whether areas under curves are computed.
    """

    def __init__(self, classes: Sequence[Any], *, curves: bool = True):
        self.classes = [c.item() if isinstance(c, np.generic) else c for c in classes]
        self._curves = curves
        self._seen: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def update(
        self, probabilities: ArrayLike, targets: ArrayLike, *, predicted: ArrayLike | None = None
    ) -> None:
        """Count one batch.

        Args:
            probabilities: [b, K].
            targets: [b, K], 0 or 1.
            predicted: [b, K] bool, where thresholds decide; None: above one half.

        Raises:
            ShapeError: the shapes do not fit each other or the labels.
            NotFiniteError: a probability is NaN or infinite.
        """
        p, y = np.asarray(probabilities, np.float32), np.asarray(targets).astype(bool)
        if p.ndim != 2 or p.shape[1] != len(self.classes) or y.shape != p.shape:
            raise ShapeError(
                f"probabilities {p.shape} and targets {y.shape} do not fit {len(self.classes)} labels"
            )
        finite(p, "probabilities")
        chosen = p > HALF if predicted is None else np.asarray(predicted).astype(bool)
        if chosen.shape != y.shape:
            raise ShapeError(f"predicted labels {chosen.shape} do not fit targets {y.shape}")
        self._seen.append((p, y, chosen))

    def result(self, bootstrap: int = 1000, seed: int = 0) -> dict[str, Any]:
        """The figures so far, ready for JSON; all shares are in [0, 1].

        Returns:
            n, kind ("labels"), accuracy (of examples whose labels are all right), macro_f1 (the mean over all
            labels), micro_f1 (every yes counts the same), weighted_f1, each with an ``_interval`` (95 %,
            percentile bootstrap over examples, of macro_f1 as ``macro_f1_interval_of_sets`` has it; None with
            ``bootstrap=0``) but the last; log_loss (nats, mean over examples and labels), roc_auc and
            average_precision (means over the labels that some have and some have not; None where there is
            none, or without ``curves``, and ``undefined`` says why), labels, confusion (empty: a label is not
            taken for another), per_class (label, precision, recall, f1, support, predicted,
            average_precision, calibration_error),
            labels_per_example (mean, true and predicted) and together (pairs of labels at one example, see
            ``data.label_sets.together``, with ``predicted``: how often both were given).

        Raises:
            DataError: nothing was counted.
        """
        from sklearn.metrics import f1_score, precision_recall_fscore_support

        if not sum(len(y) for _, y, _ in self._seen):
            raise DataError("no example to judge", fix="Give a split that is not empty")
        p, y, chosen = (np.concatenate(parts) for parts in zip(*self._seen, strict=True))
        n = len(y)
        both: dict[str, Any] = {"y_true": y.astype(int), "y_pred": chosen.astype(int), "zero_division": 0}
        columns = precision_recall_fscore_support(**both, labels=range(y.shape[1]))
        precision, recall, f1, support = cast(tuple[np.ndarray, ...], columns)
        areas = self._areas(p, y)
        likely = np.where(y, p, 1 - p).astype(np.float64).clip(TINY)
        out: dict[str, Any] = {"n": n, "kind": "labels", "accuracy": float((y == chosen).all(1).mean())}
        for average in ("macro", "micro"):
            out[f"{average}_f1"] = float(f1_score(**both, average=average))
        intervals = self._bootstrap(y, chosen, out, bootstrap, seed) if bootstrap else {}
        out |= {f"{key}_interval": intervals.get(key) for key in ("accuracy", "macro_f1", "micro_f1")}
        known = [area for area in areas if area is not None]
        why = "curves were not computed" if not self._curves else "each label: all examples have it, or none"
        out |= {
            "weighted_f1": float(f1_score(**both, average="weighted")),
            "roc_auc": float(np.mean([area[0] for area in known])) if known else None,
            "average_precision": float(np.mean([area[1] for area in known])) if known else None,
            "positive": None,
            "log_loss": float(-np.log(likely).mean()),
            "labels": self.classes,
            "confusion": [],
            "per_class": [
                undefined(
                    {
                        "label": label,
                        "precision": float(precision[k]),
                        "recall": float(recall[k]),
                        "f1": float(f1[k]),
                        "support": int(support[k]),
                        "predicted": int(chosen[:, k].sum()),
                        "average_precision": None if (area := areas[k]) is None else area[1],
                        "calibration_error": label_error(p[:, k], y[:, k]),
                    },
                    {"average_precision": why.replace("each label: ", "")},
                )
                for k, label in enumerate(self.classes)
            ],
            "labels_per_example": {"true": float(y.sum(1).mean()), "predicted": float(chosen.sum(1).mean())},
            "together": self._together(y, chosen),
        }
        return undefined(out, {"roc_auc": why, "average_precision": why})

    def _together(self, y: np.ndarray, chosen: np.ndarray) -> list[dict[str, Any]]:
        pairs, names = together(as_sets(y, self.classes).tolist(), SHOWN), list(map(str, self.classes))
        for pair in pairs:
            a, b = (names.index(label) for label in pair["labels"])
            pair["predicted"] = int((chosen[:, a] & chosen[:, b]).sum())
        return pairs

    def _areas(self, p: np.ndarray, y: np.ndarray) -> list[tuple[float, float] | None]:
        """ROC-AUC and average precision of each label; None where all examples have it, or none."""
        from sklearn.metrics import average_precision_score, roc_auc_score

        if not self._curves:
            return [None] * y.shape[1]
        return [
            (float(roc_auc_score(has, s)), float(average_precision_score(has, s)))
            if has.any() and not has.all()
            else None
            for has, s in zip(y.T, p.T, strict=True)
        ]

    @staticmethod
    def _bootstrap(
        y: np.ndarray, chosen: np.ndarray, shares: Mapping[str, float], resamples: int, seed: int
    ) -> dict[str, list[float]]:
        """95 % intervals: of accuracy and micro-F1 over draws of the examples, with replacement."""
        n, rng = len(y), np.random.default_rng(seed)
        counted = np.concatenate([y & chosen, y.astype(np.int8) + chosen], 1).astype(np.float32)  # [n, 2K]
        right = (y == chosen).all(1).astype(np.float32)
        found: dict[str, list[np.ndarray]] = {"accuracy": [], "micro_f1": []}
        for start in range(0, resamples, 100):
            size = min(100, resamples - start)
            weights = rng.multinomial(n, np.full(n, 1 / n), size).astype(np.float32)  # [r, n]
            hits, given = np.split(weights @ counted, 2, axis=1)  # [r, K] each; F1 = 2 hits / (true + given)
            found["accuracy"].append(weights @ right / n)
            found["micro_f1"].append(2 * hits.sum(1) / np.maximum(given.sum(1), 1))
        ends = {}
        for key, parts in found.items():
            drawn = np.quantile(np.concatenate(parts), [0.025, 0.975]).astype(float).tolist()
            ends[key] = share_interval(shares[key], n, drawn)
        of_macro = macro_f1_interval_of_sets(y, chosen[None], resamples=resamples, seed=seed)
        return ends | {"macro_f1": of_macro}
