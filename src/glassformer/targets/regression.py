"""A number an example: the head's one output, standardized in training, given back in the numbers' unit.

Where logarithms are learned these are standardized, and answers are numbers all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor

from glassformer.checkpoints.settings import shown
from glassformer.data.numbers import (
    HIGHEST,
    LARGEST,
    Scale,
    check_numbers,
    check_positive,
    off_scale,
    on_scale,
)
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.evaluate.numbers import COVERAGE, NumberMeter, examples_needed, half_width, measured
from glassformer.targets.multiclass import Classes
from glassformer.train.objectives import SquaredError
from glassformer.train.solved_head import SolvedHead, solve_numbers

OUTPUT = "number"  # what the one output is called in lists of outputs
SAVED: dict[str, Scale] = {"number": "linear", "log-number": "log"}  # the kind's names in a folder
ON_HUB: dict[Scale, str] = {  # as ``transformers`` calls the one output of a regression; ours for logarithms
    "linear": "LABEL_0",
    "log": "log(number)",
}


@dataclass(frozen=True)
class Numbers(Classes):
    """A number an example. The network learns ``(number - mean) / unit``, of numbers or their logarithms.

    Args:
        mean: of the training numbers, or of their logarithms.
        unit: the power of two nearest to their standard deviation: the head takes it up, and gives it back,
            without losing a bit.
        scale: ``log``: natural logarithms are learned, and numbers are above 0.
    """

    mean: float = 0.0
    unit: float = 1.0
    scale: Scale = "linear"
    problem_type: ClassVar[str | None] = "regression"
    word: ClassVar[str] = "targets"
    measure: ClassVar[str | None] = "r2"
    joint: ClassVar[bool] = False
    labels_given: ClassVar[bool] = False

    @classmethod
    def fitted(cls, numbers: np.ndarray, scale: Scale = "linear") -> Self:
        """
        Raises:
            DataError: all numbers are the same, or one has no logarithm where these are learned.
        """
        given = numbers
        if scale == "log":
            check_positive(numbers.tolist(), "targets")
            numbers = on_scale(numbers, scale)
        spread = float(numbers.std()) if len(numbers) else 0.0
        if not spread > 1e-12 * max(1e-100, float(np.abs(numbers).max(initial=0.0))):
            what = f"all numbers are {given[0]:g}" if len(numbers) else "no numbers"
            fix = "A regressor needs examples of at least two numbers"
            if len(numbers) and given.min() < given.max():
                what = f"{given.min():.17g} to {given.max():.17g} differ by too little for their size"
                fix = "Subtract a constant, or measure them in another unit"
            raise DataError(what, where="targets", fix=fix)
        return cls(float(numbers.mean()), 2.0 ** round(math.log2(spread)), scale)

    # --- raw targets ------------------------------------------------------------------------------

    def read(self, y: Any, origin: str = "targets") -> list[Any]:
        return check_numbers(y, origin)

    def classes(self, labels: Sequence[Any], origin: str = "targets") -> list[Any]:
        return [OUTPUT]

    def numbered(
        self, labels: Sequence[Any], classes: Sequence[Any], origin: str, rows: Sequence[int] | None = None
    ) -> np.ndarray:
        """Standardized numbers ``[n]`` fp64."""
        return self.standardized(check_numbers(labels, origin, rows), origin, rows)

    def standardized(
        self, numbers: Sequence[float], origin: str = "targets", rows: Sequence[int] | None = None
    ) -> np.ndarray:
        """What the network learns of numbers ``[n]``, fp64; raises DataError for one without a logarithm."""
        if self.scale == "log":
            check_positive(numbers, origin, rows)
        return (on_scale(numbers, self.scale) - self.mean) / self.unit

    def own(self, standardized: Any) -> np.ndarray:
        """Standardized numbers in their own unit, fp64."""
        return off_scale(np.asarray(standardized, np.float64) * self.unit + self.mean, self.scale)

    def strata(self, labels: Sequence[Any], targets: np.ndarray) -> Sequence[Any]:
        return [float(x) for x in targets]  # which a split takes apart by rank

    # --- training ---------------------------------------------------------------------------------

    def weights(self, targets: np.ndarray, classes: list[Any], train: Any) -> np.ndarray | None:
        return None

    def criterion(self, targets: np.ndarray, classes: list[Any], train: Any) -> Callable | None:
        return SquaredError()

    def solve(
        self, vectors: np.ndarray, targets: np.ndarray, weights: np.ndarray | None, seed: int
    ) -> SolvedHead:
        return solve_numbers(vectors, targets, weights, seed)

    def figures(self, clf: Any, logits: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """The standardized squared error as ``loss``, and R², absolute error (in the numbers' unit) and
        correlations; one that is not defined is 0."""
        found = measured(np.asarray(logits[:, 0], np.float64), targets)
        loss, mae = found["mse"] or 0.0, (found["mae"] or 0.0) * self.unit
        if self.scale == "log":
            found = measured(self.own(logits[:, 0]), self.own(targets))
            mae = found["mae"] or 0.0
        kept = {key: found[key] or 0.0 for key in ("r2", "pearson", "spearman")}
        return {"loss": loss, "mae": mae, **kept}

    # --- answers ----------------------------------------------------------------------------------

    def chances(self, logits: np.ndarray, temperature: Any = 1.0) -> np.ndarray:
        """Numbers ``[n, 1]`` fp64 in their own unit."""
        return self.own(logits)

    def chances_of(self, logits: Tensor, temperature: Any = 1.0) -> Tensor:
        """Numbers ``[n, 1]`` fp64: fp32 has no digits left for a spread of 1 around 10,000,000."""
        found = logits.double() * self.unit + self.mean
        return found.clamp(-HIGHEST, HIGHEST).exp() if self.scale == "log" else found

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
        return self.shown(float(probabilities[0]))

    def shown(self, number: float) -> str:
        """A number with as many digits as tell six of a standard deviation apart: 10000000.25 of prices
        that scatter by 1."""
        spread = self.unit * (abs(number) if self.scale == "log" else 1.0)
        beyond = math.log10(abs(number) / spread) if number and spread else 0.0
        return f"{number:.{min(6 + max(0, math.ceil(beyond)), 17)}g}"

    def meter(self, classes: list[Any], *, curves: bool = True) -> Any:
        return NumberMeter(self.mean, self.unit, self.scale)

    # --- calibration ------------------------------------------------------------------------------

    def fit_temperature(self, logits: np.ndarray, targets: np.ndarray) -> Any:
        what = "numbers have intervals, not a temperature"
        fix = "Use predict_interval; calibrate(X, y) of a regressor takes them from other examples"
        raise ConfigError(what, where="calibrate", fix=fix)

    def fit_threshold(self, probabilities: np.ndarray, targets: np.ndarray, metric: Any) -> Any:
        raise ConfigError("numbers have no threshold", where="threshold", fix="Leave it out")

    # --- other programs ---------------------------------------------------------------------------

    def written(self, logits: np.ndarray) -> np.ndarray:
        """As the head in another program's folder answers: numbers, or their logarithms."""
        return np.asarray(logits, np.float64) * self.unit + self.mean

    def apart(self, a: np.ndarray, b: np.ndarray) -> float:
        """In standard deviations of the training numbers, or of their logarithms."""
        return float(np.abs(a - b).max() / self.unit)

    # --- files ------------------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        name = next(name for name, scale in SAVED.items() if scale == self.scale)
        return {"targets": name, "mean": self.mean, "unit": self.unit}

    def about_export(self, clf: Any) -> dict[str, Any]:
        """That the output is a number, and how far an interval of 90 % reaches (None: unknown): its half
        width, or the factor up and down where logarithms are learned."""
        known = len(clf.errors_) >= examples_needed(COVERAGE)
        half = half_width(clf.errors_, COVERAGE) if known else None
        about = {"number": True, "coverage": COVERAGE}
        if self.scale == "log":
            factor = None if half is None else math.exp(min(half, HIGHEST))
            return about | {"half_width": None, "factor": factor}
        return about | {"half_width": half}

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
        return cls(float(mean), float(unit), SAVED[about.get("targets", "number")])

    def read_calibration(self, about: Mapping[str, Any], where: str, outputs: int) -> tuple[Any, Any]:
        return 1.0, None

    def sorts(self) -> bool:
        return False
