"""Readers of CSV, TSV, JSONL and Parquet files.

Errors name the invalid row. Row numbers begin with 1: in CSV and TSV row 1 is the header, in JSONL each line
is a row, in Parquet row 1 is the first record. ``StreamedTable`` reads files that do not fit into memory.

This module is long because it also checks the files: only the reader knows the number of an invalid row. CSV
and TSV files do not state their delimiter, whether they have a header, or whether other lines are above the
table.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from glassformer.config import join_names, suggest
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
    check_file,
    check_utf8,
    decoding_error_message,
    encoding_fix,
    read_utf8,
    reading,
    reading_setting,
    reading_settings,
    replace_undecoded,
    text_lines,
)
from glassformer.data.parquet import check_rows, hub_class_names, open_parquet, partition_values, read_column
from glassformer.data.spreadsheet import csv_plain, csv_rows, file_type_error, is_label_review
from glassformer.errors import (
    DataError,
    FileTypeError,
    MalformedFileError,
    MissingValueError,
    NoSuchColumnError,
    TooLargeError,
)
from glassformer.process import READ_OPTIONS
from glassformer.reading import unique_keys

TXT = ".txt"  # one text per line
NO_ROWS = "the file has no rows"
STRICT = "strict"  # value of ``errors`` in ``open``: bytes that cannot be decoded raise an error
MAX_NAME = 1_000  # characters of a column's name; a longer first row is probably a text, not a header
BLANK_AFTER_QUOTE_FIX = "Remove the blanks between a closing quote and the separator or line end after it"
RAGGED_FIX = "Put a text that contains the separator or a line break into double quotes"
BLANK_FIX = "Remove the blanks between a separator and an opening quote: such a quote is a part of the text"
MAX_VALUES = 1 << 22  # maximum number of values of one JSON object, and of separators in one line of CSV
MAX_CACHED_COLUMNS = 16  # a file with more columns is read again for each requested column


# --- unusable rows --------------------------------------------------------------------------------

# A function that is called for an unusable row, with the error and the row number.
RowErrorHandler = Callable[[DataError, int], None]


class RowError(DataError):
    """The error for an unusable row."""

    code = MalformedFileError.code

    def __init__(
        self, what: str, *, values: dict[str, Any] | None = None, ragged: bool = False, **place: str | None
    ):
        super().__init__(what, **place)
        self.values = values or {}  # column -> cell, for the cells that can be read
        self.ragged = ragged  # whether the row has another number of cells than the header


class UndecodedRowError(RowError):
    """The error for a row that is not UTF-8."""

    code = NotUtf8Error.code


def raise_error(error: DataError, row: int) -> None:
    raise error


def ignore_error(error: DataError, row: int) -> None:
    """Ignore an unusable row, for instance because it was reported before."""


# --- tables ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """The columns of a file; each column is read when it is requested."""

    origin: str  # the file, for messages
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
                what, fix = f"there is no column {name!r}", suggest(name, self.names)
                raise NoSuchColumnError(what, where=self.origin, fix=fix)


def read_table(path: str | Path, on_error: RowErrorHandler = raise_error) -> Table:
    """A table from ``.csv``, ``.tsv``, ``.jsonl``, ``.json`` (an array of objects) or ``.parquet``.

    Args:
        on_error: called for a row that is ragged, not a JSON object, not UTF-8, or has invalid quotes. If the
            function returns, the row is skipped, and reading continues on its second line. Unless
            ``on_error`` is ``raise_error``, keys that a JSON object lacks become None.

    Raises:
        DataError: the file is missing, of an unsupported type, not UTF-8, damaged, ragged, or without rows.
    """
    path = Path(path)
    reader = READERS.get(path.suffix.lower()) or (_read_text_table if is_tab_separated(path) else None)
    if reader is None:
        raise file_type_error(path, READERS)
    table = reader(path, on_error)
    if not table.rows:
        raise no_rows_error(path, has_header=bool(table.names) and not table.typed)
    return table


def no_rows_error(path: Path, has_header: bool) -> DataError:
    """The error for a file without rows; if it has only a header, the fix is to read the header as a row."""
    fix = "Give at least one example"
    fix += "; the first row is read as the header: if the file has no header, add --header no" * has_header
    return MissingValueError(NO_ROWS, where=str(path), fix=fix)


def is_plain(path: Path) -> bool:
    """Whether a file has one text per line: a ``.txt`` file that is not a table."""
    return path.suffix.lower() == TXT and not is_tab_separated(path)


def is_tab_separated(path: Path) -> bool:
    """Whether a ``.txt`` file is a table: all lines have the same number of tabs, at least one."""
    if path.suffix.lower() != TXT or not path.is_file():
        return False
    lines = filter(str.strip, text_lines(path, errors="replace"))
    tabs = [line.rstrip("\r\n").count("\t") for line in islice(lines, FIRST_ROWS)]
    return len(tabs) > 1 and bool(tabs[0]) and tabs.count(tabs[0]) >= 0.95 * len(tabs)


# --- detecting files that are parsed wrongly ------------------------------------------------------
# A quote that is not closed turns several rows into one cell. A line in a quoted cell is probably a row if it
# has as many cells as the header, and its cells look like the labels, numbers and dates of their columns.
# Prose does not look like that. The first row is probably data if it has such cells, or if all its texts are
# sentences.

SAMPLE_ROWS = 1_000  # number of rows from which the content of the columns is inferred
FIRST_ROWS = 200  # number of rows with which the first row is compared
MIN_LABEL_ROWS = 10  # number of rows after which a column is assumed to have no other labels
MIN_FITTING = 0.75  # minimum share of the lines of a cell that look like rows
# Minimum number of lines of a cell if no column has labels or numbers: in a file with tabs, in one with
# commas, and if all other rows have several lines, too. All lines must look like rows.
MIN_LINES_TABS, MIN_LINES_COMMAS, MIN_LINES_MULTILINE = 2, 3, 8
MIN_SENTENCE_WORDS = 4  # names of columns have fewer words
MIN_QUESTIONS = 0.2  # minimum share of texts that end like questions
MAX_CHECKED = 64  # maximum number of columns whose content is checked
MAX_NUMBER_CLASSES = 10  # maximum number of different numbers that can be classes
is_word = re.compile(r"[^\W\d][\w/-]*").fullmatch
# Names that occur in headers and rarely in rows.
OTHER_NAMES = "id index title body name score question answer source context premise hypothesis".split()
OTHER_NAMES += "sentence1 sentence2 image file path split tokens".split()
USUAL_NAMES = frozenset((*LABEL_COLUMNS, *TEXT_COLUMNS, *OTHER_NAMES))
OPEN_QUOTE = "a double quote opens in line"  # beginning of an error message
ROWS_FIX = 'If each line is a row, correct the quote in line {} (inside a quoted cell, write ""), or read '
ROWS_FIX += "quotes as plain characters with --quoting none; if the cell has line breaks, add --quoting csv"
HEADER_FIX = "Write a first row with the names of the columns, such as text,label, or read the file as it is "
HEADER_FIX += "with --header no; if this row is the header, add --header yes"
FirstRow = Literal["header", "row", "unclear"]


@dataclass(frozen=True)
class ColumnPattern:
    """The properties of a column of labels, single words, numbers or dates, to tell its cells from prose."""

    labels: frozenset[str]
    repeat: bool  # whether the labels repeat, so that the sample probably has all of them
    numbers: bool  # whether all cells are numbers
    dates: bool
    words: bool  # whether every label is one word
    spaced: bool  # whether cells are surrounded by blanks, as in ``text, label``

    def matches(self, cell: str) -> bool:
        cell = cell.strip('"')
        if cell in self.labels or (self.words and is_word(cell)):
            return True
        if not cell.strip() or (not self.spaced and cell != cell.strip()):
            return False
        return (self.numbers and are_numbers([cell])) or (self.dates and are_dates([cell]))


def infer_pattern(cells: Sequence[str]) -> ColumnPattern | None:
    """The pattern of the cells of a column; None if the cells could also be prose."""
    cells = [cell for cell in cells if cell.strip()]
    if len(cells) < 2:
        return None
    spaced = any(cell != cell.strip() for cell in cells)
    numbers, dates, words = are_numbers(cells), are_dates(cells), all(map(is_word, cells))
    can_be_classes = not numbers or len(set(cells)) <= MAX_NUMBER_CLASSES
    if can_be_classes and looks_like_labels(cells) and mean_text_length(cells) is None:
        return ColumnPattern(frozenset(cells), True, numbers, False, words, spaced)
    if words:
        return ColumnPattern(frozenset(cells), False, False, False, True, spaced)
    return ColumnPattern(frozenset(), False, numbers, dates, False, spaced) if numbers or dates else None


# --- rows within a quoted cell ----------------------------------------------------------------


class RewindableLines:
    """An iterator of lines that can be rewound to the second line of a malformed record."""

    def __init__(self, lines: Iterator[str]):
        self.lines, self.rewound = lines, deque[str]()
        self.record_lines: list[str] = []  # lines of the current record; the caller clears this list
        self.number = 0  # number of the last line that was read, from 1

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self.rewound.popleft() if self.rewound else next(self.lines)
        self.record_lines.append(line)
        self.number += 1
        return line

    def rewind(self) -> None:
        """Make the iterator return the lines of the current record again, except the first."""
        self.rewound.extendleft(reversed(self.record_lines[1:]))
        self.number -= len(self.record_lines) - 1
        self.record_lines.clear()


class QuotedRowDetector:
    """Detects rows that are read as one cell because a double quote is not closed."""

    def __init__(self, path: Path, delimiter: str, errors: str):
        self.path, self.delimiter, self.errors = path, delimiter, errors
        self.width = 0  # number of cells of the header; 0: not known yet
        self._patterns: list[ColumnPattern | None] | None = None  # of the columns; None: not inferred yet
        self._spaced = False  # whether cells of the sample begin with a blank

    def are_rows(self, lines: Sequence[str]) -> bool:
        """Whether each line of one record looks like a separate row."""
        rows = [line.rstrip("\r\n").split(self.delimiter) for line in lines if line.strip()]
        fitting = [row for row in rows if len(row) == self.width]
        is_table = self.width > 1 and len(rows) > 1 and len(fitting) >= MIN_FITTING * len(rows)
        if not is_table or rows[0] not in fitting:  # a multi-line cell: no label follows its first line
            return False
        if self._patterns is None:
            sample = list(islice(self._single_lines(), SAMPLE_ROWS))
            self._patterns = [infer_pattern(cells) for cells in zip(*sample, strict=True)]
            self._spaced = any(cell[:1] == " " for row in sample for cell in row[1:])
        if not self._spaced:  # a cell that begins with a blank is probably prose after a comma
            fitting = [row for row in fitting if not any(cell[:1] == " " for cell in row[1:])]
        patterns = [(i, pattern) for i, pattern in enumerate(self._patterns) if pattern is not None]
        if patterns:
            matching = sum(all(pattern.matches(row[i]) for i, pattern in patterns) for row in fitting)
            return matching >= MIN_FITTING * len(rows)
        min_lines = MIN_LINES_TABS if self.delimiter == "\t" else MIN_LINES_COMMAS
        return len(fitting) == len(rows) >= (min_lines if self._patterns else MIN_LINES_MULTILINE)

    def _single_lines(self) -> Iterator[list[str]]:
        """Yield the records that are one line long, without the header."""
        lines, header_seen = RewindableLines(text_lines(self.path, newline="", errors=self.errors)), False
        with suppress(csv.Error):
            for record in csv_rows(lines, MAX_TEXT, delimiter=self.delimiter):
                if len(lines.record_lines) == 1 and len(record) == self.width and header_seen:
                    yield record
                header_seen = header_seen or len(record) == self.width
                lines.record_lines.clear()


# --- the header -------------------------------------------------------------------------------


def classify_first_row(names: Sequence[str], rows: Iterable[Sequence[str]]) -> tuple[FirstRow, str]:
    """Whether the first row of a table is its header or data, and the reason as text.

    Args:
        names: the cells of the first row.
        rows: some of the following rows, with the same number of cells.
    """
    columns = list(zip(*rows, strict=True))[:MAX_CHECKED]
    names = names[: len(columns)]
    numbered = list(map(str, range(len(names))))  # pandas' names for columns without a name
    if not columns or [*filter(None, names)] in (numbered, numbered[:-1]):
        return "unclear", ""
    named_columns = list(zip(names, columns, strict=True))
    if any(name.strip().lower() in USUAL_NAMES and name not in cells for name, cells in named_columns):
        return "header", ""
    repeats: list[str] = []  # cells of the first row that also occur in the rest of their columns
    for name, cells in named_columns:
        pattern = infer_pattern(cells)
        if pattern is None or (pattern.labels and not pattern.repeat):
            continue
        if name in pattern.labels or (not pattern.words and pattern.matches(name)):
            repeats.append(name)
        elif len(cells) >= MIN_LABEL_ROWS or are_numbers(cells):
            return "header", ""
    if repeated := next((name for name in repeats if not are_numbers([name])), None):
        return "row", f"{repeated!r} is also a value of its column"
    texts = [(name, cells) for name, cells in named_columns if mean_text_length(cells) is not None]
    if repeats and texts and all(len(name.split()) > 1 for name, _ in texts):
        reason = f"{repeats[0]!r} is also a value of its column, and {_shorten(texts[0][0])!r} is a text"
        return "row", reason
    if not repeats and texts and all(_is_similar_text(name, cells) for name, cells in texts):
        return "row", f"{_shorten(texts[0][0])!r} reads like the other texts of its column"
    return "unclear", ""


def _is_similar_text(name: str, cells: Sequence[str]) -> bool:
    """Whether the name of a column reads like its texts."""
    if name in cells:
        return True
    words = len(name.split())
    if name.rstrip().endswith(("?", ":")):  # as in the questions of a form
        questions = sum(cell.rstrip().endswith(("?", ":")) for cell in cells)
        return words >= MIN_SENTENCE_WORDS and questions >= MIN_QUESTIONS * len(cells)
    return words >= MIN_SENTENCE_WORDS or (words > 1 and bool(re.search(r"[.!\u3002]\s*$", name)))


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."


# --- other lines above and within a table ---------------------------------------------------------

MIN_ROWS = 4  # minimum number of non-empty rows of a file in which lines above the table are detected
MAX_HEAD = 1 << 20  # number of characters at the beginning of a file that are checked
MAX_NAMED_ROWS = 5  # maximum number of rows that a message names
_is_html = re.compile(r"\s*<(!doctype html|html|head|body|table)\b", re.IGNORECASE).match
Row = tuple[int, list[str]]  # row number and cells


def check_head(path: Path, errors: str) -> None:
    """Raise DataError for an HTML page, and for lines above the header unless ``--header`` is given."""
    if reading_setting("header"):
        return
    lines, _ = _first_lines(path, errors, FIRST_ROWS)
    if _is_html(next(filter(str.strip, lines), "")):
        what = f"the file is an HTML page, not a {path.suffix} table"
        fix = "If it is the error page of a failed download, download again; otherwise save the table as CSV"
        raise FileTypeError(what, where=str(path), fix=fix)
    if match_excel_separator("".join(lines[:1])):
        return
    quoting = csv.QUOTE_NONE if reading_setting("quoting") == "none" else csv.QUOTE_MINIMAL
    for delimiter in ",;\t":
        try:
            records = [*enumerate(csv.reader(lines, delimiter=delimiter, quoting=quoting), 1)]
        except csv.Error:
            continue
        stripped = ((row, [cell.strip() for cell in record]) for row, record in records)
        nonempty = [(row, cells) for row, cells in stripped if any(cells)]
        for _, cells in nonempty:
            while not cells[-1]:
                cells.pop()
        if header := _header_below(nonempty):
            (first, cells), (row, names) = nonempty[0], header
            line = delimiter.join(cells)[:40]
            what = f"row {first} is not a header but a line above the table ({line!r}); "
            what += f"row {row} looks like the header: {join_names(names)}"
            rows_above = f"the {row - 1} rows" if row > 2 else "the row"
            fix = f"Remove {rows_above} above row {row}; if row {first} is the header, add --header yes"
            raise MalformedFileError(what, where=str(path), fix=fix)


def _first_lines(path: Path, errors: str, max_lines: int | None = None) -> tuple[list[str], bool]:
    """The first lines of a file, and whether reading stopped early, after ``MAX_HEAD`` characters."""
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
    table = [(row, cells) for row, cells in below if len(cells) == width and not cells[0].startswith("#")]
    is_comment = len(first) == 1 or first[0].startswith("#")
    if width < 2 or not is_comment or len(table) < MIN_FITTING * len(below):
        return None
    if any(cell.lower() in USUAL_NAMES for cell in first):
        return None
    kind, _ = classify_first_row(table[0][1], [cells for _, cells in table[1:]])
    return table[0] if kind == "header" else None


def repeats_header(record: Sequence[str], names: Sequence[str]) -> bool:
    """Whether the cells of a record are the names of the header, in any order, as in concatenated tables."""
    if len(record) != len(names) or len(names) < 2 or record[0].strip() not in names:
        return False
    return sorted(cell.strip() for cell in record) == sorted(names)


def remove_repeated_headers(
    records: Iterable[Row], names: Sequence[str], path: Path, on_error: RowErrorHandler
) -> Iterator[Row]:
    """Yield the records that do not repeat the header; ``on_error`` is called for those that do."""
    records = iter(records)
    for row, record in records:
        if not repeats_header(record, names):
            yield row, record
        elif [cell.strip() for cell in record] != names:
            what = f"row {row} is a second header ({','.join(record)}), with another order of the columns "
            what += f"than the first header ({','.join(names)}), so a second table begins there"
            fix = f"Save the rows from row {row} on as another file, or change the order of their columns"
            raise MalformedFileError(what, where=str(path), fix=fix)
        else:
            what = "the header is repeated where a row is expected"
            if on_error is raise_error:
                later = (n for n, cells in records if [cell.strip() for cell in cells] == names)
                rows = [str(n) for n in islice(chain([row], later), MAX_NAMED_ROWS + 1)]
                shown = ", ".join(rows[:MAX_NAMED_ROWS]) + ", ..." * (len(rows) > MAX_NAMED_ROWS)
                what += f" (rows {shown})" if len(rows) > 1 else ""
            fix = "Remove the rows that repeat the header"
            on_error(RowError(what, where=f"{path}, row {row}", fix=fix), row)


# --- the delimiter --------------------------------------------------------------------------------

# The first line of some files, such as "sep=;".
match_excel_separator = re.compile(r'"?sep=([^\w\s"]|\t)"?\s*', re.IGNORECASE).fullmatch
MAX_COLUMNS = 1 << 16
USUAL_DELIMITERS = ",;\t"
RARE_DELIMITERS = "|^~\x01\x1f"  # tried only if the header has no usual delimiter
CHECKED_LINES = 20  # number of lines in which a rare delimiter must occur as often as in the header
_QUOTED = re.compile(r'"[^"]*"')
begins_with_blank_quote = re.compile(' +"').match  # an unquoted cell rarely begins like this
_NAME = "(text|label|sentence|review)"
_TWO_NAMES = re.compile(rf"{_NAME}\s*([^\w\s]+)\s*{_NAME}", re.IGNORECASE)  # "text :: label"


def detect_delimiter(path: Path, errors: str) -> str:
    """The delimiter of a file, detected in its first line: the header, or Excel's ``sep=;``.

    Blank lines before the header are skipped, and delimiters in double quotes are not counted. A pipe or
    other rare delimiter needs a header without comma, semicolon and tab, and the same count in most lines.

    Raises:
        DataError: the file has too many columns, an unsupported delimiter between two usual names of columns,
            or a beginning that ``check_head`` rejects.
    """
    check_head(path, errors)
    lines = text_lines(path, newline="", errors=errors)
    header = next(lines, "")
    if separator := match_excel_separator(header):
        return separator[1]
    header = header if header.strip() else next(filter(str.strip, lines), "")
    if reading_setting("quoting") != "none":
        while header.count('"') % 2 and len(header) < MAX_HEAD and (line := next(lines, "")):
            header += line  # a line end within quotes belongs to a name
        unquoted = _QUOTED.sub("", header)
        header = unquoted if any(map(unquoted.count, USUAL_DELIMITERS + RARE_DELIMITERS)) else header
    delimiter = "\t" if path.suffix.lower() in (".tsv", TXT) else max(USUAL_DELIMITERS, key=header.count)
    if delimiter not in header:
        delimiter = _detect_rare_delimiter(path, header, lines, delimiter)
    if (columns := header.count(delimiter)) >= MAX_COLUMNS:
        raise too_many_columns_error(columns + 1, f"{path}, row 1")
    return delimiter


def _detect_rare_delimiter(path: Path, header: str, lines: Iterator[str], usual: str) -> str:
    """The delimiter of a header that lacks ``usual``; if the file has only one column, ``usual``."""
    below = list(islice(filter(str.strip, lines), CHECKED_LINES))
    for sign in (*USUAL_DELIMITERS, *RARE_DELIMITERS) if usual == "\t" else RARE_DELIMITERS:
        num_equal = sum(_QUOTED.sub("", line).count(sign) == header.count(sign) for line in below)
        if sign in header and 2 * num_equal > len(below):
            return sign
    if match := _TWO_NAMES.fullmatch(header.strip()):
        what = f"unsupported separator {match[2]!r} in the header {header.strip()!r}"
        fix = "Save the table with commas, semicolons, tabs or pipes between its columns"
        raise MalformedFileError(what, where=f"{path}, row 1", fix=fix)
    return usual


def should_strip_blanks(path: Path, delimiter: str, errors: str) -> tuple[bool, bool]:
    """Whether to strip blanks before an opening quote, and whether after a closing quote.

    Blanks are stripped if this gives every row with such blanks as many cells as the header. Only the
    beginning of the file is checked.
    """
    lines, is_cut = _first_lines(path, errors)  # possibly cut within a row
    lines = lines[1:] if match_excel_separator("".join(lines[:1])) else lines
    has_blank_before = re.compile(re.escape(delimiter) + ' +"').search
    any_blank_before = any(map(has_blank_before, lines))
    stripped = list(strip_blanks_after_quotes(lines, delimiter))
    if stripped != lines and _rows_fit(stripped, delimiter, blank_after_quote(delimiter), lines, is_cut):
        return any_blank_before, True
    if not any_blank_before:
        return False, False
    try:
        rows = csv.reader(lines, delimiter=delimiter)
        if not any(begins_with_blank_quote(cell) for row in rows for cell in row):
            return False, False
    except csv.Error:
        return is_cut, False
    return _rows_fit(lines, delimiter, has_blank_before, lines, is_cut), False


def _rows_fit(
    lines: list[str], delimiter: str, matches: Callable[[str], Any], original: list[str], is_cut: bool
) -> bool:
    """Whether all rows that have a match in their ``original`` lines have as many cells as the first row."""
    rows, row_start = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True), 0
    width = 0
    try:
        for row in rows:
            width = width or len(row)
            if len(row) != width and any(map(matches, original[row_start : rows.line_num])):
                return False
            row_start = rows.line_num
    except csv.Error:
        return is_cut
    return True


def blank_after_quote(delimiter: str) -> Callable[[str], Any]:
    """A search function for a quote followed by blanks up to the end of its cell."""
    return re.compile(rf'" +(?={re.escape(delimiter)}|[\r\n]*\Z)').search


def strip_blanks_after_quotes(lines: Iterable[str], delimiter: str) -> Iterator[str]:
    """Remove the blanks between the closing quote of a cell and the separator."""
    sign = re.escape(delimiter)
    cell = rf'(?:[^"]++|"")*+)(?:(") *(?={sign}|[\r\n]*\Z)|\Z)'
    outside = re.compile(rf'((?:\A|{sign}) *"{cell}')
    inside = re.compile(rf'((?:\A|{sign} *"){cell}')  # for a line that begins in a quoted cell
    is_open = False
    for line in lines:
        pattern, last = inside if is_open else outside, ""
        for match in pattern.finditer(line):
            last = match[2] or "open"
        yield pattern.sub(lambda m: m[1] + (m[2] or ""), line) if '"' in line else line
        is_open = last == "open" or (is_open and not last)


def too_many_columns_error(count: int, where: str) -> DataError:
    what = f"{count:,} columns, and at most {MAX_COLUMNS:,} are read"
    return TooLargeError(what, where=where, fix="Keep only the columns of texts and labels")


# --- CSV and TSV ------------------------------------------------------------------------------


def read_records(path: Path, delimiter: str, on_error: RowErrorHandler, errors: str) -> Iterator[Row]:
    """Yield the checked names of the columns, then the records that have one cell per column.

    Args:
        on_error: called for every other record.

    Raises:
        DataError: a name occurs twice or is too long, or the first row looks like data. The first row is not
            checked if the user has stated whether the file has a header.
    """
    detector = QuotedRowDetector(path, delimiter, errors)
    records = _all_records(path, delimiter, on_error, errors, detector)
    for row, first in records:
        is_blank = not first or (len(first) == 1 and first[0].isspace())
        is_excel_separator = row == 1 and match_excel_separator(delimiter.join(first))
        if not is_blank and not is_excel_separator:
            break
    else:
        return
    detector.width, header = len(first), reading_setting("header")
    rows = [] if header else list(islice(records, FIRST_ROWS))
    records = chain(rows, records)
    names = [name.strip() for name in first]
    below = [record for _, record in rows if len(record) == len(first) and not repeats_header(record, names)]
    kind, reason = classify_first_row(first, below)
    if kind == "header" or header == "yes":
        records = remove_repeated_headers(records, names, path, on_error)
    if header == "no" or (not header and path.suffix.lower() == TXT and kind != "header"):
        names, records = [f"column{i}" for i in range(1, len(first) + 1)], chain([(row, first)], records)
        row = 0
    elif kind == "row":
        what = f"the first row looks like data, not like a header: {reason}"
        raise MalformedFileError(what, where=f"{path}, row {row}", fix=HEADER_FIX)
    else:
        if errors != STRICT and any(map(NOT_UTF8, names)):
            check_utf8(path)  # raises the error: without names, no column can be read
        check_names(names, f"{path}, row {row}", delimited=True)
    yield row, names
    yield from _valid_records(path, records, names, on_error, errors)


def _valid_records(
    path: Path, records: Iterable[Row], names: list[str], on_error: RowErrorHandler, errors: str
) -> Iterator[Row]:
    """Yield the records that can be decoded and have as many cells as the header; skip blank records."""
    fix = ""
    for row, record in records:
        if not record:
            continue
        if errors != STRICT and any(map(NOT_UTF8, record)):
            fix = fix or encoding_fix(path)
            cells = map(replace_undecoded, record) if len(record) == len(names) else ()
            values, what = dict(zip(names, cells, strict=False)), decoding_error_message()
            on_error(UndecodedRowError(what, values=values, where=f"{path}, row {row}", fix=fix), row)
        elif len(record) != len(names):
            what, values = f"{len(record)} fields where the header has {len(names)}", dict(zip(names, record))
            ragged_fix = BLANK_FIX if any(map(begins_with_blank_quote, record)) else RAGGED_FIX
            where = f"{path}, row {row}"
            on_error(RowError(what, values=values, ragged=True, where=where, fix=ragged_fix), row)
        else:
            yield row, record


def _all_records(
    path: Path, delimiter: str, on_error: RowErrorHandler, errors: str, detector: QuotedRowDetector
) -> Iterator[Row]:
    """Yield all rows of the file with their numbers from 1, including the header and blank rows."""
    row, source = 0, _limit_separators(path, delimiter, errors)
    quoting = reading_setting("quoting") or ("none" if path.suffix.lower() == TXT else "")
    options: dict[str, Any] = {"quoting": csv.QUOTE_NONE} if quoting == "none" else {"strict": True}
    if quoting != "none":
        options["skipinitialspace"], strip_after = should_strip_blanks(path, delimiter, errors)
        source = strip_blanks_after_quotes(source, delimiter) if strip_after else source
    lines, has_blank_after = RewindableLines(source), blank_after_quote(delimiter)
    while True:
        try:
            for record in csv_rows(lines, MAX_TEXT, delimiter=delimiter, **options):
                row += 1
                if not quoting and len(lines.record_lines) > 1 and detector.are_rows(lines.record_lines):
                    first = lines.number - len(lines.record_lines) + 1
                    what = f"{OPEN_QUOTE} {first} and closes in line {lines.number}, so that lines {first} "
                    what += f"to {lines.number} are read as one row, but each of these lines looks like a row"
                    fix = ROWS_FIX.format(first)
                    on_error(MalformedFileError(what, where=f"{path}, row {row}", fix=fix), row)
                    lines.rewind()
                    break
                lines.record_lines.clear()
                yield row, record
            else:
                return
        except csv.Error as error:
            row += 1
            unclosed = "end of data" in str(error)
            what = "a double quote is never closed" if unclosed else f"invalid quotes ({error})"
            fix = 'Write a quote inside a text as "", or read quotes as plain characters: --quoting none'
            fix = BLANK_AFTER_QUOTE_FIX if any(map(has_blank_after, lines.record_lines[:1])) else fix
            if "field larger than field limit" in str(error):
                what, fix = (
                    f"a cell has more than {MAX_TEXT:,} characters",
                    "Split the text over several rows",
                )
            on_error(MalformedFileError(what, where=f"{path}, row {row}", fix=fix), row)
            lines.rewind()


def encoding_errors(path: Path, on_error: RowErrorHandler) -> str:
    """The ``errors`` argument of ``open``: ``strict``, or ``surrogateescape`` to keep undecodable bytes."""
    try:
        check_utf8(path)
    except NotUtf8Error:
        if on_error is raise_error:
            raise
        return ESCAPE
    return STRICT


def _limit_separators(path: Path, delimiter: str, errors: str) -> Iterator[str]:
    """Yield the lines of a file; raise an error for a line with too many separators."""
    for number, line in enumerate(text_lines(path, newline="", errors=errors), 1):
        if len(line) > MAX_VALUES and line.count(delimiter) > MAX_VALUES:
            what, where = f"more than {MAX_VALUES:,} separators in one line", f"{path}, line {number}"
            raise MalformedFileError(what, where=where, fix="Check that it is the intended file")
        yield line


def check_names(names: Sequence[str], where: str, delimited: bool = False) -> None:
    """Raise DataError for too many names, a name that occurs twice, or a very long name.

    Args:
        delimited: whether the file is CSV or TSV, where the first row may be data instead of a header.
    """
    header_hint = f"; if the table has no header: {READ_OPTIONS['header'][0]} no" if delimited else ""
    if len(names) > MAX_COLUMNS:
        raise too_many_columns_error(len(names), where)
    if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
        what, fix = f"column {repeated[0][:MAX_NAME]!r} occurs twice", "Rename one of them"
        if not repeated[0]:
            unnamed = [str(i) for i, name in enumerate(names, 1) if not name]
            what = f"columns {join_names(unnamed)} have no name"
            fix = "Name them, or remove them where they are empty"
        raise MalformedFileError(what, where=where, fix=f"{fix}{header_hint}")
    for i, name in enumerate(names, 1):
        if len(name) > MAX_NAME:
            what = f"the name of column {i} has {len(name):,} characters"
            fix = f"The first row must be the header, with a short name for each column{header_hint}"
            raise MalformedFileError(what, where=where, fix=fix)


# --- JSONL and JSON ---------------------------------------------------------------------------


def read_json_objects(path: Path, on_error: RowErrorHandler, errors: str) -> Iterator[tuple[int, dict]]:
    """Yield the JSON objects of a file with their row numbers; ``on_error`` is called for other values."""
    is_array = path.suffix.lower() == ".json" and _begins_with_array(path)
    if path.suffix.lower() == ".json" and not is_array:
        _check_not_single_object(path)
    for row, value in _array_elements(path) if is_array else _json_lines(path, on_error, errors):
        if isinstance(value, dict):
            yield row, value
        else:
            where, fix = f"{path}, row {row}", 'Write one object per line: {"text": ...}'
            on_error(MalformedFileError("not a JSON object", where=where, fix=fix), row)


def _check_not_single_object(path: Path) -> None:
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


def _begins_with_array(path: Path) -> bool:
    return next((s for s in text_lines(path, errors="replace") if s.strip()), "").lstrip().startswith("[")


def _json_lines(path: Path, on_error: RowErrorHandler, errors: str) -> Iterator[tuple[int, Any]]:
    fix = ""
    for row, line in enumerate(
        text_lines(path, errors=errors), 1
    ):  # not splitlines: a text may contain U+2028
        if not line.strip():
            continue
        if errors != STRICT and NOT_UTF8(line):
            fix, value = fix or encoding_fix(path), None
            with suppress(DataError):  # a row that is not JSON has no readable values
                value = _parse_json(replace_undecoded(line), "")
            values, what = value if isinstance(value, dict) else {}, decoding_error_message()
            on_error(UndecodedRowError(what, values=values, where=f"{path}, row {row}", fix=fix), row)
            continue
        try:
            value = _parse_json(line, f"{path}, row {row}")
        except DataError as error:
            on_error(error, row)
        else:
            yield row, value


def _array_elements(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the elements of one JSON array; each is parsed separately, so that only one is in memory."""
    fix = "Write one array of objects"
    text = read_utf8(path)
    row, position, sign = 0, _skip_blanks(text, text.index("[") + 1).end(), ","
    if text[position : position + 1] == "]":
        position, sign = position + 1, "]"
    while sign == ",":
        row += 1
        start = _skip_blanks(text, position).end()
        try:
            value, position = _parse_element(text, start, f"{path}, row {row}", fix)
        except json.JSONDecodeError as error:
            raise _array_error(path, text, start + error.pos, error.msg, fix) from None
        yield row, value
        position = _skip_blanks(text, position).end() + 1
        sign = text[position - 1 : position]
    if sign != "]":
        raise _array_error(path, text, position - len(sign), "a ',' or ']' is missing", fix)
    if _skip_blanks(text, position).end() < len(text):
        raise MalformedFileError("not JSON (text after the end of the array)", where=str(path), fix=fix)


