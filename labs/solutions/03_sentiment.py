"""Solutions of lab 3."""

import numpy as np
import torch
from torch import Tensor


def coverage(counts: list[int], least: int) -> float:
    """Each distinct word weighs as much as it occurs."""
    return sum(n for n in counts if n >= least) / sum(counts)


def pad(rows: list[list[int]], left: bool = False) -> tuple[Tensor, Tensor]:
    """Ids ``[B, T]`` with 0 where there is no token, and the mask ``[B, T]`` with 1 where there is one."""
    longest = max(map(len, rows))
    ids, mask = torch.zeros(2, len(rows), longest, dtype=torch.long)
    for i, row in enumerate(rows):
        place = slice(longest - len(row), None) if left else slice(len(row))
        ids[i, place], mask[i, place] = torch.tensor(row), 1
    return ids, mask


def pooled(states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over all places and the mean over the real ones, ``[B, T, D]`` -> ``[B, D]`` each."""
    return states.mean(1), (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def best_threshold(probability: np.ndarray, true: np.ndarray) -> float:
    """Of the second class: every stated probability is a candidate."""

    def f1(threshold: float) -> float:
        said = probability >= threshold
        right = (said & true).sum()
        return 2 * right / max(said.sum() + true.sum(), 1)

    return max(np.unique(probability).tolist(), key=f1)


def without_each(probability, words: list[str]) -> list[float]:
    """A negative number: the word spoke against it."""
    whole = probability(words)
    return [whole - probability(words[:i] + words[i + 1 :]) for i in range(len(words))]


def test() -> None:
    assert coverage([6, 3, 1], 3) == 0.9
    ids, mask = pad([[5, 6], [7, 8, 9]], left=True)
    assert ids.tolist() == [[0, 5, 6], [7, 8, 9]]
    assert mask.tolist() == [[0, 1, 1], [1, 1, 1]]
    states = torch.ones(1, 10, 3) * (torch.arange(10) < 2)[None, :, None]
    wrong, right = pooled(states, (torch.arange(10) < 2).long()[None])
    assert torch.allclose(wrong, torch.full((1, 3), 0.2))
    assert torch.equal(right, torch.ones(1, 3))
    assert best_threshold(np.array([0.1, 0.3, 0.35, 0.8]), np.array([False, True, True, True])) == 0.3
    falls = without_each(lambda words: 0.1 * len(words) + 0.5 * ("good" in words), ["a", "good", "a"])
    assert np.allclose(falls, [0.1, 0.6, 0.1])
