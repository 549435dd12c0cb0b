"""Skip-gram with negative sampling as compiled loops.

The loops compute the loss of ``models/skipgram.py``, but much faster. All pairs of a window share its
negatives (pWord2Vec, Ji et al., 2016), so few vectors are read for many products. As in word2vec's code, the
center vector of each neighbor is trained to distinguish the middle word from the negatives. So a word gets
new negatives in each window that contains it, about ``(window + 1) * negative`` per position. The width of
the tables is a compile-time constant, a multiple of 16, so the loops have no remainder.

Threads write into the same tables without locks (Niu et al., 2011). With one thread, results are
reproducible.

If the package has kernels, ``nn/kernels/skip_gram.c`` runs these loops, with another order of summation.
Otherwise numba compiles the loops below in each process, which takes four seconds. Numba's cache on disk is
not used: numba writes the index before the code, so another process could run code for another width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from glassformer.nn import kernels
from glassformer.nn.kernels import skip_gram

LANES = 16  # number of fp32 numbers in a 512-bit register; the width of tables is a multiple of it
LOSS_EVERY = 32  # the loss, which is only logged, is computed in every 32nd window
MAX_UINT32 = 2.0**32 - 1.0

# Numba's fast-math flags: sums may be reordered, but infinities and NaN are respected.
FAST_MATH = {"reassoc", "contract", "nsz", "arcp"}


class Sampler(NamedTuple):
    """Tables ``[V]`` for random draws.

    A word w is kept if a 32-bit random number is <= keep[w]. ``probability`` and ``alias`` are Walker's alias
    table of the noise distribution.
    """

    keep: np.ndarray  # uint64
    probability: np.ndarray  # uint64
    alias: np.ndarray  # int32


def make_sampler(keep: np.ndarray, noise: np.ndarray) -> Sampler:
    """A ``Sampler`` from the probabilities ``[V]`` of keeping a word and of drawing it as a negative."""
    size = len(noise)
    scaled = noise * size
    alias, probability = np.arange(size, dtype=np.int32), np.ones(size)
    small = [i for i in range(size) if scaled[i] < 1.0]
    large = [i for i in range(size) if scaled[i] >= 1.0]
    while small and large:  # fill each column of height 1 with at most two words
        low, high = small.pop(), large.pop()
        probability[low], alias[low] = scaled[low], high
        scaled[high] -= 1.0 - scaled[low]
        (small if scaled[high] < 1.0 else large).append(high)
    return Sampler((keep * MAX_UINT32).astype(np.uint64), (probability * MAX_UINT32).astype(np.uint64), alias)


def padded_width(dim: int) -> int:
    """``dim`` rounded up to a multiple of 16."""
    return -(-dim // LANES) * LANES


def empty_table(size: int, dim: int) -> np.ndarray:
    """Zeros ``[size, padded_width(dim)]``, fp32; each row is aligned to 64 bytes."""
    width = padded_width(dim)
    memory = np.zeros(size * width + LANES, np.float32)
    start = (-memory.ctypes.data // 4) % LANES
    return memory[start : start + size * width].reshape(size, width)


class Kernel(NamedTuple):
    """Compiled functions for one width: ``window`` trains on one window, ``sentences`` on whole sentences."""

    window: Any
    sentences: Any


@cache
def kernel(width: int) -> Kernel:
    """Compile for vectors of ``width`` numbers (a multiple of 16)."""
    import numba  # takes a second, and is not needed if the package has kernels

    @numba.njit(nogil=True, fastmath=FAST_MATH)
    def update_window(centre_table, context_table, nearby, count, words, n_words, lr, steps, grad, scored):
        """One step of gradient descent for each pair of a window.

        Args:
            nearby: [>= count] the neighbor words; their rows of ``centre_table`` are updated.
            words: [>= n_words] the middle word, then the negatives; their rows of ``context_table`` are
                updated.
            steps, grad: [>= n_words], [width]: working memory.
            scored: whether to compute and return the loss; otherwise 0 is returned.
        """
        one, zero, bound = np.float32(1.0), np.float32(0.0), np.float32(20.0)
        loss = 0.0
        for j in range(count):
            v = centre_table[nearby[j]]
            for n in range(n_words):
                u = context_table[words[n]]
                f = zero
                for d in range(width):
                    f += v[d] * u[d]
                steps[n] = min(max(f, -bound), bound)
            if scored:
                loss += math.log1p(math.exp(-steps[0]))
                for n in range(1, n_words):
                    loss += math.log1p(math.exp(steps[n]))
            for n in range(n_words):
                steps[n] = -lr / (one + math.exp(-steps[n]))  # - lr sigmoid(f)
            steps[0] += lr  # lr (1 - sigmoid(f))
            for d in range(width):
                grad[d] = zero
            for n in range(n_words):
                u, step = context_table[words[n]], steps[n]
                for d in range(width):
                    old = u[d]
                    grad[d] += step * old
                    u[d] = old + step * v[d]
            for d in range(width):
                v[d] += grad[d]
        return loss

    @numba.njit(nogil=True, fastmath=FAST_MATH)
    def train_sentences(
        centre_table,
        context_table,
        ids,
        starts,
        first,
        last,
        keep,
        probability,
        alias,
        window,
        negative,
        rate,
        rate_step,
        state,
    ):
        """Train on sentences ``first`` to ``last``.

        The learning rate ``rate`` decreases by ``rate_step`` per word. Returns the number of pairs, the
        summed loss of the windows whose loss is computed, and the number of pairs in these windows.
        """
        longest = 0
        for i in range(first, last):
            longest = max(longest, starts[i + 1] - starts[i])
        sentence, nearby = np.empty(longest, np.int32), np.empty(2 * window, np.int32)
        words, steps = np.empty(1 + negative, np.int32), np.empty(1 + negative, np.float32)
        grad = np.empty(width, np.float32)
        multiplier, increment = np.uint64(6364136223846793005), np.uint64(1442695040888963407)
        upper, size = np.uint64(32), np.uint64(len(alias))
        pairs, n_scored, windows, loss, words_done = 0, 0, 0, 0.0, 0
        for s in range(first, last):
            n = 0
            for p in range(starts[s], starts[s + 1]):
                word = ids[p]
                state = state * multiplier + increment
                if (state >> upper) <= keep[word]:
                    sentence[n] = word
                    n += 1
            lr = np.float32(rate - rate_step * words_done)
            for i in range(n):
                state = state * multiplier + increment
                half_width = 1 + np.int64(((state >> upper) * np.uint64(window)) >> upper)
                count = 0
                for j in range(max(0, i - half_width), min(n, i + half_width + 1)):
                    if j != i:
                        nearby[count] = sentence[j]
                        count += 1
                words[0] = sentence[i]
                n_words = 1
                for _ in range(negative):
                    state = state * multiplier + increment
                    column = np.int64(((state >> upper) * size) >> upper)
                    state = state * multiplier + increment
                    word = column if (state >> upper) <= probability[column] else alias[column]
                    words[n_words] = word
                    n_words += word != words[0]  # a draw of the middle word does not count
                scored = windows % LOSS_EVERY == 0
                part = update_window(
                    centre_table, context_table, nearby, count, words, n_words, lr, steps, grad, scored
                )
                windows += 1
                pairs += count
                if scored:
                    loss += part
                    n_scored += count
            words_done += starts[s + 1] - starts[s]
        return pairs, loss, n_scored

    return Kernel(update_window, train_sentences)


def loops(width: int) -> Callable[..., tuple[int, float, int]]:
    """``train_sentences`` for vectors of ``width`` numbers, from the package's kernels if available."""
    return kernel(width).sentences if kernels.why_not() else skip_gram.train_sentences


def loops_origin() -> str:
    """The origin of the code of ``loops``; the last bits of results depend on the origin."""
    level = kernels.level()
    return f"kernels of {level.title}" if level else "numba"


def random_state(*numbers: int) -> np.uint64:
    """The initial state of a random generator, from seed and position in the training (SplitMix64)."""
    x = 0
    for number in numbers:
        x = (x + number + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        x ^= x >> 31
    return np.uint64(x)
