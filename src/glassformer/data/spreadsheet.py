"""Cells that a spreadsheet cannot take for formulas, and back; the columns that a label review adds; what is
particular to files that spreadsheets save."""

from __future__ import annotations

import csv
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

SEPARATOR = re.compile(r'"?sep=([^\w\s"]|\t)"?\s*', re.IGNORECASE).fullmatch  # Excel's own first line
SHEETS = frozenset([".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers"])
MAX_CELL = 16 * 2**20  # characters; the csv module's own limit of 131,072 is below a long document
REVIEWED = "review:"  # begins the names of a review's columns beside a table's own; its cells are guarded

# A spreadsheet runs a cell that begins like this (the wide forms too, in East Asian locales). The
# leading apostrophes are part of the pattern so that the guard can be taken off unambiguously.
_SIGNS = r"[=+\-@\uff1d\uff0b\uff0d\uff20]"
_FORMULA = re.compile(rf"'*(?:{_SIGNS}|[\t\r\n])")
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?", re.ASCII)
# One that splits at semicolons or tabs, as many do, finds cells inside ours: after a run of separators,
# blanks and quotes. Each run is looked at once, from its start, so a text of a million blanks takes no time.
_INSIDE = re.compile(rf"(?<![\s\"\u201c\u201d;])([\s\"\u201c\u201d;]++)('*+)(?={_SIGNS})")
_SEPARATORS = re.compile(r"[;\t\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")


_LIMIT = threading.RLock()


class csv_rows:
    """The records of ``csv.reader``, whose cells may have ``longest`` characters.

    Python has one such limit for all readers of a process. So it is set for one record at a time, and given
    back: tables that are read in turns or in threads do not meet each other's, and the caller keeps theirs.
    """

    def __init__(self, lines: Iterable[str], longest: int = MAX_CELL, **options: Any):
        self._records, self._longest = csv.reader(lines, **options), longest

    @property
    def line_num(self) -> int:
        """Lines read so far."""
        return self._records.line_num

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        with _LIMIT:
            before = csv.field_size_limit(self._longest)
            try:
                return next(self._records)
            finally:
                csv.field_size_limit(before)


def csv_dicts(lines: Iterable[str], **options: Any) -> Iterator[dict[str, Any]]:
    """As ``csv.DictReader``: each record by the names in the first; None: it has no such cell."""
    records = csv_rows(lines, **options)
    names = next(records, [])
    yield from ({**dict.fromkeys(names), **dict(zip(names, row, strict=False))} for row in records if row)


def csv_safe(cell: Any) -> str:
    """A cell's text, with an apostrophe wherever a spreadsheet would take what follows for a formula.

    That is at the start of the cell and, for programs that split there, after a semicolon, tab or line break.
    """
    text = "" if cell is None else str(cell)
    text = _INSIDE.sub(lambda m: f"{m[1]}'{m[2]}" if _opens_cell(m) else m[0], text)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def csv_plain(cell: str) -> str:
    """What ``csv_safe`` was given."""
    cell = cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
    return _INSIDE.sub(lambda m: f"{m[1]}{m[2][1:]}" if _opens_cell(m) else m[0], cell)


def _opens_cell(match: re.Match[str]) -> bool:
    return match.start() == 0 or _SEPARATORS.search(match[1]) is not None


def plain_under(names: Sequence[str]) -> Callable[[str], str]:
    """How cells under a header are read: those of our own files lose what guards them in a spreadsheet."""
    return csv_plain if _ours(names) else str


def guard_under(names: Sequence[str]) -> Callable[[str], str]:
    """The other way: what gives cells that ``plain_under`` read the form that they have in their file."""
    return csv_safe if _ours(names) else str


def _ours(names: Sequence[str]) -> bool:
    return any(name.startswith(REVIEWED) for name in names)


def unread(path: Path) -> str:
    """What is wrong with a file whose name says that it is not a table."""
    if path.suffix:
        return f"files of type {path.suffix!r} are not read"
    return "the file's name has no ending such as .csv, so its type is not known"


def other_kind(suffix: str, known: Iterable[str]) -> str:
    """What to do with a file of a kind that is not read.

    Args:
        known: the kinds that are.
    """
    listed = f"Known: {', '.join(known)}"
    return f"Save the sheet as CSV in UTF-8. {listed}" if suffix.lower() in SHEETS else listed