def _array_error(path: Path, text: str, position: int, problem: str, fix: str) -> MalformedFileError:
    """The error for an array that is not JSON at ``position``, with its line and column."""
    before = text[:position].rstrip()
    problem = problem[:1].lower() + problem[1:]
    advice = "Correct the line: the file must be one array of objects"
    if position >= len(text.rstrip()):
        problem, advice = "it ends too early", fix
    elif before.endswith(",") and text[position] in "]}":
        position = len(before) - 1
        problem, advice = f"there is a comma before '{text[len(before) :].lstrip()[0]}'", "Remove the comma"
    line, column = text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
    what = f"not JSON ({problem}, column {column})"
    return MalformedFileError(what, where=f"{path}, line {line}", fix=advice)


def _parse_element(text: str, start: int, where: str, fix: str) -> tuple[Any, int]:
    """The JSON value that begins at ``start``, and its end; longer and longer pieces of the text are tried.

    Raises:
        JSONDecodeError: the text is not JSON; the error has the position relative to ``start``.
    """
    size = 1 << 16
    while True:
        piece = _check_num_values(text[start : start + size], where)
        try:
            value, end = _DECODER.raw_decode(piece)
            return value, start + end
        except RecursionError:
            raise MalformedFileError("nested too deeply", where=where, fix="Write flat objects") from None
        except ValueError as error:
            if start + size >= len(text):
                if isinstance(error, json.JSONDecodeError):
                    raise
                raise MalformedFileError(json_error_message(error), where=where, fix=fix) from None
            if size >= MAX_TEXT:
                what = f"more than {MAX_TEXT:,} characters in one object, or not JSON"
                raise MalformedFileError(what, where=where, fix=fix) from None
        size <<= 4


