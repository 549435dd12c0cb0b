"""Bound the cost of decoding an image by checking its headers first.

An image decoder cannot be interrupted, so its work is bounded here: pixels times scans of a JPEG, strips of a
TIFF, entries of EXIF, chunks of a PNG, blocks of a GIF, and values that Pillow decodes in Python; Pillow
bounds the rest. The checks take linear time and read only headers. Invalid headers are left to the decoder,
which reports them.
"""

from __future__ import annotations

import re
import struct
from typing import Any

from glassformer.errors import BadImageError, DataError

# --- directories of TIFF files and EXIF blocks ----------------------------------------------------
# All entries may point to the same bytes, so that a few kilobytes could expand to gigabytes. So their total
# size is bounded by the size of the file.

MAX_TAGS = 1_000  # cameras write up to about a hundred
MAX_NUMBERS = 65_536  # values of one entry, such as tiles: 16 million pixels in tiles of 16 x 16
SIZES = dict(enumerate((1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4), 1)) | {16: 8, 17: 8, 18: 8}  # bytes per type
WHOLE = (3, 4, 16)  # integer types
WIDTH, HEIGHT, TILE_WIDTH, TILE_HEIGHT = 256, 257, 322, 323


def check_tags(block: bytes, where: str) -> dict[int, int]:
    """Check the first directory of an EXIF block or TIFF file, the only one that is read.

    Returns:
        Tag -> value, for tags with one integer.
    """
    while block.startswith(b"Exif\0\0"):
        block = block[6:]
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None or len(block) < 16:
        return {}
    big = 43 in block[2:4]
    number = struct.Struct(order + ("Q" if big else "I"))
    entry = struct.Struct(order + ("HHQ8s" if big else "HHI4s"))
    head = struct.Struct(order + ("Q" if big else "H"))
    (at,) = number.unpack_from(block, 8 if big else 4)
    if at + head.size > len(block):
        return {}
    count = min(head.unpack_from(block, at)[0], (len(block) - at - head.size) // entry.size)
    if count > MAX_TAGS:
        raise _too_much(f"{count:,} entries of metadata", MAX_TAGS, where)
    found, total = dict[int, int](), 0
    for i in range(count):
        tag, kind, values, value = entry.unpack_from(block, at + head.size + i * entry.size)
        size = SIZES.get(kind, 0) * values
        if kind in WHOLE and values > MAX_NUMBERS and 2 * values < len(block):
            raise _too_much(f"{values:,} strips or tiles", MAX_NUMBERS, where)
        end = number.unpack(value)[0] + size
        if size > number.size and end <= len(block):  # entries outside of the block are not read
            total += size
        elif values == 1 and kind in WHOLE:
            whole = int.from_bytes(value[:size], "little" if order == "<" else "big")
            found[tag] = max(found.get(tag, 0), whole)
    if total > 2 * len(block):
        raise _refusal(f"metadata of {len(block):,} bytes that claim to have {total:,}", where)
    return found


def _check_tiff(content: bytes, where: str, most: int) -> None:
    """Check the tiles of the first page of a TIFF file, which may be larger than the image."""
    page = check_tags(content, where)
    width, height, across, down = (page.get(tag, 0) for tag in (WIDTH, HEIGHT, TILE_WIDTH, TILE_HEIGHT))
    if across * down > most or (
        across * down and -(-width // across) * -(-height // down) * across * down > 2 * most
    ):
        raise _refusal(f"tiles of {across:,} x {down:,} for {width:,} x {height:,} pixels", where)


def _refusal(what: str, where: str) -> DataError:
    return BadImageError(f"the image's file has {what}", where=where, fix="Save it again or remove it")


# --- a file ---------------------------------------------------------------------------------------

MAX_PIXELS = 40_000_000  # per image: 160 MB decoded, and several times as much while decoding
MAX_SCANS = 100  # per JPEG; encoders write 1 to 18
FULL_SCANS = 20  # for a JPEG of the maximum size; a smaller one may have more, up to MAX_SCANS
MAX_SEGMENTS = 1_000  # of a JPEG before its pixels; cameras write up to a few hundred
MAX_EXIF = 2**22  # total bytes of a JPEG's EXIF segments
MAX_JUNK = 2**20  # bytes of a JPEG between its segments, which Pillow skips one by one
MAX_CHUNKS = 65_536  # of a PNG, including pixel data and frames
MAX_PROFILES = 16  # of a PNG; only one is allowed, but all are decompressed
MAX_BLOCKS = 8_192  # of a GIF before its first frame: 2 MB of comments
MAX_HEADER = 4_096  # bytes of a PPM's header, including comments
MAX_COMMENTS = 1_000  # of a plain PPM
# Values that Pillow decodes one by one in Python: PPM as text or with an unusual maximum, compressed BMP.
SLOW = {"ppm_plain": 4_500_000, "ppm": 4_500_000, "bmp_rle": 9_000_000}

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
TIFF = (b"II*\0", b"MM\0*", b"II\0*", b"MM*\0", b"II+\0", b"MM\0+")
MARKER = re.compile(rb"\xff+([\x01-\xcf\xd8-\xfe])")  # within pixel data, which contain 0 and restart markers
ANY_MARKER = re.compile(rb"\xff+([\x01-\xfe])")  # before the pixel data
ALONE = frozenset((*range(0x01, 0xC0), *range(0xD0, 0xD9)))  # markers without a length
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers of frame headers, which have the size
# Pattern of the first bytes of an unsupported file -> error message and fix.
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


def check_file(content: bytes, where: str, most: int = MAX_PIXELS) -> None:
    """Check the bytes of an image's file.

    Args:
        most: maximum number of pixels, for other limits; the size itself is checked after opening.

    Raises:
        DataError: decoding would be too expensive, or the format is known but not supported.
    """
    if content.startswith(JPEG):
        _jpeg(content, where, most)
    elif content.startswith(TIFF):
        _check_tiff(content, where, most)
    elif content.startswith(PNG):
        _png(content, where)
    elif content.startswith((b"GIF87a", b"GIF89a")):
        _gif(content, where)
    elif re.match(rb"P[1-6yf0]", content):
        parts = re.sub(rb"#[^\r\n]*", b"", content[:MAX_HEADER]).split(None, 3)
        if len(parts) < 4:
            what = f"the header does not end within {MAX_HEADER:,} bytes"
            raise BadImageError(what, where=where, fix="Save it again")
    else:
        _refuse_others(content[:512], where)


def check_slow(image: Any, content: bytes, where: str) -> None:
    """Raise DataError for an opened image with too many values that Pillow decodes in Python."""
    codec, *_, args = image.tile[0] if image.tile else ("", ("", 0))
    values = image.width * image.height * len(image.getbands())
    if codec == "ppm" and args[1] > 255:  # values of two bytes take 1.5 times as long
        values += values // 2
    if codec in SLOW and values > SLOW[codec]:
        raise _too_much(f"{values:,} values that are slow to decode", SLOW[codec], where)
    if codec == "ppm_plain" and content.count(b"#") > MAX_COMMENTS:
        raise _too_much("more comments", MAX_COMMENTS, where)


def _too_much(what: str, most: int, where: str) -> DataError:
    return _refusal(f"{what}, {most:,} at most", where)


def _refuse_others(beginning: bytes, where: str) -> None:
    for pattern, (what, fix) in OTHERS.items():
        if re.match(pattern, beginning, re.DOTALL | re.IGNORECASE):
            raise BadImageError(what, where=where, fix=fix)


def _jpeg(content: bytes, where: str, most: int) -> None:
    scans = content.count(b"\xff\xda")  # never within pixel data, but possibly within thumbnails
    plain = b"Exif" not in content and b"MPF" not in content
    if plain and len(content) < 4 * MAX_SEGMENTS and scans <= FULL_SCANS:
        return  # too small for too many segments: a fast path for small images
    at, size, segments, junk, exif = 2, (0, 0), 0, 0, []
    while found := ANY_MARKER.search(content, at):  # like libjpeg, skip bytes that are not a marker
        junk += found.end() - at - 2
        if junk > MAX_JUNK:
            raise _too_much("more bytes between its segments", MAX_JUNK, where)
        marker, at = found[1][0], found.end()
        if marker in ALONE:
            junk += 2
            continue
        if marker == 0xD9 or at + 2 > len(content):
            break
        segments += 1
        if segments > MAX_SEGMENTS:
            raise _too_much("more segments", MAX_SEGMENTS, where)
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
    if sum(map(len, exif)) > MAX_EXIF:  # Pillow concatenates the segments one by one
        raise _too_much("more bytes of EXIF", MAX_EXIF, where)
    if exif:
        check_tags(b"".join(exif), where)
    pixels = max(1, size[0] * size[1])
    allowed = max(1, min(MAX_SCANS, FULL_SCANS * most // pixels))
    if scans > allowed and _scans(content, at, allowed) > allowed:
        raise _too_much(f"too many scans of {size[0]:,} x {size[1]:,} pixels", allowed, where)


def _scans(content: bytes, at: int, most: int) -> int:
    """Count the scans of a JPEG from its first one, at ``at``, up to ``most`` + 1."""
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
    if content.count(b"iCCP") > MAX_PROFILES:
        raise _too_much("more profiles", MAX_PROFILES, where)
    at, chunks = 8, 0
    while at + 12 <= len(content) and content[at + 4 : at + 8] != b"IEND":
        at += 12 + int.from_bytes(content[at : at + 4], "big")
        chunks += 1
        if chunks > MAX_CHUNKS:
            raise _too_much("more chunks", MAX_CHUNKS, where)


def _gif(content: bytes, where: str) -> None:
    """Check the blocks before the first frame, the only one that is read."""
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
            raise _too_much("more blocks before its first frame", MAX_BLOCKS, where)
