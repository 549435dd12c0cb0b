"""Pictures as a stranger would make them to do harm, each built on purpose from its format's description.

Whatever the file, there are two good answers: the right pixels, or a typed error that names it, soon and in
bounded memory. ``pictures()`` gives them all; ``hostile_pictures`` puts each to the door that training, tables and
server share.
"""

import io
import os
import struct
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterator
from typing import Any

from PIL import Image

from benchmarks.harness.processes import peak_mb, reset_peak

COLOR = (200, 30, 90)  # of every picture that is to be read
Case = tuple[str, bytes, str]  # name, bytes, and what is to happen: "read", "refused", or "either"


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    """A picture's file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def plain(width: int = 17, height: int = 13, mode: str = "RGB") -> Image.Image:
    """One color all over."""
    return Image.new("RGB", (width, height), COLOR).convert(mode)


def segment(marker: int, body: bytes) -> bytes:
    """A JPEG's segment."""
    return bytes((0xFF, marker)) + struct.pack(">H", len(body) + 2) + body


def scan(parts: list[int], first: int, last: int, bits: int, data: bytes = b"") -> bytes:
    """One scan of these components."""
    head = bytes([len(parts)]) + b"".join(bytes((c, 0)) for c in parts) + bytes((first, last, bits))
    return segment(0xDA, head) + data


def jpeg(width: int, height: int, scans: bytes, kind: int = 0xC2, bits: int = 8, run: int = 0) -> bytes:
    """A JPEG of three components with tables of one code each, the AC one standing for ``run``."""
    size = struct.pack(">BHHB", bits, height, width, 3) + b"".join(bytes((c, 0x11, 0)) for c in (1, 2, 3))
    tables = [segment(0xC4, bytes((t, 0, 1, *[0] * 14, v))) for t, v in ((0, 0), (0x10, run))]
    steps = segment(0xDB, bytes([0] + [1] * 64))
    return b"\xff\xd8" + steps + segment(kind, size) + b"".join(tables) + scans + b"\xff\xd9"


