"""Convert images of more than 8 bits per channel to 8 bits. Exported scripts include a copy of this code.

An image of 16 or 32 bits rarely states how many bits it uses: 12 bits of a camera read as 16 are nearly
black. White is the value that the file states, otherwise ``image_range``: a number; "full": 65,535; None:
65,535 for an image with a pixel above ``FEW``, and an error for other images. An image is never scaled by its
own maximum.
"""

from __future__ import annotations

# --- copied into exported scripts ---
import io
import re
from typing import Any

import numpy as np

FULL = 65_535  # white of 16 bits
FEW = 4_095  # a brightest pixel up to this value may be white, with 12 bits or fewer
FEWER_BITS = {2**bits - 1 for bits in range(8, 16)}  # values of white that a file can state


class RangeError(ValueError):
    """Pixels are outside of the range, or the range is unknown."""

    def __init__(self, what: str, fix: str):
        super().__init__(f"{what}. {fix}")
        self.what, self.fix = what, fix


def eight_bits(image: Any, opened: Any, content: bytes, image_range: Any, note: Any = None) -> Any:
    """Convert a decoded image to 8 bits per channel, with white at 255.

    Args:
        opened: the image as opened by Pillow, with its tags.
        content: the bytes of its file; empty if unknown.
        note: called with the brightest pixel if white is unknown, instead of an error.
    """
    from PIL import Image

    if image.mode != "F" and not image.mode.startswith("I"):
        return _color(image, opened, content, image_range, note)
    wide = np.asarray(image)
    white = stated_white(opened, content, wide) or white_of(wide, image_range, note)
    seen, clear = scaled(wide, white), image.info.get("transparency")
    return Image.fromarray(np.where(wide == clear, np.uint8(255), seen) if isinstance(clear, int) else seen)


def scaled(wide: np.ndarray, white: float) -> np.ndarray:
    """Scale pixels of any type to uint8; if white is 65,535, keep the upper 8 bits."""
    low, high = float(wide.min()), float(wide.max())
    if not 0 <= low <= high <= white:
        raise RangeError(
            f"pixels from {low:,.10g} to {high:,.10g}, where 0 is black and {white:,.10g} is white",
            "Save the image with 8 or 16 bits, or set image_range to the value of white",
        )
    if white == FULL and wide.dtype.kind in "iu":
        return (wide >> 8).astype(np.uint8)
    shares = np.multiply(wide, 255 / white, dtype=np.float32)  # fp64 could take half a gigabyte
    return np.rint(shares, out=shares).astype(np.uint8)


def white_of(wide: np.ndarray, image_range: Any, note: Any = None) -> float:
    """The value of white if the file does not state it."""
    if isinstance(image_range, int | float):
        return image_range
    if wide.dtype.kind == "f":
        fix = "Save the image with 8 or 16 bits, or set image_range to the value of white"
        raise RangeError("has floating-point pixels, whose range is unknown", fix)
    high = int(wide.max())
    if note is not None:
        note(high)
    elif image_range is None and 0 < high <= FEW:
        raise RangeError(*few_bits(high))
    return FULL


def few_bits(high: int) -> tuple[str, str]:
    """The error message and the fix if the brightest pixel of 16 bits would be nearly black."""
    white = likely_white(high)
    return (
        f"the brightest pixel is {high:,} of {FULL:,}: a dark image, or fewer bits in a file of 16 or 32",
        f"Save it with 8 bits, or fit with image_range={white} if that is white, {FULL} if images are dark",
    )


def likely_white(high: int) -> int:
    """The lowest maximum value of 8, 10, 12, 14 or 16 bits that is not below ``high``."""
    return next((2**bits - 1 for bits in (8, 10, 12, 14) if high < 2**bits), FULL)


