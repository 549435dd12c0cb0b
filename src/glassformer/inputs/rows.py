"""Read texts as inputs of a command, from arguments, files and standard input.

Each input becomes a ``Row`` with its position, the other columns of its file, and its error, if any. Other
modules read pairs, questions, sentences and images.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.data.checks import check_cells, check_texts
from glassformer.data.columns import find_text_column
from glassformer.data.files import check_file, check_utf8, read_lines, split_lines, text_lines
from glassformer.data.folders import name_file_fix, tables_in
from glassformer.data.image import is_image_name
from glassformer.data.rejected import (
    RejectedRow,
    check_filled,
    encoding_note,
    group_reasons,
    with_num_unusable,
)
from glassformer.data.tables import NO_ROWS, READERS, TXT, is_plain, read_table
from glassformer.data.text_pairs import TextPair
from glassformer.errors import (
    CannotReadError,
    DataError,
    FileTypeError,
    MissingValueError,
    NoSuchFileError,
    NotUtf8Error,
    TooLargeError,
    WrongInputError,
)
from glassformer.finite import json_text

SKIP_HINT = "or mark such rows and predict the other rows with --on-bad-row skip"
STDIN = "-"  # argument of a command that means standard input
MAX_STDIN_BYTES = 256 * 2**20
MAX_COLUMNS = 200  # maximum number of the user's columns next to the predictions


@dataclass(frozen=True)
class InputRequest:
    """The inputs of a command, and how to read them.

    Attributes:
        arguments: command-line arguments (texts, names of files and folders, ``-`` for standard input).
        text_column, pair_column: columns of tables; None: detect them.
        training_columns: names of the columns used in training; preferred in detection.
        folder: folder of the model.
        skip: whether an unusable input only gets a ``Row.error``; False: it raises an error.
        log: receives messages about how a file is read.
    """

    arguments: Sequence[str]
    text_column: str | None = None
    pair_column: str | None = None
    training_columns: Sequence[str | None] = ()
    folder: Path = Path()
    skip: bool = False
    log: Callable[[str], None] = lambda line: None


DEFAULT_REQUEST = InputRequest(())  # detect columns, and raise an error for unusable rows


@dataclass
class Row:
    """One input: a text, a pair of texts or the path of an image."""

    text: Any
    row: int | None = None  # row number in its file
    file: str = ""  # empty for arguments of the command line
    other_columns: dict[str, str] = field(default_factory=dict)  # the file's other columns
    error: str | None = None  # why the input is unusable, so it has no prediction
    words: Sequence[str] | None = None  # the words of a sentence, if its file has words


def usable_inputs(rows: Sequence[Row], noun: str = "texts") -> list[str]:
    """The inputs of the rows without an error; raise DataError if there are none."""
    texts, singular = [row.text for row in rows if row.error is None], noun.removesuffix("s")
    fix = f"Give at least one {singular}"
    if not rows:
        raise DataError("nothing to predict", where="predict", fix=fix)
    if not texts:
        first = rows[0]
        name = first.file or (str(first.text) if noun == "images" else None)
        where = f"{name}, row {first.row}" if first.row else name
        what = f"no {'row' if first.row or singular == 'text' else singular} can be used; {first.error}"
        raise MissingValueError(what, where=where, fix=fix)
    return texts


def argument_row(text: str, number: int, skip: bool) -> Row:
    """A row for argument ``number`` (from 1); with ``skip`` an unusable text gets an ``error``."""
    return Row(text, error=_find_problem(text, f"TEXT {number}", skip, "Give another text"))


EMPTY = "the line is empty"


def rows_of_lines(lines: dict[int, str], file: str, skip: bool) -> list[Row]:
    """One row per line, from a dict of line numbers and lines; an empty line always gets an ``error``."""
    rows = []
    for number in range(1, max(lines) + 1 if lines else 1):
        line = lines.get(number, "").rstrip("\r\n")
        error = _find_problem(line, f"{file}, row {number}", skip) if line.strip() else EMPTY
        rows.append(Row(line, number, file, error=error))
    return rows


def table_row(path: Path, number: int, text: Any, other_columns: dict[str, Any], skip: bool) -> Row:
    """A row of a table; with ``skip`` an unusable text gets an ``error``."""
    cells = {name: to_cell(value) for name, value in other_columns.items()}
    row = Row(text if isinstance(text, str) else "", number, str(path), cells)
    row.error = _find_problem(text, f"{path}, row {number}", skip)
    return row


def handle_ragged_row(skip: bool, ragged: dict[int, DataError]) -> Callable[[DataError, int], None]:
    """A function for ``read_table``, called for each row with a wrong number of cells.

    The function raises the error of the row or, with ``skip``, adds it to ``ragged``.
    """

    def handle(error: DataError, row: int) -> None:
        if not skip:
            raise error.replace(fix=f"{error.fix}, {SKIP_HINT}")
        ragged[row] = error

    return handle


def read_counting_errors(read: Callable[[InputRequest], list[Row]], request: InputRequest) -> list[Row]:
    """Call ``read``, and add the number of unusable rows of the file to the error for an unusable row."""
    try:
        return read(request)
    except DataError as error:
        if request.skip or not error.where or ", row " not in error.where:
            raise
        num_unusable = 0
        with suppress(DataError):
            num_unusable = sum(row.error is not None for row in read(replace(request, skip=True)))
        raise error.replace(what=with_num_unusable(error.what, num_unusable)) from None


def read_rows(path: Path, request: InputRequest = DEFAULT_REQUEST) -> list[Row]:
    """The rows of a table or a ``.txt`` file, in order, including empty lines of a ``.txt`` file."""
    if is_plain(path):
        check_utf8(path)
        rows = rows_of_lines(dict(enumerate(text_lines(path), 1)), str(path), request.skip)
        if all(row.error == EMPTY for row in rows):
            raise MissingValueError("the file has no texts", where=str(path), fix="Write one text per line")
        return rows

    def choose(table: Any) -> tuple[str]:
        return (find_text_column(table, request.text_column, request.training_columns),)

    rows = []
    for values, row in read_columns(path, choose, request):
        if row.error is None:
            row.text = values[0] if isinstance(values[0], str) else ""
            row.error = _find_problem(values[0], f"{path}, row {row.row}", request.skip)
        rows.append(row)
    return rows


def read_columns(
    path: Path,
    choose: Callable[[Any], tuple[str, ...]],
    request: InputRequest,
    settings: Sequence[str] = ("text_column", "pair_column"),
) -> list[tuple[tuple[Any, ...], Row]]:
    """For each row, the values of the columns that ``choose`` selects, and a ``Row`` with the other columns.

    With ``request.skip``, an unreadable row has no values and an ``error``; otherwise it raises an error.

    Args:
        settings: the settings that can name the selected columns, for messages.
    """
    ragged: dict[int, DataError] = {}
    try:
        table = read_table(path, handle_ragged_row(request.skip, ragged))
    except DataError as error:
        if not ragged or error.what != NO_ROWS:
            raise
        row, first = next(iter(ragged.items()))
        what = f"no row can be used; {first.what}"
        raise first.replace(what=what, where=f"{path}, row {row}") from None
    if table.message:
        request.log(table.message)
    columns = choose(table)
    check_filled(table, dict(zip(settings, columns, strict=False)))
    copied_names = columns_to_copy([name for name in table.names if name not in columns], request.log)
    values = {name: table.read(name) for name in copied_names}
    rows: list[tuple[tuple[Any, ...], Row]] = []
    for i, selected in enumerate(zip(*map(table.read, columns), strict=True)):
        cells = {name: to_cell(values[name][i]) for name in copied_names}
        rows.append((selected, Row("", table.rows[i], str(path), cells)))
    rows += [((), unreadable_row(path, row, error, columns, table.names)) for row, error in ragged.items()]
    return sorted(rows, key=lambda item: item[1].row or 0)


def columns_to_copy(names: Sequence[str], log: Callable[[str], None]) -> list[str]:
    """The first ``MAX_COLUMNS`` columns of a table, which are written next to the predictions."""
    if (num_dropped := len(names) - MAX_COLUMNS) > 0:
        where = f"those after {names[MAX_COLUMNS - 1]!r}"
        log(f"{num_dropped:,} of {len(names):,} other columns, {where}, are not written with the predictions")
    return list(names[:MAX_COLUMNS])


def unreadable_row(
    path: Path, row: int, error: DataError, text_columns: Sequence[str], names: Sequence[str]
) -> Row:
    """An unusable row with its readable cells.

    If the row has a wrong number of cells, some cells may be in the wrong column. Then only the cells to the
    left of the first text column are kept. ``names`` are all columns of the table.
    """
    values: dict[str, Any] = getattr(error, "values", {})
    if getattr(error, "ragged", False):
        values = {name: values.get(name) for name in takewhile(lambda name: name not in text_columns, names)}
    text = values.get(text_columns[0]) if len(text_columns) == 1 else None
    other_columns = {name: to_cell(values.get(name)) for name in names if name not in text_columns}
    other_columns = dict(list(other_columns.items())[:MAX_COLUMNS])
    return Row(text if isinstance(text, str) else "", row, str(path), other_columns, error=error.what)


def _find_problem(text: Any, where: str, skip: bool, fix: str = "") -> str | None:
    try:
        check_cells([text])
    except DataError as error:
        if not skip:
            fix = f"{fix or error.fix or 'Correct it'}, {SKIP_HINT}"
            raise error.replace(where=where, fix=fix) from None
        return error.what
    return None


def to_cell(value: Any) -> str:
    """A value of a user's column as a cell of a CSV file; empty for bytes."""
    if value is None or isinstance(value, bytes):
        return ""
    if isinstance(value, list | dict):
        return json_text(value, default=lambda x: None)
    return str(value)


