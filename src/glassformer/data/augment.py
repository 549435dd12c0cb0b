"""The augmentation ladder: a batch at a time, yet every image gets its own draw.

    none     the evaluation view
    shift    moved by up to an eighth, and flipped: the usual for images of 32 pixels
    light    a random part of the image (8 to 100 % of its area) scaled to size, and flipped
    medium   light, then brightness, contrast, saturation and hue, and a quarter of the images partly erased
    strong   medium, with two operations of RandAugment (Cubuk et al., 2020) at magnitude 9 of 30 instead
    stacked  the two operations on top of medium's colors, none of which they replace

All that moves pixels (crop, flip, rotation, shear, translation) is one affine map an image, so pixels are
read once. kornia's own ``RandAugment`` draws one policy for the whole batch; here the images that drew the
same operation are changed together. Every draw comes from the generator given, so a batch can be made again.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.config import nearest
from glassformer.data.image import Brightest, open_picture
from glassformer.data.transform import ImageTransform, PixelTable, read_pictures
from glassformer.errors import BadValueError

if TYPE_CHECKING:
    from PIL.Image import Image


LEVELS = ("none", "shift", "light", "medium", "strong", "stacked")
DRAWN = ("strong", "stacked")  # with RandAugment
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)  # of a random part
JITTER = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
ERASE = 0.25  # share of images that lose a rectangle of 2 to 33 % of their area
MAGNITUDE = 9 / 30  # of RandAugment
GRAY = (0.299, 0.587, 0.114)  # what the eye sees of red, green and blue (ITU-R BT.601)


def augment(
    pixels: Tensor, size: tuple[int, ...], level: str, generator: torch.Generator, *, flip: bool = True
) -> Tensor:
    """uint8 ``[B, C, H, W]`` -> ``[B, C, h, w]``, uint8 or floats from 0 to 1 (as ``normalize`` takes them).

    Args:
        size: (height, width) that comes out; with ``none`` and ``shift`` the size that went in.
        generator: of the CPU; where all draws come from.

    Raises:
        ConfigError: no such level.
    """
    if level not in LEVELS:
        raise BadValueError(f"no augmentation {level!r}", where="augment", fix=nearest(level, list(LEVELS)))
    if level == "none":
        return pixels
    if level == "shift":
        return _shift(pixels, generator, flip)
    b, device = len(pixels), pixels.device
    theta = _random_part(b, pixels.shape[2:], generator, flip)
    drawn = None
    if level in DRAWN:
        drawn = torch.randint(len(OPERATIONS), (2, b), generator=generator)
        signs = torch.randint(2, (2, b), generator=generator).float() * 2.0 - 1.0
        for operations, sign in zip(drawn, signs, strict=True):
            theta = theta @ _moved(operations, sign)
    grid = F.affine_grid(theta[:, :2].to(device), [b, pixels.shape[1], *size], align_corners=False)
    x = F.grid_sample(pixels.float() / 255, grid, "bilinear", "zeros", align_corners=False)
    if level in ("medium", "stacked"):
        x = _jitter(x, generator)
    if drawn is not None:
        for operations, sign in zip(drawn, signs, strict=True):
            x = _recolored(x, operations, sign)
    if level in ("medium", *DRAWN):
        x = _erase(x, generator)
    return x.clamp(0, 1)


def _uniform(generator: torch.Generator, count: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    return low + (high - low) * torch.rand(count, generator=generator)


def _shift(pixels: Tensor, generator: torch.Generator, flip: bool) -> Tensor:
    """Each image moved by up to an eighth of its side, black coming in, and half of them mirrored."""
    b, _, h, w = pixels.shape
    reach = max(1, h // 8), max(1, w // 8)
    padded = F.pad(pixels, (reach[1], reach[1], reach[0], reach[0]))
    top = torch.randint(2 * reach[0] + 1, (b,), generator=generator)
    left = torch.randint(2 * reach[1] + 1, (b,), generator=generator)
    columns = torch.arange(w).repeat(b, 1)
    if flip:
        mirrored = torch.randint(2, (b,), generator=generator).bool()
        columns[mirrored] = columns[mirrored].flip(1)
    rows = (top[:, None] + torch.arange(h)).to(pixels.device)  # [B, h]
    columns = (left[:, None] + columns).to(pixels.device)  # [B, w]
    number = torch.arange(b, device=pixels.device)
    chosen = padded.permute(0, 2, 3, 1)[number[:, None, None], rows[:, :, None], columns[:, None]]
    return chosen.permute(0, 3, 1, 2)


def _random_part(b: int, shape: torch.Size, generator: torch.Generator, flip: bool) -> Tensor:
    """A map ``[B, 3, 3]`` from places in the result to places in the image: a random part of it."""
    area = _uniform(generator, b, *AREA)
    ratio = torch.exp(_uniform(generator, b, math.log(RATIO[0]), math.log(RATIO[1])))
    aspect = shape[1] / shape[0]
    width, height = (area * ratio / aspect).sqrt().clamp(max=1), (area / ratio * aspect).sqrt().clamp(max=1)
    theta = torch.zeros(b, 3, 3)
    theta[:, 0, 0], theta[:, 1, 1], theta[:, 2, 2] = width, height, 1.0
    theta[:, 0, 2] = (1 - width) * _uniform(generator, b, -1, 1)
    theta[:, 1, 2] = (1 - height) * _uniform(generator, b, -1, 1)
    if flip:
        theta[:, 0, 0] *= torch.randint(2, (b,), generator=generator).float() * 2.0 - 1.0
    return theta


def _jitter(x: Tensor, generator: torch.Generator) -> Tensor:
    b = len(x)
    for name in ("brightness", "contrast", "saturation"):
        factor = _uniform(generator, b, 1 - JITTER[name], 1 + JITTER[name]).to(x.device)
        x = COLORS[name](x, factor).clamp(0, 1)
    turn = _uniform(generator, b, -JITTER["hue"], JITTER["hue"]) * 2 * math.pi
    if x.shape[1] == 3:
        from kornia.enhance import adjust_hue

        x = adjust_hue(x, turn.to(x.device))
    return x


def _erase(x: Tensor, generator: torch.Generator) -> Tensor:
    """A rectangle of some images becomes their mean (Zhong et al., 2020)."""
    b, _, h, w = x.shape
    area, ratio = _uniform(generator, b, 0.02, 0.33), torch.exp(_uniform(generator, b, -1.2, 1.2))
    height, width = (area * ratio).sqrt().clamp(max=1) * h, (area / ratio).sqrt().clamp(max=1) * w
    top, left = _uniform(generator, b) * (h - height), _uniform(generator, b) * (w - width)
    chosen = _uniform(generator, b) < ERASE
    hole = _boxes(h, w, top, left, height, width) & chosen[:, None, None, None]
    return torch.where(hole.to(x.device), x.mean((2, 3), keepdim=True), x)


def _boxes(h: int, w: int, top: Tensor, left: Tensor, height: Tensor, width: Tensor) -> Tensor:
    """Which pixels of each image lie in its rectangle, bool ``[B, 1, h, w]``."""
    rows, columns = torch.arange(h)[None], torch.arange(w)[None]
    in_rows = (rows >= top[:, None]) & (rows < (top + height)[:, None])
    in_columns = (columns >= left[:, None]) & (columns < (left + width)[:, None])
    return (in_rows[:, :, None] & in_columns[:, None])[:, None]


# --- colors: each takes images and one factor an image; 1 leaves them as they are ----------------


def _gray(x: Tensor) -> Tensor:
    if x.shape[1] == 1:
        return x
    return (x * torch.tensor(GRAY, device=x.device)[:, None, None]).sum(1, keepdim=True)


def _towards(x: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    return other + (x - other) * factor[:, None, None, None]


COLORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "brightness": lambda x, f: _towards(x, torch.zeros_like(x), f),
    "contrast": lambda x, f: _towards(x, _gray(x).mean((2, 3), keepdim=True), f),
    "saturation": lambda x, f: _towards(x, _gray(x), f),
}

# --- RandAugment ------------------------------------------------------------------------------------

OPERATIONS = (
    "identity rotate shear_x shear_y translate_x translate_y brightness contrast saturation sharpness "
    "autocontrast equalize solarize posterize"
).split()


def _moved(operations: Tensor, sign: Tensor) -> Tensor:
    """The maps ``[B, 3, 3]`` of the operations that move pixels; the others give the identity."""
    theta = torch.eye(3).repeat(len(operations), 1, 1)
    strength = MAGNITUDE * sign
    angle = strength * math.radians(30)
    which = {name: operations == OPERATIONS.index(name) for name in OPERATIONS[1:6]}
    turned = which["rotate"]
    theta[turned, 0, 0] = theta[turned, 1, 1] = torch.cos(angle[turned])
    theta[turned, 0, 1], theta[turned, 1, 0] = -torch.sin(angle[turned]), torch.sin(angle[turned])
    cells = {"shear_x": (0, 1), "shear_y": (1, 0), "translate_x": (0, 2), "translate_y": (1, 2)}
    for name, (row, column) in cells.items():
        theta[which[name], row, column] = strength[which[name]] * (0.3 if "shear" in name else 0.9)
    return theta


def _recolored(x: Tensor, operations: Tensor, sign: Tensor) -> Tensor:
    from kornia import enhance

    def stretched(some: Tensor) -> Tensor:
        low, high = some.amin((2, 3), keepdim=True), some.amax((2, 3), keepdim=True)
        return torch.where(high > low, (some - low) / (high - low).clamp(min=1e-6), some)

    out = x.clone()
    for number, name in enumerate(OPERATIONS[6:], 6):
        places = (operations == number).nonzero().squeeze(1)
        if not len(places):
            continue
        here = places.to(x.device)
        some = x[here].clamp(0, 1)
        if name in COLORS:
            some = COLORS[name](some, (1 + 0.9 * MAGNITUDE * sign[places]).to(x.device))
        elif name == "sharpness":
            some = enhance.sharpness(some, 1 + 0.9 * MAGNITUDE)
        elif name == "autocontrast":
            some = stretched(some)
        elif name == "equalize":
            some = enhance.equalize(some)
        elif name == "solarize":
            some = torch.where(some >= 1 - MAGNITUDE, 1 - some, some)
        else:  # posterize: this many bits of 8 stay
            steps = 2.0 ** (8 - round(4 * MAGNITUDE))
            some = (some * 255 / (256 / steps)).floor() * (256 / steps) / 255
        out[here] = some.clamp(0, 1)
    return out


# --- two images as one ---------------------------------------------------------------------------


def one_hot(targets: Tensor, classes: int) -> Tensor:
    """Class numbers ``[B]`` -> ``[B, C]``, fp32; torch's own looks at the values, which makes a GPU wait."""
    return (targets[:, None] == torch.arange(classes, device=targets.device)).float()


