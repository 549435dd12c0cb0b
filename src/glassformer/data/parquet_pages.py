"""How much the pages of a Parquet column say they hold, read from their headers without unpacking one.

The footer of a file names sizes too, but nobody checks them: a page is unpacked to the size in its own
header. So these are what is counted before a column is read. A header is a struct in Thrift's compact
protocol (apache/parquet-format,
``parquet.thrift``: PageHeader).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, BinaryIO

MAX_HEADER = 1 << 24  # bytes of one header: statistics hold values
MAX_PAGES = 1 << 20  # of one column in one row group
_DEEPEST = 8  # structs in structs
_DICTIONARY = 7  # field of PageHeader with the header of a page of distinct values
_DATA = {
    5: 2,
    8: 4,
}  # fields of PageHeader with a data page's own header (1: values), and there: the encoding
# Encodings of values of any length: 0 plain, 2 and 8 the number of an entry in the dictionary's page, 7 how
# much of the value before it is repeated.
PREFIXES = 7
AS_NUMBERS = {0, 2, 8}  # that Arrow gives as numbers of distinct values
UNFOLDING = {2, 7, 8}  # with which a few bytes of a page stand for many


class PagesError(ValueError):
    """The pages of a column cannot be told apart."""


@dataclass
class Pages:
    """What the pages of a column take when they are unpacked."""

    values: int = 0  # in data pages
    unpacked: int = 0  # bytes of all pages
    largest: int = 0  # bytes of one page
    dictionary: int = 0  # bytes of the largest page of distinct values
    encodings: set[int] = field(default_factory=set)  # of data pages

    def add(self, other: Pages) -> None:
        self.values += other.values
        self.unpacked += other.unpacked
        self.largest = max(self.largest, other.largest)
        self.dictionary = max(self.dictionary, other.dictionary)
        self.encodings |= other.encodings


def chunk_pages(file: BinaryIO, start: int, length: int) -> Pages:
    """The pages of one column in one row group, which begin at byte ``start`` and take ``length`` bytes.

    Raises:
        PagesError: a header that is none, a size below 0, or more pages than can be meant.
    """
    found, at, end = Pages(), start, start + length
    for _ in range(MAX_PAGES):
        if at >= end:
            return found
        size, header = _header(file, at, end)
        unpacked, packed = header.get(2), header.get(3)
        if not isinstance(unpacked, int) or not isinstance(packed, int) or unpacked < 0 or packed < 0:
            raise PagesError("a page without a size")
        for kind, encoding in _DATA.items():
            if kind in header:
                inner = header[kind] if isinstance(header[kind], dict) else {}
                count = inner.get(1)
                if not isinstance(count, int) or count < 0:
                    raise PagesError("a page without a number of values")
                found.values += count
                found.encodings.add(inner.get(encoding, -1))
        if _DICTIONARY in header:
            found.dictionary = max(found.dictionary, unpacked)
        found.unpacked += unpacked
        found.largest = max(found.largest, unpacked)
        at += size + packed
    raise PagesError(f"more than {MAX_PAGES:,} pages")


def _header(file: BinaryIO, at: int, end: int) -> tuple[int, dict[int, Any]]:
    """The header at a place: how many bytes it takes, and its fields."""
    wanted = 256
    while True:
        file.seek(at)
        raw = file.read(min(wanted, MAX_HEADER, end - at))
        reader = _Compact(raw)
        try:
            fields = reader.struct(0)
        except IndexError:  # it goes on behind what was read
            if len(raw) < wanted or wanted >= MAX_HEADER:
                raise PagesError("a page whose header does not end") from None
            wanted *= 16
            continue
        return reader.at, fields


class _Compact:
    """As much of Thrift's compact protocol as page headers need: whole numbers, structs; skips others."""

    def __init__(self, raw: bytes):
        self.raw, self.at = raw, 0

    def struct(self, depth: int) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise PagesError("a header nested too deeply")
        fields: dict[int, Any] = {}
        field = 0
        while head := self.byte():
            step, kind = head >> 4, head & 15
            field = field + step if step else self.number()
            fields[field] = self.value(kind, depth)
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):  # true and false, said by the kind itself
            return kind == 1
        if kind == 3:
            return self.byte()
        if kind in (4, 5, 6):
            return self.number()
        if kind == 7:  # a double
            return self.skip(8)
        if kind == 8:  # bytes
            return self.skip(self.varint())
        if kind in (9, 10):  # a list or a set
            head = self.byte()
            count, inner = head >> 4, head & 15
            for _ in range(self.varint() if count == 15 else count):
                # truth values in a list are bytes of their own
                self.byte() if inner in (1, 2) else self.value(inner, depth + 1)
            return None
        if kind == 12:
            return self.struct(depth + 1)
        raise PagesError(f"a header with a field of kind {kind}")

    def byte(self) -> int:
        self.at += 1
        return self.raw[self.at - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise PagesError("a number without an end")

    def number(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self.raw):
            raise IndexError
