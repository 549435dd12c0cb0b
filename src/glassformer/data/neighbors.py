"""Do rows that stand next to each other belong together (reviews of one film, comments of one author)?

Where they do, a part held out at random has relatives of its rows in training and flatters the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

CHUNK = 25  # neighbouring rows looked at in one place
CHUNKS = 120  # such places
# a word in more than this share of the texts looked at (or 20 of them) tells nothing of their kinship
RARE = 0.01
FEW = 5.0  # shared words added to both counts, so that chance among a few does not look like kinship
LEAST = 100  # pairs of neighbours, below which nothing is said


@dataclass(frozen=True)
class Kinship:
    """Rare words that two rows of one class share, on average: neighboring rows, and rows far apart."""

    near: float
    far: float
    pairs: int

    @property
    def ratio(self) -> float:
        """How many times as often neighbors share a rare word; 1: the order of rows says nothing."""
        return (self.near * self.pairs + 1.0) / (
            self.far * self.pairs + 1.0
        )  # one shared word counts for little


def kinship(texts: Sequence[str], labels: Sequence[Any] | None = None) -> Kinship | None:
    """Compare neighbors with rows far apart, on a sample of runs of neighboring rows; skips repeats.

    Args:
        labels: one per text; only rows of one class are compared, since tables are often sorted by class.

    Returns:
        None where there are too few rows.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    rows, starts = _sample(texts, labels)
    if len(rows) - len(starts) < LEAST:
        return None
    try:
        words = CountVectorizer(
            binary=True, min_df=2, max_df=max(20, round(RARE * len(rows))), token_pattern=r"(?u)\w+"
        ).fit_transform([texts[i] for i in rows])
    except ValueError:  # no word stands in two texts, or none is rare
        return None
    first = np.setdiff1d(
        np.arange(len(rows)), starts
    )  # rows whose neighbour stands before them in the sample
    label = np.asarray([str(labels[i]) for i in rows] if labels is not None else [""] * len(rows))
    first = first[label[first] == label[first - 1]]
    if len(first) < LEAST:
        return None
    # Partners far away: the same rows against those of another chunk of the same class, in a fixed order.
    far_of, far_with = [], []
    for name in np.unique(label):
        own = first[label[first] == name]
        far_of.append(own)
        far_with.append(np.roll(own, len(own) // 2))
    shared = lambda a, b: float(words[a].multiply(words[b]).sum() / len(a))  # noqa: E731
    return Kinship(
        shared(first, first - 1), shared(np.concatenate(far_of), np.concatenate(far_with)), len(first)
    )


def _sample(texts: Sequence[str], labels: Sequence[str | int] | None) -> tuple[list[int], np.ndarray]:
    """Rows of the sample, and the positions in it at which a chunk begins. Rows of a class are neighbours
    whatever stands between them, since some tables mix the classes and keep the order within each."""
    order = [*range(len(texts))]
    if labels is not None:
        order.sort(key=lambda i: str(labels[i]))  # stable: the order within a class stays
    seen: set[str] = set()
    order = [i for i in order if not (texts[i] in seen or seen.add(texts[i]))]
    if len(order) <= CHUNK * CHUNKS:
        return order, np.array([0])
    begins = np.linspace(0, len(order) - CHUNK, CHUNKS).astype(int)
    rows = [order[b + k] for b in begins.tolist() for k in range(CHUNK)]
    return rows, np.arange(CHUNKS) * CHUNK
