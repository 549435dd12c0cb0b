"""Images of more than 8 bits: what white is, who says so, and that nobody guesses."""

import io
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

import glassformer as gf
from glassformer.cli.app import main
from glassformer.data.dataset import Dataset
from glassformer.data.image import check_readable, open_image
from glassformer.data.image_doctor import examine_images
from glassformer.data.image_sources import ImageSplit
from glassformer.data.repairs import fixing_options
from glassformer.data.transform import ImageTransform
from glassformer.errors import DataError, DimImagesWarning
from glassformer.inputs.images import TRANSFORM_FILE

from ..checkpoints.test_settings import altered
from .conftest import SETTINGS, quarters, sets
from .wide import chunk, pfm, pgm, png, tiff

RNG = np.random.default_rng(5)
EIGHT = RNG.integers(0, 256, (11, 13))
EIGHT[0, :2] = 0, 255
TWELVE = RNG.integers(0, 4096, (11, 13))
TWELVE[0, :2] = 17, 4095  # 17 is no multiple of 16: not scaled up to 16 bits
SIXTEEN = RNG.integers(0, 65536, (11, 13))
OME = b'<?xml version="1.0"?><OME><Pixels SignificantBits="12" Type="uint16"/></OME>\0'
FEW = {**SETTINGS, "epochs": 1}


def color(gray: np.ndarray) -> np.ndarray:
    return np.dstack([gray, gray, gray])


def pil(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content))


def read(source, image_range=None) -> np.ndarray:
    """The red channel of an image."""
    return np.asarray(open_image(source, image_range=image_range))[:, :, 0]


def by(array: np.ndarray, white: float) -> np.ndarray:
    return np.rint(array * 255 / white).astype(np.uint8)


# --- one image ---------------------------------------------------------------------------------

FEWER = {  # pixels of fewer bits than the file has, which it does not say
    "TIFF int32, 8 bits": (lambda: tiff(EIGHT, "<i4"), EIGHT, 255),
    "TIFF int32, big-endian": (lambda: tiff(EIGHT, ">i4"), EIGHT, 255),
    "TIFF uint32, 12 bits": (lambda: tiff(TWELVE, "<u4"), TWELVE, 4095),
    "TIFF int16, 12 bits": (lambda: tiff(TWELVE, "<i2"), TWELVE, 4095),
    "TIFF uint16, 12 bits": (lambda: tiff(TWELVE), TWELVE, 4095),
    "TIFF uint16, big-endian": (lambda: tiff(TWELVE, ">u2"), TWELVE, 4095),
    "PNG, 12 bits": (lambda: png(TWELVE), TWELVE, 4095),
    "PNG, 10 bits": (lambda: png(TWELVE >> 2), TWELVE >> 2, 1023),
    "PGM that says 65,535": (lambda: pgm(TWELVE, 65535), TWELVE, 4095),
    "PIL I;16": (lambda: pil(png(TWELVE)), TWELVE, 4095),
    "PIL I;16B": (lambda: pil(tiff(TWELVE, ">u2")), TWELVE, 4095),
    "PIL I": (lambda: pil(tiff(EIGHT, "<i4")), EIGHT, 255),
    "array uint16": (lambda: TWELVE.astype(np.uint16), TWELVE, 4095),
    "array uint16 of color": (lambda: color(TWELVE).astype(np.uint16), TWELVE, 4095),
    "tensor uint16": (lambda: torch.from_numpy(TWELVE.astype(np.uint16))[None], TWELVE, 4095),
}


@pytest.mark.parametrize("kind", FEWER)
def test_fewer_bits_than_the_file_has_are_refused_until_white_is_known(kind):
    make, array, white = FEWER[kind]
    with pytest.raises(DataError, match=rf"the brightest pixel is {array.max():,} of 65,535") as error:
        read(make())
    assert f"image_range={white}" in error.value.fix
    np.testing.assert_array_equal(read(make(), white), by(array, white))
    np.testing.assert_array_equal(read(make(), "full"), array >> 8)  # models of before
    np.testing.assert_array_equal(read(make(), 65535), array >> 8)


