"""Hostile PNGs and GIFs; see hostile_pictures."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from PIL import Image

from benchmarks.reliability.hostile_jpegs import COLOR, Case, encoded, plain


def chunk(kind: bytes, body: bytes) -> bytes:
    """A PNG's chunk."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def with_chunks(png: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """Chunks after the header."""
    return png[:33] + b"".join(chunk(*one) for one in more) + png[33:]


def png(width: int, height: int, depth: int, color: int, data: bytes, *more: bytes, lace: int = 0) -> bytes:
    """A PNG of this content before compression."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, lace))
    return (
        b"\x89PNG\r\n\x1a\n"
        + head
        + b"".join(more)
        + chunk(b"IDAT", zlib.compress(data, 1))
        + chunk(b"IEND", b"")
    )


def pngs() -> Iterator[Case]:
    """Sizes, chunks, texts, animation."""
    good, none = encoded(plain(), "PNG"), bytes(5000)
    for width, height in (
        (50_000, 50_000),
        (2**31 - 1, 1),
        (1, 2**31 - 1),
        (0, 5),
        (5, 0),
        (1, 50_000),
        (50_000, 1),
    ):
        yield f"{width} x {height} pixels", png(width, height, 8, 2, none), "refused"
    row = bytes([0, *COLOR])
    yield "1 x 1 pixel", png(1, 1, 8, 2, row), "read"
    yield "1 x 1,024 pixels", png(1, 1024, 8, 2, row * 1024), "read"
    yield (
        "40 million pixels of 16 bits and transparency",
        png(6300, 6300, 16, 6, bytes(6300 * 50_401)),
        "either",
    )
    yield "40 million grey pixels of 16 bits", png(6300, 6300, 16, 0, bytes(6300 * 12_601)), "either"
    yield "40 million transparent pixels", png(6300, 6300, 8, 6, bytes(6300 * 25_201)), "either"
    yield (
        "40 million pixels interlaced",
        png(6300, 6300, 8, 2, bytes(6300 * 18_901 + 99_000), lace=1),
        "either",
    )
    yield (
        "100 MB for a few pixels",
        png(5, 5, 8, 2, (b"\0" + bytes(COLOR) * 5) * 5 + bytes(100_000_000)),
        "read",
    )
    texts = {
        "300 texts of 1 MB": [(b"zTXt", b"a\0\0" + zlib.compress(bytes(1_000_000)))] * 300,
        "200 texts of 1 MB": [(b"zTXt", b"a\0\0" + zlib.compress(bytes(1_000_000)))] * 200,
        "a text of 100 MB": [(b"zTXt", b"a\0\0" + zlib.compress(bytes(100_000_000)))],
        "a text of 100 MB in UTF-8": [(b"iTXt", b"a\0\1\0\0\0" + zlib.compress(bytes(100_000_000)))],
        "a profile of 100 MB": [(b"iCCP", b"a\0\0" + zlib.compress(bytes(100_000_000)))],
        "250 profiles of 1 MB": [(b"iCCP", b"a\0\0" + zlib.compress(bytes(1_000_000)))] * 250,
        "2,000 profiles of 1 MB": [(b"iCCP", b"a\0\0" + zlib.compress(bytes(1_000_000)))] * 2_000,
        "100,000 texts": [(b"tEXt", b"a\0b")] * 100_000,
        "a text of 6 MB": [(b"tEXt", b"a\0" + b"b" * 6_000_000)],
    }
    for name, chunks in texts.items():
        yield (
            name,
            with_chunks(good, *chunks),
            "refused" if name.startswith(("300", "250", "2,000", "100,")) else "either",
        )
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
    yield (
        "2^31 frames announced",
        with_chunks(good, (b"acTL", struct.pack(">II", 2**31 - 1, 0)), (b"fcTL", control)),
        "read",
    )
    yield (
        "a header within",
        with_chunks(good, (b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))),
        "refused",
    )
    yield "a chunk of 2^31 bytes", good[:33] + b"\x7f\xff\xff\xffIDAT" + good[41:], "either"
    yield "a wrong sum", good.replace(b"IDAT", b"IDAU"), "refused"
    yield "a palette of 300", with_chunks(encoded(plain(mode="P"), "PNG"), (b"PLTE", bytes(900))), "either"
    yield "no palette", png(7, 5, 8, 3, bytes(40)), "either"
    yield "transparency without a palette", png(7, 5, 8, 3, bytes(40), chunk(b"tRNS", bytes(300))), "either"
    yield "grey with transparency", png(7, 5, 8, 0, bytes(40), chunk(b"tRNS", bytes(2))), "read white"
    yield (
        "palette with transparency",
        encoded(plain().quantize(4), "PNG", transparency=bytes(4)),
        "read white",
    )


def gifs() -> Iterator[Case]:
    """Frames and remarks."""
    good = encoded(plain().quantize(4), "GIF")
    at = good.index(b",")
    for name, more, wanted in (
        ("3,000,000 remarks of a letter", b"!\xfe" + b"\1a" * 3_000_000 + b"\0", "refused"),
        ("1,000,000 empty extensions", b"!\xf9\0" * 1_000_000, "refused"), ("rubbish before the frame",
        b"\0" * 10**6, "refused"),
        ("1 MB of remarks", (b"!\xfe" + b"\xff" + b"a" * 255 + b"\0") * 4_000, "read"),
        ("an extension of no kind", b"!\x77\0", "either"), ("control of no length", b"!\xf9\1\1\0", "either"),
    ):  # fmt: skip
        yield name, good[:at] + more + good[at:], wanted
    frame = good[at:-1]
    yield "30,000 frames", good[:-1] + frame * 30_000 + b";", "read"
    for name, extent in (("a frame of 65,535 x 65,535", (0, 0, 65_535, 65_535)),
        ("a frame of no size", (0, 0, 0, 0)),
                         ("a frame outside", (65_000, 65_000, 99, 99)),
                         ("a wide frame", (0, 0, 65_535, 1))):  # fmt: skip
        yield name, good[: at + 1] + struct.pack("<4H", *extent) + good[at + 9 :], "either"
    for size in (0, 12, 255):
        yield f"codes of {size} bits", good[: at + 10] + bytes([size]) + good[at + 11 :], "either"
    large = Image.new("P", (6000, 6000))
    large.putpalette(COLOR)
    yield "6,000 x 6,000 pixels", encoded(large, "GIF"), "read"
    yield "a screen of no size", good[:6] + bytes(4) + good[10:], "either"
    yield "no frame", good[:at] + b";", "refused"