class Layout(NamedTuple):
    """The additional columns of a table of predictions."""

    columns: tuple[str, ...]  # columns of the user's table
    files: bool  # whether the rows are from several files
    errors: bool  # whether a row is unusable
    pairs: bool = False  # whether the inputs are pairs of texts


def detect_layout(rows: Sequence[Row]) -> Layout:
    columns = tuple(dict.fromkeys(name for row in rows for name in row.other_columns))
    has_files = len({row.file for row in rows if row.file}) > 1
    has_pairs = any(isinstance(row.text, TextPair) for row in rows)
    return Layout(columns, has_files, any(row.error is not None for row in rows), has_pairs)


def copied_columns(layout: Layout, used_names: Sequence[str]) -> dict[str, Callable[[Row], str]]:
    """Map the output name of each of the user's columns to a function that returns the cell of a row.

    A name in ``used_names`` becomes ``given:NAME``.
    """
    cells: dict[str, Callable[[Row], str]] = {"file": lambda row: row.file} if layout.files else {}
    for name in layout.columns:
        is_used = name in (*used_names, *cells) or name.startswith(("p:", "given:"))
        cells[f"given:{name}" if is_used else name] = lambda row, name=name: row.other_columns.get(name, "")
    return cells


def unusable_message(rows: Sequence[Row]) -> str:
    """A message about unusable rows, by reason; empty if there are none."""
    unusable = ((i, row) for i, row in enumerate(rows, 1) if row.error is not None)
    return rejected_message([RejectedRow(row.file, row.row or i, row.error or "") for i, row in unusable])


