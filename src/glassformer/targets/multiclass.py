"""One class an example: the kind of target whose methods say what a kind is; others replace some of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from glassformer.checkpoints.settings import real, shown
from glassformer.data.checks import check_classes, check_labels, place
from glassformer.data.label_kinds import about_labels, as_known, other_spellings
from glassformer.data.label_sets import each
from glassformer.errors import CheckpointError, ConfigError, DataError, OtherSpellingWarning
from glassformer.evaluate.calibrate import (
    class_by_threshold,
    describe,
    fit_temperature,
    tune_class_thresholds,
    tune_threshold,
)
from glassformer.evaluate.metrics import ClassificationMeter
from glassformer.evaluate.predict import softmax
from glassformer.train.config import outside
from glassformer.train.objectives import class_weights
from glassformer.train.solved_head import SolvedHead, solve_classes

COLDEST, HOTTEST = 1e-3, 1e3  # of a temperature; calibration itself looks at 0.05 to 20
OVER_ONE = 1 + 1e-6  # a threshold that no probability reaches may stand just above 1


@dataclass(frozen=True)
class Classes:
    """One class an example: a softmax over the logits, and the most probable class.

    Args:
        truth: targets were truth values, and so is what ``predict`` gives; everywhere else they are 0 and 1.
    """

    truth: bool = field(default=False, kw_only=True)
    problem_type: ClassVar[str | None] = None  # of ``config.json``; None: the field's default needs no word
    word: ClassVar[str] = "labels"  # what targets are called in messages
    measure: ClassVar[str | None] = (
        None  # what a run's lines and tables begin with; None: the recipe's choice
    )
    binary: ClassVar[bool] = False  # whether each logit is a yes or no of its own
    labels_given: ClassVar[bool] = True  # whether answers are labels
    joint: ClassVar[bool] = True  # whether a softmax over all logits makes the answers

    # --- raw targets ------------------------------------------------------------------------------

    def read(self, y: Any, origin: str = "labels") -> list[Any]:
        """The labels, checked; see ``check_labels``."""
        return list(check_labels(y, origin))

    def classes(self, labels: Sequence[Any], origin: str = "labels") -> list[Any]:
        """What the model tells apart, in the order of its logits; raises DataError for fewer than two."""
        return check_classes(labels, origin)

    def numbered(
        self, labels: Sequence[Any], classes: Sequence[Any], origin: str, rows: Sequence[int] | None = None
    ) -> np.ndarray:
        """Class numbers ``[n]`` int64; raises DataError for a label that is none of ``classes``."""
        labels = self.spelled(labels, classes)
        check_known(labels, classes, origin, rows)
        numbers = {label: i for i, label in enumerate(classes)}
        return np.array([numbers[label] for label in labels], np.int64)

    def spelled(self, labels: Sequence[Any], classes: Sequence[Any]) -> list[Any]:
        """The labels, those that mean one of ``classes`` written as it is."""
        return as_known(labels, classes, spelling=True)

    def strata(self, labels: Sequence[Any], targets: np.ndarray) -> Sequence[Any]:
        """What a random part of the examples keeps the shares of."""
        return targets.tolist()

    # --- training ---------------------------------------------------------------------------------

    def weights(self, targets: np.ndarray, classes: list[Any], train: Any) -> np.ndarray | None:
        """A weight an example with mean 1; None: all 1."""
        if train.pos_weight is not None:
            what = "pos_weight belongs to several labels an example"
            raise ConfigError(what, where="pos_weight", fix="Weigh classes with class_weight")
        return class_weights(targets, classes, train.class_weight)

    def criterion(self, targets: np.ndarray, classes: list[Any], train: Any) -> Callable | None:
        """The loss of logits and targets; None: cross-entropy over classes."""
        return None

    def solve(
        self, vectors: np.ndarray, targets: np.ndarray, weights: np.ndarray | None, seed: int
    ) -> SolvedHead:
        """The best linear head on vectors ``[n, D]`` of the training examples."""
        return solve_classes(vectors, targets, weights, seed)

    def figures(self, clf: Any, logits: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """What is known of the held-out examples after an epoch."""
        meter = self.meter(clf.classes_.tolist(), curves=False)
        meter.update(softmax(logits), targets)
        out = meter.result(bootstrap=0)
        return {"loss": out["log_loss"], "accuracy": out["accuracy"], "macro_f1": out["macro_f1"]}

    def threshold(self, train: Any, logits: np.ndarray, targets: np.ndarray) -> Any:
        """What a fit chooses on its held-out examples as ``threshold_``; None: nothing."""
        return None

    # --- answers ----------------------------------------------------------------------------------

    def chances(self, logits: np.ndarray, temperature: Any = 1.0) -> np.ndarray:
        """Probabilities ``[n, C]`` fp64, whose rows sum to 1."""
        return softmax(logits, temperature)

    def chances_of(self, logits: Tensor, temperature: Any = 1.0) -> Tensor:
        """The same of tensors, in their own number format."""
        return (logits / temperature).softmax(-1)

    def chosen(self, probabilities: np.ndarray, threshold: Any = None) -> np.ndarray:
        """Class numbers ``[n]``: the largest, or for two classes the threshold on the second; of more, the
        largest multiple of their thresholds ``[C]``."""
        if threshold is None:
            return probabilities.argmax(1)
        if np.ndim(threshold):
            return class_by_threshold(probabilities, threshold)
        return (probabilities[:, 1] >= threshold).astype(int)

    def labels(self, chosen: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """What ``chosen`` gave, as labels ``[n]``."""
        return classes[chosen]

    def returned(self, chosen: np.ndarray, classes: np.ndarray) -> Any:
        """What ``predict`` gives."""
        return self.as_given(self.labels(chosen, classes))

    def as_given(self, labels: np.ndarray) -> np.ndarray:
        """Labels ``[n]`` as the type of the training's; None stays."""
        if not self.truth or self.binary:
            return labels
        if labels.dtype != object:
            return labels.astype(bool)
        return np.array([None if label is None else bool(label) for label in labels], object)

    def sureness(self, probabilities: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """How sure each answer is, ``[n]``: the probability of its label."""
        return probabilities[np.arange(len(chosen)), chosen]

    def explained(self, probabilities: np.ndarray, threshold: Any) -> int:
        """The number of the label that an explanation of ``[C]`` is about where none is named."""
        return int(self.chosen(probabilities[None], threshold)[0])

    def named(self, target: int, probabilities: np.ndarray, classes: Sequence[Any]) -> Any:
        """What an explanation calls the answer of number ``target`` to one input, from its ``[C]``."""
        return classes[target]

    def meter(self, classes: list[Any], *, curves: bool = True) -> Any:
        """What counts right and wrong answers."""
        return ClassificationMeter(classes, curves=curves)

    # --- calibration ------------------------------------------------------------------------------

    def fit_temperature(self, logits: np.ndarray, targets: np.ndarray) -> Any:
        """The temperature with the lowest smoothed log loss."""
        return fit_temperature(logits, targets)

    def mistakes(self, logits: np.ndarray, targets: np.ndarray) -> Any:
        """How many of the likeliest answers are wrong: what a temperature rests on."""
        return int((logits.argmax(1) != targets).sum())

    def fit_threshold(self, probabilities: np.ndarray, targets: np.ndarray, metric: Any) -> Any:
        """The threshold that serves a metric best, of more than two classes one for each ``[C]``."""
        if probabilities.shape[1] != 2:
            return tune_class_thresholds(probabilities, targets, metric)[0]
        return tune_threshold(probabilities[:, 1], targets, metric)[0]

    def describe(self, probabilities: np.ndarray, targets: np.ndarray, resamples: int) -> dict[str, Any]:
        """Calibration error, log loss and the curve, for JSON."""
        return describe(probabilities, targets, resamples=resamples)

    # --- other programs ---------------------------------------------------------------------------

    def written(self, logits: np.ndarray) -> np.ndarray:
        """What a head gives in files that other programs read, from our logits ``[n, C]``."""
        return logits

    def apart(self, a: np.ndarray, b: np.ndarray) -> float:
        """How far two of such outputs are apart, at most."""
        return float(np.abs(a - b).max())

    # --- files ------------------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        """What ``glassformer.json`` says of the kind; nothing of one class an example."""
        return {"truth_values": True} if self.truth else {}

    def about_export(self, clf: Any) -> dict[str, Any]:
        """What ``onnx.json`` says of the kind."""
        below = getattr(clf, "abstain_below_", None)
        least = {} if below is None else {"abstain_below": below}
        return {"several": True} if self.binary else least

    def read_calibration(self, about: Mapping[str, Any], where: str, outputs: int) -> tuple[Any, Any]:
        """Temperature and threshold of a saved folder; raises CheckpointError for impossible ones."""
        temperature, threshold = real(dict(about), "temperature", where, 1.0), None
        if not COLDEST <= temperature <= HOTTEST:
            raise impossible_temperature(temperature, where)
        if isinstance(about.get("threshold"), list):
            threshold = _thresholds(about["threshold"], where, outputs)
        elif about.get("threshold") is not None:
            threshold = real(dict(about), "threshold", where, 0.5)
            if threshold > OVER_ONE:
                raise impossible_threshold(threshold, where)
        return temperature, threshold

    def sorts(self) -> bool:
        """Whether the classes of a file are brought into their order."""
        return True


def warn_of_spelling(labels: Sequence[Any], classes: Sequence[Any]) -> None:
    """Warn of labels that mean a class and are written otherwise: ``predict`` never gives them."""
    warn_of(other_spellings(each(labels), classes))


def warn_of(said: str) -> None:
    """Warn of what ``other_spellings`` found, if anything."""
    if said:
        fix = "they count as these, but as wrong in scikit-learn's metrics: write them as the model does"
        warnings.warn(f"{said}; {fix}", OtherSpellingWarning, stacklevel=outside())


def check_known(
    labels: Sequence[Any], classes: Sequence[Any], origin: str, rows: Sequence[int] | None = None
) -> None:
    """Raises DataError for a label, or one in a set, that is none of ``classes``."""
    known = set(classes)
    for i, given in enumerate(labels):
        for label in each([given]):
            if label not in known:
                known = f"Known: {', '.join(map(str, classes))}"
                everything = [*classes, *each(labels)]
                what, fix = about_labels(everything, f"label {label!r} was not seen in training", known)
                raise DataError(what, where=place(origin, i, rows), fix=fix)


def impossible_temperature(value: float, where: str) -> CheckpointError:
    what = f"temperature = {value:g} is none from {COLDEST:g} to {HOTTEST:g}"
    return CheckpointError(what, where=where, fix="Calibrate it again")


def _thresholds(values: list[Any], where: str, outputs: int) -> np.ndarray:
    """Those of several classes ``[C]``."""
    if len(values) != outputs:
        what = f"{len(values)} thresholds for {outputs} classes"
        raise CheckpointError(what, where=where, fix="Choose them again")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
            what = f"threshold = {shown(value)} is none between 0 and 1"
            raise CheckpointError(what, where=where, fix="Choose them again")
    return np.array(values, np.float64)


def impossible_threshold(value: float, where: str) -> CheckpointError:
    return CheckpointError(f"threshold = {value:g} is no probability", where=where, fix="Choose it again")
