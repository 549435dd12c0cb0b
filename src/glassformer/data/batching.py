"""Which examples go into which batch, and the packed batch itself. No padding anywhere.

Training: examples are shuffled, sorted by length inside windows of so many batches, cut, and the batches
shuffled again, so that the sequences of a batch are of nearly one length and the order is still random.
Evaluation: sorted by length once. Everything is a pure function of (lengths, settings, seed, epoch).
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
from glassformer.runtime import send


@dataclass(frozen=True)
class TextBatch:
    """A packed batch: ids ``[N]``, their packing, and which examples they are ``[B]``."""

    ids: Tensor
    segments: Tensor | None
    packing: Packing
    index: np.ndarray
    values: Tensor | None = None  # [N] fp32, where ids are features


@dataclass(frozen=True)
class ResidentTable:
    """A ``TokenTable`` whose tokens stay in a device's memory, where batches are gathered."""

    table: Any
    ids: Tensor
    segments: Tensor | None

    @staticmethod
    def of(table: Any, device: torch.device) -> ResidentTable:
        parts = (None if x is None else torch.from_numpy(x).to(device) for x in (table.ids, table.segments))
        return ResidentTable(table, *parts)  # type: ignore[arg-type]  # two parts

    def pack(self, index: np.ndarray) -> TextBatch:
        """As ``pack_texts``."""
        packing = Packing(tuple(self.table.lengths[index].tolist()), self.ids.device)
        starts = send(torch.from_numpy(self.table.starts[index]), self.ids.device)
        rows = starts[packing.sequence_ids] + packing.positions  # [N] places in the table
        segments = None if self.segments is None else self.segments[rows].long()
        return TextBatch(self.ids[rows].long(), segments, packing, index)


def pack_texts(table, index: np.ndarray, device: torch.device | str = "cpu") -> TextBatch:
    """The texts ``index`` of a ``TokenTable``, end to end."""
    starts, ends = table.starts[index], table.starts[index + 1]
    rows = np.concatenate([np.arange(s, e) for s, e in zip(starts, ends, strict=True)])
    ids, values = table.ids[rows], None
    if ids.dtype.names:  # features, each with a value
        values = torch.from_numpy(np.ascontiguousarray(ids["value"])).to(device)
        ids = ids["id"]
    ids = torch.from_numpy(ids.astype(np.int64)).to(device)
    segments = None
    if table.segments is not None:
        segments = torch.from_numpy(table.segments[rows].astype(np.int64)).to(device)
    packing = Packing(tuple((ends - starts).tolist()), torch.device(device))
    return TextBatch(ids, segments, packing, index, values)


@dataclass(frozen=True)
class BatchSettings:
    """How to cut. A batch ends at ``batch_size`` sequences or before ``batch_tokens`` real tokens are passed.

    Raises:
        ConfigError: neither limit given.
    """

    batch_size: int = 32
    batch_tokens: int = 8192
    length_window: int = 50

    def __post_init__(self) -> None:
        if self.batch_size < 0 or self.batch_tokens < 0 or not (self.batch_size or self.batch_tokens):
            raise BadValueError(
                "batch_size and batch_tokens cannot both be 0, nor negative", where="batching"
            )


