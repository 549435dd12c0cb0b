"""Skip-gram with negative sampling (Mikolov et al., 2013), to be read: what word vectors minimise.

Each word has two vectors: one as a center, one as a context. A center c shall tell the words p that stand
around it from words n drawn at random:

    loss(c) = - sum_p log sigmoid(v_c . u_p)  -  sum_n w_n log sigmoid(- v_c . u_n)

Without the second sum all vectors would grow into one direction: the loss is then smallest where every
product is infinite. ``train/negative_sampling.py`` computes the same loss and its gradient without autograd,
many times as fast; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.packing import Packing

NONE = -1  # fills a row of words that is shorter than the others; it has no part in the loss


@dataclass(frozen=True)
class SkipGramBatch:
    """B centers with the words around them and words drawn at random."""

    centres: Tensor  # [B] int64
    positives: Tensor  # [B, P] int64, NONE where a center has fewer
    negatives: Tensor  # [B, k] int64, NONE where the draw hit a positive of the same center

    @property
    def packing(self) -> Packing:
        return Packing.uniform(len(self.centres), 1)


class SkipGram(nn.Module):
    """Center vectors start in U(-0.5/D, 0.5/D), context vectors at 0."""

    def __init__(self, vocab_size: int, dim: int):
        super().__init__()
        self.centres = nn.Embedding(vocab_size, dim)
        self.contexts = nn.Embedding(vocab_size, dim)
        nn.init.uniform_(self.centres.weight, -0.5 / dim, 0.5 / dim)
        nn.init.zeros_(self.contexts.weight)

    def forward(self, batch: SkipGramBatch, weight: float = 1.0) -> Tensor:
        """The loss of each center ``[B]``; ``weight`` is w_n above, of every negative."""
        losses = -F.logsigmoid(self.scores(batch.centres, batch.positives)) * (batch.positives != NONE)
        noise = -F.logsigmoid(-self.scores(batch.centres, batch.negatives)) * (batch.negatives != NONE)
        return losses.sum(1) + weight * noise.sum(1)

    def scores(self, centres: Tensor, words: Tensor) -> Tensor:
        """v_c . u_w: ``[B]`` and ``[B, K]`` -> ``[B, K]``."""
        v = self.centres(centres)  # [B, D]
        u = self.contexts(words.clamp(min=0))  # [B, K, D]
        return torch.einsum("bd,bkd->bk", v, u)

    def set_compute_dtype(self, dtype: torch.dtype) -> SkipGram:
        """Tables stay in fp32: a frequent word's gradient sums over many rows."""
        return self


def noise_distribution(counts: np.ndarray, exponent: float = 0.75) -> np.ndarray:
    """Each word's probability as a negative ``[V]``: unigram^0.75 draws rare words above their share."""
    weights = counts.astype(np.float64) ** exponent
    return weights / weights.sum()


def keep_probability(counts: np.ndarray, subsample: float = 1e-3) -> np.ndarray:
    """The probability ``[V]`` of keeping an occurrence of each word: sqrt(t/f) + t/f, at most 1; 0 keeps all.

    The formula of word2vec's code; the paper has sqrt(t/f).
    """
    if not subsample:
        return np.ones(len(counts))
    ratio = subsample / (counts / counts.sum())
    return np.minimum(1.0, np.sqrt(ratio) + ratio)


def draw_positives(
    ids: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
    places: np.ndarray,
    window: int,
    count: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """``count`` words around each center, drawn without replacement from its window; NONE where none is left.

    The window is dynamic: its half-width is drawn from 1 ... ``window`` per center: near words count more.

    Args:
        ids: ``[N]`` the corpus.
        first, last: ``[N]`` bounds of the sentence that each place lies in; ``last`` is exclusive.
        places: ``[B]`` of the centers.
    """
    reach = rng.integers(1, window + 1, len(places))
    steps = np.concatenate([np.arange(-window, 0), np.arange(1, window + 1)])  # [2 window]
    around = places[:, None] + steps  # [B, 2 window]
    there = np.abs(steps) <= reach[:, None]
    there &= (around >= first[places][:, None]) & (around < last[places][:, None])
    order = np.argsort(rng.random(around.shape) + ~there, axis=1)[:, :count]  # real ones first, shuffled
    rows = np.arange(len(places))[:, None]
    chosen = np.where(there[rows, order], around[rows, order], 0)
    return np.where(there[rows, order], ids[chosen], NONE)


def contexts_of(ids: np.ndarray, starts: np.ndarray, size: int, window: int) -> tuple[np.ndarray, np.ndarray]:
    """Every word's contexts in the whole corpus: which words stand within ``window`` places, and how often.

    Args:
        ids: ``[N]`` the corpus.
        starts: ``[S + 1]`` where its sentences begin.
        size: words of the vocabulary, V.

    Returns:
        ``[P]`` pairs that occur as ``center * V + context``, ascending, and ``[P]`` how often each does.
    """
    sentence = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    pairs = []
    for step in range(1, window + 1):
        near = sentence[step:] == sentence[:-step]
        left, right = ids[:-step][near].astype(np.int64), ids[step:][near].astype(np.int64)
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
    """``count`` words ``[B, count]`` around each center ``[B]``, with replacement from all its contexts.

    Each context weighs as often as it occurs (``contexts_of``); NONE for a center that has none.
    """
    ends = np.concatenate([[0], np.cumsum(counts)])  # running sum over pairs, which stand center by center
    low = ends[np.searchsorted(pairs, centres * size)]
    high = ends[np.searchsorted(pairs, (centres + 1) * size)]
    drawn = low[:, None] + (rng.random((len(centres), count)) * (high - low)[:, None]).astype(np.int64)
    found = pairs[np.minimum(np.searchsorted(ends, drawn, side="right") - 1, len(pairs) - 1)] % size
    return np.where((high > low)[:, None], found, NONE)


def draw_negatives(
    cumulative: np.ndarray, positives: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """``count`` words a center from the noise distribution; a positive of the same center becomes NONE.

    Args:
        cumulative: ``[V]`` running sum of the noise distribution.
    """
    drawn = np.searchsorted(cumulative, rng.random((len(positives), count)) * cumulative[-1], side="right")
    hit = (drawn[:, :, None] == positives[:, None, :]).any(2)
    return np.where(hit, NONE, drawn)
