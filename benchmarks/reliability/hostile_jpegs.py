"""Hostile JPEGs, and what all of the hostile pictures are made with; see hostile_pictures."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any

from PIL import Image

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
    return (
        b"\xff\xd8"
        + segment(0xDB, bytes([0] + [1] * 64))
        + segment(kind, size)
        + b"".join(tables)
        + scans
        + b"\xff\xd9"
    )


def refining(width: int, height: int, count: int) -> bytes:
    """Scans that each walk every coefficient and hold next to nothing: runs of 32,767 empty blocks."""
    bits = "00111111111111111" * (width * height // 64 // 32767 + 1)
    bits += "0" * (-len(bits) % 8)
    data = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
    scans = [
        scan([1 + i % 3], 1, 63, 0x0D if i < 3 else 0xDC if i < 6 else 0xCB, data) for i in range(count - 1)
    ]
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
    yield "baseline, its first component 50,000 times", jpeg(
        2000, 2000, b"".join(scan([1], 0, 63, 0) for _ in range(50_000)), 0xC0), "refused"  # fmt: skip
    noise = bytes((i * 7919 >> 3) % 255 for i in range(2000))
    arithmetic = b"".join(scan([1 + i % 3], 1, 63, 0, noise) for i in range(19))
    yield (
        "arithmetic coding in 20 scans",
        jpeg(4000, 4000, scan([1, 2, 3], 0, 0, 0, noise) + arithmetic, 0xCA),
        "either",
    )
    yield "arithmetic coding, no data", jpeg(4000, 4000, scan([1, 2, 3], 0, 63, 0), 0xC9), "either"
    yield "lossless frame", jpeg(400, 400, scan([1, 2, 3], 1, 0, 0), 0xC3), "either"
    yield "12 bits", jpeg(40, 40, first, 0xC1, 12), "refused"
    yield "hierarchical frame", jpeg(40, 40, first, 0xC5), "refused"
    yield "height comes later (DNL)", jpeg(40, 0, first, 0xC0) + segment(0xDC, b"\0\x28"), "refused"
    yield "65,500 x 65,500 pixels", jpeg(65_500, 65_500, first), "refused"
    yield "a line of 65,500 pixels", jpeg(65_500, 500, first), "refused"
    yield "no pixels across", jpeg(0, 40, first), "refused"
    size = struct.pack(">BHHB", 8, 60_000, 60_000, 3) + bytes((1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0))
    yield "a large frame before the right one", good[:2] + segment(0xC2, size) + good[2:], "refused"
    yield (
        "a large frame after the right one",
        good.replace(b"\xff\xda", segment(0xC2, size) + b"\xff\xda"),
        "refused",
    )
    yield "two starts", b"\xff\xd8" + good, "either"
    for name, body, count, wanted in (
        ("remarks, 900", segment(0xFE, b"x" * 50), 900, "read"),
        ("remarks, 2,000", segment(0xFE, b""), 2_000, "refused"),
        ("remarks, 1,000,000", segment(0xFE, b""), 1_000_000, "refused"),
        ("tables of codes, 100,000", segment(0xC4, bytes((0, 0, 1, *[0] * 14, 0))), 100_000, "refused"),
        ("tables of steps, 50,000", segment(0xDB, bytes([0] + [1] * 64)), 50_000, "refused"),
        ("restarts before the frame", b"\xff\xd0", 1_000_000, "refused"), ("filling bytes",
        b"\xff", 5_000_000, "refused"),
        ("rubbish between segments", b"\0", 5_000_000, "refused"), ("some filling bytes", b"\xff", 999, "read"),
        ("segments of no length", b"\xff\xe5\0\0", 900, "either"), ("profiles, 255", segment(
            0xE2, b"ICC_PROFILE\0\1\xff" + bytes(9_000)), 255, "read"),
        ("Photoshop blocks", segment(0xED, b"Photoshop 3.0\0" + b"8BIM\x03\xed\0\0\xff\xff\xff\xff" * 4_000),
         30, "read"),
    ):  # fmt: skip
        yield name, good[:2] + segment(0xFE, b"") + body * count + good[2:], wanted
    yield "restarts in the pixels", good[:-2] + b"\xff\xd0" * 1_000_000 + good[-2:], "either"
    yield "tables of codes among the pixels", good[:-2] + segment(
        0xC4, bytes((0, 0, 1, *[0] * 14, 0))) * 50_000 + good[-2:], "either"  # fmt: skip
    yield (
        "a restart at each block",
        encoded(plain(400, 300), "JPEG", quality=95, restart_marker_blocks=1),
        "read",
    )
    yield (
        "a restart at each block, none given",
        good.replace(b"\xff\xda", segment(0xDD, b"\0\1") + b"\xff\xda"),
        "either",
    )
    yield "CMYK, progressive", encoded(plain(mode="CMYK"), "JPEG", progressive=True, quality=95), "either"
    yield "many pictures in one (MPO)", encoded(
        plain(), "MPO", save_all=True, append_images=[plain()] * 20, quality=95), "read"  # fmt: skip
