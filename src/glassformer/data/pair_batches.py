"""Packed batches of pairs: sources end to end, targets end to end, each with its own packing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.data.batching import BatchSettings, divided, grouped, pack_texts, training_batches
from glassformer.data.text import TokenTable
from glassformer.packing import Packing


@dataclass(frozen=True)
class PairBatch:
    """Teacher forcing: at each place of ``target`` (from [CLS]) ``labels`` (to [SEP]) has the next token."""

    source: Tensor  # [M]
    source_packing: Packing
    target: Tensor  # [N]
    labels: Tensor  # [N]
    packing: Packing  # of the target; the loop counts its tokens
    index: np.ndarray


def pack_pairs(source: Any, target: Any, index: np.ndarray, device: torch.device | str = "cpu") -> PairBatch:
    """The pairs ``index`` of two ``TokenTable``s whose texts begin with [CLS] and end with [SEP]."""
    left, right = pack_texts(source, index), pack_texts(target, index)
    lengths = right.packing.length_tensor
    ends = right.packing.first_rows + lengths - 1
    spoken = torch.ones(right.packing.total, dtype=torch.bool)
    labels = spoken.clone()
    spoken[ends] = False  # the last token is said, never heard
    labels[right.packing.first_rows] = False
    return PairBatch(
        left.ids.to(device),
        Packing(left.packing.lengths, torch.device(device)),
        right.ids[spoken].to(device),
        right.ids[labels].to(device),
        Packing(tuple((lengths - 1).tolist()), torch.device(device)),
        index,
    )


@dataclass(frozen=True)
class PairStream:
    """The batches of every epoch; ``batch_tokens`` counts both sides. An example is one token to say."""

    source: TokenTable
    target: TokenTable
    settings: BatchSettings
    accumulate: int
    seed: int
    device: torch.device

    @property
    def examples(self) -> int:
        """Tokens to say in an epoch: the loss is their mean, whatever batch they are in."""
        return int((self.target.lengths - 1).sum())

    def steps(self, epoch: int) -> list:
        """The optimiser steps of an epoch, each a list of arrays of pair numbers."""
        lengths = self.source.lengths + self.target.lengths
        return list(grouped(training_batches(lengths, self.settings, self.seed, epoch), self.accumulate))

    def pack(self, index: np.ndarray) -> PairBatch:
        """One packed batch."""
        return pack_pairs(self.source, self.target, index, self.device)

    def cut(self, index: np.ndarray, rank: int, size: int) -> np.ndarray | None:
        """The pairs of a batch that one of ``size`` processes computes; None where none are left for it."""
        rows = divided(self.source.lengths[index] + self.target.lengths[index], size)[rank]
        return index[rows] if len(rows) else None
