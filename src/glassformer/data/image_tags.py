"""TIFF's directories, as TIFF files and EXIF blocks have them, counted before their pointers are followed.

Each entry of a directory may point at the same bytes, and each strip of a picture at the same code, so that a
few kilobytes can ask for gigabytes. What they hold together is therefore bounded by what the file holds.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from glassformer.errors import DataError

MAX_TAGS = 1_000  # of one directory; cameras write up to about a hundred
MAX_STRIPS = 65_536  # strips or tiles: 16 million pixels in tiles of 16 x 16
MAX_STRIP_BYTES = 256 * 2**20  # of one strip or tile once decoded
SIZES = {
    1: 1,
    2: 1,
    3: 2,
    4: 4,
    5: 8,
    6: 1,
    7: 1,
    8: 2,
    9: 4,
    10: 8,
    11: 4,
    12: 8,
    13: 4,
    16: 8,
    17: 8,
    18: 8,
}
LETTERS = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q"}
FURTHER = (34665, 34853, 40965)  # tags that point at another directory, and that are read
WIDTH, HEIGHT, BITS, PACKING, SAMPLES, ROWS = 256, 257, 258, 259, 277, 278
STRIPS, STRIP_SIZES, TILE_WIDTH, TILE_HEIGHT, TILES, TILE_SIZES = 273, 279, 322, 323, 324, 325
OLD_JPEG, JPEG = 6, 7


@dataclass(frozen=True)
class Directory:
    """Tag -> (type, count, place of its values) of one directory; the largest count if a tag comes twice."""

    data: bytes
    order: str  # < or >
    entries: dict[int, tuple[int, int, int]]

    def values(self, tag: int, most: int = MAX_STRIPS) -> tuple[int, ...]:
        """Whole numbers of a tag, none where it is absent or not whole numbers."""
        kind, count, at = self.entries.get(tag, (0, 0, 0))
        letter = LETTERS.get(kind)
        count = min(count, most)
        if letter is None or at + count * SIZES[kind] > len(self.data):
            return ()
        return struct.unpack_from(f"{self.order}{count}{letter}", self.data, at)

    def first(self, tag: int, default: int) -> int:
        """The first of a tag's whole numbers."""
        return (self.values(tag, 1) or (default,))[0]


def check_tags(block: bytes, where: str) -> Directory | None:
    """An EXIF block or a TIFF file; gives its first directory, None where it has none that can be read.

    Raises:
        DataError: too many entries, or entries that hold more together than the block does.
    """
    while block.startswith(b"Exif\0\0"):
        block = block[6:]
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None or len(block) < 16:
        return None
    big = 43 in block[2:4]
    start = struct.unpack_from(order + ("Q" if big else "I"), block, 8 if big else 4)[0]
    waiting, seen, first = [start], set(), None
    while waiting and len(seen) < 16:
        place = waiting.pop()
        if place in seen:  # directories that point at each other
            continue
        seen.add(place)
        directory = _directory(block, order, big, place, where)
        if directory is None:
            continue
        first = first or directory
        waiting += [at for tag in FURTHER for at in directory.values(tag, 1)]
    return first


def _directory(block: bytes, order: str, big: bool, at: int, where: str) -> Directory | None:
    head, form, inline = (8, "HHQ8s", 8) if big else (2, "HHI4s", 4)
    if at + head > len(block):
        return None
    count = struct.unpack_from(order + ("Q" if big else "H"), block, at)[0]
    entry = struct.Struct(order + form)
    at += head
    count = min(count, (len(block) - at) // entry.size)
    if count > MAX_TAGS:
        raise DataError(
            f"the picture's metadata has {count:,} entries, {MAX_TAGS:,} at most",
            where=where,
            fix="Save it anew or remove it",
        )
    entries, total = {}, 0
    for i in range(count):
        here = at + i * entry.size
        tag, kind, number, value = entry.unpack_from(block, here)
        size = SIZES.get(kind, 0) * number
        place = here + entry.size - inline
        if size > inline:
            place = struct.unpack(order + ("Q" if big else "I"), value)[0]
            if place + size <= len(block):  # what lies outside is not read
                total += size
        if tag not in entries or number > entries[tag][1]:
            entries[tag] = kind, number, place
    if total > 2 * len(block):
        raise DataError(
            f"the picture's metadata says that {len(block):,} bytes hold {total:,}",
            where=where,
            fix="Save it anew or remove it",
        )
    return Directory(block, order, entries)


def check_tiff(content: bytes, where: str, most: int, work: int) -> None:
    """The first page of a TIFF file, the only one that is read.

    Args:
        most: pixels of a picture.
        work: pixels times scans, where it is packed as JPEG.

    Raises:
        DataError: too many entries, strips or tiles, too large tiles, or strips that share their bytes.
    """
    page = check_tags(content, where)
    if page is None:
        return
    for tag in (STRIPS, STRIP_SIZES, TILES, TILE_SIZES):
        if page.entries.get(tag, (0, 0))[1] > MAX_STRIPS:
            raise _refusal(f"{page.entries[tag][1]:,} strips or tiles, {MAX_STRIPS:,} at most", where)
    width, height = page.first(WIDTH, 0), page.first(HEIGHT, 0)
    tiled = TILES in page.entries or TILE_WIDTH in page.entries
    across, down = page.first(TILE_WIDTH, width), page.first(TILE_HEIGHT, height)
    if not tiled:
        across, down = width, min(height, page.first(ROWS, height))
    if not min(width, height, across, down) or width * height > most:
        return  # the decoder refuses these
    covered = -(-width // across) * across * -(-height // down) * down
    if across * down > most or covered > 2 * most:
        raise _refusal(f"tiles of {across:,} x {down:,} for {width:,} x {height:,} pixels", where)
    packing = page.first(PACKING, 1)
    if packing == 1:
        return
    bits = max(page.values(BITS, 16) or (1,)) * min(page.first(SAMPLES, 1), 16)
    if across * down * bits // 8 > MAX_STRIP_BYTES:
        raise _refusal(f"a strip of {across * down * bits // 8:,} bytes, {MAX_STRIP_BYTES:,} at most", where)
    places = page.values(TILES if tiled else STRIPS)
    sizes = page.values(TILE_SIZES if tiled else STRIP_SIZES)
    parts = [(at, min(n, max(0, len(content) - at))) for at, n in zip(places, sizes, strict=False)]
    if sum(n for _, n in parts) > 2 * len(content):
        raise _refusal("strips that share their bytes", where)
    if packing in (OLD_JPEG, JPEG):
        if packing == OLD_JPEG:
            scans = content.count(b"\xff\xda") * covered
        else:
            scans = sum(content.count(b"\xff\xda", at, at + n) for at, n in parts) * across * down
        if scans > work:
            raise _refusal("more scans than are decoded", where)


def _refusal(what: str, where: str) -> DataError:
    return DataError(f"the picture's file holds {what}", where=where, fix="Save it anew or remove it")
