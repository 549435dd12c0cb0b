"""CSV cells that a spreadsheet does not run as formulas, and CSV readers."""

from __future__ import annotations

import csv
import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from glassformer.errors import FileTypeError

SPREADSHEETS = frozenset([".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers"])
MAX_CELL = 16 * 2**20  # characters; the default limit of the csv module, 131,072, is too low for documents
REVIEWED = "review:"  # prefix of the columns that a label review adds; all cells of such a table are escaped

# A spreadsheet runs a cell that begins with one of these characters as a formula; in East Asian locales also
# with their full-width forms. The pattern includes leading apostrophes, so that unescaping is unambiguous.
_SIGNS = r"[=+\-@\uff1d\uff0b\uff0d\uff20]"
_FORMULA = re.compile(rf"'*(?:{_SIGNS}|[\t\r\n])")
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?", re.ASCII)
# A program that splits at semicolons or tabs may find a formula inside a cell, after a sequence of
# separators, blanks and quotes. The pattern tries each sequence once, so it takes linear time.
_INNER_FORMULA = re.compile(rf"(?<![\s\"\u201c\u201d;])([\s\"\u201c\u201d;]++)('*+)(?={_SIGNS})")
_SEPARATORS = re.compile(r"[;\t\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")

_LIMIT_LOCK = threading.RLock()


class csv_rows:
    """Like ``csv.reader``, with cells of at most ``max_cell`` characters.

    Python has one such limit per process. This class sets the limit while it reads a record, and then
    restores the old limit for other readers and threads.
    """

    def __init__(self, lines: Iterable[str], max_cell: int = MAX_CELL, **options: Any):
        self._records, self._max_cell = csv.reader(lines, **options), max_cell

    @property
    def line_num(self) -> int:
        """Number of lines read so far."""
        return self._records.line_num

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        with _LIMIT_LOCK:
            old_limit = csv.field_size_limit(self._max_cell)
            try:
                return next(self._records)
            finally:
                csv.field_size_limit(old_limit)


def csv_dicts(lines: Iterable[str], **options: Any) -> Iterator[dict[str, Any]]:
    """Like ``csv.DictReader``: each record as a dict; a missing cell is None."""
    records = csv_rows(lines, **options)
    names = next(records, [])
    yield from ({**dict.fromkeys(names), **dict(zip(names, row, strict=False))} for row in records if row)


def csv_safe(cell: Any) -> str:
    """Escape a cell: insert an apostrophe before everything that a spreadsheet would run as a formula.

    A formula may be at the start of the cell, or after a semicolon, tab or line break, since some programs
    split cells there.
    """
    text = "" if cell is None else str(cell)
    text = _INNER_FORMULA.sub(lambda m: f"{m[1]}'{m[2]}" if _begins_cell(m) else m[0], text)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def csv_plain(cell: str) -> str:
    """Unescape a cell: the inverse of ``csv_safe``."""
    cell = cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
    return _INNER_FORMULA.sub(lambda m: f"{m[1]}{m[2][1:]}" if _begins_cell(m) else m[0], cell)


def _begins_cell(match: re.Match[str]) -> bool:
    return match.start() == 0 or _SEPARATORS.search(match[1]) is not None


def is_label_review(names: Iterable[str]) -> bool:
    """Whether a table was written by a label review, so that its cells are escaped by ``csv_safe``."""
    return any(name.startswith(REVIEWED) for name in names)


def file_type_error(path: Path, supported: Iterable[str]) -> FileTypeError:
    """The error for a file whose extension is not one of the ``supported`` extensions."""
    what = "the file name has no extension such as .csv, so its type is unknown"
    if path.suffix:
        what = f"files of type {path.suffix!r} are not supported"
    fix = f"Known: {', '.join(supported)}"
    fix = f"Save the sheet as CSV in UTF-8. {fix}" if path.suffix.lower() in SPREADSHEETS else fix
    return FileTypeError(what, where=str(path), fix=fix)