@dataclass(frozen=True)
class Mixed:
    """Each image's other half: example ``partner[i]`` of the batch has ``1 - share[i]`` of image i."""

    partner: Tensor  # [B] places in the batch
    share: Tensor  # [B] of the image itself, from 0 to 1

    def soften(self, targets: Tensor, classes: int) -> Tensor:
        """Class numbers ``[B]`` -> soft labels ``[B, C]`` that sum to 1."""
        hard = one_hot(targets, classes)
        share = self.share.to(hard.device)[:, None]
        return share * hard + (1 - share) * hard[self.partner.to(hard.device)]


def mix_pairs(
    x: Tensor, kind: str, share: float, alpha: float, generator: torch.Generator
) -> tuple[Tensor, Mixed | None]:
    """Mixup (Zhang et al., 2018) adds images; CutMix (Yun et al., 2019) cuts a box of one into another.

    Args:
        kind: mixup, cutmix, or both (one of them, by chance).
        share: probability that the batch is mixed at all.
        alpha: of the Beta distribution of how much stays.
    """
    if float(torch.rand((), generator=generator)) >= share:
        return x, None
    if kind == "both":
        kind = ("mixup", "cutmix")[int(torch.randint(2, (), generator=generator))]
    b, _, h, w = x.shape
    partner = torch.randperm(b, generator=generator)
    # Beta(a, a) from two gamma draws; torch's take a generator only below the distributions.
    draw = torch._standard_gamma  # pyright: ignore[reportPrivateImportUsage]  # see above
    gamma = draw(torch.full((2, b), alpha), generator=generator).clamp(min=1e-8)
    keep = gamma[0] / gamma.sum(0)
    other = x[partner.to(x.device)]
    if kind == "mixup":
        weight = keep.to(x.device)[:, None, None, None]
        return weight * x + (1 - weight) * other, Mixed(partner, keep)
    side = (1 - keep).sqrt()
    height, width = (side * h).round(), (side * w).round()
    top = (_uniform(generator, b) * (h + 1 - height)).floor()
    left = (_uniform(generator, b) * (w + 1 - width)).floor()
    cut = _boxes(h, w, top, left, height, width).to(x.device)
    kept = 1 - height * width / (h * w)  # the share that really stayed
    return torch.where(cut, other, x), Mixed(partner, kept)


