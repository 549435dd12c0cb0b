"""Multi-label targets: one binary decision per label."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from glassformer.config import label_text, suggest
from glassformer.data.checks import check_classes
from glassformer.data.label_sets import (
    LabelSet,
    as_sets,
    check_not_indicators,
    check_sets,
    flat_labels,
    indicator,
    is_matrix,
    label_pairs,
    matrix_column_names,
    parse_labels,
    read_matrix,
)
from glassformer.errors import BadValueError, DataError, NotForThisModelError, ShapeError
from glassformer.evaluate.calibrate import (
    calibration_error,
    describe_outcomes,
    fit_temperature,
    tune_threshold,
)
from glassformer.evaluate.intervals import multilabel_f1_interval, share_interval
from glassformer.evaluate.metrics import Share
from glassformer.finite import finite, with_undefined
from glassformer.process import one_thread
from glassformer.targets.multiclass import LABEL_METRICS, TINY, Classes, check_known, plain_labels
from glassformer.targets.target import RunPredictions, SeedRuns, read_object
from glassformer.train.loop import SELECTION_SCORE
from glassformer.train.objectives import BinaryCrossEntropy
from glassformer.train.solved_head import SolvedHead, solve_label_sets

DEFAULT_THRESHOLD = 0.5
MIN_EXAMPLES = 5  # a label with fewer examples uses the common threshold and temperature
MAX_PAIRS = 10  # maximum number of pairs of labels in the metrics
C_VALUES = (1.0, 4.0, 16.0)  # values of C, the inverse regularization strength, tried for the baseline


@dataclass(frozen=True)
class LabelSets(Classes):
    """Any number of labels per example: each logit has a sigmoid, a threshold and a temperature.

    Args:
        matrix: targets and predictions are indicator matrices; otherwise sets of labels.
        columns: columns of the indicator matrix, which are the classes.
    """

    matrix: bool = False
    columns: tuple[Any, ...] = ()
    metrics: ClassVar[Mapping[str, Share]] = {
        "macro_f1": Share("macro-F1"),
        "micro_f1": Share("micro-F1"),
        **LABEL_METRICS,
    }
    main_metrics: ClassVar[Sequence[str]] = ("macro_f1", "micro_f1")
    comparison_kind: ClassVar[str] = "predicts a set of labels per example"
    problem_type: ClassVar[str | None] = "multi_label_classification"
    measure: ClassVar[str | None] = "macro_f1"
    metrics_per_fold: ClassVar[tuple[str, ...]] = ("accuracy", "macro_f1", "micro_f1", "log_loss")
    script_name: ClassVar[str] = "label_sets"
    saved_names: ClassVar[Sequence[str | None]] = ("label-sets", "label-matrix")
    is_multilabel: ClassVar[bool] = True
    is_single_label: ClassVar[bool] = False
    solve: ClassVar[Callable[..., SolvedHead]] = staticmethod(solve_label_sets)

    def read(self, y: Any, origin: str = "labels") -> list[Any]:
        if not is_matrix(y):
            if self.matrix:
                check_not_indicators(y, origin)
            return check_sets(y, origin)
        sets, labels = read_matrix(y, origin)
        if self.columns and len(labels) != len(self.columns):
            what = f"{len(labels)} columns, but training had {len(self.columns)} labels"
            raise DataError(what, where=origin, fix="Give one column for each label of the training")
        if self.columns and matrix_column_names(y) is None:  # an array without column names
            return [LabelSet(self.columns[k] for k in row) for row in sets]
        return list(sets)

    def classes(self, labels: Sequence[Any], origin: str = "labels") -> list[Any]:
        return list(self.columns) if self.columns else check_classes(flat_labels(labels), origin)

    def encode(
        self, labels: Sequence[Any], classes: Sequence[Any], origin: str, rows: Sequence[int] | None = None
    ) -> np.ndarray:
        """The indicator matrix ``[n, K]``, fp32."""
        labels = self.normalize(labels, classes)
        check_known(labels, classes, origin, rows)
        return indicator(labels, classes)

    def normalize(self, labels: Sequence[Any], classes: Sequence[Any]) -> list[Any]:
        """The sets with labels spelled as in ``classes``, and in the order of ``classes``."""
        normalized = dict(zip(flat := flat_labels(labels), super().normalize(flat, classes), strict=True))
        order = {label: i for i, label in enumerate(classes)}
        distinct = ({normalized[label] for label in label_set} for label_set in labels)
        return [LabelSet(sorted(x, key=lambda label: order.get(label, len(order)))) for x in distinct]

    def stratify_by(self, labels: Sequence[Any], targets: np.ndarray) -> Sequence[Any]:
        return labels

    def weights(self, targets: np.ndarray, classes: list[Any], train: Any) -> np.ndarray | None:
        if train.class_weight is not None:
            what = "class_weight is for targets with one class per example"
            raise NotForThisModelError(what, where="class_weight", fix="For multi-label, use pos_weight")
        return None

    def criterion(self, targets: np.ndarray, classes: list[Any], train: Any) -> Callable | None:
        return BinaryCrossEntropy(pos_weights(targets, classes, train.pos_weight), train.label_smoothing)

    def validation_metrics(self, clf: Any, logits: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        p = sigmoid(logits)
        predicted = self.predicted_index(p, self.threshold(clf.configs()["train"], logits, targets))
        out = self.score(p, targets, clf.classes_.tolist(), predicted, bootstrap=0, curves=False)
        metrics = {key: out[key] for key in ("accuracy", "macro_f1", "micro_f1")}
        if clf.monitor == "accuracy":  # exact matches are rare, and thresholds are not tuned for them
            metrics[SELECTION_SCORE] = out["macro_f1"]
        return {"loss": binary_loss(logits, targets)} | metrics

    def threshold(self, train: Any, logits: np.ndarray, targets: np.ndarray) -> Any:
        """The thresholds ``[K]`` with the best F1 of each label."""
        return tune_thresholds(sigmoid(logits), targets) if train.tune_thresholds else None

    def probabilities(self, logits: np.ndarray, temperature: Any = 1.0) -> np.ndarray:
        """Probabilities ``[n, K]`` fp64, independent per label."""
        return sigmoid(logits, temperature)

    def tensor_probabilities(self, logits: Tensor, temperature: Any = 1.0) -> Tensor:
        temperatures = torch.as_tensor(temperature, dtype=logits.dtype, device=logits.device)
        return (logits / temperatures).sigmoid()

    def predicted_index(self, probabilities: np.ndarray, threshold: Any = None) -> np.ndarray:
        """The predicted labels ``[n, K]`` bool, whose probabilities reach their thresholds (default: 0.5)."""
        return probabilities >= (DEFAULT_THRESHOLD if threshold is None else np.asarray(threshold))

    @staticmethod
    def thresholds(threshold: Any, classes: Sequence[Any]) -> np.ndarray:
        return (
            np.full(len(classes), DEFAULT_THRESHOLD)
            if threshold is None
            else np.asarray(threshold, np.float64)
        )

    def labels(self, predicted: np.ndarray, classes: np.ndarray) -> np.ndarray:
        return as_sets(predicted, classes.tolist())

    def format_prediction(self, predicted: np.ndarray, classes: np.ndarray) -> Any:
        """An indicator matrix if the training targets were one, otherwise a list of tuples of labels."""
        if self.matrix:
            return predicted.astype(bool if self.booleans else np.int64)
        return list(map(tuple, self.labels(predicted, classes)))

    def confidence(self, probabilities: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        """The confidence ``[n]`` of each prediction: the lowest probability of a predicted label.

        Without a predicted label, it is the probability that the most probable label is absent.
        """
        lowest = np.where(predicted, probabilities, np.inf).min(1)
        return np.where(predicted.any(1), lowest, 1 - probabilities.max(1))

    def explain_target(self, probabilities: np.ndarray, threshold: Any) -> int:
        return int(probabilities.argmax())

    def score(
        self,
        outputs: ArrayLike,
        targets: ArrayLike,
        classes: Sequence[Any],
        predicted: ArrayLike | None = None,
        *,
        bootstrap: int = 1000,
        seed: int = 0,
        curves: bool = True,
    ) -> dict[str, Any]:
        """The metrics of predictions, ready for JSON; all except log_loss are in [0, 1].

        Args:
            outputs, targets: ``[n, K]`` probabilities and true indicators.
            predicted: ``[n, K]`` bool, needed if the thresholds are not 0.5.

        Returns:
            - n, kind ("labels"), weighted_f1, log_loss (nats, mean over examples and labels), labels
            - accuracy (share of examples with all labels right), macro_f1 (mean over all labels), micro_f1,
              each with an ``_interval`` (95 %, bootstrap over examples; None with ``bootstrap=0``)
            - roc_auc, average_precision: means over the labels that some, but not all examples have; None
              without such a label or without ``curves``, and ``undefined`` has the reason
            - positive (always None), confusion (always empty)
            - per_class: label, precision, recall, f1, support, predicted, average_precision,
              calibration_error
            - labels_per_example: mean number of true and of predicted labels
            - together: pairs of labels, see ``label_pairs``, and how often both were predicted
        """
        from sklearn.metrics import f1_score, precision_recall_fscore_support

        labels = plain_labels(classes)
        p, y = np.asarray(outputs, np.float32), np.asarray(targets).astype(bool)
        if p.ndim != 2 or p.shape[1] != len(labels) or y.shape != p.shape:
            raise ShapeError(
                f"probabilities {p.shape} and targets {y.shape} do not match {len(labels)} labels"
            )
        if not len(y):
            raise DataError("no example to evaluate", fix="Give a split that is not empty")
        finite(p, "probabilities")
        pred = p > DEFAULT_THRESHOLD if predicted is None else np.asarray(predicted).astype(bool)
        if pred.shape != y.shape:
            raise ShapeError(f"predicted labels {pred.shape} do not match targets {y.shape}")
        n = len(y)
        args: dict[str, Any] = {"y_true": y.astype(int), "y_pred": pred.astype(int), "zero_division": 0}
        columns = precision_recall_fscore_support(**args, labels=range(y.shape[1]))
        precision, recall, f1, support = cast(tuple[np.ndarray, ...], columns)
        areas = _areas(p, y) if curves else [None] * y.shape[1]
        likelihoods = np.where(y, p, 1 - p).astype(np.float64).clip(TINY)
        out: dict[str, Any] = {"n": n, "kind": "labels", "accuracy": float((y == pred).all(1).mean())}
        for average in ("macro", "micro"):
            out[f"{average}_f1"] = float(f1_score(**args, average=average))
        intervals = _bootstrap(y, pred, out, bootstrap, seed) if bootstrap else {}
        out |= {f"{key}_interval": intervals.get(key) for key in ("accuracy", "macro_f1", "micro_f1")}
        defined = [area for area in areas if area is not None]
        reason = "each label: all examples have it, or none" if curves else "curves were not computed"
        out |= {
            "weighted_f1": float(f1_score(**args, average="weighted")),
            "roc_auc": float(np.mean([area[0] for area in defined])) if defined else None,
            "average_precision": float(np.mean([area[1] for area in defined])) if defined else None,
            "positive": None,
            "log_loss": float(-np.log(likelihoods).mean()),
            "labels": labels,
            "confusion": [],
            "per_class": [
                with_undefined(
                    {
                        "label": label,
                        "precision": float(precision[k]),
                        "recall": float(recall[k]),
                        "f1": float(f1[k]),
                        "support": int(support[k]),
                        "predicted": int(pred[:, k].sum()),
                        "average_precision": None if (area := areas[k]) is None else area[1],
                        "calibration_error": calibration_error(np.asarray(p[:, k], np.float64), y[:, k]),
                    },
                    {"average_precision": reason.replace("each label: ", "")},
                )
                for k, label in enumerate(labels)
            ],
            "labels_per_example": {"true": float(y.sum(1).mean()), "predicted": float(pred.sum(1).mean())},
            "together": _label_pairs(y, pred, labels),
        }
        return with_undefined(out, {"roc_auc": reason, "average_precision": reason})

    def fit_temperature(self, logits: np.ndarray, targets: np.ndarray) -> Any:
        return fit_temperatures(logits, targets)

    def count_errors(self, logits: np.ndarray, targets: np.ndarray) -> Any:
        """The number of wrong predictions of each label ``[K]``, at a threshold of 0.5."""
        return ((logits > 0) != targets).sum(0).tolist()

    def fit_threshold(self, probabilities: np.ndarray, targets: np.ndarray, metric: Any) -> Any:
        if metric not in ("f1", "macro_f1"):
            what = f"the thresholds of labels are tuned for F1, not for {metric}"
            raise NotForThisModelError(what, where="threshold", fix="Use --threshold f1")
        return tune_thresholds(probabilities, targets)

    def describe(self, probabilities: np.ndarray, targets: np.ndarray, resamples: int) -> dict[str, Any]:
        return describe_labels(probabilities, targets, resamples)

    def run_metadata(self, est: Any, splits: Any, train: Any, outputs: np.ndarray | None) -> dict[str, Any]:
        metadata = super().run_metadata(est, splits, train, outputs)
        if est.threshold_ is None:
            return metadata
        metadata["thresholds"] = dict(zip(metadata["label_names"], est.threshold_.tolist(), strict=True))
        return metadata

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"targets": "label-matrix" if self.matrix else "label-sets"}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], where: str) -> Self:
        return replace(super().from_metadata(metadata, where), matrix=metadata["targets"] == "label-matrix")

    def sort_classes(self) -> bool:
        return not self.matrix

    def has_scores(self, scores: Mapping[str, Any]) -> bool:
        return scores.get("kind") == "labels"

    # --- comparisons ------------------------------------------------------------------------------

    def has_file(self, folder: Path) -> bool:
        scores = read_object(folder / "metrics.json").get("test") or {}
        return super().has_file(folder) and self.has_scores(scores)

    def parse_cells(self, cells: Sequence[str], classes: tuple[str, ...]) -> np.ndarray:
        """Indicators ``[n, K]`` bool of the labels in each cell."""
        known_labels = set(classes)
        return indicator([parse_labels(cell, known_labels) for cell in cells], classes).astype(bool)

    def true_probabilities(self, probabilities: np.ndarray, truth: np.ndarray) -> np.ndarray:
        return np.where(truth, probabilities, 1 - probabilities)

    def measure_for(self, monitors: set[str]) -> str:
        return "macro_f1"

    def as_sets(self, runs: SeedRuns) -> tuple[np.ndarray, np.ndarray]:
        return runs[0].truth, np.stack([run.predicted for run in runs])

    def is_right(self, run: RunPredictions) -> np.ndarray:
        """Whether all labels of an example are right ``[n]``."""
        return (run.predicted == run.truth).all(-1)


def align_columns(p: np.ndarray, labels: Sequence[Any], classes: Sequence[Any], fill: float) -> np.ndarray:
    """Reorder the columns of ``p`` like ``classes``, to ``[n, K]``.

    Args:
        labels: the labels of the columns of ``p``.
        fill: value in the columns of classes that are not in ``labels``.
    """
    out = np.full((len(p), len(classes)), fill)
    out[:, [list(classes).index(label) for label in labels]] = p
    return out


def pos_weights(targets: np.ndarray, classes: list[Any], pos_weight: Any) -> tuple[float, ...] | None:
    """The weight of the positive examples of each label ``[K]``; None: all weights are 1."""
    if pos_weight is None:
        return None
    if pos_weight in ("balanced", "root"):
        positives = targets.sum(0)
        ratio = (len(targets) - positives) / np.maximum(positives, 1)
        return tuple((np.sqrt(ratio) if pos_weight == "root" else ratio).clip(1e-3, 1e3).tolist())
    if isinstance(pos_weight, Real):
        return (float(pos_weight),) * len(classes)
    if not isinstance(pos_weight, Mapping):
        what, fix = f"{pos_weight!r} is not valid", "Use 'balanced', 'root', a number or {label: weight}"
        raise BadValueError(what, where="pos_weight", fix=fix)
    by_text = {label_text(label): weight for label, weight in pos_weight.items()}
    for label, weight in by_text.items():
        if label not in map(str, classes):
            fix = suggest(label, [*map(str, classes)])
            raise BadValueError(f"unknown label {label!r}", where="pos_weight", fix=fix)
        if not isinstance(weight, Real) or not 1e-6 <= float(weight) <= 1e6:
            raise BadValueError(f"{weight!r} is not a weight", where="pos_weight", fix="Use 1e-6 to 1e6")
    return tuple(float(by_text.get(str(label), 1.0)) for label in classes)


# --- baselines ------------------------------------------------------------------------------------


def one_vs_rest(features: Sequence[Any], targets: np.ndarray) -> list[np.ndarray]:
    """One logistic regression per label, fitted on all training examples.

    All use the C with the best mean average precision on a held-out fifth.

    Args:
        features: features of the training examples ``[n, F]``, then of each set to predict; sparse or dense.
        targets: [n, K], 0 or 1.

    Returns:
        Probabilities ``[m, K]`` for each set to predict.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import average_precision_score

    train, *to_predict = features
    y = np.asarray(targets).astype(int)

    def predict(rows: Any, y: np.ndarray, to_predict: Sequence[Any], C: float) -> list[np.ndarray]:
        columns = []
        for y_k in y.T:
            if y_k.all() or not y_k.any():
                columns.append([np.full(x.shape[0], float(y_k[0])) for x in to_predict])
                continue
            model = LogisticRegression(C=C, solver="liblinear", tol=1e-3, max_iter=200).fit(rows, y_k)
            columns.append([model.predict_proba(x)[:, 1] for x in to_predict])
        return [np.stack(parts, 1) for parts in zip(*columns, strict=True)]

    with one_thread():
        best = C_VALUES[len(C_VALUES) // 2]
        if len(y) >= 100:
            order = np.random.default_rng(0).permutation(len(y))
            val_rows, train_rows = np.sort(order[: len(y) // 5]), np.sort(order[len(y) // 5 :])
            occurs = y[val_rows].any(0)

            def precision(C: float) -> float:
                (p,) = predict(train[train_rows], y[train_rows], [train[val_rows]], C)
                if not occurs.any():
                    return 0.0
                return float(average_precision_score(y[val_rows][:, occurs], p[:, occurs], average="macro"))

            best = max(C_VALUES, key=precision)
        return predict(train, y, to_predict, best)


# --- metrics --------------------------------------------------------------------------------------


def sigmoid(logits: ArrayLike, temperature: Any = 1.0) -> np.ndarray:
    """Probabilities of logits ``[n, K]``, fp64; ``temperature``: one number, or ``[K]``."""
    z = np.asarray(logits, np.float64) / np.asarray(temperature, np.float64)
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def binary_loss(logits: ArrayLike, targets: ArrayLike) -> float:
    """Mean binary cross-entropy in nats over examples and labels ``[n, K]``, from logits."""
    z, y = np.asarray(logits, np.float64), np.asarray(targets, np.float64)
    return float((np.logaddexp(0.0, z) - z * y).mean())


def tune_thresholds(probabilities: ArrayLike, targets: ArrayLike) -> np.ndarray:
    """The threshold ``[K]`` with the best F1 of each label.

    If fewer than ``MIN_EXAMPLES`` examples have a label, or lack it, its threshold is the common one with the
    best micro-F1 of all labels.

    Args:
        probabilities, targets: ``[n, K]``, of examples that the model was not trained on.
    """

    def fit(p: np.ndarray, y: np.ndarray) -> float:
        return tune_threshold(p, y, "f1")[0] if 0 < y.sum() < y.size else DEFAULT_THRESHOLD

    return _fit_per_label(probabilities, targets, fit)


def fit_temperatures(logits: ArrayLike, targets: ArrayLike) -> np.ndarray:
    """The temperature ``[K]`` with the lowest smoothed log loss of each label.

    If fewer than ``MIN_EXAMPLES`` examples have a label, or lack it, its temperature is fitted to all labels
    together.
    """

    def fit(z: np.ndarray, y: np.ndarray) -> float:
        return fit_temperature(np.stack([np.zeros_like(z), z], 1), y)

    return _fit_per_label(logits, targets, fit)


def _fit_per_label(values: ArrayLike, targets: ArrayLike, fit: Callable[..., float]) -> np.ndarray:
    """``fit`` of the values ``[n]`` of each label, ``[K]``; of all values if it has too few examples."""
    x, y = _check_arrays(values, targets)
    out = np.full(x.shape[1], fit(x.reshape(-1), y.reshape(-1)))
    for k, count in enumerate(y.sum(0).tolist()):
        if min(count, len(y) - count) >= MIN_EXAMPLES:
            out[k] = fit(x[:, k], y[:, k])
    return out


def describe_labels(probabilities: ArrayLike, targets: ArrayLike, resamples: int = 1000) -> dict[str, Any]:
    """Calibration error of all labels together and of each label, log loss and calibration curve."""
    p, y = _check_arrays(probabilities, targets)
    examples = np.repeat(np.arange(len(y)), y.shape[1])  # the labels of an example are resampled together
    outcomes = p.reshape(-1), y.reshape(-1), np.where(y > 0, p, 1 - p)
    return {
        "n": len(y),
        **describe_outcomes(*outcomes, resamples, examples),
        "ece_per_label": [calibration_error(p[:, k], y[:, k]) for k in range(p.shape[1])],
    }


def _check_arrays(values: ArrayLike, targets: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    p, y = np.asarray(values, np.float64), np.asarray(targets).astype(np.int64)
    if p.ndim != 2 or p.shape != y.shape:
        raise ShapeError(f"values {p.shape} and targets {y.shape} do not match")
    if not len(p):
        raise DataError("no example to evaluate", fix="Give a split that is not empty")
    return p, y


def _label_pairs(y: np.ndarray, pred: np.ndarray, labels: Sequence[Any]) -> list[dict[str, Any]]:
    """Pairs of labels that occur together, and how often both were predicted."""
    pairs, names = label_pairs(as_sets(y, labels).tolist(), MAX_PAIRS), list(map(str, labels))
    for pair in pairs:
        a, b = (names.index(label) for label in pair["labels"])
        pair["predicted"] = int((pred[:, a] & pred[:, b]).sum())
    return pairs


def _areas(p: np.ndarray, y: np.ndarray) -> list[tuple[float, float] | None]:
    """ROC-AUC and average precision of each label; None if all examples have the label, or no example."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    return [
        (float(roc_auc_score(is_positive, s)), float(average_precision_score(is_positive, s)))
        if is_positive.any() and not is_positive.all()
        else None
        for is_positive, s in zip(y.T, p.T, strict=True)
    ]


def _bootstrap(
    y: np.ndarray, pred: np.ndarray, shares: Mapping[str, float], resamples: int, seed: int
) -> dict[str, list[float]]:
    """95 % intervals of accuracy, micro-F1 and macro-F1, by bootstrap over the examples."""
    n, rng = len(y), np.random.default_rng(seed)
    counts = np.concatenate([y & pred, y.astype(np.int8) + pred], 1).astype(np.float32)  # [n, 2K]
    right = (y == pred).all(1).astype(np.float32)
    resampled: dict[str, list[np.ndarray]] = {"accuracy": [], "micro_f1": []}
    for start in range(0, resamples, 100):
        size = min(100, resamples - start)
        weights = rng.multinomial(n, np.full(n, 1 / n), size).astype(np.float32)  # [r, n]
        hits, total = np.split(weights @ counts, 2, axis=1)  # [r, K]; F1 = 2 hits / (true + predicted)
        resampled["accuracy"].append(weights @ right / n)
        resampled["micro_f1"].append(2 * hits.sum(1) / np.maximum(total.sum(1), 1))
    ends = {}
    for key, parts in resampled.items():
        bounds = np.quantile(np.concatenate(parts), [0.025, 0.975]).astype(float).tolist()
        ends[key] = share_interval(shares[key], n, bounds)
    return ends | {"macro_f1": multilabel_f1_interval(y, pred[None], resamples=resamples, seed=seed)}