_skip_blanks: Callable[[str, int], re.Match[str]] = re.compile(r"[ \t\r\n]*").match  # type: ignore[assignment]  # never None
_DECODER = json.JSONDecoder(object_pairs_hook=unique_keys)


def _check_num_values(text: str, where: str) -> str:
    """Return ``text`` unchanged, or raise an error if it has too many values for one object."""
    if len(text) > MAX_VALUES and sum(map(text.count, ",[{")) > MAX_VALUES:
        what = f"more than {MAX_VALUES:,} values in one row"
        raise TooLargeError(what, where=where, fix="Write flat objects")
    return text


def _parse_json(text: str, where: str) -> Any:
    _check_num_values(text, where)
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except RecursionError:
        fix = "Write one flat object per line"
        raise MalformedFileError("nested too deeply", where=where, fix=fix) from None
    except ValueError as error:
        fix = "Write one JSON object per line"
        raise MalformedFileError(json_error_message(error), where=where, fix=fix) from None


def json_error_message(error: ValueError) -> str:
    """The error message for a text that is not JSON, with the position of the error."""
    if not isinstance(error, json.JSONDecodeError):
        return f"not JSON ({error})"
    ends_early = error.pos >= len(error.doc.rstrip())
    reason = "it ends too early" if ends_early else error.msg[:1].lower() + error.msg[1:]
    return f"not JSON ({reason}, character {error.pos + 1})"


