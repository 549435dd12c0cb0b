"""Readers of CSV, TSV, JSONL, Parquet and plain text files whose errors name the faulty row.

Rows are counted from 1: in CSV and TSV the header is row 1, in JSONL each line is a row, in Parquet row 1 is
the first record. ``StreamedTable`` iterates over the rows of a file of any size without keeping them.

This module is long because only the reader knows the number of a faulty row, and because CSV and TSV files do
not state their delimiter, whether they have a header, or what other lines they contain.
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
    looks_like_labels,
    mean_text_length,
    sampled_rows,
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
    open_file,
    pass_over,
    read_utf8,
    readable,
    reading,
    reading_setting,
    reading_settings,
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
from glassformer.data.spreadsheet import SEPARATOR, cell_reader, csv_rows, other_kind, unsupported_message
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

PLAIN = ".txt"  # one text per line
NO_ROWS = "the file has no rows"
STRICT = "strict"
MAX_NAME = 1_000  # characters of a column's name; a longer one is a text in the place of the header
BLANK_BEHIND_FIX = "Remove the blanks between a closing quote and the separator or line end after it"
RAGGED_FIX = "Put a text that contains the separator or a line break into double quotes"
BLANK_FIX = "Remove the blanks between a separator and an opening quote: such a quote is a part of the text"
_CHUNK = 1 << 20
MAX_VALUES = 1 << 22  # in one JSON object, and separators in one line of CSV
KEPT_COLUMNS = 16  # a table with more columns is read again for each column that is requested


@dataclass(frozen=True)
class Table:
    """The columns of a file, each read when it is requested."""

    origin: str
    names: tuple[str, ...]
    rows: Sequence[int]  # row number of each record in the file
    read: Callable[[str], list[Any]]  # reads the values of a column by its name, one per record
    typed: bool = True  # False: every value is text (CSV, TSV)
    message: str = ""  # message to the user about how the file is read
    class_names: dict[str, tuple[str, ...]] = field(default_factory=dict)  # column -> class names

    def check_columns(self, *names: str | None) -> None:
        """Raise DataError for a column that does not exist; None is ignored."""
        for name in names:
            if name is not None and name not in self.names:
                raise NoSuchColumnError(
                    f"there is no column {name!r}", where=self.origin, fix=nearest(name, self.names)
                )


def read_table(path: str | Path, refuse: Refuse = stop) -> Table:
    """A table from ``.csv``, ``.tsv``, ``.jsonl``, ``.json`` (an array of objects) or ``.parquet``.

    Args:
        refuse: called with the error for a row that is ragged, not a JSON object, not UTF-8 or has broken
            quoting. If it returns, the row is left out, and reading continues on the line after its first.
            With a ``refuse`` other than ``stop``, keys that a JSON object lacks become None.

    Raises:
        DataError: the file is missing, of an unsupported type, not UTF-8, damaged, ragged, or without rows.
    """
    path = Path(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None and is_tab_separated(path):
        reader = _read_text
    if reader is None:
        fix = other_kind(path.suffix, READERS)
        raise FileTypeError(unsupported_message(path), where=str(path), fix=fix)
    table = reader(path, refuse)
    if not table.rows:
        raise no_rows(path, header=bool(table.names) and not table.typed)
    return table


def no_rows(path: Path, header: bool) -> DataError:
    """The error for a file without rows; ``header``: whether it has a header, which may be meant as a row."""
    fix = "Give at least one example"
    fix += "; the first row is read as the header: if the file has no header, add --header no" * header
    return MissingValueError(NO_ROWS, where=str(path), fix=fix)


def is_plain(path: Path) -> bool:
    """Whether a file has one text per line: a ``.txt`` file that is not a table."""
    return path.suffix.lower() == PLAIN and not is_tab_separated(path)


def is_tab_separated(path: Path) -> bool:
    """Whether a ``.txt`` file is a table: all lines have the same number of tabs, at least one."""
    if path.suffix.lower() != PLAIN or not path.is_file():
        return False
    lines = filter(str.strip, text_lines(path, errors="replace"))
    tabs = [line.rstrip("\r\n").count("\t") for line in islice(lines, HEAD)]
    return len(tabs) > 1 and bool(tabs[0]) and tabs.count(tabs[0]) >= 0.95 * len(tabs)


# --- files that can be parsed, but probably wrongly -----------------------------------------------
# The content of the columns decides whether a file was parsed correctly. A line in a quoted cell is a
# separate row if it has as many cells as the header and its cells fit the columns of labels, numbers and
# dates, which prose never does. The first row is data if it has such cells, or if all names of text columns
# are sentences.

SAMPLE = 1_000  # number of rows from which the content of the columns is inferred
HEAD = 200  # number of rows compared with the first row, to decide whether the first row is data
ENOUGH = 10  # number of rows after which a column's labels are known well enough to exclude other values
MOSTLY = 0.75  # minimum share of the lines of a cell that look like rows
# Minimum number of lines of a cell, all of which must look like rows, if no column has labels or numbers:
# for tabs, for commas, and if all other rows span several lines.
LINES = 2, 3, 8
SENTENCE = 4  # minimum number of words of a sentence; names of columns have fewer words
QUESTIONS = 0.2  # minimum share of texts that end like questions
MAX_CHECKED = 64  # columns whose content is checked
MANY = 10  # maximum number of different numbers that can be classes
WORD = re.compile(r"[^\W\d][\w/-]*").fullmatch
# Names that occur in headers and rarely in rows.
OTHERS = (
    "id index title body name score question answer source context premise hypothesis sentence1 sentence2 "
    "image file path split tokens"
).split()
USUAL_NAMES = frozenset((*LABEL_COLUMNS, *TEXT_COLUMNS, *OTHERS))
OPENS = "a double quote opens in line"
ROWS_FIX = (
    'If each line is a row, correct the quote in line {} (inside a quoted cell, write ""), or read '
    "quotes as plain characters with --quoting none; if the cell has line breaks, add --quoting csv"
)
HEADER_FIX = (
    "Write a first row with the names of the columns, such as text,label, or read the file as it is with "
    "--header no; if this row is the header, add --header yes"
)
First = Literal["header", "row", "unclear"]


@dataclass(frozen=True)
class ColumnContent:
    """What distinguishes a column from prose: its labels or single words, or that it has numbers or dates."""

    labels: frozenset[str]
    repeat: bool  # whether the labels repeat, so that the sample has all of them
    numbers: bool
    dates: bool
    words: bool  # whether every label is one word
    spaced: bool  # whether cells are surrounded by blanks, as in ``text, label``

    def holds(self, cell: str) -> bool:
        cell = cell.strip('"')
        if cell in self.labels or (self.words and WORD(cell)):
            return True
        if not cell.strip() or (not self.spaced and cell != cell.strip()):
            return False
        return (self.numbers and are_numbers([cell])) or (self.dates and are_dates([cell]))


def infer_content(cells: Sequence[str]) -> ColumnContent | None:
    """The content of a column, inferred from some cells; None if they could also be prose."""
    filled = [cell for cell in cells if cell.strip()]
    if len(filled) < 2:
        return None
    spaced = any(cell != cell.strip() for cell in filled)
    numbers, dates = are_numbers(filled), are_dates(filled)
    if (
        looks_like_labels(filled)
        and mean_text_length(filled) is None
        and (not numbers or len(set(filled)) <= MANY)
    ):
        return ColumnContent(frozenset(filled), True, numbers, False, all(map(WORD, filled)), spaced)
    if all(map(WORD, filled)):
        return ColumnContent(frozenset(filled), False, False, False, True, spaced)
    return ColumnContent(frozenset(), False, numbers, dates, False, spaced) if numbers or dates else None


# --- rows within a quoted cell ----------------------------------------------------------------


class ColumnContents:
    """Content of the columns of a file, determined on first use."""

    def __init__(self, path: Path, delimiter: str, errors: str):
        self.path, self.delimiter, self.errors = path, delimiter, errors
        self.width = 0  # number of cells of the header; 0: not known yet
        self._contents: list[ColumnContent | None] | None = None
        self._spaced = False  # whether cells begin with a blank

    def are_rows(self, lines: Sequence[str]) -> bool:
        """Whether each line of one record looks like a separate row."""
        rows = [line.rstrip("\r\n").split(self.delimiter) for line in lines if line.strip()]
        fitting = [row for row in rows if len(row) == self.width]
        if self.width < 2 or len(rows) < 2 or len(fitting) < MOSTLY * len(rows):
            return False
        if len(rows[0]) != self.width:  # a multi-line cell: its first line is not followed by a label
            return False
        if self._contents is None:
            sample = list(islice(self._single_lines(), SAMPLE))
            self._contents = [infer_content(cells) for cells in zip(*sample, strict=True)]
            self._spaced = any(cell[:1] == " " for row in sample for cell in row[1:])
        if not self._spaced:  # a cell that begins with a blank is probably prose after a comma
            fitting = [row for row in fitting if not any(cell[:1] == " " for cell in row[1:])]
        known = [(i, content) for i, content in enumerate(self._contents) if content is not None]
        if not known:
            tabs, commas, multiline = LINES
            least = multiline if not self._contents else tabs if self.delimiter == "\t" else commas
            return len(fitting) == len(rows) >= least
        return sum(all(content.holds(row[i]) for i, content in known) for row in fitting) >= MOSTLY * len(
            rows
        )

    def _single_lines(self) -> Iterator[list[str]]:
        """The records that are one line long, without the header."""
        record_lines: list[str] = []

        def lines() -> Iterator[str]:
            for line in text_lines(self.path, newline="", errors=self.errors):
                record_lines.append(line)
                yield line

        header_seen = False
        with suppress(csv.Error):
            for record in csv_rows(lines(), MAX_TEXT, delimiter=self.delimiter):
                if len(record_lines) == 1 and len(record) == self.width and header_seen:
                    yield record
                header_seen = header_seen or len(record) == self.width
                record_lines.clear()


# --- the header -------------------------------------------------------------------------------


def first_row(names: Sequence[str], rows: Iterable[Sequence[str]]) -> tuple[First, str]:
    """Whether the first row of a table is its header or one of its rows, and why.

    Args:
        names: the cells of the first row.
        rows: some of the rows below, with as many cells.
    """
    columns = list(zip(*rows, strict=True))[:MAX_CHECKED]
    names = names[: len(columns)]
    numbered = list(map(str, range(len(names))))  # pandas' names for columns without a name
    if not columns or [*filter(None, names)] in (numbered, numbered[:-1]):
        return "unclear", ""
    named_columns = list(zip(names, columns, strict=True))
    if any(name.strip().lower() in USUAL_NAMES and name not in cells for name, cells in named_columns):
        return "header", ""
    repeats: list[str] = []  # names that also occur as values of their columns
    for name, cells in named_columns:
        content = infer_content(cells)
        if content is None or (content.labels and not content.repeat):
            continue
        if name in content.labels or (not content.words and content.holds(name)):
            repeats.append(name)
        elif len(cells) >= ENOUGH or are_numbers(cells):
            return "header", ""
    if repeated := next((name for name in repeats if not are_numbers([name])), None):
        return "row", f"{repeated!r} is also a value of its column"
    texts = [(name, cells) for name, cells in named_columns if mean_text_length(cells) is not None]
    if repeats and texts and all(len(name.split()) > 1 for name, _ in texts):
        return ("row", f"{repeats[0]!r} is also a value of its column, and {_short(texts[0][0])!r} is a text")
    if not repeats and texts and all(_reads_like(name, cells) for name, cells in texts):
        return "row", f"{_short(texts[0][0])!r} reads like the other texts of its column"
    return "unclear", ""


def _reads_like(name: str, cells: Sequence[str]) -> bool:
    """Whether the name of a column reads like its texts."""
    words = len(name.split())
    has_questions = sum(cell.rstrip().endswith(("?", ":")) for cell in cells) >= QUESTIONS * len(cells)
    if name in cells:
        return True
    if name.rstrip().endswith(("?", ":")):  # as in the questions of a form
        return words >= SENTENCE and has_questions
    return words >= SENTENCE or (words > 1 and bool(re.search(r"[.!\u3002]\s*$", name)))


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."


# --- lines above and within the table -------------------------------------------------------------

MIN_ROWS = 4  # minimum number of non-empty rows of a table preceded by other lines
MAX_HEAD = 1 << 20  # number of characters at the beginning of a file that are checked
MAX_NAMED = 5  # rows that a message names
_HTML = re.compile(r"\s*<(!doctype html|html|head|body|table)\b", re.IGNORECASE).match
Row = tuple[int, list[str]]


def check_head(path: Path, errors: str) -> None:
    """Raise DataError for an HTML page, and for lines above the header unless ``--header`` is given."""
    if reading_setting("header"):
        return
    lines, _ = _beginning(path, errors, HEAD)
    if _HTML(next(filter(str.strip, lines), "")):
        what = f"the file is a page of HTML, not a table as {path.suffix} files are"
        fix = "Open it in a spreadsheet and save the sheet as CSV in UTF-8"
        raise FileTypeError(what, where=str(path), fix=fix)
    if SEPARATOR("".join(lines[:1])):
        return
    how = csv.QUOTE_NONE if reading_setting("quoting") == "none" else csv.QUOTE_MINIMAL
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
        if header := _header_below(filled):
            (first, cells), (row, names) = filled[0], header
            what = f"row {first} is not a header but a line above the table ({sign.join(cells)[:40]!r}); "
            what += f"row {row} looks like the header: {listed(names)}"
            above = f"the {row - 1} rows" if row > 2 else "the row"
            fix = f"Remove {above} above it; if row {first} is the header, add --header yes"
            raise MalformedFileError(what, where=str(path), fix=fix)


def _beginning(path: Path, errors: str, max_lines: int | None = None) -> tuple[list[str], bool]:
    """The first ``max_lines`` lines of a file; and whether they stop early, after ``MAX_HEAD`` characters."""
    lines, size = [], 0
    for line in islice(text_lines(path, newline="", errors=errors), max_lines):
        lines.append(line)
        size += len(line)
        if size > MAX_HEAD:
            return lines, True
    return lines, False


def _header_below(rows: Sequence[Row]) -> Row | None:
    """The row that looks like the header if the first row is a title or comment above it; else None."""
    if len(rows) < MIN_ROWS:
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


class RepeatedHeaders:
    """Repeated header rows below the header, as in concatenated tables.

    Args:
        names: the cells of the header.
        path: the file, for error messages.
    """

    def __init__(self, names: Sequence[str], path: Path):
        self.names, self.path = [name.strip() for name in names], path
        self._sorted = sorted(self.names)

    def remove_from(self, records: Iterable[Row], refuse: Refuse) -> Iterator[Row]:
        """The records that do not repeat the header; ``refuse`` is called for every record that does.

        Raises:
            DataError: a record has the header's names in another order, so it begins another table.
        """
        records = iter(records)
        for row, record in records:
            if not self.is_repeat(record):
                yield row, record
            elif [cell.strip() for cell in record] != self.names:
                what = f"row {row} is a second header, in another order ({','.join(record)}), so another "
                what += f"table than the one with the header in row 1 ({','.join(self.names)}) begins there"
                fix = f"Save the rows from row {row} on as another file, or bring their columns into "
                fix += "the order of the first header"
                raise MalformedFileError(what, where=str(self.path), fix=fix)
            else:
                what = "the header again, where a row is expected"
                if refuse is stop:
                    later = (n for n, cells in records if [cell.strip() for cell in cells] == self.names)
                    rows = [str(n) for n in islice(chain([row], later), MAX_NAMED + 1)]
                    shown = ", ".join(rows[:MAX_NAMED]) + ", ..." * (len(rows) > MAX_NAMED)
                    what += f" (rows {shown})" if len(rows) > 1 else ""
                fix = "Remove the rows that repeat the header"
                refuse(RowError(what, where=f"{self.path}, row {row}", fix=fix), row)

    def is_repeat(self, record: Sequence[str]) -> bool:
        """Whether a record has the names of the header as its cells, in any order."""
        if len(record) != len(self.names) or len(record) < 2 or record[0].strip() not in self._sorted:
            return False
        return sorted(cell.strip() for cell in record) == self._sorted


# --- the delimiter --------------------------------------------------------------------------------

MAX_COLUMNS = 1 << 16
USUAL, RARE = ",;\t", "|^~\x01\x1f"  # rare delimiters are tried only if the header has no usual one
CHECKED_LINES = 20  # lines in which a rare delimiter must occur as often as in the header
_QUOTED = re.compile(r'"[^"]*"')
BLANK_QUOTE = re.compile(' +"').match  # an unquoted cell rarely begins like this
_NAME = "(text|label|sentence|review)"
_JOINED = re.compile(rf"{_NAME}\s*([^\w\s]+)\s*{_NAME}", re.IGNORECASE)


def delimiter_of(path: Path, errors: str) -> str:
    """The delimiter of a file, by its first line: the header, or Excel's ``sep=;``.

    Blank lines before the header are skipped, and delimiters in double quotes are not counted. A pipe or
    other rare delimiter needs a header without comma, semicolon and tab, and the same count in most lines.

    Raises:
        DataError: too many columns, a header of two usual names with an unsupported separator, or a file
            that ``check_head`` rejects.
    """
    check_head(path, errors)
    lines = text_lines(path, newline="", errors=errors)
    header = next(lines, "")
    if separator := SEPARATOR(header):
        return separator[1]
    header = header if header.strip() else next(filter(str.strip, lines), "")
    if reading_setting("quoting") != "none":
        while header.count('"') % 2 and len(header) < MAX_HEAD and (line := next(lines, "")):
            header += line  # a line end within quotes belongs to a name
        unquoted = _QUOTED.sub("", header)
        header = unquoted if any(map(unquoted.count, USUAL + RARE)) else header
    delimiter = "\t" if path.suffix.lower() in (".tsv", ".txt") else max(USUAL, key=header.count)
    if delimiter not in header:
        delimiter = _rare(path, header, lines, delimiter)
    if (columns := header.count(delimiter)) >= MAX_COLUMNS:
        raise too_many(columns + 1, f"{path}, row 1")
    return delimiter


def _rare(path: Path, header: str, lines: Iterator[str], usual: str) -> str:
    """The rare delimiter of a file whose header has no usual one; ``usual`` if it has only one column."""
    below = list(islice(filter(str.strip, lines), CHECKED_LINES))
    for sign in (*USUAL, *RARE) if usual == "\t" else RARE:
        alike = sum(_QUOTED.sub("", line).count(sign) == header.count(sign) for line in below)
        if sign in header and 2 * alike > len(below):
            return sign
    if joined := _JOINED.fullmatch(header.strip()):
        what = f"unsupported separator {joined[2]!r} in the header {header.strip()!r}"
        fix = "Save the table with commas, semicolons, tabs or pipes between its columns"
        raise MalformedFileError(what, where=f"{path}, row 1", fix=fix)
    return usual


def blanks_at_quotes(path: Path, delimiter: str, errors: str) -> tuple[bool, bool]:
    """Whether to strip blanks before an opening quote, and after a closing one: yes if every row with such
    blanks, at the beginning of the file, then has as many cells as the header."""
    lines, cut = _beginning(path, errors)  # possibly cut within a row
    lines = lines[1:] if SEPARATOR("".join(lines[:1])) else lines
    blank_before = re.compile(re.escape(delimiter) + ' +"').search
    stripped = list(without_blanks_behind_quotes(lines, delimiter))
    if stripped != lines and _fit(stripped, delimiter, blank_behind_quote(delimiter), lines, cut):
        return any(map(blank_before, lines)), True
    if not any(map(blank_before, lines)):
        return False, False
    try:
        if not any(BLANK_QUOTE(cell) for row in csv.reader(lines, delimiter=delimiter) for cell in row):
            return False, False
    except csv.Error:
        return cut, False
    return _fit(lines, delimiter, blank_before, lines, cut), False


def _fit(
    lines: list[str], delimiter: str, matches: Callable[[str], Any], original: list[str], cut: bool
) -> bool:
    """Whether all rows whose ``original`` lines have a match have as many cells as the first row."""
    rows, row_start = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True), 0
    width = 0
    try:
        for row in rows:
            width = width or len(row)
            if len(row) != width and any(map(matches, original[row_start : rows.line_num])):
                return False
            row_start = rows.line_num
    except csv.Error:
        return cut
    return True


def blank_behind_quote(delimiter: str) -> Callable[[str], Any]:
    """A search function for a quote followed by blanks up to the end of its cell."""
    return re.compile(rf'" +(?={re.escape(delimiter)}|[\r\n]*\Z)').search


def without_blanks_behind_quotes(lines: Iterable[str], delimiter: str) -> Iterator[str]:
    """The lines of a file without the blanks between the closing quote of a cell and the separator."""
    sign = re.escape(delimiter)
    cell = rf'(?:[^"]++|"")*+)(?:(") *(?={sign}|[\r\n]*\Z)|\Z)'
    outside = re.compile(rf'((?:\A|{sign}) *"{cell}')
    inside = re.compile(rf'((?:\A|{sign} *"){cell}')  # the line begins in a quoted cell
    open_ = False
    for line in lines:
        last = ""
        for match in (inside if open_ else outside).finditer(line):
            last = match[2] or "open"
        yield (inside if open_ else outside).sub(lambda m: m[1] + (m[2] or ""), line) if '"' in line else line
        open_ = last == "open" or (open_ and not last)


def too_many(count: int, where: str) -> DataError:
    what = f"{count:,} columns, and at most {MAX_COLUMNS:,} are read"
    return TooLargeError(what, where=where, fix="Keep only the columns of texts and labels")


# --- CSV and TSV ------------------------------------------------------------------------------


def whole_records(path: Path, delimiter: str, refuse: Refuse, errors: str) -> Iterator[tuple[int, list[str]]]:
    """The checked names of the columns, then the records that have one cell per column.

    Args:
        refuse: called with the error for every record that does not.

    Raises:
        DataError: names that occur twice or are too long, or a first row that looks like data although the
            user has not stated whether there is a header.
    """
    cells = ColumnContents(path, delimiter, errors)
    records = _records(path, delimiter, refuse, errors, cells)
    for row, first in records:
        blank = not first or (len(first) == 1 and first[0].isspace())
        if not blank and not (row == 1 and SEPARATOR(delimiter.join(first))):  # Excel's ``sep=;``
            break
    else:
        return
    cells.width, header = len(first), reading_setting("header")
    rows = [] if header else list(islice(records, HEAD))
    records = chain(rows, records)
    repeated = RepeatedHeaders(first, path)
    below = [record for _, record in rows if len(record) == len(first) and not repeated.is_repeat(record)]
    kind, why = first_row(first, below)
    if kind == "header" or header == "yes":
        records = repeated.remove_from(records, refuse)
    if header == "no" or (not header and path.suffix.lower() == PLAIN and kind != "header"):
        names, records = [f"column{i}" for i in range(1, len(first) + 1)], chain([(row, first)], records)
        row = 0
    elif kind == "row":
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
    """The records that can be decoded and have the right number of cells; blank ones are skipped."""
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
            ragged_fix = BLANK_FIX if any(map(BLANK_QUOTE, record)) else RAGGED_FIX
            error = RowError(what, where=f"{path}, row {row}", fix=ragged_fix)
            error.values, error.ragged = dict(zip(names, record, strict=False)), True
            refuse(error, row)
        else:
            yield row, record


def _records(
    path: Path, delimiter: str, refuse: Refuse, errors: str, cells: ColumnContents
) -> Iterator[tuple[int, list[str]]]:
    """All rows of the file with their numbers from 1, including the header and blank rows."""
    row, source = 0, _limit_separators(path, delimiter, errors)
    quotes = reading_setting("quoting") or ("none" if path.suffix.lower() == PLAIN else "")
    options: dict[str, Any] = {"quoting": csv.QUOTE_NONE} if quotes == "none" else {"strict": True}
    if quotes != "none":
        options["skipinitialspace"], strip_behind = blanks_at_quotes(path, delimiter, errors)
        source = without_blanks_behind_quotes(source, delimiter) if strip_behind else source
    lines, blank_behind = ReturningLines(source), blank_behind_quote(delimiter)
    while True:
        try:
            for record in csv_rows(lines, MAX_TEXT, delimiter=delimiter, **options):
                row += 1
                if not quotes and len(lines.record_lines) > 1 and cells.are_rows(lines.record_lines):
                    first = lines.number - len(lines.record_lines) + 1
                    what = f"{OPENS} {first} and closes in line {lines.number}, so that lines {first} to "
                    what += f"{lines.number} are read as one row, but each of these lines looks like a row"
                    refuse(
                        MalformedFileError(what, where=f"{path}, row {row}", fix=ROWS_FIX.format(first)), row
                    )
                    lines.go_back()
                    break
                lines.record_lines.clear()
                yield row, record
            else:
                return
        except csv.Error as error:
            row += 1
            unclosed = "end of data" in str(error)
            what = "a double quote is never closed" if unclosed else f"broken quoting ({error})"
            fix = 'Write a quote inside a text as "", or read quotes as plain characters: --quoting none'
            fix = BLANK_BEHIND_FIX if any(map(blank_behind, lines.record_lines[:1])) else fix
            refuse(MalformedFileError(what, where=f"{path}, row {row}", fix=fix), row)
            lines.go_back()


def encoding_errors(path: Path, refuse: Refuse) -> str:
    """How to decode a file: ``strict``, or ``surrogateescape``, which marks the bytes that are not UTF-8."""
    try:
        check_utf8(path)
    except NotUtf8Error:
        if refuse is stop:
            raise
        return "surrogateescape"
    return STRICT


def _limit_separators(path: Path, delimiter: str, errors: str) -> Iterator[str]:
    lines = text_lines(path, newline="", errors=errors)
    if path.stat().st_size <= MAX_VALUES:
        return lines

    def checked() -> Iterator[str]:
        for number, line in enumerate(lines, 1):
            if len(line) > MAX_VALUES and line.count(delimiter) > MAX_VALUES:
                what, where = f"more than {MAX_VALUES:,} separators in one line", f"{path}, line {number}"
                raise MalformedFileError(what, where=where, fix="Check that it is the intended file")
            yield line

    return checked()


def check_names(names: Sequence[str], where: str, delimited: bool = False) -> None:
    """Raise DataError for too many names, a name that occurs twice, or a name that is a text.

    Args:
        delimited: whether the file is CSV or TSV, where the first row may be data instead of a header.
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
            fix = f"The first row must be the header, with a short name for each column{without}"
            raise MalformedFileError(what, where=where, fix=fix)


