"""Pictures as rows: what PatchDropout keeps, which position each patch gets, the stem, and what is refused."""

import math

import pytest
import torch
from torch.nn import functional as F

from glassformer.errors import ConfigError, ShapeError
from glassformer.nn.patches import (
    ConvolutionStem,
    PatchConfig,
    PatchEmbedding,
    interpolate_positions,
    sinusoidal_2d,
)

SIZE, PATCH, D = (23, 29), (5, 3), 14
PLACES = ["learned", "sinusoidal", "none"]


def pictures(count: int, height: int = 23, width: int = 29, channels: int = 3) -> torch.Tensor:
    return torch.randn(count, channels, height, width, generator=torch.Generator().manual_seed(7))


def embedding(**options) -> PatchEmbedding:
    torch.manual_seed(11)
    built = PatchEmbedding(PatchConfig(D, **{"image_size": SIZE, "patch_size": PATCH} | options))
    with torch.no_grad():
        for p in built.parameters():
            p.normal_()
    return built.eval()


def by_hand(built: PatchEmbedding, picture: torch.Tensor) -> torch.Tensor:
    """The rows of one picture ``[C, H, W]``: a product for each patch, its position added, [CLS] before them."""
    c = built.config
    grid = picture.shape[1] // c.patch_size[0], picture.shape[2] // c.patch_size[1]
    (p, q), rows = c.patch_size, []
    for i in range(grid[0]):
        for j in range(grid[1]):
            patch = picture[:, i * p : (i + 1) * p, j * q : (j + 1) * q]
            rows.append(built.projection(patch.flatten()))
    x = torch.stack(rows)
    if c.positions == "learned":
        x = x + interpolate_positions(built.positions[int(c.class_token) :], c.grid, grid)
    elif c.positions == "sinusoidal":
        x = x + sinusoidal_2d(grid, D)
    if not c.class_token:
        return x
    first = built.cls if c.positions != "learned" else built.cls + built.positions[0]
    return torch.cat([first[None], x])


def distances(found: torch.Tensor, every: torch.Tensor) -> torch.Tensor:
    """``[found, every]``; torch.cdist rounds near 0."""
    return (found[:, None] - every).norm(dim=2)


@pytest.mark.parametrize("positions", PLACES)
@pytest.mark.parametrize("first", [True, False])
def test_rows_are_products_with_their_positions(positions, first):
    built, x = embedding(positions=positions, class_token=first), pictures(3)
    rows, packing = built(x)
    torch.testing.assert_close(rows, torch.cat([by_hand(built, one) for one in x]), atol=1e-5, rtol=1e-5)
    assert packing.lengths == (4 * 9 + first,) * 3
    ragged = [x[0], x[1][:, :17, :13], x[2][:, :5, :3]]
    rows, packing = built(ragged)
    wanted = torch.cat([by_hand(built, one) for one in ragged])
    torch.testing.assert_close(rows, wanted, atol=1e-5, rtol=1e-5)
    assert packing.lengths == (36 + first, 12 + first, 1 + first)
    again = built(ragged)[0]
    assert torch.equal(rows, again)  # fixed positions are remembered by grid


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("first", [True, False])
def test_patch_dropout_keeps_rows_in_their_order_and_as_they_are(first, ragged):
    built, x = embedding(class_token=first, patch_dropout=0.7), pictures(5)
    whole = [by_hand(built, one) for one in x]
    built.train()
    rows, packing = built(list(x) if ragged else x)
    kept = round(36 * (1 - 0.7))
    assert packing.lengths == (kept + first,) * 5
    choices = []
    for found, every in zip(packing.split(rows), whole, strict=True):
        near = distances(found, every).min(1)
        assert near.values.max() < 1e-3
        places = near.indices.tolist()
        assert places == sorted(set(places))
        assert not first or places[0] == 0
        choices.append(tuple(places[first:]))
    assert len(set(choices)) == 5  # each picture has a choice of its own


def test_every_patch_has_the_same_chance_and_one_is_always_left():
    built, seen = (
        embedding(class_token=False, patch_dropout=0.5, image_size=(10, 6), positions="none"),
        torch.zeros(4),
    )
    x = pictures(1, 10, 6)
    whole = by_hand(built, x[0])
    built.train()
    torch.manual_seed(0)
    for _ in range(100):
        for given in (x, [x[0]]):
            seen += (distances(built(given)[0], whole) < 1e-3).sum(0)
    assert seen.sum() == 200 * 2
    assert (seen - 100).abs().max() < 30
    most = embedding(class_token=False, patch_dropout=0.97, image_size=(10, 6)).train()
    assert most(pictures(2, 10, 6))[1].lengths == (1, 1)
    assert most(list(pictures(2, 10, 6)))[1].lengths == (1, 1)


