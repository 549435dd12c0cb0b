"""A folder of images of one's own, cross-validated and reviewed without a recipe."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.tables import read_csv

from .every import VIT
from .tiny import sets

SMALL = sets(*VIT, "baselines=false", "augment=none")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Seven red and seven blue squares, and a file that is not an image."""
    for tint, label in ((0, "red"), (2, "blue")):
        (tmp_path / "mine" / label).mkdir(parents=True)
        for i in range(7):
            values = np.full((11, 13, 3), 10 * i, np.uint8)
            values[..., tint] = 250
            Image.fromarray(values).save(tmp_path / "mine" / label / f"{i}.png")
    (tmp_path / "mine" / "red" / "note.png").write_text("no picture")
    return tmp_path / "mine"


@pytest.mark.parametrize("given", [("--images", "mine"), ("mine",)])
def test_they_go_into_the_folds_and_come_back_to_be_corrected(ok, refused, pictures, tmp_path, given):
    asked = [*given, "--folds", "2", "--out", "folds", *SMALL]
    if given[0] == "--images":
        said = refused("review-labels", *asked)
        assert "note.png: is not an image" in said  # before a fold is trained
        assert "--on-bad-row skip" in said
        assert not (tmp_path / "folds").exists()
    result = ok("review-labels", *asked, "--on-bad-row", "skip")
    assert "14 examples in 2 folds" in result.out
    assert "then train on that file: glassformer train --images folds/to_correct.csv" in result.out
    rows = read_csv(tmp_path / "folds" / "to_correct.csv")
    assert len(rows) == 14
    assert sorted(Path(row["file"]).parent.name for row in rows) == sorted(row["label"] for row in rows)


def test_a_table_of_files_is_answered_row_for_row(ok, refused, pictures, tmp_path):
    (pictures / "red" / "note.png").unlink()
    ok("train", "--images", "mine", "--out", "run", *SMALL)
    (tmp_path / "new.csv").write_text("nr,photo\n7,mine/red/0.png\n8,mine/red/gone.png\n9,mine/blue/1.png\n")
    assert "gone.png" in refused("predict", "run", "new.csv")
    (tmp_path / "bad.png").write_text("not an image")
    said = refused("predict", "run", "bad.png", "--on-bad-row", "skip")
    assert "bad.png: no image can be used; is not an image" in said
    assert said.endswith("Give at least one image")
    result = ok("predict", "run", "new.csv", "--on-bad-row", "skip", "--out", "out.csv")
    assert "1 row was not predicted: no such file (row 3)" in result.err
    rows = read_csv(tmp_path / "out.csv")
    told = [(r["row"], r["nr"], r["predicted"] in ("red", "blue"), bool(r["error"])) for r in rows]
    assert told == [("2", "7", True, False), ("3", "8", False, True), ("4", "9", True, False)]
    (tmp_path / "other.csv").write_text("nr,name\n7,mine/red/0.png\n")
    said = refused("predict", "run", "other.csv")
    assert "no column of images (columns: nr, name). This model reads images: give image files," in said


def test_labels_of_pictures_that_are_no_classes_are_said(as_json, refused, pictures, tmp_path):
    files = sorted(str(path.relative_to(tmp_path)) for path in pictures.rglob("[0-9].png"))
    rows = "".join(f"{name},{i * 0.37:.2f}\n" for i, name in enumerate(files))
    (tmp_path / "numbers.csv").write_text("photo,score\n" + rows)
    said = refused("train", "--images", "numbers.csv", "--out", "run", *SMALL)
    assert "'score' has 14 different values in 14 rows; these look like numbers, not classes" in said
    assert "--set target=number" in said
    rows = "".join(f"{name},{('red', 'red|big', 'big')[i % 3]}\n" for i, name in enumerate(files))
    (tmp_path / "kinds.csv").write_text("photo,kinds\n" + rows)
    findings = as_json("data", "doctor", "kinds.csv")["findings"]
    (found,) = (f for f in findings if f["code"] == "label-kind")
    assert "the labels look like several labels per example ('red|big')" in found["message"]
