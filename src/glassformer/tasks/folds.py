"""Task-specific parts of cross-validation: assign examples to folds, evaluate a fold, pool the predictions.

``study.folds`` trains the folds and stores them; ``Task.folds`` names a task's ``OutOfFold``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from glassformer.config import plain
from glassformer.data.copies import copy_keys
from glassformer.data.splits import Splits, if_labeled, stratified_folds
from glassformer.errors import TooFewExamplesError
from glassformer.targets.multilabel import align_columns
from glassformer.targets.target import Target
from glassformer.tasks.judging import measure_of

NAME = "out-of-fold"  # name of the split in metrics and predictions


class OutOfFold(ABC):
    """Cross-validation of one recipe and its data, with an estimator class."""

    NOUN: ClassVar[str] = "examples"
    ANSWERS: ClassVar[str] = "probabilities.npy"  # file of a fold's predictions; may be a .json
    METRICS: tuple[str, ...]  # reported per fold and summarized over the folds
    PACKAGES: ClassVar[tuple[str, ...]] = ("tokenizers", "safetensors")  # metrics.json has their versions
    target: Target
    measure: str = ""  # the metric in the log line of a fold
    GROUP: ClassVar[tuple[str, str]]  # noun of an example (singular) and of its groups (plural), for messages

    def __init__(self, recipe: Any, splits: Splits, estimator: Any):
        self.recipe, self.splits, self.estimator, self.train = recipe, splits, estimator, splits.train

    def assign(self, folds: int) -> np.ndarray:
        """The fold of each training example ``[n]``; examples of one group share a fold."""
        kind, group = self.GROUP
        groups = copy_keys(self.train)
        if (count := len(set(groups))) < folds:
            what = f"{count} different {group} for {folds} folds"
            raise TooFewExamplesError(
                what, where=self.train.origin, fix="Use fewer folds, or give more texts"
            )
        return stratified_folds([kind] * len(self.train), folds, self.recipe.data.split_seed, groups)

    def fit_arguments(self, split: Any) -> tuple[Any, ...]:
        """X and y of a split, for ``fit``."""
        return split.examples, split.labels

    @property
    def validation(self) -> tuple[Any, ...] | None:
        """X and y of the validation split, which selects the best epoch of every fold; None: no split."""
        held = if_labeled(self.splits.validation)
        return None if held is None else self.fit_arguments(held)

    @abstractmethod
    def evaluate(self, model: Any, held: Any) -> tuple[int, dict[str, Any], Any]:
        """Number of predictions scored, their metrics, and the predictions (an array, or a list for JSON)."""

    def per_example(self, answers: Any, held: np.ndarray) -> Any:
        """A fold's stored predictions, one per example in ``held``; None if they belong to other data."""
        return answers if len(answers) == len(held) else None

    def summary(self, metrics: dict[str, Any]) -> str:
        """The log line's text about a fold."""
        return f"{self.target.metrics[self.measure].name} {(metrics[self.measure] or 0.0):.4f}"

    @abstractmethod
    def pooled_metrics(
        self, folder: Path, answers: list[tuple[np.ndarray, Any]], records: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """Write the out-of-fold predictions of all folds, and return their entries of metrics.json.
        ``answers``: row numbers and ``per_example`` of each fold; ``records``: its metrics."""


class LabelsOutOfFold(OutOfFold):
    """Cross-validation of classifiers (also multi-label) and regressors."""

    PACKAGES = ("scikit-learn",)

    def __init__(self, recipe: Any, splits: Splits, estimator: Any):
        super().__init__(recipe, splits, estimator)
        train = self.train
        self.kind = self.target = estimator.kind_for(train.labels)
        self.classes = list(self.kind.classes(train.labels))
        self.targets = self.kind.encode(train.labels, self.classes, train.origin, train.rows)
        self.measure, self.METRICS = self.kind.measure or measure_of(recipe), self.kind.each_fold

    def assign(self, folds: int) -> np.ndarray:
        """The fold of each training example ``[n]``, stratified by class."""
        d, train = self.recipe.data, self.train
        groups = copy_keys(train, d.copies == "sides") if d.copies in ("together", "sides") else train.names()
        return stratified_folds(train.labels, folds, d.split_seed, groups, blocks=d.hold_out == "blocks")

    def evaluate(self, model: Any, split: Any) -> tuple[int, dict[str, Any], np.ndarray]:
        """Number of predictions, their metrics, and probabilities or numbers ``[m, C]``."""
        kind, known, cut = model.kind_, model.classes_.tolist(), model.threshold_
        classes, p = (
            model.kind_for(self.train.labels).classes(self.train.labels),
            model.kept_outputs(split.examples),
        )
        if known != classes:  # a rare label occurs only in the held-out fold: the model never predicts it
            if kind.is_multilabel:
                cut = align_columns(kind.thresholds(cut, known)[None], known, classes, 1.0)[0]
            p = align_columns(p, known, classes, 0.0)
        meter = kind.meter(classes)
        meter.update(
            p, kind.encode(split.labels, classes, split.origin), predicted=kind.predicted_index(p, cut)
        )
        scores = meter.result(bootstrap=0)
        metrics = {key: scores[key] for key in self.METRICS if key in scores}
        return scores["n"], metrics | ({"threshold": plain(cut)} if kind.is_multilabel else {}), p

    def pooled_metrics(
        self, folder: Path, answers: list[tuple[np.ndarray, Any]], records: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        kind, classes, train = self.kind, np.asarray(self.classes), self.train
        out, chosen = np.empty((len(train), len(classes))), np.empty(self.targets.shape, self.targets.dtype)
        for (rows, p), of_fold in zip(answers, records, strict=True):
            out[rows], chosen[rows] = p, kind.predicted_index(p, of_fold.get("threshold"))
        meter = kind.meter(self.classes)
        meter.update(out, self.targets, predicted=chosen)
        metrics = {"test": meter.result(self.recipe.evaluate.bootstrap), "measure": self.measure}
        metrics |= {"label_names": [str(c) for c in self.classes]}
        predicted = kind.labels(chosen.astype(bool) if kind.is_multilabel else chosen, classes).tolist()
        shares = kind.confidence(out, chosen).tolist()
        path = folder / "predictions.csv"
        kind.write(path, train, NAME, out, self.classes, predicted=predicted, shares=shares)
        return metrics if kind.labels_given else metrics | {"numbers": {"held_out": 0}, "intervals": []}
