"""Batches of images, with augmentation, mixing and masking."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from glassformer.data.augment import Mixed, augment, mix_pairs
from glassformer.data.transform import ImageTransform, PixelTable
from glassformer.packing import Packing
from glassformer.runtime import fits, send


@dataclass(frozen=True)
class ImageBatch:
    """Normalized images ``[B, C, H, W]``, their packing as tokens, and the example numbers ``[B]``."""

    pixels: Tensor
    packing: Packing
    index: np.ndarray
    mixed: Mixed | None = None

    def rows(self, rows: np.ndarray) -> ImageBatch:
        """Some images of the batch, which must not be mixed."""
        packing = Packing(tuple(self.packing.lengths[i] for i in rows.tolist()), self.packing.device)
        pixels = self.pixels[torch.from_numpy(rows).to(self.pixels.device)]
        return ImageBatch(pixels, packing, self.index[rows])


@dataclass(frozen=True)
class BatchDraw:
    """One batch of an epoch; these numbers and the seed determine its random choices."""

    epoch: int
    number: int
    index: np.ndarray
    rows: np.ndarray | None = None  # positions in the batch that this process computes; None: all


@dataclass(frozen=True)
class AugmentSettings:
    """Augmentation of training images; see ``ImageConfig``."""

    augment: str = "none"
    flip: bool = True
    mix: str = "none"
    mix_share: float = 1.0
    mix_alpha: float = 1.0


@dataclass(frozen=True)
class ImageStream:
    """The batches of every epoch, from a ``PixelTable``; each batch can be made independently."""

    table: PixelTable
    transform: ImageTransform
    augmentation: AugmentSettings
    tokens: int  # of each image
    batch_size: int
    accumulate: int
    seed: int
    device: torch.device

    @property
    def examples(self) -> int:
        return len(self.table)

    def steps(self, epoch: int) -> list[list[BatchDraw]]:
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.table))
        starts = range(0, len(order), self.batch_size)
        draws = [BatchDraw(epoch, i, order[s : s + self.batch_size]) for i, s in enumerate(starts)]
        return [draws[i : i + self.accumulate] for i in range(0, len(draws), self.accumulate)]

    def shard(self, index: BatchDraw, rank: int, size: int) -> BatchDraw | None:
        rows = np.arange(rank, len(index.index), size)
        return replace(index, rows=rows) if len(rows) else None

    def pack(self, index: BatchDraw) -> ImageBatch:
        if index.rows is None:
            return self._pack(index)
        part = BatchDraw(index.epoch, index.number, index.index[index.rows])
        if self.augmentation.mix != "none":  # images are mixed only with images of the same process
            return self._pack(part, int(index.rows[0]))
        if self.augmentation.augment == "none":
            return self._pack(part)
        return self._pack(index).rows(index.rows)  # the same augmentation for any number of processes

    def _raw(self, index: np.ndarray) -> Tensor:
        """Images ``[B, H, W, C]`` of the table, uint8."""
        if self.resident is not None:
            return self.resident[send(torch.from_numpy(index), self.device)]
        return send(torch.from_numpy(self.table.pixels[index]), self.device)

    @cached_property
    def resident(self) -> Tensor | None:
        """All images in GPU memory, if they fit; each is then transferred once, and augmented there."""
        pixels = self.table.pixels
        return torch.from_numpy(pixels).to(self.device) if fits(self.device, pixels.nbytes) else None

    def _pack(self, index: BatchDraw, *extra_seeds: int) -> ImageBatch:
        seeds = np.random.SeedSequence([self.seed, index.epoch, index.number, *extra_seeds])
        generator = torch.Generator().manual_seed(int(seeds.generate_state(1, np.uint64)[0] >> 1))
        c, mixed = self.augmentation, None
        raw = self._raw(index.index)
        pixels = augment(raw, self.transform.size, c.augment, generator, flip=c.flip)
        pixels = self.transform.normalize(pixels)
        if c.mix != "none" and len(pixels) > 1:
            pixels, mixed = mix_pairs(pixels, c.mix, c.mix_share, c.mix_alpha, generator)
        return ImageBatch(pixels, Packing.uniform(len(pixels), self.tokens, self.device), index.index, mixed)


def evaluation_pixels(
    table: PixelTable, start: int, size: int, transform: ImageTransform, device: torch.device
) -> Tensor:
    """Images ``start`` to ``start + size``, normalized."""
    return transform.normalize(torch.from_numpy(table.pixels[start : start + size]).to(device))


# --- batches for masked pre-training --------------------------------------------------------------
# Seed, epoch and batch determine the visible patches.

MASK_SEED = 7  # added to the seed, so that masks are independent of crops


@dataclass(frozen=True)
class MaskedImageBatch:
    """Normalized images ``[B, C, H, W]`` and the numbers ``[B, K]`` of their visible patches."""

    pixels: Tensor
    packing: Packing  # of the visible patches
    visible: Tensor


def draw_visible_patches(num_images: int, num_patches: int, num_visible: int, seeds: list[int]) -> np.ndarray:
    """Ascending numbers ``[num_images, num_visible]`` of random visible patches of each image."""
    draws = np.random.default_rng(seeds).random((num_images, num_patches))
    return np.sort(draws.argsort(1)[:, :num_visible], axis=1)


@dataclass(frozen=True)
class PatchStream(ImageStream):
    """The batches of an ``ImageStream`` with random visible patches for each image."""

    num_patches: int  # of each image
    num_visible: int

    def pack(self, index: BatchDraw) -> MaskedImageBatch:
        batch = super().pack(index)
        seeds = [self.seed, index.epoch, index.number, MASK_SEED]
        visible = draw_visible_patches(len(index.index), self.num_patches, self.num_visible, seeds)
        visible = visible if index.rows is None else visible[index.rows]
        return MaskedImageBatch(batch.pixels, batch.packing, send(torch.from_numpy(visible), self.device))