UNKNOWN = {  # numbers whose range nothing says
    "TIFF float32, to 1": (lambda: tiff(EIGHT / 255, "<f4"), EIGHT / 255, 1.0),
    "TIFF float32, big-endian": (lambda: tiff(EIGHT / 255, ">f4"), EIGHT / 255, 1.0),
    "TIFF float32, to 4,095": (lambda: tiff(TWELVE, "<f4"), TWELVE, 4095),
    "PFM": (lambda: pfm(EIGHT / 255), EIGHT / 255, 1.0),
    "PIL F": (lambda: pil(tiff(EIGHT / 255, "<f4")), EIGHT / 255, 1.0),
    "array float32": (lambda: (EIGHT / 255).astype(np.float32), EIGHT / 255, 1.0),
    "array float64 of color": (lambda: color(EIGHT / 255), EIGHT / 255, 1.0),
    "array int64": (lambda: EIGHT, EIGHT, 255),
    "array int32 of 12 bits": (lambda: TWELVE.astype(np.int32), TWELVE, 4095),
    "tensor float32": (lambda: torch.from_numpy(EIGHT / 255).float()[None], EIGHT / 255, 1.0),
    "TIFF int32 beyond 16 bits": (lambda: tiff(SIXTEEN * 7, "<i4"), SIXTEEN * 7, 458_745),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_numbers_of_unknown_range_are_refused_until_white_is_known(kind):
    make, array, white = UNKNOWN[kind]
    for image_range in (None, "full"):
        with pytest.raises(DataError, match=r"range|uint8|65,535 is white") as error:
            read(make(), image_range)
        assert "image_range" in error.value.fix
    np.testing.assert_array_equal(read(make(), white), by(array.astype(np.float32), white))


STATED = {  # the file says what white is
    "TIFF of 12 bits": (lambda: tiff(TWELVE, bits=12), 4095),
    "TIFF MaxSampleValue": (lambda: tiff(TWELVE, t281=(4095,)), 4095),
    "TIFF MaxSampleValue, big-endian": (lambda: tiff(TWELVE, ">u2", t281=(4095,)), 4095),
    "TIFF SMaxSampleValue": (lambda: tiff(TWELVE, t341=(4095,)), 4095),
    "TIFF int32, MaxSampleValue": (lambda: tiff(TWELVE, "<i4", t281=(16383,)), 16383),
    "OME-TIFF": (lambda: tiff(TWELVE, t270=OME), 4095),
    "PNG sBIT": (lambda: png(TWELVE, 12), 4095),
    "PNG sBIT of 14 bits": (lambda: png(TWELVE, 14), 16383),
    "PIL, TIFF of 12 bits": (lambda: pil(tiff(TWELVE, bits=12)), 4095),
}


@pytest.mark.parametrize("kind", STATED)
@pytest.mark.parametrize("image_range", [None, "full", 65535, 1023])
def test_what_the_file_states_holds(kind, image_range):
    make, white = STATED[kind]
    np.testing.assert_array_equal(read(make(), image_range), by(TWELVE, white))


def test_the_maximum_of_a_pgm_holds():
    np.testing.assert_array_equal(read(pgm(TWELVE, 4095)), (TWELVE * 65535 / 4095 + 0.5).astype(int) >> 8)
    np.testing.assert_array_equal(read(pgm(TWELVE, 4095), 4095), read(pgm(TWELVE, 4095)))
    assert read(pgm(color(TWELVE), 4095)).max() == 255


def test_a_maximum_that_only_this_image_reaches_states_nothing():
    content = tiff(TWELVE, t281=(3000,))
    with pytest.raises(DataError, match="brightest pixel"):
        read(content)


SCALED = (TWELVE << 4) | (TWELVE >> 8)  # as PNG wants fewer bits: 12 in the upper ones of 16
LINEAR = np.rint(TWELVE * 65535 / 4095).astype(int)


@pytest.mark.parametrize("array", [SCALED, TWELVE << 4, LINEAR])
def test_pixels_that_png_scales_up_are_read_as_16_bits(array):
    np.testing.assert_array_equal(read(png(array, 12)), array >> 8)
    dark = np.where(array < 4096, array, 0)  # whatever sBIT says, it cannot be told
    with pytest.raises(DataError, match="brightest pixel"):
        read(png(dark, 12))


@pytest.mark.parametrize("make", [tiff, png, lambda a: pgm(a, 65535), lambda a: a.astype(np.uint16)])
@pytest.mark.parametrize("image_range", [None, "full", 65535, 65535.0])
def test_16_full_bits_are_read_as_ever(make, image_range):
    np.testing.assert_array_equal(read(make(SIXTEEN), image_range), SIXTEEN >> 8)
    assert not read(make(SIXTEEN * 0), image_range).any()  # black is black in every range


@pytest.mark.parametrize("make", [tiff, png, partial(tiff, dtype=">u2"), partial(tiff, deflate=True)])
def test_color_of_16_bits(make):
    for image_range in (None, "full", 65535):
        np.testing.assert_array_equal(read(make(color(SIXTEEN)), image_range), SIXTEEN >> 8)
        assert not read(make(color(SIXTEEN * 0)), image_range).any()
    for array, white in ((TWELVE, 4095), (EIGHT, 255)):
        with pytest.raises(DataError, match=rf"brightest pixel is {white:,} of 65,535"):
            read(make(color(array)))
        np.testing.assert_array_equal(read(make(color(array)), white), by(array, white))
        np.testing.assert_array_equal(read(make(color(array)), "full"), array >> 8)


def test_color_of_16_bits_that_is_turned_or_transparent():
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = png(color(TWELVE), more=chunk(b"eXIf", exif.tobytes()))
    np.testing.assert_array_equal(read(turned, 4095), np.rot90(by(TWELVE, 4095), -1))
    for opaque in (4095, 65535):
        clear = np.dstack([color(TWELVE), np.full(TWELVE.shape, opaque)])
        clear[0, 0, 3] = 0
        seen = read(png(clear), 4095)
        assert seen[0, 0] == 255
        np.testing.assert_array_equal(seen[1:], by(TWELVE, 4095)[1:])


def test_a_ppm_of_65535_in_color():
    assert np.abs(read(pgm(color(SIXTEEN), 65535)).astype(int) - (SIXTEEN >> 8)).max() <= 1
    few = pgm(color(TWELVE), 65535)
    with pytest.raises(DataError, match=r"brightest pixel is 3,984 of 65,535"):
        read(few)
    with pytest.raises(DataError, match=r"here it is 4,095\. Save the image with 8 bits per channel"):
        read(few, 4095)


def test_transparent_pixels_of_16_bits():
    file = io.BytesIO()
    Image.fromarray(TWELVE.astype(np.uint16)).save(file, "PNG", transparency=17)
    assert read(file.getvalue(), 4095)[0, 0] == 255


@pytest.mark.parametrize(
    ("source", "image_range"),
    [
        (tiff(TWELVE), 1023),
        (tiff(TWELVE - 1000, "<i2"), 4095),
        (tiff(TWELVE - 1000, "<i2"), "full"),
        (np.full((5, 7), np.nan, np.float32), 1.0),
        (np.full((5, 7), np.inf, np.float32), 1.0),
        (np.full((5, 7), 255), 1.0),
    ],
)
def test_pixels_out_of_range_are_refused(source, image_range):
    with pytest.raises(DataError, match="where 0 is black"):
        read(source, image_range)


def test_8_bits_are_not_concerned():
    with pytest.raises(DataError, match="signed 8-bit pixels"):
        read(tiff(EIGHT - 128, "<i1"))
    image = Image.fromarray(EIGHT.astype(np.uint8))
    np.testing.assert_array_equal(read(image, 4095), EIGHT)
    np.testing.assert_array_equal(read(EIGHT.astype(np.uint8), 4095), EIGHT)


# --- a fit, and what it leaves --------------------------------------------------------------------


def corners(white: int, count: int = 16, seed: int = 3) -> tuple[list[bytes], list[str]]:
    """The corners of ``quarters`` in TIFFs of 16 bits whose white is another one."""
    arrays, labels = quarters(count, seed)
    return [tiff(np.rint(a[:, :, 0] * (white / 255))) for a in arrays], labels


def test_training_images_decide():
    few, labels = corners(4095)
    for estimator in (gf.ImageClassifier, gf.ImageRegressor):
        y = labels if estimator is gf.ImageClassifier else [float(i) for i in range(16)]
        said = r"brightest pixel is 3,9\d\d of 65,535.*\(16 such images\)"
        with pytest.raises(DataError, match=said) as error:
            estimator(**FEW).fit(few, y)
        assert "image_range=4095" in error.value.fix
        assert estimator(**FEW, image_range=4095).fit(few, y).transform_.image_range == 4095
    full, _ = corners(65535)
    assert gf.ImageClassifier(**FEW).fit(full, labels).transform_.image_range == "full"
    # Validation images do not decide; and where one of them is bright, the others are dark images.
    dark, _ = corners(2000)
    clf = gf.ImageClassifier(**FEW).fit(full, labels, validation=(dark, labels))
    assert clf.transform_.image_range == "full"
    mixed = gf.ImageClassifier(**FEW).fit([*few, full[0]], [*labels, labels[0]])
    assert mixed.transform_.image_range == "full"
    assert mixed.encode(few).pixels.max() < 16
    plain = gf.ImageClassifier(**FEW).fit(*quarters(16, 3))
    assert plain.transform_.image_range is None
    with pytest.raises(DataError, match="brightest pixel"):
        plain.predict(few)
    assert len(plain.predict(full)) == 16


def test_masked_patches_are_read_alike_and_a_fit_goes_on_with_their_range(tmp_path):
    few, labels = corners(4095)
    settings = {**FEW, "decoder_width": 8, "decoder_layers": 1, "decoder_heads": 2}
    with pytest.raises(DataError, match="brightest pixel"):
        gf.MaskedPatches(**settings).fit(few)
    gf.MaskedPatches(**settings, image_range=4095).fit(few).save(tmp_path / "patches")
    assert gf.load(tmp_path / "patches").transform_.image_range == 4095
    tuned = gf.ImageClassifier(str(tmp_path / "patches"), epochs=1, batch_size=7).fit(few, labels)
    assert tuned.transform_.image_range == 4095


def test_a_fit_with_image_range_is_that_of_8_bits():
    arrays, labels = quarters(32, 3)
    gray = [np.repeat(a[:, :, :1], 3, 2) for a in arrays]
    deep = [tiff(a[:, :, 0].astype(np.uint16) * 16) for a in arrays]
    one = gf.ImageClassifier(**FEW).fit(gray, labels, validation=(gray, labels))
    other = gf.ImageClassifier(**FEW, image_range=255 * 16).fit(deep, labels, validation=(deep, labels))
    np.testing.assert_array_equal(one.predict_proba(gray), other.predict_proba(deep))
    np.testing.assert_array_equal(one.embed(gray), other.embed(deep))
    np.testing.assert_array_equal(one.explain(gray[3]).scores, other.explain(deep[3]).scores)


@pytest.mark.parametrize(("white", "stored"), [(4095, 4095), (65535, "full"), (None, None)])
def test_it_is_stored(white, stored, tmp_path):
    images, labels = corners(white) if white else quarters(16, 3)
    clf = gf.ImageClassifier(**FEW, image_range=white if white == 4095 else None).fit(images, labels)
    clf.save(tmp_path / "model")
    assert json.loads((tmp_path / "model" / TRANSFORM_FILE).read_text())["image_range"] == stored
    again = gf.load(tmp_path / "model")
    assert again.transform_ == clf.transform_
    np.testing.assert_array_equal(again.predict_proba(images), clf.predict_proba(images))


def test_folders_of_before_read_as_before(tmp_path):
    few, labels = corners(4095)
    clf = gf.ImageClassifier(**FEW).fit(*quarters(16, 3))
    folder = altered(clf.save(tmp_path / "now"), tmp_path / "model", TRANSFORM_FILE, image_range=None)
    old = gf.load(folder)
    assert old.transform_.image_range == "full"
    clf.transform_ = replace(clf.transform_, image_range="full")
    np.testing.assert_array_equal(old.predict_proba(few), clf.predict_proba(few))
    # A new fit from its weights asks what white is.
    with pytest.raises(DataError, match="brightest pixel"):
        gf.ImageClassifier(str(folder), epochs=1, batch_size=7).fit(few, labels)


def test_a_training_of_before_goes_on_as_it_began(tmp_path):
    few, labels = corners(4095)

    class OfBefore(gf.ImageClassifier):
        def _fingerprint(self, **data):
            found = super()._fingerprint(**data)
            del found["image_range"]
            return found

        def _build_preprocessor(self, fit):
            super()._build_preprocessor(fit)
            self.transform_ = replace(self.transform_, image_range="full")

    settings = {**FEW, "epochs": 2, "checkpoint_every": 1}
    with pytest.warns(DimImagesWarning):
        whole = OfBefore(**settings).fit(few, labels, checkpoints=tmp_path / "checkpoints")
    steps = sorted((tmp_path / "checkpoints").iterdir())
    for path in steps[1:]:
        shutil.rmtree(path)
    clf = gf.ImageClassifier(**settings)
    with pytest.warns(DimImagesWarning):
        resumed = clf.fit(few, labels, checkpoints=tmp_path / "checkpoints", resume=True)
    np.testing.assert_array_equal(resumed.predict_proba(few), whole.predict_proba(few))


# --- the doctor -----------------------------------------------------------------------------------


def split_of(images: list) -> ImageSplit:
    return ImageSplit(images, [("cat", "dog")[i % 2] for i in range(len(images))], "mine")


def ranges(splits, transform=None, decode=True):
    report = examine_images(Dataset("mine", splits), transform=transform, decode=decode)
    return [finding for finding in report.findings if finding.code == "range"]


@pytest.mark.parametrize("decode", [True, False])
def test_the_doctor_names_the_brightest_pixel(decode):
    few, deep = corners(4095)[0], corners(12_000)[0]
    (finding,) = ranges({"train": split_of(few)}, decode=decode)
    assert finding.severity == "warning"
    assert "the brightest pixel of 16 images of 16 or 32 bits is 3,9" in finding.message
    assert finding.fix == "give the value of white with --set image_range=4095"
    assert fixing_options([finding], {"train": split_of(few)}) == ["--set", "image_range=4095"]
    (finding,) = ranges({"train": split_of(deep)}, decode=decode)
    assert finding.fix == "give the value of white with --set image_range=16383"
    assert not ranges({"train": split_of(corners(65535)[0])}, decode=decode)
    transform = ImageTransform((8, 8), image_range=4095)
    assert not ranges({"train": split_of(few)}, transform, decode=decode)


def test_the_doctor_names_masks_of_8_bits():
    masks = [np.random.default_rng(i).integers(0, 2, (7, 5), np.uint8) for i in range(6)]
    (finding,) = ranges({"train": split_of(masks)})
    assert (
        finding.message == "train: the brightest pixel is 1 of 255: for a model the images are almost black"
    )
    with pytest.warns(DimImagesWarning, match="the brightest pixel of 6 training images is 1 of 255"):
        gf.ImageClassifier(**FEW).fit(masks, [0, 1] * 3)


def test_a_run_looks_before_it_trains():
    few, full = split_of(corners(4095)[0]), split_of(corners(65535)[0])
    plain = split_of(quarters(8, 3)[0])
    for splits in ({"train": few}, {"train": plain, "test": few}):
        with pytest.raises(DataError, match="brightest pixel"):
            check_readable(splits)
        check_readable(splits, 4095)
        check_readable(splits, "full")
    check_readable({"train": full, "test": few})
    check_readable({"train": plain, "test": full})


# --- the command line, and exports ----------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images of 12 bits in files of 16, in folders of classes."""
    root = tmp_path_factory.mktemp("deep") / "corners"
    for i, (content, label) in enumerate(zip(*corners(4095, 80), strict=True)):
        (root / label).mkdir(parents=True, exist_ok=True)
        (root / label / f"{i}.tif").write_bytes(content)
    return root


@pytest.fixture
def gf_command(capsys):
    """``command("train", ...)``: exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        return main(list(map(str, arguments))), *capsys.readouterr()

    return call


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_verb_reads_alike(folder, tmp_path, gf_command):
    pytest.importorskip("onnxscript")
    _, out, _ = gf_command("data", "doctor", folder)
    assert "--set image_range=4095" in out
    train = "train", "--images", folder, "--out", tmp_path / "run", *sets(**FEW)
    code, _, err = gf_command(*train)
    assert code == 2
    assert "image_range=4095" in err
    assert not (tmp_path / "run").exists()
    code, _, err = gf_command(*train, "--set", "image_range=4095")
    assert code == 0, err
    clf = gf.load(tmp_path / "run")
    assert clf.transform_.image_range == 4095
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert max(b["accuracy"] for b in metrics["baselines"].values()) > 0.9  # they see more than black
    files = sorted(map(str, folder.rglob("*.tif")))[::11]
    expected = clf.predict(files).tolist()
    for more in ((), ("--on-bad-row", "skip")):
        code, out, err = gf_command("predict", tmp_path / "run", *files, "--json", *more)
        assert [row["label"] for row in json.loads(out)["answers"]] == expected
    code, _, err = gf_command("explain", tmp_path / "run", files[0], "--out", tmp_path / "map.html")
    assert code == 0, err
    assert gf_command("evaluate", tmp_path / "run", "--data", folder)[0] == 0
    code, _, err = gf_command("export", tmp_path / "run", "--to", "onnx", "--out", tmp_path / "onnx")
    assert code == 0, err
    script = [sys.executable, str(tmp_path / "onnx" / "run.py"), *files]
    alone = subprocess.run(script, capture_output=True, text=True, check=True)
    assert [line.split("\t")[0] for line in alone.stdout.splitlines()] == expected


SCRIPTED = {**FEWER, **UNKNOWN, **{name: (make, None, 4095) for name, (make, _) in STATED.items()}}
FILES = {
    name: make for name, (make, *_) in SCRIPTED.items() if not name.startswith(("array", "PIL", "tensor"))
}
FILES |= {
    "full": lambda: tiff(SIXTEEN),
    "PNG, scaled up": lambda: png(SCALED, 12),
    "color": lambda: png(color(SIXTEEN)),
    "color of few bits": lambda: png(color(TWELVE)),
    "PGM": lambda: pgm(TWELVE, 4095),
    "8 bits": lambda: tiff(EIGHT, "<u1"),
    "signed 8 bits": lambda: tiff(EIGHT - 128, "<i1"),
}


@pytest.mark.parametrize("image_range", ["full", None, 4095.0, 1.0])
@pytest.mark.parametrize("script", ["run_pictures", "run_hf_pictures"])
def test_exported_scripts_read_as_the_package_does(script, image_range, tmp_path):
    upright = reader(script, image_range)
    for name, make in FILES.items():
        path = tmp_path / "image"
        path.write_bytes(make())
        ours = read_or_said(partial(open_image, path, image_range=image_range))
        theirs = read_or_said(partial(upright, str(path)))
        if isinstance(ours, str):
            assert isinstance(theirs, str), name
            assert ours in theirs, name
        else:
            np.testing.assert_array_equal(theirs, ours, err_msg=name)


def read_or_said(call) -> np.ndarray | str:
    """Pixels, or what is wrong."""
    try:
        return np.asarray(call())
    except DataError as error:
        return error.what
    except SystemExit as error:
        return str(error)


def reader(script: str, image_range):
    """The function that reads an image in an exported script."""
    from glassformer.export.onnx_folder import script_text

    text = script_text(script)
    start, end = text.index("FORMATS = "), text.index("\n\n\ndef ", text.index("def upright"))
    names: dict = {}
    head = "import io, sys, warnings\nfrom pathlib import Path\nfrom PIL import Image, ImageOps\n"
    lines = text[start:end].splitlines()
    body = "\n".join(line for line in lines if not line.startswith(("IMAGE_RANGE", "warnings")))
    exec(head + body, names)
    names["IMAGE_RANGE"] = image_range
    return names["upright"]
