"""Image preprocessing: resize, crop, normalize.

Resizing and cropping use 8-bit pixels, as in Hugging Face's image processors. So images in memory need only
one byte per value. They are normalized when they are used.
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

from glassformer.data.image import DARK_LEVEL, BrightestPixel, ImageRange, image_name, open_image
from glassformer.data.image_range import likely_white
from glassformer.errors import ConfigError, DimImagesWarning

if TYPE_CHECKING:
    from PIL.Image import Image

Fit = Literal["squash", "crop", "squash-crop"]
Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos"]
# interpolation -> its number in Pillow and in settings files
RESAMPLE = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}
# Limits of the values in a settings file:
MAX_SIDE = 4_096  # pixels
MAX_RESIZE_RATIO = 8  # maximum ratio of the resized shorter side to the side of the crop
MAX_STATISTIC = 10_000  # maximum of mean and std; std is at least the inverse of this limit
RANGE_KEY = "image_range"  # a key of the settings file that transformers does not have
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ImageTransform:
    """Converts images to pixel values.

    Args:
        size: (height, width) of the model's input.
        fit: ``squash``: resize to that size, ignoring the aspect ratio; ``crop``: resize the shorter side to
            ``resize_to``, then crop the center; ``squash-crop``: resize both sides to ``resize_to``, then
            crop.
        channels: 3, or 1 for gray.
        image_range: the pixel value of white in images of more than 8 bits whose file does not give one: a
            number, or "full" (65,535) if the training images confirm it; None: unknown.

    Raises:
        ConfigError: a size below 1, or mean and std that do not match the channels.
    """

    size: tuple[int, ...] = (224, 224)
    fit: Fit = "squash"
    resize_to: int = 0  # for crops; 0: the larger side of ``size``
    interpolation: Interpolation = "bilinear"
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    channels: int = 3
    image_range: ImageRange = None

    def __post_init__(self) -> None:
        if len(self.size) != 2 or min(self.size) < 1 or self.resize_to < 0:
            raise ConfigError(f"{self.size} is not a (height, width) in pixels", where="image_size")
        if self.channels not in (1, 3):
            raise ConfigError(f"{self.channels} channels", where="channels", fix="Use 3, or 1 for gray")
        if len(self.mean) != self.channels or len(self.std) != self.channels or min(self.std) <= 0:
            what = f"mean {self.mean} and std {self.std} do not match {self.channels} channels"
            raise ConfigError(what, where="mean", fix="Give one number for each channel, std above 0")
        if self.fit != "squash" and self.resize_to and self.resize_to < max(self.size):
            what = f"a shorter side of {self.resize_to} pixels is too small for a crop of {self.size}"
            raise ConfigError(what, where="resize")

    def read(
        self, source: Any, where: str = "picture", brightest: BrightestPixel | None = None
    ) -> np.ndarray:
        """One image as uint8 ``[C, H, W]``; for ``brightest`` see ``open_image``."""
        image = open_image(source, where, self.image_range, brightest)
        image = self._resize(image.convert("L") if self.channels == 1 else image)
        if self.fit != "squash":
            (height, width), (w, h) = self.size, image.size
            top, left = (h - height) // 2, (w - width) // 2
            image = image.crop((left, top, left + width, top + height))
        array = np.asarray(image, dtype=np.uint8)
        return array[None].copy() if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))

    def _resize(self, image: Image) -> Image:
        from PIL import Image as pil

        width, height = image.size
        short_side = self.resize_to or max(self.size)  # of the image before the crop
        if self.fit == "squash":
            new_size = (self.size[1], self.size[0])
        elif self.fit == "squash-crop":
            new_size = (short_side, short_side)
        else:
            long_side = int(short_side * max(image.size) / min(image.size))
            new_size = (short_side, long_side) if width <= height else (long_side, short_side)
        if new_size == image.size:
            return image
        return image.resize(new_size, pil.Resampling(RESAMPLE[self.interpolation]), reducing_gap=None)

    def _mean_and_std(self, device: torch.device) -> Iterator[Tensor]:
        """Mean and standard deviation ``[C, 1, 1]``."""
        return (torch.tensor(values, device=device).view(-1, 1, 1) for values in (self.mean, self.std))

    def normalize(self, pixels: Tensor) -> Tensor:
        """Normalize pixels ``[B, C, H, W]``, uint8 or floats from 0 to 1, by mean and standard deviation."""
        scale = 255.0 if pixels.dtype == torch.uint8 else 1.0
        mean, std = self._mean_and_std(pixels.device)
        return (pixels.float() - scale * mean) / (scale * std)

    def denormalize(self, values: Tensor) -> np.ndarray:
        """Convert normalized values ``[C, H, W]`` back to uint8 ``[H, W, C]``."""
        mean, std = self._mean_and_std(values.device)
        raw = (values.float() * std + mean).clamp(0.0, 1.0) * 255.0
        return raw.round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()

    def without_crop(self) -> ImageTransform:
        """The transform without the final crop, for random crops in training."""
        if self.fit == "squash" or not self.resize_to:
            return self
        return replace(self, size=(self.resize_to, self.resize_to))

    def to_hub(self) -> dict[str, Any]:
        """The content of ``preprocessor_config.json``."""
        height, width = self.size
        is_cropped = self.fit != "squash"
        side = self.resize_to or max(self.size)
        processor, resized = {
            "squash": ("ViTImageProcessor", {"height": height, "width": width}),
            "crop": ("CLIPImageProcessor", {"shortest_edge": side}),
            "squash-crop": ("DeiTImageProcessor", {"height": side, "width": side}),
        }[self.fit]
        return {
            "image_processor_type": processor,
            "do_resize": True,
            "size": resized,
            "resample": RESAMPLE[self.interpolation],
            "do_center_crop": is_cropped,
            **({"crop_size": {"height": height, "width": width}} if is_cropped else {}),
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(self.mean),
            "image_std": list(self.std),
            "do_convert_rgb": self.channels == 3,
            RANGE_KEY: self.image_range,
        }

    @staticmethod
    def from_hub(
        settings: dict[str, Any], where: str = "preprocessor_config.json", default_range: ImageRange = None
    ) -> ImageTransform:
        """The transform in a ``preprocessor_config.json`` of any version of transformers.

        Args:
            default_range: ``image_range`` if the file does not have this key.

        Raises:
            ConfigError: an unsupported step.
        """
        try:
            return _from_settings({RANGE_KEY: default_range, **settings}, where)
        except ConfigError:
            raise
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            what = f"has invalid settings of image preprocessing ({str(error)[:100]})"
            raise ConfigError(what, where=where, fix="Download it again") from None


# Keys of unsupported steps; image processors -> the unsupported step that they apply by default.
UNSUPPORTED_KEYS = "do_flip_channel_order do_pad crop_pct do_grayscale rescale_offset do_thumbnail".split()
UNSUPPORTED_KEYS += "do_color_quantize do_align_long_axis do_crop_margin do_image_splitting".split()
UNSUPPORTED_KEYS += ["keep_aspect_ratio"]
UNSUPPORTED_STEPS = {
    "ConvNext": "crop_pct",
    "PoolFormer": "crop_pct",
    "Levit": "a scale of 256/224 before its crop",
    "MobileViT": "do_flip_channel_order",
    "ImageGPT": "do_color_quantize",
    "Donut": "do_thumbnail",
}


def _from_settings(settings: dict[str, Any], where: str) -> ImageTransform:
    def check(condition: Any, problem: str, fix: str | None = None) -> None:
        if not condition:
            raise ConfigError(problem, where=where, fix=fix)

    names = {number: name for name, number in RESAMPLE.items()}
    resample = settings.get("resample", 2)
    check(resample in names, f"resample = {resample!r} is not supported")
    processor = str(settings.get("image_processor_type") or settings.get("feature_extractor_type") or "ViT")
    is_normalized = settings.get("do_normalize", True)
    required = ("resample", "image_mean", "image_std") if is_normalized else ("resample",)
    for key in () if processor.startswith("ViT") else required:
        what = f"{key} is missing, and its default in {processor} is not known"
        check(key in settings, what, "Write it into the file")
    for key in UNSUPPORTED_KEYS:
        check(not settings.get(key), f"{key} = {settings.get(key)!r} is not supported")
    for name, step in UNSUPPORTED_STEPS.items():
        is_applied = processor.startswith(name) and settings.get(step, True)
        check(not is_applied, f"{step}, a step of {processor}, is not supported")
    check(settings.get("do_resize", True), "images that are not resized are not supported")
    is_rescaled, factor = settings.get("do_rescale", True), settings.get("rescale_factor", 1 / 255)
    is_usual = not is_rescaled or abs(float(factor) - 1 / 255) <= 1e-9
    check(is_usual, f"rescale_factor = {factor} is not supported")

    size, is_cropped = settings.get("size", 224), bool(settings.get("do_center_crop", False))
    if isinstance(size, int):
        resize_to, is_squashed = size, processor.startswith("DeiT")
    else:
        resize_to, is_squashed = size.get("shortest_edge"), "shortest_edge" not in size
        what = "a shortest edge without a crop gives images of many sizes"
        check(is_squashed or is_cropped, what)
    if is_squashed and is_cropped:
        resize_to, other = _height_and_width(size, where)
        check(resize_to == other, "a crop after scaling to a rectangle is not supported")
    final_size = _height_and_width(settings.get("crop_size") if is_cropped else size, where)
    resize_to = int(resize_to) if is_cropped else 0
    are_sides = all(1 <= side <= MAX_SIDE for side in (*final_size, resize_to or 1))
    check(are_sides, f"{final_size} is not a size up to {MAX_SIDE:,} pixels")

    mean, std = (settings.get(key, 0.5) for key in ("image_mean", "image_std"))
    mean, std = (3 * [x] if isinstance(x, int | float) else x for x in (mean, std))
    mean, std = tuple(map(float, mean)), tuple(map(float, std))
    limit = MAX_STATISTIC
    in_range = all(abs(m) <= limit for m in mean) and all(1 / limit <= s <= limit for s in std)
    fix = f"Use a mean up to {limit:,}, and a std from {1 / limit:g}"
    check(in_range, f"mean {mean} and std {std} are out of range", fix)
    what = f"a shorter side of {resize_to:,} pixels is too large for a crop of {final_size}"
    check(resize_to <= MAX_RESIZE_RATIO * max(final_size), what)
    white: Any = settings.get(RANGE_KEY)
    is_number = isinstance(white, int | float) and not isinstance(white, bool)
    is_white = 0 < white < math.inf if is_number else white in (None, "full")
    check(is_white, f"{RANGE_KEY} = {white!r} is neither a number above 0 nor full")
    if not is_normalized:
        mean, std = (0.0,) * len(mean), (1.0,) * len(mean)
    if not is_rescaled:  # the file's mean and std are for values from 0 to 255, ours for 0 to 1
        mean, std = tuple(m / 255 for m in mean), tuple(s / 255 for s in std)
    fit: Fit = ("squash-crop" if is_squashed else "crop") if is_cropped else "squash"
    interpolation: Any = names[resample]
    return ImageTransform(final_size, fit, resize_to, interpolation, mean, std, len(mean), white)


def _height_and_width(size: Any, where: str) -> tuple[int, int]:
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


def read_images(
    images: Sequence[Any],
    transform: ImageTransform,
    origin: str = "images",
    rows: Sequence[int] | None = None,
    brightest: BrightestPixel | None = None,
) -> PixelTable:
    """Decode, resize and crop all images; for ``brightest`` see ``open_image``.

    Raises:
        DataError: an image is unreadable; the error has its file or position.
    """
    out = np.empty((len(images), transform.channels, *transform.size), np.uint8)
    for i, source in enumerate(images):
        out[i] = transform.read(source, image_name(source, origin, i, rows), brightest)
    return PixelTable(out)


def read_training_images(
    images: Sequence[Any], transform: ImageTransform, skip_crop: bool
) -> tuple[PixelTable, ImageTransform]:
    """Read training images; return them, and the transform with the ``image_range`` of these images.

    Args:
        skip_crop: whether to skip the final crop, since augmentation will crop.

    Raises:
        DataError: an image is unreadable, or all images of more than 8 bits are nearly black.
    """
    brightest = BrightestPixel()
    table = read_images(images, transform.without_crop() if skip_crop else transform, brightest=brightest)
    transform = replace(transform, image_range=brightest.resolve_range(transform.image_range))
    if (max_value := int(table.pixels.max())) < DARK_LEVEL:
        what = f"the brightest pixel of {len(table):,} training images is {max_value} of 255: they look black"
        fix = f"set the value of white with image_range={likely_white(brightest.pixel)}"
        warnings.warn(f"{what}; {fix}" if brightest.pixel else what, DimImagesWarning, stacklevel=2)
    return table, transform
