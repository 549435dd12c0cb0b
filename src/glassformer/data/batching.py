"""Assign examples to batches, and pack batches without padding.

For training, examples are shuffled, then sorted by length within windows of ``length_window`` batches, then
split into batches, which are shuffled again. So the sequences of a batch have similar lengths, and the order
is still random. For evaluation, examples are sorted by length. All functions are deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.data.text import TokenTable
from glassformer.errors import BadValueError
from glassformer.packing import Packing
from glassformer.runtime import copy_to_device


@dataclass(frozen=True)
class TextBatch:
    """A packed batch of B examples with N tokens in total."""

    ids: Tensor  # [N]
    segments: Tensor | None  # [N]
    packing: Packing
    index: np.ndarray  # [B] numbers of the examples
    values: Tensor | None = None  # [N] fp32, TF-IDF weights if ``ids`` are n-gram features


@dataclass(frozen=True)
class ResidentTable:
    """A ``TokenTable`` whose tokens stay in a device's memory; batches are gathered there."""

    table: Any
    ids: Tensor
    segments: Tensor | None

    @staticmethod
    def of(table: Any, device: torch.device) -> ResidentTable:
        tensors = (None if x is None else torch.from_numpy(x).to(device) for x in (table.ids, table.segments))
        return ResidentTable(table, *tensors)  # type: ignore[arg-type]  # two tensors

    def pack(self, index: np.ndarray) -> TextBatch:
        """The texts with the numbers ``index`` as a packed batch, like ``pack_texts``."""
        packing = Packing(tuple(self.table.lengths[index].tolist()), self.ids.device)
        starts = copy_to_device(torch.from_numpy(self.table.starts[index]), self.ids.device)
        tokens = starts[packing.sequence_ids] + packing.positions  # [N] positions in the table
        segments = None if self.segments is None else self.segments[tokens].long()
        return TextBatch(self.ids[tokens].long(), segments, packing, index)


def pack_texts(table, index: np.ndarray, device: torch.device | str = "cpu") -> TextBatch:
    """The texts of a ``TokenTable`` with the numbers ``index`` as a packed batch."""
    starts, ends = table.starts[index], table.starts[index + 1]
    tokens = np.concatenate([np.arange(s, e) for s, e in zip(starts, ends, strict=True)])
    ids, values = table.ids[tokens], None
    if ids.dtype.names:  # n-gram features, each with a weight (see ``ngrams.FEATURE``)
        values = torch.from_numpy(np.ascontiguousarray(ids["value"])).to(device)
        ids = ids["id"]
    ids = torch.from_numpy(ids.astype(np.int64)).to(device)
    segments = None
    if table.segments is not None:
        segments = torch.from_numpy(table.segments[tokens].astype(np.int64)).to(device)
    packing = Packing(tuple((ends - starts).tolist()), torch.device(device))
    return TextBatch(ids, segments, packing, index, values)


@dataclass(frozen=True)
class BatchSettings:
    """Limits of a batch: it ends at ``batch_size`` sequences, or before it would exceed ``batch_tokens``.

    A limit of 0 is ignored.

    Raises:
        ConfigError: both limits are 0, or one is negative.
    """

    batch_size: int = 32
    batch_tokens: int = 8192
    length_window: int = 50

    def __post_init__(self) -> None:
        if self.batch_size < 0 or self.batch_tokens < 0 or not (self.batch_size or self.batch_tokens):
            what = "batch_size and batch_tokens cannot both be 0, nor negative"
            raise BadValueError(what, where="batching")


