"""What stands between the cells of a CSV or TSV file, and how many cells a row may have."""

from __future__ import annotations

import re
from pathlib import Path

from glassformer.data.files import text_lines
from glassformer.data.spreadsheet import SEPARATOR
from glassformer.errors import DataError

MAX_COLUMNS = 1 << 16
LONGEST_HEADER = 1 << 20  # characters that are looked through for the end of a quoted name
_QUOTED = re.compile(r'"[^"]*"')


def delimiter_of(path: Path, errors: str) -> str:
    """What stands between the cells of a file, by its first line: the header, or Excel's ``sep=;``.

    Blank lines before the header are passed over, and what stands in double quotes is not counted.
    """
    lines = text_lines(path, newline="", errors=errors)
    header = next(lines, "")
    if said := SEPARATOR(header):
        return said[1]
    header = header if header.strip() else next(filter(str.strip, lines), "")
    while header.count('"') % 2 and len(header) < LONGEST_HEADER and (more := next(lines, "")):
        header += more  # a line end within quotes is a name's
    bare = _QUOTED.sub("", header)
    header = bare if any(map(bare.count, ",;\t")) else header
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=header.count)
    if (columns := header.count(delimiter)) >= MAX_COLUMNS:
        raise too_many(columns + 1, f"{path}, row 1")
    return delimiter


def too_many(count: int, where: str) -> DataError:
    what = f"{count:,} columns, and at most {MAX_COLUMNS:,} are read"
    return DataError(what, where=where, fix="Keep the columns of texts and labels")
