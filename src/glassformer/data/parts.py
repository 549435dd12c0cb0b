"""The parts of one split put together: where their rows stand, and what their labels are called."""

from __future__ import annotations

from collections.abc import Sequence

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
