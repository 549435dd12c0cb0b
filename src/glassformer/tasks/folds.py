"""The parts of cross-validation that depend on the task.

They assign examples to folds, evaluate a fold and pool the predictions. ``study.folds`` trains the folds.
``Task.folds`` is the task's subclass of ``OutOfFold``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from glassformer.config import plain
from glassformer.data.duplicates import copy_keys
from glassformer.data.splits import Splits, labeled_or_none, place_of_labels, stratified_folds
from glassformer.errors import TooFewExamplesError
from glassformer.targets.multilabel import align_columns
from glassformer.targets.target import Target
from glassformer.tasks.run_steps import main_metric

NAME = "out-of-fold"  # name of the split in metrics and predictions
FoldPredictions = list[tuple[np.ndarray, Any]]  # the row numbers and predictions of each fold


class OutOfFold(ABC):
    """Cross-validation of a recipe."""

    NOUN: ClassVar[str] = "examples"
    PREDICTIONS_FILE: ClassVar[str] = "probabilities.npy"  # file of the predictions of a fold: .npy or .json
    METRICS: tuple[str, ...]  # metrics that are reported per fold and summarized over the folds
    PACKAGES: ClassVar[tuple[str, ...]] = ("tokenizers", "safetensors")  # metrics.json has their versions
    target: Target
    measure: str = ""  # the metric in the log line of a fold
    EXAMPLE: ClassVar[str]  # noun for one example
    GROUPS: ClassVar[str]  # plural noun for the groups of examples that share a fold, for messages

    def __init__(self, recipe: Any, splits: Splits, estimator: Any):
        self.recipe, self.splits, self.estimator, self.train = recipe, splits, estimator, splits.train

    def assign(self, folds: int) -> np.ndarray:
        """The fold of each training example ``[n]``. Examples of the same group share a fold."""
        groups = copy_keys(self.train)
        if (count := len(set(groups))) < folds:
            what = f"{count} different {self.GROUPS} for {folds} folds"
            raise TooFewExamplesError(
                what, where=self.train.origin, fix="Use fewer folds, or give more texts"
            )
        return stratified_folds([self.EXAMPLE] * len(self.train), folds, self.recipe.data.split_seed, groups)

    def fit_arguments(self, split: Any) -> tuple[Any, ...]:
        """The arguments X and y of ``fit`` for a split."""
        return split.examples, split.labels

    @property
    def validation(self) -> tuple[Any, ...] | None:
        """X and y of the validation split, which selects the best epoch of every fold, or None."""
        split = labeled_or_none(self.splits.validation)
        return None if split is None else self.fit_arguments(split)

    @abstractmethod
    def evaluate(self, model: Any, split: Any) -> tuple[int, dict[str, Any], Any]:
        """Number of scored predictions, their metrics, and the predictions (an array, or a list for JSON)."""

    def per_example(self, predictions: Any, rows: np.ndarray) -> Any:
        """The stored predictions of a fold, one per example in ``rows``; None if they are of other data."""
        return predictions if len(predictions) == len(rows) else None

    def summary(self, metrics: dict[str, Any]) -> str:
        """The text about a fold in the log."""
        return f"{self.target.metrics[self.measure].name} {(metrics[self.measure] or 0.0):.4f}"

    @abstractmethod
    def pooled_metrics(
        self, folder: Path, predictions: FoldPredictions, records: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """Write the predictions of all folds together, and return their entries of metrics.json.

        ``records`` has the metrics of each fold.
        """


class LabelsOutOfFold(OutOfFold):
    """Cross-validation of classifiers (also multi-label) and regressors."""

    PACKAGES = ("scikit-learn",)

    def __init__(self, recipe: Any, splits: Splits, estimator: Any):
        super().__init__(recipe, splits, estimator)
        train = self.train
        self.kind = self.target = estimator.infer_kind(train.labels)
        self.classes = list(self.kind.classes(train.labels, place_of_labels(splits.dataset, train.origin)))
        self.targets = self.kind.encode(train.labels, self.classes, train.origin, train.rows)
        self.measure, self.METRICS = self.kind.measure or main_metric(recipe), self.kind.metrics_per_fold

    def assign(self, folds: int) -> np.ndarray:
        """The fold of each training example ``[n]``, stratified by class."""
        d, train = self.recipe.data, self.train
        groups = copy_keys(train, d.copies == "sides") if d.copies in ("together", "sides") else train.names()
        origin = place_of_labels(self.splits.dataset, train.origin)
        blocks = d.hold_out == "blocks"
        return stratified_folds(train.labels, folds, d.split_seed, groups, blocks, origin=origin)

    def evaluate(self, model: Any, split: Any) -> tuple[int, dict[str, Any], np.ndarray]:
        kind, known, threshold = model.kind_, model.classes_.tolist(), model.threshold_
        classes, p = self.classes, model.cached_outputs(split.examples)
        if known != classes:  # a rare label occurs only in this fold, so that the model does not know it
            if kind.is_multilabel:
                threshold = align_columns(kind.thresholds(threshold, known)[None], known, classes, 1.0)[0]
            p = align_columns(p, known, classes, 0.0)
        meter = kind.meter(classes)
        targets = kind.encode(split.labels, classes, split.origin)
        meter.update(p, targets, predicted=kind.predicted_index(p, threshold))
        scores = meter.result(bootstrap=0)
        metrics = {key: scores[key] for key in self.METRICS if key in scores}
        return scores["n"], metrics | ({"threshold": plain(threshold)} if kind.is_multilabel else {}), p

    def pooled_metrics(
        self, folder: Path, predictions: FoldPredictions, records: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        kind, classes, train = self.kind, np.asarray(self.classes), self.train
        out, indices = np.empty((len(train), len(classes))), np.empty(self.targets.shape, self.targets.dtype)
        for (rows, p), record in zip(predictions, records, strict=True):
            out[rows], indices[rows] = p, kind.predicted_index(p, record.get("threshold"))
        meter = kind.meter(self.classes)
        meter.update(out, self.targets, predicted=indices)
        metrics = {"test": meter.result(self.recipe.evaluate.bootstrap), "measure": self.measure}
        metrics |= {"label_names": [str(c) for c in self.classes]}
        predicted = kind.labels(indices.astype(bool) if kind.is_multilabel else indices, classes).tolist()
        shares = kind.confidence(out, indices).tolist()
        path = folder / "predictions.csv"
        kind.write(path, train, NAME, out, self.classes, predicted=predicted, shares=shares)
        return metrics if kind.predicts_labels else metrics | {"numbers": {"held_out": 0}, "intervals": []}
