"""What stands between the cells of a CSV or TSV file, and how many cells a row may have."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from glassformer.data.encodings import quoting
from glassformer.data.files import text_lines
from glassformer.data.spreadsheet import SEPARATOR
from glassformer.data.table_head import check_head
from glassformer.errors import DataError

MAX_COLUMNS = 1 << 16
LONGEST_HEADER = 1 << 20  # characters that are looked through for the end of a quoted name
USUAL, RARE = ",;\t", "|^~\x01\x1f"  # the latter where the header has none of the former
LOOKED_AT = 20  # lines that have as many of a rare one as the header
_QUOTED = re.compile(r'"[^"]*"')
BLANK_QUOTE = re.compile(' +"').match  # what an unquoted cell hardly begins with
_JOINED = re.compile(
    r"(text|label|sentence|review)\s*([^\w\s]+)\s*(text|label|sentence|review)", re.IGNORECASE
)


def delimiter_of(path: Path, errors: str) -> str:
    """What stands between the cells of a file, by its first line: the header, or Excel's ``sep=;``.

    Blank lines before the header are passed over, and what stands in double quotes is not counted. A pipe and
    other rare ones count where the header has no comma, semicolon or tab, and most lines have as many.

    Raises:
        DataError: too many columns, or a header of two usual names with something else between them; what
            ``check_head`` refuses.
    """
    check_head(path, errors)
    lines = text_lines(path, newline="", errors=errors)
    header = next(lines, "")
    if said := SEPARATOR(header):
        return said[1]
    header = header if header.strip() else next(filter(str.strip, lines), "")
    if quoting() != "none":
        while header.count('"') % 2 and len(header) < LONGEST_HEADER and (more := next(lines, "")):
            header += more  # a line end within quotes is a name's
        bare = _QUOTED.sub("", header)
        header = bare if any(map(bare.count, USUAL + RARE)) else header
    delimiter = "\t" if path.suffix.lower() in (".tsv", ".txt") else max(USUAL, key=header.count)
    if delimiter not in header:
        delimiter = _rare(path, header, lines, delimiter)
    if (columns := header.count(delimiter)) >= MAX_COLUMNS:
        raise too_many(columns + 1, f"{path}, row 1")
    return delimiter


def _rare(path: Path, header: str, lines: Iterator[str], usual: str) -> str:
    """The delimiter of a file whose header has none that is expected; ``usual``: it is one column."""
    below = list(islice(filter(str.strip, lines), LOOKED_AT))
    for sign in (*USUAL, *RARE) if usual == "\t" else RARE:
        alike = sum(_QUOTED.sub("", line).count(sign) == header.count(sign) for line in below)
        if sign in header and 2 * alike > len(below):
            return sign
    if joined := _JOINED.fullmatch(header.strip()):
        what = f"the header {header.strip()!r} has {joined[2]!r} between its columns, which is not read"
        fix = "Save the table with commas, semicolons, tabs or pipes between its columns"
        raise DataError(what, where=f"{path}, row 1", fix=fix)
    return usual


def blanks_at_quotes(path: Path, delimiter: str, errors: str) -> tuple[bool, bool]:
    """Whether blanks before an opening quote, and behind a closing one, are no part of cells: each row that
    has such, at the beginning of the file, has as many cells as the header without them."""
    lines: list[str] = []
    size = 0
    for line in text_lines(path, newline="", errors=errors):
        lines.append(line)
        size += len(line)
        if size > LONGEST_HEADER:
            break
    lines = lines[1:] if SEPARATOR("".join(lines[:1])) else lines
    cut = size > LONGEST_HEADER  # within a row, maybe
    before = re.compile(re.escape(delimiter) + ' +"').search
    bare = list(without_blanks_behind_quotes(lines, delimiter))
    if bare != lines and _fit(bare, delimiter, blank_behind_quote(delimiter), lines, cut):
        return any(map(before, lines)), True
    if not any(map(before, lines)):
        return False, False
    try:
        if not any(BLANK_QUOTE(cell) for row in csv.reader(lines, delimiter=delimiter) for cell in row):
            return False, False
    except csv.Error:
        return cut, False
    return _fit(lines, delimiter, before, lines, cut), False


def _fit(
    lines: list[str], delimiter: str, found: Callable[[str], Any], written: list[str], cut: bool
) -> bool:
    """Whether all rows in whose ``written`` lines something is ``found`` have as many cells as the first."""
    rows, before = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True), 0
    fits, width = [], 0
    try:
        for row in rows:
            width = width or len(row)
            if any(map(found, written[before : rows.line_num])):
                fits.append(len(row) == width)
            before = rows.line_num
    except csv.Error:
        return cut and all(fits)
    return all(fits)


def blank_behind_quote(delimiter: str) -> Callable[[str], Any]:
    """What finds a quote with blanks between it and the end of its cell in a line."""
    return re.compile(rf'" +(?={re.escape(delimiter)}|[\r\n]*\Z)').search


def without_blanks_behind_quotes(lines: Iterable[str], delimiter: str) -> Iterator[str]:
    """The lines of a file without the blanks between the closing quote of a cell and the separator."""
    sign = re.escape(delimiter)
    cell = rf'(?:[^"]++|"")*+)(?:(") *(?={sign}|[\r\n]*\Z)|\Z)'
    begun = re.compile(rf'((?:\A|{sign}) *"{cell}')
    within = re.compile(rf'((?:\A|{sign} *"){cell}')  # the line begins in a quoted cell
    open_ = False
    for line in lines:
        last = ""
        for match in (within if open_ else begun).finditer(line):
            last = match[2] or "open"
        yield (within if open_ else begun).sub(lambda m: m[1] + (m[2] or ""), line) if '"' in line else line
        open_ = last == "open" or (open_ and not last)


def too_many(count: int, where: str) -> DataError:
    what = f"{count:,} columns, and at most {MAX_COLUMNS:,} are read"
    return DataError(what, where=where, fix="Keep the columns of texts and labels")
