"""A table on its way to the disk: whatever stood there stays until the new one is complete."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glassformer.errors import DataError, GlassformerError
from glassformer.outputs import readable


class _Readable:
    """A text file that takes names of files which are not UTF-8; see ``readable``."""

    def __init__(self, file: Any):
        self.file = file

    def write(self, text: str) -> int:
        """Write text."""
        return self.file.write(readable(text))


@contextmanager
def table_file(
    path: str | Path,
    *,
    delimiter: str = ",",
    mark: bool = False,
    encoding: str = "utf-8",
    line_end: str = "\r\n",
) -> Iterator[Any]:
    """A writer of ``csv`` whose rows appear at ``path`` in one move; none where an error ends it.

    Args:
        mark: whether a file in UTF-8 begins with a byte order mark, by which spreadsheets know it.

    Raises:
        DataError: a character that the encoding does not have.
        GlassformerError: the disk refused.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        encoding = "utf-8-sig" if mark and encoding == "utf-8" else encoding
        with open(temporary, "w", encoding=encoding, newline="") as file:
            yield csv.writer(_Readable(file), delimiter=delimiter, lineterminator=line_end)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except UnicodeEncodeError as error:
        what = f"{error.object[error.start]!r} cannot be written in {error.encoding}"
        raise DataError(what, where=str(path), fix="Save the table as UTF-8 first") from None
    except OSError as error:
        raise GlassformerError(f"{path}: could not be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
