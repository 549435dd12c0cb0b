"""Images in open files: read from the beginning, left open, and left where they were."""
# ruff: noqa: SIM115  # the files stay open: that is what is tested

import io
import os
import tempfile
import zipfile

import numpy as np
import pytest

from glassformer import ImageRegressor, MaskedPatches
from glassformer.data.duplicates import image_digest
from glassformer.data.image import check_images, image_name, open_image
from glassformer.errors import DataError
from glassformer.tasks.image_classification.estimator import ImageClassifier

from .conftest import SETTINGS, encoded, quarters

ARRAYS, LABELS = quarters(13, 11)


CONTENTS = list(map(encoded, ARRAYS))


class StreamlitFile(io.BytesIO):
    """As Streamlit's ``UploadedFile``."""

    def __init__(self, content: bytes, name: str = "mine.png"):
        super().__init__(content)
        self.name = name


class FastApiFile:
    """As FastAPI's ``UploadFile``: reading is a coroutine, the file itself is in ``file``."""

    def __init__(self, content: bytes):
        self.file, self.filename = written(tempfile.SpooledTemporaryFile(), content), "mine.png"

    def tell(self) -> int:
        return self.file.tell()

    closed = False

    async def read(self, size: int = -1) -> bytes:
        return self.file.read(size)


def written(file, content: bytes):
    """A temporary file, which is left at its end."""
    file.write(content)
    return file


def moved(content: bytes) -> io.BytesIO:
    file = io.BytesIO(content)
    file.seek(7)
    return file


def on_disk(folder, content: bytes, **options):
    path = folder / f"{len(os.listdir(folder))}.png"
    path.write_bytes(content)
    return open(path, "rb", **options)


def zipped(folder, content: bytes):
    path = folder / f"{len(os.listdir(folder))}.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mine.png", content)
    return zipfile.ZipFile(path).open("mine.png")


KINDS = {
    "BytesIO, moved": lambda folder, content: moved(content),
    "open": on_disk,
    "open, no buffer": lambda folder, content: on_disk(folder, content, buffering=0),
    "NamedTemporaryFile": lambda folder, content: written(tempfile.NamedTemporaryFile(), content),
    "SpooledTemporaryFile": lambda folder, content: written(tempfile.SpooledTemporaryFile(), content),
    "on disk by now": lambda folder, content: written(tempfile.SpooledTemporaryFile(5), content),
    "Streamlit": lambda folder, content: StreamlitFile(content),
    "FastAPI": lambda folder, content: FastApiFile(content),
    "in a zip": zipped,
}


@pytest.fixture(scope="module")
def from_bytes():
    return fit(CONTENTS)


def fit(images) -> ImageClassifier:
    return ImageClassifier(**{**SETTINGS, "epochs": 1}).fit(images, LABELS, validation=(images, LABELS))


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_every_door_reads_open_files(kind, fitted, from_bytes, tmp_path):
    files = [KINDS[kind](tmp_path, content) for content in CONTENTS]
    places = [file.tell() for file in files]
    np.testing.assert_array_equal(fit(files).predict_proba(ARRAYS), from_bytes.predict_proba(ARRAYS))
    np.testing.assert_array_equal(fitted.predict_proba(files), fitted.predict_proba(ARRAYS))
    np.testing.assert_array_equal(fitted.embed(files), fitted.embed(ARRAYS))
    assert fitted.score(files, LABELS) == fitted.score(ARRAYS, LABELS)
    np.testing.assert_array_equal(fitted.explain(files[3]).scores, fitted.explain(ARRAYS[3]).scores)
    assert [file.tell() for file in files] == places
    assert not any(file.closed for file in files)


def test_other_image_estimators_read_open_files():
    files, numbers = [io.BytesIO(content) for content in CONTENTS], [float(a.mean()) for a in ARRAYS]
    settings = {**SETTINGS, "epochs": 1}
    one, other = (ImageRegressor(**settings).fit(images, numbers) for images in (files, CONTENTS))
    np.testing.assert_array_equal(one.predict(files), other.predict(ARRAYS))
    settings |= {"decoder_width": 8, "decoder_layers": 1, "decoder_heads": 2}
    one, other = (MaskedPatches(**settings).fit(images) for images in (files, CONTENTS))
    np.testing.assert_array_equal(one.embed(files), other.embed(ARRAYS))


def test_a_pipe_is_read_once(fitted):
    def pipe(content: bytes):
        out, into = os.pipe()
        os.write(into, content)
        os.close(into)
        return os.fdopen(out, "rb")

    files = [pipe(content) for content in CONTENTS]
    np.testing.assert_array_equal(fitted.predict_proba(files), fitted.predict_proba(ARRAYS))
    for file in files:
        file.close()


def closed(content: bytes) -> io.BytesIO:
    file = io.BytesIO(content)
    file.close()
    return file


@pytest.mark.parametrize(
    ("file", "what", "where"),
    [
        (lambda path: closed(CONTENTS[0]), "the file is closed", "images[0]"),
        (lambda path: io.StringIO("text"), "the file is open as text", "images[0]"),
        (lambda path: StreamlitFile(b""), "the image has no bytes", "mine.png"),
        (lambda path: open(path), "cannot be read ('utf-8' codec can't decode", "one.png"),
    ],
)
def test_files_that_cannot_be_read_are_named(file, what, where, fitted, tmp_path):
    path = tmp_path / "one.png"
    path.write_bytes(CONTENTS[0])
    given = file(path)
    with pytest.raises(DataError) as error:
        fitted.predict([given])
    assert error.value.what.startswith(what)
    assert error.value.where.endswith(where)
    if not given.closed:
        assert given.tell() == 0
        given.close()


def test_an_empty_upload_never_means_the_file_of_its_name(tmp_path, monkeypatch):
    (tmp_path / "mine.png").write_bytes(CONTENTS[0])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="no bytes"):
        open_image(StreamlitFile(b""))
    with pytest.raises(DataError, match="no bytes"):
        open_image({"bytes": b"", "path": "mine.png"})


def test_one_open_file_is_not_a_list(fitted):
    with pytest.raises(DataError, match="one image where a list is expected"):
        fitted.predict(io.BytesIO(CONTENTS[0]))


def test_messages_name_the_file(fitted):
    with pytest.raises(DataError, match=r"^mine\.png: .*damaged"):
        fitted.predict([StreamlitFile(CONTENTS[0][:80])])
    (held,) = check_images([StreamlitFile(CONTENTS[0])])
    assert image_name(held, "pictures", 0) == "mine.png"


def test_equal_bytes_are_copies_whatever_holds_them():
    (held,) = check_images([io.BytesIO(CONTENTS[0])])
    same = [CONTENTS[0], bytearray(CONTENTS[0]), memoryview(CONTENTS[0]), held]
    assert len(set(map(image_digest, same))) == 1
    assert image_digest(b"") == ""
