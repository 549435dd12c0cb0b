"""What a verb is given: texts, files of them, pairs of texts, images, standard input.

Each becomes a ``Row`` with its place, its other columns and what is wrong with it.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.cli.options import STDIN, WAY_OUT, read_stdin, with_options
from glassformer.cli.output import note
from glassformer.errors import ConfigError, DataError
from glassformer.finite import json_text

MOST_COLUMNS = 200  # of the user's own, next to the predictions


@dataclass
class Row:
    """One input: a text, a pair of texts or the path of an image."""

    text: str
    row: int | None = None  # in its file, counted as that shows it
    file: str = ""  # "" of what was given on the command line
    given: dict[str, str] = field(default_factory=dict)  # the file's other columns
    error: str | None = None  # why it has no prediction
    words: Sequence[str] | None = None  # of a sentence that its file gives in words


def usable(rows: Sequence[Row]) -> list[str]:
    """The texts of the rows that can be answered.

    Raises:
        DataError: there is none.
    """
    texts = [row.text for row in rows if row.error is None]
    if not rows:
        raise DataError("nothing to answer", where="predict", fix="Give at least one text")
    if not texts:
        first = rows[0]
        where = f"{first.file}, row {first.row}" if first.row else first.file or None
        raise DataError(f"no row can be used; {first.error}", where=where, fix="Give at least one text")
    return texts


def text_row(text: str, number: int, skip: bool) -> Row:
    """A text from the command line; with ``skip`` one that cannot be used is marked.

    Args:
        number: of the argument, from 1.

    Raises:
        DataError: it cannot be used, without ``skip``.
    """
    return Row(text, error=_problem(text, f"TEXT {number}", skip, "Give another text"))


EMPTY = "the line is empty"


def line_rows(lines: dict[int, str], file: str, skip: bool) -> list[Row]:
    """A row for each line up to the last; an empty one keeps its place and is marked, whatever ``skip`` says.

    Args:
        lines: number, from 1 -> line.

    Raises:
        DataError: a line that cannot be used, without ``skip``.
    """
    rows = []
    for number in range(1, max(lines) + 1 if lines else 1):
        line = lines.get(number, "").rstrip("\r\n")
        error = _problem(line, f"{file}, row {number}", skip) if line.strip() else EMPTY
        rows.append(Row(line, number, file, error=error))
    return rows


def row_of(path: Path, number: int, text: Any, given: dict[str, Any], skip: bool) -> Row:
    """A row of a table; with ``skip`` one that cannot be used is marked.

    Raises:
        DataError: it cannot be used, without ``skip``.
    """
    cells = {name: as_cell(value) for name, value in given.items()}
    found = Row(text if isinstance(text, str) else "", number, str(path), cells)
    found.error = _problem(text, f"{path}, row {number}", skip)
    return found


def refusal(skip: bool, ragged: dict[int, DataError]) -> Callable[[DataError, int], None]:
    """What ``read_table`` is told to do with a row that cannot be read: end, or note it in ``ragged``."""

    def refuse(error: DataError, row: int) -> None:
        if not skip:
            raise DataError(error.what, where=error.where, fix=f"{error.fix}, {WAY_OUT}")
        ragged[row] = error

    return refuse


def counted(read: Callable[[bool], list[Row]], skip: bool) -> list[Row]:
    """The rows of a file; where the first that cannot be used ends the reading, the others are counted.

    Args:
        read: reads the file, told whether to mark such rows.
    """
    try:
        return read(skip)
    except DataError as error:
        if skip or not error.where or ", row " not in error.where:
            raise
        from glassformer.data.rejected import with_others

        bad = 0
        with suppress(DataError):
            bad = sum(row.error is not None for row in read(True))
        raise DataError(with_others(error.what, bad), where=error.where, fix=error.fix) from None


def read_rows(
    path: Path, text_column: str | None = None, usual: Sequence[str | None] = (), skip: bool = False
) -> list[Row]:
    """The rows of a table or a ``.txt`` file, in their order; empty lines of a ``.txt`` keep their places.

    Args:
        text_column: of texts; None takes the first of ``usual`` that is there, or finds it.
        skip: a row that cannot be used is marked; else it ends the reading.

    Raises:
        DataError: a file that cannot be read, or (without ``skip``) a row that cannot be used.
    """
    from glassformer.data.columns import find_text
    from glassformer.data.files import check_utf8, text_lines
    from glassformer.data.tables import is_plain

    if is_plain(path):
        check_utf8(path)
        rows = line_rows(dict(enumerate(text_lines(path), 1)), str(path), skip)
        if all(row.error == EMPTY for row in rows):
            raise DataError("the file has no texts", where=str(path), fix="Write one text a line")
        return rows
    found = []
    for values, row in read_columns(path, lambda table: (find_text(table, text_column, usual),), skip):
        if row.error is None:
            row.text = values[0] if isinstance(values[0], str) else ""
            row.error = _problem(values[0], f"{path}, row {row.row}", skip)
        found.append(row)
    return found


def read_columns(
    path: Path, choose: Callable[[Any], tuple[str, ...]], skip: bool = False
) -> list[tuple[tuple[Any, ...], Row]]:
    """The values of a table's columns that ``choose`` names, row for row, each with a ``Row`` of the others.

    Ragged rows are marked with ``skip``, and have no values; else the first ends the reading.
    """
    from glassformer.data.tables import NO_ROWS, read_table

    ragged: dict[int, DataError] = {}
    try:
        table = read_table(path, refusal(skip, ragged))
    except DataError as error:
        if not ragged or error.what != NO_ROWS:
            raise
        row, first = next(iter(ragged.items()))
        what = f"no row can be used; {first.what}"
        raise DataError(what, where=f"{path}, row {row}", fix=first.fix) from None
    if table.said:
        note(table.said)
    columns = choose(table)
    others = carried([name for name in table.names if name not in columns])
    values = {name: table.read(name) for name in others}
    rows: list[tuple[tuple[Any, ...], Row]] = []
    for i, chosen in enumerate(zip(*map(table.read, columns), strict=True)):
        given = {name: as_cell(values[name][i]) for name in others}
        rows.append((chosen, Row("", table.rows[i], str(path), given)))
    rows += [((), unreadable_row(path, row, error, columns, table.names)) for row, error in ragged.items()]
    return sorted(rows, key=lambda item: item[1].row or 0)


def carried(names: Sequence[str]) -> list[str]:
    """Those of a table's other columns that stand beside the answers; that there are more is said."""
    if (more := len(names) - MOST_COLUMNS) > 0:
        those = f"behind {names[MOST_COLUMNS - 1]!r}"
        note(f"{more:,} of {len(names):,} other columns, those {those}, are not written beside the answers")
    return list(names[:MOST_COLUMNS])


