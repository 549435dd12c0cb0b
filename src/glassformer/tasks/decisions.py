"""Base class of classifiers: thresholds, calibration, abstention and int8 inference."""

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
from glassformer.tasks.int8 import (
    USUAL,
    check_count,
    describe_outcome,
    obstacle,
    outcome,
    read_outcome,
    weights_state,
)

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
)  # probabilities below which a classifier may abstain


def fitted_decision(
    kind: Classes, logits: np.ndarray, targets: np.ndarray, metric: Metric | None, own: Any = None
) -> tuple[Any, Any]:
    """Fit temperature and threshold on the logits ``[n, C]`` of examples that were not trained on. The
    threshold applies to the probabilities after the temperature.

    Args:
        metric: the metric that the threshold maximizes; None: no threshold, except multi-label with ``own``.
        own: the thresholds that ``fit`` chose.
    """
    temperature, limit = kind.fit_temperature(logits, targets), None
    if metric is not None or (kind.binary and own is not None):
        limit = kind.fit_threshold(kind.probabilities(logits, temperature), targets, metric or "f1")
    return temperature, limit


def check_abstain(below: float | None, kind: Classes) -> float | None:
    """Validate ``abstain_below``: ConfigError if it is not a probability, or for multi-label targets."""
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
    """Effect of abstaining below a probability, for JSON.

    Returns:
        ``below``, ``n``, ``answered`` (number of examples that get a label), their ``accuracy`` and its 95 %
        ``accuracy_interval``; both None if no example gets a label.
    """
    chosen = kind.predicted_index(probabilities, threshold)
    confident = kind.confidence(probabilities, chosen) >= below
    n, right = int(confident.sum()), int((chosen == targets)[confident].sum())
    out: dict[str, Any] = {"below": below, "n": len(targets), "answered": n}
    known = share_interval(right / n, n) if n else None
    return out | {"accuracy": right / n if n else None, "accuracy_interval": known}


def abstaining(
    kind: Classes, probabilities: np.ndarray, targets: np.ndarray, threshold: Any
) -> list[dict[str, Any]]:
    """``abstention`` at each of ``LIMITS``, without those that abstain from all examples. Of the limits that
    abstain from none, only the highest."""
    records = [abstention(kind, probabilities, targets, threshold, below) for below in LIMITS]
    without_effect = sum(record["answered"] == len(targets) for record in records)
    return [record for record in records[max(without_effect - 1, 0) :] if record["answered"]]