def rejected_message(rejected: Sequence[Any]) -> str:
    """A message about rejected rows, by reason; empty if there are none."""
    if not rejected:
        return ""
    count = "1 row was" if len(rejected) == 1 else f"{len(rejected):,} rows were"
    return f"{count} not predicted: {group_reasons(rejected)}{encoding_note(rejected)}"


# Extensions of unsupported files; an argument that ends with one of them is a file name, not a text.
UNSUPPORTED_EXTENSIONS = (
    *(".xlsx", ".xls", ".ods", ".feather", ".arrow", ".jsonlines", ".gz", ".zip", ".bz2", ".xz", ".zst"),
    *(".pdf", ".docx", ".html", ".xml", ".md", ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".gif", ".webp"),
)


def gather_rows(request: InputRequest, first: int = 1) -> list[Row]:
    """One row per text, in order; rows of a file have their row numbers and other columns."""
    rows: list[Row] = []
    for number, argument in enumerate(request.arguments, first):
        if argument == STDIN:
            lines, line_numbers = read_stdin()
            numbered = dict(zip(line_numbers, lines, strict=True))
            rows += rows_of_lines(numbered, "standard input", request.skip)
        elif not is_file_name(argument):
            rows.append(argument_row(argument, number, request.skip))
        elif is_image_name(argument):
            raise image_error(argument)
        else:
            rows += read_counting_errors(partial(read_rows, Path(argument)), request)
    return rows


def check_encodings(arguments: Sequence[str]) -> None:
    """Raise DataError for a file of texts that does not exist or is not UTF-8, before the model is loaded."""
    extensions = tuple(end for end in (TXT, *READERS) if end != ".parquet")
    for argument in arguments:
        if argument.lower().endswith(extensions) and os.path.isfile(argument):
            check_utf8(Path(argument))
        elif argument.lower().endswith(extensions) and is_file_name(argument):
            check_file(Path(argument))  # reports a missing file before torch is imported


