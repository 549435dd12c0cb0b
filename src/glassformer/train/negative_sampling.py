"""Skip-gram with negative sampling as compiled loops: the loss of ``models/skipgram.py``, many times as fast.

Three things make it fast. A small block of neighbouring centres shares its negatives, as the contexts of a
window do in pWord2Vec (Ji et al., 2016) and of several in pSGNScc (Rengasamy et al., 2017): few rows are
fetched for many products. A shared negative stands for ``pairs * negative / shared`` draws, so that the
expected gradient is that of ``negative`` draws a pair. And the width of a row is a constant, a multiple of
16, so the loops have no remainder.

Threads write into the same tables without locks (Niu et al., 2011). With one thread results repeat.

The loops are compiled in each process (two seconds) and not kept on disk: numba writes the index of its cache
before the code that the index names, so that another process could run another width's code on narrower rows.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

LANES = 16  # fp32 numbers in a 512-bit register; rows are a multiple of them, in 64-byte steps
SHARED = 16  # negatives of a block
BLOCK = 4  # centres of a block
LOSS_EVERY = 16  # the loss is computed in every 16th block: it is only looked at
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
    """Compiled functions for one width: ``block`` updates for given words, ``sentences`` draws, calls it."""

    block: Any
    sentences: Any


@cache
def kernel(width: int, shared: int = SHARED, block: int = BLOCK) -> Kernel:
    """Compile for rows of ``width`` numbers (a multiple of 16); ``shared`` is a multiple of 4."""

    @numba.njit(nogil=True, fastmath=FAST)
    def update_block(
        centre_table,
        context_table,
        centres,
        count,
        contexts,
        starts,
        negatives,
        weight,
        lr,
        grad,
        noise,
        judge,
    ):
        """One step of gradient descent on a block.

        Args:
            centres: [count]; contexts[starts[g] : starts[g + 1]] stand around centre g.
            negatives: [shared], of all centres.
            weight: of one negative for one pair: negative / shared.
            grad, noise: [width], [shared, width]: room to work in.
            judge: whether the loss is wanted; else 0 is returned.
        """
        one, zero, bound = np.float32(1.0), np.float32(0.0), np.float32(20.0)
        loss = 0.0
        for n in range(shared):
            row = noise[n]
            for d in range(width):
                row[d] = zero
        for g in range(count):
            v = centre_table[centres[g]]
            begin, end = starts[g], starts[g + 1]
            for d in range(width):
                grad[d] = zero
            for j in range(begin, end):
                u = context_table[contexts[j]]
                f = zero
                for d in range(width):
                    f += v[d] * u[d]
                f = min(max(f, -bound), bound)
                step = lr / (one + math.exp(f))  # lr (1 - sigmoid(f))
                if judge:
                    loss += math.log1p(math.exp(-f))
                for d in range(width):
                    old = u[d]
                    grad[d] += step * old
                    u[d] = old + step * v[d]
            for n in range(0, shared, 4):
                n0, n1, n2, n3 = negatives[n], negatives[n + 1], negatives[n + 2], negatives[n + 3]
                u0, u1, u2, u3 = context_table[n0], context_table[n1], context_table[n2], context_table[n3]
                f0, f1, f2, f3 = zero, zero, zero, zero
                for d in range(width):
                    x = v[d]
                    f0 += x * u0[d]
                    f1 += x * u1[d]
                    f2 += x * u2[d]
                    f3 += x * u3[d]
                p0, p1, p2, p3 = end - begin, end - begin, end - begin, end - begin
                for j in range(begin, end):  # a draw that hits the pair's own context does not count
                    w = contexts[j]
                    p0 -= w == n0
                    p1 -= w == n1
                    p2 -= w == n2
                    p3 -= w == n3
                f0 = min(max(f0, -bound), bound)
                f1 = min(max(f1, -bound), bound)
                f2 = min(max(f2, -bound), bound)
                f3 = min(max(f3, -bound), bound)
                if judge:
                    loss += weight * (
                        p0 * math.log1p(math.exp(f0))
                        + p1 * math.log1p(math.exp(f1))
                        + p2 * math.log1p(math.exp(f2))
                        + p3 * math.log1p(math.exp(f3))
                    )
                scale = -lr * weight
                s0 = scale * np.float32(p0) / (one + math.exp(-f0))  # - lr weight pairs sigmoid(f)
                s1 = scale * np.float32(p1) / (one + math.exp(-f1))
                s2 = scale * np.float32(p2) / (one + math.exp(-f2))
                s3 = scale * np.float32(p3) / (one + math.exp(-f3))
                for d in range(width):
                    grad[d] += s0 * u0[d] + s1 * u1[d] + s2 * u2[d] + s3 * u3[d]
                r0, r1, r2, r3 = noise[n], noise[n + 1], noise[n + 2], noise[n + 3]
                for d in range(width):
                    x = v[d]
                    r0[d] += s0 * x
                    r1[d] += s1 * x
                    r2[d] += s2 * x
                    r3[d] += s3 * x
            for d in range(width):
                v[d] += grad[d]
        for n in range(shared):
            u, row = context_table[negatives[n]], noise[n]
            for d in range(width):
                u[d] += row[d]
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
            Pairs trained on; the summed loss of the blocks looked at, and their pairs.
        """
        longest = 0
        for i in range(first, last):
            longest = max(longest, starts[i + 1] - starts[i])
        sentence = np.empty(longest, np.int32)
        centres, around = np.empty(block, np.int32), np.empty(block * 2 * window, np.int32)
        bounds, negatives = np.zeros(block + 1, np.int32), np.empty(shared, np.int32)
        grad, noise = np.empty(width, np.float32), np.empty((shared, width), np.float32)
        weight = np.float32(negative / shared)
        multiplier, increment = np.uint64(6364136223846793005), np.uint64(1442695040888963407)
        upper, size = np.uint64(32), np.uint64(len(alias))
        pairs, judged, blocks, loss, done = 0, 0, 0, 0.0, 0
        for s in range(first, last):
            n = 0
            for p in range(starts[s], starts[s + 1]):
                word = ids[p]
                state = state * multiplier + increment
                if (state >> upper) <= keep[word]:
                    sentence[n] = word
                    n += 1
            lr = np.float32(rate - fall * done)
            i = 0
            while i < n:
                count, m = 0, 0
                while count < block and i < n:
                    state = state * multiplier + increment
                    reach = 1 + np.int64(((state >> upper) * np.uint64(window)) >> upper)
                    for j in range(max(0, i - reach), min(n, i + reach + 1)):
                        if j != i:
                            around[m] = sentence[j]
                            m += 1
                    centres[count] = sentence[i]
                    count += 1
                    bounds[count] = m
                    i += 1
                for q in range(shared):
                    state = state * multiplier + increment
                    word = np.int64(((state >> upper) * size) >> upper)
                    state = state * multiplier + increment
                    negatives[q] = word if (state >> upper) <= probability[word] else alias[word]
                judge = blocks % LOSS_EVERY == 0
                part = update_block(
                    centre_table,
                    context_table,
                    centres,
                    count,
                    around,
                    bounds,
                    negatives,
                    weight,
                    lr,
                    grad,
                    noise,
                    judge,
                )
                blocks += 1
                pairs += m
                if judge:
                    loss += part
                    judged += m
            done += starts[s + 1] - starts[s]
        return pairs, loss, judged

    return Kernel(update_block, train_sentences)


def random_state(*numbers: int) -> np.uint64:
    """A start for the generator, from the seed and the place in the training (SplitMix64)."""
    x = 0
    for number in numbers:
        x = (x + number + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        x ^= x >> 31
    return np.uint64(x)
