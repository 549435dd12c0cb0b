"""Pairs of texts on their way to answers: two arguments, a line with a tab, or two columns of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from glassformer.cli.given import STDIN, read_stdin, with_options
from glassformer.cli.output import note
from glassformer.cli.rows import WAY_OUT, Row, counted, read_columns
from glassformer.errors import ConfigError, DataError

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
    from glassformer.cli.inputs import is_picture, names_a_file

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


def zero_shot(clf: Any, labels: Sequence[str], template: str | None) -> Any:
    """A model of entailment that chooses among labels; errors: those of ``ZeroShotClassifier``."""
    from glassformer.tasks.text_classification.zero_shot import TEMPLATE, ZeroShotClassifier

    named = [label.strip() for words in labels for label in words.split(",") if label.strip()]
    return ZeroShotClassifier(clf, named, template=template or TEMPLATE)


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

    return [
        replace(_row(values[0], values[1], row.row, row.file, skip), given=row.given)
        if row.error is None
        else row
        for values, row in read_columns(path, columns, skip)
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