def training_batches(lengths: np.ndarray, settings: BatchSettings, seed: int, epoch: int) -> list[np.ndarray]:
    """The batches of one epoch: every example once, in an order that ``seed`` and ``epoch`` decide."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    if settings.length_window == 0:
        return cut(order, lengths, settings)
    batches = []
    for window in np.array_split(order, max(1, round(len(order) / _window_size(lengths, settings)))):
        batches += cut(window[np.argsort(-lengths[window], kind="stable")], lengths, settings)
    return [batches[i] for i in rng.permutation(len(batches))]


SEARCH_TOKENS = 2048  # of the sources that are searched together
WIDE = 16  # hypotheses of a beam that takes fewer of them
GPU_TOKENS = 32_768  # in prediction, if they have room: a GPU takes as long for some thousands


def evaluation_batches(
    lengths: np.ndarray, batch_tokens: int = 8192, device: torch.device | str = "cpu"
) -> list[np.ndarray]:
    """All examples in batches of similar length, the batch of most tokens first.

    Args:
        batch_tokens: in a batch at most; on a GPU no fewer than ``GPU_TOKENS``.

    Running out of memory would show at once, and what a batch frees has room for all that the next one asks
    for: in any other order the allocator is left with holes that are a little too small (decision 0023).
    """
    if torch.device(device).type == "cuda":
        batch_tokens = max(batch_tokens, GPU_TOKENS)
    order = np.argsort(-lengths, kind="stable")
    batches = cut(order, lengths, BatchSettings(batch_size=0, batch_tokens=batch_tokens))
    return sorted(batches, key=lambda index: -int(lengths[index].sum()))


def search_tokens(beam: int, device: torch.device) -> int:
    """Tokens of the sources that are searched together: fewer the wider a beam of more than 16 is, since all
    of its hypotheses are in memory. A GPU takes more of narrow ones.
    """
    if not isinstance(beam, int) or beam < 1:
        return SEARCH_TOKENS  # the search refuses such beams
    least = SEARCH_TOKENS * WIDE // max(beam, WIDE)
    return max(least, GPU_TOKENS // beam) if device.type == "cuda" else least


def _window_size(lengths: np.ndarray, settings: BatchSettings) -> float:
    per_batch = settings.batch_size or len(lengths)
    if settings.batch_tokens:
        per_batch = min(per_batch, settings.batch_tokens / max(float(lengths.mean()), 1.0))
    return max(1.0, per_batch * settings.length_window)


def cut(order: np.ndarray, lengths: np.ndarray, settings: BatchSettings) -> list[np.ndarray]:
    """``order`` cut where a limit is reached; a text longer than ``batch_tokens`` stands alone."""
    batches, start, tokens = [], 0, 0
    for i, length in enumerate(lengths[order].tolist()):
        full = settings.batch_size and i - start == settings.batch_size
        over = settings.batch_tokens and i > start and tokens + length > settings.batch_tokens
        if full or over:
            batches.append(order[start:i])
            start, tokens = i, 0
        tokens += length
    batches.append(order[start:])
    return batches


def divided(lengths: np.ndarray, size: int) -> list[np.ndarray]:
    """A batch's rows in ``size`` parts of nearly as many tokens: longest first, to whom has the fewest.

    Args:
        lengths: ``[B]`` tokens of each row.

    Returns:
        Row numbers of each part, in their order; the first parts are filled first, the last may be empty.
    """
    tokens, parts = [0] * size, [[] for _ in range(size)]
    for row in np.argsort(-lengths, kind="stable").tolist():
        least = tokens.index(min(tokens))
        tokens[least] += int(lengths[row])
        parts[least].append(row)
    return [np.array(sorted(part), dtype=np.int64) for part in parts]


def grouped(batches: Sequence[np.ndarray], accumulate: int) -> Iterator[Sequence[np.ndarray]]:
    """The batches of each optimizer step."""
    for i in range(0, len(batches), accumulate):
        yield batches[i : i + accumulate]


# --- packed batches of pairs ----------------------------------------------------------------------
# Sources end to end, targets end to end, each with its own packing.


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
    """The pairs ``index`` of two tables of tokens, whose texts begin with [CLS] and end with [SEP]."""
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
        """The optimizer steps of an epoch, each a list of arrays of pair numbers."""
        lengths = self.source.lengths + self.target.lengths
        return list(grouped(training_batches(lengths, self.settings, self.seed, epoch), self.accumulate))

    def pack(self, index: np.ndarray) -> PairBatch:
        """One packed batch."""
        return pack_pairs(self.source, self.target, index, self.device)

    def cut(self, index: np.ndarray, rank: int, size: int) -> np.ndarray | None:
        """The pairs of a batch that one of ``size`` processes computes; None where none are left for it."""
        rows = divided(self.source.lengths[index] + self.target.lengths[index], size)[rank]
        return index[rows] if len(rows) else None
