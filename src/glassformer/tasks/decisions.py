"""What every classifier is: a label from probabilities, by thresholds; or none where it is too unsure."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from glassformer.checkpoints.settings import shown
from glassformer.data.checks import check_pairs, check_weights
from glassformer.errors import (
    BadValueError,
    CheckpointError,
    ConfigError,
    IdleSettingWarning,
    NotForThisModelError,
    UnequalLengthsError,
)
from glassformer.evaluate.calibrate import Metric
from glassformer.evaluate.intervals import share_interval
from glassformer.runtime import choose_device
from glassformer.sklearn_base import ClassifierMixin, check_is_fitted
from glassformer.targets.multiclass import Classes
from glassformer.targets.regression import Numbers
from glassformer.tasks.classifier import Supervised
from glassformer.tasks.estimator import Fit
from glassformer.tasks.int8 import USUAL, check_count, obstacle, outcome, read_outcome, told, weights_state

LIMITS = (
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    0.95,
    0.98,
    0.99,
    0.995,
)  # below which to abstain, to choose from


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
        limit = kind.fit_threshold(kind.probabilities(logits, temperature), targets, metric or "f1")
    return temperature, limit


def check_abstain(below: float | None, kind: Classes) -> float | None:
    """The same; ConfigError for what is no probability, or where each label has a threshold already."""
    if below is None:
        return None
    if kind.binary:
        what = "several labels per example may all be absent"
        raise NotForThisModelError(
            what, where="abstain_below", fix="Leave it out: each label has a threshold"
        )
    if isinstance(below, bool) or not isinstance(below, int | float) or not 0 < below < 1:
        what = f"{below!r} is not a probability between 0 and 1"
        raise BadValueError(what, where="abstain_below", fix="Give one such as 0.6")
    return float(below)


def abstention(
    kind: Classes, probabilities: np.ndarray, targets: np.ndarray, threshold: Any, below: float
) -> dict[str, Any]:
    """What abstaining leaves of some examples, for JSON.

    Returns:
        ``below``, ``n``, ``answered`` (how many of them), ``accuracy`` of these with its 95 %
        ``accuracy_interval``; both None where none is answered.
    """
    chosen = kind.predicted_index(probabilities, threshold)
    sure = kind.confidence(probabilities, chosen) >= below
    n, right = int(sure.sum()), int((chosen == targets)[sure].sum())
    out: dict[str, Any] = {"below": below, "n": len(targets), "answered": n}
    known = share_interval(right / n, n) if n else None
    return out | {"accuracy": right / n if n else None, "accuracy_interval": known}


def abstaining(
    kind: Classes, probabilities: np.ndarray, targets: np.ndarray, threshold: Any
) -> list[dict[str, Any]]:
    """As ``abstention`` at each of ``LIMITS``; of those that leave nothing out, the highest alone, and
    none that leaves nothing."""
    found = [abstention(kind, probabilities, targets, threshold, below) for below in LIMITS]
    whole = sum(left["answered"] == len(targets) for left in found)
    return [left for left in found[max(whole - 1, 0) :] if left["answered"]]


class Classifier(ClassifierMixin, Supervised):
    """A classifier of raw examples.

    Fitted state beside ``Supervised``'s: ``abstain_below_``, the probability of its label below which
    ``predict`` gives None; None: it always gives a label. ``int8_``: what ``check_int8`` found; None: nothing
    was measured.
    """

    FIGURES = (*Supervised.FIGURES, "abstain_below", "int8")

    abstain_below_: float | None = None
    int8_: dict[str, Any] | None = None
    _int8_of: tuple[int, int] | None = None  # the ``weights_state`` that ``int8_`` is of

    @classmethod
    def learns(cls, kind: Classes) -> bool:
        return kind.problem_type != Numbers.problem_type

    def _examples(self, fit: Fit, *data: Any) -> Any:
        examples, held = super()._examples(fit, *data)
        if self.precision == "int8":
            check_count(0 if held is None else len(held[0]))
        return examples, held

    def _prepare(self, fit: Any) -> tuple[Any, Any]:
        self.abstain_below_ = self.int8_ = None
        return super()._prepare(fit)

    def _keep(self, fit: Fit, training: Any) -> None:
        super()._keep(fit, training)
        self.hold_int8(fit)

    # --- products in int8 ------------------------------------------------------------------------

    def check_int8(self, X: Sequence[Any], y: Sequence[Any]) -> dict[str, Any]:
        """Whether ``precision="int8"`` may be used, by examples that the model was not trained on.

        Args:
            X, y: at least 200 examples and their labels, drawn as those that will be asked about.

        Returns:
            What becomes ``int8_`` and is saved: ``n``, ``agree`` (the share of labels as in fp32),
            ``accuracy`` and ``accuracy_int8``, ``level``, and ``passed``: at least 99.5 % agree, and the
            accuracies are at most 0.2 points apart.

        Raises:
            ConfigError: too few examples, or a machine or model that does not multiply in int8.
            DataError: examples that cannot be used, or labels that were not trained.
        """
        check_is_fitted(self, "model_")
        word = self.kind_.word
        examples, labels = check_pairs(X, y, "check_int8", self.NOUN, word, self.examples_of, self.kind_.read)
        if reason := obstacle(self.model_, choose_device(self.device)):
            raise NotForThisModelError(
                f"int8 is off: {reason}", where="precision", fix="Use auto, fp32 or bf16"
            )
        self._warn_of_spelling(labels)
        return self._measure_int8(examples, self.targets(labels, word))

    def hold_int8(self, fit: Fit) -> None:
        """After a fit with ``precision="int8"``: measure on what was held out."""
        if self.precision != "int8" or fit.held is None:
            return
        if obstacle(self.model_, choose_device(self.device)) is None:
            self._measure_int8(*fit.held)

    def _measure_int8(self, examples: Sequence[Any], targets: np.ndarray) -> dict[str, Any]:
        check_count(len(examples))
        full, small = (
            self.chosen(self.chances(self._rows(examples, "logits", precision=precision)))
            for precision in ("fp32", "int8")
        )
        found = outcome(full, small, targets)
        self.int8_, self._compute_model = found, None
        self._int8_of = weights_state(self.model_)
        return found

    def _forget_stale_int8(self) -> None:
        """An outcome is of the weights that it was measured on; a loaded model keeps its own."""
        now, of = weights_state(self.model_), self._int8_of
        if of is not None and of[0] == now[0] and of != now:
            self.int8_ = None
        self._int8_of = now

    def _about(self) -> dict[str, Any]:
        self._forget_stale_int8()
        return super()._about()

    def _precision(self, device: torch.device) -> str:
        """int8 where its gate was passed; else a line says why it is off.

        Raises:
            ConfigError: it was not measured.
        """
        if self.precision != "int8":
            return self.precision
        self._forget_stale_int8()
        reason, found = obstacle(self.model_, device), self.int8_
        if reason is None and found is None:
            raise ConfigError(
                "int8 was not held to this model's validation labels yet",
                where="precision",
                fix="Call check_int8(X, y) with examples that it has not learned from, then save",
            )
        if reason is None and found is not None and found["passed"]:
            return "int8"
        said = f"off: {reason}" if reason or found is None else told(found)
        warnings.warn(f"int8 is {said}; {USUAL}", IdleSettingWarning, stacklevel=2)
        return "auto"

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
        examples, labels = check_pairs(X, y, "calibrate", self.NOUN, word, self.examples_of, self.kind_.read)
        self._warn_of_spelling(labels)
        logits, targets = self.logits(examples), self.targets(labels, word)
        found = fitted_decision(self.kind_, logits, targets, threshold, self.threshold_)
        (self.temperature_, self.threshold_), self.abstain_below_ = found, below
        self.int8_ = self._compute_model = None  # it was of other decisions
        return self

    def abstains(self, probabilities: np.ndarray) -> np.ndarray:
        """Whether each answer of probabilities ``[n, C]`` is less sure than ``abstain_below_``, ``[n]``."""
        if self.abstain_below_ is None:
            return np.zeros(len(probabilities), bool)
        return self.kind_.confidence(probabilities, self.chosen(probabilities)) < self.abstain_below_

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
        return self.kind_.as_given(self.answers(self.outputs(X)))

    def predict_proba(self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Probabilities ``[n, C]``, fp64, columns in the order of ``classes_``."""
        return self.outputs(X, progress=progress)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of examples whose label is right, also where ``predict`` abstains; of several labels, of
        those with all of them right. A label that was not trained counts as wrong, one in another spelling
        as the label that it means, with an ``OtherSpellingWarning``.

        Raises:
            DataError: examples or labels that cannot be used, another number of labels, or no weights.
        """
        check_is_fitted(self, "model_")
        kind = self.kind_
        examples, labels = check_pairs(X, y, "score", self.NOUN, kind.word, self.examples_of, kind.read)
        truth = kind.normalize(labels, self.classes_.tolist())
        self._warn_of_spelling(labels)
        return share_right(self.decide(self.outputs(examples)).tolist(), truth, sample_weight)

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
            what = f"abstain_below = {shown(below)} is not a probability"
            raise CheckpointError(what, where=str(folder), fix="Choose it again")
        about = {"abstain_below": None, "int8": None} | about
        return super().restore(folder, about | {"int8": read_outcome(about["int8"], str(folder))})


def share_right(answers: Sequence[Any], truth: Sequence[Any], weights: Any = None) -> float:
    """The share of answers that are right, weighted.

    Raises:
        DataError: another number of answers or weights, or weights that are all 0.
    """
    if len(answers) != len(truth):
        raise UnequalLengthsError(
            f"{len(answers)} answers, {len(truth)} labels", where="score", fix="Give one each"
        )
    right = [a == b for a, b in zip(answers, truth, strict=True)]
    return float(np.average(right, weights=None if weights is None else check_weights(weights, len(right))))
