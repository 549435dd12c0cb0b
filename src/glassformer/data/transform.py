"""Image preprocessing for training, evaluation and serving: resize, crop, normalize.

Resizing and cropping use 8-bit pixels, as in Hugging Face's image processors. So images in memory take one
byte per value, and are normalized when they are used.
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

from glassformer.data.image import DARK, BrightestPixel, ImageRange, image_name, open_image
from glassformer.data.image_range import likely_white
from glassformer.errors import ConfigError, DimImagesWarning

if TYPE_CHECKING:
    from PIL.Image import Image

Fit = Literal["squash", "crop", "squash-crop"]
Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos"]
RESAMPLE = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}  # numbers of Pillow and of the Hub
MOST_SIDE = 4_096  # maximum side in pixels in a settings file
MOST_SHORTER = 8  # maximum ratio of the shorter side after resizing and the side of the crop
MOST_VALUE = 10_000  # maximum mean and std; std is at least its inverse
RANGE = "image_range"  # our additional key in the settings file
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ImageTransform:
    """Converts images to pixel values.

    Args:
        size: (height, width) of the model's input.
        fit: ``squash``: resize to that size, ignoring the aspect ratio; ``crop``: resize the shorter side to
            ``shorter``, then crop the center; ``squash-crop``: resize both sides to ``shorter``, then crop.
        channels: 3, or 1 for gray.
        image_range: the value of white for images of more than 8 bits that do not state it: a number, or
            "full" (65,535) if the training images leave no doubt; None: unknown.

    Raises:
        ConfigError: a size below 1, or mean and std that do not match the channels.
    """

    size: tuple[int, ...] = (224, 224)
    fit: Fit = "squash"
    shorter: int = 0  # for crops; 0: the larger side of ``size``
    interpolation: Interpolation = "bilinear"
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    channels: int = 3
    image_range: ImageRange = None

    def __post_init__(self) -> None:
        if len(self.size) != 2 or min(self.size) < 1 or self.shorter < 0:
            raise ConfigError(f"{self.size} is not a (height, width) in pixels", where="image_size")
        if self.channels not in (1, 3):
            raise ConfigError(f"{self.channels} channels", where="channels", fix="Use 3, or 1 for gray")
        if len(self.mean) != self.channels or len(self.std) != self.channels or min(self.std) <= 0:
            what = f"mean {self.mean} and std {self.std} do not fit {self.channels} channels"
            raise ConfigError(what, where="mean", fix="Give one number for each channel, std above 0")
        if self.fit != "squash" and self.shorter and self.shorter < max(self.size):
            what = f"a shorter side of {self.shorter} pixels is too small for a crop of {self.size}"
            raise ConfigError(what, where="resize")

    def picture(
        self, source: Any, where: str = "picture", brightest: BrightestPixel | None = None
    ) -> np.ndarray:
        """One image as uint8 ``[C, H, W]``; for ``brightest`` see ``open_image``."""
        image = open_image(source, where, self.image_range, brightest)
        image = self._scaled(image.convert("L") if self.channels == 1 else image)
        if self.fit != "squash":
            (height, width), (w, h) = self.size, image.size
            top, left = (h - height) // 2, (w - width) // 2
            image = image.crop((left, top, left + width, top + height))
        array = np.asarray(image, dtype=np.uint8)
        return array[None].copy() if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))

    def _scaled(self, image: Image) -> Image:
        from PIL import Image as pil

        width, height = image.size
        side = self.shorter or max(self.size)  # before a crop
        if self.fit == "squash":
            wanted = (self.size[1], self.size[0])
        elif self.fit == "squash-crop":
            wanted = (side, side)
        else:
            short, long = sorted(image.size)
            other = int(side * long / short)
            wanted = (side, other) if width <= height else (other, side)
        if wanted == image.size:
            return image
        return image.resize(wanted, pil.Resampling(RESAMPLE[self.interpolation]), reducing_gap=None)

    def _scale(self, device: torch.device) -> Iterator[Tensor]:
        """Mean and standard deviation ``[C, 1, 1]``."""
        return (torch.tensor(values, device=device).view(-1, 1, 1) for values in (self.mean, self.std))

    def normalize(self, pixels: Tensor) -> Tensor:
        """Normalize ``[B, C, H, W]``, uint8 or floats from 0 to 1, to fp32 by mean and standard deviation."""
        scale = 255.0 if pixels.dtype == torch.uint8 else 1.0
        mean, std = self._scale(pixels.device)
        return (pixels.float() - scale * mean) / (scale * std)

    def pixels_of(self, values: Tensor) -> np.ndarray:
        """Convert normalized values ``[C, H, W]`` back to uint8 ``[H, W, C]``."""
        mean, std = self._scale(values.device)
        raw = (values.float() * std + mean).clamp(0.0, 1.0) * 255.0
        return raw.round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()

    def wider(self) -> ImageTransform:
        """The transform without the final crop, for random crops in training."""
        if self.fit == "squash" or not self.shorter:
            return self
        return replace(self, size=(self.shorter, self.shorter))

    # --- the Hub's file --------------------------------------------------------------------------

    def to_hub(self) -> dict[str, Any]:
        """The content of ``preprocessor_config.json``."""
        height, width = self.size
        crop = self.fit != "squash"
        side = self.shorter or max(self.size)
        processor, scaled = {
            "squash": ("ViTImageProcessor", {"height": height, "width": width}),
            "crop": ("CLIPImageProcessor", {"shortest_edge": side}),
            "squash-crop": ("DeiTImageProcessor", {"height": side, "width": side}),
        }[self.fit]
        return {
            "image_processor_type": processor,
            "do_resize": True,
            "size": scaled,
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
        """The transform of a ``preprocessor_config.json``, of any version of transformers.

        Args:
            before: ``image_range`` if the file does not have it.

        Raises:
            ConfigError: an unsupported step.
        """
        try:
            return _read_settings({RANGE: before, **settings}, where)
        except ConfigError:
            raise
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            what = f"has invalid settings of image preprocessing ({str(error)[:100]})"
            raise ConfigError(what, where=where, fix="Download it again") from None


# Unsupported steps: by their setting, and by image processors that apply them by default.
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
    processor = str(settings.get("image_processor_type") or settings.get("feature_extractor_type") or "ViT")
    wanted = ("resample", "image_mean", "image_std") if settings.get("do_normalize", True) else ("resample",)
    if not processor.startswith("ViT") and (missing := [key for key in wanted if key not in settings]):
        what = f"{missing[0]} is missing, and the default of a {processor} differs from that of a ViT"
        raise ConfigError(what, where=where, fix="Write it into the file")
    for key in FOREIGN_STEPS:
        if settings.get(key):
            raise ConfigError(f"{key} = {settings[key]!r} is not supported", where=where)
    for name, step in FOREIGN_KINDS.items():
        if processor.startswith(name) and settings.get(step, True):
            raise ConfigError(f"{step}, a step of {processor}, is not supported", where=where)
    if not settings.get("do_resize", True):
        raise ConfigError("images that are not resized are not supported", where=where)
    rescaled = settings.get("do_rescale", True)
    if rescaled and abs(float(settings.get("rescale_factor", 1 / 255)) - 1 / 255) > 1e-9:
        raise ConfigError(f"rescale_factor = {settings['rescale_factor']} is not supported", where=where)
    normal = settings.get("do_normalize", True)
    mean, std = (settings.get(key, 0.5) for key in ("image_mean", "image_std"))
    mean, std = (3 * (x,) if isinstance(x, int | float) else x for x in (mean, std))  # one for all channels
    crop = bool(settings.get("do_center_crop", False))
    squash = processor.startswith("DeiT") if isinstance(size, int) else "shortest_edge" not in size
    shortest = size if isinstance(size, int) else size.get("shortest_edge")
    if not squash and not crop and not isinstance(size, int):
        raise ConfigError("a shortest edge without a crop gives images of many sizes", where=where)
    if squash and crop:
        shortest, other = _pair(size, where)
        if shortest != other:
            raise ConfigError("a crop after scaling to a rectangle is not supported", where=where)
    cut, side = _pair(crop_size if crop else size, where), int(shortest) if crop else 0
    if not all(1 <= n <= MOST_SIDE for n in (*cut, side or 1)):
        raise ConfigError(f"{cut} is not a size up to {MOST_SIDE:,} pixels", where=where)
    mean, std = tuple(map(float, mean)), tuple(map(float, std))
    if not all(abs(m) <= MOST_VALUE for m in mean) or not all(1 / MOST_VALUE <= s <= MOST_VALUE for s in std):
        what = f"mean {mean} and std {std} are out of range"
        fix = f"Use a mean up to {MOST_VALUE:,}, and a std from {1 / MOST_VALUE:g}"
        raise ConfigError(what, where=where, fix=fix)
    if side > MOST_SHORTER * max(cut):
        raise ConfigError(f"a shorter side of {side:,} pixels is too large for a crop of {cut}", where=where)
    white: Any = settings.get(RANGE)
    given = isinstance(white, int | float) and not isinstance(white, bool)
    if (given and not 0 < white < math.inf) or not (given or white in (None, "full")):
        raise ConfigError(f"{RANGE} = {white!r} is neither a number above 0 nor full", where=where)
    mean, std = (mean, std) if normal else ((0.0,) * len(mean), (1.0,) * len(mean))
    if not rescaled:  # then they refer to 0 - 255, and ours to 0 - 1
        mean, std = tuple(m / 255 for m in mean), tuple(s / 255 for s in std)
    fit, how = ("squash-crop" if squash else "crop") if crop else "squash", names[number]
    return ImageTransform(cut, fit, side, how, mean, std, len(mean), white)  # type: ignore[arg-type]  # its names


def _pair(size: Any, where: str) -> tuple[int, int]:
    if isinstance(size, int):
        return size, size
    if isinstance(size, dict) and {"height", "width"} <= size.keys():
        return int(size["height"]), int(size["width"])
    raise ConfigError(f"{size!r} is not a size of images", where=where)


@dataclass(frozen=True)
class PixelTable:
    """Decoded images of one size: ``pixels`` ``[n, C, H, W]``, uint8."""

    pixels: np.ndarray

    def __len__(self) -> int:
        return len(self.pixels)


def read_pictures(
    pictures: Sequence[Any],
    transform: ImageTransform,
    origin: str = "images",
    rows: Sequence[int] | None = None,
    brightest: BrightestPixel | None = None,
) -> PixelTable:
    """Decode, resize and crop all images; for ``brightest`` see ``open_image``.

    Raises:
        DataError: an image is unreadable; the message has its file or position.
    """
    out = np.empty((len(pictures), transform.channels, *transform.size), np.uint8)
    for i, source in enumerate(pictures):
        out[i] = transform.picture(source, image_name(source, origin, i, rows), brightest)
    return PixelTable(out)


def read_to_train(
    pictures: Sequence[Any], transform: ImageTransform, wide: bool
) -> tuple[PixelTable, ImageTransform]:
    """Read training images; also returns the transform with the ``image_range`` determined by them.

    Args:
        wide: skip the final crop, since augmentation crops.

    Raises:
        DataError: an image is unreadable, or all images of more than 8 bits would be nearly black.
    """
    brightest = BrightestPixel()
    table = read_pictures(pictures, transform.wider() if wide else transform, brightest=brightest)
    transform = replace(transform, image_range=brightest.resolve_range(transform.image_range))
    if (most := int(table.pixels.max())) < DARK:
        what = f"the brightest pixel of {len(table):,} training images is {most} of 255: they look black"
        fix = f"set the value of white with image_range={likely_white(brightest.pixel)}"
        warnings.warn(f"{what}; {fix}" if brightest.pixel else what, DimImagesWarning, stacklevel=2)
    return table, transform
