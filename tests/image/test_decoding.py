"""Pictures as they come: turned, transparent, 16-bit, cut, bombs; and the transform beside transformers'."""

import io
import shutil
import struct
import zlib

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from glassformer.data.augment import CORRUPTIONS, corrupt
from glassformer.data.duplicates import image_digest
from glassformer.data.image import MAX_PIXELS, open_image
from glassformer.data.image_sources import load_image_dataset
from glassformer.data.transform import ImageTransform, PixelTable
from glassformer.errors import ConfigError, DataError
from glassformer.inputs.images import image_paths

RNG = np.random.default_rng(3)
RGB = RNG.integers(0, 256, (13, 17, 3), np.uint8)


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pixels(source) -> np.ndarray:
    image = open_image(source)
    assert image.mode == "RGB"
    return np.asarray(image)


def test_exif_orientation_is_applied():
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to the right
    turned = pixels(encoded(Image.fromarray(RGB), exif=exif))
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

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b"\0" * 99))
        + chunk(b"IEND", b"")
    )


JPEG = encoded(Image.fromarray(RGB), "JPEG")
BAD = {
    "empty": (b"", "has no bytes"),
    "text": (b"this is not an image", "not an image that can be read"),
    "cut jpeg": (JPEG[:-60], "damaged"),
    "cut head": (JPEG[:15], "damaged|no picture"),
    "cut png": (encoded(Image.fromarray(RGB))[:-40], "damaged"),
    "bomb": (bomb(50_000, 50_000), "more than the maximum of 40 million pixels"),
    "just too large": (bomb(MAX_PIXELS // 5_000 + 1, 5_000), "more than the maximum of 40 million"),
    "a line": (bomb(60_000, 2), "one side is more than 64 times the other"),
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
    whole = bytearray(encoded(Image.fromarray(RGB), kind))
    rng = np.random.default_rng(5)
    refused = 0
    for _ in range(60):
        content = bytearray(whole)
        for place in rng.integers(0, len(content), 4):
            content[place] = rng.integers(0, 256)
        try:
            assert open_image(bytes(content)).mode == "RGB"
        except DataError:
            refused += 1
    assert refused <= 60


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


def test_transforms_that_cannot_be():
    for options in (
        {"size": (0, 5)},
        {"mean": (0.5,)},
        {"std": (0.0, 1.0, 1.0)},
        {"channels": 2},
        {"fit": "crop", "resize_to": 3},
    ):
        with pytest.raises(ConfigError):
            ImageTransform(**options)
    for kind in (
        {"image_processor_type": "CLIPImageProcessor"},
        {"feature_extractor_type": "BeitFeatureExtractor"},
    ):
        with pytest.raises(ConfigError, match="resample is missing"):
            ImageTransform.from_hub({"size": 24} | kind)
        with pytest.raises(ConfigError, match="image_mean is missing"):
            ImageTransform.from_hub({"size": 24, "resample": 3} | kind)
        assert ImageTransform.from_hub({"size": 24, "resample": 3, "do_normalize": False} | kind).size == (
            24,
            24,
        )
    with pytest.raises(ConfigError, match="many sizes"):
        ImageTransform.from_hub({"size": {"shortest_edge": 224}})


# --- folders and tables -----------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    for label in ("cat", "dog"):
        (tmp_path / "pets" / label).mkdir(parents=True)
        for i in range(3):
            Image.fromarray(RGB).save(tmp_path / "pets" / label / f"{i}.png")
    (tmp_path / "pets" / ".ipynb_checkpoints").mkdir()
    (tmp_path / "pets" / ".ipynb_checkpoints" / "x.png").write_bytes(encoded(Image.fromarray(RGB)))
    (tmp_path / "pets" / "cat" / ".hidden.png").write_bytes(b"")
    (tmp_path / "pets" / "cat" / "notes.txt").write_text("no picture")
    return tmp_path / "pets"


def test_a_hidden_folder_is_no_class(folder):
    dataset = load_image_dataset(folder)
    assert dataset.label_names == ("cat", "dog")
    assert len(dataset.splits["train"]) == 6
    assert dataset.splits["train"].labels == ["cat"] * 3 + ["dog"] * 3


def test_broken_pictures_are_counted_by_name(folder):
    (folder / "dog" / "9.jpg").write_bytes(JPEG[:-60])
    dataset = load_image_dataset(folder, broken="skip")
    assert len(dataset.splits["train"]) == 6
    assert dataset.notes[0].endswith("are ignored: 1 .txt")
    assert "1 image of train left out" in dataset.notes[1]
    assert "9.jpg" in dataset.notes[1]


def test_a_class_missing_in_validation_is_said(folder, tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    folder.rename(parts / "train")
    (parts / "val" / "cat").mkdir(parents=True)
    Image.fromarray(RGB).save(parts / "val" / "cat" / "1.png")
    dataset = load_image_dataset(parts)
    assert list(dataset.splits) == ["train", "validation"]
    assert dataset.notes[1:] == (
        "no image of dog in validation: its metrics say nothing about these classes",
    )


def test_bad_sources_are_named(folder, tmp_path):
    (folder / "bird").mkdir()
    with pytest.raises(DataError, match=r"class .bird. has no images"):
        load_image_dataset(folder)
    with pytest.raises(DataError, match="digits"):
        load_image_dataset("digit")
    with pytest.raises(DataError, match="neither tables nor folders"):
        load_image_dataset(folder / "bird")


def test_split_folders_beside_others_are_no_classes(folder, tmp_path):
    parts = tmp_path / "parts"
    for split in ("train", "test"):
        shutil.copytree(folder, parts / split)
    (parts / "notes").mkdir()
    (parts / "notes" / "1.png").write_bytes(encoded(Image.fromarray(RGB)))
    with pytest.raises(DataError, match="test, train look like splits, but notes does not"):
        load_image_dataset(parts)
    for name in ("train", "plane"):  # a class of trains is one
        (tmp_path / "vehicles" / name).mkdir(parents=True)
        (tmp_path / "vehicles" / name / "1.png").write_bytes(encoded(Image.fromarray(RGB)))
    assert load_image_dataset(tmp_path / "vehicles").label_names == ("plane", "train")


def test_hidden_pictures_are_not_predicted(folder):
    (folder / "__MACOSX").mkdir()
    (folder / "__MACOSX" / "y.png").write_bytes(b"")
    (folder / "dog" / "._0.png").write_bytes(b"not a picture")
    assert len(image_paths([str(folder)])) == 6


def test_a_path_is_named_in_what_is_wrong_with_it(tmp_path):
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"bad\.png: is not an image"):
        open_image(bad)


def test_a_table_names_files_beside_it(folder):
    (folder / "table.csv").write_text("file,label\ncat/0.png,a\ndog/1.png,b\n")
    split = load_image_dataset(folder / "table.csv").splits["train"]
    assert split.labels == ["a", "b"]
    assert open_image(split.images[1]).size == (17, 13)


def test_digits_are_real_and_split_once():
    splits = load_image_dataset("digits").splits
    assert {k: len(v) for k, v in splits.items()} == {"train": 1150, "validation": 287, "test": 360}
    rows = [set(s.rows) for s in splits.values()]
    assert len(set.union(*rows)) == 1797
    assert max(picture.max() for picture in splits["train"].images) == 255


def test_real_sets(data_root):
    for name, classes in (("cifar10", 10), ("flowers", 5), ("hotdog", 2)):
        dataset = load_image_dataset(name, limit=20)
        assert len(dataset.label_names) == classes
        assert len(dataset.splits["train"]) == 20
        assert ImageTransform((16, 16)).read(dataset.splits["train"].images[0]).shape == (3, 16, 16)


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
