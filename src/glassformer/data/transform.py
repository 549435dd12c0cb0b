"""From an image to what a model reads: scaled, cut, normalized; the same to train, evaluate and serve.

Everything up to the cut is done on 8-bit pixels, as Hugging Face's image processors do it, so that what is
kept in memory is one byte a value and normalizing is left to the moment of use.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from glassformer.data.image import DIM, Brightest, ImageRange, open_picture, picture_name
from glassformer.data.image_range import likely_white
from glassformer.errors import ConfigError, DimImagesWarning

if TYPE_CHECKING:
    from PIL.Image import Image

Fit = Literal["squash", "crop"]
Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos"]
RESAMPLE = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}  # Pillow's numbers, and the Hub's
MOST_SIDE = 4_096  # pixels, of what a file of settings may ask for
MOST_SHORTER = 8  # times the side that is cut out of an image: how far it is scaled up before
MOST_VALUE = 10_000  # of means and deviations; of these, its inverse is the least
RANGE = "image_range"  # key of a file of settings, which the Hub does not have
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ImageTransform:
    """How images become pixel values.

    Args:
        size: (height, width) that the model reads.
        fit: squash: scaled to that size whatever the shape; crop: the shorter side scaled to ``shorter``,
            then the center cut out.
        channels: 3, or 1 for gray.
        image_range: the value of white of images of more than 8 bits that do not state it: a number, or
            "full" (65,535) where training images leave no doubt; None: that is not known.

    Raises:
        ConfigError: a size below 1, means and deviations that do not fit the channels.
    """

    size: tuple[int, ...] = (224, 224)
    fit: Fit = "squash"
    shorter: int = 0  # with crop; 0: as ``size``
    interpolation: Interpolation = "bilinear"
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    channels: int = 3
    image_range: ImageRange = None

    def __post_init__(self) -> None:
        if len(self.size) != 2 or min(self.size) < 1 or self.shorter < 0:
            raise ConfigError(f"{self.size} is no (height, width) in pixels", where="image_size")
        if self.channels not in (1, 3):
            raise ConfigError(f"{self.channels} channels", where="channels", fix="Use 3, or 1 for gray")
        if len(self.mean) != self.channels or len(self.std) != self.channels or min(self.std) <= 0:
            what = f"mean {self.mean} and std {self.std} do not fit {self.channels} channels"
            raise ConfigError(what, where="mean", fix="Give one number for each channel, std above 0")
        if self.fit == "crop" and self.shorter and self.shorter < max(self.size):
            what = f"a shorter side of {self.shorter} pixels cannot hold a cut of {self.size}"
            raise ConfigError(what, where="resize")

    def picture(self, source: Any, where: str = "picture", brightest: Brightest | None = None) -> np.ndarray:
        """One image as uint8 ``[C, H, W]``; ``brightest`` as in ``open_picture``."""
        image = open_picture(source, where, self.image_range, brightest)
        image = self._scaled(image.convert("L") if self.channels == 1 else image)
        if self.fit == "crop":
            (height, width), (w, h) = self.size, image.size
            top, left = (h - height) // 2, (w - width) // 2
            image = image.crop((left, top, left + width, top + height))
        array = np.asarray(image, dtype=np.uint8)
        return array[None].copy() if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))

    def _scaled(self, image: Image) -> Image:
        from PIL import Image as pil

        width, height = image.size
        if self.fit == "squash":
            wanted = (self.size[1], self.size[0])
        else:
            short, long = sorted(image.size)
            side = self.shorter or max(self.size)
            other = int(side * long / short)
            wanted = (side, other) if width <= height else (other, side)
        if wanted == image.size:
            return image
        return image.resize(wanted, pil.Resampling(RESAMPLE[self.interpolation]), reducing_gap=None)

    def _scale(self, device: torch.device) -> Iterator[Tensor]:
        """Mean and deviation ``[C, 1, 1]``."""
        return (torch.tensor(values, device=device).view(-1, 1, 1) for values in (self.mean, self.std))

    def normalize(self, pixels: Tensor) -> Tensor:
        """uint8 ``[B, C, H, W]``, or floats from 0 to 1 -> fp32 with the mean and deviation taken out."""
        scale = 255.0 if pixels.dtype == torch.uint8 else 1.0
        mean, std = self._scale(pixels.device)
        return (pixels.float() - scale * mean) / (scale * std)

    def pixels_of(self, values: Tensor) -> np.ndarray:
        """Normalized values ``[C, H, W]`` back as uint8 ``[H, W, C]``."""
        mean, std = self._scale(values.device)
        raw = (values.float() * std + mean).clamp(0.0, 1.0) * 255.0
        return raw.round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()

    def wider(self) -> ImageTransform:
        """The same without the last cut to size: what random crops of training are drawn from."""
        if self.fit == "squash" or not self.shorter:
            return self
        return replace(self, size=(self.shorter, self.shorter))

    # --- the Hub's file --------------------------------------------------------------------------

    def to_hub(self) -> dict[str, Any]:
        """The content of ``preprocessor_config.json``."""
        height, width = self.size
        crop = self.fit == "crop"
        side = self.shorter or max(self.size)
        return {
            "image_processor_type": "ViTImageProcessor" if not crop else "CLIPImageProcessor",
            "do_resize": True,
            "size": {"shortest_edge": side} if crop else {"height": height, "width": width},
            "resample": RESAMPLE[self.interpolation],
            "do_center_crop": crop,
            **({"crop_size": {"height": height, "width": width}} if crop else {}),
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(self.mean),
            "image_std": list(self.std),
            "do_convert_rgb": self.channels == 3,
            RANGE: self.image_range,
        }

    @staticmethod
    def from_hub(
        settings: dict[str, Any], where: str = "preprocessor_config.json", before: ImageRange = None
    ) -> ImageTransform:
        """The reverse; files of several generations are read.

        Args:
            before: ``image_range`` of a file that says nothing of it.

        Raises:
            ConfigError: a step that we do not have.
        """
        try:
            return _read_settings({RANGE: before, **settings}, where)
        except ConfigError:
            raise
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            what = f"does not say how images are prepared ({str(error)[:100]})"
            raise ConfigError(what, where=where, fix="Download it again") from None


# Steps that change pixels and that we do not have: by their setting, and by kinds that take them unasked.
FOREIGN_STEPS = (
    *("do_flip_channel_order", "do_pad", "crop_pct", "do_grayscale", "rescale_offset", "do_color_quantize"),
    *("do_thumbnail", "do_align_long_axis", "do_crop_margin", "do_image_splitting", "keep_aspect_ratio"),
)
FOREIGN_KINDS = {
    "ConvNext": "crop_pct",
    "PoolFormer": "crop_pct",
    "Levit": "a scale of 256/224 before its crop",
    "MobileViT": "do_flip_channel_order",
    "ImageGPT": "do_color_quantize",
    "Donut": "do_thumbnail",
}


def _read_settings(settings: dict[str, Any], where: str) -> ImageTransform:
    size, crop_size = settings.get("size", 224), settings.get("crop_size")
    names = {number: name for name, number in RESAMPLE.items()}
    if (number := settings.get("resample", 2)) not in names:
        raise ConfigError(f"resample = {number!r} is not supported", where=where)
    kind = str(settings.get("image_processor_type") or settings.get("feature_extractor_type") or "ViT")
    wanted = ("resample", "image_mean", "image_std") if settings.get("do_normalize", True) else ("resample",)
    if not kind.startswith("ViT") and (missing := [key for key in wanted if key not in settings]):
        what = f"{missing[0]} is not said, and a {kind} has others than a ViT by itself"
        raise ConfigError(what, where=where, fix="Write it into the file")
    for key in FOREIGN_STEPS:
        if settings.get(key):
            raise ConfigError(f"{key} = {settings[key]!r} is not supported", where=where)
    for name, step in FOREIGN_KINDS.items():
        if kind.startswith(name) and settings.get(step, True):
            raise ConfigError(f"a {kind} prepares images with {step}, which is not supported", where=where)
    if not settings.get("do_resize", True):
        raise ConfigError("images that are not resized are not supported", where=where)
    rescaled = settings.get("do_rescale", True)
    if rescaled and abs(float(settings.get("rescale_factor", 1 / 255)) - 1 / 255) > 1e-9:
        raise ConfigError(f"rescale_factor = {settings['rescale_factor']} is not supported", where=where)
    normal = settings.get("do_normalize", True)
    mean, std = (settings.get(key, 0.5) for key in ("image_mean", "image_std"))
    mean, std = (3 * (x,) if isinstance(x, int | float) else x for x in (mean, std))  # one for all channels
    crop = bool(settings.get("do_center_crop", False))
    shortest = size.get("shortest_edge") if isinstance(size, dict) else (size if crop else None)
    if shortest and not crop:
        raise ConfigError("a shortest edge without a crop gives images of many sizes", where=where)
    if not shortest and crop:
        raise ConfigError("a crop after scaling both sides is not supported", where=where)
    cut, side = _pair(crop_size if crop else size, where), int(shortest or 0)
    if not all(1 <= n <= MOST_SIDE for n in (*cut, side or 1)):
        raise ConfigError(f"{cut} is not a size up to {MOST_SIDE:,} pixels", where=where)
    mean, std = tuple(map(float, mean)), tuple(map(float, std))
    if not all(abs(m) <= MOST_VALUE for m in mean) or not all(1 / MOST_VALUE <= s <= MOST_VALUE for s in std):
        what = f"mean {mean} and std {std} are not numbers that pixels are scaled by"
        fix = f"A mean is up to {MOST_VALUE:,}, std from {1 / MOST_VALUE:g} on"
        raise ConfigError(what, where=where, fix=fix)
    if side > MOST_SHORTER * max(cut):
        raise ConfigError(f"a shorter side of {side:,} pixels for a cut of {cut}", where=where)
    white: Any = settings.get(RANGE)
    given = isinstance(white, int | float) and not isinstance(white, bool)
    if (given and not 0 < white < math.inf) or not (given or white in (None, "full")):
        raise ConfigError(f"{RANGE} = {white!r} is neither a number above 0 nor full", where=where)
    mean, std = (mean, std) if normal else ((0.0,) * len(mean), (1.0,) * len(mean))
    if not rescaled:  # they are of bytes then, and ours of values up to 1
        mean, std = tuple(m / 255 for m in mean), tuple(s / 255 for s in std)
    fit, how = "crop" if crop else "squash", names[number]
    return ImageTransform(cut, fit, side, how, mean, std, len(mean), white)  # type: ignore[arg-type]  # its names


def _pair(size: Any, where: str) -> tuple[int, int]:
    if isinstance(size, int):
        return size, size
    if isinstance(size, dict) and {"height", "width"} <= size.keys():
        return int(size["height"]), int(size["width"])
    raise ConfigError(f"{size!r} is not a size of images", where=where)


@dataclass(frozen=True)
class PixelTable:
    """Decoded images of one size, one byte a value: ``pixels`` ``[n, C, H, W]`` uint8."""

    pixels: np.ndarray

    def __len__(self) -> int:
        return len(self.pixels)


def read_pictures(
    pictures: Sequence[Any],
    transform: ImageTransform,
    origin: str = "images",
    rows: Sequence[int] | None = None,
    brightest: Brightest | None = None,
) -> PixelTable:
    """Every image decoded, scaled and cut, once; ``brightest`` as in ``open_picture``.

    Raises:
        DataError: one that cannot be read; its file or place is named.
    """
    out = np.empty((len(pictures), transform.channels, *transform.size), np.uint8)
    for i, source in enumerate(pictures):
        out[i] = transform.picture(source, picture_name(source, origin, i, rows), brightest)
    return PixelTable(out)


def read_to_train(
    pictures: Sequence[Any], transform: ImageTransform, wide: bool
) -> tuple[PixelTable, ImageTransform]:
    """Images that a model is going to learn from, and the transform with the ``image_range`` they settle.

    Args:
        wide: without the last cut to size, which augmentation makes.

    Raises:
        DataError: one that cannot be read, or all of more than 8 bits would be nearly black.
    """
    brightest = Brightest()
    table = read_pictures(pictures, transform.wider() if wide else transform, brightest=brightest)
    transform = replace(transform, image_range=brightest.settle(transform.image_range))
    if (most := int(table.pixels.max())) < DIM:
        what = f"the brightest pixel of {len(table):,} training images is {most} of 255: the model sees black"
        fix = f"image_range={likely_white(brightest.pixel)} says what white is"
        warnings.warn(f"{what}; {fix}" if brightest.pixel else what, DimImagesWarning, stacklevel=2)
    return table, transform
