"""Solutions of lab 4."""

import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.nn import ClassificationHead
from glassformer.nn.patches import cut_patches


def patches(images: Tensor, p: int) -> Tensor:
    """The grid has an axis for rows and one for columns of patches; these two come first."""
    b, c, h, w = images.shape
    grid = images.reshape(b, c, h // p, p, w // p, p)  # [B, C, rows, p, columns, p]
    return grid.permute(0, 2, 4, 1, 3, 5).reshape(b, (h // p) * (w // p), c * p * p)


def as_convolution(images: Tensor, weight: Tensor, p: int) -> tuple[Tensor, Tensor]:
    """Each row of the matrix is a kernel of p × p."""
    maps = F.conv2d(images, weight.view(len(weight), images.shape[1], p, p), stride=p)  # [B, D, H/p, W/p]
    return patches(images, p) @ weight.T, maps.flatten(2).transpose(1, 2)


def head_parameters(d_model: int, hidden: int, classes: int) -> int:
    """Two matrices with their biases."""
    return (d_model + 1) * hidden + (hidden + 1) * classes


def soft_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """With labels of 0 and 1 it is the usual cross-entropy."""
    return -(labels * logits.log_softmax(1)).sum(1).mean()


def share_left(height: int, width: int, top: int, left: int, rows: int, columns: int) -> float:
    """The rectangle is clipped at all four edges."""
    seen = max(0, min(top + rows, height) - max(top, 0)) * max(0, min(left + columns, width) - max(left, 0))
    return 1 - seen / (height * width)


def rollout(maps: Tensor) -> Tensor:
    """The first layer is applied first, so it is on the right of the product."""
    whole = torch.eye(maps.shape[-1])
    for layer in maps.mean(1):
        whole = (layer + torch.eye(len(layer))) / 2 @ whole
    return whole


def test() -> None:
    x = torch.randn(2, 3, 6, 4)
    assert torch.equal(patches(x, 2).flatten(), cut_patches(x, (2, 2)).flatten())
    first, second = as_convolution(x, torch.randn(5, 12), 2)
    assert torch.allclose(first, second, atol=1e-5)
    assert torch.allclose(second[0, 0], first[0, 0], atol=1e-5)
    head = ClassificationHead(8, 3, kind="mlp", hidden=5)
    assert head_parameters(8, 5, 3) == sum(p.numel() for p in head.parameters())
    logits, targets = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    assert torch.allclose(soft_loss(logits, F.one_hot(targets, 3).float()), F.cross_entropy(logits, targets))
    half = torch.full((4, 3), 1 / 3)
    assert torch.allclose(soft_loss(logits, half), F.cross_entropy(logits, half))
    assert share_left(8, 8, 6, 0, 4, 8) == 0.75
    assert share_left(8, 8, -2, -2, 4, 4) == 1 - 4 / 64
    first, second = torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    found = rollout(torch.stack([first, second])[:, None])
    assert torch.allclose(found, torch.tensor([[0.5, 0.5], [0.25, 0.75]]))
