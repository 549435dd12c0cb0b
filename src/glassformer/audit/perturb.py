"""Changes of texts and images that preserve their meaning.

Each example has a separate random generator, so the results are reproducible. The image changes follow the 15
common corruptions of ImageNet-C (Hendrycks and Dietterich, 2019) at medium severity. Images are first reduced
to at most ``MAX_SIDE`` pixels per side.
"""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from glassformer.data.image import open_image
from glassformer.data.text_pairs import TextPair

MAX_SIDE = 224  # pixels
TYPO_SHARE = 0.2  # share of the words that get a typo
JPEG_QUALITY = 15  # of 100

# --- texts ----------------------------------------------------------------------------------------


def typos(text: str, rng: np.random.Generator) -> str:
    """Swap two neighboring letters in a fifth of the words with four or more letters."""
    words = text.split(" ")
    for i, word in enumerate(words):
        if len(word) > 3 and word.isalpha() and rng.random() < TYPO_SHARE:
            position = int(rng.integers(1, len(word) - 2)) if len(word) > 4 else 1
            words[i] = word[:position] + word[position + 1] + word[position] + word[position + 2 :]
    return " ".join(words)


def without_accents(text: str, rng: np.random.Generator) -> str:
    """Remove accents: à becomes a; ß does not change."""
    letters = unicodedata.normalize("NFD", text.replace("đ", "d").replace("Đ", "D"))
    return unicodedata.normalize("NFC", "".join(c for c in letters if not unicodedata.combining(c)))


def without_punctuation(text: str, rng: np.random.Generator) -> str:
    """Replace punctuation by spaces; a text that consists of punctuation does not change."""
    without = "".join(" " if unicodedata.category(c)[0] == "P" else c for c in text)
    return " ".join(without.split()) or text


TEXT_CHANGES: Mapping[str, Callable[[str, np.random.Generator], str]] = {
    "typos": typos,
    "lower case": lambda text, rng: text.lower(),
    "upper case": lambda text, rng: text.upper(),
    "accents dropped": without_accents,
    "punctuation dropped": without_punctuation,
}


# --- images ---------------------------------------------------------------------------------------
#
# Each function takes pixels [H, W, 3] in 0 to 1.


def _filtered(blur: ImageFilter.Filter) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    return lambda x, rng: _pixels(_image(x).filter(blur))


def _image(x: np.ndarray) -> Image.Image:
    return Image.fromarray((x.clip(0, 1) * 255).round().astype(np.uint8))


def _pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB"), float) / 255


def _impulse(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    noise = rng.random(x.shape[:2])
    out = x.copy()
    out[noise < 0.03], out[noise > 0.97] = 0, 1
    return out


def _glass(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Replace pixels by random nearby pixels."""
    height, width, _ = x.shape
    rows, columns = np.mgrid[:height, :width]
    rows = (rows + rng.integers(-2, 3, rows.shape)).clip(0, height - 1)
    columns = (columns + rng.integers(-2, 3, columns.shape)).clip(0, width - 1)
    return x[rows, columns]


def _motion(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.mean([np.roll(x, shift, 1) for shift in range(-4, 5)], 0)


def _zoom(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    height, width, _ = x.shape
    image, out = _image(x), [x]
    for share in (0.04, 0.08, 0.12):
        box = (share * width / 2, share * height / 2, width * (1 - share / 2), height * (1 - share / 2))
        out.append(_pixels(image.resize((width, height), Image.Resampling.BILINEAR, box=box)))
    return np.mean(out, 0)


def _clouds(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Smooth noise ``[H, W, 1]`` in 0 to 1."""
    height, width = shape[:2]
    sizes = (2, 4, 8, 16)
    parts = [
        np.asarray(Image.fromarray(rng.random((n, n)).astype(np.float32)).resize((width, height)), float) / n
        for n in sizes
    ]
    out = np.sum(parts, 0)
    return ((out - out.min()) / max(np.ptp(out), 1e-9))[:, :, None]


def _snow(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    flakes = (rng.random(x.shape[:2]) > 0.97).astype(float)[:, :, None]
    streaks = np.mean([np.roll(flakes, (i, i), (0, 1)) for i in range(4)], 0) * 2
    return np.maximum(x, 0.75 * x + 0.2 * x.mean()) + streaks


def _elastic(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    height, width, _ = x.shape
    rows, columns = np.mgrid[:height, :width]
    shifts = [(_clouds(x.shape, rng)[:, :, 0] - 0.5) * 0.12 * min(height, width) for _ in range(2)]
    rows = (rows + shifts[0]).round().astype(int).clip(0, height - 1)
    columns = (columns + shifts[1]).round().astype(int).clip(0, width - 1)
    return x[rows, columns]


def _pixelate(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    height, width, _ = x.shape
    small = _image(x).resize((max(width // 3, 1), max(height // 3, 1)), Image.Resampling.BOX)
    return _pixels(small.resize((width, height), Image.Resampling.NEAREST))


def _jpeg(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    file = io.BytesIO()
    _image(x).save(file, "JPEG", quality=JPEG_QUALITY)
    return _pixels(Image.open(file))


IMAGE_CHANGES: Mapping[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "Gaussian noise": lambda x, rng: x + rng.normal(0, 0.12, x.shape),
    "shot noise": lambda x, rng: rng.poisson(x.clip(0, 1) * 25) / 25,
    "impulse noise": _impulse,
    "defocus": _filtered(ImageFilter.GaussianBlur(2)),
    "frosted glass": _glass,
    "motion blur": _motion,
    "zoom blur": _zoom,
    "snow": _snow,
    "frost": lambda x, rng: 0.7 * x + 0.45 * np.maximum(_clouds(x.shape, rng) - 0.35, 0),
    "fog": lambda x, rng: (x + 1.2 * _clouds(x.shape, rng)) / 2.2,
    "brightness": lambda x, rng: x + 0.25,
    "low contrast": lambda x, rng: (x - x.mean()) * 0.35 + x.mean(),
    "elastic": _elastic,
    "pixelate": _pixelate,
    "JPEG": _jpeg,
}


def pixels_of(example: Any) -> np.ndarray:
    """The pixels ``[H, W, 3]`` (0 to 1) of an image, with at most ``MAX_SIDE`` pixels per side."""
    opened = open_image(example).convert("RGB")
    opened.thumbnail((MAX_SIDE, MAX_SIDE))
    return _pixels(opened)


def as_image(x: np.ndarray) -> np.ndarray:
    """Pixels from 0 to 1 as an image ``[H, W, 3]`` for the model, in uint8."""
    return (x.clip(0, 1) * 255).round().astype(np.uint8)


def changed(example: Any, name: str, seed: int) -> Any:
    """An example with the change ``name`` of ``TEXT_CHANGES`` or ``IMAGE_CHANGES``; of pairs, both texts."""
    rng = np.random.default_rng(seed)
    if name in IMAGE_CHANGES:
        return as_image(IMAGE_CHANGES[name](pixels_of(example), rng))
    change = TEXT_CHANGES[name]
    if isinstance(example, TextPair):
        return TextPair(*(change(side, rng) for side in example.sides))
    return change(example, rng)
