"""Histograms of oriented gradients against what can be worked out on paper."""

import pytest
import torch

from glassformer.errors import ConfigError, ShapeError
from glassformer.nn.hog import HogConfig, HogEmbedding, cell_weights, direction_votes, normalized_histograms

ROW = torch.arange(7.0)
TO_THE_RIGHT = ROW.expand(1, 1, 5, 7)  # brighter by 1 with each column
DOWNWARD = torch.arange(5.0)[:, None].expand(1, 1, 5, 7)


def test_a_vertical_edge_lies_between_the_first_and_the_last_direction():
    found = direction_votes(TO_THE_RIGHT, 9)[0]  # [K, H, W]
    assert found.shape == (9, 5, 7)
    size = torch.tensor([1.0, 2, 2, 2, 2, 2, 1]).expand(5, 7)  # the pixel after minus the one before
    for k in range(9):  # 0 degrees are as far from 10 as from 170
        wanted = size / 2 if k in (0, 8) else torch.zeros(5, 7)
        torch.testing.assert_close(found[k], wanted, atol=1e-6, rtol=0)


def test_a_horizontal_edge_is_the_middle_direction():
    found = direction_votes(DOWNWARD, 9)[0]
    torch.testing.assert_close(found[4, 2], torch.full((7,), 2.0))  # at 90 degrees
    assert float(found[[0, 1, 2, 3, 5, 6, 7, 8]].abs().max()) < 1e-5


def test_a_slope_is_shared_by_its_distance():
    image = DOWNWARD + TO_THE_RIGHT  # 45 degrees: three quarters to 50, one quarter to 30
    found = direction_votes(image, 9)[0, :, 2, 3]
    wanted = torch.zeros(9)
    wanted[1], wanted[2] = 8**0.5 / 4, 8**0.5 * 3 / 4
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


def test_the_channel_with_the_largest_gradient_votes():
    image = torch.cat([TO_THE_RIGHT, 3 * DOWNWARD], 1)
    torch.testing.assert_close(direction_votes(image, 9), direction_votes(3 * DOWNWARD, 9))


def test_pixels_count_for_the_cells_that_are_near():
    found = cell_weights(2, 2, torch.device("cpu"))
    wanted = torch.tensor([[0.75, 0.75, 0.25, 0.0], [0.0, 0.25, 0.75, 0.75]]) / 2
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(cell_weights(3, 5, torch.device("cpu"))[1].sum(), torch.tensor(1.0))


def test_one_cell_is_normalized_by_itself():
    config = HogConfig((5, 7), (5, 7), 1)
    found = normalized_histograms(TO_THE_RIGHT, config).view(4, 9)
    wanted = torch.zeros(9)
    wanted[0] = wanted[8] = 0.5 / 2**0.5  # a block is the cell four times
    torch.testing.assert_close(found, wanted.expand(4, 9), atol=1e-5, rtol=0)


def test_a_block_is_two_by_two_cells():
    """Two cells side by side, the right one with twice the contrast."""
    config = HogConfig((4, 8), (4, 4), 1)
    image = torch.cat([torch.zeros(4, 3), torch.full((4, 2), 1.0), torch.full((4, 3), 3.0)], 1)
    counts = (
        cell_weights(1, 4, image.device)
        @ direction_votes(image[None, None], 9)
        @ cell_weights(2, 4, image.device).T
    )
    left, right = counts[0, :, 0].norm(dim=0).tolist()
    found = normalized_histograms(image[None, None], config)[0].view(4, 9, 2).norm(dim=1)  # [block, cell]
    between, outer = (2 * left**2 + 2 * right**2) ** 0.5, (2 * left, 2 * right)
    wanted = [[left / outer[0], right / between], [left / between, right / outer[1]]] * 2
    torch.testing.assert_close(found, torch.tensor(wanted), atol=1e-4, rtol=0)


def test_contrast_and_brightness_do_not_count_and_nothing_is_nothing():
    image = torch.rand(2, 3, 12, 8, generator=torch.Generator().manual_seed(3))
    config = HogConfig((12, 8), (4, 4))
    found = normalized_histograms(image, config)
    assert found.shape == (2, 36, 3, 2)
    torch.testing.assert_close(normalized_histograms(0.5 * image + 0.25, config), found, atol=1e-3, rtol=0)
    torch.testing.assert_close(normalized_histograms(-image, config), found, atol=1e-6, rtol=0)
    assert not normalized_histograms(torch.full((1, 3, 12, 8), 0.5), config).any()


def test_rows_end_with_the_mean_color_and_what_is_left_over_is_not_read():
    image = torch.rand(2, 3, 13, 11, generator=torch.Generator().manual_seed(5))
    embedding = HogEmbedding(HogConfig((13, 11), (4, 5)))
    rows, packing = embedding(image)
    assert packing.lengths == (6, 6)
    assert rows.shape == (12, 39)
    torch.testing.assert_close(rows[9, 36:], image[1, :, 4:8, 5:10].mean((1, 2)))
    other = image.clone()
    other[:, :, 12:], other[..., 10:] = 0.0, 0.0
    torch.testing.assert_close(embedding(other)[0], rows)


def test_what_does_not_fit_is_an_error():
    with pytest.raises(ConfigError, match="do not fit into an image"):
        HogConfig((7, 8), (8, 8))
    with pytest.raises(ConfigError, match="at least 1"):
        HogConfig((8, 8), (0, 4))
    embedding = HogEmbedding(HogConfig((8, 8), (4, 4)))
    for wrong in (
        torch.rand(1, 3, 8, 12),
        torch.rand(1, 1, 8, 8),
        torch.zeros(1, 3, 8, 8, dtype=torch.uint8),
    ):
        with pytest.raises(ShapeError, match=r"\[B, 3, 8, 8\]"):
            embedding(wrong)