class Classifier(ClassifierMixin, Supervised):
    """Base class of classifiers of raw examples.

    Fitted attributes in addition to ``Supervised``'s: ``abstain_below_``: ``predict`` returns None if the
    label's probability is below it; None: always a label. ``int8_``: the result of ``check_int8``; None: not
    measured.
    """

    SAVED_STATE = (*Supervised.SAVED_STATE, "abstain_below", "int8")

    abstain_below_: float | None = None
    int8_: dict[str, Any] | None = None
    _int8_of: tuple[int, int] | None = None  # the ``weights_state`` when ``int8_`` was measured

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
        """Check whether ``precision="int8"`` may be used, on examples that the model was not trained on.

        Args:
            X, y: at least 200 examples and their labels, from the same distribution as future inputs.

        Returns:
            The record that becomes ``int8_`` and is saved: ``n``, ``agree`` (share of labels equal to those
            in fp32), ``accuracy`` and ``accuracy_int8``, ``level``, and ``passed``: at least 99.5 % agree,
            and the accuracies differ by at most 0.2 points.

        Raises:
            ConfigError: too few examples, or a machine or model without int8 inference.
            DataError: unusable examples, or labels that were not seen in training.
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
        """After a fit with ``precision="int8"``: check int8 on the validation examples."""
        if self.precision != "int8" or fit.held is None:
            return
        if obstacle(self.model_, choose_device(self.device)) is None:
            self._measure_int8(*fit.held)

    def _measure_int8(self, examples: Sequence[Any], targets: np.ndarray) -> dict[str, Any]:
        check_count(len(examples))
        fp32, int8 = (
            self.chosen(self.chances(self._rows(examples, "logits", precision=precision)))
            for precision in ("fp32", "int8")
        )
        self.int8_, self._compute_model = outcome(fp32, int8, targets), None
        self._int8_of = weights_state(self.model_)
        return self.int8_

    def _forget_stale_int8(self) -> None:
        """Reset ``int8_`` if the weights have changed since it was measured; a loaded model keeps it."""
        now, of = weights_state(self.model_), self._int8_of
        if of is not None and of[0] == now[0] and of != now:
            self.int8_ = None
        self._int8_of = now

    def _about(self) -> dict[str, Any]:
        self._forget_stale_int8()
        return super()._about()

    def _precision(self, device: torch.device) -> str:
        """The precision to predict with: int8 only if its check passed; otherwise a warning says why not.

        Raises:
            ConfigError: the check was not run.
        """
        if self.precision != "int8":
            return self.precision
        self._forget_stale_int8()
        reason, result = obstacle(self.model_, device), self.int8_
        if reason is None and result is None:
            raise ConfigError(
                "int8 was not held to this model's validation labels yet",
                where="precision",
                fix="Call check_int8(X, y) with examples that it has not learned from, then save",
            )
        if reason is None and result is not None and result["passed"]:
            return "int8"
        state = f"off: {reason}" if reason or result is None else describe_outcome(result)
        warnings.warn(f"int8 is {state}; {USUAL}", IdleSettingWarning, stacklevel=2)
        return "auto"

    def calibrate(
        self,
        X: Sequence[Any],
        y: Sequence[Any],
        *,
        threshold: Metric | None = None,
        abstain_below: float | None = None,
    ) -> Self:
        """Fit temperature and threshold on examples that the model was not trained on.

        Args:
            X, y: examples and their labels, from the same distribution as future inputs.
            threshold: the metric that ``threshold_`` maximizes: ``accuracy``, ``macro_f1``, or for two
                classes ``f1`` of the second. None: predict the most probable label; multi-label models keep
                one threshold per label.
            abstain_below: between 0 and 1; ``predict`` returns None if the label's probability is below it.

        Raises:
            ConfigError: an invalid ``abstain_below``.
            DataError: unusable examples, or labels that were not seen in training.
            InputError: an unknown metric.
        """
        check_is_fitted(self, "model_")
        below, word = check_abstain(abstain_below, self.kind_), self.kind_.word
        examples, labels = check_pairs(X, y, "calibrate", self.NOUN, word, self.examples_of, self.kind_.read)
        self._warn_of_spelling(labels)
        logits, targets = self.logits(examples), self.targets(labels, word)
        found = fitted_decision(self.kind_, logits, targets, threshold, self.threshold_)
        (self.temperature_, self.threshold_), self.abstain_below_ = found, below
        self.int8_ = self._compute_model = None  # it was measured with the old threshold
        return self

    def abstains(self, probabilities: np.ndarray) -> np.ndarray:
        """Boolean ``[n]``: whether the label's probability is below ``abstain_below_``."""
        if self.abstain_below_ is None:
            return np.zeros(len(probabilities), bool)
        return self.kind_.confidence(probabilities, self.chosen(probabilities)) < self.abstain_below_

    def answers(self, probabilities: np.ndarray) -> np.ndarray:
        """The labels ``[n]`` as ``decide`` returns them, None where the classifier abstains."""
        labels, abstained = self.decide(probabilities), self.abstains(probabilities)
        if abstained.any():
            labels = labels.astype(object)
            labels[abstained] = None
        return labels

    def predict(self, X: Sequence[Any]) -> Any:
        """Predict the label of each example, using ``threshold_`` if there is one.

        For multi-label a 0/1 matrix ``[n, K]`` if training had one, otherwise a list of tuples of labels.
        With ``abstain_below_``, an object array with None where the classifier abstains.
        """
        if self.abstain_below_ is None:
            return super().predict(X)
        return self.kind_.as_given(self.answers(self.outputs(X)))

    def predict_proba(self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Probabilities ``[n, C]``, fp64, columns in the order of ``classes_``."""
        return self.outputs(X, progress=progress)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; for multi-label, the share of examples with all labels right. Abstention is ignored.

        A label in ``y`` that was not seen in training counts as wrong. One in another spelling counts as the
        label it means, with an ``OtherSpellingWarning``.

        Raises:
            DataError: unusable examples or labels, or different numbers of examples and labels.
        """
        check_is_fitted(self, "model_")
        kind = self.kind_
        examples, labels = check_pairs(X, y, "score", self.NOUN, kind.word, self.examples_of, kind.read)
        truth = kind.normalize(labels, self.classes_.tolist())
        self._warn_of_spelling(labels)
        return accuracy(self.decide(self.outputs(examples)).tolist(), truth, sample_weight)

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


def accuracy(predictions: Sequence[Any], truth: Sequence[Any], weights: Any = None) -> float:
    """The weighted share of predictions that are right.

    Raises:
        DataError: different numbers of predictions, labels or weights, or weights that are all 0.
    """
    if len(predictions) != len(truth):
        raise UnequalLengthsError(
            f"{len(predictions)} predictions, {len(truth)} labels",
            where="score",
            fix="Give one label for each example",
        )
    right = [a == b for a, b in zip(predictions, truth, strict=True)]
    return float(np.average(right, weights=None if weights is None else check_weights(weights, len(right))))
