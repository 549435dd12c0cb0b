"""Files of images with more than 8 bits per channel, written byte by byte."""

import struct
import zlib

import numpy as np


def chunk(kind: bytes, data: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(array: np.ndarray, significant: int | None = None, more: bytes = b"") -> bytes:
    """A PNG of 16 bits: gray ``[H, W]``, or color ``[H, W, 3]`` or ``[H, W, 4]``; with ``more`` chunks."""
    height, width = array.shape[:2]
    kind = {2: 0, 3: 2 if array.shape[-1] == 3 else 6}[array.ndim]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in array)
    bits = b"" if significant is None else chunk(b"sBIT", bytes([significant] * max(1, kind * 3 // 2)))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)) + more + bits
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def tiff(
    array: np.ndarray,
    dtype: str = "<u2",
    bits: int | None = None,
    deflate: bool = False,
    **tags: tuple | bytes,
) -> bytes:
    """A TIFF; ``dtype`` as numpy has it; ``bits``: packed in so many; ``tags``: ``t281=(4095,)``."""
    order, kind, size = dtype[0], dtype[1], int(dtype[2:]) * 8
    height, width = array.shape[:2]
    samples = 1 if array.ndim == 2 else array.shape[2]
    if bits:
        rows = ["".join(f"{int(v):0{bits}b}" for v in row) for row in array]  # each begins a byte
        data = bytes(int(row[i : i + 8].ljust(8, "0"), 2) for row in rows for i in range(0, len(row), 8))
    else:
        data = array.astype(dtype).tobytes()
    data = zlib.compress(data) if deflate else data
    short = {258: bits or size, 259: 8 if deflate else 1, 262: 1 if samples == 1 else 2, 277: samples}
    long = {256: width, 257: height, 278: height, 279: len(data), 273: 0}
    short |= {339: {"i": 2, "f": 3}[kind]} if kind != "u" else {}
    found: dict[int, tuple[int, tuple | bytes]] = {tag: (4, (value,)) for tag, value in long.items()}
    found |= {tag: (3, (value,) * (samples if tag in (258, 339) else 1)) for tag, value in short.items()}
    for name, value in tags.items():
        found[int(name[1:])] = (2, value) if isinstance(value, bytes) else (4, value)
    parts, at = [], 8 + 2 + 12 * len(found) + 4
    for tag, (form, value) in sorted(found.items()):
        text = isinstance(value, bytes)
        raw = value if text else struct.pack(f"{order}{len(value)}{' HI'[form - 2]}", *value)
        parts.append([tag, form, len(value), raw, at])
        at += len(raw) if len(raw) > 4 else 0
    entries = b""
    for tag, form, count, raw, place in parts:
        raw = struct.pack(f"{order}I", at) if tag == 273 else raw
        inline = raw.ljust(4, b"\0") if len(raw) <= 4 else struct.pack(f"{order}I", place)
        entries += struct.pack(f"{order}HHI", tag, form, count) + inline
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8)
    far = b"".join(raw for *_, raw, _ in parts if len(raw) > 4)
    return head + struct.pack(f"{order}H", len(parts)) + entries + struct.pack(f"{order}I", 0) + far + data


def pgm(array: np.ndarray, most: int) -> bytes:
    """A PGM, or PPM of ``[H, W, 3]``, of two bytes a value."""
    kind, (height, width) = ("P5" if array.ndim == 2 else "P6"), array.shape[:2]
    return f"{kind}\n# {most} is white\n{width} {height}\n{most}\n".encode() + array.astype(">u2").tobytes()


def pfm(array: np.ndarray) -> bytes:
    """A PFM: floating-point gray, from the bottom row up."""
    height, width = array.shape
    return f"Pf\n{width} {height}\n-1.0\n".encode() + array[::-1].astype("<f4").tobytes()
