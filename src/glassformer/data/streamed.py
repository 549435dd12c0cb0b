"""Rows of a CSV, TSV or JSON Lines file of any size, one at a time: what ``read_table`` gives, not kept.

The file is gone through several times (encoding, names, a sample of columns, rows) rather than kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from glassformer.data.column_contents import looked_at
from glassformer.data.delimiter import delimiter_of
from glassformer.data.files import ESCAPE
from glassformer.data.parquet import open_parquet, partitions
from glassformer.data.row_errors import NOT_UTF8
from glassformer.data.spreadsheet import plain_under
from glassformer.data.tables import (
    MAX_COLUMNS,
    READERS,
    Refuse,
    Table,
    check_names,
    encoding_errors,
    no_rows,
    objects_in,
    pass_over,
    too_many,
    whole_records,
)
from glassformer.errors import DataError

STREAMED = (
    ".csv",
    ".tsv",
    ".jsonl",
    ".ndjson",
)  # a .json file is one array, and Parquet has readers of its own


def names_in(path: Path) -> tuple[str, ...] | None:
    """The columns of a CSV, TSV or Parquet file, of which no row is read; None: the file does not say, or
    cannot be read, which its reader tells.
    """
    suffix = path.suffix.lower()
    if not path.is_file() or suffix not in (*STREAMED[:2], ".parquet"):
        return None
    with suppress(DataError):
        if suffix == ".parquet":
            return tuple(dict.fromkeys([*open_parquet(path).schema_arrow.names, *partitions(path)]))
        records = whole_records(path, delimiter_of(path, ESCAPE), pass_over, ESCAPE)
        names = tuple(next(records, (0, []))[1])
        return None if not names or any("\0" in name or NOT_UTF8(name) for name in names) else names
    return None


class StreamedTable:
    """A file's names and the number of its rows; ``rows`` goes through it again.

    Args:
        path: one whose name ends as ``STREAMED`` says.
        refuse: called with a row that is ragged or no JSON object, in the first pass alone; where it returns,
            the row is left out. A key that a JSON object lacks is None.

    Raises:
        DataError: as ``read_table``.
    """

    def __init__(self, path: Path, refuse: Refuse):
        self.path = path
        self._errors = encoding_errors(path, refuse)
        delimited = READERS[path.suffix.lower()] is READERS[".csv"]
        self._delimiter = delimiter_of(path, self._errors) if delimited else None
        found: dict[str, None] = {}
        self.count = 0
        if self._delimiter is not None:
            records = whole_records(path, self._delimiter, refuse, self._errors)
            found = dict.fromkeys(next(records, (0, []))[1])
            self.count = sum(1 for _ in records)
        else:
            for row, record in objects_in(path, refuse, self._errors):
                self.count += 1
                found |= dict.fromkeys(record)
                if len(found) > MAX_COLUMNS:
                    raise too_many(len(found), f"{path}, row {row}")
        self.names = tuple(found)
        check_names(self.names, str(path))
        if not self.count:
            raise no_rows(path, header=self._delimiter is not None and bool(self.names))

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The number of each row that can be read, and its values by column."""
        if self._delimiter is not None:
            plain = plain_under(self.names)
            for row, record in islice(
                whole_records(self.path, self._delimiter, pass_over, self._errors), 1, None
            ):
                yield row, dict(zip(self.names, map(plain, record), strict=True))
            return
        for row, record in objects_in(self.path, pass_over, self._errors):
            yield row, {name: record.get(name) for name in self.names}

    def sample(self) -> Table:
        """A table of some 2,000 rows from the whole file, to find out what its columns hold."""
        places = looked_at(self.count)
        kept: list[tuple[int, dict[str, Any]]] = []

        def read(name: str) -> list[Any]:
            if not kept:
                wanted = set(places)
                kept.extend(row for i, row in enumerate(self.rows()) if i in wanted)
            return [values[name] for _, values in kept]

        rows = [i + 1 for i in places]
        return Table(str(self.path), self.names, rows, read, typed=self._delimiter is None)