def unreadable_row(path: Path, row: int, error: DataError, texts: Sequence[str], names: Sequence[str]) -> Row:
    """A row without an answer, with those of its cells that can be read.

    Args:
        texts: the columns of texts.
        names: of all columns, in the file's order; of a row with too few or too many cells those that stand
            to the left of its texts are kept, since a stray separator moves the others.
    """
    values: dict[str, Any] = getattr(error, "values", {})
    if getattr(error, "ragged", False):
        values = {name: values.get(name) for name in takewhile(lambda name: name not in texts, names)}
    text = values.get(texts[0]) if len(texts) == 1 else None
    given = {name: as_cell(values.get(name)) for name in names if name not in texts}
    given = dict(list(given.items())[:MOST_COLUMNS])
    return Row(text if isinstance(text, str) else "", row, str(path), given, error=error.what)


def _problem(text: Any, where: str, skip: bool, instead: str = "") -> str | None:
    from glassformer.data.checks import check_cells

    try:
        check_cells([text])
    except DataError as error:
        if not skip:
            fix = f"{instead or error.fix or 'Correct it'}, {WAY_OUT}"
            raise DataError(error.what, where=where, fix=fix) from None
        return error.what
    return None


def as_cell(value: Any) -> str:
    """A value of a user's column as a cell of a CSV file; bytes are left out."""
    if value is None or isinstance(value, bytes):
        return ""
    if isinstance(value, list | dict):
        return json_text(value, default=lambda x: None)
    return str(value)


