"""Several labels as columns of 0 and 1, one for each label: a table gets one column of lists instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from glassformer.config import listed
from glassformer.data.checks import is_missing
from glassformer.data.column_contents import (
    LABEL_COLUMNS,
    are_yes_no,
    is_constant,
    looks_like_labels,
    present,
    yes_or_no,
)
from glassformer.data.columns import tells_besides
from glassformer.data.label_sets import Unusable
from glassformer.data.spreadsheet import REVIEWED
from glassformer.data.tables import Table

BETWEEN = ","  # the names of columns that are given together


def named_together(names: Sequence[str], wanted: str | None) -> list[str]:
    """The columns that ``joy,anger,fear`` names; empty: it names one column, or none."""
    parts = [part.strip() for part in (wanted or "").split(BETWEEN)]
    several = len(parts) > 1 and wanted not in names
    return parts if several and all(part in names for part in parts) else []


def with_label_sets(
    table: Table, label: str | None, taken: Sequence[str | None] = (), *, guess: bool = False
) -> tuple[Table, str | None, str]:
    """A table with a column of lists, whose name joins those of the columns of 0 and 1; and its name.

    Args:
        label: as the user names the column, or several with commas between them.
        taken: columns that are no labels.
        guess: where no label is named, all columns of 0 and 1 are taken, if there are two or more and no
            other column could be the label.

    Returns:
        The table, the column of labels (None: to be found), and a sentence where it was found by itself.
    """
    names, said = named_together(table.names, label), ""
    if not names and label is None and guess:
        names = _found(table, taken)
        said = (
            f"several labels, found by what the columns hold: {listed(names)} have 1 where a label applies; "
        )
        said += "label_column names one of them alone"
    if not names:
        return table, label, ""
    joined = BETWEEN.join(names)

    def read(name: str) -> list[Any]:
        if name != joined:
            return table.read(name)
        columns = [table.read(own) for own in names]
        return [_set(names, cells) for cells in zip(*columns, strict=True)]

    return replace(table, names=(*table.names, joined), read=read), joined, said


def _set(names: Sequence[str], cells: Sequence[Any]) -> list[str] | Unusable:
    """The labels of a row, or what is wrong with it."""
    found = [yes_or_no(cell) for cell in cells]
    if None in found:
        at = found.index(None)
        cell = cells[at]
        what = "nothing" if is_missing(cell) else repr(cell)[:40]
        return Unusable(f"column {names[at]!r} has {what} where a column of a label has 0 or 1")
    return [name for name, there in zip(names, found, strict=True) if there]


def _found(table: Table, taken: Sequence[str | None]) -> list[str]:
    """All columns of 0 and 1; empty where there are fewer than two, or another could be the label."""
    free = [name for name in table.names if name not in taken and not name.startswith(REVIEWED)]
    if any(name.lower() in LABEL_COLUMNS for name in free):
        return []
    values = {name: table.read(name) for name in free}
    ours = [name for name in free if are_yes_no(values[name])]
    others = [name for name in free if name not in ours and looks_like_labels(values[name])]
    others = [name for name in others if not is_constant(present(values[name])) and not tells_besides(name)]
    return ours if len(ours) > 1 and not others else []
