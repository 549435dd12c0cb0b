"""What cross-validation asks of a task: how examples are dealt out, judged in a fold and put together.

``study.folds`` trains and keeps the folds; a task's record names its ``OutOfFold``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from glassformer.config import plain
from glassformer.data.copies import groups_of
from glassformer.data.splits import Splits, labelled, stratified_folds
from glassformer.errors import TooFewExamplesError
from glassformer.targets.multilabel import spread
from glassformer.targets.target import Target
from glassformer.tasks.judging import measure_of

NAME = "out-of-fold"  # of the split that the figures are of


class OutOfFold(ABC):
    """The folds of one recipe.

    Args:
        recipe, splits: what is cross-validated, and its data.
        estimator: the class that is trained.
    """

    NOUN: ClassVar[str] = "examples"
    ANSWERS: ClassVar[str] = "probabilities.npy"  # of a fold: what the model gave; or a .json
    FIGURES: tuple[str, ...]  # of each fold, and over the folds
    PACKAGES: ClassVar[tuple[str, ...]] = ("tokenizers", "safetensors")  # metrics.json states their versions
    target: Target
    measure: str = ""  # that a line on each fold names
    GROUP: ClassVar[tuple[str, str]]  # what an example without a class is, and what its groups are, in words

    def __init__(self, recipe: Any, splits: Splits, estimator: Any):
        self.recipe, self.splits, self.estimator, self.train = recipe, splits, estimator, splits.train

    def assign(self, folds: int) -> np.ndarray:
        """The fold of each training example ``[n]``; those of one group share one.

        Raises:
            DataError: fewer groups than folds.
        """
        kind, group = self.GROUP
        groups = groups_of(self.train)
        if (count := len(set(groups))) < folds:
            what = f"{count} different {group} for {folds} folds"
            raise TooFewExamplesError(
                what, where=self.train.origin, fix="Use fewer folds, or give more texts"
            )
        return stratified_folds([kind] * len(self.train), folds, self.recipe.data.split_seed, groups)

    def given(self, split: Any) -> tuple[Any, ...]:
        """A split as ``fit`` takes it."""
        return split.examples, split.labels

    @property
    def validation(self) -> tuple[Any, ...] | None:
        """What chooses the best epoch of every fold; None: nothing."""
        held = labelled(self.splits.validation)
        return None if held is None else self.given(held)

    @abstractmethod
    def evaluate(self, model: Any, held: Any) -> tuple[int, dict[str, Any], Any]:
        """How many answers are judged, their figures, and the answers: an array, or a list for JSON."""

    def of_each(self, answers: Any, held: np.ndarray) -> Any:
        """The answers of a fold, one for each example in ``held``; None: they are of other data."""
        return answers if len(answers) == len(held) else None

    def figure(self, figures: dict[str, Any]) -> str:
        """What is said of a fold."""
        return f"{self.target.metrics[self.measure].called} {(figures[self.measure] or 0.0):.4f}"

    @abstractmethod
    def together(
        self, folder: Path, answers: list[tuple[np.ndarray, Any]], found: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """Write the out-of-fold predictions; what metrics.json says of them.

        Args:
            answers: of each fold the places of its examples, and ``of_each``.
            found: the figures of the folds.
        """


class LabelsOutOfFold(OutOfFold):
    """Labels, several labels or numbers."""

    PACKAGES = ("scikit-learn",)

    def __init__(self, recipe: Any, splits: Splits, estimator: Any):
        super().__init__(recipe, splits, estimator)
        train = self.train
        self.kind = self.target = estimator.kind_for(train.labels)
        self.classes = list(self.kind.classes(train.labels))
        self.targets = self.kind.encode(train.labels, self.classes, train.origin, train.rows)
        self.measure, self.FIGURES = self.kind.measure or measure_of(recipe), self.kind.each_fold

    def assign(self, folds: int) -> np.ndarray:
        """Classes keep their shares in every fold."""
        d, train = self.recipe.data, self.train
        groups = groups_of(train, d.copies == "sides") if d.copies in ("together", "sides") else train.names()
        return stratified_folds(train.labels, folds, d.split_seed, groups, blocks=d.hold_out == "blocks")

    def evaluate(self, model: Any, held: Any) -> tuple[int, dict[str, Any], np.ndarray]:
        """Figures, and probabilities or numbers ``[m, C]``."""
        kind, own, cut = model.kind_, model.classes_.tolist(), model.threshold_
        classes, p = (
            model.kind_for(self.train.labels).classes(self.train.labels),
            model.kept_outputs(held.examples),
        )
        if own != classes:  # a rare label stands in the held part alone: it is never given
            cut = spread(kind.thresholds(cut, own)[None], own, classes, 1.0)[0] if kind.binary else cut
            p = spread(p, own, classes, 0.0)
        meter = kind.meter(classes)
        meter.update(
            p, kind.encode(held.labels, classes, held.origin), predicted=kind.predicted_index(p, cut)
        )
        scores = meter.result(bootstrap=0)
        figures = {key: scores[key] for key in self.FIGURES if key in scores}
        return scores["n"], figures | ({"threshold": plain(cut)} if kind.binary else {}), p

    def together(
        self, folder: Path, answers: list[tuple[np.ndarray, Any]], found: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        kind, classes, train = self.kind, np.asarray(self.classes), self.train
        out, chosen = np.empty((len(train), len(classes))), np.empty(self.targets.shape, self.targets.dtype)
        for (held, p), figures in zip(answers, found, strict=True):
            out[held], chosen[held] = p, kind.predicted_index(p, figures.get("threshold"))
        meter = kind.meter(self.classes)
        meter.update(out, self.targets, predicted=chosen)
        metrics = {"test": meter.result(self.recipe.evaluate.bootstrap), "measure": self.measure}
        metrics |= {"label_names": [str(c) for c in self.classes]}
        predicted = kind.labels(chosen.astype(bool) if kind.binary else chosen, classes).tolist()
        shares = kind.confidence(out, chosen).tolist()
        path = folder / "predictions.csv"
        kind.write(path, train, NAME, out, self.classes, predicted=predicted, shares=shares)
        return metrics if kind.labels_given else metrics | {"numbers": {"held_out": 0}, "intervals": []}
