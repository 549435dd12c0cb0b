"""What stands in a file beside one table: a page of HTML, lines above the header, the header once more."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from glassformer.config import listed
from glassformer.data.doubtful import HEAD, MOSTLY, USUAL, first_row
from glassformer.data.encodings import header, quoting
from glassformer.data.files import text_lines
from glassformer.data.row_errors import Refuse, RowError, stop
from glassformer.data.spreadsheet import SEPARATOR
from glassformer.errors import DataError

LEAST = 4  # rows that hold something, of a table with lines above it
LONGEST = 1 << 20  # characters that are looked at
AGAIN_FIX = "Remove the rows that repeat the header"
SHOWN = 5  # rows that are named
_HTML = re.compile(r"\s*<(!doctype html|html|head|body|table)\b", re.IGNORECASE).match
Row = tuple[int, list[str]]


def check_head(path: Path, errors: str) -> None:
    """Raises DataError for a page of HTML, and for lines above the header; not where ``--header`` is said."""
    if header():
        return
    lines, size = [], 0
    for line in islice(text_lines(path, newline="", errors=errors), HEAD):
        lines.append(line)
        size += len(line)
        if size > LONGEST:
            break
    if _HTML(next(filter(str.strip, lines), "")):
        what = f"the file is a page of HTML, not a table as {path.suffix} files are"
        fix = "Open it in a spreadsheet and save the sheet as CSV in UTF-8"
        raise DataError(what, where=str(path), fix=fix)
    if SEPARATOR("".join(lines[:1])):
        return
    how = csv.QUOTE_NONE if quoting() == "none" else csv.QUOTE_MINIMAL
    for sign in ",;\t":
        try:
            records = [*enumerate(csv.reader(lines, delimiter=sign, quoting=how), 1)]
        except csv.Error:
            continue
        filled = [(row, cells) for row, record in records if (cells := _without_empty_end(record))]
        if found := _header_below(filled):
            (first, cells), (row, names) = filled[0], found
            what = f"row {first} is no header but a line above the table ({sign.join(cells)[:40]!r}); "
            what += f"row {row} looks like the header: {listed(names)}"
            above = f"the {row - 1} rows" if row > 2 else "the row"
            fix = f"Remove {above} above it; if row {first} is the header, say so with --header yes"
            raise DataError(what, where=str(path), fix=fix)


def _without_empty_end(record: Sequence[str]) -> list[str]:
    """The cells of a row up to the last that holds something."""
    cells = [cell.strip() for cell in record]
    while cells and not cells[-1]:
        cells.pop()
    return cells


def _header_below(rows: Sequence[Row]) -> Row | None:
    """The row that looks like the header, where the first row is a title or a comment above it."""
    if len(rows) < LEAST:
        return None
    first, below = rows[0][1], rows[1:]
    width = Counter(len(cells) for _, cells in below).most_common(1)[0][0]
    alike = [(row, cells) for row, cells in below if len(cells) == width and not cells[0].startswith("#")]
    if width < 2 or (len(first) > 1 and not first[0].startswith("#")) or len(alike) < MOSTLY * len(below):
        return None
    if any(cell.lower() in USUAL for cell in first):
        return None
    what, _ = first_row(alike[0][1], [cells for _, cells in alike[1:]])
    return alike[0] if what == "header" else None


class HeaderAgain:
    """Rows below a header that are the header once more, as where tables were put one behind the other.

    Args:
        names: the cells of the header.
        path: the file.
    """

    def __init__(self, names: Sequence[str], path: Path):
        self.names, self.path = [name.strip() for name in names], path
        self._sorted = sorted(self.names)

    def without(self, records: Iterable[Row], refuse: Refuse) -> Iterator[Row]:
        """The other records; ``refuse`` is called with each that repeats the header.

        Raises:
            DataError: a record is the header in another order, below which cells stand under other names.
        """
        records = iter(records)
        for row, record in records:
            if not self.holds(record):
                yield row, record
            elif [cell.strip() for cell in record] != self.names:
                what = f"row {row} is a second header, in another order ({','.join(record)}), and begins "
                what += f"another table than that of row 1 ({','.join(self.names)})"
                fix = f"Save the rows from row {row} on as a file of their own, or bring their columns into "
                fix += "the order of the first header"
                raise DataError(what, where=str(self.path), fix=fix)
            else:
                what = "the header once more, where a row is wanted"
                if refuse is stop:
                    more = (n for n, cells in records if [cell.strip() for cell in cells] == self.names)
                    rows = [str(n) for n in islice(chain([row], more), SHOWN + 1)]
                    shown = ", ".join(rows[:SHOWN]) + ", ..." * (len(rows) > SHOWN)
                    what += f" (rows {shown})" if len(rows) > 1 else ""
                refuse(RowError(what, where=f"{self.path}, row {row}", fix=AGAIN_FIX), row)

    def holds(self, record: Sequence[str]) -> bool:
        """Whether a record has the names of the header as its cells, in any order."""
        if len(record) != len(self.names) or len(record) < 2 or record[0].strip() not in self._sorted:
            return False
        return sorted(cell.strip() for cell in record) == self._sorted