def check_not_a_folder(argument: str) -> None:
    """Raise DataError if the argument is a folder, where a text or a file is expected."""
    if not os.path.isdir(argument):  # False, not an error, for a text too long to be a name
        return
    path = Path(argument)
    files = tables_in(path) or [p for p in sorted(path.iterdir()) if p.suffix.lower() == TXT]
    fix = f"{name_file_fix(files) if files else 'Name a file'}; {_as_text(argument)}"
    raise WrongInputError("a folder, where a text or a file is expected", where=argument, fix=fix)


def _as_text(argument: str) -> str:
    """The fix for a text that is also the name of a file or folder."""
    return f"if it is a text, use standard input: echo {shlex.quote(argument)} | glassformer ... -"


def image_error(argument: str) -> DataError:
    """The error for an image given to a text model."""
    what = "an image, and this model reads texts"
    return WrongInputError(what, where=argument, fix="Name a run of an image model")


def check_arguments(arguments: Sequence[str], skip: bool = False) -> None:
    """Raise DataError for an input that no text model reads: a folder, an image or a missing file.

    Without ``skip``, an unusable text also raises an error.
    """
    for number, argument in enumerate(arguments, 1):
        if argument == STDIN:
            continue
        if not is_file_name(argument):
            argument_row(argument, number, skip)
        elif is_image_name(argument):
            raise image_error(argument)
        else:
            check_file(Path(argument))


def is_file_name(argument: str) -> bool:
    """Whether an argument is a file, or has the extension of a supported file."""
    check_not_a_folder(argument)
    if os.path.isfile(argument):  # False, not an error, for a text too long to be a name
        if not any(map(str.isalpha, Path(argument).suffix)):
            what = f"a file without an extension, such as {TXT}, so its type is unknown"
            raise FileTypeError(what, where=argument, fix=f"Rename it; {_as_text(argument)}")
        return True
    if len(argument.split()) != 1:
        return False
    path = Path(argument)
    if os.path.exists(argument):
        what = "a pipe or a device, which is not supported"
        raise CannotReadError(what, where=argument, fix="Give a file, or its lines on standard input: -")
    if argument.endswith("/") or (path.parent != Path(".") and os.path.isdir(path.parent)):
        what = "no such file or folder"
        raise NoSuchFileError(what, where=argument, fix=f"Check the path; {_as_text(argument)}")
    return argument.lower().endswith((TXT, *READERS, *UNSUPPORTED_EXTENSIONS))


def read_stdin() -> tuple[list[str], list[int]]:
    """The non-blank lines of standard input, and their numbers from 1."""
    where = "standard input"
    content = sys.stdin.buffer.read(MAX_STDIN_BYTES + 1)
    if len(content) > MAX_STDIN_BYTES:
        what = f"more than {MAX_STDIN_BYTES >> 20} MiB"
        raise TooLargeError(what, where=where, fix="Give a file, or --data FILE.parquet")
    try:
        lines = split_lines(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise NotUtf8Error(f"not UTF-8 ({error})", where=where, fix="Convert it to UTF-8") from None
    numbered_lines = [(line, row) for row, line in enumerate(lines, start=1) if line.strip()]
    if not numbered_lines:
        fix = "Give one text per line; standard input was read because '-' is among the texts"
        raise DataError("there is no text", where=where, fix=fix)
    return [line for line, _ in numbered_lines], [row for _, row in numbered_lines]


def read_with_columns(
    path: Path, text_column: str | None, log: Callable[[str], None]
) -> tuple[list[str], list[int], list[dict[str, Any]]]:
    """Texts of a table or a ``.txt`` file, their row numbers, and the other columns as one dict per row.

    Columns of bytes are left out.
    """
    if is_plain(path):
        lines, rows = read_lines(path)
        return check_texts(lines, str(path), rows), rows, [{} for _ in lines]
    table = read_table(path)
    if table.message:
        log(table.message)
    column = find_text_column(table, text_column)
    check_filled(table, {"text_column": column})
    texts = check_texts(table.read(column), table.origin, table.rows)
    other_columns: list[dict[str, Any]] = [{} for _ in texts]
    for name in table.names:
        values = [] if name == column else table.read(name)
        if any(isinstance(value, bytes | dict) for value in values):
            continue
        for columns_of_row, value in zip(other_columns, values, strict=False):
            columns_of_row[name] = _json_value(value)
    return texts, list(table.rows), other_columns


def _json_value(value: Any) -> str | int | float | None:
    """A value of a column for JSON: NaN and infinities become None, and other types become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)
