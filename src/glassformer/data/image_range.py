"""Convert images of more than 8 bits to 8 bits.

An image of 16 or 32 bits rarely states how many bits it uses. A camera's image of 12 bits is nearly black if
it is read as 16 bits. So the value of white is the one that the file states, otherwise ``image_range``: a
number; "full": 65,535; None: 65,535 for an image with a pixel above ``MAX_UNCLEAR``, and an error for other
images. An image is never scaled by its own maximum. Exported scripts include a copy of this code.
"""

from __future__ import annotations

# --- copied into exported scripts ---
import io
import re
from typing import Any

import numpy as np

WHITE_16 = 65_535  # white of 16 bits
MAX_UNCLEAR = 4_095  # a brightest pixel up to this value may be white in an image of 12 bits or fewer
STATED_WHITES = {2**bits - 1 for bits in range(8, 16)}  # values of white that a file can state
FIX_RANGE = "Save the image with 8 or 16 bits, or set image_range to the value of white"


class RangeError(ValueError):
    """Pixels are outside the range, or the range is unknown."""

    def __init__(self, what: str, fix: str):
        super().__init__(f"{what}. {fix}")
        self.what, self.fix = what, fix


def to_eight_bits(image: Any, opened: Any, content: bytes, image_range: Any, on_unclear: Any = None) -> Any:
    """Convert a decoded image to 8 bits per channel, with white at 255.

    Args:
        opened: the image as opened by Pillow, with its tags.
        content: the bytes of its file; empty if unknown.
        on_unclear: called with the brightest pixel if white is unknown; None: raise an error.
    """
    from PIL import Image

    if image.mode != "F" and not image.mode.startswith("I"):
        return _color_to_eight_bits(image, opened, content, image_range, on_unclear)
    pixels = np.asarray(image)
    white = stated_white(opened, content, pixels) or resolve_white(pixels, image_range, on_unclear)
    scaled, transparent = scale_to_uint8(pixels, white), image.info.get("transparency")
    if isinstance(transparent, int):
        scaled[pixels == transparent] = 255
    return Image.fromarray(scaled)


def scale_to_uint8(pixels: np.ndarray, white: float) -> np.ndarray:
    """Scale pixels of any type to uint8; if white is 65,535, keep the upper 8 bits."""
    low, high = float(pixels.min()), float(pixels.max())
    if not 0 <= low <= high <= white:
        what = f"pixels from {low:,.10g} to {high:,.10g}, where 0 is black and {white:,.10g} is white"
        raise RangeError(what, FIX_RANGE)
    if white == WHITE_16 and pixels.dtype.kind in "iu":
        return (pixels >> 8).astype(np.uint8)
    scaled = np.multiply(pixels, 255 / white, dtype=np.float32)  # fp64 could need half a gigabyte
    return np.rint(scaled, out=scaled).astype(np.uint8)


def resolve_white(pixels: np.ndarray, image_range: Any, on_unclear: Any = None) -> float:
    """The value of white if the file does not state it."""
    if isinstance(image_range, int | float):
        return image_range
    if pixels.dtype.kind == "f":
        raise RangeError("has floating-point pixels, whose range is unknown", FIX_RANGE)
    brightest = int(pixels.max())
    if on_unclear is not None:
        on_unclear(brightest)
    elif image_range is None and 0 < brightest <= MAX_UNCLEAR:
        raise RangeError(*few_bits_error(brightest))
    return WHITE_16


def few_bits_error(brightest: int) -> tuple[str, str]:
    """The error message and the fix if the brightest pixel of 16 bits would be nearly black."""
    white, full = likely_white(brightest), WHITE_16
    what = (
        f"the brightest pixel is {brightest:,} of {full:,}: a dark image, or fewer bits in a file of 16 or 32"
    )
    fix = f"Save it with 8 bits, or fit with image_range={white} if that is white, {full} if images are dark"
    return what, fix


def likely_white(brightest: int) -> int:
    """The lowest maximum value of 8, 10, 12, 14 or 16 bits that is not below ``brightest``."""
    return next((2**bits - 1 for bits in (8, 10, 12, 14) if brightest < 2**bits), WHITE_16)


