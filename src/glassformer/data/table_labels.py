"""The labels in a column of a table: names, numbers, lists of either, or names joined in one cell."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from glassformer.config import listed
from glassformer.data.checks import check_class_names, check_labels, is_missing
from glassformer.data.column_contents import (
    LABEL_COLUMNS,
    are_yes_no,
    is_constant,
    looks_like_labels,
    present,
    yes_or_no,
)
from glassformer.data.columns import free_of, tells_besides
from glassformer.data.label_kinds import what_labels_are, whole_number
from glassformer.data.label_sets import (
    LabelSet,
    Unusable,
    are_sets,
    check_sets,
    each,
    holds_sets,
    of_column,
)
from glassformer.data.tables import Table
from glassformer.errors import DataError

WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}").fullmatch  # no two of which are one number


def read_labels(
    table: Table, column: str, class_names: Sequence[str], separator: str | None = None
) -> Sequence[Any]:
    """The labels, by name where the file has names; none if all are -1, the ``datasets`` sign for that.

    Args:
        separator: between the names in a cell of several labels; None: a cell is one label, or a list.

    Raises:
        DataError: a label that cannot be one; the row is named.
    """
    values = table.read(column)
    if separator is not None or holds_sets(values):
        sets = check_sets(of_column(values, separator), table.origin, table.rows)
        return named_labels(sets, class_names, table) if class_names else sets
    if not table.typed:
        values = [value.strip() for value in values]
    elif class_names and all(value == -1 for value in values):
        return []
    try:
        labels = check_labels(values, table.origin, table.rows)
    except DataError as error:
        kind = what_labels_are(values)
        if kind is None or kind[0] in error.what:
            raise
        raise DataError(f"{error.what}: {kind[0]}", where=error.where, fix=kind[1]) from None
    return named_labels(labels, class_names, table) if class_names else labels


def column_checks(table: Table, label: str | None, separator: str | None) -> dict[str, Callable] | None:
    """Column -> what raises for a value of it, where labels are sets or have names; None: the usual check."""
    if label is None:
        return None
    values = table.read(label)
    if separator is None and not holds_sets(values):
        names = table.class_names.get(label, ())
        if not names or all(value == -1 for value in values):
            return None
        return {label: lambda cells: [_named(own, names, table, 0) for own in check_labels(cells)]}

    return {label: lambda values: check_sets(of_column(values, separator))}


def by_name(labels: Sequence[Any], class_names: Sequence[str], table: Table) -> Sequence[Any]:
    """The labels of a file without names for its numbers, by those of the file before it.

    Where all are names already they stay; else all are numbers, or none is: what both could be is refused.

    Raises:
        DataError: a number without a name, or beside names; its row is named.
    """
    every = each(labels)
    numbers = {label: whole_number(label) for label in every if label not in class_names}
    if not class_names or all(number is None for number in numbers.values()):
        return labels
    if {*numbers.values()} == {-1} and len(numbers) == len({*every}):
        return []
    if all(whole_number(label) is not None for label in every):
        numbers = {label: whole_number(label) for label in every}

    return _mapped(
        labels, table, lambda label, row: _named(numbers.get(label, label), class_names, table, row)
    )


def _mapped(labels: Sequence[Any], table: Table, name: Callable[[Any, int], Any]) -> list[Any]:
    """Each label of a table, or each of a set of them, as ``name`` has it, which is told the row."""
    both = zip(table.rows, labels, strict=True)
    if are_sets(labels):
        return [LabelSet(sorted(name(label, row) for label in own)) for row, own in both]
    return [name(label, row) for row, label in both]


def named_labels(labels: Sequence[Any], class_names: Sequence[str], table: Table) -> list[Any]:
    """The names of numbers, by the names that the file itself gives.

    Raises:
        DataError: a number without a name, or a name that is no label, or stands there twice.
    """
    check_class_names(class_names, table.origin)
    return _mapped(labels, table, lambda label, row: _named(label, class_names, table, row))


def _named(label: Any, class_names: Sequence[str], table: Table, row: int) -> str:
    if not isinstance(label, int) or not 0 <= label < len(class_names):
        fix = f"The file names 0 to {len(class_names) - 1}: {', '.join(class_names)}"
        raise DataError(f"label {label!r} has no name", where=f"{table.origin}, row {row}", fix=fix)
    return class_names[label]


def whole_numbers(splits: Mapping[str, Any], untyped: set[str]) -> dict[str, Any]:
    """CSV knows text only: if every label that is text is a whole number, those of CSV become ``int``."""
    texts = {k: {x for x in each(v.labels) if isinstance(x, str)} for k, v in splits.items()}
    if any(found and (k not in untyped or not all(map(WHOLE, found))) for k, found in texts.items()):
        return dict(splits)
    out = dict(splits)
    for name in untyped & splits.keys():
        if (labels := splits[name].labels) is not None:
            whole = [LabelSet(sorted({*map(int, own)})) if are_sets(labels) else int(own) for own in labels]
            out[name] = replace(splits[name], labels=whole)
    return out


# --- several labels as columns of 0 and 1 ---------------------------------------------------------
# One for each label: a table gets one column of lists instead.

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
        said = f"several labels, found by what the columns hold: {listed(names)} have 1 where a label "
        said += "applies; label_column names one of them alone"
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
    free = free_of(table, *taken)
    if any(name.lower() in LABEL_COLUMNS for name in free):
        return []
    values = {name: table.read(name) for name in free}
    ours = [name for name in free if are_yes_no(values[name])]
    others = [name for name in free if name not in ours and looks_like_labels(values[name])]
    others = [name for name in others if not is_constant(present(values[name])) and not tells_besides(name)]
    return ours if len(ours) > 1 and not others else []
