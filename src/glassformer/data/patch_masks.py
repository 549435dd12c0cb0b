"""Batches of pictures of which a few patches are seen: which ones follows from seed, epoch and batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glassformer.data.image_batching import Draw, ImageStream
from glassformer.packing import Packing
from glassformer.runtime import send

MASKS = 7  # keeps the draws of masks apart from those of crops


@dataclass(frozen=True)
class SeenBatch:
    """Normalized pictures ``[B, C, H, W]`` and the numbers ``[B, K]`` of the patches that are read."""

    pixels: Tensor
    packing: Packing  # of what is read
    seen: Tensor


def seen_patches(count: int, patches: int, kept: int, seeds: list[int]) -> np.ndarray:
    """``[count, kept]`` numbers of patches, in their order, drawn for each picture."""
    draws = np.random.default_rng(seeds).random((count, patches))
    return np.sort(draws.argsort(1)[:, :kept], axis=1)


@dataclass(frozen=True)
class PatchStream:
    """``ImageStream``'s batches with a choice of patches for each picture."""

    pictures: ImageStream
    patches: int  # of one picture
    kept: int  # of them, seen

    @property
    def examples(self) -> int:
        return self.pictures.examples

    def steps(self, epoch: int) -> list[list[Draw]]:
        return self.pictures.steps(epoch)

    def cut(self, index: Draw, rank: int, size: int) -> Draw | None:
        return self.pictures.cut(index, rank, size)

    def pack(self, index: Draw) -> SeenBatch:
        batch, own = self.pictures.pack(index), self.pictures
        seen = seen_patches(
            len(index.index), self.patches, self.kept, [own.seed, index.epoch, index.number, MASKS]
        )
        seen = seen if index.rows is None else seen[index.rows]
        return SeenBatch(batch.pixels, batch.packing, send(torch.from_numpy(seen), own.device))