# --- Parquet ----------------------------------------------------------------------------------


def _read_parquet(path: Path, on_error: RowErrorHandler) -> Table:
    file = open_parquet(path)
    schema, rows = file.schema_arrow, check_rows(path, file)
    check_names(schema.names, str(path))
    class_names = hub_class_names((schema.metadata or {}).get(b"huggingface", b"{}"))
    partition = {name: value for name, value in partition_values(path).items() if name not in schema.names}

    def read(name: str) -> list[Any]:
        return [partition[name]] * rows if name in partition else read_column(path, name)

    return Table(str(path), (*schema.names, *partition), range(1, rows + 1), read, class_names=class_names)


# --- CSV, TSV and JSON as tables --------------------------------------------------------------


class _TextFile:
    """The rows of a CSV, TSV or JSON file; each iteration reads the file again."""

    def __init__(self, path: Path, on_error: RowErrorHandler):
        self.path, self.errors = path, encoding_errors(path, on_error)
        self.typed = path.suffix.lower() in JSON
        self._delimiter = "" if self.typed else detect_delimiter(path, self.errors)
        self.names: dict[str, None] = {}  # an ordered set

    def records(self, on_error: RowErrorHandler) -> Iterator[tuple[int, Any]]:
        """Yield each readable row with its number; ``names`` is complete after the last row."""
        if not self.typed:
            records = read_records(self.path, self._delimiter, on_error, self.errors)
            self.names = dict.fromkeys(next(records, (0, []))[1])
            yield from records
            return
        for row, record in read_json_objects(self.path, on_error, self.errors):
            if not record.keys() <= self.names.keys():
                self.names |= dict.fromkeys(record)
                if len(self.names) > MAX_COLUMNS:
                    raise too_many_columns_error(len(self.names), f"{self.path}, row {row}")
            yield row, record

    def column_getter(self, name: str) -> Callable[[Any], Any]:
        """A function that returns the value of a column in a row."""
        index, unescape = list(self.names).index(name), csv_plain if is_label_review(self.names) else str
        return (lambda record: record.get(name)) if self.typed else (lambda record: unescape(record[index]))


