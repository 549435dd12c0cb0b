"""A row that cannot be used, and what can be read of it all the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from glassformer.data.encodings import other_encoding
from glassformer.errors import DataError

NOT_UTF8_BYTE = re.compile("[\udc80-\udcff]")  # as ``surrogateescape`` reads one
NOT_UTF8 = NOT_UTF8_BYTE.search
Refuse = Callable[[DataError, int], None]  # (what is wrong with a row, its number)


class RowError(DataError):
    """A row that cannot be used; ``values`` holds those of its cells that can be read, by column."""

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None):
        super().__init__(what, where=where, fix=fix)
        self.values: dict[str, Any] = {}
        self.ragged = False  # whether they may stand under the names of others


def not_text() -> str:
    """What is wrong with bytes that cannot be decoded."""
    return f"not {other_encoding() or 'UTF-8'}"


def readable(cell: str) -> str:
    """A cell read by ``surrogateescape``, U+FFFD in the place of bytes that are not UTF-8."""
    return NOT_UTF8_BYTE.sub("\ufffd", cell)


def stop(error: DataError, row: int) -> None:
    raise error


def pass_over(error: DataError, row: int) -> None:
    """A row that was refused before."""
