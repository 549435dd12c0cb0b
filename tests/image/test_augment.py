"""The augmentation ladder: what stays, what changes, one draw a picture, soft labels; and its contact sheet."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from glassformer.cli.app import main
from glassformer.data.augment import (
    CELL_SIDE,
    GAP,
    HEADER_HEIGHT,
    LEVELS,
    OPERATIONS,
    _apply_color_operations,
    augment,
    contact_sheet,
    mix_pairs,
    sheet_columns,
)
from glassformer.data.image_batching import AugmentSettings, ImageBatch, ImageStream
from glassformer.data.transform import ImageTransform, PixelTable
from glassformer.errors import ConfigError
from glassformer.packing import Packing
from glassformer.train.objectives import ImageClassification

from .conftest import fill, quarters


def generator(seed=3):
    return torch.Generator().manual_seed(seed)


def some(b=23, c=3, h=24, w=24):
    return torch.randint(0, 256, (b, c, h, w), dtype=torch.uint8, generator=generator(5))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("level", LEVELS)
def test_every_level_is_seeded_bounded_and_of_its_size(level, channels):
    x = some(c=channels)
    size = (24, 24) if level in ("none", "shift") else (16, 12)
    out = augment(x, size, level, generator())
    assert out.shape == (23, channels, *size)
    assert torch.equal(out, augment(x, size, level, generator()))
    if level != "none":
        assert not torch.equal(out, augment(x, size, level, generator(4)))
        top = 255 if out.dtype == torch.uint8 else 1
        assert 0 <= out.min() <= out.max() <= top
    else:
        assert torch.equal(out, x)


def test_each_picture_has_its_own_draw():
    same = some(1).repeat(17, 1, 1, 1)
    for level in ("shift", "light", "medium", "strong"):
        out = augment(same, (24, 24), level, generator())
        assert len({out[i].float().sum().item() for i in range(17)}) > 8, level


def test_shift_moves_and_mirrors_whole_pixels():
    x = torch.arange(8 * 8, dtype=torch.uint8).view(1, 1, 8, 8).repeat(40, 1, 1, 1) + 1
    out = augment(x, (8, 8), "shift", generator())
    assert set(out.unique().tolist()) <= {0, *range(1, 65)}
    still = augment(x, (8, 8), "shift", generator(), flip=False)
    steps = still[:, 0, 3, 4].int() - still[:, 0, 3, 3].int()
    assert (steps == 1).all()  # columns stay in order without flips


@pytest.mark.parametrize("name", OPERATIONS[6:])
def test_an_operation_touches_only_the_pictures_that_drew_it(name):
    x = some(6).float() / 255
    drawn = torch.tensor([0, OPERATIONS.index(name)] * 3)
    out = _apply_color_operations(x, drawn, torch.ones(6))
    assert torch.equal(out[0::2], x[0::2])
    assert not torch.equal(out[1::2], x[1::2])


def test_unknown_level():
    with pytest.raises(ConfigError, match="strong"):
        augment(some(), (8, 8), "strng", generator())


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_mixing_is_what_the_soft_labels_say(kind):
    b = 31
    x = torch.arange(b).float()[:, None, None, None].expand(b, 1, 12, 12)  # picture i is all i
    out, mixed = mix_pairs(x, kind, 1.0, 1.0, generator())
    assert mixed is not None
    mean = mixed.share * torch.arange(b) + (1 - mixed.share) * mixed.partner
    torch.testing.assert_close(out.mean((1, 2, 3)), mean, rtol=1e-4, atol=1e-4)
    soft = mixed.soften(torch.arange(b), b)
    torch.testing.assert_close(soft.sum(1), torch.ones(b))
    torch.testing.assert_close(soft @ torch.arange(b).float(), mean, rtol=1e-4, atol=1e-4)
    assert mix_pairs(x, kind, 0.0, 1.0, generator())[1] is None


class Fixed(torch.nn.Module):
    def __init__(self, logits):
        super().__init__()
        self.logits = logits

    def forward(self, pixels, packed):
        return self


def test_soft_labels_in_loss_and_metric():
    logits = torch.randn(7, 3, generator=generator())
    x, mixed = mix_pairs(torch.randn(7, 1, 4, 4), "mixup", 1.0, 1.0, generator())
    targets, weights = np.array([0, 1, 2, 0, 1, 2, 0]), np.linspace(0.5, 1.5, 7).astype(np.float32)
    batch = ImageBatch(x, Packing.uniform(7, 5), np.arange(7), mixed)
    out = ImageClassification(targets, weights)(Fixed(logits), batch)
    t, w, loss, right = torch.from_numpy(targets), torch.from_numpy(weights), 0.0, 0.0
    for i in range(7):
        s, j = mixed.share[i], mixed.partner[i]
        cross = s * F.cross_entropy(logits[i], t[i]) + (1 - s) * F.cross_entropy(logits[i], t[j])
        loss += (s * w[i] + (1 - s) * w[j]) * cross
        top = logits[i].argmax()
        right += float(s * (top == t[i]) + (1 - s) * (top == t[j]))
    torch.testing.assert_close(out.loss, loss)
    assert out.correct == pytest.approx(right, abs=1e-5)


def test_a_batch_can_be_made_again_and_every_picture_comes_once():
    transform, settings = ImageTransform((16, 16)), AugmentSettings("strong", mix="both")
    stream = ImageStream(PixelTable(some(29).numpy()), transform, settings, 17, 8, 2, 3, torch.device("cpu"))
    steps = stream.steps(1)
    seen = np.concatenate([draw.index for step in steps for draw in step])
    assert sorted(seen.tolist()) == list(range(29))
    draw = steps[1][0]
    assert torch.equal(stream.pack(draw).pixels, stream.pack(draw).pixels)
    assert stream.pack(draw).packing.total == 8 * 17
    other = stream.steps(2)
    assert not np.array_equal(other[0][0].index, steps[0][0].index)


# --- the contact sheet, and the command that writes it -------------------------------------------------


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
    return fill(tmp_path / "corners", 13, 3)


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
