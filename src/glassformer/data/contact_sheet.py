"""A contact sheet: what each augmentation makes of some pictures, side by side, before any training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from glassformer.config import nearest
from glassformer.data.augment import LEVELS, augment, mix_pairs
from glassformer.data.image import Brightest
from glassformer.data.transform import ImageTransform, read_pictures
from glassformer.errors import ConfigError

if TYPE_CHECKING:
    from PIL.Image import Image

MIXES = ("mixup", "cutmix")
SIDE, GAP, HEAD = 112, 6, 22  # pixels of a cell, between cells, and above the first row
SEED = 0  # the same sheet every time


def sheet_columns(level: str) -> list[str]:
    """The original, every level of the ladder up to ``level``, and both ways to mix.

    Raises:
        ConfigError: no such level.
    """
    if level not in LEVELS:
        raise ConfigError(f"no augmentation {level!r}", where="--augment", fix=nearest(level, list(LEVELS)))
    return ["original", *LEVELS[1 : LEVELS.index(level) + 1], *MIXES]


def contact_sheet(pictures: Sequence[Any], level: str, origin: str = "pictures") -> Image:
    """A row for each picture, a column for each of ``sheet_columns``; all draws come from one fixed seed.

    Raises:
        ConfigError: no such level.
        DataError: a picture that cannot be read, by name.
    """
    from PIL import Image, ImageDraw

    columns = sheet_columns(level)
    side = min(SIDE, max(max(_size(picture)) for picture in pictures))
    brightest = Brightest()
    table = read_pictures(pictures, ImageTransform((side, side)), origin, brightest=brightest)
    brightest.settle(None)
    original = torch.from_numpy(table.pixels)
    made = []
    for name in columns:
        generator = torch.Generator().manual_seed(SEED)
        if name in MIXES:
            made.append(mix_pairs(original.float() / 255, name, 1.0, 1.0, generator)[0])
        else:
            made.append(augment(original, (side, side), name if name in LEVELS else "none", generator))
    step = SIDE + GAP
    sheet = Image.new("RGB", (step * len(columns) + GAP, HEAD + step * len(pictures)), "white")
    draw = ImageDraw.Draw(sheet)
    for j, (name, changed) in enumerate(zip(columns, made, strict=True)):
        draw.text((GAP + j * step, 5), name, "black")
        for i, cell in enumerate(_bytes(changed)):
            picture = Image.fromarray(cell).resize((SIDE, SIDE), Image.Resampling.NEAREST)
            sheet.paste(picture, (GAP + j * step, HEAD + i * step))
    return sheet


def _size(picture: Any) -> tuple[int, int]:
    from glassformer.data.image import open_picture

    return open_picture(picture).size


def _bytes(pixels: torch.Tensor) -> np.ndarray:
    """uint8, or floats from 0 to 1, ``[B, C, h, w]`` -> uint8 ``[B, h, w, C]``."""
    if pixels.dtype != torch.uint8:
        pixels = (255 * pixels).round().clamp(0, 255).to(torch.uint8)
    return np.ascontiguousarray(pixels.permute(0, 2, 3, 1).numpy())
