"""A fixed suite of changes: how far does accuracy fall when pictures get worse?

Random crops and lighting are part of some augmentations too, so they are not new to every model.

Six kinds, five severities each, all drawn from a seed (in the manner of Hendrycks and Dietterich, 2019). They
act on 8-bit pictures of the size that the model reads.
"""

from __future__ import annotations

import io
import math

import numpy as np

from glassformer.config import nearest
from glassformer.data.transform import PixelTable
from glassformer.errors import ConfigError

SEVERITIES = (1, 2, 3, 4, 5)
# What each severity means.
CROP = (0.9, 0.8, 0.7, 0.55, 0.4)  # share of each side that stays, at a random place
LIGHT = (0.15, 0.3, 0.45, 0.6, 0.75)  # how far brightness goes, up or down
BLUR = (0.008, 0.016, 0.024, 0.036, 0.05)  # standard deviation of a Gaussian, in picture sides
NOISE = (8, 16, 26, 38, 54)  # standard deviation, of 255
JPEG = (50, 30, 20, 12, 6)  # quality
ROTATION = (8, 16, 26, 38, 52)  # degrees, left or right
KINDS = {"crop": CROP, "light": LIGHT, "blur": BLUR, "noise": NOISE, "jpeg": JPEG, "rotation": ROTATION}


def corrupt(table: PixelTable, kind: str, severity: int, seed: int = 0) -> PixelTable:
    """The pictures changed in one way.

    Args:
        severity: 1 (hardly seen) to 5 (hard for people too).

    Raises:
        ConfigError: no such kind or severity.
    """
    if kind not in KINDS:
        raise ConfigError(f"no kind {kind!r}", where="robustness", fix=nearest(kind, list(KINDS)))
    if severity not in SEVERITIES:
        raise ConfigError(f"severity {severity}", where="robustness", fix="Use 1 to 5")
    rng = np.random.default_rng([seed, list(KINDS).index(kind), severity])
    strength = KINDS[kind][severity - 1]
    out = np.empty_like(table.pixels)
    for i, pixels in enumerate(table.pixels):
        out[i] = _change(pixels, kind, float(strength), rng)
    return PixelTable(out)


def _change(pixels: np.ndarray, kind: str, strength: float, rng: np.random.Generator) -> np.ndarray:
    """One picture uint8 ``[C, H, W]``, changed."""
    from PIL import Image, ImageFilter

    _, h, w = pixels.shape
    if kind == "noise":
        return np.clip(pixels + rng.normal(0, strength, pixels.shape), 0, 255).astype(np.uint8)
    if kind == "light":
        factor = 1 + strength * rng.choice((-1.0, 1.0))
        return np.clip(pixels * factor, 0, 255).astype(np.uint8)
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    if kind == "crop":
        height, width = max(1, round(h * strength)), max(1, round(w * strength))
        top, left = rng.integers(h - height + 1), rng.integers(w - width + 1)
        image = image.resize((w, h), Image.Resampling.BILINEAR, box=(left, top, left + width, top + height))
    elif kind == "blur":
        image = image.filter(ImageFilter.GaussianBlur(strength * math.sqrt(h * w)))
    elif kind == "rotation":
        image = image.rotate(strength * rng.choice((-1.0, 1.0)), Image.Resampling.BILINEAR)
    else:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=int(strength))
        image = Image.open(file)
    array = np.asarray(image, np.uint8)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