def refining(width: int, height: int, count: int) -> bytes:
    """Scans that each walk every coefficient and hold next to nothing: runs of 32,767 empty blocks."""
    bits = "00111111111111111" * (width * height // 64 // 32767 + 1)
    bits += "0" * (-len(bits) % 8)
    data = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
    places = [0x0D if i < 3 else 0xDC if i < 6 else 0xCB for i in range(count - 1)]
    scans = [scan([1 + i % 3], 1, 63, place, data) for i, place in enumerate(places)]
    return jpeg(width, height, scan([1, 2, 3], 0, 0, 0) + b"".join(scans), run=0xE0)


def jpegs() -> Iterator[Case]:
    """Scans, segments and headers."""
    first = scan([1, 2, 3], 0, 0, 0)

    def empty(side: int, count: int) -> bytes:
        return jpeg(side, side, first + b"".join(scan([1 + i % 3], 1, 63, 0) for i in range(count - 1)))

    good = encoded(plain(), "JPEG", quality=95)
    yield "40,000 empty scans of 16 million pixels", empty(4000, 40_000), "refused"
    yield "40,000 refining scans of 16 million pixels", refining(4000, 4000, 40_000), "refused"
    yield "30 refining scans of 36 million pixels", refining(6000, 6000, 30), "refused"
    yield "22 refining scans of 36 million pixels", refining(6000, 6000, 22), "either"
    yield "20 refining scans of 16 million pixels", refining(4000, 4000, 20), "either"
    yield "101 empty scans of few pixels", empty(100, 101), "refused"
    yield "100 empty scans of few pixels", empty(100, 100), "either"
    yield "500,000 empty scans of few pixels", empty(8, 500_000), "refused"
    content = jpeg(2000, 2000, b"".join(scan([1], 0, 63, 0) for _ in range(50_000)), 0xC0)
    yield "baseline, its first component 50,000 times", content, "refused"
    noise = bytes((i * 7919 >> 3) % 255 for i in range(2000))
    arithmetic = b"".join(scan([1 + i % 3], 1, 63, 0, noise) for i in range(19))
    content = jpeg(4000, 4000, scan([1, 2, 3], 0, 0, 0, noise) + arithmetic, 0xCA)
    yield "arithmetic coding in 20 scans", content, "either"
    yield "arithmetic coding, no data", jpeg(4000, 4000, scan([1, 2, 3], 0, 63, 0), 0xC9), "either"
    yield "lossless frame", jpeg(400, 400, scan([1, 2, 3], 1, 0, 0), 0xC3), "either"
    yield "12 bits", jpeg(40, 40, first, 0xC1, 12), "refused"
    yield "hierarchical frame", jpeg(40, 40, first, 0xC5), "refused"
    yield "height comes later (DNL)", jpeg(40, 0, first, 0xC0) + segment(0xDC, b"\0\x28"), "refused"
    yield "65,500 x 65,500 pixels", jpeg(65_500, 65_500, first), "refused"
    yield "a line of 65,500 pixels", jpeg(65_500, 500, first), "refused"
    yield "no pixels across", jpeg(0, 40, first), "refused"
    large = struct.pack(">BHHB", 8, 60_000, 60_000, 3) + bytes((1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0))
    frame, start = segment(0xC2, large), b"\xff\xda"
    yield "a large frame before the right one", good[:2] + frame + good[2:], "refused"
    yield "a large frame after the right one", good.replace(start, frame + start), "refused"
    yield "two starts", b"\xff\xd8" + good, "either"
    codes, steps = segment(0xC4, bytes((0, 0, 1, *[0] * 14, 0))), segment(0xDB, bytes([0] + [1] * 64))
    profile = segment(0xE2, b"ICC_PROFILE\0\1\xff" + bytes(9_000))
    photoshop = segment(0xED, b"Photoshop 3.0\0" + b"8BIM\x03\xed\0\0\xff\xff\xff\xff" * 4_000)
    for name, body, count, wanted in (
        ("remarks, 900", segment(0xFE, b"x" * 50), 900, "read"),
        ("remarks, 2,000", segment(0xFE, b""), 2_000, "refused"),
        ("remarks, 1,000,000", segment(0xFE, b""), 1_000_000, "refused"),
        ("tables of codes, 100,000", codes, 100_000, "refused"),
        ("tables of steps, 50,000", steps, 50_000, "refused"),
        ("restarts before the frame", b"\xff\xd0", 1_000_000, "refused"),
        ("filling bytes", b"\xff", 5_000_000, "refused"),
        ("rubbish between segments", b"\0", 5_000_000, "refused"),
        ("some filling bytes", b"\xff", 999, "read"),
        ("segments of no length", b"\xff\xe5\0\0", 900, "either"),
        ("profiles, 255", profile, 255, "read"),
        ("Photoshop blocks", photoshop, 30, "read"),
    ):
        yield name, good[:2] + segment(0xFE, b"") + body * count + good[2:], wanted
    yield "restarts in the pixels", good[:-2] + b"\xff\xd0" * 1_000_000 + good[-2:], "either"
    yield "tables of codes among the pixels", good[:-2] + codes * 50_000 + good[-2:], "either"
    content = encoded(plain(400, 300), "JPEG", quality=95, restart_marker_blocks=1)
    yield "a restart at each block", content, "read"
    content = good.replace(start, segment(0xDD, b"\0\1") + start)
    yield "a restart at each block, none given", content, "either"
    yield "CMYK, progressive", encoded(plain(mode="CMYK"), "JPEG", progressive=True, quality=95), "either"
    content = encoded(plain(), "MPO", save_all=True, append_images=[plain()] * 20, quality=95)
    yield "many pictures in one (MPO)", content, "read"


def chunk(kind: bytes, body: bytes) -> bytes:
    """A PNG's chunk."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def with_chunks(png: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """Chunks after the header."""
    return png[:33] + b"".join(chunk(*one) for one in more) + png[33:]


def png(width: int, height: int, depth: int, color: int, data: bytes, *more: bytes, lace: int = 0) -> bytes:
    """A PNG of this content before compression."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, lace))
    body = chunk(b"IDAT", zlib.compress(data, 1)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(more) + body


def pngs() -> Iterator[Case]:
    """Sizes, chunks, texts, animation."""
    good, none = encoded(plain(), "PNG"), bytes(5000)
    for width, height in (
        (50_000, 50_000), (2**31 - 1, 1), (1, 2**31 - 1), (0, 5), (5, 0), (1, 50_000), (50_000, 1),
    ):  # fmt: skip
        yield f"{width} x {height} pixels", png(width, height, 8, 2, none), "refused"
    row = bytes([0, *COLOR])
    yield "1 x 1 pixel", png(1, 1, 8, 2, row), "read"
    yield "1 x 1,024 pixels", png(1, 1024, 8, 2, row * 1024), "read"
    content = png(6300, 6300, 16, 6, bytes(6300 * 50_401))
    yield "40 million pixels of 16 bits and transparency", content, "either"
    yield "40 million grey pixels of 16 bits", png(6300, 6300, 16, 0, bytes(6300 * 12_601)), "either"
    yield "40 million transparent pixels", png(6300, 6300, 8, 6, bytes(6300 * 25_201)), "either"
    content = png(6300, 6300, 8, 2, bytes(6300 * 18_901 + 99_000), lace=1)
    yield "40 million pixels interlaced", content, "either"
    content = png(5, 5, 8, 2, (b"\0" + bytes(COLOR) * 5) * 5 + bytes(100_000_000))
    yield "100 MB for a few pixels", content, "read"
    megabyte, hundred = zlib.compress(bytes(1_000_000)), zlib.compress(bytes(100_000_000))
    texts = {
        "300 texts of 1 MB": [(b"zTXt", b"a\0\0" + megabyte)] * 300,
        "200 texts of 1 MB": [(b"zTXt", b"a\0\0" + megabyte)] * 200,
        "a text of 100 MB": [(b"zTXt", b"a\0\0" + hundred)],
        "a text of 100 MB in UTF-8": [(b"iTXt", b"a\0\1\0\0\0" + hundred)],
        "a profile of 100 MB": [(b"iCCP", b"a\0\0" + hundred)],
        "250 profiles of 1 MB": [(b"iCCP", b"a\0\0" + megabyte)] * 250,
        "2,000 profiles of 1 MB": [(b"iCCP", b"a\0\0" + megabyte)] * 2_000,
        "100,000 texts": [(b"tEXt", b"a\0b")] * 100_000,
        "a text of 6 MB": [(b"tEXt", b"a\0" + b"b" * 6_000_000)],
    }
    for name, chunks in texts.items():
        content = with_chunks(good, *chunks)
        yield name, content, "refused" if name.startswith(("300", "250", "2,000", "100,")) else "either"
    for count, wanted in ((60_000, "read"), (500_000, "refused")):
        yield f"{count:,} empty pieces of pixels", with_chunks(good, *[(b"IDAT", b"")] * count), wanted
        yield f"{count:,} chunks of no known kind", with_chunks(good, *[(b"abCd", b"")] * count), wanted
    control = struct.pack(">IIIIIHHBB", 0, 17, 13, 0, 0, 0, 0, 0, 0)
    for count, wanted in ((999, "read"), (70_000, "refused")):
        numbers = [struct.pack(">I", i) for i in range(2 * count)]
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        frames = b"".join(chunk(b"fcTL", a + control[4:]) + chunk(b"fdAT", b + b"\0") for a, b in pairs)
        announced = with_chunks(good, (b"acTL", struct.pack(">II", count, 0)))
        yield f"{count:,} frames", announced[:-12] + frames + announced[-12:], wanted
    content = with_chunks(good, (b"acTL", struct.pack(">II", 2**31 - 1, 0)), (b"fcTL", control))
    yield "2^31 frames announced", content, "read"
    content = with_chunks(good, (b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)))
    yield "a header within", content, "refused"
    yield "a chunk of 2^31 bytes", good[:33] + b"\x7f\xff\xff\xffIDAT" + good[41:], "either"
    yield "a wrong sum", good.replace(b"IDAT", b"IDAU"), "refused"
    yield "a palette of 300", with_chunks(encoded(plain(mode="P"), "PNG"), (b"PLTE", bytes(900))), "either"
    yield "no palette", png(7, 5, 8, 3, bytes(40)), "either"
    yield "transparency without a palette", png(7, 5, 8, 3, bytes(40), chunk(b"tRNS", bytes(300))), "either"
    yield "grey with transparency", png(7, 5, 8, 0, bytes(40), chunk(b"tRNS", bytes(2))), "read white"
    content = encoded(plain().quantize(4), "PNG", transparency=bytes(4))
    yield "palette with transparency", content, "read white"


def gifs() -> Iterator[Case]:
    """Frames and remarks."""
    good = encoded(plain().quantize(4), "GIF")
    at = good.index(b",")
    many, whole = b"!\xfe" + b"\1a" * 3_000_000 + b"\0", b"!\xfe" + b"\xff" + b"a" * 255 + b"\0"
    for name, more, wanted in (
        ("3,000,000 remarks of a letter", many, "refused"),
        ("1,000,000 empty extensions", b"!\xf9\0" * 1_000_000, "refused"),
        ("rubbish before the frame", b"\0" * 10**6, "refused"),
        ("1 MB of remarks", whole * 4_000, "read"),
        ("an extension of no kind", b"!\x77\0", "either"),
        ("control of no length", b"!\xf9\1\1\0", "either"),
    ):
        yield name, good[:at] + more + good[at:], wanted
    frame = good[at:-1]
    yield "30,000 frames", good[:-1] + frame * 30_000 + b";", "read"
    for name, extent in (
        ("a frame of 65,535 x 65,535", (0, 0, 65_535, 65_535)), ("a frame of no size", (0, 0, 0, 0)),
        ("a frame outside", (65_000, 65_000, 99, 99)), ("a wide frame", (0, 0, 65_535, 1)),
    ):  # fmt: skip
        yield name, good[: at + 1] + struct.pack("<4H", *extent) + good[at + 9 :], "either"
    for size in (0, 12, 255):
        yield f"codes of {size} bits", good[: at + 10] + bytes([size]) + good[at + 11 :], "either"
    large = Image.new("P", (6000, 6000))
    large.putpalette(COLOR)
    yield "6,000 x 6,000 pixels", encoded(large, "GIF"), "read"
    yield "a screen of no size", good[:6] + bytes(4) + good[10:], "either"
    yield "no frame", good[:at] + b";", "refused"


def ifd(entries: list[tuple[int, int, int, bytes]], following: int = 0, tail: bytes = b"") -> bytes:
    """A TIFF block: entries of tag, type, count and four bytes of value."""
    rows = b"".join(struct.pack("<HHI", *entry[:3]) + entry[3] for entry in entries)
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(entries)) + rows + struct.pack("<I", following) + tail


