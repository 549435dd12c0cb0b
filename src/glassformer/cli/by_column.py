"""``evaluate --by COLUMN`` on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glassformer.cli.output import excerpt, one_line, show_table

WIDEST = 30  # characters of a value


def show_slices(found: Mapping[str, Any], measure: str) -> None:
    """A line for each value of the column, the most frequent first: examples and the leading figures, which
    fit 80 characters."""
    from glassformer.cli.numbers import between, shown
    from glassformer.report.tables import leading
    from glassformer.report.wording import bounds, count, digits_for, percent

    rows: list[list[str]] = []
    heads: tuple[str, ...] = ()
    for group in found["groups"]:
        if group.get("kind") == "numbers":
            cells = [shown(group["r2"]), between(group["r2_interval"]), shown(group["mae"])]
            heads = ("R²", "95 % interval", "MAE")
        else:
            (key, called), *others = leading(measure, group)
            digits = digits_for(group["n"])
            cells = [percent(group[key], digits), bounds(group, key)]
            cells += [percent(group[other], digits) for other, _ in others]
            heads = (called, "95 % interval", *(name for _, name in others))
        rows.append([named(group), count(group["n"]), *cells])
    column = excerpt(one_line(found["column"]), WIDEST)
    columns = (f"{column} ", "examples", *heads)  # a space: no name of ours, which would stand to the right
    show_table(f"by {column}", columns, rows, right=columns[1:])


def named(group: Mapping[str, Any]) -> str:
    """What a group is called in the table."""
    if group["value"] is None:
        return f"({group['values']:,} rarer values)"
    return excerpt(group["value"], WIDEST) or "(empty)"
