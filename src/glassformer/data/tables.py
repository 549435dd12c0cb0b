"""Readers of CSV, TSV, JSONL and Parquet files, and of plain text, that can name the faulty row.

Rows are counted from 1 as the file shows them: in CSV and TSV the header is row 1, in JSONL a row
is a line, in Parquet row 1 is the first. ``StreamedTable`` gives the rows of a file of any size, not kept.
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
from typing import Any

from glassformer.config import listed, nearest
from glassformer.data.column_contents import looked_at
from glassformer.data.csv_format import (
    BLANK_QUOTE,
    HEAD,
    MAX_COLUMNS,
    Cells,
    HeaderAgain,
    blank_behind_quote,
    blanks_at_quotes,
    delimiter_of,
    first_row,
    no_header,
    rows_in_a_cell,
    too_many,
    without_blanks_behind_quotes,
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
from glassformer.data.spreadsheet import SEPARATOR, csv_rows, other_kind, plain_under
from glassformer.errors import DataError
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
                raise DataError(f"no column {name!r}", where=self.origin, fix=nearest(name, self.names))


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
        reader = _read_delimited
    if reader is None:
        fix = other_kind(path.suffix, READERS)
        raise DataError(f"files of kind {path.suffix!r} are not read", where=str(path), fix=fix)
    table = reader(path, refuse)
    if not table.rows:
        raise no_rows(path, header=bool(table.names) and not table.typed)
    return table


def no_rows(path: Path, header: bool) -> DataError:
    """What is said of a file without rows; ``header``: it has one, which may have been meant as a row."""
    fix = "Give at least one example"
    fix += "; the first row is taken for the header, unless --header no says that there is none" * header
    return DataError(NO_ROWS, where=str(path), fix=fix)


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
        raise no_header(path, row, why)
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


def _read_delimited(path: Path, refuse: Refuse) -> Table:
    errors = encoding_errors(path, refuse)
    delimiter = delimiter_of(path, errors)
    names: list[str] = []
    kept: list[list[str]] | None = []
    rows = array("q")  # a fifth of a list's memory
    plain: Callable[[str], str] = str
    for row, record in whole_records(path, delimiter, refuse, errors):
        if not names:
            names, plain = record, plain_under(record)
            kept = kept if len(names) <= KEPT_COLUMNS else None
        else:
            rows.append(row)
            if kept is not None:
                kept.append(record)
    settings = said_of_tables()

    def read(name: str) -> list[str]:
        at = names.index(name)
        if kept is not None:
            return [plain(record[at]) for record in kept]
        with reading(**settings):  # as when the others were read
            found = islice(whole_records(path, delimiter, pass_over, errors), 1, None)
            return [plain(record[at]) for _, record in found]

    told = ""
    if path.suffix.lower() == PLAIN:
        told = f"{path.name} is read as a table: {len(names)} columns with tabs between them, "
        told += f"{'without a header' if names[:1] == ['column1'] else listed(names)}"
    return Table(str(path), tuple(names), rows, read, False, told)


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
                    refuse(rows_in_a_cell(path, row, first, lines.number), row)
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
            refuse(DataError(what, where=f"{path}, row {row}", fix=fix), row)
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
                raise DataError(what, where=where, fix="Check that it is the file you mean")
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
        what, fix = f"column {twice[0][:MAX_NAME]!r} stands there twice", "Rename one of them"
        if not twice[0]:
            empty = [str(i) for i, name in enumerate(names, 1) if not name]
            what = f"columns {listed(empty)} have no name"
            fix = "Name them, or remove them where they are empty"
        raise DataError(what, where=where, fix=f"{fix}{without}")
    for i, name in enumerate(names, 1):
        if len(name) > MAX_NAME:
            what = f"the name of column {i} has {len(name):,} characters"
            fix = f"The first row must be the header, with a short name each{without}"
            raise DataError(what, where=where, fix=fix)


# --- JSONL and JSON ---------------------------------------------------------------------------


def _read_jsonl(path: Path, refuse: Refuse) -> Table:
    errors = encoding_errors(path, refuse)
    names: dict[str, None] = {}  # a set in order of appearance
    kept: list[dict[str, Any]] | None = []
    rows = array("q")  # a fifth of a list's memory
    for row, record in objects_in(path, refuse, errors):
        rows.append(row)
        if not record.keys() <= names.keys():
            names |= dict.fromkeys(record)
            if len(names) > MAX_COLUMNS:
                raise too_many(len(names), f"{path}, row {row}")
            kept = kept if len(names) <= KEPT_COLUMNS else None
        if kept is not None:
            kept.append(record)
    check_names(tuple(names), str(path))

    def read(name: str) -> list[Any]:
        values = []
        again = (record for _, record in objects_in(path, pass_over, errors))
        for row, record in zip(rows, again if kept is None else kept, strict=True):
            if name not in record and refuse is stop:
                raise DataError(f"no {name!r} here", where=f"{path}, row {row}", fix="Give every row the key")
            values.append(record.get(name))
        return values

    return Table(str(path), tuple(names), rows, read)


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
            refuse(DataError("not a JSON object", where=where, fix=fix), row)


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
        what = "questions with answers in texts, as SQuAD has them, where a table is wanted"
        fix = f"Train a model of them: glassformer train facts-minilm --data {shlex.quote(str(path))}"
        raise DataError(what, where=str(path), fix=fix)
    if len(nested) == len(whole) or "\n" in read_utf8(path).strip():
        what = "one JSON object, where an array of objects is wanted, one for each row"
        fix = 'Write [{"text": ..., "label": ...}, ...]; pandas does with to_json(orient="records")'
        raise DataError(what, where=str(path), fix=fix)


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
        raise DataError(what, where=str(path), fix=fix)
    if _BLANKS(text, at).end() < len(text):
        raise DataError("not JSON (something stands behind the array)", where=str(path), fix=fix)


def _element(text: str, at: int, where: str, fix: str) -> tuple[Any, int]:
    """The value that begins at a place, and its end; parsed from the shortest piece that holds all of it."""
    size = 1 << 16
    while True:
        piece = _counted(text[at : at + size], where)
        try:
            found, end = _DECODER.raw_decode(piece)
            return found, at + end
        except RecursionError:
            raise DataError("nested too deeply", where=where, fix="Write flat objects") from None
        except ValueError as error:
            if at + size >= len(text):
                raise DataError(f"not JSON ({error})", where=where, fix=fix) from None
            if size >= MAX_TEXT:
                what = f"more than {MAX_TEXT:,} characters in one object, or not JSON"
                raise DataError(what, where=where, fix=fix) from None
        size <<= 4


_BLANKS: Callable[[str, int], re.Match[str]] = re.compile(r"[ \t\r\n]*").match  # type: ignore[assignment]  # never None
_DECODER = json.JSONDecoder(object_pairs_hook=unique_keys)


def _counted(text: str, where: str) -> str:
    """The same, unless it may hold more values than one object is allowed."""
    if len(text) > MAX_VALUES and sum(map(text.count, ",[{")) > MAX_VALUES:
        raise DataError(f"more than {MAX_VALUES:,} values in one row", where=where, fix="Write flat objects")
    return text


def _parse(text: str, where: str) -> Any:
    _counted(text, where)
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except RecursionError:
        raise DataError("nested too deeply", where=where, fix="Write one flat object a line") from None
    except ValueError as error:
        fix = "Write one JSON object a line"
        raise DataError(f"not JSON ({error})", where=where, fix=fix) from None


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


READERS: dict[str, Callable[[Path, Refuse], Table]] = {
    ".csv": _read_delimited,
    ".tsv": _read_delimited,
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".json": _read_jsonl,
    ".parquet": _read_parquet,
}


# --- streamed tables ------------------------------------------------------------------------------
# Rows one at a time: what ``read_table`` gives, not kept.
# The file is gone through several times (encoding, names, a sample of columns, rows) rather than kept.

STREAMED = (".csv", ".tsv", ".jsonl", ".ndjson")  # .json is one array, and Parquet has its own readers


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
        if self._delimiter is None:
            for row, record in objects_in(self.path, pass_over, self._errors):
                yield row, {name: record.get(name) for name in self.names}
            return
        plain = plain_under(self.names)
        records = whole_records(self.path, self._delimiter, pass_over, self._errors)
        for row, record in islice(records, 1, None):
            yield row, dict(zip(self.names, map(plain, record), strict=True))

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