def training_batches(lengths: np.ndarray, settings: BatchSettings, seed: int, epoch: int) -> list[np.ndarray]:
    """The batches of one epoch: every example once, in an order determined by ``seed`` and ``epoch``."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    if settings.length_window == 0:
        return split_batches(order, lengths, settings)
    batches = []
    for window in np.array_split(order, max(1, round(len(order) / _window_size(lengths, settings)))):
        batches += split_batches(window[np.argsort(-lengths[window], kind="stable")], lengths, settings)
    return [batches[i] for i in rng.permutation(len(batches))]


SEARCH_TOKENS = 2048  # source tokens decoded together in beam search
MAX_FULL_BEAM = 16  # wider beams get fewer source tokens per batch
GPU_TOKENS = 32_768  # per batch in prediction: a GPU needs the same time for a few thousand tokens


def evaluation_batches(
    lengths: np.ndarray, batch_tokens: int = 8192, device: torch.device | str = "cpu"
) -> list[np.ndarray]:
    """All examples in batches of similar length, the batch with most tokens first.

    Args:
        batch_tokens: maximum number of tokens per batch; on a GPU raised to ``GPU_TOKENS``.

    With the largest batch first, a lack of memory shows at once, and each batch fits into the memory that the
    previous batch frees. Any other order fragments the allocator's memory (docs/decisions/0023).
    """
    if torch.device(device).type == "cuda":
        batch_tokens = max(batch_tokens, GPU_TOKENS)
    order = np.argsort(-lengths, kind="stable")
    batches = split_batches(order, lengths, BatchSettings(batch_size=0, batch_tokens=batch_tokens))
    return sorted(batches, key=lambda index: -int(lengths[index].sum()))


def beam_token_budget(beam: int, device: torch.device) -> int:
    """Maximum number of source tokens in one batch of beam search.

    Beams wider than ``MAX_FULL_BEAM`` get fewer tokens, since all hypotheses are in memory. On a GPU, narrow
    beams get more.
    """
    if not isinstance(beam, int) or beam < 1:
        return SEARCH_TOKENS  # the search raises the error for such beams
    budget = SEARCH_TOKENS * MAX_FULL_BEAM // max(beam, MAX_FULL_BEAM)
    return max(budget, GPU_TOKENS // beam) if device.type == "cuda" else budget


def _window_size(lengths: np.ndarray, settings: BatchSettings) -> float:
    """Number of examples that are sorted by length together: about ``length_window`` batches."""
    per_batch = settings.batch_size or len(lengths)
    if settings.batch_tokens:
        per_batch = min(per_batch, settings.batch_tokens / max(float(lengths.mean()), 1.0))
    return max(1.0, per_batch * settings.length_window)


def split_batches(order: np.ndarray, lengths: np.ndarray, settings: BatchSettings) -> list[np.ndarray]:
    """Split ``order`` into batches within the limits; a text above ``batch_tokens`` is a batch of its own."""
    batches, start, tokens = [], 0, 0
    for i, length in enumerate(lengths[order].tolist()):
        is_full = settings.batch_size and i - start == settings.batch_size
        exceeds_tokens = settings.batch_tokens and i > start and tokens + length > settings.batch_tokens
        if is_full or exceeds_tokens:
            batches.append(order[start:i])
            start, tokens = i, 0
        tokens += length
    batches.append(order[start:])
    return batches


def split_evenly(lengths: np.ndarray, size: int) -> list[np.ndarray]:
    """Split a batch into ``size`` parts with similar token counts.

    Starting with the longest, each sequence goes to the part with the fewest tokens.

    Args:
        lengths: ``[B]``, number of tokens of each sequence.

    Returns:
        Sorted sequence numbers of each part. If there are fewer sequences than parts, the last are empty.
    """
    tokens, parts = [0] * size, [[] for _ in range(size)]
    for i in np.argsort(-lengths, kind="stable").tolist():
        smallest = tokens.index(min(tokens))
        tokens[smallest] += int(lengths[i])
        parts[smallest].append(i)
    return [np.array(sorted(part), dtype=np.int64) for part in parts]


def accumulation_groups(batches: Sequence[np.ndarray], accumulate: int) -> Iterator[Sequence[np.ndarray]]:
    """Yield the batches of each optimizer step: ``accumulate`` batches, or fewer in the last step."""
    for i in range(0, len(batches), accumulate):
        yield batches[i : i + accumulate]


# --- packed batches of pairs ----------------------------------------------------------------------
# Source texts are packed in one sequence of tokens, and target texts in another.


@dataclass(frozen=True)
class PairBatch:
    """A batch for teacher forcing: ``labels`` has the next token of each token in ``target``."""

    source: Tensor  # [M] token ids
    source_packing: Packing
    target: Tensor  # [N] token ids of the targets without the last, [SEP]
    labels: Tensor  # [N] token ids of the targets without the first, [CLS]
    packing: Packing  # of the targets; the training loop counts their tokens
    index: np.ndarray


def pack_pairs(source: Any, target: Any, index: np.ndarray, device: torch.device | str = "cpu") -> PairBatch:
    """The pairs with the numbers ``index`` of two token tables, whose texts are [CLS] ... [SEP]."""
    sources, targets = pack_texts(source, index), pack_texts(target, index)
    lengths = targets.packing.length_tensor
    is_input = torch.ones(targets.packing.total, dtype=torch.bool)
    is_label = is_input.clone()
    is_input[targets.packing.first_rows + lengths - 1] = False  # [SEP] is never a decoder input
    is_label[targets.packing.first_rows] = False  # [CLS] is never a label
    return PairBatch(
        sources.ids.to(device),
        Packing(sources.packing.lengths, torch.device(device)),
        targets.ids[is_input].to(device),
        targets.ids[is_label].to(device),
        Packing(tuple((lengths - 1).tolist()), torch.device(device)),
        index,
    )


@dataclass(frozen=True)
class PairStream:
    """The batches of every epoch; ``batch_tokens`` counts source and target tokens."""

    source: TokenTable
    target: TokenTable
    settings: BatchSettings
    accumulate: int
    seed: int
    device: torch.device

    @property
    def examples(self) -> int:
        """Number of target tokens per epoch; the loss is their mean over all batches."""
        return int((self.target.lengths - 1).sum())

    def steps(self, epoch: int) -> list:
        """The optimizer steps of an epoch, each a list of batches (arrays of pair numbers)."""
        lengths = self.source.lengths + self.target.lengths
        batches = training_batches(lengths, self.settings, self.seed, epoch)
        return list(accumulation_groups(batches, self.accumulate))

    def pack(self, index: np.ndarray) -> PairBatch:
        """One packed batch."""
        return pack_pairs(self.source, self.target, index, self.device)

    def shard(self, index: np.ndarray, rank: int, size: int) -> np.ndarray | None:
        """The pairs of a batch that process ``rank`` of ``size`` computes; None if it gets none."""
        selected = split_evenly(self.source.lengths[index] + self.target.lengths[index], size)[rank]
        return index[selected] if len(selected) else None
