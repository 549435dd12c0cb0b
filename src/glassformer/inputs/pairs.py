"""Read pairs of texts on the command line: two arguments, a line with a tab, or two columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from glassformer.data.columns import trained_sides
from glassformer.data.files import check_utf8, text_lines
from glassformer.data.tables import PLAIN
from glassformer.data.text_pairs import TextPair, join_sides
from glassformer.errors import DataError, MissingValueError, WrongInputError
from glassformer.inputs.rows import (
    SKIP_HINT,
    STDIN,
    Given,
    Row,
    counted,
    is_picture,
    names_a_file,
    read_columns,
    read_stdin,
)

SIDES_OF_A_PAIR = ("first text", "second text")


def gather_pairs(given: Given, sides: tuple[str, str] = SIDES_OF_A_PAIR, start: int = 1) -> list[Row]:
    """One row per pair, in order; rows of a file have their row numbers and other columns.

    Args:
        given: texts, two per pair, and files: tables with two columns, ``.txt`` files and ``-`` for standard
            input, with two texts per line, separated by a tab.
        sides: names of the two texts in messages.
        start: number of the first argument, for messages.
    """
    found: list[Row] = []
    first: str | None = None
    for number, argument in enumerate(given.words, start):
        is_file = argument == STDIN or (names_a_file(argument) and not is_picture(argument))
        if first is not None and is_file:
            raise _alone(first, sides)
        if argument == STDIN:
            found += _of_lines(zip(*reversed(read_stdin()), strict=True), "standard input", given.skip)
        elif is_file:
            found += counted(partial(_of_file, Path(argument)), given)
        elif first is None:
            first = argument
        else:
            found.append(_row(first, argument, None, "", given.skip, f"TEXT {number - 1} and {number}"))
            first = None
    if first is not None:
        raise _alone(first, sides)
    return found


def _alone(text: str, sides: tuple[str, str]) -> DataError:
    shown = text if len(text) <= 40 else f"{text[:40]}..."
    if sides == SIDES_OF_A_PAIR:
        fix = "Give two texts for each pair, or a table of two columns"
        return WrongInputError(
            f"this model reads pairs, and {shown!r} has no second text", where="TEXT", fix=fix
        )
    first, second = sides
    what = f"this model reads a {first} with a {second}, and {shown!r} has none"
    fix = f'Give both, "{first.upper()}" "{second.upper()}", or a table with columns {first} and context'
    return DataError(what, where="TEXT", fix=fix)


def _row(first: Any, second: Any, row: int | None, file: str, skip: bool, where: str = "") -> Row:
    """A row with one pair; an unusable pair raises an error or, with ``skip``, is marked.

    Args:
        where: position of texts from the command line, for messages; empty for texts of a file.
    """
    try:
        (pair,) = join_sides([first], [second])
    except DataError as error:
        if not skip:
            fix = "Give another text" if where else error.fix or "Correct it"
            raise DataError(
                error.what, where=where or f"{file}, row {row}", fix=f"{fix}, {SKIP_HINT}"
            ) from None
        sides = (side if isinstance(side, str) else "" for side in (first, second))
        return Row(TextPair(*sides), row, file, error=error.what)
    return Row(pair, row, file)


def _of_lines(lines: Iterable[tuple[int, str]], file: str, skip: bool) -> list[Row]:
    found = []
    for number, line in lines:
        first, tab, second = line.rstrip("\r\n").partition("\t")
        if not tab and not skip:
            fix = "Write both texts of a pair in one line, separated by a tab"
            raise DataError("no tab", where=f"{file}, row {number}", fix=fix)
        found.append(_row(first, second, number, file, skip))
    return found


def _of_file(path: Path, given: Given) -> list[Row]:
    if path.suffix.lower() == PLAIN:
        check_utf8(path)
        lines = [(i, line) for i, line in enumerate(text_lines(path), 1) if line.strip()]
        if not lines:
            fix = "Write both texts of a pair in one line, separated by a tab"
            raise MissingValueError("the file has no texts", where=str(path), fix=fix)
        return _of_lines(lines, str(path), given.skip)

    def columns(table: Any) -> tuple[str, str]:
        sides = trained_sides(table.names, given.text_column, given.pair_column, str(path), given.trained)
        if sides.said:
            given.say(sides.said)
        return sides.first, sides.second

    return pairs_in(path, columns, given)


def pairs_in(path: Path, choose: Callable[[Any], tuple[str, ...]], given: Given) -> list[Row]:
    """The pairs in two columns of a table."""
    return [
        row
        if row.error is not None
        else replace(_row(first, second, row.row, row.file, given.skip), given=row.given)
        for (first, second), row in read_columns(path, choose, given)
    ]
