"""Several labels an example, or none: a sigmoid over each logit, and a threshold a label."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from glassformer.checkpoints.settings import shown
from glassformer.config import label_text, nearest
from glassformer.data.checks import check_classes
from glassformer.data.label_sets import (
    LabelSet,
    as_sets,
    check_sets,
    each,
    indicator,
    is_matrix,
    names_of_matrix,
    read_matrix,
)
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.evaluate.label_sets import (
    HALF,
    LabelSetMeter,
    binary_loss,
    describe_labels,
    fit_temperatures,
    sigmoid,
    tune_thresholds,
)
from glassformer.targets.multiclass import (
    COLDEST,
    HOTTEST,
    OVER_ONE,
    Classes,
    check_known,
    impossible_temperature,
    impossible_threshold,
)
from glassformer.train.loop import INSTEAD
from glassformer.train.objectives import BinaryCrossEntropy
from glassformer.train.solved_head import SolvedHead, solve_label_sets


@dataclass(frozen=True)
class LabelSets(Classes):
    """Several labels an example, or none: a sigmoid over each logit, and a threshold a label.

    Args:
        matrix: targets are a 0/1 matrix, and so are answers; else both are sets of labels.
        columns: of the matrix that was read last; they are the classes.
    """

    matrix: bool = False
    columns: tuple[Any, ...] = ()
    problem_type: ClassVar[str | None] = "multi_label_classification"
    measure: ClassVar[str | None] = "macro_f1"
    binary: ClassVar[bool] = True
    joint: ClassVar[bool] = False

    def read(self, y: Any, origin: str = "labels") -> list[Any]:
        if not is_matrix(y):
            return check_sets(y, origin)
        sets, labels = read_matrix(y, origin)
        if self.columns and len(labels) != len(self.columns):
            what = f"{len(labels)} columns where training had {len(self.columns)} labels"
            raise DataError(what, where=origin, fix="Give one column for each label of the training")
        if self.columns and names_of_matrix(y) is None:  # a plain array has no names of its own
            return [LabelSet(self.columns[k] for k in given) for given in sets]
        return list(sets)

    def classes(self, labels: Sequence[Any], origin: str = "labels") -> list[Any]:
        return list(self.columns) if self.columns else check_classes(each(labels), origin)

    def numbered(
        self, labels: Sequence[Any], classes: Sequence[Any], origin: str, rows: Sequence[int] | None = None
    ) -> np.ndarray:
        """``[n, K]`` fp32, 1 where an example has a label."""
        labels = self.spelled(labels, classes)
        check_known(labels, classes, origin, rows)
        return indicator(labels, classes)

    def spelled(self, labels: Sequence[Any], classes: Sequence[Any]) -> list[Any]:
        """The sets, those labels that mean one of ``classes`` written as it is, and in their order."""
        known = dict(zip(every := each(labels), super().spelled(every, classes), strict=True))
        place = {label: i for i, label in enumerate(classes)}
        return [
            LabelSet(sorted({known[label] for label in given}, key=lambda x: place.get(x, len(place))))
            for given in labels
        ]

    def strata(self, labels: Sequence[Any], targets: np.ndarray) -> Sequence[Any]:
        return labels

    def weights(self, targets: np.ndarray, classes: list[Any], train: Any) -> np.ndarray | None:
        if train.class_weight is not None:
            what = "class_weight weighs examples of one class each"
            raise ConfigError(what, where="class_weight", fix="Weigh several labels with pos_weight")
        return None

    def criterion(self, targets: np.ndarray, classes: list[Any], train: Any) -> Callable | None:
        return BinaryCrossEntropy(pos_weights(targets, classes, train.pos_weight), train.label_smoothing)

    def solve(
        self, vectors: np.ndarray, targets: np.ndarray, weights: np.ndarray | None, seed: int
    ) -> SolvedHead:
        return solve_label_sets(vectors, targets, weights, seed)

    def figures(self, clf: Any, logits: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        p = sigmoid(logits)
        cut = self.threshold(clf.configs()["train"], logits, targets)
        meter = self.meter(clf.classes_.tolist(), curves=False)
        meter.update(p, targets, predicted=self.chosen(p, cut))
        out = meter.result(bootstrap=0)
        kept = {key: out[key] for key in ("accuracy", "macro_f1", "micro_f1")}
        if clf.monitor == "accuracy":  # whole sets are seldom right, and thresholds do not aim at them
            kept[INSTEAD] = out["macro_f1"]
        return {"loss": binary_loss(logits, targets)} | kept

    def threshold(self, train: Any, logits: np.ndarray, targets: np.ndarray) -> Any:
        """The threshold of each label with the best F1 ``[K]``."""
        return tune_thresholds(sigmoid(logits), targets) if train.tune_thresholds else None

    def chances(self, logits: np.ndarray, temperature: Any = 1.0) -> np.ndarray:
        """Probabilities ``[n, K]`` fp64, each of its own label."""
        return sigmoid(logits, temperature)

    def chances_of(self, logits: Tensor, temperature: Any = 1.0) -> Tensor:
        each_one = torch.as_tensor(temperature, dtype=logits.dtype, device=logits.device)
        return (logits / each_one).sigmoid()

    def chosen(self, probabilities: np.ndarray, threshold: Any = None) -> np.ndarray:
        """``[n, K]`` bool: the labels that reach their thresholds, one half where none was chosen."""
        return probabilities >= (HALF if threshold is None else np.asarray(threshold))

    @staticmethod
    def thresholds(threshold: Any, classes: Sequence[Any]) -> np.ndarray:
        """The threshold of each label ``[K]``."""
        return np.full(len(classes), HALF) if threshold is None else np.asarray(threshold, np.float64)

    def labels(self, chosen: np.ndarray, classes: np.ndarray) -> np.ndarray:
        return as_sets(chosen, classes.tolist())

    def returned(self, chosen: np.ndarray, classes: np.ndarray) -> Any:
        """A 0/1 matrix where training had one (of truth values where they were), else a list of tuples."""
        if self.matrix:
            return chosen.astype(bool if self.truth else np.int64)
        return list(map(tuple, self.labels(chosen, classes)))

    def sureness(self, probabilities: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """``[n]``: the probability of the least sure label that is given; of none, that of the likeliest
        label being absent."""
        given = np.where(chosen, probabilities, np.inf).min(1)
        return np.where(chosen.any(1), given, 1 - probabilities.max(1))

    def explained(self, probabilities: np.ndarray, threshold: Any) -> int:
        return int(probabilities.argmax())

    def meter(self, classes: list[Any], *, curves: bool = True) -> Any:
        return LabelSetMeter(classes, curves=curves)

    def fit_temperature(self, logits: np.ndarray, targets: np.ndarray) -> Any:
        """That of each label ``[K]``."""
        return fit_temperatures(logits, targets)

    def mistakes(self, logits: np.ndarray, targets: np.ndarray) -> Any:
        """Of each label ``[K]``."""
        return ((logits > 0) != targets).sum(0).tolist()

    def fit_threshold(self, probabilities: np.ndarray, targets: np.ndarray, metric: Any) -> Any:
        if metric not in ("f1", "macro_f1"):
            what = f"a threshold a label serves its F1, not {metric}"
            raise ConfigError(what, where="threshold", fix="Use --threshold f1")
        return tune_thresholds(probabilities, targets)

    def describe(self, probabilities: np.ndarray, targets: np.ndarray, resamples: int) -> dict[str, Any]:
        return describe_labels(probabilities, targets, resamples=resamples)

    def about(self) -> dict[str, Any]:
        return super().about() | {"targets": "label-matrix" if self.matrix else "label-sets"}

    def read_calibration(self, about: Mapping[str, Any], where: str, outputs: int) -> tuple[Any, Any]:
        temperature, threshold = (
            _numbers(about.get(key), key, where, outputs) for key in ("temperature", "threshold")
        )
        temperature = 1.0 if temperature is None else temperature
        if not np.all((np.asarray(temperature) >= COLDEST) & (np.asarray(temperature) <= HOTTEST)):
            raise impossible_temperature(float(np.max(temperature)), where)
        if threshold is not None and np.max(threshold) > OVER_ONE:
            raise impossible_threshold(float(np.max(threshold)), where)
        return temperature, threshold

    def sorts(self) -> bool:
        return not self.matrix


def spread(rows: np.ndarray, own: Sequence[Any], classes: Sequence[Any], instead: float) -> np.ndarray:
    """Columns of the labels ``own`` as those of ``classes`` ``[n, K]``, ``instead`` where there is none."""
    out = np.full((len(rows), len(classes)), instead)
    out[:, [list(classes).index(label) for label in own]] = rows
    return out


def pos_weights(targets: np.ndarray, classes: list[Any], asked: Any) -> tuple[float, ...] | None:
    """What a yes of each label counts ``[K]``; None: 1.

    Raises:
        ConfigError: another word, a label that is none, or a weight that cannot be one.
    """
    if asked is None:
        return None
    if asked in ("balanced", "root"):
        has = targets.sum(0)
        ratio = (len(targets) - has) / np.maximum(has, 1)
        return tuple((np.sqrt(ratio) if asked == "root" else ratio).clip(1e-3, 1e3).tolist())
    if isinstance(asked, Real):
        return (float(asked),) * len(classes)
    if not isinstance(asked, Mapping):
        what = f"{asked!r} is no weighting"
        raise ConfigError(what, where="pos_weight", fix="Use balanced, root, a number or {label: weight}")
    by_text = {label_text(label): weight for label, weight in asked.items()}
    for label, weight in by_text.items():
        if label not in map(str, classes):
            fix = nearest(label, [*map(str, classes)])
            raise ConfigError(f"no label {label!r}", where="pos_weight", fix=fix)
        if not isinstance(weight, Real) or not 1e-6 <= float(weight) <= 1e6:
            raise ConfigError(f"{weight!r} is no weight", where="pos_weight", fix="Use 1e-6 to 1e6")
    return tuple(float(by_text.get(str(label), 1.0)) for label in classes)


def _numbers(value: Any, key: str, where: str, outputs: int) -> Any:
    """A number, or one for each output ``[K]``; None stays."""
    many = isinstance(value, list)
    for one in value if many else [value] if value is not None else []:
        if isinstance(one, bool) or not isinstance(one, int | float) or not np.isfinite(one):
            raise CheckpointError(f"{key} = {shown(value)} holds no number", where=where)
    if many and len(value) != outputs:
        what = f"{len(value)} numbers under {key!r} for {outputs} labels"
        raise CheckpointError(what, where=where)
    return np.array(value, np.float64) if many else value
