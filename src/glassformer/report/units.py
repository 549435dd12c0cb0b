"""How a figure that models are compared by is written: shares in percent and points, numbers as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from glassformer.evaluate.metrics import CALLED
from glassformer.evaluate.number_compare import LOWER_IS_BETTER, MEASURES
from glassformer.report.tables import leading
from glassformer.report.wording import NONE, percent, share_interval


@dataclass(frozen=True)
class Share:
    """A share of examples, or a mean of such."""

    called: str
    from_baseline: str = "points from baseline"
    of_difference: str = ", points"
    lower: bool = False  # whether less of it is better

    def value(self, x: float | None, digits: int) -> str:
        return percent(x, digits)

    def between(self, bounds: Sequence[float] | None, digits: int, share: float | None, n: int) -> str:
        """The interval of a share of ``n``; of 0 or 1, how far from there it may be."""
        return share_interval(share, bounds, n, digits) if bounds else NONE

    def apart(self, x: float, digits: int) -> str:
        """A difference without its sign."""
        return f"{100 * abs(x):.{digits}f} points"

    def with_sign(self, x: float, digits: int) -> str:
        return f"{100 * x:+.{digits}f}"

    def scatter(self, sd: float | None) -> str:
        """A standard deviation."""
        return NONE if sd is None else f"{100 * sd:.2f}"


@dataclass(frozen=True)
class Plain(Share):
    """A number that is no share: a correlation, R², an error in the numbers' own unit."""

    from_baseline: str = "from baseline"
    of_difference: str = ""

    def value(self, x: float | None, digits: int) -> str:
        return NONE if x is None else f"{x:#.4g}" if self.lower else f"{x:.{digits + 2}f}"

    def between(self, bounds: Sequence[float] | None, digits: int, share: float | None, n: int) -> str:
        return f"{self.value(bounds[0], digits)} to {self.value(bounds[1], digits)}" if bounds else NONE

    def apart(self, x: float, digits: int) -> str:
        return self.value(abs(x), digits)

    def with_sign(self, x: float, digits: int) -> str:
        return f"{x:+#.4g}" if self.lower else f"{x:+.{digits + 2}f}"

    def scatter(self, sd: float | None) -> str:
        return NONE if sd is None else f"{sd:.2g}" if self.lower else f"{sd:.4f}"


def unit_of(measure: str) -> Share:
    """How a measure is written; an unknown one counts as accuracy."""
    if measure in MEASURES:
        return Plain(MEASURES[measure], lower=measure in LOWER_IS_BETTER)
    return Share(CALLED.get(measure, CALLED["accuracy"]))


def signed(figures: dict[str, Any], digits: int, unit: Share) -> str:
    """A difference from the baseline with its interval, "+1.2 (+0.3 to +2.1)"."""
    between = figures.get("difference_interval")
    if between is None:
        return NONE
    low, high = (unit.with_sign(x, digits) for x in between)
    return f"{unit.with_sign(figures['difference'], digits)} ({low} to {high})"


def better(figures: dict[str, Any], unit: Share) -> bool:
    """Whether an arm's figure is the better one beside the baseline's."""
    return figures["difference"] < 0 if unit.lower else figures["difference"] > 0


def leading_of(measure: str, scores: dict[str, Any]) -> list[tuple[str, str]]:
    """The two figures of a table of such scores, the chosen one first: key and what it is called."""
    if measure not in MEASURES:
        return leading(measure, scores)
    second = next(key for key in ("pearson", "mae", "spearman") if key != measure and key in scores)
    return [(measure, MEASURES[measure]), (second, MEASURES[second])]
