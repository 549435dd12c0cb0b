"""A contact sheet of augmentations, and the command that writes it."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from glassformer.cli.app import main
from glassformer.data.augment import CELL_SIDE, GAP, HEADER_HEIGHT, LEVELS, contact_sheet, sheet_columns
from glassformer.errors import ConfigError

from .conftest import quarters


def cell(sheet: Image.Image, i: int, j: int) -> np.ndarray:
    x, y = GAP + j * (CELL_SIDE + GAP), HEADER_HEIGHT + i * (CELL_SIDE + GAP)
    return np.asarray(sheet)[y : y + CELL_SIDE, x : x + CELL_SIDE]


def test_a_row_a_picture_and_a_column_a_step():
    pictures, _ = quarters(5, 3)
    sheet = contact_sheet(pictures, "strong")
    assert sheet_columns("strong") == ["original", *LEVELS[1:5], "mixup", "cutmix"]
    assert sheet_columns("stacked")[5] == "stacked"
    assert sheet.size == (GAP + 7 * (CELL_SIDE + GAP), HEADER_HEIGHT + 5 * (CELL_SIDE + GAP))
    assert np.array_equal(np.asarray(sheet), np.asarray(contact_sheet(pictures, "strong")))
    changed = np.zeros(7, int)
    for i, picture in enumerate(pictures):
        large = Image.fromarray(picture).resize((CELL_SIDE, CELL_SIDE), Image.Resampling.NEAREST)
        assert np.array_equal(cell(sheet, i, 0), np.asarray(large))
        changed += [not np.array_equal(cell(sheet, i, 0), cell(sheet, i, j)) for j in range(7)]
    assert changed[0] == 0
    assert min(changed[1:]) >= 3
    assert np.asarray(sheet)[:HEADER_HEIGHT].min() < 100  # the columns have names


def test_the_ladder_ends_at_the_level_named():
    assert sheet_columns("light") == ["original", "shift", "light", "mixup", "cutmix"]
    with pytest.raises(ConfigError, match=r"no augmentation 'stronk'\. Did you mean 'strong'"):
        sheet_columns("stronk")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, (picture, label) in enumerate(zip(*quarters(13, 3), strict=True)):
        (tmp_path / "corners" / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(tmp_path / "corners" / label / f"{i}.png")
    return tmp_path / "corners"


def test_the_command_writes_a_png(folder: Path, tmp_path: Path, capsys):
    out = tmp_path / "sheet.png"
    assert main(["data", "show", str(folder), "--augment", "medium", "--out", str(out)]) == 0
    assert f"8 images, original, shift, light, medium, mixup, cutmix: {out}" in capsys.readouterr().out
    with Image.open(out) as sheet:
        assert sheet.size == (GAP + 6 * (CELL_SIDE + GAP), HEADER_HEIGHT + 8 * (CELL_SIDE + GAP))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--augment", "strong"], "--out FILE.png"),
        (["--out", "sheet.png"], "--augment LEVEL"),
        (["--augment", "stronk", "--out", "sheet.png"], "Did you mean 'strong'"),
        (["--augment", "strong", "--out", "sheet.jpg"], "ends in .png"),
        (["--augment", "strong", "--out", "nowhere/sheet.png"], "no such folder"),
        (["--augment", "strong", "--out", "."], "a folder, where a file is to be written"),
    ],
)
def test_what_cannot_be_drawn_is_refused(folder: Path, tmp_path: Path, capsys, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "show", str(folder), *arguments]) == 2
    assert said in capsys.readouterr().err
