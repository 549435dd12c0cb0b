"""Pictures as they come: turned, transparent, 16-bit, cut, bombs; and the transform beside transformers'."""

import struct
import zlib
from contextlib import suppress

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from glassformer.data.augment import CORRUPTIONS, corrupt
from glassformer.data.duplicates import image_digest
from glassformer.data.image import MAX_PIXELS, open_image
from glassformer.data.transform import ImageTransform, PixelTable
from glassformer.errors import ConfigError, DataError

from .conftest import encoded
from .wide import chunk

RNG = np.random.default_rng(3)
RGB = RNG.integers(0, 256, (13, 17, 3), np.uint8)


def pixels(source) -> np.ndarray:
    image = open_image(source)
    assert image.mode == "RGB"
    return np.asarray(image)


def test_exif_orientation_is_applied():
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to the right
    turned = pixels(encoded(RGB, exif=exif))
    np.testing.assert_array_equal(turned, np.rot90(RGB, -1))


def test_modes():
    grey = RGB[:, :, 0]
    image = Image.fromarray(RGB)
    np.testing.assert_array_equal(pixels(encoded(Image.fromarray(grey))), np.repeat(grey[:, :, None], 3, 2))
    sixteen = Image.fromarray(grey.astype(np.uint16) * 256)
    np.testing.assert_array_equal(pixels(encoded(sixteen))[:, :, 1], grey)
    alpha = np.dstack([RGB, np.full(grey.shape, 0, np.uint8)])
    assert (pixels(encoded(Image.fromarray(alpha))) == 255).all()  # nothing but transparency shows white
    palette = image.quantize(256)
    assert np.abs(pixels(encoded(palette)).astype(int) - np.asarray(palette.convert("RGB"))).max() == 0
    clear = image.quantize(8)
    assert pixels(encoded(clear, transparency=0)).shape == RGB.shape
    assert np.abs(pixels(encoded(image.convert("CMYK"), "JPEG", quality=98)).astype(int) - RGB).mean() < 40
    frames = [Image.fromarray(np.full((5, 7, 3), v, np.uint8)) for v in (10, 200)]
    first = pixels(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    assert abs(int(first.mean()) - 10) < 3
    assert pixels(encoded(image.convert("1"))).shape == RGB.shape
    np.testing.assert_array_equal(pixels(np.dstack([RGB, np.full(grey.shape, 255, np.uint8)])), RGB)


def bomb(width: int, height: int) -> bytes:
    """A PNG that says it is that large and holds next to nothing."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 99)) + chunk(b"IEND", b"")


JPEG = encoded(RGB, "JPEG")
BAD = {
    "empty": (b"", "has no bytes"),
    "text": (b"this is not an image", "not an image that can be read"),
    "cut jpeg": (JPEG[:-60], "damaged"),
    "cut head": (JPEG[:15], "damaged|no picture"),
    "cut png": (encoded(RGB)[:-40], "damaged"),
    "bomb": (bomb(50_000, 50_000), "more than the maximum of 40 million pixels"),
    "just too large": (bomb(MAX_PIXELS // 5_000 + 1, 5_000), "8,001 x 5,000 pixels are more than"),
    "a line": (bomb(60_000, 2), "one side is more than 64 times"),
    "no width": (bomb(0, 5), "damaged|no pixels|not an image"),
    "postscript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "not an image that can be read"),
    "float": (encoded(Image.fromarray(RGB[:, :, 0].astype(np.float32)), "TIFF"), "floating-point"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_pictures_are_refused_by_name(name, tmp_path):
    content, said = BAD[name]
    path = tmp_path / "holiday.jpg"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        ImageTransform((8, 8)).read(content, str(path))
    assert "holiday.jpg" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF"])
def test_a_mutated_file_is_read_or_refused(kind):
    whole = bytearray(encoded(RGB, kind))
    rng = np.random.default_rng(5)
    for _ in range(60):
        content = bytearray(whole)
        for place in rng.integers(0, len(content), 4):
            content[place] = rng.integers(0, 256)
        with suppress(DataError):
            assert open_image(bytes(content)).mode == "RGB"


@pytest.mark.parametrize("size", [(13, 17, 3), (40, 23, 3), (7, 7, 3), (224, 300, 3), (13, 17, 1)])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_transform_equals_transformers_processor(size, interpolation):
    processors = [getattr(transformers, n, None) for n in ("ViTImageProcessorPil", "ViTImageProcessor")]
    channels, picture = size[2], np.random.default_rng(7).integers(0, 256, size, np.uint8)
    scale = {"mean": (0.5, 0.4, 0.3)[:channels], "std": (0.2, 0.3, 0.5)[:channels], "channels": channels}
    ours = ImageTransform((29, 19), interpolation=interpolation, **scale)
    kind = next(p for p in processors if p is not None)
    theirs = kind(**{k: v for k, v in ours.to_hub().items() if k != "image_processor_type"})
    wanted = torch.as_tensor(np.asarray(theirs([picture], return_tensors="np")["pixel_values"][0]))
    found = ours.normalize(torch.from_numpy(ours.read(picture))[None])[0]
    torch.testing.assert_close(found, wanted.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "transform",
    [
        ImageTransform((29, 19), interpolation="lanczos", mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6)),
        ImageTransform((17, 17), "crop", 23),
        ImageTransform((17, 17), "crop"),
        ImageTransform((8, 8), mean=(0.5,), std=(0.5,), channels=1),
    ],
)
def test_transform_survives_its_file(transform):
    again = ImageTransform.from_hub(transform.to_hub())
    picture = np.random.default_rng(9).integers(0, 256, (31, 43, 3), np.uint8)
    np.testing.assert_array_equal(again.read(picture), transform.read(picture))
    assert (again.size, again.mean, again.channels) == (transform.size, transform.mean, transform.channels)
    assert transform.read(picture).shape == (transform.channels, *transform.size)


@pytest.mark.parametrize("normal", [True, False])
def test_bytes_that_are_not_rescaled(normal):
    """As transformers has it: mean and deviation are of bytes, and without them bytes are what is read."""
    settings = {"size": 8, "do_rescale": False, "image_mean": [127.5] * 3, "image_std": [50.0] * 3}
    transform = ImageTransform.from_hub(settings | {"do_normalize": normal})
    picture = np.random.default_rng(9).integers(0, 256, (8, 8, 3), np.uint8)
    pixels = torch.from_numpy(np.array(transform.read(picture)))[None]
    wanted = pixels.float() if not normal else (pixels.float() - 127.5) / 50
    torch.testing.assert_close(transform.normalize(pixels), wanted, atol=1e-3, rtol=1e-5)
    again = ImageTransform.from_hub(transform.to_hub())
    torch.testing.assert_close(again.normalize(pixels), wanted, atol=1e-3, rtol=1e-5)


def test_sixteen_bits_that_are_transparent_show_white(tmp_path):
    wide = np.full((5, 7), 40_000, np.uint16)
    wide[2, 3] = 1234
    Image.fromarray(wide).save(tmp_path / "wide.png", transparency=1234)
    seen = np.asarray(open_image(tmp_path / "wide.png"))
    assert seen[2, 3].tolist() == [255] * 3
    assert (seen[0] == 40_000 >> 8).all()


def test_pictures_of_two_palettes_are_two():
    grey = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4), "P")
    other = grey.copy()
    grey.putpalette([i for i in range(256) for _ in range(3)])
    other.putpalette([255 - i for i in range(256) for _ in range(3)])
    assert image_digest(grey) != image_digest(other)
    assert image_digest(grey) == image_digest(grey.copy())


OF_ANOTHER = {"size": 24, "image_processor_type": "CLIPImageProcessor"}
OLD_NAME = {"size": 24, "feature_extractor_type": "BeitFeatureExtractor"}
WHOLE = ImageTransform((8, 8)).to_hub()
CONVNEXT = WHOLE | {"image_processor_type": "ConvNextImageProcessor"}
LARGE = WHOLE | {"size": {"shortest_edge": 4000}, "do_center_crop": True, "crop_size": 8}
MOBILE_VIT = {"feature_extractor_type": "MobileViTFeatureExtractor", "image_processor_type": None}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (OF_ANOTHER, "resample is missing"),
        (OLD_NAME, "resample is missing"),
        (OF_ANOTHER | {"resample": 3}, "image_mean is missing"),
        (OLD_NAME | {"resample": 3}, "image_mean is missing"),
        ({"size": {"shortest_edge": 224}}, "many sizes"),
        ({"size": 7, "resample": [2]}, r"here\.json: "),
        ({"size": 7, "rescale_factor": "no"}, r"here\.json: "),
        ({"size": {"height": "a", "width": 3}}, r"here\.json: "),
        ({"size": 10**9}, r"here\.json: "),
        ({"size": -1}, r"here\.json: "),
        ({"size": 7, "image_mean": None}, r"here\.json: "),
        (WHOLE | {"do_flip_channel_order": True}, "do_flip_channel_order = True is not supported"),
        (WHOLE | {"do_pad": True}, "do_pad = True is not supported"),
        (WHOLE | {"crop_pct": 0.9}, "crop_pct = 0.9 is not supported"),
        (WHOLE | {"keep_aspect_ratio": True}, "keep_aspect_ratio = True is not supported"),
        (CONVNEXT, "crop_pct, a step of ConvNextImageProcessor, is not supported"),
        (WHOLE | {"image_processor_type": "LevitImageProcessor"}, "a scale of 256/224 before its crop"),
        (WHOLE | MOBILE_VIT, "do_flip_channel_order"),
        (WHOLE | {"image_std": [0.5, 0.0, 0.5]}, "are out of range"),
        (WHOLE | {"image_std": [0.5, 1e-320, 0.5]}, "are out of range"),
        (WHOLE | {"image_mean": [0.5, 1e300, 0.5]}, "are out of range"),
        (WHOLE | {"image_mean": [0.5, float("nan"), 0.5]}, "are out of range"),
        (WHOLE | {"size": 5000}, "is not a size up to 4,096 pixels"),
        (LARGE, "a shorter side of 4,000 pixels"),
        *(
            (WHOLE | {"image_range": white}, "image_range")
            for white in (0, -1, "wide", True, float("inf"), [1, 2])
        ),
    ],
)
def test_settings_of_a_preprocessor_that_cannot_be(settings, said):
    with pytest.raises(ConfigError, match=said):
        ImageTransform.from_hub(settings, "here.json")


def test_settings_of_a_preprocessor_that_are_read():
    for settings in (
        WHOLE,
        WHOLE | {"do_pad": False, "do_flip_channel_order": False, "crop_pct": None},
        CONVNEXT | {"crop_pct": None},
        WHOLE | {"image_processor_type": "BitImageProcessor"},
    ):
        assert ImageTransform.from_hub(settings) == ImageTransform((8, 8))
    for kind in (OF_ANOTHER, OLD_NAME):
        assert ImageTransform.from_hub(kind | {"resample": 3, "do_normalize": False}).size == (24, 24)
    found = ImageTransform.from_hub(WHOLE | {"image_mean": 0.25, "image_std": 0.75})
    assert (found.mean, found.std, found.channels) == ((0.25,) * 3, (0.75,) * 3, 3)


def test_transforms_that_cannot_be():
    crop = {"fit": "crop", "resize_to": 3}
    for options in ({"size": (0, 5)}, {"mean": (0.5,)}, {"std": (0.0, 1.0, 1.0)}, {"channels": 2}, crop):
        with pytest.raises(ConfigError):
            ImageTransform(**options)


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_robustness_is_seeded_and_grows(kind, channels):
    rough = np.random.default_rng(5).integers(0, 256, (6, channels, 16, 16), np.uint8)
    table = PixelTable(rough.repeat(4, 2).repeat(4, 3))
    far = []
    for severity in (1, 5):
        changed = corrupt(table, kind, severity, seed=3)
        np.testing.assert_array_equal(changed.pixels, corrupt(table, kind, severity, seed=3).pixels)
        assert changed.pixels.shape == table.pixels.shape
        far.append(np.abs(changed.pixels.astype(int) - table.pixels).mean())
    assert 0 < far[0] < far[1]