# --- a fixed suite of changes ---------------------------------------------------------------------
# How far does accuracy fall when images get worse?
# Random crops and lighting are part of some augmentations too, so they are not new to every model.
# Six kinds, five severities each, all drawn from a seed (in the manner of Hendrycks and Dietterich, 2019).
# They act on 8-bit images of the size that the model reads.

SEVERITIES = (1, 2, 3, 4, 5)
# What each severity means.
CROP = (0.9, 0.8, 0.7, 0.55, 0.4)  # share of each side that stays, at a random place
LIGHT = (0.15, 0.3, 0.45, 0.6, 0.75)  # how far brightness goes, up or down
BLUR = (0.008, 0.016, 0.024, 0.036, 0.05)  # standard deviation of a Gaussian, in image sides
NOISE = (8, 16, 26, 38, 54)  # standard deviation, of 255
JPEG = (50, 30, 20, 12, 6)  # quality
ROTATION = (8, 16, 26, 38, 52)  # degrees, left or right
KINDS = {"crop": CROP, "light": LIGHT, "blur": BLUR, "noise": NOISE, "jpeg": JPEG, "rotation": ROTATION}


def corrupt(table: PixelTable, kind: str, severity: int, seed: int = 0) -> PixelTable:
    """The images changed in one way.

    Args:
        severity: 1 (hardly seen) to 5 (hard for people too).

    Raises:
        ConfigError: no such kind or severity.
    """
    if kind not in KINDS:
        raise BadValueError(f"no kind {kind!r}", where="robustness", fix=nearest(kind, list(KINDS)))
    if severity not in SEVERITIES:
        raise BadValueError(f"severity {severity}", where="robustness", fix="Use 1 to 5")
    rng = np.random.default_rng([seed, list(KINDS).index(kind), severity])
    strength = KINDS[kind][severity - 1]
    out = np.empty_like(table.pixels)
    for i, pixels in enumerate(table.pixels):
        out[i] = _change(pixels, kind, float(strength), rng)
    return PixelTable(out)


