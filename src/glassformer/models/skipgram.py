"""Skip-gram with negative sampling (Mikolov et al., 2013), a reference model in PyTorch.

Each word has two vectors: v as a center word and u as a context word. Training separates the context words p
of a center word c from randomly drawn words n:

    loss(c) = - sum_p log sigmoid(v_c . u_p)  -  sum_n w_n log sigmoid(- v_c . u_n)

Without the second sum the loss would have no minimum: all vectors would grow in one direction.
``train/negative_sampling.py`` computes the same loss and its gradient much faster, without autograd.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.packing import Packing

NONE = -1  # padding in rows of word ids; ignored by the loss


@dataclass(frozen=True)
class SkipGramBatch:
    """B center words with context words and random negatives."""

    centres: Tensor  # [B] int64
    positives: Tensor  # [B, P] int64, NONE where a center has fewer positives
    negatives: Tensor  # [B, k] int64, NONE where the drawn word is a positive of the same center

    @property
    def packing(self) -> Packing:
        return Packing.uniform(len(self.centres), 1)


class SkipGram(nn.Module):
    """The skip-gram model; center vectors start in U(-0.5/D, 0.5/D), context vectors at 0."""

    def __init__(self, vocab_size: int, dim: int):
        super().__init__()
        self.centres = nn.Embedding(vocab_size, dim)
        self.contexts = nn.Embedding(vocab_size, dim)
        nn.init.uniform_(self.centres.weight, -0.5 / dim, 0.5 / dim)
        nn.init.zeros_(self.contexts.weight)

    def forward(self, batch: SkipGramBatch, weight: float = 1.0) -> Tensor:
        """The loss of each center ``[B]``; ``weight`` is w_n above, the same for all negatives."""
        losses = -F.logsigmoid(self.scores(batch.centres, batch.positives)) * (batch.positives != NONE)
        noise = -F.logsigmoid(-self.scores(batch.centres, batch.negatives)) * (batch.negatives != NONE)
        return losses.sum(1) + weight * noise.sum(1)

    def scores(self, centres: Tensor, words: Tensor) -> Tensor:
        """Scores v_c . u_w ``[B, K]`` of centers ``[B]`` and words ``[B, K]``."""
        v = self.centres(centres)  # [B, D]
        u = self.contexts(words.clamp(min=0))  # [B, K, D]
        return torch.einsum("bd,bkd->bk", v, u)

    def set_compute_dtype(self, dtype: torch.dtype) -> SkipGram:
        """Does nothing: embeddings stay in fp32, because gradients of frequent words sum many terms."""
        return self


def noise_distribution(counts: np.ndarray, exponent: float = 0.75) -> np.ndarray:
    """Probability of each word as a negative ``[V]``, proportional to ``count ** exponent``."""
    weights = counts.astype(np.float64) ** exponent
    return weights / weights.sum()


def keep_probability(counts: np.ndarray, subsample: float = 1e-3) -> np.ndarray:
    """Probability ``[V]`` of keeping an occurrence of each word: min(1, sqrt(t/f) + t/f); 0 keeps all.

    This is the formula in word2vec's code; the paper has sqrt(t/f).
    """
    if not subsample:
        return np.ones(len(counts))
    ratio = subsample / (counts / counts.sum())
    return np.minimum(1.0, np.sqrt(ratio) + ratio)


def draw_positives(
    ids: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
    positions: np.ndarray,
    window: int,
    count: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw ``count`` context words per center from its window, without replacement: ``[B, count]``.

    The half-width of a window is drawn from 1 to ``window``, so near words are more likely. Missing words are
    NONE.

    Args:
        ids: ``[N]`` the corpus.
        first, last: ``[N]`` bounds of the sentence at each position; ``last`` is exclusive.
        positions: ``[B]`` positions of the centers.
    """
    half_widths = rng.integers(1, window + 1, len(positions))
    steps = np.concatenate([np.arange(-window, 0), np.arange(1, window + 1)])  # [2 window]
    neighbors = positions[:, None] + steps  # [B, 2 window]
    valid = np.abs(steps) <= half_widths[:, None]
    valid &= (neighbors >= first[positions][:, None]) & (neighbors < last[positions][:, None])
    shuffled = np.argsort(rng.random(neighbors.shape) + ~valid, axis=1)  # valid neighbors first
    order = shuffled[:, :count]
    rows = np.arange(len(positions))[:, None]
    selected = np.where(valid[rows, order], neighbors[rows, order], 0)
    return np.where(valid[rows, order], ids[selected], NONE)


def count_contexts(
    ids: np.ndarray, starts: np.ndarray, size: int, window: int
) -> tuple[np.ndarray, np.ndarray]:
    """Count all pairs of words at most ``window`` positions apart in the corpus.

    Args:
        ids: ``[N]`` the corpus.
        starts: ``[S + 1]`` starts of its sentences.
        size: V, the size of the vocabulary.

    Returns:
        ``[P]`` pairs as ``center * V + context``, ascending, and their counts ``[P]``.
    """
    sentence = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    pairs = []
    for step in range(1, window + 1):
        same_sentence = sentence[step:] == sentence[:-step]
        left, right = ids[:-step][same_sentence].astype(np.int64), ids[step:][same_sentence].astype(np.int64)
        pairs += [left * size + right, right * size + left]
    return np.unique(np.concatenate(pairs), return_counts=True)


def draw_contexts(
    pairs: np.ndarray,
    counts: np.ndarray,
    size: int,
    centres: np.ndarray,
    count: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw ``count`` context words per center ``[B]`` from all its contexts, with replacement.

    ``pairs`` and ``counts`` come from ``count_contexts``; contexts are drawn in proportion to their counts. A
    center without contexts gets NONE. Returns ``[B, count]``.
    """
    ends = np.concatenate([[0], np.cumsum(counts)])  # cumulative counts; pairs are sorted by center
    low = ends[np.searchsorted(pairs, centres * size)]
    high = ends[np.searchsorted(pairs, (centres + 1) * size)]
    ranks = low[:, None] + (rng.random((len(centres), count)) * (high - low)[:, None]).astype(np.int64)
    contexts = pairs[np.minimum(np.searchsorted(ends, ranks, side="right") - 1, len(pairs) - 1)] % size
    return np.where((high > low)[:, None], contexts, NONE)


def draw_negatives(
    cumulative: np.ndarray, positives: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw ``count`` negatives per center; ``cumulative`` ``[V]`` is the cumulative noise distribution.

    A drawn word that is a positive of the same center becomes NONE.
    """
    negatives = np.searchsorted(
        cumulative, rng.random((len(positives), count)) * cumulative[-1], side="right"
    )
    is_positive = (negatives[:, :, None] == positives[:, None, :]).any(2)
    return np.where(is_positive, NONE, negatives)
