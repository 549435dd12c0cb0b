"""A shard of a Parquet file, and its rows in portions that fit in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from glassformer.data.parquet import batches, open_parquet, to_list
from glassformer.errors import DataError

AT_ONCE = 64 << 20  # bytes of inputs that are answered in one call
PIECE = 256  # rows that become Python's at a time


@dataclass(frozen=True)
class Shard:
    """Rows ``first`` to ``first + rows`` (from 0) of one column, and the file that their answers go to.

    ``pair`` is the column of the second texts, of pairs.
    """

    source: str
    column: str
    first: int
    rows: int
    target: str
    pair: str = ""


def in_portions(inputs: Iterator[Any]) -> Iterator[list[Any]]:
    """The inputs in lists that take no more than ``AT_ONCE`` bytes together, or hold a single one."""
    portion: list[Any] = []
    taken = 0
    for one in inputs:
        parts = one if isinstance(one, tuple) else (one,)
        size = sum(len(part) for part in parts if isinstance(part, str | bytes))
        if portion and taken + size > AT_ONCE:
            yield portion
            portion, taken = [], 0
        portion.append(one)
        taken += size
    if portion:
        yield portion


def read_rows(shard: Shard) -> Iterator[Any]:
    """A shard's values: texts, two of them where they are pairs, or the bytes of pictures.

    Only the row groups that hold them are read.
    """
    if shard.pair:
        sides = (replace(shard, column=name, pair="") for name in (shard.column, shard.pair))
        yield from zip(*map(read_rows, sides), strict=True)
        return
    file = open_parquet(shard.source)
    if shard.column not in file.schema_arrow.names:
        raise DataError(f"no column {shard.column!r}", where=shard.source)
    groups, before = [], 0
    start, end, row = shard.first, shard.first + shard.rows, 0
    for number in range(file.metadata.num_row_groups):
        count = file.metadata.row_group(number).num_rows
        if row < end and row + count > start:
            groups.append(number)
        elif row + count <= start:
            before = row + count
        row += count
    row = before
    for batch in batches(shard.source, shard.column, groups):
        if row + len(batch) > start:
            part = batch.slice(max(0, start - row), end - max(row, start))
            for piece in range(0, len(part), PIECE):
                values = to_list(part.slice(piece, PIECE), shard.source, max(row, start) + piece)
                yield from (_bytes_of(value) for value in values)
        row += len(batch)
        if row >= end:
            return


def _bytes_of(value: Any) -> Any:
    """A picture in the form of the ``datasets`` library as its bytes; paths in a file are not followed."""
    return value.get("bytes") if isinstance(value, dict) else value
