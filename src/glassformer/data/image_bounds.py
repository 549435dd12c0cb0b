"""What the file of a picture asks for, counted along its headers before anything is decoded.

A decoder of pictures cannot be interrupted, so the work it may be given is bounded here: pixels times scans
of a JPEG, chunks, texts and profiles of a PNG, blocks of a GIF, frames of a WebP, and values that Pillow
decodes in Python. The walks are linear, look at headers alone and stop at the bound. A header that makes no
sense is left to the decoder, which says so.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from glassformer.errors import DataError

# --- TIFF's directories ---------------------------------------------------------------------------
# As TIFF files and EXIF blocks have them, counted before their pointers are followed.
# Each entry of a directory may point at the same bytes, and each strip of a picture at the same code, so
# that a few kilobytes can ask for gigabytes. What they hold together is therefore bounded by what the file
# holds.

MAX_TAGS = 1_000  # of one directory; cameras write up to about a hundred
MAX_STRIPS = 65_536  # strips or tiles: 16 million pixels in tiles of 16 x 16
MAX_STRIP_BYTES = 256 * 2**20  # of one strip or tile once decoded
SIZES = dict(enumerate((1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4), 1)) | {16: 8, 17: 8, 18: 8}  # of a type
LETTERS = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q"}
FURTHER = (34665, 34853, 40965)  # tags that point at another directory, and that are read
WIDTH, HEIGHT, BITS, PACKING, SAMPLES, ROWS = 256, 257, 258, 259, 277, 278
STRIPS, STRIP_SIZES, TILE_WIDTH, TILE_HEIGHT, TILES, TILE_SIZES = 273, 279, 322, 323, 324, 325
OLD_JPEG, NEW_JPEG = 6, 7


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
        raise _refusal(f"{count:,} entries, {MAX_TAGS:,} at most", where, "metadata has")
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
        raise _refusal(f"{len(block):,} bytes hold {total:,}", where, "metadata says that")
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
    scans = content.count(b"\xff\xda") * covered if packing == OLD_JPEG else 0
    if packing == NEW_JPEG:
        scans = sum(content.count(b"\xff\xda", at, at + n) for at, n in parts) * across * down
    if scans > work:
        raise _refusal("more scans than are decoded", where)


def _refusal(what: str, where: str, holds: str = "file holds") -> DataError:
    return DataError(f"the picture's {holds} {what}", where=where, fix="Save it anew or remove it")


# --- a file ---------------------------------------------------------------------------------------

MAX_PIXELS = 40_000_000  # of one picture: 160 MB once decoded, and a few times that on the way
MAX_SCANS = 100  # of one JPEG; encoders write 1 to 18
FULL_SCANS = 20  # of a JPEG as large as is allowed; a smaller one may have more, up to MAX_SCANS
MAX_SEGMENTS = 1_000  # of a JPEG before its pixels; cameras write up to a few hundred
MAX_EXIF = 2**22  # bytes of a JPEG's EXIF segments together
MAX_JUNK = 2**20  # bytes of a JPEG between its segments, which Pillow skips one by one
MAX_CHUNKS = 65_536  # of a PNG or WebP, pieces of pixels and frames among them
MAX_TEXTS = 256  # of a PNG: texts, profiles and other blocks that are unpacked
MAX_PROFILES = 16  # of a PNG, which may have one of each kind
MAX_BLOCKS = 8_192  # of a GIF before its first frame: 2 MB of remarks
MAX_COMMENTS = 1_000  # of a plain PPM
MAX_HEADER = 4_096  # bytes of a PPM's header, remarks among them
SLOW_VALUES = 4_500_000  # that Pillow decodes one by one, in Python: plain or scaled PPM
SLOW_PIXELS = 9_000_000  # of a run-length encoded BMP, likewise
SLOW_BYTES = 2_000_000  # of its runs

JPEG, PNG, RIFF = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF"
TIFF = (b"II*\0", b"MM\0*", b"II\0*", b"MM*\0", b"II+\0", b"MM\0+")
UNPACKED = {b"tEXt", b"zTXt", b"iTXt", b"iCCP", b"eXIf"}
MARKER = re.compile(rb"\xff+([\x01-\xcf\xd8-\xfe])")  # in coded pixels, which have 0 and eight restarts
ANY_MARKER = re.compile(rb"\xff+([\x01-\xfe])")  # before these
ALONE = frozenset((*range(0x01, 0xC0), *range(0xD0, 0xD9)))  # markers without a length
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # that give the size
PROFILES = {b"iCCP", b"eXIf"}
# What a file that is not decoded begins with: what to call it, and how its image is read after all.
CONVERT = "Convert it to JPEG or PNG"
OTHERS = {
    rb".{4}ftyp(hei|hev|mif1|msf1)": ("a HEIC image, which is not read", CONVERT),
    rb".{4}ftypavi[fs]": ("an AVIF image, which is not read", CONVERT),
    rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51": ("a JPEG 2000 image, which is not read", CONVERT),
    rb"\xff\x0a|\0\0\0\x0cJXL ": ("a JPEG XL image, which is not read", CONVERT),
    rb"8BPS": ("a Photoshop file, which is not read", CONVERT),
    rb".{128}DICM": ("a DICOM file, which is not read", "Convert it to PNG or TIFF"),
    rb"\0\0\x01\0": ("an icon, which is not read", CONVERT),
    rb"\s*(<\?xml[^>]*>\s*)?<svg": ("an SVG drawing, which is not read", CONVERT),
    rb"\s*<(!doctype html|html)": ("an HTML page, not an image", "Download the image itself"),
    rb"version https://git-lfs": ("a pointer of Git LFS, not the image", "Fetch it with 'git lfs pull'"),
}
BANDS = dict.fromkeys((b"P1", b"P2", b"P4", b"P5", b"PyP", b"Pf"), 1) | {
    b"P3": 3,
    b"P6": 3,
}  # of kinds of PPM
BANDS |= dict.fromkeys((b"P0CMYK", b"PyRGBA", b"PyCMYK"), 4)
PPM_TOKEN = re.compile(rb"(?:\s|#[^\r\n]*[\r\n])*([^\s#]+)")


def check_file(content: bytes, where: str, most: int = MAX_PIXELS) -> None:
    """The bytes of a picture, looked through.

    Args:
        most: pixels that one picture may have. The size itself is judged by what the decoder says of it.

    Raises:
        DataError: it asks for more work than a picture does, or has a format that is known and not decoded.
    """
    if content.startswith(JPEG):
        _jpeg(content, where, most)
    elif content.startswith(PNG):
        _png(content, where)
    elif content.startswith((b"GIF87a", b"GIF89a")):
        _gif(content, where)
    elif content.startswith(RIFF) and content[8:12] == b"WEBP":
        _webp(content, where)
    elif content.startswith(TIFF):
        check_tiff(content, where, most, FULL_SCANS * most)
    elif content.startswith(b"BM"):
        _bmp(content, where)
    elif content.startswith(b"P"):
        _ppm(content, where)
    else:
        _refuse_others(content[:512], where)


def too_much(what: str, most: int, where: str) -> DataError:
    """The refusal of a picture whose file holds ``what``."""
    return _refusal(f"{what}, {most:,} at most", where)


def _refuse_others(beginning: bytes, where: str) -> None:
    for pattern, (what, fix) in OTHERS.items():
        if re.match(pattern, beginning, re.DOTALL | re.IGNORECASE):
            raise DataError(what, where=where, fix=fix)


def _jpeg(content: bytes, where: str, most: int) -> None:
    scans = content.count(b"\xff\xda")  # coded pixels never hold these; thumbnails may hold some more
    plain = b"Exif" not in content and b"MPF" not in content
    if plain and len(content) < 4 * MAX_SEGMENTS and scans <= FULL_SCANS:
        return  # no room for more segments: data sets of small pictures are not held up
    at, size, segments, junk, exif = 2, (0, 0), 0, 0, []
    while found := ANY_MARKER.search(content, at):  # as libjpeg does it: what is no marker is skipped
        junk += found.end() - at - 2
        if junk > MAX_JUNK:
            raise too_much("more bytes between its segments", MAX_JUNK, where)
        marker, at = found[1][0], found.end()
        if marker in ALONE:
            junk += 2
            continue
        if marker == 0xD9 or at + 2 > len(content):
            break
        segments += 1
        if segments > MAX_SEGMENTS:
            raise too_much("more segments", MAX_SEGMENTS, where)
        if marker == 0xDA:
            break
        length = max(2, content[at] << 8 | content[at + 1])
        if marker in FRAMES and length >= 8:
            height, width = struct.unpack_from(">HH", content, at + 3) if at + 7 <= len(content) else (0, 0)
            size = max(size, (width, height), key=lambda wh: wh[0] * wh[1])
        elif marker == 0xE1 and content.startswith(b"Exif\0\0", at + 2):
            exif.append(content[at + 8 : at + length])
        elif marker == 0xE2 and content.startswith(b"MPF\0", at + 2):
            check_tags(content[at + 6 : at + length], where)
        at += length
    if sum(map(len, exif)) > MAX_EXIF:  # Pillow puts the segments together one by one
        raise too_much("more bytes of EXIF", MAX_EXIF, where)
    if exif:
        check_tags(b"".join(exif), where)
    pixels = max(1, size[0] * size[1])
    allowed = max(1, min(MAX_SCANS, FULL_SCANS * most // pixels))
    if scans > allowed and _scans(content, at, allowed) > allowed:
        raise too_much(f"too many scans of {size[0]:,} x {size[1]:,} pixels", allowed, where)


def _scans(content: bytes, at: int, most: int) -> int:
    """How many scans a JPEG has from its first one, at ``at``, to its end; counted to ``most`` + 1."""
    scans = 1
    at += max(2, int.from_bytes(content[at : at + 2], "big"))
    while scans <= most and (found := MARKER.search(content, at)):
        marker, at = found[1][0], found.end()
        if marker == 0xD9:
            break
        if marker in ALONE:
            continue
        scans += marker == 0xDA
        at += max(2, int.from_bytes(content[at : at + 2], "big"))
    return scans


def _png(content: bytes, where: str) -> None:
    at, chunks, unpacked, profiles = 8, 0, 0, 0
    head = struct.Struct(">I4s").unpack_from
    while at + 12 <= len(content):
        length, kind = head(content, at)
        chunks += 1
        if chunks > MAX_CHUNKS:
            raise too_much("more chunks", MAX_CHUNKS, where)
        if kind in UNPACKED:
            unpacked += 1
            profiles += kind in PROFILES
            if unpacked > MAX_TEXTS or profiles > MAX_PROFILES:
                most = MAX_TEXTS if unpacked > MAX_TEXTS else MAX_PROFILES
                raise too_much("more texts and profiles", most, where)
            if kind == b"eXIf":
                check_tags(content[at + 8 : at + 8 + length], where)
        elif kind == b"IEND":
            break
        at += 12 + length


def _gif(content: bytes, where: str) -> None:
    """Up to the first frame, the only one that is read."""
    if len(content) < 13:
        return
    at = 13 + (3 << (content[10] & 7) + 1 if content[10] & 128 else 0)
    blocks = 0
    while at + 2 < len(content) and content[at] not in b",;":
        if content[at] != 0x21:
            at += 1
            blocks += 1
        else:
            at += 2
            while at < len(content) and blocks <= MAX_BLOCKS:
                length = content[at]
                at += 1 + length
                blocks += 1
                if not length:
                    break
        if blocks > MAX_BLOCKS:
            raise too_much("more blocks before its first frame", MAX_BLOCKS, where)


def _webp(content: bytes, where: str) -> None:
    at, chunks = 12, 0
    head = struct.Struct("<4sI").unpack_from
    while at + 8 <= len(content):
        kind, length = head(content, at)
        chunks += 1
        if chunks > MAX_CHUNKS:
            raise too_much("more chunks and frames", MAX_CHUNKS, where)
        if kind == b"EXIF":
            check_tags(content[at + 8 : at + 8 + length], where)
        at += 8 + length + (length & 1)


def _bmp(content: bytes, where: str) -> None:
    if len(content) < 34 or struct.unpack_from("<I", content, 14)[0] < 40:
        return
    width, height, _, _, packing = struct.unpack_from("<iiHHI", content, 18)
    if packing in (1, 2):  # runs, which Pillow unpacks in Python
        if abs(width * height) > SLOW_PIXELS:
            raise too_much(f"{abs(width * height):,} run-length encoded pixels", SLOW_PIXELS, where)
        if len(content) > SLOW_BYTES:
            raise too_much(f"{len(content):,} bytes of runs", SLOW_BYTES, where)


def _ppm(content: bytes, where: str) -> None:
    kind = (content[:6].split(maxsplit=1) or [b""])[0]
    if kind not in BANDS:
        return
    tokens, at, start = [], len(kind), content[:MAX_HEADER]
    for _ in range(2 if kind in (b"P1", b"P4") else 3):
        found = PPM_TOKEN.match(start, at)
        if found is None:
            what = f"the header does not end within {MAX_HEADER:,} bytes"
            raise DataError(what, where=where, fix="Save it anew")
        tokens.append(found[1])
        at = found.end()
    plain = kind in (b"P1", b"P2", b"P3")
    if plain and content.count(b"#") > MAX_COMMENTS:
        raise too_much("more remarks", MAX_COMMENTS, where)
    gray16 = kind == b"P5" and tokens[-1] == b"65535"
    if plain or (kind not in (b"P4", b"Pf") and tokens[2] != b"255" and not gray16):
        try:
            values = abs(int(tokens[0][:12]) * int(tokens[1][:12])) * BANDS[kind]
            if not plain and int(tokens[2][:12]) > 255:  # two bytes each take half as long again
                values += values // 2
        except ValueError:
            return
        if values > SLOW_VALUES:
            kinds = "plain" if plain else "scaled"
            raise too_much(f"{values:,} {kinds} values, which are slow to decode", SLOW_VALUES, where)
