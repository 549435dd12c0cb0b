"""Files made to do harm: what they ask for is counted before anything is decoded, and ordinary pictures pass."""

import io
import struct
import time
import zlib
from importlib import import_module

import numpy as np
import pytest
from PIL import Image

from glassformer.data import image_bounds as bounds
from glassformer.data.image import open_image
from glassformer.data.image_bounds import MAX_TAGS, check_tiff_tags
from glassformer.errors import DataError

from ..benchmark_tools import benchmark
from .conftest import encoded

RGB = np.random.default_rng(5).integers(0, 256, (53, 67, 3), np.uint8)


@pytest.fixture
def made(monkeypatch):
    """What makes hostile pictures, by name."""
    return vars(benchmark("hostile_pictures"))


def refused(content: bytes, match: str) -> None:
    started = time.process_time()
    with pytest.raises(DataError, match=match) as caught:
        open_image(content, "holiday.bin")
    assert str(caught.value).startswith("holiday.bin: ")
    assert time.process_time() - started < 5


def test_scans_are_counted_against_the_pixels(made):
    jpeg, scan = made["jpeg"], made["scan"]

    def scans(count: int, width: int = 101, height: int = 97) -> bytes:
        more = b"".join(scan([1 + i % 3], 1, 63, 0) for i in range(count - 1))
        return jpeg(width, height, scan([1, 2, 3], 0, 0, 0) + more)

    assert open_image(scans(bounds.MAX_SCANS)).size == (101, 97)
    refused(scans(bounds.MAX_SCANS + 1), "scans of 101 x 97 pixels")
    refused(scans(40_000, 4001, 3989), "scans of 4,001 x 3,989 pixels")
    allowed = bounds.FULL_SCANS * bounds.MAX_PIXELS // (6007 * 5981)
    bounds.check_file(scans(allowed, 6007, 5981), "x")
    refused(scans(allowed + 1, 6007, 5981), "scans")
    with pytest.raises(DataError, match="scans"):  # a server with smaller pictures has less patience
        bounds.check_file(scans(41), "x", 101 * 97 * 2)
    assert bounds.check_file(scans(40), "x", 101 * 97 * 2) is None


def test_scans_cannot_hide(made):
    """Whatever libjpeg skips, the count skips no more."""
    jpeg, scan = made["jpeg"], made["scan"]
    many = b"".join(scan([1 + i % 3], 1, 63, 0) for i in range(150))
    first = scan([1, 2, 3], 0, 0, 0)
    skipped = b"", b"\xff\x02\xff\xff", b"\xff\xd0", b"\xff\xff\xff", b"\0" * 50, b"\xff\0", b"\xff\xfe\0\2"
    for before in skipped:
        refused(jpeg(101, 97, first + before + many), "scans")
    assert open_image(jpeg(101, 97, first + b"\xff\xd9" + many)).size == (101, 97)  # beyond the end
    assert open_image(jpeg(101, 97, made["segment"](0xFE, b"\xff\xda" * 300) + first)).size == (101, 97)


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"restart_marker_blocks": 1}, {"quality": 100}]
)
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_ordinary_jpegs_pass_at_the_limit_of_size(mode: str, options: dict):
    content = encoded(Image.fromarray(RGB).convert(mode), "JPEG", **options)
    bounds.check_file(content, "x", RGB.shape[0] * RGB.shape[1])  # as if it were the largest
    with Image.open(io.BytesIO(content)) as image:
        np.testing.assert_array_equal(np.asarray(open_image(content)), np.asarray(image.convert("RGB")))


def test_segments_chunks_profiles_and_blocks_are_counted(made):
    jpeg, png = (encoded(RGB, kind) for kind in ("JPEG", "PNG"))
    gif = encoded(Image.fromarray(RGB).quantize(8), "GIF")
    remark, chunk, at = made["segment"](0xFE, b""), made["with_chunks"], gif.index(b",")
    most = bounds.MAX_SEGMENTS
    assert open_image(jpeg[:2] + remark * (most - 20) + jpeg[2:]).size == (67, 53)
    refused(jpeg[:2] + remark * (most + 1) + jpeg[2:], "segments")
    refused(jpeg[:2] + remark + b"\0" * (bounds.MAX_SKIPPED + 1) + jpeg[2:], "bytes between")
    exif = made["segment"](0xE1, b"Exif\0\0" + bytes(65_000))
    refused(jpeg[:2] + exif * 70 + jpeg[2:], "EXIF")
    refused(chunk(png, *[(b"iCCP", b"a\0\0b")] * (bounds.MAX_PROFILES + 1)), "profiles")
    assert open_image(chunk(png, *[(b"tEXt", b"a\0b")] * 1000)).size == (67, 53)
    refused(chunk(png, *[(b"IDAT", b"")] * bounds.MAX_CHUNKS), "chunks")
    refused(chunk(png, (b"zTXt", b"a\0\0" + zlib.compress(bytes(3_000_000)))), "damaged")
    refused(gif[:at] + b"!\xfe" + b"\1a" * bounds.MAX_BLOCKS + b"\0" + gif[at:], "blocks")
    refused(b"P6 #" + b"x" * 9999 + b"\n17 13 255\n" + bytes(663), "header")


