"""Names and number formats of metrics, and whether lower values are better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from glassformer.evaluate import intervals

NARROW_SPACE = "\u202f"  # narrow no-break space, before units
EMPTY_CELL = "\u2013"  # en dash


def percent(share: float | None, digits: int = 1) -> str:
    """A share as text, such as "90.6 %"; only exactly 1 becomes "100 %", and only exactly 0 "0 %"."""
    if share is None:
        return EMPTY_CELL
    step = 10.0**-digits
    value = 100 * share
    if 0 < share < 1 and not step / 2 <= value < 100 - step / 2:
        return (
            f"<{NARROW_SPACE}{step:g}{NARROW_SPACE}%"
            if value < 50
            else f"{100 - step:.{digits}f}{NARROW_SPACE}%"
        )
    return f"{value:.{digits}f}{NARROW_SPACE}%"


def interval(bounds: Sequence[float] | None, digits: int = 1) -> str:
    """The bounds of an interval as text, such as "90.2 to 91.0 %"."""
    if not bounds:
        return EMPTY_CELL
    return f"{percent(bounds[0], digits).removesuffix(NARROW_SPACE + '%')} to {percent(bounds[1], digits)}"


def share_interval(share: float | None, bounds: Sequence[float] | None, n: int, digits: int = 1) -> str:
    """The 95 % interval of a share of ``n`` as text: "90.2 to 91.0 %", or for 1 "at least 97.8 %"."""
    if not n:
        return EMPTY_CELL
    if share is None or share not in (0, 1):
        return interval(bounds, digits)
    low, high = intervals.share_interval(share, n, bounds)  # bounds in older files may be from 1 to 1
    return f"at least {percent(low, digits)}" if share else f"at most {percent(high, digits)}"


def digits_for(n: int) -> int:
    """Number of significant decimals of a percentage of ``n`` examples."""
    return 2 if n >= 1000 else 1


@dataclass(frozen=True)
class Share:
    """A metric between 0 and 1 that is shown in percent."""

    name: str
    short: str = ""  # short name; empty: the name
    lower: bool = False  # whether lower values are better
    difference_heading = "points from baseline"
    unit_suffix = ", points"  # added to "difference" in headings
    limits = (0.0, 1.0)  # range of values

    def value(self, x: float | None, digits: int) -> str:
        return percent(x, digits)

    def interval(self, bounds: Sequence[float] | None, digits: int, share: float | None, n: int) -> str:
        """The interval of a share of ``n`` examples, as text."""
        return share_interval(share, bounds, n, digits) if bounds else EMPTY_CELL

    def difference(self, x: float, digits: int) -> str:
        return f"{100 * abs(x):.{digits}f} points"

    def with_sign(self, x: float, digits: int) -> str:
        return f"{100 * x:+.{digits}f}"

    def deviation(self, sd: float | None) -> str:
        return EMPTY_CELL if sd is None else f"{100 * sd:.2f}"


@dataclass(frozen=True)
class Plain(Share):
    """A metric that is not shown in percent: a correlation, R², or an error in the unit of the numbers."""

    form: str = ""  # format of values; empty: four significant digits for errors, otherwise fixed decimals
    bounds: str = ""  # format of interval bounds; empty: like values
    limits: tuple[float, float] = (-math.inf, math.inf)  # range of values
    difference_heading = "from baseline"
    unit_suffix = ""

    def value(self, x: float | None, digits: int) -> str:
        usual = "#.4g" if self.lower else f".{digits + 2}f"
        return EMPTY_CELL if x is None else f"{x:{self.form or usual}}"

    def interval(self, bounds: Sequence[float] | None, digits: int, share: float | None, n: int) -> str:
        if not bounds:
            return EMPTY_CELL
        form = self.bounds or self.form
        low, high = (f"{x:{form}}" if form else self.value(x, digits) for x in bounds)
        return f"{low} to {high}"

    def difference(self, x: float, digits: int) -> str:
        return self.value(abs(x), digits)

    def with_sign(self, x: float, digits: int) -> str:
        return f"{x:+#.4g}" if self.lower else f"{x:+.{digits + 2}f}"

    def deviation(self, sd: float | None) -> str:
        usual = ".2g" if self.lower else ".4f"
        return EMPTY_CELL if sd is None else f"{sd:{self.form or usual}}"