def _read_text_table(path: Path, on_error: RowErrorHandler) -> Table:
    file = _TextFile(path, on_error)
    cached: list[Any] | None = []
    rows = array("q")  # needs a fifth of a list's memory
    for row, record in file.records(on_error):
        rows.append(row)
        cached = cached if len(file.names) <= MAX_CACHED_COLUMNS else None
        if cached is not None:
            cached.append(record)
    names = tuple(file.names)
    check_names(names, str(path))
    settings, may_lack_keys = reading_settings(), not file.typed or on_error is not raise_error

    def read(name: str) -> list[Any]:
        values, get_value = [], file.column_getter(name)
        with reading(**settings):  # the settings with which the other columns were read
            records = (record for _, record in file.records(ignore_error)) if cached is None else cached
            for row, record in zip(rows, records, strict=True):
                if not may_lack_keys and name not in record:
                    where, fix = f"{path}, row {row}", "Give every row the key"
                    raise MalformedFileError(f"the object has no {name!r}", where=where, fix=fix)
                values.append(get_value(record))
        return values

    message = ""
    if path.suffix.lower() == TXT:
        message = f"{path.name} is read as a table: {len(names)} columns with tabs between them, "
        message += f"{'without a header' if names[:1] == ('column1',) else join_names(names)}"
    return Table(str(path), names, rows, read, file.typed, message)


