"""Solutions of lab 2."""

import re

import numpy as np

from glassformer.data.corpus import EUROPEAN_CITIES


def unigram_noise(counts: np.ndarray, power: float) -> np.ndarray:
    """Counts to the power, divided by their sum: 1 draws words as they come, 0 all alike."""
    weights = counts.astype(float) ** power
    return weights / weights.sum()


def analogy(vectors: dict[str, np.ndarray], a: str, b: str, c: str) -> str:
    """The word nearest to a - b + c by cosine, these three excluded."""
    wanted = vectors[a] - vectors[b] + vectors[c]
    others = [w for w in vectors if w not in (a, b, c)]
    return max(others, key=lambda w: vectors[w] @ wanted / np.linalg.norm(vectors[w]))


def names_city(sentence: str) -> bool:
    """Whether any word is a European city."""
    return bool(set(re.findall(r"\w+", sentence)) & set(EUROPEAN_CITIES))


def test() -> None:
    counts = np.array([80, 16, 4])
    shares = [unigram_noise(counts, p)[0] for p in (1, 0.75, 0)]
    assert shares[0] == 0.8
    assert shares[0] > shares[1] > shares[2] == 1 / 3
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
