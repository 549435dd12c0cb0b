"""A CSV or TSV file that can be parsed and was hardly meant so: rows within a quoted cell, data as a header.

What the columns hold decides. A line within a quoted cell is taken for a row of its own where it has as many
cells as the header, and under labels, numbers and dates what other rows have there: prose does not. A first
row is taken for data where it has such values, or where sentences are the names of all columns of texts.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from glassformer.data.column_contents import (
    LABEL_COLUMNS,
    TEXT_COLUMNS,
    are_dates,
    are_numbers,
    looks_like_labels,
    text_size,
)
from glassformer.data.files import MAX_TEXT, text_lines
from glassformer.data.spreadsheet import csv_rows
from glassformer.errors import DataError

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
    "id",
    "index",
    "title",
    "body",
    "name",
    "score",
    "question",
    "answer",
    "source",
    "context",
    "premise",
)
OTHERS += ("hypothesis", "sentence1", "sentence2", "image", "file", "path", "split", "tokens")
USUAL = frozenset((*LABEL_COLUMNS, *TEXT_COLUMNS, *OTHERS))
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
    what = (
        f"{OPENS} {first} and closes in line {last}, which makes one row of them, "
        "though each of these lines looks like a row"
    )
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
    if not columns or [*filter(None, names)] in _counts(len(names)):
        return "unclear", ""
    both = list(zip(names, columns, strict=True))
    if any(name.strip().lower() in USUAL and name not in cells for name, cells in both):
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


def _counts(width: int) -> list[list[str]]:
    """The names that pandas gives columns without one."""
    return [list(map(str, range(width))), list(map(str, range(width - 1)))]


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