JSON = (".jsonl", ".ndjson", ".json")
DELIMITED = (".csv", ".tsv")
READERS = dict.fromkeys((*DELIMITED, *JSON), _read_text_table) | {".parquet": _read_parquet}


# --- streamed tables ------------------------------------------------------------------------------
#
# A file is read several times instead of once into memory: to check its encoding, for the names, for a sample
# of the columns, and for the rows.

# Not .json, which is one array, and not Parquet, which has its own reader.
STREAMABLE = (*DELIMITED, ".jsonl", ".ndjson")


def read_column_names(path: Path) -> tuple[str, ...] | None:
    """The column names of a CSV, TSV or Parquet file, read without its rows.

    The result is None if the file has no names or cannot be read. Reading the rows then raises the error.
    """
    suffix = path.suffix.lower()
    if not path.is_file() or suffix not in (*DELIMITED, ".parquet"):
        return None
    with suppress(DataError):
        if suffix == ".parquet":
            return tuple(dict.fromkeys([*open_parquet(path).schema_arrow.names, *partition_values(path)]))
        records = read_records(path, detect_delimiter(path, ESCAPE), ignore_error, ESCAPE)
        names = tuple(next(records, (0, []))[1])
        return None if not names or any("\0" in name or NOT_UTF8(name) for name in names) else names
    return None