def marked_pictures(rows: Sequence[Row], image_range: Any = "full") -> list[Row]:
    """Rows of pictures, those that cannot be read marked."""
    from glassformer.data.image import unreadable

    read = [row for row in rows if row.error is None]
    texts = [row.text for row in read]
    for i, error in unreadable(texts, "PICTURE", decode=True, image_range=image_range).items():
        read[i].error = error.what
    return list(rows)


class Layout(NamedTuple):
    """What stands beside the answers of some rows."""

    columns: tuple[str, ...]  # the user's own
    files: bool  # whether the rows come from several
    errors: bool  # whether a row has no answer
    pairs: bool = False  # of texts


def layout_of(rows: Sequence[Row]) -> Layout:
    """Of rows that are all in memory."""
    from glassformer.data.text_pairs import TextPair

    columns = tuple(dict.fromkeys(name for row in rows for name in row.given))
    several = len({row.file for row in rows if row.file}) > 1
    pairs = any(isinstance(row.text, TextPair) for row in rows)
    return Layout(columns, several, any(row.error is not None for row in rows), pairs)


def columns_beside(layout: Layout, taken: Sequence[str]) -> dict[str, Callable[[Row], str]]:
    """The user's columns by their names in our table, each with what gives the cell of a row.

    A column whose name is ``taken`` is called ``given:NAME``.
    """
    out: dict[str, Callable[[Row], str]] = {"file": lambda row: row.file} if layout.files else {}
    for name in layout.columns:
        shown = f"given:{name}" if name in (*taken, *out) or name.startswith(("p:", "given:")) else name
        out[shown] = partial(_given, name)
    return out


def _given(name: str, row: Row) -> str:
    return row.given.get(name, "")


def without_answer(rows: Sequence[Row]) -> str:
    """How many rows have no answer, by kind; empty where all have one."""
    from glassformer.data.rejected import RejectedRow

    bad = [RejectedRow(r.file, r.row or i, r.error) for i, r in enumerate(rows, 1) if r.error is not None]
    return said_of(bad)


def said_of(bad: Sequence[Any]) -> str:
    """The same of rows that are rejected."""
    from glassformer.data.rejected import by_kind, in_other_encoding

    if not bad:
        return ""
    count = "1 row has" if len(bad) == 1 else f"{len(bad):,} rows have"
    return f"{count} no answer: {by_kind(bad)}{in_other_encoding(bad)}"


# A word that ends so is a file, too, although it would not be read.
OTHER_ENDS = (
    *(".xlsx", ".xls", ".ods", ".feather", ".arrow", ".jsonlines", ".gz", ".zip", ".bz2", ".xz", ".zst"),
    *(".pdf", ".docx", ".html", ".xml", ".md", ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".gif", ".webp"),
)


def gather_rows(
    given: Sequence[str],
    text_column: str | None = None,
    usual: Sequence[str | None] = (),
    skip: bool = False,
    first: int = 1,
) -> list[Row]:
    """The texts of the arguments, row for row: those of a file keep their places and their other columns.

    Args:
        usual: columns of which a table's first is taken where ``text_column`` names none.
        skip: a text or row that cannot be used is marked; else it ends the reading.
        first: the number of the first argument, in messages.

    Raises:
        DataError: a file is missing or cannot be used, or a text is empty; file and row are named.
    """
    found: list[Row] = []
    for number, argument in enumerate(given, first):
        if argument == STDIN:
            lines = dict(zip(*reversed(read_stdin()), strict=True))
            found += line_rows(lines, "standard input", skip)
        elif not names_a_file(argument):
            found.append(text_row(argument, number, skip))
        elif is_picture(argument):
            raise no_picture(argument)
        else:
            found += counted(partial(read_rows, Path(argument), text_column, usual), skip)
    return found


def is_picture(argument: str) -> bool:
    """Whether an argument is named as pictures are."""
    from glassformer.data.image import is_image_name

    return is_image_name(argument)


