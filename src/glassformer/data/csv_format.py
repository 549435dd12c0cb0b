"""What a CSV or TSV file does not say: its delimiter, whether it has a header, what else stands in it."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from glassformer.config import listed
from glassformer.data.column_contents import (
    LABEL_COLUMNS,
    TEXT_COLUMNS,
    are_dates,
    are_numbers,
    looks_like_labels,
    text_size,
)
from glassformer.data.files import MAX_TEXT, Refuse, RowError, said, stop, text_lines
from glassformer.data.spreadsheet import SEPARATOR, csv_rows
from glassformer.errors import DataError

# --- files that can be parsed and were hardly meant so --------------------------------------------
# What the columns hold decides. A line within a quoted cell is taken for a row of its own where it has as
# many cells as the header, and under labels, numbers and dates what other rows have there: prose does not.
# A first row is taken for data where it has such values, or where sentences are the names of all columns of
# texts.

SAMPLE = 1_000  # rows that say what the columns hold
HEAD = 200  # rows that say whether the first is one of them
ENOUGH = 10  # rows that show a column's labels well enough for another to be none
MOSTLY = 0.75  # of the lines of a cell that look like rows
# Lines of a cell, all of which look like rows, where no column holds labels or numbers: between tabs, between
# commas, and where no other row has one line.
LINES = 2, 3, 8
SENTENCE = 4  # words; names of columns have fewer
ASKED = 0.2  # share of texts that end like questions
WIDEST = 64  # columns that are looked at
MANY = 10  # numbers that are no classes
WORD = re.compile(r"[^\W\d][\w/-]*").fullmatch
# Names that a header has, and hardly a row.
OTHERS = (
    "id index title body name score question answer source context premise hypothesis sentence1 sentence2 "
    "image file path split tokens"
).split()
USUAL_NAMES = frozenset((*LABEL_COLUMNS, *TEXT_COLUMNS, *OTHERS))
OPENS = "a double quote opens in line"
First = Literal["header", "row", "unclear"]


@dataclass(frozen=True)
class Held:
    """What a column holds that prose does not: labels or other words, else numbers or dates."""

    labels: frozenset[str]
    repeat: bool  # they do, so that these are all that there are
    numbers: bool
    dates: bool
    words: bool  # the labels have one word each
    spaced: bool  # blanks surround cells, as in ``text, label``

    def holds(self, cell: str) -> bool:
        cell = cell.strip('"')
        if cell in self.labels or (self.words and WORD(cell)):
            return True
        if not cell.strip() or (not self.spaced and cell != cell.strip()):
            return False
        return (self.numbers and are_numbers([cell])) or (self.dates and are_dates([cell]))


def held_by(cells: Sequence[str]) -> Held | None:
    """What a column holds, by some of its cells; None: texts, or nothing that tells a row from prose."""
    there = [cell for cell in cells if cell.strip()]
    if len(there) < 2:
        return None
    spaced = any(cell != cell.strip() for cell in there)
    numbers, dates = are_numbers(there), are_dates(there)
    if looks_like_labels(there) and text_size(there) is None and (not numbers or len(set(there)) <= MANY):
        return Held(frozenset(there), True, numbers, False, all(map(WORD, there)), spaced)
    if all(map(WORD, there)):
        return Held(frozenset(there), False, False, False, True, spaced)
    return Held(frozenset(), False, numbers, dates, False, spaced) if numbers or dates else None


# --- rows within a quoted cell ----------------------------------------------------------------


class Cells:
    """What the columns of a file hold, found out when it is first asked for."""

    def __init__(self, path: Path, delimiter: str, errors: str):
        self.path, self.delimiter, self.errors = path, delimiter, errors
        self.width = 0  # of the header; 0: not known yet
        self._held: list[Held | None] | None = None
        self._spaced = False  # whether cells begin with a blank

    def are_rows(self, lines: Sequence[str]) -> bool:
        """Whether the lines of one record look like rows of their own."""
        rows = [line.rstrip("\r\n").split(self.delimiter) for line in lines if line.strip()]
        fitting = [row for row in rows if len(row) == self.width]
        if self.width < 2 or len(rows) < 2 or len(fitting) < MOSTLY * len(rows):
            return False
        if len(rows[0]) != self.width:  # a cell of several lines goes on, and no label follows its first
            return False
        if self._held is None:
            sample = list(islice(self._single_lines(), SAMPLE))
            self._held = [held_by(cells) for cells in zip(*sample, strict=True)]
            self._spaced = any(cell[:1] == " " for row in sample for cell in row[1:])
        if not self._spaced:  # as they are behind the commas of prose
            fitting = [row for row in fitting if not any(cell[:1] == " " for cell in row[1:])]
        telling = [(i, held) for i, held in enumerate(self._held) if held is not None]
        if not telling:
            tabs, commas, alone = LINES
            least = alone if not self._held else tabs if self.delimiter == "\t" else commas
            return len(fitting) == len(rows) >= least
        return sum(all(held.holds(row[i]) for i, held in telling) for row in fitting) >= MOSTLY * len(rows)

    def _single_lines(self) -> Iterator[list[str]]:
        """The records of one line each, the header left out."""
        taken: list[str] = []

        def lines() -> Iterator[str]:
            for line in text_lines(self.path, newline="", errors=self.errors):
                taken.append(line)
                yield line

        begun = False
        with suppress(csv.Error):
            for record in csv_rows(lines(), MAX_TEXT, delimiter=self.delimiter):
                if len(taken) == 1 and len(record) == self.width and begun:
                    yield record
                begun = begun or len(record) == self.width
                taken.clear()


def rows_in_a_cell(path: Path, row: int, first: int, last: int) -> DataError:
    """What is said of a record whose lines, from ``first`` to ``last``, look like rows."""
    what = f"{OPENS} {first} and closes in line {last}, which makes one row of them, though each of these "
    what += "lines looks like a row"
    fix = (
        f'If each line is a row, correct the quote in line {first} (inside a quoted cell it is written ""), '
        "or read quotes as plain characters with --quoting none; if the cell has line breaks, say so with "
        "--quoting csv"
    )
    return DataError(what, where=f"{path}, row {row}", fix=fix)


# --- the header -------------------------------------------------------------------------------


def first_row(names: Sequence[str], rows: Iterable[Sequence[str]]) -> tuple[First, str]:
    """Whether the first row of a table is its header or one of its rows, and why.

    Args:
        names: its cells.
        rows: some of those below, as wide.
    """
    columns = list(zip(*rows, strict=True))[:WIDEST]
    names = names[: len(columns)]
    counted = list(map(str, range(len(names))))  # what pandas calls columns without a name
    if not columns or [*filter(None, names)] in (counted, counted[:-1]):
        return "unclear", ""
    both = list(zip(names, columns, strict=True))
    if any(name.strip().lower() in USUAL_NAMES and name not in cells for name, cells in both):
        return "header", ""
    alike: list[str] = []  # names that are values of their columns
    for name, cells in both:
        held = held_by(cells)
        if held is None or (held.labels and not held.repeat):
            continue
        if name in held.labels or (not held.words and held.holds(name)):
            alike.append(name)
        elif len(cells) >= ENOUGH or are_numbers(cells):
            return "header", ""
    if found := next((name for name in alike if not are_numbers([name])), None):
        return "row", f"{found!r} is also a value of its column"
    texts = [(name, cells) for name, cells in both if text_size(cells) is not None]
    if alike and texts and all(len(name.split()) > 1 for name, _ in texts):
        return "row", f"{alike[0]!r} is also a value of its column, and {_short(texts[0][0])!r} is a text"
    if not alike and texts and all(_like(name, cells) for name, cells in texts):
        return "row", f"{_short(texts[0][0])!r} reads like the other texts of its column"
    return "unclear", ""


def _like(name: str, cells: Sequence[str]) -> bool:
    """Whether the name of a column reads like its texts."""
    words = len(name.split())
    asks = sum(cell.rstrip().endswith(("?", ":")) for cell in cells) >= ASKED * len(cells)
    if name in cells:
        return True
    if name.rstrip().endswith(("?", ":")):  # as the questions of a form do
        return words >= SENTENCE and asks
    return words >= SENTENCE or (words > 1 and bool(re.search(r"[.!\u3002]\s*$", name)))


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."


def no_header(path: Path, row: int, why: str) -> DataError:
    """What is said of a first row that looks like data."""
    what = f"the first row looks like data, not like a header: {why}"
    fix = (
        "Write a first row with the names of the columns, such as text,label, or read the file as it is with "
        "--header no; if this row is the header, say so with --header yes"
    )
    return DataError(what, where=f"{path}, row {row}", fix=fix)


# --- what stands beside the table -----------------------------------------------------------------

LEAST = 4  # rows that hold something, of a table with lines above it
LONGEST = 1 << 20  # characters that are looked at
SHOWN = 5  # rows that are named
_HTML = re.compile(r"\s*<(!doctype html|html|head|body|table)\b", re.IGNORECASE).match
Row = tuple[int, list[str]]


def check_head(path: Path, errors: str) -> None:
    """Raises DataError for a page of HTML, and for lines above the header; not where ``--header`` is said."""
    if said("header"):
        return
    lines, _ = _beginning(path, errors, HEAD)
    if _HTML(next(filter(str.strip, lines), "")):
        what = f"the file is a page of HTML, not a table as {path.suffix} files are"
        fix = "Open it in a spreadsheet and save the sheet as CSV in UTF-8"
        raise DataError(what, where=str(path), fix=fix)
    if SEPARATOR("".join(lines[:1])):
        return
    how = csv.QUOTE_NONE if said("quoting") == "none" else csv.QUOTE_MINIMAL
    for sign in ",;\t":
        try:
            records = [*enumerate(csv.reader(lines, delimiter=sign, quoting=how), 1)]
        except csv.Error:
            continue
        filled = [
            (row, [cell.strip() for cell in record]) for row, record in records if any(map(str.strip, record))
        ]
        for _, cells in filled:
            while not cells[-1]:
                cells.pop()
        if found := _header_below(filled):
            (first, cells), (row, names) = filled[0], found
            what = f"row {first} is no header but a line above the table ({sign.join(cells)[:40]!r}); "
            what += f"row {row} looks like the header: {listed(names)}"
            above = f"the {row - 1} rows" if row > 2 else "the row"
            fix = f"Remove {above} above it; if row {first} is the header, say so with --header yes"
            raise DataError(what, where=str(path), fix=fix)


def _beginning(path: Path, errors: str, most: int | None = None) -> tuple[list[str], bool]:
    """The first lines of a file, ``most`` of them and ``LONGEST`` characters; whether these cut them off."""
    lines, size = [], 0
    for line in islice(text_lines(path, newline="", errors=errors), most):
        lines.append(line)
        size += len(line)
        if size > LONGEST:
            return lines, True
    return lines, False


def _header_below(rows: Sequence[Row]) -> Row | None:
    """The row that looks like the header, where the first row is a title or a comment above it."""
    if len(rows) < LEAST:
        return None
    first, below = rows[0][1], rows[1:]
    width = Counter(len(cells) for _, cells in below).most_common(1)[0][0]
    alike = [(row, cells) for row, cells in below if len(cells) == width and not cells[0].startswith("#")]
    if width < 2 or (len(first) > 1 and not first[0].startswith("#")) or len(alike) < MOSTLY * len(below):
        return None
    if any(cell.lower() in USUAL_NAMES for cell in first):
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
                fix = "Remove the rows that repeat the header"
                refuse(RowError(what, where=f"{self.path}, row {row}", fix=fix), row)

    def holds(self, record: Sequence[str]) -> bool:
        """Whether a record has the names of the header as its cells, in any order."""
        if len(record) != len(self.names) or len(record) < 2 or record[0].strip() not in self._sorted:
            return False
        return sorted(cell.strip() for cell in record) == self._sorted


# --- the delimiter --------------------------------------------------------------------------------

MAX_COLUMNS = 1 << 16
USUAL, RARE = ",;\t", "|^~\x01\x1f"  # the latter where the header has none of the former
LOOKED_AT = 20  # lines that have as many of a rare one as the header
_QUOTED = re.compile(r'"[^"]*"')
BLANK_QUOTE = re.compile(' +"').match  # what an unquoted cell hardly begins with
_NAME = "(text|label|sentence|review)"
_JOINED = re.compile(rf"{_NAME}\s*([^\w\s]+)\s*{_NAME}", re.IGNORECASE)


def delimiter_of(path: Path, errors: str) -> str:
    """What stands between the cells of a file, by its first line: the header, or Excel's ``sep=;``.

    Blank lines before the header are passed over, and what stands in double quotes is not counted. A pipe and
    other rare ones count where the header has no comma, semicolon or tab, and most lines have as many.

    Raises:
        DataError: too many columns, or a header of two usual names with something else between them; what
            ``check_head`` refuses.
    """
    check_head(path, errors)
    lines = text_lines(path, newline="", errors=errors)
    header = next(lines, "")
    if separator := SEPARATOR(header):
        return separator[1]
    header = header if header.strip() else next(filter(str.strip, lines), "")
    if said("quoting") != "none":
        while header.count('"') % 2 and len(header) < LONGEST and (more := next(lines, "")):
            header += more  # a line end within quotes is a name's
        bare = _QUOTED.sub("", header)
        header = bare if any(map(bare.count, USUAL + RARE)) else header
    delimiter = "\t" if path.suffix.lower() in (".tsv", ".txt") else max(USUAL, key=header.count)
    if delimiter not in header:
        delimiter = _rare(path, header, lines, delimiter)
    if (columns := header.count(delimiter)) >= MAX_COLUMNS:
        raise too_many(columns + 1, f"{path}, row 1")
    return delimiter


def _rare(path: Path, header: str, lines: Iterator[str], usual: str) -> str:
    """The delimiter of a file whose header has none that is expected; ``usual``: it is one column."""
    below = list(islice(filter(str.strip, lines), LOOKED_AT))
    for sign in (*USUAL, *RARE) if usual == "\t" else RARE:
        alike = sum(_QUOTED.sub("", line).count(sign) == header.count(sign) for line in below)
        if sign in header and 2 * alike > len(below):
            return sign
    if joined := _JOINED.fullmatch(header.strip()):
        what = f"the header {header.strip()!r} has {joined[2]!r} between its columns, which is not read"
        fix = "Save the table with commas, semicolons, tabs or pipes between its columns"
        raise DataError(what, where=f"{path}, row 1", fix=fix)
    return usual


def blanks_at_quotes(path: Path, delimiter: str, errors: str) -> tuple[bool, bool]:
    """Whether blanks before an opening quote, and behind a closing one, are no part of cells: each row that
    has such, at the beginning of the file, has as many cells as the header without them."""
    lines, cut = _beginning(path, errors)  # within a row, maybe
    lines = lines[1:] if SEPARATOR("".join(lines[:1])) else lines
    before = re.compile(re.escape(delimiter) + ' +"').search
    bare = list(without_blanks_behind_quotes(lines, delimiter))
    if bare != lines and _fit(bare, delimiter, blank_behind_quote(delimiter), lines, cut):
        return any(map(before, lines)), True
    if not any(map(before, lines)):
        return False, False
    try:
        if not any(BLANK_QUOTE(cell) for row in csv.reader(lines, delimiter=delimiter) for cell in row):
            return False, False
    except csv.Error:
        return cut, False
    return _fit(lines, delimiter, before, lines, cut), False


def _fit(
    lines: list[str], delimiter: str, found: Callable[[str], Any], written: list[str], cut: bool
) -> bool:
    """Whether all rows in whose ``written`` lines something is ``found`` have as many cells as the first."""
    rows, before = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True), 0
    width = 0
    try:
        for row in rows:
            width = width or len(row)
            if len(row) != width and any(map(found, written[before : rows.line_num])):
                return False
            before = rows.line_num
    except csv.Error:
        return cut
    return True


def blank_behind_quote(delimiter: str) -> Callable[[str], Any]:
    """What finds a quote with blanks between it and the end of its cell in a line."""
    return re.compile(rf'" +(?={re.escape(delimiter)}|[\r\n]*\Z)').search


def without_blanks_behind_quotes(lines: Iterable[str], delimiter: str) -> Iterator[str]:
    """The lines of a file without the blanks between the closing quote of a cell and the separator."""
    sign = re.escape(delimiter)
    cell = rf'(?:[^"]++|"")*+)(?:(") *(?={sign}|[\r\n]*\Z)|\Z)'
    begun = re.compile(rf'((?:\A|{sign}) *"{cell}')
    within = re.compile(rf'((?:\A|{sign} *"){cell}')  # the line begins in a quoted cell
    open_ = False
    for line in lines:
        last = ""
        for match in (within if open_ else begun).finditer(line):
            last = match[2] or "open"
        yield (within if open_ else begun).sub(lambda m: m[1] + (m[2] or ""), line) if '"' in line else line
        open_ = last == "open" or (open_ and not last)


def too_many(count: int, where: str) -> DataError:
    what = f"{count:,} columns, and at most {MAX_COLUMNS:,} are read"
    return DataError(what, where=where, fix="Keep the columns of texts and labels")
