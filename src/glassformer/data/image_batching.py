"""Batches of images, with augmentation, mixing and masking."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from glassformer.data.augment import MixedPairs, augment, mix_pairs
from glassformer.data.transform import ImageTransform, PixelTable
from glassformer.packing import Packing
from glassformer.runtime import copy_to_device, fits_on_gpu


@dataclass(frozen=True)
class ImageBatch:
    """A batch of B normalized images."""

    pixels: Tensor  # [B, C, H, W]
    packing: Packing  # of their tokens
    index: np.ndarray  # [B] numbers of the examples
    mixed: MixedPairs | None = None

    def rows(self, rows: np.ndarray) -> ImageBatch:
        """The images at the positions ``rows`` of a batch that is not mixed."""
        packing = Packing(tuple(self.packing.lengths[i] for i in rows.tolist()), self.packing.device)
        pixels = self.pixels[torch.from_numpy(rows).to(self.pixels.device)]
        return ImageBatch(pixels, packing, self.index[rows])


@dataclass(frozen=True)
class BatchSpec:
    """The examples of one batch; ``epoch``, ``number`` and the seed determine its random choices."""

    epoch: int
    number: int  # of the batch in the epoch
    index: np.ndarray  # numbers of the examples
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
    """The batches of every epoch, from a ``PixelTable``; a batch does not depend on earlier batches."""

    table: PixelTable
    transform: ImageTransform
    augmentation: AugmentSettings
    tokens: int  # per image
    batch_size: int
    accumulate: int
    seed: int
    device: torch.device

    @property
    def examples(self) -> int:
        return len(self.table)

    def steps(self, epoch: int) -> list[list[BatchSpec]]:
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.table))
        starts = range(0, len(order), self.batch_size)
        batches = [BatchSpec(epoch, i, order[s : s + self.batch_size]) for i, s in enumerate(starts)]
        return [batches[i : i + self.accumulate] for i in range(0, len(batches), self.accumulate)]

    def shard(self, index: BatchSpec, rank: int, size: int) -> BatchSpec | None:
        rows = np.arange(rank, len(index.index), size)
        return replace(index, rows=rows) if len(rows) else None

    def pack(self, index: BatchSpec) -> ImageBatch:
        if index.rows is None:
            return self._pack(index)
        own_images = BatchSpec(index.epoch, index.number, index.index[index.rows])
        if self.augmentation.mix != "none":  # images are mixed only with images of the same process
            return self._pack(own_images, int(index.rows[0]))
        if self.augmentation.augment == "none":
            return self._pack(own_images)
        # Augment the whole batch, so that the result does not depend on the number of processes.
        return self._pack(index).rows(index.rows)

    def _raw(self, index: np.ndarray) -> Tensor:
        """Images ``[B, H, W, C]`` of the table, uint8."""
        if self.resident is not None:
            return self.resident[copy_to_device(torch.from_numpy(index), self.device)]
        return copy_to_device(torch.from_numpy(self.table.pixels[index]), self.device)

    @cached_property
    def resident(self) -> Tensor | None:
        """All images in GPU memory, if they fit; otherwise None, and each batch is transferred."""
        pixels = self.table.pixels
        return torch.from_numpy(pixels).to(self.device) if fits_on_gpu(self.device, pixels.nbytes) else None

    def _pack(self, index: BatchSpec, *extra_seeds: int) -> ImageBatch:
        seeds = np.random.SeedSequence([self.seed, index.epoch, index.number, *extra_seeds])
        generator = torch.Generator().manual_seed(int(seeds.generate_state(1, np.uint64)[0] >> 1))
        settings, mixed = self.augmentation, None
        raw = self._raw(index.index)
        pixels = augment(raw, self.transform.size, settings.augment, generator, flip=settings.flip)
        pixels = self.transform.normalize(pixels)
        if settings.mix != "none" and len(pixels) > 1:
            shares = settings.mix_share, settings.mix_alpha
            pixels, mixed = mix_pairs(pixels, settings.mix, *shares, generator)
        return ImageBatch(pixels, Packing.uniform(len(pixels), self.tokens, self.device), index.index, mixed)


def evaluation_pixels(
    table: PixelTable, start: int, size: int, transform: ImageTransform, device: torch.device
) -> Tensor:
    """Images ``start`` to ``start + size``, normalized."""
    return transform.normalize(torch.from_numpy(table.pixels[start : start + size]).to(device))


# --- batches for masked pre-training --------------------------------------------------------------
# Seed, epoch and batch determine the visible patches.

MASK_SEED = 7  # an additional seed, so that masks are independent of crops


@dataclass(frozen=True)
class MaskedImageBatch:
    """Normalized images and their visible patches."""

    pixels: Tensor  # [B, C, H, W]
    packing: Packing  # of the visible patches
    visible: Tensor  # [B, K] ascending numbers of the visible patches


def draw_visible_patches(num_images: int, num_patches: int, num_visible: int, seeds: list[int]) -> np.ndarray:
    """Ascending numbers ``[num_images, num_visible]`` of random visible patches of each image."""
    random_keys = np.random.default_rng(seeds).random((num_images, num_patches))
    return np.sort(random_keys.argsort(1)[:, :num_visible], axis=1)


@dataclass(frozen=True)
class PatchStream(ImageStream):
    """The batches of an ``ImageStream`` with random visible patches for each image."""

    num_patches: int  # of each image
    num_visible: int

    def pack(self, index: BatchSpec) -> MaskedImageBatch:
        batch = super().pack(index)
        seeds = [self.seed, index.epoch, index.number, MASK_SEED]
        visible = draw_visible_patches(len(index.index), self.num_patches, self.num_visible, seeds)
        visible = visible if index.rows is None else visible[index.rows]
        return MaskedImageBatch(
            batch.pixels, batch.packing, copy_to_device(torch.from_numpy(visible), self.device)
        )
