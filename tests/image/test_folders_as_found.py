"""Folders and tables of images as people have them: nothing is dropped without being counted and named."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from glassformer.data.dataset import Dataset
from glassformer.data.image import check_readable, files_below, image_files, open_image
from glassformer.data.image_doctor import examine_images
from glassformer.data.image_sources import load_image_dataset
from glassformer.data.kinds import detect_kind
from glassformer.data.transform import ImageTransform
from glassformer.errors import DataError
from glassformer.inputs.images import Images
from glassformer.inputs.rows import InputRequest

COUNT = 7  # images of each class


def fill(folder: Path, *classes: str) -> Path:
    rng = np.random.default_rng(3)
    for name in classes:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(COUNT):
            array = rng.integers(0, 256, (11, 13, 3), np.uint8)
            Image.fromarray(array).save(folder / name / f"{i}.png")
    return folder


def sizes(dataset) -> dict[str, int]:
    labels = dataset.splits["train"].labels
    return {name: labels.count(name) for name in sorted(set(labels))}


def findings(dataset) -> dict[str, object]:
    report = examine_images(Dataset("mine", dataset.splits, notes=dataset.notes), decode=True)
    return {finding.code: finding for finding in report.findings if finding.severity != "ok"}


FTYP = {"heic": b"heic", "heif": b"mif1", "hif": b"heix", "avif": b"avif"}
BYTES = {
    **{ending: b"\0\0\0\x18ftyp" + brand + bytes(99) for ending, brand in FTYP.items()},
    "jp2": b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(99),
    "j2k": b"\xff\x4f\xff\x51" + bytes(99),
    "jxl": b"\0\0\0\x0cJXL \r\n\x87\n" + bytes(99),
    "psd": b"8BPS\0\x01" + bytes(99),
    "svg": b"<?xml version='1.0'?>\n<svg width='5'/>",
    "ico": b"\0\0\1\0\1\0\x10\x10\0\0\1\0\x20\0\x68\x04\0\0" + bytes(99),
    "dcm": bytes(128) + b"DICM" + bytes(99),
    "HEIC": b"\0\0\0\x18ftypheic" + bytes(99),
}


@pytest.mark.parametrize("ending", BYTES)
def test_images_of_other_formats_are_counted_and_named(ending, tmp_path):
    fill(tmp_path, "cat", "dog")
    for i in range(3):
        (tmp_path / "cat" / f"phone{i}.{ending}").write_bytes(BYTES[ending])
    dataset = load_image_dataset(tmp_path)
    assert sizes(dataset) == {"cat": COUNT + 3, "dog": COUNT}
    with pytest.raises(DataError, match=rf"phone0\.{ending}: an? .*not read.*3 of train\. Conv") as error:
        check_readable(dataset.splits)
    assert "broken=skip" in error.value.fix
    found = findings(dataset)["unreadable"]
    assert (found.severity, found.count) == ("warning", 3)
    assert found.examples[0].startswith(str(tmp_path / "cat" / f"phone0.{ending}"))
    kept = load_image_dataset(tmp_path, broken="skip")
    assert sizes(kept) == {"cat": COUNT, "dog": COUNT}
    assert kept.notes[0].startswith("3 images of train left out: ")
    rows = Images().rows(InputRequest([str(tmp_path)], skip=True))
    assert sum(row.error is not None for row in rows) == 3
    assert detect_kind(tmp_path) == "images"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"<!DOCTYPE html><html>", "an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"),
        (b"nothing", r"a\.jpg: is not an image"),
    ],
)
def test_what_only_looks_like_an_image_is_named(content, what, tmp_path):
    (tmp_path / "a.jpg").write_bytes(content)
    with pytest.raises(DataError, match=what):
        open_image(tmp_path / "a.jpg")


def test_links_that_lead_nowhere_are_counted_and_named(tmp_path):
    fill(tmp_path, "cat", "dog")
    for i in range(3):
        (tmp_path / "cat" / f"link{i}.png").symlink_to("/nowhere/a.png")
    dataset = load_image_dataset(tmp_path)
    with pytest.raises(DataError, match=r"link0\.png: a broken link; .*3 of train") as error:
        check_readable(dataset.splits)
    assert "/nowhere/a.png" in error.value.fix
    assert findings(dataset)["unreadable"].count == 3
    assert sizes(load_image_dataset(tmp_path, broken="skip")) == {"cat": COUNT, "dog": COUNT}
    assert len(Images().rows(InputRequest([str(tmp_path)]))) == 2 * COUNT + 3


def test_linked_folders_are_read_once(tmp_path):
    fill(tmp_path / "data", "cat", "dog")
    fill(tmp_path / "more", "second")
    (tmp_path / "data" / "cat" / "linked").symlink_to(tmp_path / "more" / "second")
    (tmp_path / "data" / "cat" / "circle").symlink_to(tmp_path / "data")
    assert len(image_files(tmp_path / "data" / "cat")) == 3 * COUNT  # the circle leads to dog, too
    (tmp_path / "data" / "cat" / "circle").unlink()
    assert sizes(load_image_dataset(tmp_path / "data")) == {"cat": 2 * COUNT, "dog": COUNT}


@pytest.mark.parametrize("name", ["__MACOSX", ".ipynb_checkpoints", "@eaDir", ".git", "__pycache__"])
def test_what_other_programs_leave_is_no_class(name, tmp_path):
    fill(tmp_path, "cat", "dog", name, f"cat/{name}")
    shutil.copy(tmp_path / "cat" / "0.png", tmp_path / "cat" / "._0.png")
    (tmp_path / name / "._1.png").write_bytes(b"not an image")
    dataset = load_image_dataset(tmp_path)
    assert (sizes(dataset), dataset.notes) == ({"cat": COUNT, "dog": COUNT}, ())
    assert len(Images().rows(InputRequest([str(tmp_path)]))) == 2 * COUNT


def test_images_outside_of_the_classes_are_counted(tmp_path):
    fill(tmp_path, "cat", "dog")
    for i in range(5):
        shutil.copy(tmp_path / "cat" / "0.png", tmp_path / f"loose{i}.png")
    (note,) = load_image_dataset(tmp_path).notes
    assert note.startswith("images outside of the class folders, which are ignored: 5 (loose0.png, loose1")
    fill(tmp_path / "b", "train/cat", "train/dog", "test/cat", "test/dog")
    shutil.copy(tmp_path / "cat" / "0.png", tmp_path / "b" / "test" / "loose.png")
    dataset = load_image_dataset(tmp_path / "b")
    assert dataset.notes == ("images outside of the class folders, which are ignored: 1 (test/loose.png)",)
    assert findings(dataset)["source"].severity == "note"


def test_other_files_are_counted_by_their_endings(tmp_path):
    fill(tmp_path, "cat", "dog")
    for name in ("a.xml", "b.xml", "c", "d.JSON"):
        (tmp_path / "dog" / name).touch()
    (tmp_path / "LICENSE.txt").touch()
    (note,) = load_image_dataset(tmp_path).notes
    assert note.endswith("are ignored: 2 .xml, 1 without an extension, 1 .json")
    shutil.rmtree(tmp_path / "cat")
    for path in image_files(tmp_path / "dog"):
        path.unlink()
    with pytest.raises(DataError, match=r"class 'dog' has no images, only 2 \.xml"):
        load_image_dataset(tmp_path)


@pytest.mark.parametrize("ending", ["tga", "jpe", "pbm", "pnm", "apng", "TIFF", "heic"])
def test_endings_of_formats_that_are_read(ending, tmp_path):
    """The content decides."""
    fill(tmp_path, "__background__", "cat")
    forms = {"pbm": "PPM", "pnm": "PPM", "jpe": "JPEG", "apng": "PNG", "heic": "PNG"}
    form = forms.get(ending, ending.upper())
    Image.open(tmp_path / "cat" / "0.png").save(tmp_path / "cat" / f"x.{ending}", form)
    dataset = load_image_dataset(tmp_path)
    assert sizes(dataset) == {"__background__": COUNT, "cat": COUNT + 1}
    check_readable(dataset.splits)


@pytest.mark.parametrize("before", ["", ".\\"])
@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_paths_of_windows_in_a_table(before, ending, tmp_path):
    fill(tmp_path, "cat", "dog")
    names = [f"{before}{name}\\{i}.png" for name in ("cat", "dog") for i in range(COUNT)]
    rows = [(name, "cat" if "cat" in name else "dog") for name in names]
    if ending == "jsonl":
        lines = [f'{{"image": "{a}", "label": "{b}"}}'.replace("\\", "\\\\") for a, b in rows]
    else:
        sign = "," if ending == "csv" else "\t"
        lines = [f"image{sign}label", *(sign.join(row) for row in rows)]
    table = tmp_path / f"mine.{ending}"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    dataset = load_image_dataset(table)
    check_readable(dataset.splits)
    assert dataset.splits["train"].images[0] == str(tmp_path / "cat" / "0.png")
    rows = Images().rows(InputRequest([str(table)]))
    assert [row.text for row in rows] == dataset.splits["train"].images


@pytest.mark.skipif(os.name == "nt", reason="where a backslash can be part of a name")
def test_a_backslash_in_a_name_is_kept(tmp_path):
    fill(tmp_path, "cat")
    shutil.copy(tmp_path / "cat" / "0.png", tmp_path / "cat\\0.png")
    (tmp_path / "mine.csv").write_text("image,label\ncat\\0.png,cat\n", encoding="utf-8")
    assert load_image_dataset(tmp_path / "mine.csv").splits["train"].images == [str(tmp_path / "cat\\0.png")]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("C:\\data\\cat\\0.png", "no such file.*Windows path"),
        ("https://example.org/cat/0.png", "a URL, which is not supported"),
    ],
)
def test_names_that_lead_nowhere(name, what, tmp_path):
    (tmp_path / "mine.csv").write_text(f"image,label\n{name},cat\n{name},dog\n", encoding="utf-8")
    dataset = load_image_dataset(tmp_path / "mine.csv")
    with pytest.raises(DataError, match=what):
        check_readable(dataset.splits)


def test_a_folder_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    fill(tmp_path, "cat", "dog")

    def scandir(path, real=os.scandir):
        if Path(path).name == "dog":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(DataError, match=r"dog: the folder cannot be read: Permission denied"):
        files_below(tmp_path)


def test_a_class_missing_in_validation_is_said(tmp_path):
    fill(tmp_path, "train/cat", "train/dog", "val/cat")
    dataset = load_image_dataset(tmp_path)
    assert list(dataset.splits) == ["train", "validation"]
    assert dataset.notes == ("no image of dog in validation: its metrics say nothing about these classes",)


def test_bad_sources_are_named(tmp_path):
    (fill(tmp_path, "cat") / "bird").mkdir()
    for source, said in (
        (tmp_path, "class .bird. has no images"),
        ("digit", "digits"),
        (tmp_path / "bird", "neither tables nor folders"),
    ):
        with pytest.raises(DataError, match=said):
            load_image_dataset(source)


def test_split_folders_beside_others_are_no_classes(tmp_path):
    fill(tmp_path / "parts", "train/cat", "train/dog", "test/cat", "test/dog", "notes")
    with pytest.raises(DataError, match="test, train look like splits, but notes does not"):
        load_image_dataset(tmp_path / "parts")
    fill(tmp_path / "vehicles", "train", "plane")  # a class of trains is one
    assert load_image_dataset(tmp_path / "vehicles").label_names == ("plane", "train")


def test_a_table_names_files_beside_it(tmp_path):
    fill(tmp_path, "cat", "dog")
    (tmp_path / "table.csv").write_text("file,label\ncat/0.png,a\ndog/1.png,b\n")
    split = load_image_dataset(tmp_path / "table.csv").splits["train"]
    assert split.labels == ["a", "b"]
    assert open_image(split.images[1]).size == (13, 11)


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
