"""Rows of the user's files, each with its place, its other columns and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.cli.output import note
from glassformer.errors import DataError
from glassformer.finite import json_text
from glassformer.reading import Unchanged

MOST_COLUMNS = 200  # of the user's own, next to the predictions
LARGE = 4 << 20  # bytes; a file from here on is read piece by piece
PIECE = 4096  # rows
WAY_OUT = "or mark such rows and answer the others with --on-bad-row skip"


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


# --- large files ----------------------------------------------------------------------------------


def large_file(given: Sequence[str]) -> Path | None:
    """The one file that is given, where it is large and of a kind that can be read piece by piece."""
    from glassformer.data.tables import STREAMED

    path = Path(given[0])
    one = len(given) == 1 and len(given[0]) < 4096 and path.suffix.lower() in STREAMED
    return path if one and path.is_file() and path.stat().st_size >= LARGE else None


class LargeFile:
    """The rows of a table in pieces of ``PIECE``, as ``read_rows`` gives them; memory does not grow with it.

    Every row is looked at before the first is answered, so that a bad one ends the work before it begins. A
    file that changes meanwhile ends it too: no answers of two tables come together.

    Args:
        text_column, usual, skip: as ``read_rows`` takes them.

    Raises:
        DataError: as ``read_rows``, no row can be used, or the file has changed since this was made.
    """

    def __init__(self, path: Path, text_column: str | None, usual: Sequence[str | None], skip: bool):
        self._unchanged = Unchanged(path)
        try:
            self._look(path, text_column, usual, skip)
        except DataError as error:
            if skip or not error.where or ", row " not in error.where:
                raise
            from glassformer.data.rejected import with_others

            with suppress(DataError):  # no row can be used
                self._look(path, text_column, usual, True)
            raise DataError(with_others(error.what, self.bad), where=error.where, fix=error.fix) from None
        self._unchanged.check()

    def _look(self, path: Path, text_column: str | None, usual: Sequence[str | None], skip: bool) -> None:
        """Go through the file once: its columns, and how many rows are good and bad."""
        from glassformer.data.columns import find_text
        from glassformer.data.tables import StreamedTable

        self.path, self.skip, self.bad = path, skip, 0
        self._ragged: dict[int, DataError] = {}
        self._table = StreamedTable(path, refusal(skip, self._ragged))
        self._text = find_text(self._table.sample(), text_column, usual)
        columns = tuple(carried([name for name in self._table.names if name != self._text]))
        self.layout = Layout(columns, False, False)
        self.good, self.bad, first = 0, 0, None
        for row in self._rows():
            self.good, self.bad = self.good + (row.error is None), self.bad + (row.error is not None)
            first = first or (row if row.error is not None else None)
        if first is not None and not self.good:
            usable([first])  # says so
        self.layout = Layout(columns, False, first is not None)

    def _rows(self) -> Iterator[Row]:
        ragged = iter(sorted(self._ragged.items()))
        waiting = next(ragged, None)
        for number, values in self._table.rows():
            while waiting is not None and waiting[0] < number:
                yield unreadable_row(self.path, *waiting, (self._text,), self._table.names)
                waiting = next(ragged, None)
            given = {name: values[name] for name in self.layout.columns}
            yield row_of(self.path, number, values[self._text], given, self.skip)
        while waiting is not None:
            yield unreadable_row(self.path, *waiting, (self._text,), self._table.names)
            waiting = next(ragged, None)

    def __iter__(self) -> Iterator[list[Row]]:
        piece: list[Row] = []
        for row in self._rows():
            piece.append(row)
            if len(piece) == PIECE:
                self._unchanged.check()
                yield piece
                piece = []
        self._unchanged.check()
        if piece:
            yield piece