def pictures(given: Sequence[str]) -> list[str]:
    """The picture files of the arguments; a folder stands for all in it, in order of name.

    Raises:
        DataError: no such file, or a folder without pictures.
    """
    from glassformer.data.image import picture_files

    found: list[str] = []
    for argument in given:
        path = Path(argument)
        if path.is_dir():
            files = [str(p) for p in picture_files(path)]
            if not files:
                raise DataError("no pictures in this folder", where=argument, fix="Name their files")
            found += files
        elif path.is_file():
            found.append(argument)
        else:
            fix = "Check the path: this model reads pictures"
            fix = "Standard input is read for texts: name files or folders" if argument == STDIN else fix
            raise DataError("no such picture", where=argument or "PICTURE", fix=fix)
    return found


def check_encodings(given: Sequence[str]) -> None:
    """Raises DataError for a file of texts that is not there or not UTF-8, before the model is loaded."""
    from glassformer.data.files import check_file, check_utf8
    from glassformer.data.tables import PLAIN, READERS

    ends = tuple(end for end in (PLAIN, *READERS) if end != ".parquet")
    for argument in given:
        if argument.lower().endswith(ends) and os.path.isfile(argument):
            check_utf8(Path(argument))
        elif argument.lower().endswith(ends) and names_a_file(argument):
            check_file(Path(argument))  # before torch is imported, too


def gather_pictures(given: Sequence[str], skip: bool = False, image_range: Any = "full") -> list[Row]:
    """Pictures row for row: those of a table that names files keep their places and their other columns.

    Args:
        skip: a picture that cannot be read is marked; else it ends the answering.
        image_range: that of the model, with ``skip``; see ``open_picture``.
    """
    from glassformer.data.tables import READERS

    found: list[Row] = []
    for argument in given:
        named = argument.lower().endswith(tuple(READERS)) and os.path.isfile(argument)
        rows = table_of_pictures(Path(argument), skip) if named else map(Row, pictures([argument]))
        found += rows
    return marked_pictures(found, image_range) if skip else found


def table_of_pictures(path: Path, skip: bool = False) -> list[Row]:
    """Read a table whose column names picture files; the files are looked for beside the table.

    Raises:
        DataError: no such column, or it holds pictures themselves.
    """
    from glassformer.data.checks import is_missing
    from glassformer.data.columns import find_column
    from glassformer.data.image_sources import IMAGE_COLUMNS, beside
    from glassformer.data.tables import Table

    def choose(table: Table) -> tuple[str]:
        column = find_column(table, None, IMAGE_COLUMNS, "image")
        if column is None:
            what = f"no column of pictures (columns: {', '.join(table.names)})"
            raise DataError(what, where=str(path), fix=f"Call it one of {', '.join(IMAGE_COLUMNS)}")
        return (column,)

    found = []
    for values, row in read_columns(path, choose, skip):
        if values and is_missing(values[0]):
            row.error = "no picture is named"
            if not skip:
                fix = f"Name one, {WAY_OUT}"
                raise DataError(row.error, where=f"{path}, row {row.row}", fix=fix)
            values = ()
        if values and not isinstance(values[0], str):
            fix = "Give --out a name that ends in .parquet"
            raise DataError("holds pictures, not names of files", where=f"{path}, row {row.row}", fix=fix)
        row.text = beside(values[0], str(path)) if values else ""
        found.append(row)
    return found


def refuse_folder(argument: str) -> None:
    """Raises DataError for a folder where a text or a file is wanted: nobody means its name as a text."""
    if not os.path.isdir(argument):  # False, not an error, for a text too long to be a name
        return
    from glassformer.data.folders import name_one, tables_in
    from glassformer.data.tables import PLAIN

    path = Path(argument)
    files = tables_in(path) or [p for p in sorted(path.iterdir()) if p.suffix.lower() == PLAIN]
    fix = f"{name_one(files) if files else 'Name a file'}; {_as_text(argument)}"
    raise DataError("a folder where texts or their files are read", where=argument, fix=fix)


def _as_text(argument: str) -> str:
    """How the name of a file or folder is given as a text."""
    return (
        f"a text of this name is read from standard input: echo {shlex.quote(argument)} | glassformer ... -"
    )


