"""Readers of CSV, TSV, JSONL and Parquet files, and of plain text, that can name the faulty row.

Rows are counted from 1 as the file shows them: in CSV and TSV the header is row 1, in JSONL a row
is a line, in Parquet row 1 is the first. ``StreamedTable`` gives the rows of a file of any size, not kept.

Long because only the reader of a row can name it, and because of what a CSV or TSV file does not say: its
delimiter, whether it has a header, what else stands in it.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
import shlex
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from glassformer.config import listed, nearest
from glassformer.data.column_contents import (
    LABEL_COLUMNS,
    TEXT_COLUMNS,
    are_dates,
    are_numbers,
    looked_at,
    looks_like_labels,
    text_size,
)
from glassformer.data.files import (
    ESCAPE,
    MAX_TEXT,
    NOT_UTF8,
    NotUtf8Error,
    Refuse,
    ReturningLines,
    RowError,
    check_file,
    check_utf8,
    encoding_fix,
    not_text,
    opened,
    pass_over,
    read_utf8,
    readable,
    reading,
    said,
    said_of_tables,
    stop,
    text_lines,
)
from glassformer.data.parquet import (
    check_rows,
    huggingface_class_names,
    open_parquet,
    partitions,
    read_column,
)
from glassformer.data.spreadsheet import SEPARATOR, csv_rows, other_kind, plain_under, unread
from glassformer.errors import (
    DataError,
    FileTypeError,
    MalformedFileError,
    MissingValueError,
    NoSuchColumnError,
    TooLargeError,
)
from glassformer.process import READING
from glassformer.reading import unique_keys

PLAIN = ".txt"  # one text a line
NO_ROWS = "the file has no rows"
STRICT = "strict"
MAX_NAME = 1_000  # characters of a column's name; more is a text where the header should stand
BLANK_BEHIND_FIX = "Remove the blanks between a closing quote and the separator or line end behind it"
RAGGED_FIX = "Put a text that holds the separator or a line break into double quotes"
BLANK_FIX = "Remove the blanks between a separator and an opening quote: such a quote is a part of the text"
_CHUNK = 1 << 20
MAX_VALUES = 1 << 22  # in one JSON object, and separators in one line of CSV
KEPT_COLUMNS = 16  # of a table with more, rows are read again for each column that is asked for


@dataclass(frozen=True)
class Table:
    """A file's columns, read one by one when asked for."""

    origin: str
    names: tuple[str, ...]
    rows: Sequence[int]  # row number of each record in the file
    read: Callable[[str], list[Any]]  # column name -> its values, one a record
    typed: bool = True  # False: every value is text (CSV, TSV)
    said: str = ""  # what the user should know of how the file is read
    class_names: dict[str, tuple[str, ...]] = field(default_factory=dict)  # column -> names of its ints

    def check_columns(self, *names: str | None) -> None:
        """Raises DataError for a column that is not there; None is no column."""
        for name in names:
            if name is not None and name not in self.names:
                raise NoSuchColumnError(
                    f"no column {name!r}", where=self.origin, fix=nearest(name, self.names)
                )


