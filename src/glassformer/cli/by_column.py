"""``evaluate --by COLUMN`` on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glassformer.cli.output import excerpt, show_table

WIDEST = 30  # characters of a value


def show_slices(found: Mapping[str, Any], measure: str) -> None:
    """A line for each value of the column, the most frequent first: examples and the leading figures."""
    from glassformer.cli.numbers import SHORT, between, shown
    from glassformer.evaluate.numbers import FIGURES
    from glassformer.report.tables import leading
    from glassformer.report.wording import bounds, count, digits_for, percent

    rows, heads = [], ()
    for group in found["groups"]:
        if group.get("kind") == "numbers":
            cells = [*(shown(group[key]) for key in FIGURES), between(group["r2_interval"])]
            heads = (*SHORT, "95 % interval of R²")
        else:
            (key, called), *others = leading(measure, group)
            digits = digits_for(group["n"])
            cells = [percent(group[key], digits), bounds(group, key)]
            cells += [percent(group[other], digits) for other, _ in others]
            heads = (called, "95 % interval", *(name for _, name in others))
        rows.append([excerpt(group["value"], WIDEST), count(group["n"]), *cells])
    columns = (found["column"], "examples", *heads)
    show_table(f"by {found['column']}", columns, rows, right=columns[1:])