def u32(value: int) -> bytes:
    """A value within an entry."""
    return struct.pack("<I", value & 0xFFFFFFFF)


def exifs() -> Iterator[Case]:
    """Cameras' remarks in each format that has some: turned in no known way, in circles, of more than they hold."""
    many = [(1000 + i, 7, 30_000, u32(20_000)) for i in range(900)]
    far = [(1000 + i, 7, 900_000, u32(16)) for i in range(999)]
    blocks = {
        **{f"orientation {n}": (ifd([(274, 3, 1, u32(n))]), "read") for n in (0, 1, 6, 9, 65_535)},
        "orientation is a word": (ifd([(274, 2, 4, b"six\0")]), "read"),
        "orientation of 2^32 numbers": (ifd([(274, 3, 2**32 - 1, u32(8))]), "read"),
        "a fraction of nothing": (ifd([(282, 5, 1, u32(26)), (274, 3, 1, u32(1))], 0, bytes(8)), "read"),
        "a directory that is its own next": (ifd([(274, 3, 1, u32(1))], 8), "read"),
        "a directory within itself": (ifd([(34665, 4, 1, u32(8)), (34853, 4, 1, u32(8))]), "read"),
        "65,535 entries announced": (b"II*\0\x08\0\0\0\xff\xff" + bytes(60), "read"),
        "2,000 entries": (ifd([(1000 + i, 3, 1, u32(i)) for i in range(2000)]), "refused"),
        "900 entries of the same 30 kB": (ifd(many, 0, bytes(50_000)), "refused"),
        "999 entries that lie outside": (ifd(far), "read"),
        "a start outside": (b"II*\0\xff\xff\xff\xff" + bytes(20), "read"),
        "rubbish": (b"II*\0" + bytes(range(256)) * 40, "either"),
    }
    good = encoded(plain(), "JPEG", quality=95)
    flat = {"JPEG": good, "PNG": encoded(plain(), "PNG"), "WEBP": encoded(plain(), "WEBP", lossless=True)}
    for name, (block, wanted) in blocks.items():
        yield f"EXIF: {name}, JPEG", flat["JPEG"][:2] + segment(0xE1, b"Exif\0\0" + block) + good[2:], wanted
        yield f"EXIF: {name}, PNG", with_chunks(flat["PNG"], (b"eXIf", block)), wanted
        yield f"EXIF: {name}, WebP", encoded(plain(), "WEBP", lossless=True, exif=block), wanted
    pieces = b"".join(segment(0xE1, b"Exif\0\0" + part) for part in [ifd(many)] + [bytes(60_000)] * 60)
    yield "EXIF in 61 segments", good[:2] + pieces + good[2:], "either"
    index = ifd([(45056, 7, 4, b"0100"), (45057, 4, 1, u32(2**31)), (45058, 7, 16, u32(50))], 0, bytes(99))
    yield "2^31 pictures in one", good[:2] + segment(0xE2, b"MPF\0" + index) + good[2:], "read"
    content = good[:2] + segment(0xE2, b"MPF\0" + ifd(many, 0, bytes(50_000))) + good[2:]
    yield "an index of the same 30 kB", content, "refused"
    hexed = "\nexif\n60000\n" + ifd(many, 0, bytes(50_000)).hex()
    texts = {"of the same 30 kB": hexed, "of no hexadecimal": "\nexif\n9\nxyz", "of nothing": ""}
    for kind, text in texts.items():
        body = b"Raw profile type exif\0\0" + zlib.compress(text.encode())
        content = with_chunks(flat["PNG"], (b"zTXt", body))
        yield f"EXIF as text {kind}", content, "refused" if text == hexed else "read"