def no_picture(argument: str) -> DataError:
    """What is said of a picture that is given to a model of texts."""
    return DataError("a picture, and this model reads texts", where=argument, fix="Name another run")


def refuse_unreadable(given: Sequence[str], skip: bool = False) -> None:
    """Raises DataError for what no model of texts reads: a folder, a picture, no such file, no text.

    Args:
        skip: a text that cannot be used is not refused.
    """
    from glassformer.data.files import check_file

    for number, argument in enumerate(given, 1):
        if argument == STDIN:
            continue
        if not names_a_file(argument):
            text_row(argument, number, skip)
        elif is_picture(argument):
            raise no_picture(argument)
        else:
            check_file(Path(argument))


def names_a_file(argument: str) -> bool:
    """Whether an argument is a file, or a word that ends as the files do that can be read.

    Raises:
        DataError: it is a folder, whose name nobody means as a text, or a file whose name has no ending that
            says how it is read.
    """
    from glassformer.data.tables import PLAIN, READERS

    refuse_folder(argument)
    if os.path.isfile(argument):  # False, not an error, for a text too long to be a name
        if not any(map(str.isalpha, Path(argument).suffix)):
            what = f"a file whose name has no ending, such as {PLAIN}, that says how it is read"
            raise DataError(what, where=argument, fix=f"Give it one; {_as_text(argument)}")
        return True
    if len(argument.split()) != 1:
        return False
    path = Path(argument)
    if os.path.exists(argument):
        what = "a pipe or a device, which is not read"
        raise DataError(what, where=argument, fix="Give a file, or its lines on standard input: -")
    if argument.endswith("/") or (path.parent != Path(".") and os.path.isdir(path.parent)):
        what = "no such file or folder"
        raise DataError(what, where=argument, fix=f"Check the path; {_as_text(argument)}")
    return argument.lower().endswith((PLAIN, *READERS, *OTHER_ENDS))


def read_with_columns(
    path: Path, text_column: str | None = None
) -> tuple[list[str], list[int], list[dict[str, Any]]]:
    """The texts of a table or a ``.txt`` file, their rows, and what stands beside each in its row, by column.

    Columns of bytes (pictures) are left out.

    Raises:
        DataError: a file that cannot be read, or a text that cannot be used.
    """
    from glassformer.data.checks import check_texts
    from glassformer.data.columns import find_text
    from glassformer.data.files import read_lines
    from glassformer.data.tables import is_plain, read_table

    if is_plain(path):
        lines, rows = read_lines(path)
        return check_texts(lines, str(path), rows), rows, [{} for _ in lines]
    table = read_table(path)
    if table.said:
        note(table.said)
    column = find_text(table, text_column)
    texts = check_texts(table.read(column), table.origin, table.rows)
    beside: list[dict[str, Any]] = [{} for _ in texts]
    for name in table.names:
        values = [] if name == column else table.read(name)
        if any(isinstance(value, bytes | dict) for value in values):
            continue
        for own, value in zip(beside, values, strict=False):
            if isinstance(value, float) and not math.isfinite(value):
                value = None  # JSON has no word for it
            own[name] = value if value is None or isinstance(value, str | int | float) else str(value)
    return texts, list(table.rows), beside


# --- pairs of texts -------------------------------------------------------------------------------
#
# Two arguments, a line with a tab, or two columns of a table.


SIDES_OF_A_PAIR = ("first text", "second text")


