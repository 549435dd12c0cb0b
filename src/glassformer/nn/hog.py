"""Histograms of oriented gradients (HOG; Dalal and Triggs, 2005): image features without weights.

    gradients       one per pixel, from the channel with the largest gradient
    histograms      one of gradient directions per cell. The length of a pixel's gradient is distributed over
                    the two nearest directions and the four nearest cells.
    normalization   divides each histogram by the energy of each of the four blocks of 2 x 2 cells around it

Differences from the paper: the outer cells are repeated around the image, so every cell has four blocks.
Histograms are not clipped. The mean color of each cell is an additional feature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.errors import ConfigError, ShapeError
from glassformer.packing import Packing

MIN_GRADIENT = 1e-3  # gradients far below this have almost no effect (pixel values are from -1 to 1)


@dataclass(frozen=True)
class HogConfig:
    """Config of HOG features."""

    image_size: tuple[int, ...] = (48, 48)  # height, width
    patch_size: tuple[int, ...] = (8, 8)  # height, width of a cell
    channels: int = 3
    directions: int = 9  # bins from 0 to 180 degrees; opposite gradient directions are the same edge
    patch_dropout: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if min(*self.image_size, *self.patch_size, self.channels, self.directions) < 1:
            raise ConfigError("sizes, channels and directions must be at least 1", where="image_size")
        if min(self.grid) < 1:
            what = f"cells of {self.patch_size} pixels do not fit into an image of {self.image_size}"
            raise ConfigError(what, where="patch_size")

    @cached_property
    def grid(self) -> tuple[int, int]:
        """Number of cells along height and width; remaining pixels are ignored."""
        (h, w), (p, q) = self.image_size, self.patch_size
        return h // p, w // q

    @property
    def num_tokens(self) -> int:
        """Number of cells."""
        return math.prod(self.grid)

    @property
    def d_model(self) -> int:
        """D, the number of features per cell: four normalized histograms and the mean color."""
        return 4 * self.directions + self.channels


def direction_votes(images: Tensor, directions: int) -> Tensor:
    """Votes of each pixel for each gradient direction: ``[B, C, H, W]`` -> ``[B, K, H, W]``.

    Direction k of K is (k + 1/2) * 180 / K degrees.
    """
    x = F.pad(images, (1, 1, 1, 1), mode="replicate")
    dx, dy = x[:, :, 1:-1, 2:] - x[:, :, 1:-1, :-2], x[:, :, 2:, 1:-1] - x[:, :, :-2, 1:-1]
    squares = dx * dx + dy * dy
    strongest = squares.argmax(1, keepdim=True)  # [B, 1, H, W], index of a channel
    dx, dy, squares = (part.gather(1, strongest) for part in (dx, dy, squares))
    angle = torch.atan2(dy, dx) * (directions / math.pi) - 0.5  # in steps from one direction to the next
    numbers = torch.arange(directions, device=x.device).view(1, -1, 1, 1)
    offset = (angle - numbers) % directions  # [B, K, H, W]
    share = (1.0 - torch.minimum(offset, directions - offset)).clamp(min=0.0)
    return share * squares.sqrt()


def cell_weights(cells: int, size: int, device: torch.device) -> Tensor:
    """Weight of each row (or column) of pixels in each cell, ``[cells, cells * size]``.

    Weights decrease linearly from the middle of the cell to zero at the middle of the next cell. They sum to
    1, except for the outer cells.
    """
    pixels = (torch.arange(cells * size, device=device) + 0.5) / size
    middles = torch.arange(cells, device=device)[:, None] + 0.5
    return (1.0 - (pixels - middles).abs()).clamp(min=0.0) / size


def normalized_histograms(images: Tensor, config: HogConfig) -> Tensor:
    """Normalized histograms: ``[B, C, H, W]`` -> ``[B, 4 K, gh, gw]``.

    The four blocks of a cell are at its upper left, upper right, lower left and lower right.
    """
    (gh, gw), (p, q) = config.grid, config.patch_size
    rows, columns = cell_weights(gh, p, images.device), cell_weights(gw, q, images.device)
    counts = rows @ direction_votes(images, config.directions) @ columns.T  # [B, K, gh, gw]
    energy = F.pad((counts * counts).sum(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    blocks = (F.avg_pool2d(energy, 2, 1) * 4 + MIN_GRADIENT * MIN_GRADIENT).sqrt()  # [B, 1, gh + 1, gw + 1]
    cell_blocks = [blocks[:, :, i : i + gh, j : j + gw] for i in (0, 1) for j in (0, 1)]
    return torch.cat([counts / block for block in cell_blocks], 1)


class HogEmbedding(nn.Module):
    """HOG features of each cell, packed: histograms, then mean color. Always computes in fp32."""

    def __init__(self, config: HogConfig):
        super().__init__()
        self.config = config

    def padded(self, images: Tensor) -> Tensor:
        """Normalized images ``[B, C, H, W]`` -> ``[B, T, D]``, cells in row-major order."""
        c = self.config
        (gh, gw), (p, q) = c.grid, c.patch_size
        images = images[:, :, : gh * p, : gw * q].float()
        cells = torch.cat(
            [normalized_histograms(images, c), F.avg_pool2d(images, (p, q))], 1
        )  # [B, D, gh, gw]
        return cells.flatten(2).transpose(1, 2)

    def forward(self, images: Tensor) -> tuple[Tensor, Packing]:
        """``[B, C, H, W]`` -> features ``[N, D]`` of N cells, and their packing."""
        expected = (self.config.channels, *self.config.image_size)
        if tuple(images.shape[1:]) != expected or not images.is_floating_point():
            what = f"pixel values must be [B, {', '.join(map(str, expected))}], floating point"
            raise ShapeError(f"{what}; got {tuple(images.shape)}, {images.dtype}", where="pixel_values")
        x = self.padded(images)
        return x.flatten(0, 1), Packing.uniform(len(x), x.shape[1], x.device)