class StreamedTable:
    """A table that is not kept in memory; its rows are the same as those of ``read_table``.

    Args:
        path: a file with one of the extensions ``STREAMABLE``.
        on_error: called, only in the first pass, with the error for an unusable row. If the function returns,
            the row is skipped. Keys that a JSON object lacks become None.
    """

    def __init__(self, path: Path, on_error: RowErrorHandler):
        self.path, self._file = path, _TextFile(path, on_error)
        self.count = sum(1 for _ in self._file.records(on_error))
        self.names = tuple(self._file.names)
        check_names(self.names, str(path))
        if not self.count:
            raise no_rows_error(path, has_header=bool(self.names) and not self._file.typed)

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number of each readable row, and its values by column."""
        getters = {name: self._file.column_getter(name) for name in self.names}
        for row, record in self._file.records(ignore_error):
            yield row, {name: get_value(record) for name, get_value in getters.items()}

    def sample(self) -> Table:
        """A table of about 2,000 rows from the whole file, to infer the content of its columns."""
        indices = sampled_rows(self.count)
        sampled: list[tuple[int, dict[str, Any]]] = []

        def read(name: str) -> list[Any]:
            if not sampled:
                selected = set(indices)
                sampled.extend(row for i, row in enumerate(self.rows()) if i in selected)
            return [values[name] for _, values in sampled]

        return Table(str(self.path), self.names, [i + 1 for i in indices], read, self._file.typed)