# --- JSONL and JSON ---------------------------------------------------------------------------


def objects_in(path: Path, refuse: Refuse, errors: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of a file with their row numbers; other values are passed to ``refuse``."""
    is_array = path.suffix.lower() == ".json" and _begins_array(path)
    if path.suffix.lower() == ".json" and not is_array:
        _refuse_single_object(path)
    for row, value in _elements(path) if is_array else _json_lines(path, refuse, errors):
        if isinstance(value, dict):
            yield row, value
        else:
            where, fix = f"{path}, row {row}", 'Write one object per line: {"text": ...}'
            refuse(MalformedFileError("not a JSON object", where=where, fix=fix), row)


def _refuse_single_object(path: Path) -> None:
    """Raise DataError for a ``.json`` file with one object, such as SQuAD or a table stored by column."""
    check_file(path)
    if path.stat().st_size > MAX_TEXT:
        return
    try:
        content = json.loads(read_utf8(path))
    except (DataError, ValueError, RecursionError):  # JSON Lines, whose reader reports the error
        return
    nested = [v for v in content.values() if isinstance(v, dict | list)] if isinstance(content, dict) else []
    if not nested:  # one row
        return
    if any(isinstance(v, list) and v and isinstance(v[0], dict) and "paragraphs" in v[0] for v in nested):
        what = "question-answering data in the format of SQuAD, where a table is expected"
        fix = f"For question answering: glassformer train facts-minilm --data {shlex.quote(str(path))}"
        raise MalformedFileError(what, where=str(path), fix=fix)
    if len(nested) == len(content) or "\n" in read_utf8(path).strip():
        what = "one JSON object, where an array of objects is expected, one for each row"
        fix = 'Write [{"text": ..., "label": ...}, ...]; in pandas: to_json(orient="records")'
        raise MalformedFileError(what, where=str(path), fix=fix)


def _begins_array(path: Path) -> bool:
    if reading_setting("encoding"):
        return next((s for s in text_lines(path, errors="replace") if s.strip()), "").lstrip().startswith("[")
    with open_file(path) as file:
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
            with suppress(DataError):  # not JSON either: the row is unreadable
                value = _parse(readable(line), "")
                error.values = value if isinstance(value, dict) else {}
            refuse(error, row)
            continue
        try:
            value = _parse(line, f"{path}, row {row}")
        except DataError as error:
            refuse(error, row)
        else:
            yield row, value


def _elements(path: Path) -> Iterator[tuple[int, Any]]:
    """The elements of one JSON array, each parsed separately, so that only the needed parts are kept."""
    fix = "Write one array of objects"
    text = read_utf8(path)
    row, at, sign = 0, _BLANKS(text, text.index("[") + 1).end(), ","
    if text[at : at + 1] == "]":
        at, sign = at + 1, "]"
    while sign == ",":
        row += 1
        value, at = _element(text, _BLANKS(text, at).end(), f"{path}, row {row}", fix)
        yield row, value
        at = _BLANKS(text, at).end() + 1
        sign = text[at - 1 : at]
    if sign != "]":
        what = f"not JSON (a ',' or ']' is missing after row {row})"
        raise MalformedFileError(what, where=str(path), fix=fix)
    if _BLANKS(text, at).end() < len(text):
        raise MalformedFileError("not JSON (there is more after the array)", where=str(path), fix=fix)


def _element(text: str, at: int, where: str, fix: str) -> tuple[Any, int]:
    """The value that begins at ``at``, and its end; parsed from the shortest piece that contains it."""
    size = 1 << 16
    while True:
        piece = _check_size(text[at : at + size], where)
        try:
            value, end = _DECODER.raw_decode(piece)
            return value, at + end
        except RecursionError:
            raise MalformedFileError("nested too deeply", where=where, fix="Write flat objects") from None
        except ValueError as error:
            if at + size >= len(text):
                raise MalformedFileError(not_json(error), where=where, fix=fix) from None
            if size >= MAX_TEXT:
                what = f"more than {MAX_TEXT:,} characters in one object, or not JSON"
                raise MalformedFileError(what, where=where, fix=fix) from None
        size <<= 4


_BLANKS: Callable[[str, int], re.Match[str]] = re.compile(r"[ \t\r\n]*").match  # type: ignore[assignment]  # never None
_DECODER = json.JSONDecoder(object_pairs_hook=unique_keys)


def _check_size(text: str, where: str) -> str:
    """Return ``text`` unchanged; raise an error if it may have more values than one object may have."""
    if len(text) > MAX_VALUES and sum(map(text.count, ",[{")) > MAX_VALUES:
        raise TooLargeError(
            f"more than {MAX_VALUES:,} values in one row", where=where, fix="Write flat objects"
        )
    return text


def _parse(text: str, where: str) -> Any:
    _check_size(text, where)
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except RecursionError:
        raise MalformedFileError(
            "nested too deeply", where=where, fix="Write one flat object per line"
        ) from None
    except ValueError as error:
        fix = "Write one JSON object per line"
        raise MalformedFileError(not_json(error), where=where, fix=fix) from None


def not_json(error: ValueError) -> str:
    """What is wrong with a text that is not JSON, and at which of its characters."""
    if not isinstance(error, json.JSONDecodeError):
        return f"not JSON ({error})"
    cut = error.pos >= len(error.doc.rstrip())
    why = "it ends too early" if cut else error.msg[:1].lower() + error.msg[1:]
    return f"not JSON ({why}, character {error.pos + 1})"


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
    """The rows of a CSV, TSV or JSON file; each iteration reads the file again."""

    def __init__(self, path: Path, refuse: Refuse):
        self.path, self.errors = path, encoding_errors(path, refuse)
        self.typed = path.suffix.lower() in JSON
        self._delimiter = "" if self.typed else delimiter_of(path, self.errors)
        self.names: dict[str, None] = {}  # a set in order of appearance

    def records(self, refuse: Refuse) -> Iterator[tuple[int, Any]]:
        """Each readable row, with its number; ``names`` is complete after the last row."""
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
        """A function that returns the value of a column in a row."""
        at, plain = list(self.names).index(name), cell_reader(tuple(self.names))
        return (lambda record: record.get(name)) if self.typed else (lambda record: plain(record[at]))


def _read_text(path: Path, refuse: Refuse) -> Table:
    file = _Rows(path, refuse)
    cached: list[Any] | None = []
    rows = array("q")  # a fifth of a list's memory
    for row, record in file.records(refuse):
        rows.append(row)
        cached = cached if len(file.names) <= KEPT_COLUMNS else None
        if cached is not None:
            cached.append(record)
    names = tuple(file.names)
    check_names(names, str(path))
    settings, lenient = reading_settings(), not file.typed or refuse is not stop

    def read(name: str) -> list[Any]:
        values, cell = [], file.cell(name)
        with reading(**settings):  # the settings with which the other columns were read
            records = (record for _, record in file.records(pass_over)) if cached is None else cached
            for row, record in zip(rows, records, strict=True):
                if not lenient and name not in record:
                    where, fix = f"{path}, row {row}", "Give every row the key"
                    raise MalformedFileError(f"no {name!r} here", where=where, fix=fix)
                values.append(cell(record))
        return values

    message = ""
    if path.suffix.lower() == PLAIN:
        message = f"{path.name} is read as a table: {len(names)} columns with tabs between them, "
        message += f"{'without a header' if names[:1] == ('column1',) else listed(names)}"
    return Table(str(path), names, rows, read, file.typed, message)


JSON = (".jsonl", ".ndjson", ".json")
DELIMITED = (".csv", ".tsv")
READERS: dict[str, Callable[[Path, Refuse], Table]] = {
    **dict.fromkeys((*DELIMITED, *JSON), _read_text),
    ".parquet": _read_parquet,
}


# --- streamed tables ------------------------------------------------------------------------------
# The same rows as from ``read_table``, one at a time. Instead of being kept in memory, the file is read
# several times: to check its encoding, and for its names, a sample of its columns, and its rows.

STREAMED = (*DELIMITED, *JSON[:2])  # .json is one array, and Parquet has separate readers


def names_in(path: Path) -> tuple[str, ...] | None:
    """The column names of a CSV, TSV or Parquet file, read without its rows; None if the file has no names or
    cannot be read (the error is reported when the rows are read)."""
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
    """The column names of a file and the number of its rows; ``rows`` reads it again.

    Args:
        path: a file with one of the extensions ``STREAMED``.
        refuse: called, only in the first pass, with the error for an unusable row; if it returns, the row is
            left out. Keys that a JSON object lacks become None.

    Raises:
        DataError: see ``read_table``.
    """

    def __init__(self, path: Path, refuse: Refuse):
        self.path, self._file = path, _Rows(path, refuse)
        self.count = sum(1 for _ in self._file.records(refuse))
        self.names = tuple(self._file.names)
        check_names(self.names, str(path))
        if not self.count:
            raise no_rows(path, header=bool(self.names) and not self._file.typed)

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The number of each readable row, and its values by column."""
        cells = {name: self._file.cell(name) for name in self.names}
        for row, record in self._file.records(pass_over):
            yield row, {name: cell(record) for name, cell in cells.items()}

    def sample(self) -> Table:
        """A table of about 2,000 rows from the whole file, to infer the content of its columns."""
        indices = sampled_rows(self.count)
        sampled: list[tuple[int, dict[str, Any]]] = []

        def read(name: str) -> list[Any]:
            if not sampled:
                selected = set(indices)
                sampled.extend(row for i, row in enumerate(self.rows()) if i in selected)
            return [values[name] for _, values in sampled]

        rows = [i + 1 for i in indices]
        return Table(str(self.path), self.names, rows, read, self._file.typed)
