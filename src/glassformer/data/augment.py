"""Augmentation of image batches, with random parameters per image.

    none     no augmentation
    shift    translation by up to an eighth, and horizontal flip; common for images of 32 pixels
    light    random resized crop (8 to 100 % of the area), and horizontal flip
    medium   light; then brightness, contrast, saturation and hue, and random erasing in a quarter of images
    strong   light; then two operations of RandAugment (Cubuk et al., 2020), magnitude 9 of 30, and erasing
    stacked  medium, with the two operations of RandAugment after the color changes

All geometric operations (crop, flip, rotation, shear, translation) of an image are combined in one affine
map, so each image is resampled once. kornia's ``RandAugment`` draws one policy per batch. Here each image has
its own policy, and images with the same operation are processed together. All random numbers come from the
``generator`` argument, so a batch is reproducible.
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

from glassformer.config import suggest
from glassformer.data.image import BrightestPixel, open_image
from glassformer.data.transform import ImageTransform, PixelTable, read_images
from glassformer.errors import BadValueError

if TYPE_CHECKING:
    from PIL.Image import Image


LEVELS = ("none", "shift", "light", "medium", "strong", "stacked")
RANDAUGMENT_LEVELS = ("strong", "stacked")  # levels with RandAugment
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)  # ranges of a random crop: share of the area, and aspect ratio
JITTER = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
ERASED_SHARE = 0.25  # share of the images in which a rectangle of 2 to 33 % of the area is erased
MAGNITUDE = 9 / 30  # strength of RandAugment's operations, from 0 to 1
GRAY = (0.299, 0.587, 0.114)  # luma weights of red, green and blue (ITU-R BT.601)


def augment(
    pixels: Tensor, size: tuple[int, ...], level: str, generator: torch.Generator, *, flip: bool = True
) -> Tensor:
    """Augment uint8 ``[B, C, H, W]`` to ``[B, C, h, w]``, uint8 or floats from 0 to 1.

    Args:
        size: (height, width) of the result; ignored for ``none`` and ``shift``, which keep the size.
        generator: a CPU generator.

    Raises:
        ConfigError: unknown level.
    """
    if level not in LEVELS:
        raise _unknown_level_error(level, "augment")
    if level == "none":
        return pixels
    if level == "shift":
        return _shift(pixels, generator, flip)
    b, device = len(pixels), pixels.device
    theta = _random_crop(b, pixels.shape[2:], generator, flip)
    rounds: list[tuple[Tensor, Tensor]] = []  # of RandAugment: operation and sign of each image
    if level in RANDAUGMENT_LEVELS:
        operations = torch.randint(len(OPERATIONS), (2, b), generator=generator)
        signs = torch.randint(2, (2, b), generator=generator).float() * 2.0 - 1.0
        rounds = [*zip(operations, signs, strict=True)]
    for operation, sign in rounds:
        theta = theta @ _geometric_maps(operation, sign)
    grid = F.affine_grid(theta[:, :2].to(device), [b, pixels.shape[1], *size], align_corners=False)
    x = F.grid_sample(pixels.float() / 255, grid, "bilinear", "zeros", align_corners=False)
    if level in ("medium", "stacked"):
        x = _jitter_colors(x, generator)
    for operation, sign in rounds:
        x = _apply_color_operations(x, operation, sign)
    if level in ("medium", *RANDAUGMENT_LEVELS):
        x = _erase(x, generator)
    return x.clamp(0, 1)


def _unknown_level_error(level: str, where: str) -> BadValueError:
    return BadValueError(f"no augmentation {level!r}", where=where, fix=suggest(level, list(LEVELS)))


def _sample_uniform(generator: torch.Generator, count: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    return low + (high - low) * torch.rand(count, generator=generator)


def _shift(pixels: Tensor, generator: torch.Generator, flip: bool) -> Tensor:
    """Translate each image by up to an eighth of its side, with black borders, and flip half of them."""
    b, _, h, w = pixels.shape
    max_shift = max(1, h // 8), max(1, w // 8)
    padded = F.pad(pixels, (max_shift[1], max_shift[1], max_shift[0], max_shift[0]))
    top = torch.randint(2 * max_shift[0] + 1, (b,), generator=generator)
    left = torch.randint(2 * max_shift[1] + 1, (b,), generator=generator)
    columns = torch.arange(w).repeat(b, 1)
    if flip:
        is_flipped = torch.randint(2, (b,), generator=generator).bool()
        columns[is_flipped] = columns[is_flipped].flip(1)
    rows = (top[:, None] + torch.arange(h)).to(pixels.device)  # [B, h]
    columns = (left[:, None] + columns).to(pixels.device)  # [B, w]
    batch_indices = torch.arange(b, device=pixels.device)
    shifted = padded.permute(0, 2, 3, 1)[batch_indices[:, None, None], rows[:, :, None], columns[:, None]]
    return shifted.permute(0, 3, 1, 2)


def _random_crop(b: int, shape: torch.Size, generator: torch.Generator, flip: bool) -> Tensor:
    """Affine maps ``[B, 3, 3]`` of random crops, from positions in the result to positions in the image."""
    area = _sample_uniform(generator, b, *AREA)
    ratio = torch.exp(_sample_uniform(generator, b, math.log(RATIO[0]), math.log(RATIO[1])))
    aspect = shape[1] / shape[0]
    width, height = (area * ratio / aspect).sqrt().clamp(max=1), (area / ratio * aspect).sqrt().clamp(max=1)
    theta = torch.zeros(b, 3, 3)
    theta[:, 0, 0], theta[:, 1, 1], theta[:, 2, 2] = width, height, 1.0
    theta[:, 0, 2] = (1 - width) * _sample_uniform(generator, b, -1, 1)
    theta[:, 1, 2] = (1 - height) * _sample_uniform(generator, b, -1, 1)
    if flip:
        theta[:, 0, 0] *= torch.randint(2, (b,), generator=generator).float() * 2.0 - 1.0
    return theta


def _jitter_colors(x: Tensor, generator: torch.Generator) -> Tensor:
    b = len(x)
    for name in ("brightness", "contrast", "saturation"):
        factor = _sample_uniform(generator, b, 1 - JITTER[name], 1 + JITTER[name]).to(x.device)
        x = COLORS[name](x, factor).clamp(0, 1)
    hue_shift = _sample_uniform(generator, b, -JITTER["hue"], JITTER["hue"]) * 2 * math.pi
    if x.shape[1] == 3:
        from kornia.enhance import adjust_hue

        x = adjust_hue(x, hue_shift.to(x.device))
    return x


def _erase(x: Tensor, generator: torch.Generator) -> Tensor:
    """Fill a random rectangle of some images with their mean (random erasing, Zhong et al., 2020)."""
    b, _, h, w = x.shape
    area, ratio = (
        _sample_uniform(generator, b, 0.02, 0.33),
        torch.exp(_sample_uniform(generator, b, -1.2, 1.2)),
    )
    height, width = (area * ratio).sqrt().clamp(max=1) * h, (area / ratio).sqrt().clamp(max=1) * w
    top, left = _sample_uniform(generator, b) * (h - height), _sample_uniform(generator, b) * (w - width)
    is_erased = _sample_uniform(generator, b) < ERASED_SHARE
    in_erased_rectangle = _in_rectangles(h, w, top, left, height, width) & is_erased[:, None, None, None]
    return torch.where(in_erased_rectangle.to(x.device), x.mean((2, 3), keepdim=True), x)


def _in_rectangles(h: int, w: int, top: Tensor, left: Tensor, height: Tensor, width: Tensor) -> Tensor:
    """Which pixels of each image are in its rectangle, bool ``[B, 1, h, w]``."""
    rows, columns = torch.arange(h)[None], torch.arange(w)[None]
    in_rows = (rows >= top[:, None]) & (rows < (top + height)[:, None])
    in_columns = (columns >= left[:, None]) & (columns < (left + width)[:, None])
    return (in_rows[:, :, None] & in_columns[:, None])[:, None]


# --- color changes, which take images and one factor per image; a factor of 1 changes nothing -----


def _to_gray(x: Tensor) -> Tensor:
    if x.shape[1] == 1:
        return x
    return (x * torch.tensor(GRAY, device=x.device)[:, None, None]).sum(1, keepdim=True)


def _blend(x: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    return other + (x - other) * factor[:, None, None, None]


COLORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "brightness": lambda x, f: _blend(x, torch.zeros_like(x), f),
    "contrast": lambda x, f: _blend(x, _to_gray(x).mean((2, 3), keepdim=True), f),
    "saturation": lambda x, f: _blend(x, _to_gray(x), f),
}

# --- RandAugment ------------------------------------------------------------------------------------

OPERATIONS = "identity rotate shear_x shear_y translate_x translate_y brightness contrast saturation".split()
OPERATIONS += "sharpness autocontrast equalize solarize posterize".split()


def _geometric_maps(operation: Tensor, sign: Tensor) -> Tensor:
    """Affine maps ``[B, 3, 3]`` of geometric operations; the identity for other operations."""
    theta = torch.eye(3).repeat(len(operation), 1, 1)
    strength = MAGNITUDE * sign
    angle = strength * math.radians(30)
    rotated = operation == OPERATIONS.index("rotate")
    sin, cos = torch.sin(angle[rotated]), torch.cos(angle[rotated])
    theta[rotated, 0, 0], theta[rotated, 0, 1] = cos, -sin
    theta[rotated, 1, 0], theta[rotated, 1, 1] = sin, cos
    cells = {"shear_x": (0, 1), "shear_y": (1, 0), "translate_x": (0, 2), "translate_y": (1, 2)}
    for number, name in enumerate(OPERATIONS[2:6], 2):
        (row, column), changed = cells[name], operation == number
        theta[changed, row, column] = strength[changed] * (0.3 if "shear" in name else 0.9)
    return theta


def _apply_color_operations(x: Tensor, operation: Tensor, sign: Tensor) -> Tensor:
    from kornia import enhance

    def stretch(images: Tensor) -> Tensor:
        low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
        return torch.where(high > low, (images - low) / (high - low).clamp(min=1e-6), images)

    step = 2 ** round(4 * MAGNITUDE)  # posterize keeps some of the 8 bits
    other_operations: dict[str, Callable[[Tensor], Tensor]] = {
        "sharpness": lambda images: enhance.sharpness(images, 1 + 0.9 * MAGNITUDE),
        "autocontrast": stretch,
        "equalize": enhance.equalize,
        "solarize": lambda images: torch.where(images >= 1 - MAGNITUDE, 1 - images, images),
        "posterize": lambda images: (images * 255 / step).floor() * step / 255,
    }
    result = x.clone()
    for number, name in enumerate(OPERATIONS[6:], 6):
        indices = (operation == number).nonzero().squeeze(1)
        if not len(indices):
            continue
        device_indices = indices.to(x.device)
        images = x[device_indices].clamp(0, 1)
        if name in COLORS:
            images = COLORS[name](images, (1 + 0.9 * MAGNITUDE * sign[indices]).to(x.device))
        else:
            images = other_operations[name](images)
        result[device_indices] = images.clamp(0, 1)
    return result


# --- mixup and CutMix ----------------------------------------------------------------------------


def one_hot(targets: Tensor, classes: int) -> Tensor:
    """One-hot vectors ``[B, C]``, fp32. ``F.one_hot`` would read the values, which synchronizes the GPU."""
    return (targets[:, None] == torch.arange(classes, device=targets.device)).float()


@dataclass(frozen=True)
class MixedPairs:
    """The pairs of a mixed batch: ``share[i]`` of image i, and ``1 - share[i]`` of its partner."""

    partner: Tensor  # [B] position in the batch of each image's partner
    share: Tensor  # [B] from 0 to 1

    def soften(self, targets: Tensor, classes: int) -> Tensor:
        """Soft labels ``[B, C]`` of class numbers ``[B]``; each row sums to 1."""
        hard = one_hot(targets, classes)
        share = self.share.to(hard.device)[:, None]
        return share * hard + (1 - share) * hard[self.partner.to(hard.device)]


def mix_pairs(
    x: Tensor, kind: str, share: float, alpha: float, generator: torch.Generator
) -> tuple[Tensor, MixedPairs | None]:
    """Mix images in pairs: mixup (Zhang et al., 2018) or CutMix (Yun et al., 2019).

    Args:
        kind: ``mixup``, ``cutmix``, or ``both`` (one of them at random).
        share: probability that the batch is mixed.
        alpha: the shares of the two images are drawn from Beta(alpha, alpha).
    """
    if float(torch.rand((), generator=generator)) >= share:
        return x, None
    if kind == "both":
        kind = ("mixup", "cutmix")[int(torch.randint(2, (), generator=generator))]
    b, _, h, w = x.shape
    partner = torch.randperm(b, generator=generator)
    # Sample Beta(alpha, alpha) from two gamma variates: torch.distributions does not accept a generator.
    sample_gamma = torch._standard_gamma  # pyright: ignore[reportPrivateImportUsage]  # see above
    gamma = sample_gamma(torch.full((2, b), alpha), generator=generator).clamp(min=1e-8)
    shares = gamma[0] / gamma.sum(0)
    other = x[partner.to(x.device)]
    if kind == "mixup":
        weight = shares.to(x.device)[:, None, None, None]
        return weight * x + (1 - weight) * other, MixedPairs(partner, shares)
    side = (1 - shares).sqrt()
    height, width = (side * h).round(), (side * w).round()
    top = (_sample_uniform(generator, b) * (h + 1 - height)).floor()
    left = (_sample_uniform(generator, b) * (w + 1 - width)).floor()
    in_box = _in_rectangles(h, w, top, left, height, width).to(x.device)
    exact_shares = 1 - height * width / (h * w)  # of the rounded box
    return torch.where(in_box, other, x), MixedPairs(partner, exact_shares)


# --- corruptions for a robustness test ------------------------------------------------------------
# Six kinds of corruption with five severities each, seeded (similar to Hendrycks and Dietterich, 2019). They
# are applied to 8-bit images of the model's input size. Some augmentations also change crops and brightness,
# so a model may have seen such corruptions in training.

SEVERITIES = (1, 2, 3, 4, 5)
CORRUPTIONS = {  # kind -> strength for each severity
    "crop": (0.9, 0.8, 0.7, 0.55, 0.4),  # size of the crop, at a random position, relative to each side
    "light": (0.15, 0.3, 0.45, 0.6, 0.75),  # relative change of brightness, up or down
    "blur": (0.008, 0.016, 0.024, 0.036, 0.05),  # standard deviation of a Gaussian, relative to the side
    "noise": (8, 16, 26, 38, 54),  # standard deviation of Gaussian noise, in gray levels (0 to 255)
    "jpeg": (50, 30, 20, 12, 6),  # JPEG quality (1 to 95)
    "rotation": (8, 16, 26, 38, 52),  # degrees, left or right
}


def corrupt(table: PixelTable, kind: str, severity: int, seed: int = 0) -> PixelTable:
    """Apply one kind of corruption to all images.

    Args:
        severity: 1 (hardly visible) to 5 (difficult for people, too).

    Raises:
        ConfigError: unknown kind or severity.
    """
    if kind not in CORRUPTIONS:
        fix = suggest(kind, list(CORRUPTIONS))
        raise BadValueError(f"no corruption {kind!r}", where="robustness", fix=fix)
    if severity not in SEVERITIES:
        raise BadValueError(f"no severity {severity}", where="robustness", fix="Use 1 to 5")
    rng = np.random.default_rng([seed, list(CORRUPTIONS).index(kind), severity])
    strength = CORRUPTIONS[kind][severity - 1]
    corrupted = np.empty_like(table.pixels)
    for i, pixels in enumerate(table.pixels):
        corrupted[i] = _corrupt_image(pixels, kind, float(strength), rng)
    return PixelTable(corrupted)


def _corrupt_image(pixels: np.ndarray, kind: str, strength: float, rng: np.random.Generator) -> np.ndarray:
    """Corrupt one image, uint8 ``[C, H, W]``."""
    from PIL import Image, ImageFilter

    _, h, w = pixels.shape
    if kind == "noise":
        return np.clip(pixels + rng.normal(0, strength, pixels.shape), 0, 255).astype(np.uint8)
    if kind == "light":
        return np.clip(pixels * (1 + strength * rng.choice((-1.0, 1.0))), 0, 255).astype(np.uint8)
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


# --- a grid of augmented images -------------------------------------------------------------------

MIX_COLUMNS = ("mixup", "cutmix")
CELL_SIDE, GAP, HEADER_HEIGHT = 112, 6, 22  # pixels: side of a cell, gap between cells, height of the header
SEED = 0


def sheet_columns(level: str) -> list[str]:
    """The column names of the grid: original, every level up to ``level``, mixup and CutMix.

    Raises:
        ConfigError: unknown level.
    """
    if level not in LEVELS:
        raise _unknown_level_error(level, "--augment")
    return ["original", *LEVELS[1 : LEVELS.index(level) + 1], *MIX_COLUMNS]


def contact_sheet(image_inputs: Sequence[Any], level: str, origin: str = "images") -> Image:
    """A grid with one row per image and one column per augmentation (``sheet_columns``); the seed is fixed.

    Raises:
        ConfigError: unknown level.
        DataError: an image is unreadable; the message has its name.
    """
    from PIL import Image, ImageDraw

    columns = sheet_columns(level)
    side = min(CELL_SIDE, max(max(open_image(image).size) for image in image_inputs))
    brightest = BrightestPixel()
    table = read_images(image_inputs, ImageTransform((side, side)), origin, brightest=brightest)
    brightest.resolve_range(None)
    original = torch.from_numpy(table.pixels)
    results = []
    for name in columns:
        generator = torch.Generator().manual_seed(SEED)
        if name in MIX_COLUMNS:
            results.append(mix_pairs(original.float() / 255, name, 1.0, 1.0, generator)[0])
        else:
            results.append(augment(original, (side, side), name if name in LEVELS else "none", generator))
    step = CELL_SIDE + GAP
    sheet = Image.new("RGB", (step * len(columns) + GAP, HEADER_HEIGHT + step * len(image_inputs)), "white")
    draw = ImageDraw.Draw(sheet)
    for j, (name, images) in enumerate(zip(columns, results, strict=True)):
        draw.text((GAP + j * step, 5), name, "black")
        if images.dtype != torch.uint8:  # floats from 0 to 1
            images = (255 * images).round().clamp(0, 255).to(torch.uint8)
        for i, cell in enumerate(np.ascontiguousarray(images.permute(0, 2, 3, 1).numpy())):
            cell_image = Image.fromarray(cell).resize((CELL_SIDE, CELL_SIDE), Image.Resampling.NEAREST)
            sheet.paste(cell_image, (GAP + j * step, HEADER_HEIGHT + i * step))
    return sheet