def stated_white(opened: Any, content: bytes, pixels: np.ndarray) -> float | None:
    """The value of white that the file states; None if unknown, or the maximum of the pixel type."""
    if opened.format == "PPM":  # Pillow has scaled it by the maximum that the file states
        return WHITE_16 if _ppm_white(content) not in (None, WHITE_16) else None
    if hasattr(opened, "tag_v2"):
        return _tiff_white(opened.tag_v2)
    if opened.format != "PNG":
        return None
    start = content.find(b"\0\0\0\1sBIT", 8, max(content.find(b"IDAT"), 0))
    bits = content[start + 8] if start > 0 else 16
    if not 0 < bits < 16:
        return None
    if pixels.max() >= 1 << bits:  # by the PNG specification, fewer bits are scaled up to 16
        return WHITE_16
    values, top = np.unique(pixels).astype(np.float64), 2**bits - 1
    is_shifted = not (values % (1 << (16 - bits))).any()
    is_scaled = (np.rint(np.rint(values * top / WHITE_16) * WHITE_16 / top) == values).all()
    return None if is_shifted or is_scaled else top


def _tiff_white(tags: Any) -> float | None:
    """White by BitsPerSample, OME's SignificantBits, MaxSampleValue or SMaxSampleValue."""

    def first(tag: int) -> Any:
        value = tags.get(tag)
        return value[0] if isinstance(value, tuple) and value else value

    ome = re.search(r'<OME.*?SignificantBits="(\d{1,2})"', str(first(270)), re.DOTALL)
    all_bits = [first(258) or 1, *([ome[1]] if ome else [])]
    candidates = [*(2 ** int(bits) - 1 for bits in all_bits), first(281), first(341)]
    return next((int(white) for white in candidates if white in STATED_WHITES), None)


def _ppm_white(content: bytes) -> int | None:
    tokens = re.sub(rb"#[^\r\n]*", b"", content[:4096]).split(None, 4)
    return int(tokens[3]) if len(tokens) > 3 and tokens[3].isdigit() else None


def _color_to_eight_bits(image: Any, opened: Any, content: bytes, image_range: Any, on_unclear: Any) -> Any:
    """Convert a color image. Pillow returns only the upper 8 of 16 bits: correct if white is 65,535."""
    from PIL import Image

    tags = getattr(opened, "tag_v2", {})
    if 2 in (tags.get(339) or ()):
        fix = "Save the image with 8 or 16 bits without a sign"
        raise RangeError("has signed 8-bit pixels, which are not supported", fix)
    is_deep = {
        "TIFF": lambda: max(tags.get(258) or (1,)) > 8,
        "PNG": lambda: content[24:25] == b"\x10",
        "PPM": lambda: _ppm_white(content) == WHITE_16,
    }
    if opened.format not in is_deep or not is_deep[opened.format]():
        return image
    white = _tiff_white(tags) or image_range
    if white == WHITE_16 or (white == "full" and on_unclear is None):
        return image
    pixels = _read_sixteen_bits(image, content)
    if pixels is None:
        brightest = max(high for _, high in image.convert("RGB").getextrema())
        pixels = np.array([max(0, brightest * 257 - 128)])  # a lower bound, since scaling to 8 bits rounds
    white = resolve_white(pixels[..., :3], white, on_unclear)
    if white == WHITE_16:
        return image
    if pixels.ndim < 3:
        what = f"this color format is supported only with white at {WHITE_16:,}, but here it is {white:,.10g}"
        raise RangeError(what, "Save the image with 8 bits per channel")
    pixels[..., 3:] = np.minimum(pixels[..., 3:], int(white))  # the alpha channel may use all bits
    return Image.fromarray(scale_to_uint8(pixels, white))


def _read_sixteen_bits(image: Any, content: bytes) -> np.ndarray | None:
    """A color image with all 16 bits. Pillow returns the lower 8 bits if it reads the other byte order."""
    from PIL import Image, ImageOps

    low_image = Image.open(io.BytesIO(content)) if content else None
    if low_image is None or not low_image.tile or image.mode not in ("RGB", "RGBA"):
        return None
    tiles = []
    for tile in list[Any](low_image.tile):
        codec, extents, offset, args = tile
        mode = args if isinstance(args, str) else args[0]
        if mode not in (f"{image.mode};16{order}" for order in "BLN"):
            return None
        mode = mode[:-1] + ("L" if mode[-1] == "B" else "B")
        values = codec, extents, offset, mode if isinstance(args, str) else (mode, *args[1:])
        tiles.append(type(tile)(*values) if hasattr(tile, "_fields") else values)
    low_image.tile = tiles
    low = ImageOps.exif_transpose(low_image)
    return np.asarray(image).astype(np.uint16) << 8 | np.asarray(low)
