"""Sequence lengths and index tensors of packed batches.

A packed batch is one matrix ``[N, D]`` without padding. Each row is the vector of one token. The lengths of
the sequences are Python integers, so that code that reads them does not wait for the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import ShapeError
from glassformer.runtime import copy_to_device


class cached_tensor(cached_property):
    """``cached_property`` that creates a tensor outside inference mode, so that training can use it, too."""

    def __init__(self, create: Callable[[Any], Tensor]):
        def create_outside_inference_mode(owner: Any) -> Tensor:
            with torch.inference_mode(False):
                return create(owner)

        super().__init__(create_outside_inference_mode)


@dataclass(frozen=True)
class Packing:
    """The lengths of the sequences of a packed batch, in order.

    Raises:
        ShapeError: there is no sequence, or a sequence without tokens.
    """

    lengths: tuple[int, ...]
    device: torch.device = field(default=torch.device("cpu"))

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", tuple(int(n) for n in self.lengths))
        object.__setattr__(self, "device", torch.device(self.device))
        if not self.lengths or min(self.lengths) < 1:
            what = f"a packing needs sequences of at least one token, got lengths {self.lengths[:8]}"
            raise ShapeError(what)

    @staticmethod
    def uniform(count: int, length: int, device: torch.device | str = "cpu") -> Packing:
        """A packing of ``count`` sequences of the same length, as in a batch of images."""
        return _uniform(count, length, torch.device(device))

    @staticmethod
    def from_mask(mask: Tensor) -> tuple[Packing, Tensor]:
        """The packing of a padded batch, and the indices ``[N]`` of its real tokens in the flat ``[B * T]``.

        Args:
            mask: ``[B, T]``, non-zero for real tokens; padding may be on either side.
        """
        if mask.ndim != 2:
            raise ShapeError(f"an attention mask is [B, T], got {tuple(mask.shape)}")
        real = mask.bool()
        packing = Packing(tuple(real.sum(1).tolist()), mask.device)
        return packing, real.flatten().nonzero().squeeze(1)

    @property
    def count(self) -> int:
        """B, the number of sequences."""
        return len(self.lengths)

    @cached_property
    def total(self) -> int:
        """N, the number of tokens."""
        return sum(self.lengths)

    @cached_property
    def max_length(self) -> int:
        return max(self.lengths)

    @cached_property
    def is_uniform(self) -> bool:
        return min(self.lengths) == self.max_length

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """For each sequence, the row of its first token."""
        starts, row = [], 0
        for length in self.lengths:
            starts.append(row)
            row += length
        return tuple(starts)

    @cached_tensor
    def length_tensor(self) -> Tensor:  # [B] int64, the lengths on the device
        return copy_to_device(torch.tensor(self.lengths), self.device)

    @cached_tensor
    def first_rows(self) -> Tensor:  # [B] int64, ``starts`` on the device
        return copy_to_device(torch.tensor(self.starts), self.device)

    @cached_tensor
    def cu_seqlens(self) -> Tensor:  # [B + 1] int32, as varlen attention kernels expect
        return copy_to_device(torch.tensor((*self.starts, self.total), dtype=torch.int32), self.device)

    @cached_tensor
    def sequence_ids(self) -> Tensor:  # [N] int64, the index of each row's sequence
        return torch.repeat_interleave(
            torch.arange(self.count, device=self.device), self.length_tensor, output_size=self.total
        )

    @cached_tensor
    def positions(self) -> Tensor:  # [N] int64, the position of each row in its sequence
        return torch.arange(self.total, device=self.device) - self.first_rows[self.sequence_ids]

    @cached_tensor
    def padded_rows(self) -> Tensor:  # [N] int64, the index of each row in a right-padded [B * T]
        return self.sequence_ids * self.max_length + self.positions

    def pad(self, rows: Tensor, value: float = 0.0) -> Tensor:
        """Right-pad ``[N, ...]`` to ``[B, T, ...]`` with ``value``."""
        out = rows.new_full((self.count * self.max_length, *rows.shape[1:]), value)
        out = out.index_copy(0, self.padded_rows, rows)
        return out.view(self.count, self.max_length, *rows.shape[1:])

    def split(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Split ``[N, ...]`` into one view per sequence."""
        return rows.split(list(self.lengths))

    def mask(self) -> Tensor:
        """Boolean ``[B, T]``, True for real tokens of the right-padded batch."""
        positions = torch.arange(self.max_length, device=self.device)
        return positions < self.length_tensor[:, None]

    @cached_property
    def one_row_each(self) -> Packing:
        """The packing of a batch with one row per sequence, such as the [CLS] rows."""
        return Packing((1,) * self.count, self.device)


@lru_cache(maxsize=1024)
def _uniform(count: int, length: int, device: torch.device) -> Packing:
    # Cached because every batch of images uses it: its index tensors are then created once.
    return Packing((length,) * count, device)


def pack(sequences: Sequence[Tensor]) -> tuple[Tensor, Packing]:
    """Concatenate sequences ``[T_i, ...]`` to one tensor ``[N, ...]``, and return it with its packing."""
    rows = torch.cat(list(sequences))
    return rows, Packing(tuple(len(s) for s in sequences), rows.device)