def read_table(path: str | Path, refuse: Refuse = stop) -> Table:
    """A table from ``.csv``, ``.tsv``, ``.jsonl``, ``.json`` (an array of objects) or ``.parquet``.

    Args:
        refuse: called with a row that is ragged or no JSON object; where it returns, the row is left out, and
            a key that a JSON object lacks is None. So are rows with bytes that are not UTF-8, and of CSV with
            broken quoting: the next row is looked for behind the line that such a row begins on.

    Raises:
        DataError: no such file, another kind of file, not UTF-8, damaged, ragged, or without rows.
    """
    path = Path(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None and between_tabs(path):
        reader = _read_text
    if reader is None:
        fix = other_kind(path.suffix, READERS)
        raise FileTypeError(unread(path), where=str(path), fix=fix)
    table = reader(path, refuse)
    if not table.rows:
        raise no_rows(path, header=bool(table.names) and not table.typed)
    return table


def no_rows(path: Path, header: bool) -> DataError:
    """What is said of a file without rows; ``header``: it has one, which may have been meant as a row."""
    fix = "Give at least one example"
    fix += "; the first row is taken for the header, unless --header no says that there is none" * header
    return MissingValueError(NO_ROWS, where=str(path), fix=fix)


def is_plain(path: Path) -> bool:
    """Whether a file has one text in each line: a ``.txt`` file that is not a table."""
    return path.suffix.lower() == PLAIN and not between_tabs(path)


def between_tabs(path: Path) -> bool:
    """Whether a ``.txt`` file is a table: its lines have the same number of tabs, one at least."""
    if path.suffix.lower() != PLAIN or not path.is_file():
        return False
    lines = filter(str.strip, text_lines(path, errors="replace"))
    tabs = [line.rstrip("\r\n").count("\t") for line in islice(lines, HEAD)]
    return len(tabs) > 1 and bool(tabs[0]) and tabs.count(tabs[0]) >= 0.95 * len(tabs)


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
ROWS_FIX = (
    'If each line is a row, correct the quote in line {} (inside a quoted cell it is written ""), or read '
    "quotes as plain characters with --quoting none; if the cell has line breaks, add --quoting csv"
)
HEADER_FIX = (
    "Write a first row with the names of the columns, such as text,label, or read the file as it is with "
    "--header no; if this row is the header, add --header yes"
)
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
        raise FileTypeError(what, where=str(path), fix=fix)
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
            what = f"row {first} is not a header but a line above the table ({sign.join(cells)[:40]!r}); "
            what += f"row {row} looks like the header: {listed(names)}"
            above = f"the {row - 1} rows" if row > 2 else "the row"
            fix = f"Remove {above} above it; if row {first} is the header, add --header yes"
            raise MalformedFileError(what, where=str(path), fix=fix)


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
                raise MalformedFileError(what, where=str(self.path), fix=fix)
            else:
                what = "the header once more, where a row is expected"
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
        raise MalformedFileError(what, where=f"{path}, row 1", fix=fix)
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
    return TooLargeError(what, where=where, fix="Keep the columns of texts and labels")


# --- CSV and TSV ------------------------------------------------------------------------------


def whole_records(path: Path, delimiter: str, refuse: Refuse, errors: str) -> Iterator[tuple[int, list[str]]]:
    """The names of the columns, checked, and then the records that have a cell under each of them.

    Args:
        refuse: called with each other row.

    Raises:
        DataError: names that stand there twice or are too long, or a first row that looks like data, where it
            is not said whether there is a header.
    """
    cells = Cells(path, delimiter, errors)
    records = _records(path, delimiter, refuse, errors, cells)
    for row, first in records:
        blank = not first or (len(first) == 1 and first[0].isspace())
        if not blank and not (row == 1 and SEPARATOR(delimiter.join(first))):  # Excel's ``sep=;``
            break
    else:
        return
    cells.width, header = len(first), said("header")
    rows = [] if header else list(islice(records, HEAD))
    records = chain(rows, records)
    again = HeaderAgain(first, path)
    below = [record for _, record in rows if len(record) == len(first) and not again.holds(record)]
    what, why = first_row(first, below)
    if what == "header" or header == "yes":
        records = again.without(records, refuse)
    if header == "no" or (not header and path.suffix.lower() == PLAIN and what != "header"):
        names, records = [f"column{i}" for i in range(1, len(first) + 1)], chain([(row, first)], records)
        row = 0
    elif what == "row":
        what = f"the first row looks like data, not like a header: {why}"
        raise MalformedFileError(what, where=f"{path}, row {row}", fix=HEADER_FIX)
    else:
        names = [name.strip() for name in first]
        if errors != STRICT and any(map(NOT_UTF8, names)):
            check_utf8(path)  # without names nothing can be read
        check_names(names, f"{path}, row {row}", delimited=True)
    yield row, names
    yield from _fitting(path, records, names, refuse, errors)


def _fitting(
    path: Path, records: Iterable[tuple[int, list[str]]], names: list[str], refuse: Refuse, errors: str
) -> Iterator[tuple[int, list[str]]]:
    """The records that can be decoded and have so many cells; blank ones are passed over."""
    fix = ""
    for row, record in records:
        if not record:
            continue
        if errors != STRICT and any(map(NOT_UTF8, record)):
            fix = fix or encoding_fix(path)
            error = RowError(not_text(), where=f"{path}, row {row}", fix=fix)
            error.code = NotUtf8Error.code
            if len(record) == len(names):
                error.values = dict(zip(names, map(readable, record), strict=True))
            refuse(error, row)
        elif len(record) != len(names):
            what = f"{len(record)} fields where the header has {len(names)}"
            way_out = BLANK_FIX if any(map(BLANK_QUOTE, record)) else RAGGED_FIX
            error = RowError(what, where=f"{path}, row {row}", fix=way_out)
            error.values, error.ragged = dict(zip(names, record, strict=False)), True
            refuse(error, row)
        else:
            yield row, record


def _records(
    path: Path, delimiter: str, refuse: Refuse, errors: str, cells: Cells
) -> Iterator[tuple[int, list[str]]]:
    """The rows of the file with their numbers from 1, the header and blank ones among them."""
    row, given = 0, _cells_counted(path, delimiter, errors)
    quotes = said("quoting") or ("none" if path.suffix.lower() == PLAIN else "")
    options: dict[str, Any] = {"quoting": csv.QUOTE_NONE} if quotes == "none" else {"strict": True}
    if quotes != "none":
        options["skipinitialspace"], behind = blanks_at_quotes(path, delimiter, errors)
        given = without_blanks_behind_quotes(given, delimiter) if behind else given
    lines, blank_behind = ReturningLines(given), blank_behind_quote(delimiter)
    while True:
        try:
            for record in csv_rows(lines, MAX_TEXT, delimiter=delimiter, **options):
                row += 1
                if not quotes and len(lines.taken) > 1 and cells.are_rows(lines.taken):
                    first = lines.number - len(lines.taken) + 1
                    what = f"{OPENS} {first} and closes in line {lines.number}, which makes one row of them, "
                    what += "though each of these lines looks like a row"
                    refuse(
                        MalformedFileError(what, where=f"{path}, row {row}", fix=ROWS_FIX.format(first)), row
                    )
                    lines.go_back()
                    break
                lines.taken.clear()
                yield row, record
            else:
                return
        except csv.Error as error:
            row += 1
            unclosed = "end of data" in str(error)
            what = "a double quote is never closed" if unclosed else f"broken quoting ({error})"
            fix = 'Write a quote inside a text as "", or read quotes as plain characters: --quoting none'
            fix = BLANK_BEHIND_FIX if any(map(blank_behind, lines.taken[:1])) else fix
            refuse(MalformedFileError(what, where=f"{path}, row {row}", fix=fix), row)
            lines.go_back()


def encoding_errors(path: Path, refuse: Refuse) -> str:
    """How bytes that are not UTF-8 are read: not at all, or so that their rows can be refused."""
    try:
        check_utf8(path)
    except NotUtf8Error:
        if refuse is stop:
            raise
        return "surrogateescape"
    return STRICT


def _cells_counted(path: Path, delimiter: str, errors: str) -> Iterator[str]:
    lines = text_lines(path, newline="", errors=errors)
    if path.stat().st_size <= MAX_VALUES:
        return lines

    def counted() -> Iterator[str]:
        for number, line in enumerate(lines, 1):
            if len(line) > MAX_VALUES and line.count(delimiter) > MAX_VALUES:
                what, where = f"more than {MAX_VALUES:,} separators in one line", f"{path}, line {number}"
                raise MalformedFileError(what, where=where, fix="Check that it is the file you mean")
            yield line

    return counted()


def check_names(names: Sequence[str], where: str, delimited: bool = False) -> None:
    """Raises DataError for too many names, one that stands there twice, or one that is a text.

    Args:
        delimited: of CSV and TSV, where a row of data may stand in the place of the header.
    """
    without = f"; if the table has no header: {READING['header'][0]} no" if delimited else ""
    if len(names) > MAX_COLUMNS:
        raise too_many(len(names), where)
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        what, fix = f"column {twice[0][:MAX_NAME]!r} occurs twice", "Rename one of them"
        if not twice[0]:
            empty = [str(i) for i, name in enumerate(names, 1) if not name]
            what = f"columns {listed(empty)} have no name"
            fix = "Name them, or remove them where they are empty"
        raise MalformedFileError(what, where=where, fix=f"{fix}{without}")
    for i, name in enumerate(names, 1):
        if len(name) > MAX_NAME:
            what = f"the name of column {i} has {len(name):,} characters"
            fix = f"The first row must be the header, with a short name each{without}"
            raise MalformedFileError(what, where=where, fix=fix)


# --- JSONL and JSON ---------------------------------------------------------------------------


def objects_in(path: Path, refuse: Refuse, errors: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of a file with their rows; what is none is refused."""
    array = path.suffix.lower() == ".json" and _begins_array(path)
    if path.suffix.lower() == ".json" and not array:
        _refuse_whole(path)
    for row, found in _elements(path) if array else _json_lines(path, refuse, errors):
        if isinstance(found, dict):
            yield row, found
        else:
            where, fix = f"{path}, row {row}", 'Write {"text": ...} a line'
            refuse(MalformedFileError("not a JSON object", where=where, fix=fix), row)


def _refuse_whole(path: Path) -> None:
    """Raises DataError for a ``.json`` file that is one object: SQuAD's, or a table column by column."""
    check_file(path)
    if path.stat().st_size > MAX_TEXT:
        return
    try:
        whole = json.loads(read_utf8(path))
    except (DataError, ValueError, RecursionError):  # lines, whose reader says what is wrong
        return
    nested = [v for v in whole.values() if isinstance(v, dict | list)] if isinstance(whole, dict) else []
    if not nested:  # one row
        return
    if any(isinstance(v, list) and v and isinstance(v[0], dict) and "paragraphs" in v[0] for v in nested):
        what = "questions with answers in texts, as SQuAD has them, where a table is expected"
        fix = f"Train a model of them: glassformer train facts-minilm --data {shlex.quote(str(path))}"
        raise MalformedFileError(what, where=str(path), fix=fix)
    if len(nested) == len(whole) or "\n" in read_utf8(path).strip():
        what = "one JSON object, where an array of objects is expected, one for each row"
        fix = 'Write [{"text": ..., "label": ...}, ...]; pandas does with to_json(orient="records")'
        raise MalformedFileError(what, where=str(path), fix=fix)


def _begins_array(path: Path) -> bool:
    if said("encoding"):
        return next((s for s in text_lines(path, errors="replace") if s.strip()), "").lstrip().startswith("[")
    with opened(path) as file:
        piece = file.read(_CHUNK).removeprefix(codecs.BOM_UTF8)
        while piece and not (start := piece.lstrip()):
            piece = file.read(_CHUNK)
        return bool(piece) and start.startswith(b"[")


def _json_lines(path: Path, refuse: Refuse, errors: str) -> Iterator[tuple[int, Any]]:
    fix = ""
    for row, line in enumerate(text_lines(path, errors=errors), 1):  # not splitlines: a text may hold U+2028
        if not line.strip():
            continue
        if errors != STRICT and NOT_UTF8(line):
            fix = fix or encoding_fix(path)
            error = RowError(not_text(), where=f"{path}, row {row}", fix=fix)
            error.code = NotUtf8Error.code
            with suppress(DataError):  # no JSON either: nothing of it can be read
                found = _parse(readable(line), "")
                error.values = found if isinstance(found, dict) else {}
            refuse(error, row)
            continue
        try:
            found = _parse(line, f"{path}, row {row}")
        except DataError as error:
            refuse(error, row)
        else:
            yield row, found


def _elements(path: Path) -> Iterator[tuple[int, Any]]:
    """The elements of one JSON array, each parsed by itself, so that only what is needed of it is kept."""
    fix = "Write one array of objects"
    text = read_utf8(path)
    row, at, sign = 0, _BLANKS(text, text.index("[") + 1).end(), ","
    if text[at : at + 1] == "]":
        at, sign = at + 1, "]"
    while sign == ",":
        row += 1
        found, at = _element(text, _BLANKS(text, at).end(), f"{path}, row {row}", fix)
        yield row, found
        at = _BLANKS(text, at).end() + 1
        sign = text[at - 1 : at]
    if sign != "]":
        what = f"not JSON (a ',' or ']' is missing behind row {row})"
        raise MalformedFileError(what, where=str(path), fix=fix)
    if _BLANKS(text, at).end() < len(text):
        raise MalformedFileError("not JSON (there is more after the array)", where=str(path), fix=fix)


def _element(text: str, at: int, where: str, fix: str) -> tuple[Any, int]:
    """The value that begins at a place, and its end; parsed from the shortest piece that holds all of it."""
    size = 1 << 16
    while True:
        piece = _counted(text[at : at + size], where)
        try:
            found, end = _DECODER.raw_decode(piece)
            return found, at + end
        except RecursionError:
            raise MalformedFileError("nested too deeply", where=where, fix="Write flat objects") from None
        except ValueError as error:
            if at + size >= len(text):
                raise MalformedFileError(f"not JSON ({error})", where=where, fix=fix) from None
            if size >= MAX_TEXT:
                what = f"more than {MAX_TEXT:,} characters in one object, or not JSON"
                raise MalformedFileError(what, where=where, fix=fix) from None
        size <<= 4


_BLANKS: Callable[[str, int], re.Match[str]] = re.compile(r"[ \t\r\n]*").match  # type: ignore[assignment]  # never None
_DECODER = json.JSONDecoder(object_pairs_hook=unique_keys)


def _counted(text: str, where: str) -> str:
    """The same, unless it may hold more values than one object is allowed."""
    if len(text) > MAX_VALUES and sum(map(text.count, ",[{")) > MAX_VALUES:
        raise TooLargeError(
            f"more than {MAX_VALUES:,} values in one row", where=where, fix="Write flat objects"
        )
    return text


def _parse(text: str, where: str) -> Any:
    _counted(text, where)
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except RecursionError:
        raise MalformedFileError(
            "nested too deeply", where=where, fix="Write one flat object per line"
        ) from None
    except ValueError as error:
        fix = "Write one JSON object per line"
        raise MalformedFileError(f"not JSON ({error})", where=where, fix=fix) from None


# --- Parquet ----------------------------------------------------------------------------------


def _read_parquet(path: Path, refuse: Refuse) -> Table:
    file = open_parquet(path)
    schema, rows = file.schema_arrow, check_rows(path, file)
    check_names(schema.names, str(path))
    class_names = huggingface_class_names((schema.metadata or {}).get(b"huggingface", b"{}"))
    parts = {name: value for name, value in partitions(path).items() if name not in schema.names}

    def read(name: str) -> list[Any]:
        return [parts[name]] * rows if name in parts else read_column(path, name)

    return Table(str(path), (*schema.names, *parts), range(1, rows + 1), read, class_names=class_names)


# --- CSV, TSV and JSON as tables --------------------------------------------------------------


class _Rows:
    """The rows of a CSV, TSV or JSON file, which can be gone through again: it is not kept."""

    def __init__(self, path: Path, refuse: Refuse):
        self.path, self.errors = path, encoding_errors(path, refuse)
        self.typed = path.suffix.lower() in JSON
        self._delimiter = "" if self.typed else delimiter_of(path, self.errors)
        self.names: dict[str, None] = {}  # a set in order of appearance

    def through(self, refuse: Refuse) -> Iterator[tuple[int, Any]]:
        """Each row that can be read, with its number; ``names`` are known when it is at its end."""
        if not self.typed:
            records = whole_records(self.path, self._delimiter, refuse, self.errors)
            self.names = dict.fromkeys(next(records, (0, []))[1])
            yield from records
            return
        for row, record in objects_in(self.path, refuse, self.errors):
            if not record.keys() <= self.names.keys():
                self.names |= dict.fromkeys(record)
                if len(self.names) > MAX_COLUMNS:
                    raise too_many(len(self.names), f"{self.path}, row {row}")
            yield row, record

    def cell(self, name: str) -> Callable[[Any], Any]:
        """What gives a row's value of a column."""
        at, plain = list(self.names).index(name), plain_under(tuple(self.names))
        return (lambda record: record.get(name)) if self.typed else (lambda record: plain(record[at]))


def _read_text(path: Path, refuse: Refuse) -> Table:
    file = _Rows(path, refuse)
    kept: list[Any] | None = []
    rows = array("q")  # a fifth of a list's memory
    for row, record in file.through(refuse):
        rows.append(row)
        kept = kept if len(file.names) <= KEPT_COLUMNS else None
        if kept is not None:
            kept.append(record)
    names = tuple(file.names)
    check_names(names, str(path))
    settings, lenient = said_of_tables(), not file.typed or refuse is not stop

    def read(name: str) -> list[Any]:
        values, cell = [], file.cell(name)
        with reading(**settings):  # as when the others were read
            records = (record for _, record in file.through(pass_over)) if kept is None else kept
            for row, record in zip(rows, records, strict=True):
                if not lenient and name not in record:
                    where, fix = f"{path}, row {row}", "Give every row the key"
                    raise MalformedFileError(f"no {name!r} here", where=where, fix=fix)
                values.append(cell(record))
        return values

    told = ""
    if path.suffix.lower() == PLAIN:
        told = f"{path.name} is read as a table: {len(names)} columns with tabs between them, "
        told += f"{'without a header' if names[:1] == ('column1',) else listed(names)}"
    return Table(str(path), names, rows, read, file.typed, told)


JSON = (".jsonl", ".ndjson", ".json")
DELIMITED = (".csv", ".tsv")
READERS: dict[str, Callable[[Path, Refuse], Table]] = {
    **dict.fromkeys((*DELIMITED, *JSON), _read_text),
    ".parquet": _read_parquet,
}


# --- streamed tables ------------------------------------------------------------------------------
# Rows one at a time: what ``read_table`` gives, not kept.
# The file is gone through several times (encoding, names, a sample of columns, rows) rather than kept.

STREAMED = (*DELIMITED, *JSON[:2])  # .json is one array, and Parquet has its own readers


def names_in(path: Path) -> tuple[str, ...] | None:
    """The columns of a CSV, TSV or Parquet file, of which no row is read; None: the file does not say, or
    cannot be read, which its reader tells.
    """
    suffix = path.suffix.lower()
    if not path.is_file() or suffix not in (*DELIMITED, ".parquet"):
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
        self.path, self._file = path, _Rows(path, refuse)
        self.count = sum(1 for _ in self._file.through(refuse))
        self.names = tuple(self._file.names)
        check_names(self.names, str(path))
        if not self.count:
            raise no_rows(path, header=bool(self.names) and not self._file.typed)

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The number of each row that can be read, and its values by column."""
        cells = {name: self._file.cell(name) for name in self.names}
        for row, record in self._file.through(pass_over):
            yield row, {name: cell(record) for name, cell in cells.items()}

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
        return Table(str(self.path), self.names, rows, read, self._file.typed)
