"""What every classifier is: a label from probabilities, by thresholds; or none where it is too unsure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from glassformer.checkpoints.settings import shown
from glassformer.data.checks import check_pairs
from glassformer.errors import CheckpointError, ConfigError
from glassformer.evaluate.calibrate import Metric
from glassformer.evaluate.intervals import wilson
from glassformer.sklearn_base import ClassifierMixin, check_is_fitted
from glassformer.tasks.classifier import Supervised
from glassformer.tasks.target_classes import Classes
from glassformer.tasks.target_numbers import Numbers


def fitted_decision(
    kind: Classes, logits: np.ndarray, targets: np.ndarray, metric: Metric | None, own: Any = None
) -> tuple[Any, Any]:
    """Temperature and threshold by logits ``[n, C]`` of examples that were not learned from; the threshold
    follows the temperature.

    Args:
        metric: that the threshold serves; None: no threshold, but for several labels with ``own`` ones.
        own: the thresholds that a fit chose.
    """
    temperature, limit = kind.fit_temperature(logits, targets), None
    if metric is not None or (kind.binary and own is not None):
        limit = kind.fit_threshold(kind.chances(logits, temperature), targets, metric or "f1")
    return temperature, limit


def check_abstain(below: float | None, kind: Classes) -> float | None:
    """The same; ConfigError for what is no probability, or where each label has a threshold already."""
    if below is None:
        return None
    if kind.binary:
        what = "several labels an example may all be absent"
        raise ConfigError(what, where="abstain_below", fix="Leave it out: each label has a threshold")
    if isinstance(below, bool) or not isinstance(below, int | float) or not 0 < below < 1:
        what = f"{below!r} is no probability between 0 and 1"
        raise ConfigError(what, where="abstain_below", fix="Give one such as 0.6")
    return float(below)


def abstention(
    kind: Classes, probabilities: np.ndarray, targets: np.ndarray, threshold: Any, below: float
) -> dict[str, Any]:
    """What abstaining leaves of some examples, for JSON.

    Returns:
        ``below``, ``n``, ``answered`` (how many of them), ``accuracy`` of these with its 95 %
        ``accuracy_interval``; both None where none is answered.
    """
    chosen = kind.chosen(probabilities, threshold)
    sure = kind.sureness(probabilities, chosen) >= below
    n, right = int(sure.sum()), int((chosen == targets)[sure].sum())
    out: dict[str, Any] = {"below": below, "n": len(targets), "answered": n}
    low, high = wilson(np.array(right), np.array(max(n, 1)))
    known = [max(float(low), 0.0), min(float(high), 1.0)]
    return out | {"accuracy": right / n if n else None, "accuracy_interval": known if n else None}


class Classifier(ClassifierMixin, Supervised):
    """A classifier of raw examples.

    Fitted state beside ``Supervised``'s: ``abstain_below_``, the probability of its label below which
    ``predict`` gives None; None: it always gives a label.
    """

    FIGURES = (*Supervised.FIGURES, "abstain_below")

    abstain_below_: float | None = None

    @classmethod
    def learns(cls, kind: Classes) -> bool:
        return kind.problem_type != Numbers.problem_type

    def _prepare(self, fit: Any) -> tuple[Any, Any]:
        self.abstain_below_ = None
        return super()._prepare(fit)

    def calibrate(
        self,
        X: Sequence[Any],
        y: Sequence[Any],
        *,
        threshold: Metric | None = None,
        abstain_below: float | None = None,
    ) -> Self:
        """Settle temperature and decision by examples that the model was not trained on.

        Args:
            X, y: examples and their labels, drawn as those that will be asked about.
            threshold: ``accuracy``, ``macro_f1``, or of two classes ``f1`` of the second: what ``threshold_``
                is chosen to serve. None: the likeliest label; several labels keep thresholds a label.
            abstain_below: between 0 and 1: ``predict`` gives None where its label is less likely than this.

        Raises:
            ConfigError: ``abstain_below`` that cannot be.
            DataError: examples that cannot be used, or labels that were not trained.
            InputError: another metric.
        """
        check_is_fitted(self, "model_")
        below, word = check_abstain(abstain_below, self.kind_), self.kind_.word
        examples, labels = check_pairs(X, y, "calibrate", self.NOUN, word, self.check, self.kind_.read)
        logits, targets = self.logits(examples), self.targets(labels, word)
        found = fitted_decision(self.kind_, logits, targets, threshold, self.threshold_)
        (self.temperature_, self.threshold_), self.abstain_below_ = found, below
        return self

    def abstains(self, probabilities: np.ndarray) -> np.ndarray:
        """Whether each answer of probabilities ``[n, C]`` is less sure than ``abstain_below_``, ``[n]``."""
        if self.abstain_below_ is None:
            return np.zeros(len(probabilities), bool)
        return self.kind_.sureness(probabilities, self.chosen(probabilities)) < self.abstain_below_

    def answers(self, probabilities: np.ndarray) -> np.ndarray:
        """As ``decide``, with None where the classifier abstains ``[n]``."""
        labels, unsure = self.decide(probabilities), self.abstains(probabilities)
        if unsure.any():
            labels = labels.astype(object)
            labels[unsure] = None
        return labels

    def predict(self, X: Sequence[Any]) -> Any:
        """The label of each example, as ``threshold_`` says; of several labels a 0/1 matrix ``[n, K]`` where
        training had one, else a list of tuples of labels. Where ``abstain_below_`` is set, an array of
        objects, with None for what is too unsure."""
        if self.abstain_below_ is None:
            return super().predict(X)
        return self.answers(self.outputs(X))

    def predict_proba(self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Probabilities ``[n, C]``, fp64, columns in the order of ``classes_``."""
        return self.outputs(X, progress=progress)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of examples whose label is right, also where ``predict`` abstains; of several labels, of
        those with all of them right."""
        labels = self.kind_.read(y)
        right = [a == b for a, b in zip(self.decide(self.predict_proba(X)).tolist(), labels, strict=True)]
        return float(np.average(right, weights=sample_weight))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    # --- files -----------------------------------------------------------------------------------

    @classmethod
    def restore(cls, folder: Path, about: dict[str, Any]) -> Self:
        below = about.get("abstain_below")
        if below is not None and (
            isinstance(below, bool) or not isinstance(below, int | float) or not 0 < below < 1
        ):
            what = f"abstain_below = {shown(below)} is no probability"
            raise CheckpointError(what, where=str(folder), fix="Choose it again")
        return super().restore(folder, {"abstain_below": None} | about)