def gather_pairs(
    given: Sequence[str],
    text_column: str | None = None,
    pair_column: str | None = None,
    folder: str | Path = "",
    skip: bool = False,
    sides: tuple[str, str] = SIDES_OF_A_PAIR,
    start: int = 1,
) -> list[Row]:
    """The pairs of the arguments, in their order; those of a file keep their places and their other columns.

    Args:
        given: texts, two for each pair, and names of files: tables of two columns, ``.txt`` files and ``-``
            for standard input with two texts a line and a tab between them.
        text_column, pair_column: of tables; None takes those of the training, or finds them.
        folder: of the run or model.
        skip: a row that cannot be used is marked; else it ends the reading.
        sides: what the two are called in messages.
        start: the number of the first argument, in messages.

    Raises:
        DataError: a text without its second one, a file that cannot be read, a row that cannot be used.
    """

    found: list[Row] = []
    first: str | None = None
    for number, argument in enumerate(given, start):
        is_file = argument == STDIN or (names_a_file(argument) and not is_picture(argument))
        if first is not None and is_file:
            raise _alone(first, sides)
        if argument == STDIN:
            found += _of_lines(zip(*reversed(read_stdin()), strict=True), "standard input", skip)
        elif is_file:
            found += counted(partial(_of_file, Path(argument), text_column, pair_column, folder), skip)
        elif first is None:
            first = argument
        else:
            found.append(_row(first, argument, None, "", skip, f"TEXT {number - 1} and {number}"))
            first = None
    if first is not None:
        raise _alone(first, sides)
    return found


def reads_pairs(clf: Any, pair_column: str | None) -> bool:
    """Whether what is given are pairs of texts: the model reads nothing else, or their column is named.

    Raises:
        ConfigError: it is named, and the model reads one text.
    """
    if pair_column is not None and getattr(clf, "pairs_", False) is False:
        raise ConfigError("this model reads one text, not pairs", where="--pair-column", fix="Leave it out")
    return pair_column is not None or getattr(clf, "reads_pairs", False)


def _alone(text: str, sides: tuple[str, str]) -> DataError:
    shown = text if len(text) <= 40 else f"{text[:40]}..."
    if sides == SIDES_OF_A_PAIR:
        fix = "Give two texts for each pair, or a table of two columns"
        return DataError(f"this model reads pairs, and {shown!r} has no second text", where="TEXT", fix=fix)
    first, second = sides
    what = f"this model answers a {first} from a {second}, and {shown!r} stands alone"
    fix = f'Give both, "{first.upper()}" "{second.upper()}", or a table with columns {first} and context'
    return DataError(what, where="TEXT", fix=fix)


def _row(first: Any, second: Any, row: int | None, file: str, skip: bool, where: str = "") -> Row:
    """One pair, with what is wrong with it; without ``skip`` that ends the reading.

    Args:
        where: of texts from the command line, which ones they are.
    """
    from glassformer.data.text_pairs import TextPair, join_sides

    try:
        (pair,) = join_sides([first], [second])
    except DataError as error:
        if not skip:
            fix = "Give another text" if where else error.fix or "Correct it"
            raise DataError(
                error.what, where=where or f"{file}, row {row}", fix=f"{fix}, {WAY_OUT}"
            ) from None
        sides = (side if isinstance(side, str) else "" for side in (first, second))
        return Row(TextPair(*sides), row, file, error=error.what)
    return Row(pair, row, file)


def _of_lines(lines: Iterable[tuple[int, str]], file: str, skip: bool) -> list[Row]:
    found = []
    for number, line in lines:
        first, tab, second = line.rstrip("\r\n").partition("\t")
        if not tab and not skip:
            fix = "Write both texts of a pair in one line, a tab between them"
            raise DataError("no tab", where=f"{file}, row {number}", fix=fix)
        found.append(_row(first, second, number, file, skip))
    return found


def _of_file(path: Path, text: str | None, pair: str | None, folder: str | Path, skip: bool) -> list[Row]:
    from glassformer.data.files import check_utf8, text_lines
    from glassformer.data.tables import PLAIN

    if path.suffix.lower() == PLAIN:
        check_utf8(path)
        lines = [(i, line) for i, line in enumerate(text_lines(path), 1) if line.strip()]
        if not lines:
            fix = "Write both texts of a pair in one line, a tab between them"
            raise DataError("the file has no texts", where=str(path), fix=fix)
        return _of_lines(lines, str(path), skip)

    def columns(table: Any) -> tuple[str, str]:
        sides = sides_in(table.names, text, pair, folder, path)
        if sides.said:
            note_columns(sides.said)
        return sides.first, sides.second

    return _pairs_in(path, columns, skip)


def _pairs_in(path: Path, choose: Callable[[Any], tuple[str, ...]], skip: bool) -> list[Row]:
    """The pairs in two columns of a table."""
    return [
        row
        if row.error is not None
        else replace(_row(first, second, row.row, row.file, skip), given=row.given)
        for (first, second), row in read_columns(path, choose, skip)
    ]


