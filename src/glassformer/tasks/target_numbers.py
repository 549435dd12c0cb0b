"""A number an example: the head's one output, standardized in training, given back in the numbers' unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor

from glassformer.checkpoints.settings import shown
from glassformer.data.numbers import LARGEST, check_numbers
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.evaluate.numbers import COVERAGE, NumberMeter, examples_needed, half_width, measured
from glassformer.tasks.target_classes import Classes
from glassformer.train.criteria import SquaredError

OUTPUT = "number"  # what the one output is called in lists of outputs
SAVED = "number"  # the kind's name in a folder


@dataclass(frozen=True)
class Numbers(Classes):
    """A number an example. The network learns ``(number - mean) / unit``.

    Args:
        mean: of the training numbers.
        unit: the power of two nearest to their standard deviation: the head takes it up, and gives it back,
            without losing a bit.
    """

    mean: float = 0.0
    unit: float = 1.0
    problem_type: ClassVar[str | None] = "regression"
    word: ClassVar[str] = "targets"
    measure: ClassVar[str | None] = "r2"
    joint: ClassVar[bool] = False
    labels_given: ClassVar[bool] = False

    @classmethod
    def fitted(cls, numbers: np.ndarray) -> Self:
        """
        Raises:
            DataError: all numbers are the same.
        """
        spread = float(numbers.std()) if len(numbers) else 0.0
        if not spread > 1e-12 * max(1e-100, float(np.abs(numbers).max(initial=0.0))):
            what = f"all numbers are {numbers[0]:g}" if len(numbers) else "no numbers"
            fix = "A regressor needs examples of at least two numbers"
            raise DataError(what, where="targets", fix=fix)
        return cls(float(numbers.mean()), 2.0 ** round(math.log2(spread)))

    # --- raw targets ------------------------------------------------------------------------------

    def read(self, y: Any, origin: str = "targets") -> list[Any]:
        return check_numbers(y, origin)

    def classes(self, labels: Sequence[Any], origin: str = "targets") -> list[Any]:
        return [OUTPUT]

    def numbered(
        self, labels: Sequence[Any], classes: Sequence[Any], origin: str, rows: Sequence[int] | None = None
    ) -> np.ndarray:
        """Standardized numbers ``[n]`` fp64."""
        return (np.asarray(check_numbers(labels, origin, rows), np.float64) - self.mean) / self.unit

    def strata(self, labels: Sequence[Any], targets: np.ndarray) -> Sequence[Any]:
        return [float(x) for x in targets]  # which a split takes apart by rank

    # --- training ---------------------------------------------------------------------------------

    def weights(self, targets: np.ndarray, classes: list[Any], train: Any) -> np.ndarray | None:
        return None

    def criterion(self, targets: np.ndarray, classes: list[Any], train: Any) -> Callable | None:
        return SquaredError()

    def figures(self, clf: Any, logits: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """The standardized squared error as ``loss``, and R², absolute error (in the numbers' unit) and
        correlations; one that is not defined is 0."""
        found = measured(np.asarray(logits[:, 0], np.float64), targets)
        mae = (found["mae"] or 0.0) * self.unit
        kept = {key: found[key] or 0.0 for key in ("r2", "pearson", "spearman")}
        return {"loss": found["mse"] or 0.0, "mae": mae, **kept}

    # --- answers ----------------------------------------------------------------------------------

    def chances(self, logits: np.ndarray, temperature: Any = 1.0) -> np.ndarray:
        """Numbers ``[n, 1]`` fp64 in their own unit."""
        return np.asarray(logits, np.float64) * self.unit + self.mean

    def chances_of(self, logits: Tensor, temperature: Any = 1.0) -> Tensor:
        return logits * self.unit + self.mean

    def chosen(self, probabilities: np.ndarray, threshold: Any = None) -> np.ndarray:
        """The numbers ``[n]``."""
        return np.asarray(probabilities)[:, 0]

    def labels(self, chosen: np.ndarray, classes: np.ndarray) -> np.ndarray:
        return chosen

    def sureness(self, probabilities: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """``[n]`` NaN: a number has no probability, but an interval."""
        return np.full(len(chosen), np.nan)

    def explained(self, probabilities: np.ndarray, threshold: Any) -> int:
        return 0

    def named(self, target: int, probabilities: np.ndarray, classes: Sequence[Any]) -> Any:
        return f"{float(probabilities[0]):.6g}"

    def meter(self, classes: list[Any], *, curves: bool = True) -> Any:
        return NumberMeter(self.mean, self.unit)

    # --- calibration ------------------------------------------------------------------------------

    def fit_temperature(self, logits: np.ndarray, targets: np.ndarray) -> Any:
        what = "numbers have intervals, not a temperature"
        fix = "Use predict_interval; calibrate(X, y) of a regressor takes them from other examples"
        raise ConfigError(what, where="calibrate", fix=fix)

    def fit_threshold(self, probabilities: np.ndarray, targets: np.ndarray, metric: Any) -> Any:
        raise ConfigError("numbers have no threshold", where="threshold", fix="Leave it out")

    # --- other programs ---------------------------------------------------------------------------

    def written(self, logits: np.ndarray) -> np.ndarray:
        return self.chances(logits)

    def apart(self, a: np.ndarray, b: np.ndarray) -> float:
        """As a share of the largest number, where that is above 1: fp32 holds seven digits of it."""
        return float(np.abs(a - b).max() / max(1.0, float(np.abs(b).max())))

    # --- files ------------------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        return {"targets": SAVED, "mean": self.mean, "unit": self.unit}

    def about_export(self, clf: Any) -> dict[str, Any]:
        """That the output is a number, and how far an interval of 90 % reaches (None: unknown)."""
        known = len(clf.errors_) >= examples_needed(COVERAGE)
        half = half_width(clf.errors_, COVERAGE) if known else None
        return {"number": True, "coverage": COVERAGE, "half_width": half}

    @classmethod
    def saved(cls, about: Mapping[str, Any], where: str) -> Self:
        """The kind that a folder describes.

        Raises:
            CheckpointError: a mean or a unit that can be none.
        """
        mean, unit = about.get("mean", 0.0), about.get("unit", 1.0)
        for name, value in (("mean", mean), ("unit", unit)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
                raise CheckpointError(f"{name} = {shown(value)} is no number", where=where)
        if unit <= 0 or math.frexp(unit)[0] != 0.5:
            raise CheckpointError(f"unit = {shown(unit)} is no power of two", where=where)
        return cls(float(mean), float(unit))

    def read_calibration(self, about: Mapping[str, Any], where: str, outputs: int) -> tuple[Any, Any]:
        return 1.0, None

    def sorts(self) -> bool:
        return False
