"""Limit the cost of decoding an image by its headers.

An image decoder cannot be interrupted. So this module limits the pixels times scans of a JPEG, the strips of
a TIFF, the entries of EXIF, the chunks of a PNG, the blocks of a GIF, and the values that Pillow decodes in
Python. Pillow limits other costs. The checks take linear time and read only headers. The decoder reports
invalid headers.
"""

from __future__ import annotations

import re
import struct
from typing import Any

from glassformer.errors import BadImageError, DataError

# --- directories of TIFF files and EXIF blocks ----------------------------------------------------
# All entries may point to the same bytes, and a few kilobytes could expand to gigabytes. So their total size
# is bounded by the size of the file.

MAX_TAGS = 1_000  # entries of a directory; cameras write up to about a hundred
MAX_NUMBERS = 65_536  # values of one entry: 16 million pixels have this many tiles of 16 x 16
TYPE_SIZES = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8)  # TIFF type -> bytes of a value
INTEGER_TYPES = (3, 4, 16)  # TIFF types SHORT, LONG and LONG8
SIZE_TAGS = (256, 257, 322, 323)  # TIFF tags: width and height of the image and of its tiles


def check_tiff_tags(block: bytes, where: str) -> dict[int, int]:
    """Check the first directory of an EXIF block or TIFF file; the other directories are not read.

    Returns:
        Tag -> value, for tags with one integer.
    """
    while block.startswith(b"Exif\0\0"):
        block = block[6:]
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None or len(block) < 16:
        return {}
    is_big_tiff = 43 in block[2:4]  # the version; TIFF has 42
    offset_format = struct.Struct(order + ("Q" if is_big_tiff else "I"))
    entry_format = struct.Struct(order + ("HHQ8s" if is_big_tiff else "HHI4s"))
    count_format = struct.Struct(order + ("Q" if is_big_tiff else "H"))
    (position,) = offset_format.unpack_from(block, 8 if is_big_tiff else 4)
    start = position + count_format.size  # of the first entry
    if start > len(block):
        return {}
    count = min(count_format.unpack_from(block, position)[0], (len(block) - start) // entry_format.size)
    if count > MAX_TAGS:
        raise _limit_error(f"{count:,} entries of metadata", MAX_TAGS, where)
    integers, total = dict[int, int](), 0
    for i in range(count):
        tag, type_, num_values, value = entry_format.unpack_from(block, start + i * entry_format.size)
        size = TYPE_SIZES[type_] * num_values if type_ < len(TYPE_SIZES) else 0
        if type_ in INTEGER_TYPES and num_values > MAX_NUMBERS and 2 * num_values < len(block):
            raise _limit_error(f"{num_values:,} strips or tiles", MAX_NUMBERS, where)
        end = offset_format.unpack(value)[0] + size
        if size > offset_format.size and end <= len(block):  # entries outside the block are not read
            total += size
        elif num_values == 1 and type_ in INTEGER_TYPES:
            integer = int.from_bytes(value[:size], "little" if order == "<" else "big")
            integers[tag] = max(integers.get(tag, 0), integer)
    if total > 2 * len(block):
        raise _bad_file_error(f"metadata that claim to have {total:,} bytes but have {len(block):,}", where)
    return integers


def _check_tiff(content: bytes, where: str, max_pixels: int) -> None:
    """Check the tiles of the first page of a TIFF file, which may be larger than the image."""
    page = check_tiff_tags(content, where)
    width, height, tile_width, tile_height = (page.get(tag, 0) for tag in SIZE_TAGS)
    tile_pixels = tile_width * tile_height
    num_tiles = -(-width // tile_width) * -(-height // tile_height) if tile_pixels else 0
    if tile_pixels > max_pixels or num_tiles * tile_pixels > 2 * max_pixels:
        raise _bad_file_error(
            f"tiles of {tile_width:,} x {tile_height:,} for {width:,} x {height:,} pixels", where
        )


def _bad_file_error(what: str, where: str) -> DataError:
    return BadImageError(f"the image's file has {what}", where=where, fix="Save it again or remove it")


# --- a file ---------------------------------------------------------------------------------------

MAX_PIXELS = 40_000_000  # per image: 160 MB decoded, and several times as much while decoding
MAX_SCANS = 100  # scans of a JPEG; encoders write 1 to 18
FULL_SCANS = 20  # scans of a JPEG of the maximum size; a smaller JPEG may have more, up to MAX_SCANS
MAX_SEGMENTS = 1_000  # segments of a JPEG before its pixels; cameras write up to a few hundred
MAX_EXIF = 2**22  # total bytes of a JPEG's EXIF segments
MAX_SKIPPED = 2**20  # bytes of a JPEG between its segments, which Pillow skips one by one
MAX_CHUNKS = 65_536  # chunks of a PNG, including pixel data and frames
MAX_PROFILES = 16  # color profiles of a PNG; only one is allowed, but Pillow decompresses all
MAX_BLOCKS = 8_192  # blocks of a GIF before its first frame: 2 MB of comments
MAX_HEADER = 4_096  # bytes of a PPM's header, including comments
MAX_COMMENTS = 1_000  # comments of a plain PPM
# Maximum numbers of values that Pillow decodes one by one in Python: PPM as text or with an unusual maximum,
# compressed BMP.
MAX_SLOW_VALUES = {"ppm_plain": 4_500_000, "ppm": 4_500_000, "bmp_rle": 9_000_000}

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
TIFF = (b"II*\0", b"MM\0*", b"II\0*", b"MM*\0", b"II+\0", b"MM\0+")
ANY_MARKER = re.compile(rb"\xff+([\x01-\xfe])")  # before the pixel data
MARKER = re.compile(rb"\xff+([\x01-\xcf\xd8-\xfe])")  # in pixel data, which contain 0 and restart markers
MARKERS_WITHOUT_LENGTH = frozenset((*range(0x01, 0xC0), *range(0xD0, 0xD9)))  # no length field follows
FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOF: frame headers, which have the size
# Pattern of the first bytes of an unsupported file -> error message and fix.
FIX_CONVERT = "Convert it to JPEG or PNG"
UNSUPPORTED_FORMATS = {
    rb".{4}ftyp(hei|hev|mif1|msf1)": ("a HEIC image, which is not read", FIX_CONVERT),
    rb".{4}ftypavi[fs]": ("an AVIF image, which is not read", FIX_CONVERT),
    rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51": ("a JPEG 2000 image, which is not read", FIX_CONVERT),
    rb"\xff\x0a|\0\0\0\x0cJXL ": ("a JPEG XL image, which is not read", FIX_CONVERT),
    rb"8BPS": ("a Photoshop file, which is not read", FIX_CONVERT),
    rb".{128}DICM": ("a DICOM file, which is not read", "Convert it to PNG or TIFF"),
    rb"\0\0\x01\0": ("an icon, which is not read", FIX_CONVERT),
    rb"\s*(<\?xml[^>]*>\s*)?<svg": ("an SVG drawing, which is not read", FIX_CONVERT),
    rb"\s*<(!doctype html|html)": ("an HTML page, not an image", "Download the image itself"),
    rb"version https://git-lfs": ("a pointer of Git LFS, not the image", "Fetch it with 'git lfs pull'"),
}


def check_file(content: bytes, where: str, max_pixels: int = MAX_PIXELS) -> None:
    """Check that the file of an image can be decoded at a limited cost.

    Args:
        max_pixels: maximum number of pixels, on which other limits depend; ``open_file`` checks the size.

    Raises:
        DataError: decoding would be too expensive, or the format is known but not supported.
    """
    if content.startswith(JPEG):
        _check_jpeg(content, where, max_pixels)
    elif content.startswith(TIFF):
        _check_tiff(content, where, max_pixels)
    elif content.startswith(PNG):
        _check_png(content, where)
    elif content.startswith((b"GIF87a", b"GIF89a")):
        _check_gif(content, where)
    elif re.match(rb"P[1-6yf0]", content):
        parts = re.sub(rb"#[^\r\n]*", b"", content[:MAX_HEADER]).split(None, 3)
        if len(parts) < 4:
            what = f"the header does not end within {MAX_HEADER:,} bytes"
            raise BadImageError(what, where=where, fix="Save it again")
    else:
        _check_supported(content[:512], where)


def check_slow_values(image: Any, content: bytes, where: str) -> None:
    """Raise DataError for an opened image with too many values that Pillow decodes in Python."""
    codec, *_, args = image.tile[0] if image.tile else ("", ("", 0))
    num_values = image.width * image.height * len(image.getbands())
    if codec == "ppm" and args[1] > 255:  # values of two bytes take 1.5 times as long
        num_values += num_values // 2
    if codec in MAX_SLOW_VALUES and num_values > MAX_SLOW_VALUES[codec]:
        raise _limit_error(f"{num_values:,} values that are slow to decode", MAX_SLOW_VALUES[codec], where)
    if codec == "ppm_plain" and content.count(b"#") > MAX_COMMENTS:
        raise _limit_error("too many comments", MAX_COMMENTS, where)


def _limit_error(what: str, limit: int, where: str) -> DataError:
    return _bad_file_error(f"{what}; the maximum is {limit:,}", where)


def _check_supported(beginning: bytes, where: str) -> None:
    for pattern, (what, fix) in UNSUPPORTED_FORMATS.items():
        if re.match(pattern, beginning, re.DOTALL | re.IGNORECASE):
            raise BadImageError(what, where=where, fix=fix)


def _check_jpeg(content: bytes, where: str, max_pixels: int) -> None:
    num_scans = content.count(b"\xff\xda")  # pixel data never contain these bytes, but thumbnails may
    has_no_metadata = b"Exif" not in content and b"MPF" not in content
    if has_no_metadata and len(content) < 4 * MAX_SEGMENTS and num_scans <= FULL_SCANS:
        return  # a fast path: the file is too small for too many segments
    position, num_segments, num_skipped = 2, 0, 0
    size, exif = (0, 0), []
    while match := ANY_MARKER.search(content, position):  # like libjpeg, skip bytes that are not a marker
        num_skipped += match.end() - position - 2
        if num_skipped > MAX_SKIPPED:
            raise _limit_error("too many bytes between its segments", MAX_SKIPPED, where)
        marker, position = match[1][0], match.end()
        if marker in MARKERS_WITHOUT_LENGTH:
            num_skipped += 2
            continue
        if marker == 0xD9 or position + 2 > len(content):  # EOI: end of the image
            break
        num_segments += 1
        if num_segments > MAX_SEGMENTS:
            raise _limit_error("too many segments", MAX_SEGMENTS, where)
        if marker == 0xDA:  # SOS: the pixel data begin
            break
        length = max(2, content[position] << 8 | content[position + 1])
        if marker in FRAME_MARKERS and length >= 8:
            if position + 7 <= len(content):
                height, width = struct.unpack_from(">HH", content, position + 3)
                size = max(size, (width, height), key=lambda wh: wh[0] * wh[1])
        elif marker == 0xE1 and content.startswith(b"Exif\0\0", position + 2):  # APP1
            exif.append(content[position + 8 : position + length])
        elif marker == 0xE2 and content.startswith(b"MPF\0", position + 2):  # APP2, several pictures
            check_tiff_tags(content[position + 6 : position + length], where)
        position += length
    if sum(map(len, exif)) > MAX_EXIF:  # Pillow concatenates the segments one by one
        raise _limit_error("too many bytes of EXIF", MAX_EXIF, where)
    if exif:
        check_tiff_tags(b"".join(exif), where)
    pixels = max(1, size[0] * size[1])
    max_scans = max(1, min(MAX_SCANS, FULL_SCANS * max_pixels // pixels))
    if num_scans > max_scans and _count_scans(content, position, max_scans) > max_scans:
        raise _limit_error(f"too many scans of {size[0]:,} x {size[1]:,} pixels", max_scans, where)


def _count_scans(content: bytes, position: int, max_scans: int) -> int:
    """Count the scans of a JPEG from the first scan, at ``position``, up to ``max_scans`` + 1."""
    num_scans = 1
    position += max(2, int.from_bytes(content[position : position + 2], "big"))
    while num_scans <= max_scans and (match := MARKER.search(content, position)):
        marker, position = match[1][0], match.end()
        if marker == 0xD9:
            break
        if marker in MARKERS_WITHOUT_LENGTH:
            continue
        num_scans += marker == 0xDA
        position += max(2, int.from_bytes(content[position : position + 2], "big"))
    return num_scans


def _check_png(content: bytes, where: str) -> None:
    if content.count(b"iCCP") > MAX_PROFILES:
        raise _limit_error("too many color profiles", MAX_PROFILES, where)
    position, num_chunks = 8, 0
    while position + 12 <= len(content) and content[position + 4 : position + 8] != b"IEND":
        position += 12 + int.from_bytes(content[position : position + 4], "big")
        num_chunks += 1
        if num_chunks > MAX_CHUNKS:
            raise _limit_error("too many chunks", MAX_CHUNKS, where)


def _check_gif(content: bytes, where: str) -> None:
    """Check the blocks before the first frame; the other frames are not read."""
    if len(content) < 13:
        return
    position = 13 + (3 << (content[10] & 7) + 1 if content[10] & 128 else 0)  # after the color table
    num_blocks = 0
    while position + 2 < len(content) and content[position] not in b",;":  # "," is a frame, ";" the end
        if content[position] != 0x21:  # not an extension block
            position += 1
            num_blocks += 1
        else:
            position += 2
            while position < len(content) and num_blocks <= MAX_BLOCKS:
                length = content[position]
                position += 1 + length
                num_blocks += 1
                if not length:
                    break
        if num_blocks > MAX_BLOCKS:
            raise _limit_error("too many blocks before its first frame", MAX_BLOCKS, where)