def note_columns(line: str) -> None:
    """Which columns of a table are read as the first and the second texts, on stderr."""
    note(with_options(line))


def sides_in(
    names: Sequence[str], text: str | None, pair: str | None, folder: str | Path, path: str | Path
) -> Any:
    """The columns of first and second texts, as ``trained_sides`` finds them for the model in a folder."""
    from glassformer.data.columns import trained_sides
    from glassformer.tasks.run_folder import trained_columns

    return trained_sides(names, text, pair, str(path), trained_columns(folder))


# --- questions ------------------------------------------------------------------------------------
#
# Two arguments, a line with a tab, SQuAD's JSON, or two columns of a table.


SIDES_OF_A_QUESTION = ("question", "text")


def gather_questions(
    given: Sequence[str],
    question_column: str | None = None,
    context_column: str | None = None,
    skip: bool = False,
) -> list[Row]:
    """The questions of the arguments, in their order, as pairs of texts.

    Args:
        given: question and context, two for each, and names of files: SQuAD's JSON, tables with columns
            question and context; ``.txt`` files and ``-`` for standard input have both in a line, a tab
            between them.
        question_column, context_column: of tables; None finds them by their usual names.
        skip: a row that cannot be used is marked; else it ends the reading.

    Raises:
        DataError: a question without its context, a file that cannot be read, a row that cannot be used.
    """
    from glassformer.data.tables import PLAIN

    refuse_unreadable(given, skip)
    found: list[Row] = []
    texts: list[str] = []
    for number, argument in enumerate(given, 1):
        table = names_a_file(argument) and not is_picture(argument) and not argument.lower().endswith(PLAIN)
        if argument != STDIN and not table:
            texts.append(argument)
            continue
        if texts:
            found += gather_pairs(texts, skip=skip, sides=SIDES_OF_A_QUESTION, start=number - len(texts))
            texts = []
        if argument == STDIN:
            found += gather_pairs([argument], skip=skip)
        else:
            found += counted(partial(_questions_in, Path(argument), question_column, context_column), skip)
    start = len(given) - len(texts) + 1
    return [
        *found,
        *(gather_pairs(texts, skip=skip, sides=SIDES_OF_A_QUESTION, start=start) if texts else []),
    ]


def _questions_in(path: Path, question: str | None, context: str | None, skip: bool) -> list[Row]:
    from glassformer.data.answered import columns_of, is_nested, load_answered
    from glassformer.data.text_pairs import TextPair

    if path.is_file() and is_nested(path):
        data = load_answered(path, on_bad_row="skip" if skip else "refuse", need_answers=False)
        (split,) = data.splits.values()
        rows = split.rows or range(1, len(split) + 1)
        good = [Row(TextPair(*q), row, str(path)) for q, row in zip(split.questions, rows, strict=True)]
        bad = [Row(TextPair("", ""), row.row, str(path), error=row.reason) for row in data.rejected]
        return sorted([*good, *bad], key=lambda row: row.row or 0)
    return _pairs_in(path, lambda table: columns_of(table, question, context), skip)


# --- sentences ------------------------------------------------------------------------------------


def gather_sentences(given: Sequence[str], text_column: str | None = None, skip: bool = False) -> list[Row]:
    """Texts and sentences in words: as ``gather_rows``, and files of CoNLL and tables with lists of words."""
    from glassformer.data.tagged import list_words

    refuse_unreadable(given, skip)
    found: list[Row] = []
    for number, argument in enumerate(given, 1):
        data = list_words(argument, text_column, skip)
        if data is None:
            found += gather_rows([argument], text_column, (), skip, number)
            continue
        split = data.splits["train"]
        places = split.rows or range(1, len(split) + 1)
        good = [Row(" ".join(w), n, argument, words=w) for w, n in zip(split.words, places, strict=True)]
        bad = [Row("", row.row, argument, error=row.reason) for row in data.rejected]
        found += sorted([*good, *bad], key=lambda row: row.row or 0)
    return found