Entry = tuple[int, int, bytes]  # type, count and value


def short(value: int) -> Entry:
    """An entry of one number of 16 bits."""
    return 3, 1, u32(value)


def long(value: int) -> Entry:
    """An entry of one number of 32 bits."""
    return 4, 1, u32(value)


TAIL: Entry = 4, 1, b"tail"  # the place behind the entries


def page(width: int, height: int, changes: dict[int, Entry], tail: bytes = b"", following: int = 0) -> bytes:
    """A grey TIFF whose pixels stand at the end, with these entries in place of its own or beside them."""
    entries = {256: long(width), 257: long(height), 258: short(8), 259: short(1), 262: short(1), 273: long(8)}
    entries |= {277: short(1), 278: long(height), 279: long(len(tail))} | changes
    rows = [(tag, *entry) for tag, entry in sorted(entries.items())]
    end = 14 + 12 * len(rows)
    rows = [(t, k, n, u32(end) if v == b"tail" else v) for t, k, n, v in rows]
    return ifd(rows, following, tail)


def pieces(
    width: int, height: int, data: bytes, count: int, end: int, own: dict[int, Entry], *tags: int
) -> bytes:
    """A page in so many pieces that all lie at one place; ``tags``: of their places, from ``end`` on, and sizes."""
    changes = own | {tags[0]: (4, count, u32(end)), tags[1]: (4, count, u32(end + 4 * count))}
    places = struct.pack(f"<{count}I", *[end + 8 * count] * count)
    sizes = struct.pack(f"<{count}I", *[len(data)] * count)
    return page(width, height, changes) + places + sizes + data


