"""Solutions of lab 4."""

import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.nn.patches import cut_patches


def patches(pictures: Tensor, p: int) -> Tensor:
    """``[B, C, H, W]`` -> ``[B, (H/p)(W/p), C p p]``, row by row."""
    b, c, h, w = pictures.shape
    grid = pictures.reshape(b, c, h // p, p, w // p, p)  # [B, C, rows, p, columns, p]
    return grid.permute(0, 2, 4, 1, 3, 5).reshape(b, (h // p) * (w // p), c * p * p)


def as_convolution(pictures: Tensor, weight: Tensor, p: int) -> tuple[Tensor, Tensor]:
    """Patches times a matrix ``[D, C p p]``, and the same weights as a convolution: equal rows."""
    maps = F.conv2d(pictures, weight.view(len(weight), pictures.shape[1], p, p), stride=p)  # [B, D, H/p, W/p]
    return patches(pictures, p) @ weight.T, maps.flatten(2).transpose(1, 2)


def share_left(height: int, width: int, top: int, left: int, rows: int, columns: int) -> float:
    """Of the first picture, when a rectangle of the second is put on it; what hangs over the edge does not count."""
    seen = max(0, min(top + rows, height) - max(top, 0)) * max(0, min(left + columns, width) - max(left, 0))
    return 1 - seen / (height * width)


def test() -> None:
    x = torch.randn(2, 3, 6, 4)
    assert torch.equal(patches(x, 2).flatten(), cut_patches(x, (2, 2)).flatten())
    first, second = as_convolution(x, torch.randn(5, 12), 2)
    assert torch.allclose(first, second, atol=1e-5)
    assert share_left(8, 8, 6, 0, 4, 8) == 0.75
