"""Pictures as a stranger would make them to do harm, each built on purpose from its format's description.

Whatever the file, there are two good answers: the right pixels, or a typed error that names it, soon and in
bounded memory. ``pictures()`` gives them all; ``hostile_pictures`` puts each to the door that training, tables and
server share.
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from benchmarks.reliability.hostile_jpegs import COLOR, Case, encoded, jpegs
from benchmarks.reliability.hostile_pngs import gifs, png, pngs
from benchmarks.reliability.hostile_tiffs import bmps, exifs, ppms, tiffs, webps

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
    """What is no picture that is read here."""
    icon = struct.pack("<HHHBBBBHHII", 0, 1, 1, 0, 0, 0, 0, 1, 32, 9000, 22)
    yield "an icon with a PNG within", icon + png(50_000, 50_000, 8, 2, bytes(5000)), "refused"
    for name, start in (("EPS", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"), ("PSD",
        b"8BPS\0\1" + bytes(40)),
                        ("JPEG 2000", b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(50)), ("SVG", b"<svg xmlns='x'/>"),
                        ("AVIF", b"\0\0\0\x1cftypavif" + bytes(50)), ("zeros", bytes(5000)), ("nothing",
                        b"")):  # fmt: skip
        yield name, start, "refused"
    tga = struct.Struct("<BBBHHBHHHHBB")
    yield (
        "TGA of 65,535 x 65,535",
        tga.pack(0, 0, 10, 0, 0, 0, 0, 0, 65_535, 65_535, 24, 0) + bytes(99),
        "refused",
    )
    runs = b"\xff" + bytes(COLOR[::-1])
    yield (
        "TGA in runs",
        tga.pack(0, 0, 10, 0, 0, 0, 0, 0, 6144, 6144, 24, 0) + runs * (6144 * 6144 // 128),
        "read",
    )
    yield (
        "TGA with a palette of nothing",
        tga.pack(0, 1, 1, 0, 65_535, 24, 0, 0, 9, 9, 8, 0) + bytes(99),
        "either",
    )


def cut() -> Iterator[Case]:
    """One of each format, ending at each eighth."""
    noise = Image.frombytes("RGB", (64, 48), zlib.compress(bytes(range(256)) * 8, 0) * 5, "raw", "RGB", 0, 1)
    kinds = [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {}), ("GIF", {}), ("WEBP", {}),
        ("BMP", {}), ("TGA", {}),
             ("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"}), ("PPM", {})]  # fmt: skip
    for kind, options in kinds:
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
                pixels = door.picture(content, name)
                color = (255, 255, 255) if wanted == "read white" else COLOR
                off = max(abs(int(pixels[c].mean()) - color[c]) for c in range(3))
                right = pixels.shape == (3, 8, 11) and (
                    wanted == "either" or (wanted.startswith("read") and off < 9)
                )
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


def reset_peak() -> float:
    """Begin to measure the process's peak anew; gives its memory now, in MB."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_mb()


def peak_mb() -> float:
    """The process's largest memory since ``reset_peak``."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    for one in sorted(hostile_pictures(0), key=lambda one: (one["passed"], -one["seconds"])):
        print(one)