def _change(pixels: np.ndarray, kind: str, strength: float, rng: np.random.Generator) -> np.ndarray:
    """One image uint8 ``[C, H, W]``, changed."""
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


# --- a contact sheet ------------------------------------------------------------------------------
# What each augmentation makes of some images, side by side, before any training.

MIXES = ("mixup", "cutmix")
SIDE, GAP, HEAD = 112, 6, 22  # pixels of a cell, between cells, and above the first row
SEED = 0  # the same sheet every time


def sheet_columns(level: str) -> list[str]:
    """The original, every level of the ladder up to ``level``, and both ways to mix.

    Raises:
        ConfigError: no such level.
    """
    if level not in LEVELS:
        raise BadValueError(f"no augmentation {level!r}", where="--augment", fix=nearest(level, list(LEVELS)))
    return ["original", *LEVELS[1 : LEVELS.index(level) + 1], *MIXES]


def contact_sheet(pictures: Sequence[Any], level: str, origin: str = "images") -> Image:
    """A row for each image, a column for each of ``sheet_columns``; all draws come from one fixed seed.

    Raises:
        ConfigError: no such level.
        DataError: an image that cannot be read, by name.
    """
    from PIL import Image, ImageDraw

    columns = sheet_columns(level)
    side = min(SIDE, max(max(open_picture(picture).size) for picture in pictures))
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
        if changed.dtype != torch.uint8:  # floats from 0 to 1
            changed = (255 * changed).round().clamp(0, 255).to(torch.uint8)
        for i, cell in enumerate(np.ascontiguousarray(changed.permute(0, 2, 3, 1).numpy())):
            picture = Image.fromarray(cell).resize((SIDE, SIDE), Image.Resampling.NEAREST)
            sheet.paste(picture, (GAP + j * step, HEAD + i * step))
    return sheet