def tiled(width: int, height: int, across: int, down: int, tiles: int, data: bytes) -> bytes:
    """Deflated tiles that all lie at the same place."""
    own = {259: short(8), 322: long(across), 323: long(down)}
    return pieces(width, height, data, tiles, 14 + 12 * 11, own, 324, 325)


def strips(width: int, height: int, count: int, packing: int, data: bytes, rows: int) -> bytes:
    """Strips that all lie at the same place."""
    own = {259: short(packing), 278: long(rows)}
    if count > 1:
        return pieces(width, height, data, count, 14 + 12 * 9, own, 273, 279)
    color = {262: short(2), 277: short(3)} if packing == 7 else {}
    return page(width, height, color | own | {273: TAIL}, data)


def tiffs() -> Iterator[Case]:
    """Directories, strips, tiles, packings, kinds of pixels."""
    grey = bytes(17 * 13)
    whole = {273: TAIL}
    yield "TIFF: as it should be", page(17, 13, whole, grey), "either"
    yield "TIFF: its own next page", page(17, 13, whole, grey, 8), "either"
    chain = page(17, 13, whole, grey)
    at = len(chain)
    links = b"".join(struct.pack("<HI", 0, at + 6 * (i + 1)) for i in range(300_000))
    yield "TIFF: 300,000 pages", page(17, 13, whole, grey + links, at), "either"
    same = [(2000 + i, 7, 1_000_000, u32(20)) for i in range(900)]
    yield "TIFF: 900 entries of the same megabyte", ifd(same, 0, bytes(1_000_000)), "refused"
    yield "TIFF: 65,535 entries", ifd([(i, 3, 1, u32(1)) for i in range(65_535)]), "refused"
    yield "TIFF: 65,535 entries announced", b"II*\0\x08\0\0\0\xff\xff" + bytes(99), "refused"
    big = b"II+\0\x08\0\0\0" + struct.pack("<QQ", 16, 2**63)
    yield "BigTIFF: 2^63 entries announced", big + bytes(99), "refused"
    content = b"II+\0\x08\0\0\0" + struct.pack("<QQ", 16, 100_000) + bytes(2_000_000)
    yield "BigTIFF: 100,000 entries", content, "refused"
    for tag in (34665, 34853, 330):
        content = page(17, 13, {**whole, tag: long(8)}, grey)
        yield f"TIFF: tag {tag} points at its own directory", content, "either"
    for name, changes in {
        "no width": {256: long(0)}, "no height": {257: long(0)}, "a width of -1": {256: long(-1)},
        "a width in words": {256: (2, 4, b"abc\0")}, "two widths": {256: (4, 2, u32(8))},
        "no rows a strip": {278: long(0)}, "64 bits": {258: short(64)}, "65,535 samples": {277: short(65_535)},
        "no samples": {277: short(0)}, "packing 9999": {259: short(9999)}, "packing 0": {259: short(0)},
        "JPEG of old": {259: short(6)}, "Group 3 of rubbish": {259: short(3), 258: short(1)},
        "LZW of rubbish": {259: short(5)}, "Group 4 of rubbish": {259: short(4), 258: short(1)},
        "runs of rubbish": {259: short(32773)}, "LZMA of rubbish": {259: short(34925)},
        "Zstandard of rubbish": {259: short(50000)}, "WebP of rubbish": {259: short(50001)},
        "ThunderScan of rubbish": {259: short(32809), 258: short(4)}, "photometric 99": {262: short(99)},
        "bits filled backwards": {266: short(2)}, "planes": {284: short(2)}, "orientation 9": {274: short(9)},
        "orientation 6": {274: short(6)}, "a strip outside": {273: long(2**31)},
        "strips announced, 2^31": {273: (4, 2**31, u32(9))}, "sizes announced, 2^31": {279: (4, 2**31, u32(9))},
        "a fraction of nothing": {282: (5, 1, u32(400)), 283: (5, 1, u32(400)), 296: short(2)},
    }.items():  # fmt: skip
        yield f"TIFF: {name}", page(17, 13, whole | changes, grey), "either"
    yield "TIFF: 200,000 strips", strips(100, 200_000 // 64, 200_000, 1, bytes(100), 1), "refused"
    zeros = zlib.compress(bytes(6000 * 6000), 9)
    yield "TIFF: 6,000 strips of the same 36 MB", strips(6000, 6000, 6000, 8, zeros, 1), "either"
    yield "TIFF: a strip of 36 MB", strips(6000, 6000, 1, 8, zeros, 6000), "either"
    content = strips(17, 13, 1, 8, zlib.compress(bytes(10**8)), 2**30)
    yield "TIFF: one strip of 1 GB announced", content, "either"
    yield "TIFF: a tile of 30,000 x 30,000 for 1 pixel", tiled(1, 1, 30_000, 30_000, 1, zeros), "refused"
    yield "TIFF: tiles that stand out", tiled(50_000, 800, 16, 16_384, 3125, zeros[:9000]), "refused"
    yield "TIFF: tiles of no size", tiled(50, 80, 0, 0, 3, zeros[:9000]), "refused"
    content = tiled(1600, 1600, 16, 16, 10_000, zlib.compress(bytes(256)))
    yield "TIFF: tiles, each the same", content, "refused"
    code = refining(400, 400, 300)
    yield "TIFF: JPEG of 300 scans", strips(400, 400, 1, 7, code, 400), "either"
    code = refining(6000, 6000, 99)
    yield "TIFF: JPEG of 99 scans and 36 million pixels", strips(6000, 6000, 1, 7, code, 6000), "refused"
    code = jpeg(65_500, 65_500, scan([1, 2, 3], 0, 0, 0))
    yield "TIFF: JPEG of another size within", strips(40, 40, 1, 7, code, 40), "either"
    modes = {"P": "read", "RGBA": "read", "F": "refused"}
    for mode in ("1", "L", "P", "RGBA", "CMYK", "F", "I", "I;16", "LAB", "YCbCr"):
        image = plain().quantize(4) if mode == "P" else Image.new(mode, (17, 13))
        if mode not in ("P", "I;16", "LAB"):
            image = plain(mode=mode)
        yield f"TIFF: mode {mode}", encoded(image, "TIFF"), modes.get(mode, "either")
    for packing in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg", "lzma", "zstd"):
        yield f"TIFF: packed by {packing}", encoded(plain(), "TIFF", compression=packing), "read"
    content = encoded(plain(), "TIFF", save_all=True, append_images=[plain(5, 3)] * 500)
    yield "TIFF: 500 pages", content, "read"


def webps() -> Iterator[Case]:
    """Canvas, frames, blocks."""
    good = encoded(plain(), "WEBP", lossless=True)
    still = good[12:]

    def riff(*chunks: tuple[bytes, bytes]) -> bytes:
        body = b"".join(k + struct.pack("<I", len(b)) + b + b"\0" * (len(b) % 2) for k, b in chunks)
        return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body

    def canvas(width: int, height: int, flags: int = 2) -> tuple[bytes, bytes]:
        return b"VP8X", bytes((flags, 0, 0, 0)) + u32(width - 1)[:3] + u32(height - 1)[:3]

    def frame(width: int = 17, height: int = 13) -> tuple[bytes, bytes]:
        return b"ANMF", bytes(6) + u32(width - 1)[:3] + u32(height - 1)[:3] + bytes(4) + still

    loop = (b"ANIM", bytes(6))
    yield "WebP: 2,000 frames", riff(canvas(17, 13), loop, *[frame()] * 2000), "read"
    yield "WebP: 70,000 frames", riff(canvas(17, 13), loop, *[(b"ANMF", bytes(16))] * 70_000), "refused"
    yield "WebP: 500,000 empty chunks", riff(*[(b"abcd", b"")] * 500_000) + still, "refused"
    for width, height in ((16_383, 16_383), (2**24, 2**24), (2**24, 1), (16, 12), (18, 14)):
        yield f"WebP: a canvas of {width} x {height}", riff(canvas(width, height), loop, frame()), "either"
    yield "WebP: a small frame on 6,300 x 6,300", riff(canvas(6300, 6300), loop, frame()), "either"
    yield "WebP: a frame of another size", riff(canvas(17, 13), loop, frame(16_000, 16_000)), "either"
    yield "WebP: no frame", riff(canvas(17, 13), loop), "refused"
    yield "WebP: its size is 2^32", b"RIFF\xff\xff\xff\xff" + good[8:], "either"
    for side, wanted in ((5400, "read"), (6300, "refused")):
        flat = encoded(plain(side, side), "WEBP", lossless=True, quality=0, method=0)
        yield f"WebP: {side:,} x {side:,} pixels, lossless", flat, wanted
    yield "WebP: 4,000 x 4,000 pixels", encoded(plain(4000, 4000), "WEBP", quality=90, method=0), "read"
    yield "WebP: transparent", encoded(Image.new("RGBA", (17, 13)), "WEBP", lossless=True), "read white"


def bmp(width: int, height: int, packing: int, bits: int, data: bytes, header: int = 40) -> bytes:
    """A BMP with a palette of 256, the color all over."""
    palette = (bytes(COLOR[::-1]) + b"\0") * (256 if bits == 8 else 16 if bits == 4 else 0)
    at = 14 + 40 + len(palette)
    info = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, packing, len(data), 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", at + len(data), 0, 0, at) + info + palette + data


def bmps() -> Iterator[Case]:
    """Runs, and headers that lie."""
    yield "BMP: runs of a pixel", bmp(3000, 2000, 1, 8, b"\1\0" * 3_000_000), "refused"
    yield "BMP: 950,000 runs of a pixel", bmp(1000, 950, 1, 8, (b"\1\0" * 1000 + b"\0\0") * 950), "read"
    yield "BMP: runs of nothing", bmp(3000, 2000, 1, 8, b"\0\2\0\0" * 400_000), "either"
    yield "BMP: ends of lines", bmp(2000, 3000, 1, 8, b"\1\0\0\0" * 3000), "read"
    yield "BMP: ends of lines, 36 million pixels", bmp(6000, 6000, 1, 8, b"\1\0\0\0" * 6000), "refused"
    yield "BMP: runs of 4 bits", bmp(2000, 3000, 2, 4, b"\xff\0" * 16 * 3000), "either"
    yield "BMP: jumps", bmp(1000, 1000, 1, 8, b"\0\2\xff\xff" * 1000), "read"
    for width, height in ((2**31 - 1, 2**31 - 1), (-5, 5), (5, -5), (0, 5), (50_000, 1), (5, -(2**31))):
        yield f"BMP: {width} x {height}", bmp(width, height, 0, 24, bytes(4000)), "either"
    for header in (0, 12, 16, 41, 64, 108, 2**31):
        yield f"BMP: a header of {header} bytes", bmp(17, 13, 0, 24, bytes(4000), header), "either"
    for packing, bits in (
        (3, 32), (3, 16), (4, 24), (5, 24), (6, 32), (9, 24), (0, 2), (0, 0), (1, 24), (2, 8),
    ):  # fmt: skip
        yield f"BMP: packing {packing} of {bits} bits", bmp(17, 13, packing, bits, bytes(4000)), "either"


def ppms() -> Iterator[Case]:
    """Plain numbers, scaled ones, remarks, and headers without an end."""
    numbers = b" ".join(b"%d" % c for c in COLOR) + b"\n"
    yield "PPM: plain, 3 million pixels", b"P3 2000 1500 255\n" + numbers * 3_000_000, "refused"
    yield "PPM: plain, few", b"P3 17 13 255\n" + numbers * 221, "read"
    yield "PPM: plain, 2 million values", b"P3 800 800 255\n" + numbers * 640_000, "read"
    yield "PPM: scaled, 16 million pixels", b"P5 4000 4000 254\n" + bytes(16_000_000), "refused"
    yield "PPM: scaled, 2 million values", b"P6 800 800 254\n" + bytes(COLOR) * 640_000, "read"
    yield "PPM: 16 bits", b"P5 4000 4000 65535\n" + bytes(32_000_000), "either"
    yield "PPM: remarks among the numbers", b"P2 99 99 255\n" + b"#\n" * 1_000_000 + b"7 " * 9801, "refused"
    content = b"P6 #" + b"x" * 5_000_000 + b"\n17 13 255\n" + bytes(COLOR) * 221
    yield "PPM: a remark of 5 MB in the header", content, "refused"
    content = b"P6" + b" " * 5_000_000 + b"17 13 255\n" + bytes(COLOR) * 221
    yield "PPM: 5 MB of blanks in the header", content, "refused"
    yield "PPM: 5 MB of blanks for numbers", b"P2 99 99 255\n" + b" " * 5_000_000, "refused"
    yield "PBM: plain, 16 million bits", b"P1 4000 4000\n" + b"0" * 16_000_000, "refused"
    yield "PBM: 36 million bits", b"P4 6000 6000\n" + bytes(6000 * 750), "either"
    yield "PFM: floating-point", b"Pf 17 13 -1.0\n" + bytes(4 * 221), "refused"
    for head in (
        b"P6 0 0 255", b"P6 -3 3 255", b"P6 3 3 0", b"P6 3 3 65536", b"P6 99999999999 3 255",
        b"P6 99999999 9 255", b"P6 1e9 3 255", b"P6 3 3 -1", b"P6 3 3 x", b"P7\nWIDTH 9\nENDHDR", b"Pf 3 3 nan",
        b"P6 3", b"P6", b"P0CMYK 9999 9999 254", b"P6 \xd9\xa3 3 255",
    ):  # fmt: skip
        yield f"PPM: {head.decode()!r}", head + b"\n" + bytes(99), "refused"


MOST_MB, MOST_SECONDS = 500, 2.0  # of the processor, which others may be using too
MOST_WORDS = 300  # bytes on standard error: libtiff says there what it does not like


def pictures() -> list[tuple[str, bytes]]:
    """(name, bytes) of every hostile picture, the same in each call; needs nothing but Pillow."""
    return [(name, content) for name, content, _ in cases()]


def cases() -> Iterator[Case]:
    """Every hostile picture with what is to happen to it."""
    for make in (jpegs, exifs, pngs, gifs, webps, tiffs, bmps, ppms, others, cut):
        yield from make()


def others() -> Iterator[Case]:
    """What is not an image that is read here."""
    icon = struct.pack("<HHHBBBBHHII", 0, 1, 1, 0, 0, 0, 0, 1, 32, 9000, 22)
    yield "an icon with a PNG within", icon + png(50_000, 50_000, 8, 2, bytes(5000)), "refused"
    for name, start in (
        ("EPS", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"), ("PSD", b"8BPS\0\1" + bytes(40)),
        ("JPEG 2000", b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(50)), ("SVG", b"<svg xmlns='x'/>"),
        ("AVIF", b"\0\0\0\x1cftypavif" + bytes(50)), ("zeros", bytes(5000)), ("nothing", b""),
    ):  # fmt: skip
        yield name, start, "refused"
    tga = struct.Struct("<BBBHHBHHHHBB")
    content = tga.pack(0, 0, 10, 0, 0, 0, 0, 0, 65_535, 65_535, 24, 0) + bytes(99)
    yield "TGA of 65,535 x 65,535", content, "refused"
    runs = b"\xff" + bytes(COLOR[::-1])
    content = tga.pack(0, 0, 10, 0, 0, 0, 0, 0, 6144, 6144, 24, 0) + runs * (6144 * 6144 // 128)
    yield "TGA in runs", content, "read"
    content = tga.pack(0, 1, 1, 0, 65_535, 24, 0, 0, 9, 9, 8, 0) + bytes(99)
    yield "TGA with a palette of nothing", content, "either"


def cut() -> Iterator[Case]:
    """One of each format, ending at each eighth."""
    noise = Image.frombytes("RGB", (64, 48), zlib.compress(bytes(range(256)) * 8, 0) * 5, "raw", "RGB", 0, 1)
    more = {"JPEG": [{"progressive": True}], "TIFF": [{"compression": "tiff_lzw"}]}
    for kind in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TGA", "TIFF", "PPM"):
        for options in [{}, *more.get(kind, ())]:
            whole = encoded(noise, kind, **options)
            for i in range(1, 8):
                yield f"{kind} {options or ''} cut after {i} eighths", whole[: len(whole) * i // 8], "either"


def hostile_pictures(count: int) -> list[dict]:
    """Each read through the library's door: right or refused by name, soon, in bounded memory, and without a word."""
    from glassformer.data.transform import ImageTransform
    from glassformer.errors import InputError

    door, out = ImageTransform((8, 11)), []
    for name, content, wanted in list(cases())[: count or None]:
        before, started = reset_peak(), time.process_time()
        error, answer, right = None, "read", False
        with tempfile.TemporaryFile() as said, warnings.catch_warnings():
            warnings.simplefilter("error")
            sys.stderr.flush()
            kept = os.dup(2)
            os.dup2(said.fileno(), 2)
            try:
                pixels = door.read(content, name)
                color = (255, 255, 255) if wanted == "read white" else COLOR
                off = max(abs(int(pixels[c].mean()) - color[c]) for c in range(3))
                right = wanted == "either" or (wanted.startswith("read") and off < 9)
                right = right and pixels.shape == (3, 8, 11)
            except InputError as e:
                answer, error = "refused", str(e)[:150]
                right = name in str(e) and wanted in ("refused", "either")
            except BaseException as e:
                answer, error = type(e).__name__, repr(e)[:150]
            finally:
                os.dup2(kept, 2)
                os.close(kept)
            words = said.tell()
        seconds, more = time.process_time() - started, peak_mb() - before
        passed = right and words <= MOST_WORDS and seconds < MOST_SECONDS and more < MOST_MB
        out.append({"picture": name, "passed": passed, "answer": answer, "said": error, "wanted": wanted,
                    "bytes_on_stderr": words, "seconds": round(seconds, 3), "mb": round(more)})  # fmt: skip
    return out
