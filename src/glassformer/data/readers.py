"""What the readers of all kinds of data share: the request, the columns, the rows that can be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from glassformer.config import listed
from glassformer.data.dataset import Dataset
from glassformer.data.rejected import RejectedRow, summary, way_out
from glassformer.data.splits import limited
from glassformer.data.tables import Table
from glassformer.errors import DataError

D = TypeVar("D", bound=Dataset)
# How an example is made of a row, which raises DataError where it cannot be used, and the row's number.
Row = tuple[Callable[[], Any], int]


def check_request(source: str | Path, limit: int | None, fix: str = "", noun: str = "examples") -> None:
    """Raises DataError for a data set without a name (``fix`` says what can be named), or a limit below 1."""
    if limit is not None and limit < 1:
        raise DataError(f"{limit} {noun} a split", where="limit", fix="Give 1 or more")
    if not str(source):
        raise DataError("no data set is named", where="source", fix=fix)


def with_limit(dataset: D, limit: int | None, seed: int) -> D:
    """At most ``limit`` examples of each split, drawn with ``seed``, file order kept; None: all."""
    if limit is None:
        return dataset
    splits = {name: limited(split, limit, seed) for name, split in dataset.splits.items()}
    return replace(dataset, splits=splits)


def column_of(
    table: Table,
    given: str | None,
    usual: Sequence[str],
    what: str,
    key: str,
    *,
    lists: Sequence[str] | None = None,
) -> str:
    """The column of ``what``: the one that is named with ``key``, else the first with a usual name.

    Args:
        lists: columns of which the only one with lists is taken, where none has a usual name.

    Raises:
        DataError: no such column, or none or several that could be it.
    """
    table.check_columns(given)
    if given is not None:
        return given
    free = table.names if lists is None else lists
    for name in usual:
        if match := next((n for n in free if n.lower() == name), None):
            return match
    found = [name for name in lists or () if isinstance(next(iter(table.read(name)), None), list)]
    if len(found) == 1:
        return found[0]
    fix = f"Name it with {key}: {listed(table.names)}"
    raise DataError(f"no column of {what} is found", where=table.origin, fix=fix)


def read_rows(
    files: Sequence[Path],
    read: Callable[[Path], Iterable[Row]],
    rejected: list[RejectedRow] | None,
    noun: str,
) -> tuple[list[Any], str, Sequence[int]]:
    """The examples of a split, the origin that messages name, and the row of each example.

    Args:
        rejected: rows that cannot be used are left out and listed here; None: the first ends the reading.

    Raises:
        DataError: a row that cannot be used, or none is left.
    """
    examples: list[Any] = []
    rows: list[int] = []
    before, fix = len(rejected or ()), ""
    for file in files:
        with way_out(rejected):
            for make, row in read(file):
                try:
                    examples.append(make())
                except DataError as error:
                    if rejected is None:
                        raise
                    if len(rejected) == before:  # the row that the error names, if none can be used
                        fix = error.fix or ""
                    rejected.append(RejectedRow(str(file), row, error.what))
                else:
                    rows.append(row)
    origin = " + ".join(map(str, files))
    if not examples:
        mine = rejected[before:] if rejected else []
        what = f"no {noun} can be used" + (f"; {summary(mine, listed=False)}" if mine else "")
        raise DataError(what, where=origin, fix=fix or "Correct the file")
    return examples, origin, rows if len(files) == 1 else range(1, len(rows) + 1)