def test_metadata_holds_no_more_than_it_has(made):
    ifd, u32 = made["ifd"], made["u32"]
    same = ifd([(1000 + i, 7, 30_000, u32(20_000)) for i in range(300)], 0, bytes(47_000))
    jpeg, png = (encoded(RGB, kind) for kind in ("JPEG", "PNG"))
    refused(jpeg[:2] + made["segment"](0xE1, b"Exif\0\0" + same) + jpeg[2:], "claim to have 9,000,000")
    refused(made["with_chunks"](png, (b"eXIf", same)), "that claim to have")
    text = b"Raw profile type exif\0\0" + zlib.compress(b"\nexif\n9\n" + same.hex().encode())
    refused(made["with_chunks"](png, (b"zTXt", text)), "that claim to have")
    refused(encoded(RGB, "WEBP", exif=same), "that claim to have")
    with pytest.raises(DataError, match="entries"):
        check_tiff_tags(ifd([(i, 3, 1, u32(1)) for i in range(MAX_TAGS + 1)]), "x")
    pointers = ifd([(34665, 4, 1, u32(8)), (34853, 4, 1, u32(8))], 8)
    assert check_tiff_tags(pointers, "x") == {34665: 8, 34853: 8}


def test_orientation_that_is_none_leaves_the_picture_as_it_is(made):
    png = encoded(RGB, "PNG")
    for kind, count, value in ((3, 1, 9), (2, 4, 0x786973), (3, 2**32 - 1, 8), (3, 1, 0)):
        entry = 274, kind, count, struct.pack("<I", value)
        picture = open_image(made["with_chunks"](png, (b"eXIf", made["ifd"]([entry]))))
        np.testing.assert_array_equal(np.asarray(picture), RGB)
    turned = {2: np.fliplr(RGB), 3: np.rot90(RGB, 2), 4: np.flipud(RGB), 5: RGB.swapaxes(0, 1)}
    turned[6] = np.rot90(RGB, -1)
    turned |= {7: np.rot90(RGB, 2).swapaxes(0, 1), 8: np.rot90(RGB)}
    for number, wanted in turned.items():
        block = made["ifd"]([(274, 3, 1, struct.pack("<I", number)), (305, 7, 99, b"\xff\xff\xff\xff")])
        picture = open_image(made["with_chunks"](png, (b"eXIf", block)))
        np.testing.assert_array_equal(np.asarray(picture), wanted)
        assert "exif" not in picture.info  # whoever saves it does not turn it again


def test_tiles_strips_and_pages(made):
    zeros = zlib.compress(bytes(6007 * 1000), 9)
    refused(made["strips"](101, 3000, 70_000, 1, bytes(101), 1), "strips or tiles")
    shared = made["strips"](607, 607, 607, 8, zlib.compress(bytes(607 * 607), 9), 1)
    assert open_image(shared).getextrema() == ((0, 0),) * 3
    refused(made["strips"](17, 2**20, 1, 8, zeros, 2**20), "one side is more than|damaged")
    refused(made["tiled"](1, 1, 30_011, 30_011, 1, zeros), "tiles of 30,011 x 30,011")
    refused(made["tiled"](50_021, 797, 16, 16_384, 3127, zeros[:999]), "tiles of 16 x 16,384")
    refused(made["strips"](6007, 6007, 1, 7, made["refining"](6007, 6007, 99), 6007), "damaged")
    for compression in ("tiff_lzw", "tiff_adobe_deflate", "packbits", None):
        pages = [Image.fromarray(RGB).resize((5, 7))] * 50
        options = {"compression": compression, "save_all": True, "append_images": pages}
        content = encoded(RGB, "TIFF", **options)
        np.testing.assert_array_equal(np.asarray(open_image(content)), RGB)


def test_what_pillow_decodes_in_python_is_small(made):
    refused(b"P5 4001 3989 254\n" + bytes(4001 * 3989), "15,959,989 values that are slow")
    refused(b"P5 2003 1999 4095\n" + bytes(2 * 2003 * 1999), "values that are slow")
    refused(b"P3 2003 1999 255\n7 7 7 ", "values that are slow")
    refused(b"P2 99 99 255\n" + b"#\n" * 2000 + b"7 " * 9801, "too many comments")
    refused(made["bmp"](6007, 5981, 1, 8, b"\1\0\0\0" * 5981), "values that are slow")
    assert open_image(b"P5 401 397 65535\n" + bytes(2 * 401 * 397)).size == (401, 397)
    assert open_image(b"P5 # made by hand\n17\t13 # and here\n255\n" + bytes(221)).size == (17, 13)
    assert open_image(encoded(RGB, "PPM")).size == (67, 53)


def test_pictures_already_open_end_in_typed_errors():
    """A conversion that Pillow does not know, and what is wrong only once it is decoded."""
    whole = encoded(RGB, "PNG")
    with pytest.raises(DataError, match=r"^here: the image is damaged"):
        open_image(Image.open(io.BytesIO(whole[:-400])), "here")
    image = Image.fromarray(RGB)
    copy = open_image(image)
    copy.putpixel((0, 0), (1, 2, 3))
    assert image.getpixel((0, 0)) == tuple(RGB[0, 0])  # the caller's is left alone
    with pytest.raises(DataError, match="conversion"):
        open_image(Image.new("La", (13, 11)))
    for mode in ("HSV", "YCbCr", "LAB", "I;16", "RGBa", "1", "PA"):
        assert open_image(Image.new(mode, (13, 11))).mode == "RGB"


@pytest.mark.slow
def test_every_hostile_picture(monkeypatch, made):
    results = import_module("hostile_pictures").hostile_pictures(0)
    assert len(results) > 300
    assert [one for one in results if not one["passed"]] == []