def stated_white(opened: Any, content: bytes, wide: np.ndarray) -> float | None:
    """The value of white that the file states, if below the maximum of its pixel type; otherwise None."""
    if opened.format == "PPM":  # already scaled by Pillow, by the maximum that the file states
        return FULL if _ppm_white(content) not in (None, FULL) else None
    if hasattr(opened, "tag_v2"):
        return _tiff_white(opened.tag_v2)
    at = content.find(b"\0\0\0\1sBIT", 8, max(content.find(b"IDAT"), 0)) if opened.format == "PNG" else -1
    bits = content[at + 8] if at > 0 else 16
    if not 0 < bits < 16 or wide.max() >= 1 << bits:
        return FULL if 0 < bits < 16 else None  # by the PNG specification, fewer bits are scaled up to 16
    values, most = np.unique(wide).astype(np.float64), 2**bits - 1
    by_rule = not (values % (1 << (16 - bits))).any()
    by_rule |= bool((np.rint(np.rint(values * most / FULL) * FULL / most) == values).all())
    return None if by_rule else most  # not scaled up: white is the maximum of the stated bits


def _tiff_white(tags: Any) -> float | None:
    """White by BitsPerSample, OME's SignificantBits, MaxSampleValue or SMaxSampleValue."""

    def first(tag: int) -> Any:
        value = tags.get(tag)
        return value[0] if isinstance(value, tuple) and value else value

    ome = re.search(r'<OME.*?SignificantBits="(\d{1,2})"', str(first(270)), re.DOTALL)
    found = [2 ** int(first(258) or 1) - 1, 2 ** int(ome[1]) - 1 if ome else None, first(281), first(341)]
    return next((int(white) for white in found if white in FEWER_BITS), None)


def _ppm_white(content: bytes) -> int | None:
    tokens = re.sub(rb"#[^\r\n]*", b"", content[:4096]).split(None, 4)
    return int(tokens[3]) if len(tokens) > 3 and tokens[3].isdigit() else None


def _color(image: Any, opened: Any, content: bytes, image_range: Any, note: Any) -> Any:
    """Convert a color image. Pillow returns only the upper 8 of 16 bits, as needed if white is 65,535."""
    from PIL import Image

    tags = getattr(opened, "tag_v2", {})
    if 2 in (tags.get(339) or ()):
        fix = "Save the image with 8 or 16 bits without a sign"
        raise RangeError("has signed 8-bit pixels, which are not supported", fix)
    deep = {
        "TIFF": lambda: max(tags.get(258) or (1,)) > 8,
        "PNG": lambda: content[24:25] == b"\x10",
        "PPM": lambda: _ppm_white(content) == FULL,
    }
    if opened.format not in deep or not deep[opened.format]():
        return image
    white = _tiff_white(tags) or image_range
    if white == FULL or (white == "full" and note is None):
        return image
    wide = _both_bytes(image, content)
    if wide is None:
        most = max(high for _, high in image.convert("RGB").getextrema())
        wide = np.array([max(0, most * 257 - 128)])  # lower bound, since scaling to 8 bits rounds
    white = white_of(wide[..., :3], white, note)
    if white == FULL:
        return image
    if wide.ndim < 3:
        what = f"this color format is supported only with white at {FULL:,}, but here it is {white:,.10g}"
        raise RangeError(what, "Save the image with 8 bits per channel")
    wide[..., 3:] = np.minimum(wide[..., 3:], int(white))  # the alpha channel may use all bits
    return Image.fromarray(scaled(wide, white))


def _both_bytes(image: Any, content: bytes) -> np.ndarray | None:
    """A color image with all 16 bits; Pillow returns the lower 8 when decoding in the other byte order."""
    from PIL import Image, ImageOps

    other = Image.open(io.BytesIO(content)) if content else None
    if other is None or not other.tile or image.mode not in ("RGB", "RGBA"):
        return None
    tiles, given = [], list[Any](other.tile)
    for codec, extents, offset, args in given:
        mode = args if isinstance(args, str) else args[0]
        if mode not in (f"{image.mode};16{order}" for order in "BLN"):
            return None
        mode = mode[:-1] + ("L" if mode[-1] == "B" else "B")
        tiles.append((codec, extents, offset, mode if isinstance(args, str) else (mode, *args[1:])))
    other.tile = [
        type(tile)(*own) if hasattr(tile, "_fields") else own for tile, own in zip(other.tile, tiles)
    ]
    low = ImageOps.exif_transpose(other)
    return np.asarray(image).astype(np.uint16) << 8 | np.asarray(low)
