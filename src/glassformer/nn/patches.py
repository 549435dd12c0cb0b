"""Patch embeddings of images (Dosovitskiy et al., 2021).

    image [C, gh * p, gw * q]  --cut-->  patches [gh * gw, C * p * q]  --linear-->  tokens [gh * gw, D]

This equals a convolution whose kernel and stride are the patch size. The grid has gh x gw patches of p x q
pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.errors import ConfigError, ShapeError
from glassformer.nn.dropout import Dropout, check_rate
from glassformer.nn.positions import sinusoidal
from glassformer.packing import Packing
from glassformer.runtime import generator_on
from glassformer.types import Positions

Images = Tensor | Sequence[Tensor]  # [B, C, H, W], or B tensors [C, H_i, W_i]
STEM_STRIDE = 4  # total stride of the convolution stem


@dataclass(frozen=True)
class PatchConfig:
    """Config of patch embeddings: patches, positions, class token and convolution stem."""

    d_model: int
    image_size: tuple[int, ...] = (224, 224)  # height, width; determines the grid of learned positions
    patch_size: tuple[int, ...] = (16, 16)  # height, width
    channels: int = 3
    positions: Positions = "learned"
    class_token: bool = True  # [CLS] before the patches
    bias: bool = True  # whether the patch projection has a bias
    stem: int = 0  # channels of the two-layer convolution stem; 0: no stem
    dropout: float = 0.0  # rate, after adding positions
    patch_dropout: float = 0.0  # share of patches dropped from each image in training (Liu et al., 2022)
    position_std: float = 0.02  # initial standard deviation of positions, class token and registers
    registers: int = 0  # number of learned tokens without a position, after [CLS] (Darcet et al., 2024)
    register_positions: bool = False  # whether registers have positions, like DeiT's distillation token
    norm: bool = False  # whether a layer norm follows the positions
    eps: float = 1e-5  # eps of this norm
    antialias: bool = False  # whether the interpolation of learned positions to a coarser grid is antialiased

    def __post_init__(self) -> None:
        sizes = (self.d_model, self.channels, *self.image_size, *self.patch_size)
        if len(self.image_size) != 2 or len(self.patch_size) != 2 or min(sizes) < 1 or self.stem < 0:
            raise ConfigError(
                f"image_size {self.image_size} and patch_size {self.patch_size} must be (height, width) in "
                "pixels, at least 1",
                where="patches",
            )
        if min(self.grid) < 1:
            raise ConfigError(
                f"patches of {self.patch_size} pixels do not fit into an image of {self.image_size}",
                where="patch_size",
            )
        if self.registers < 0 or (self.registers and not self.class_token):
            what = f"{self.registers} registers need a class token"
            raise ConfigError(what, where="registers", fix="Use 0, or class_token = true")
        if self.stem and any(p % STEM_STRIDE for p in self.patch_size):
            raise ConfigError(
                f"patch_size {self.patch_size} is not a multiple of {STEM_STRIDE}, the stride of the stem",
                where="stem",
            )
        check_rate("dropout", self.dropout)
        check_rate("patch_dropout", self.patch_dropout)

    @cached_property
    def grid(self) -> tuple[int, int]:
        """Number of patches along height and width; remaining pixels are ignored."""
        (h, w), (p, q) = self.image_size, self.patch_size
        return h // p, w // q

    @property
    def num_prefix(self) -> int:
        """Number of tokens before the patches: [CLS] and registers."""
        return self.class_token + self.registers

    @property
    def num_prefix_positions(self) -> int:
        """Number of tokens before the patches that have a learned position."""
        return self.num_prefix if self.register_positions else int(self.class_token)

    @property
    def num_tokens(self) -> int:
        """Number of tokens per image, with [CLS] and registers: 197 for 224 x 224 pixels, 16 x 16 patches."""
        return math.prod(self.grid) + self.num_prefix


def cut_patches(images: Tensor, patch: tuple[int, ...]) -> Tensor:
    """Cut images into patches in row-major order: ``[B, C, H, W]`` -> ``[B, gh * gw, C * p * q]``."""
    b, c, h, w = images.shape
    (p, q), gh, gw = patch, h // patch[0], w // patch[1]
    x = images[:, :, : gh * p, : gw * q].reshape(b, c, gh, p, gw, q)
    return x.permute(0, 2, 4, 1, 3, 5).reshape(b, gh * gw, c * p * q)


def join_patches(patches: Tensor, grid: tuple[int, int], patch: tuple[int, ...], channels: int) -> Tensor:
    """The inverse of ``cut_patches``: ``[B, gh * gw, C * p * q]`` -> ``[B, C, gh * p, gw * q]``."""
    (gh, gw), (p, q) = grid, patch
    x = patches.view(len(patches), gh, gw, channels, p, q).permute(0, 3, 1, 4, 2, 5)
    return x.reshape(len(patches), channels, gh * p, gw * q)


def sinusoidal_2d(grid: tuple[int, int], d_model: int) -> Tensor:
    """Sinusoidal positions ``[gh * gw, D]`` on a grid; half of the features encode rows, half columns."""
    gh, gw = grid
    rows, columns = sinusoidal(gh, d_model // 2), sinusoidal(gw, d_model - d_model // 2)
    return torch.cat([rows.repeat_interleave(gw, 0), columns.repeat(gh, 1)], dim=1)


def interpolate_positions(
    table: Tensor, old: tuple[int, int], new: tuple[int, int], antialias: bool = False
) -> Tensor:
    """Learned positions ``[gh * gw, D]``, interpolated to another grid (Dosovitskiy et al., sect. 3.2).

    The interpolation is bicubic. With ``antialias``, a position of a coarser grid is an average over several
    old positions.
    """
    if old == new:
        return table
    image = table.float().view(*old, -1).permute(2, 0, 1)[None]  # [1, D, gh, gw]
    image = F.interpolate(image, size=new, mode="bicubic", align_corners=False, antialias=antialias)
    return image[0].flatten(1).T.to(table.dtype)


class ConvolutionStem(nn.Module):
    """Two 3x3 convolutions, each with ReLU and a 3x3 max-pooling of stride 2 (Hassani et al., 2021, CCT).

    ``[B, C, H, W]`` -> ``[B, S, H / 4, W / 4]``. A convolution has the locality that a plain ViT must learn
    from data.
    """

    def __init__(self, channels: int, width: int):
        super().__init__()
        self.first = nn.Conv2d(channels, width // 2 or 1, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width // 2 or 1, width, 3, padding=1, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        x = images.contiguous(memory_format=torch.channels_last)
        for layer in (self.first, self.second):
            x = F.max_pool2d(torch.relu(layer(x)), 3, stride=2, padding=1)
        return x


class PatchEmbedding(nn.Module):
    """Patch embeddings with [CLS] and positions, packed.

    Positions and [CLS] stay in fp32 when the encoder computes in bf16. The output has ``compute_dtype``.
    """

    def __init__(self, config: PatchConfig):
        super().__init__()
        c = self.config = config
        self.stem = ConvolutionStem(c.channels, c.stem) if c.stem else None
        stride = STEM_STRIDE if c.stem else 1
        self.patch = tuple(size // stride for size in c.patch_size)  # patch size after the stem
        self.projection = nn.Linear((c.stem or c.channels) * math.prod(self.patch), c.d_model, bias=c.bias)
        self.cls = nn.Parameter(torch.zeros(c.d_model)) if c.class_token else None
        self.positions = (
            nn.Parameter(torch.zeros(c.num_tokens - c.num_prefix + c.num_prefix_positions, c.d_model))
            if c.positions == "learned"
            else None
        )
        self.registers = nn.Parameter(torch.zeros(c.registers, c.d_model)) if c.registers else None
        self.norm = nn.LayerNorm(c.d_model, eps=c.eps) if c.norm else nn.Identity()
        self.dropout = Dropout(c.dropout)
        self.compute_dtype: torch.dtype | None = None
        self._fixed: dict[tuple[int, int], Tensor] = {}

    def forward(self, pictures: Images) -> tuple[Tensor, Packing]:
        """Tokens ``[N, D]`` and their packing, from images ``[B, C, H, W]`` or a list of several sizes.

        Raises:
            ShapeError: pixel values have a wrong shape or dtype, or an image is smaller than a patch.
        """
        patches, grids = self._cut(pictures)  # [B, n, C * p * q] or a list of [n_i, C * p * q]
        if self.training and self.config.patch_dropout:
            return self._patch_dropout(patches, grids)
        counts = [gh * gw for gh, gw in grids]
        flat = patches.flatten(0, 1) if isinstance(patches, Tensor) else torch.cat(list(patches))
        x = self._project(flat)
        if isinstance(patches, Tensor):
            x = x.view(len(counts), counts[0], -1) + self._grid_positions(grids[0], x)
            return self._with_prefix(x)
        x = x + torch.cat([self._grid_positions(grid, x) for grid in grids])
        prefix = self._prefix_tokens(x)
        tokens = [t for image_tokens in x.split(counts) for t in (prefix, image_tokens)]
        packing = Packing(tuple(n + len(prefix) for n in counts), x.device)
        return self._output(torch.cat(tokens)), packing

    def _cut(self, images: Images) -> tuple[Tensor | list[Tensor], list[tuple[int, int]]]:
        batches = [images] if isinstance(images, Tensor) else [image[None] for image in images]
        cut, grids = [], []
        for batch in batches:
            self._check(batch)
            (p, q), (h, w) = self.config.patch_size, batch.shape[2:]
            grid = h // p, w // q
            if self.stem is not None:
                batch = batch[:, :, : grid[0] * p, : grid[1] * q]
                batch = self.stem(batch.to(self.stem.first.weight.dtype))
            cut.append(cut_patches(batch, self.patch))
            grids += [grid] * len(batch)
        return (cut[0] if isinstance(images, Tensor) else [x[0] for x in cut]), grids

    def _check(self, images: Tensor) -> None:
        c = self.config
        if images.ndim != 4 or images.shape[1] != c.channels:
            raise ShapeError(
                f"pixel values must be [B, {c.channels}, H, W], got {tuple(images.shape)}",
                where="pixel_values",
            )
        if not images.is_floating_point():
            raise ShapeError(
                f"pixel values must be normalized floating point, got {images.dtype}",
                where="pixel_values",
                fix="Apply the model's transform to the images",
            )
        if images.shape[2] < c.patch_size[0] or images.shape[3] < c.patch_size[1]:
            raise ShapeError(
                f"an image of {tuple(images.shape[2:])} pixels is smaller than a patch of {c.patch_size}",
                where="pixel_values",
            )

    def _project(self, patches: Tensor) -> Tensor:
        return self.projection(patches.to(self.projection.weight.dtype)).to(torch.float32)

    def _patch_dropout(
        self, patches: Tensor | list[Tensor], grids: list[tuple[int, int]]
    ) -> tuple[Tensor, Packing]:
        """PatchDropout: embed a random selection of the patches of each image."""
        tokens, lengths = [], []
        if isinstance(patches, Tensor):
            b, n, _ = patches.shape
            num_kept = max(1, round(n * (1.0 - self.config.patch_dropout)))
            selected = torch.rand(b, n, device=patches.device, generator=generator_on(patches.device))
            selected = selected.argsort(1)[:, :num_kept].sort(1).values  # [B, kept]
            return self._embed_selected(patches, grids[0], selected)
        for image, grid in zip(patches, grids, strict=True):
            num_kept = max(1, round(len(image) * (1.0 - self.config.patch_dropout)))
            selected = torch.randperm(len(image), device=image.device, generator=generator_on(image.device))
            selected = selected[:num_kept].sort().values
            x = self._project(image[selected])
            x = x + self._grid_positions(grid, x)[selected]
            tokens += [self._prefix_tokens(x), x]
            lengths.append(num_kept + self.config.num_prefix)
        return self._output(torch.cat(tokens)), Packing(tuple(lengths), tokens[0].device)

    def embed_visible(self, images: Tensor, visible: Tensor) -> tuple[Tensor, Packing]:
        """Tokens ``[N, D]`` of [CLS] and only of the patches with the indices ``visible`` ``[B, K]``."""
        patches, grids = self._cut(images)
        assert isinstance(patches, Tensor)
        return self._embed_selected(patches, grids[0], visible)

    def _embed_selected(
        self, patches: Tensor, grid: tuple[int, int], indices: Tensor
    ) -> tuple[Tensor, Packing]:
        selected = patches.gather(1, indices[:, :, None].expand(-1, -1, patches.shape[2]))
        x = self._project(selected.flatten(0, 1)).view(*indices.shape, -1)  # [B, K, D]
        return self._with_prefix(x + self._grid_positions(grid, x)[indices])

    def _with_prefix(self, x: Tensor) -> tuple[Tensor, Packing]:
        """Put [CLS] and registers before the patches ``[B, n, D]``, and pack the result."""
        x = torch.cat([self._prefix_tokens(x).expand(len(x), -1, -1), x], dim=1)
        return self._output(x.flatten(0, 1)), Packing.uniform(len(x), x.shape[1], x.device)

    def _output(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return self.dropout(x if self.compute_dtype is None else x.to(self.compute_dtype))

    def _prefix_tokens(self, like: Tensor) -> Tensor:  # [num_prefix, D]
        """[CLS] and registers, with their learned positions if they have any, in the dtype of ``like``."""
        if self.cls is None:
            return like.new_empty(0, self.config.d_model)
        x = self.cls[None] if self.registers is None else torch.cat([self.cls[None], self.registers])
        if self.positions is not None:
            n = self.config.num_prefix_positions
            x = torch.cat([x[:n] + self.positions[:n], x[n:]])
        return x.to(like.dtype)

    def _grid_positions(self, grid: tuple[int, int], like: Tensor) -> Tensor:  # [gh * gw, D]
        c = self.config
        if self.positions is not None:
            table = self.positions[c.num_prefix_positions :]
            return interpolate_positions(table, c.grid, grid, c.antialias).to(like.dtype)
        if c.positions == "none":
            return like.new_zeros(1, c.d_model).expand(math.prod(grid), -1)
        if grid not in self._fixed or self._fixed[grid].device != like.device:
            with torch.inference_mode(False):
                self._fixed[grid] = sinusoidal_2d(grid, c.d_model).to(like.device)
        return self._fixed[grid].to(like.dtype)

    def init_weights(self) -> None:
        """Initialize the projection, positions, [CLS] and registers."""
        # The projection has few inputs; larger initial weights make its output as large as the positions.
        nn.init.normal_(self.projection.weight, std=self.projection.in_features**-0.5)
        for table in (self.positions, self.cls, self.registers):
            if table is not None:
                nn.init.normal_(table, std=self.config.position_std)

    def set_compute_dtype(self, dtype: torch.dtype) -> None:
        """Compute the projection in ``dtype``; positions and [CLS] stay in fp32."""
        self.projection.to(dtype)
        if self.stem is not None:
            self.stem.to(dtype)
        self.compute_dtype = dtype

    def padded(self, values: Tensor) -> Tensor:
        """``forward`` in evaluation mode for images of the config's size; returns ``[B, T, D]``."""
        c = self.config
        if self.stem is not None:
            (gh, gw), (p, q) = c.grid, c.patch_size
            values = self.stem(values[:, :, : gh * p, : gw * q])
        x = self.projection(cut_patches(values, self.patch))
        if self.positions is not None:
            x = x + self.positions[c.num_prefix_positions :]
        elif c.positions != "none":
            x = x + sinusoidal_2d(c.grid, c.d_model)
        if self.cls is not None:
            x = torch.cat([self._prefix_tokens(x).expand(x.shape[0], -1, -1), x], dim=1)
        return self.norm(x)
