"""The augmentation ladder: what stays, what changes, one draw a picture, soft labels."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from glassformer.data.augment import LEVELS, OPERATIONS, _apply_color_operations, augment, mix_pairs
from glassformer.data.image_batching import AugmentSettings, ImageBatch, ImageStream
from glassformer.data.transform import ImageTransform, PixelTable
from glassformer.errors import ConfigError
from glassformer.packing import Packing
from glassformer.train.objectives import ImageClassification


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
    table = PixelTable(some(29).numpy())
    stream = ImageStream(
        table,
        ImageTransform((16, 16)),
        AugmentSettings("strong", mix="both"),
        17,
        8,
        2,
        3,
        torch.device("cpu"),
    )
    steps = stream.steps(1)
    seen = np.concatenate([draw.index for step in steps for draw in step])
    assert sorted(seen.tolist()) == list(range(29))
    draw = steps[1][0]
    assert torch.equal(stream.pack(draw).pixels, stream.pack(draw).pixels)
    assert stream.pack(draw).packing.total == 8 * 17
    other = stream.steps(2)
    assert not np.array_equal(other[0][0].index, steps[0][0].index)
