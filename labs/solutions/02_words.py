"""Solutions of lab 2."""

import re

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.data.corpus import EUROPEAN_CITIES


def pairs_in(length: int, window: int) -> int:
    """At each distance d there are length - d neighbors, and each pair is seen from both ends."""
    return 2 * sum(length - d for d in range(1, min(window, length - 1) + 1))


def pair_loss(v: Tensor, u: Tensor, negatives: Tensor) -> Tensor:
    """``logsigmoid`` is exact where σ rounds to 0."""
    return -F.logsigmoid(v @ u) - F.logsigmoid(-negatives @ v).sum()


def unigram_noise(counts: np.ndarray, power: float) -> np.ndarray:
    """Counts to the power, divided by their sum: 1 draws words as they come, 0 all alike."""
    weights = counts.astype(float) ** power
    return weights / weights.sum()


def stopped_at(losses: list[float], patience: int) -> tuple[int, int]:
    """A loop with a memory of the best; without a stop the last epoch is reached."""
    best = 0
    for epoch, loss in enumerate(losses):
        if loss < losses[best]:
            best = epoch
        if epoch - best == patience:
            break
    return epoch + 1, best + 1


def analogy(vectors: dict[str, np.ndarray], a: str, b: str, c: str) -> str:
    """The length of a - b + c is the same for all words and can be left out."""
    wanted = vectors[a] - vectors[b] + vectors[c]
    others = [w for w in vectors if w not in (a, b, c)]
    return max(others, key=lambda w: vectors[w] @ wanted / np.linalg.norm(vectors[w]))


def names_city(sentence: str) -> bool:
    """Whole words are compared, not parts of them."""
    return bool(set(re.findall(r"\w+", sentence)) & set(EUROPEAN_CITIES))


def test() -> None:
    assert pairs_in(3, 1) == 4
    assert pairs_in(4, 10) == 12
    v, u, negatives = torch.randn(4), torch.randn(4), torch.randn(3, 4)
    expected = -torch.cat([v @ u[:, None], -negatives @ v]).sigmoid().log().sum()
    assert torch.allclose(pair_loss(v, u, negatives), expected, atol=1e-5)
    assert 200 < pair_loss(200 * torch.ones(1), -torch.ones(1), torch.zeros(1, 1)) < 201  # 200 + log 2
    counts = np.array([80, 16, 4])
    shares = [unigram_noise(counts, p)[0] for p in (1, 0.75, 0)]
    assert shares[0] == 0.8
    assert shares[0] > shares[1] > shares[2] == 1 / 3
    assert stopped_at([3, 2, 2.5, 1.9, 2.2, 2.1, 1], 2) == (6, 4)
    assert stopped_at([3, 2, 1], 2) == (3, 3)
    rows = np.eye(3)
    vectors = {
        "paris": rows[0] + rows[1],
        "france": rows[0],
        "japan": rows[2],
        "tokyo": rows[1] + rows[2],
        "tea": -rows[1],
    }
    assert analogy(vectors, "paris", "france", "japan") == "tokyo"
    assert names_city("Paris is not the capital of Chile .")
    assert not names_city("The parish is in Chile .")
