"""The parts of one split put together: where their rows stand, and what their labels are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glassformer.data.checks import check_class_names
from glassformer.data.tables import Table
from glassformer.errors import DataError


def joined(parts: Sequence[Table], examples: int, labels: int) -> tuple[str, Sequence[int]]:
    """The origin and the rows of a split that several tables make up.

    Raises:
        DataError: some of them have labels, and some have none.
    """
    origin = " + ".join(table.origin for table in parts)
    if labels and labels != examples:
        raise DataError("some parts have labels and some have none", where=origin, fix="Label all or none")
    return origin, parts[0].rows if len(parts) == 1 else range(1, examples + 1)


def named_labels(labels: Sequence[Any], class_names: Sequence[str], table: Table) -> list[str]:
    """The names of numbers, by the names that the file itself gives.

    Raises:
        DataError: a number without a name, or a name that is no label, or stands there twice.
    """
    check_class_names(class_names, table.origin)
    for row, label in zip(table.rows, labels, strict=True):
        if not isinstance(label, int) or not 0 <= label < len(class_names):
            raise DataError(
                f"label {label!r} has no name",
                where=f"{table.origin}, row {row}",
                fix=f"The file names 0 to {len(class_names) - 1}: {', '.join(class_names)}",
            )
    return [class_names[int(label)] for label in labels]
