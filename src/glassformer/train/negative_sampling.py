"""Skip-gram with negative sampling as compiled loops: the loss of ``models/skipgram.py``, many times as fast.

Two things make it fast. All pairs of a window share its negatives (pWord2Vec, Ji et al., 2016): few rows are
fetched for many products. The pairs are taken as word2vec's own code takes them: the center vector of each
neighbor tells the word in the middle from the negatives. So a word meets new negatives in each window that
it stands in, about ``window + 1`` times ``negative`` of them at every place. Taken the other way, from the
middle to its neighbors, it would meet those of one window only, and learn less. The two ways have the same
pairs, for whether two places are paired does not depend on which of them is the middle. And the width of a
row is a constant, a multiple of 16, so the loops have no remainder.

Threads write into the same tables without locks (Niu et al., 2011). With one thread results repeat.

Where the package came with kernels, ``nn/kernels/skip_gram.c`` runs these loops, with sums in another order.
Else numba compiles those below in each process (four seconds). They are not kept on disk: numba writes the
index of its cache before the code that the index names, so that another process could run another width's
code on narrower rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from glassformer.nn import kernels
from glassformer.nn.kernels import skip_gram

LANES = 16  # fp32 numbers in a 512-bit register; rows are a multiple of them, in 64-byte steps
LOSS_EVERY = 32  # the loss is computed in every 32nd window: it is only looked at
FULL = 2.0**32 - 1.0

# What the compiler may assume of sums: their order is free. Infinities and NaN keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}


class Sampler(NamedTuple):
    """What is drawn from: all arrays ``[V]``. A word w is kept where a 32-bit draw is <= keep[w]; the other
    two are Walker's alias table of the noise distribution."""

    keep: np.ndarray  # uint64
    probability: np.ndarray  # uint64
    alias: np.ndarray  # int32


def make_sampler(keep: np.ndarray, noise: np.ndarray) -> Sampler:
    """From the probabilities ``[V]`` of being kept and of being drawn as a negative."""
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
    return Sampler((keep * FULL).astype(np.uint64), (probability * FULL).astype(np.uint64), alias)


def padded_width(dim: int) -> int:
    """``dim`` rounded up to a multiple of 16."""
    return -(-dim // LANES) * LANES


def empty_table(size: int, dim: int) -> np.ndarray:
    """``[size, padded_width(dim)]`` fp32 of zeros, each row at a multiple of 64 bytes."""
    width = padded_width(dim)
    room = np.zeros(size * width + LANES, np.float32)
    start = (-room.ctypes.data // 4) % LANES
    return room[start : start + size * width].reshape(size, width)


class Kernel(NamedTuple):
    """Compiled functions for one width: ``window`` updates for given words, ``sentences`` draws, calls it."""

    window: Any
    sentences: Any


@cache
def kernel(width: int) -> Kernel:
    """Compile for rows of ``width`` numbers (a multiple of 16)."""
    import numba  # a second, and not needed where the package has kernels

    @numba.njit(nogil=True, fastmath=FAST)
    def update_window(centre_table, context_table, around, count, words, drawn, lr, steps, grad, judge):
        """One step of gradient descent for each pair of a window.

        Args:
            around: [>= count] the neighbors; their rows of ``centre_table`` move.
            words: [>= drawn] the middle word, then the negatives; their rows of ``context_table`` move.
            steps, grad: [>= drawn], [width]: room to work in.
            judge: whether the loss is wanted; else 0 is returned.
        """
        one, zero, bound = np.float32(1.0), np.float32(0.0), np.float32(20.0)
        loss = 0.0
        for j in range(count):
            v = centre_table[around[j]]
            for n in range(drawn):
                u = context_table[words[n]]
                f = zero
                for d in range(width):
                    f += v[d] * u[d]
                steps[n] = min(max(f, -bound), bound)
            if judge:
                loss += math.log1p(math.exp(-steps[0]))
                for n in range(1, drawn):
                    loss += math.log1p(math.exp(steps[n]))
            for n in range(drawn):
                steps[n] = -lr / (one + math.exp(-steps[n]))  # - lr sigmoid(f)
            steps[0] += lr  # lr (1 - sigmoid(f))
            for d in range(width):
                grad[d] = zero
            for n in range(drawn):
                u, step = context_table[words[n]], steps[n]
                for d in range(width):
                    old = u[d]
                    grad[d] += step * old
                    u[d] = old + step * v[d]
            for d in range(width):
                v[d] += grad[d]
        return loss

    @numba.njit(nogil=True, fastmath=FAST)
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
        fall,
        state,
    ):
        """Train on sentences ``first`` to ``last``; the learning rate ``rate`` falls by ``fall`` a word.

        Returns:
            Pairs trained on; the summed loss of the windows looked at, and their pairs.
        """
        longest = 0
        for i in range(first, last):
            longest = max(longest, starts[i + 1] - starts[i])
        sentence, around = np.empty(longest, np.int32), np.empty(2 * window, np.int32)
        words, steps = np.empty(1 + negative, np.int32), np.empty(1 + negative, np.float32)
        grad = np.empty(width, np.float32)
        multiplier, increment = np.uint64(6364136223846793005), np.uint64(1442695040888963407)
        upper, size = np.uint64(32), np.uint64(len(alias))
        pairs, judged, windows, loss, done = 0, 0, 0, 0.0, 0
        for s in range(first, last):
            n = 0
            for p in range(starts[s], starts[s + 1]):
                word = ids[p]
                state = state * multiplier + increment
                if (state >> upper) <= keep[word]:
                    sentence[n] = word
                    n += 1
            lr = np.float32(rate - fall * done)
            for i in range(n):
                state = state * multiplier + increment
                reach = 1 + np.int64(((state >> upper) * np.uint64(window)) >> upper)
                count = 0
                for j in range(max(0, i - reach), min(n, i + reach + 1)):
                    if j != i:
                        around[count] = sentence[j]
                        count += 1
                words[0] = sentence[i]
                drawn = 1
                for _ in range(negative):
                    state = state * multiplier + increment
                    column = np.int64(((state >> upper) * size) >> upper)
                    state = state * multiplier + increment
                    word = column if (state >> upper) <= probability[column] else alias[column]
                    words[drawn] = word
                    drawn += word != words[0]  # a draw of the middle word does not count
                judge = windows % LOSS_EVERY == 0
                part = update_window(
                    centre_table, context_table, around, count, words, drawn, lr, steps, grad, judge
                )
                windows += 1
                pairs += count
                if judge:
                    loss += part
                    judged += count
            done += starts[s + 1] - starts[s]
        return pairs, loss, judged

    return Kernel(update_window, train_sentences)


def loops(width: int) -> Callable[..., tuple[int, float, int]]:
    """``train_sentences`` for rows of ``width`` numbers, by the package's kernels where there are some."""
    return kernel(width).sentences if kernels.why_not() else skip_gram.train_sentences


def compiled_by() -> str:
    """Whose code ``loops`` gives: each adds in its own order, and so has its own bits."""
    found = kernels.level()
    return f"kernels of {found.title}" if found else "numba"


def random_state(*numbers: int) -> np.uint64:
    """A start for the generator, from the seed and the place in the training (SplitMix64)."""
    x = 0
    for number in numbers:
        x = (x + number + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        x ^= x >> 31
    return np.uint64(x)