def test_the_stem_is_two_convolutions_without_a_bias():
    stem = ConvolutionStem(2, 7)
    assert sorted(stem.state_dict()) == ["first.weight", "second.weight"]
    assert stem.first.weight.shape == (3, 2, 3, 3)
    assert stem.second.weight.shape == (7, 3, 3, 3)
    assert ConvolutionStem(2, 1).first.weight.shape == (1, 2, 3, 3)
    x = pictures(3, 13, 17, channels=2)
    wanted = x
    for layer in (stem.first, stem.second):
        wanted = F.max_pool2d(F.conv2d(wanted, layer.weight, padding=1).relu(), 3, 2, 1)
    torch.testing.assert_close(stem(x), wanted)


def test_a_stem_reads_whole_patches_only():
    built = embedding(patch_size=(8, 4), stem=5, positions="none", class_token=False)
    x = pictures(2)
    rows, packing = built(x)
    assert packing.lengths == (2 * 7,) * 2
    torch.testing.assert_close(built(x[:, :, :16, :28])[0], rows)
    assert built.projection.weight.shape == (D, 5 * 2 * 1)


def test_positions_of_another_grid_are_read_bicubically():
    table = torch.randn(15, 7, dtype=torch.float64)
    found = interpolate_positions(table, (5, 3), (7, 2))
    assert found.dtype == torch.float64
    image = table.float().view(5, 3, 7).permute(2, 0, 1)[None]
    wanted = F.interpolate(image, size=(7, 2), mode="bicubic").squeeze(0).permute(1, 2, 0).reshape(14, 7)
    torch.testing.assert_close(found.float(), wanted)


def test_a_compute_dtype_leaves_the_module():
    built = embedding()
    assert built(pictures(1))[0].dtype == torch.float32
    built.compute_dtype = torch.bfloat16
    assert built(pictures(1))[0].dtype == torch.bfloat16
    assert built.projection.weight.dtype == torch.float32
    bare = embedding(bias=False, class_token=False, positions="none")
    assert sorted(bare.state_dict()) == ["projection.weight"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (pictures(1)[0], r"pixel values must be \[B, 3, H, W\], got \(3, 23, 29\)"),
        (pictures(1, channels=2), r"got \(1, 2, 23, 29\)"),
        (pictures(1).to(torch.uint8), "normalized floating point, got torch.uint8"),
        (pictures(1, 4, 29), r"an image of \(4, 29\) pixels is smaller than a patch of \(5, 3\)"),
        (pictures(1, 23, 2), r"an image of \(23, 2\) pixels is smaller"),
        ([pictures(1)[0], pictures(1, 4, 29)[0]], r"an image of \(4, 29\) pixels is smaller"),
    ],
)
def test_pictures_that_do_not_fit(wrong, said):
    with pytest.raises(ShapeError, match=said):
        embedding()(wrong)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"image_size": (23,)}, "must be .height, width. in pixels"),
        ({"patch_size": (5, 3, 1)}, "must be .height, width. in pixels"),
        ({"patch_size": (0, 3)}, "at least 1"),
        ({"channels": 0}, "at least 1"),
        ({"stem": -1}, "at least 1"),
        ({"patch_size": (24, 3)}, "do not fit into an image"),
        ({"patch_size": (5, 30)}, "do not fit into an image"),
        ({"stem": 1}, "is not a multiple of 4"),
        ({"stem": 1, "patch_size": (4, 3)}, "is not a multiple of 4"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({"patch_dropout": 1.0}, "patch_dropout must be in"),
    ],
)
def test_settings_that_cannot_be(options, said):
    with pytest.raises(ConfigError, match=said):
        PatchConfig(D, **{"image_size": SIZE, "patch_size": PATCH} | options)


def test_the_least_sizes_and_the_defaults():
    one = PatchConfig(1, (1, 1), (1, 1), 1)
    assert (one.grid, one.num_tokens) == ((1, 1), 2)
    assert PatchConfig(D, SIZE, SIZE).num_tokens == 2
    usual = PatchConfig(D)
    assert (usual.grid, usual.num_tokens, usual.channels, usual.stem) == ((14, 14), 197, 3, 0)
    assert (usual.dropout, usual.patch_dropout, usual.position_std, usual.bias) == (0.0, 0.0, 0.02, True)
    assert PatchConfig(D, class_token=False).num_tokens == math.prod(usual.grid)
