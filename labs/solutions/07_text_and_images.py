"""Solutions of lab 7."""

from math import log

import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor, nn

from glassformer.nn import attend_local
from glassformer.packing import Packing


def door_parameters(d_model: int, words: int, patch: int, channels: int) -> tuple[int, int]:
    """The table grows with the vocabulary, the matrix with the area of a patch."""
    return words * d_model, (channels * patch**2 + 1) * d_model


def distance_share(weights: Tensor) -> float:
    """An even map has the weight 1 / T everywhere."""
    places = torch.arange(len(weights))
    apart = (places[:, None] - places).abs()
    return float((weights * apart).sum(1).mean() / apart.float().mean(1).mean())


def scores_of(size: int, patch: int, heads: int = 12, layers: int = 12) -> int:
    """One [CLS] and (size / patch)² patches, each against each."""
    tokens = 1 + (size // patch) ** 2
    return layers * heads * tokens**2


def local_pairs(length: int, window: int) -> int:
    """Each row sees itself, and up to ``window`` rows on either side that exist: T (2w + 1) - w (w + 1) pairs for w < T,
    half of T² at about w = (1 - 1/√2) T = 0.29 T.
    """
    return sum(min(i, window) + 1 + min(length - 1 - i, window) for i in range(length))


def both_orders(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, int, int]:
    """(QKᵀ)V and Q(KᵀV) of ``[T, d]``, ``[T, d]``, ``[T, e]``, and the multiplications of either: T²(d + e) and 2Tde."""
    t, d = q.shape
    return (q @ k.T) @ v, q @ (k.T @ v), t * t * (d + v.shape[1]), 2 * t * d * v.shape[1]


def tfidf(word: str, text: list[str], texts: list[list[str]]) -> float:
    """A word of every text keeps the weight 1; ln 1 is 0."""
    known = sum(word in other for other in texts)
    return text.count(word) * (log((1 + len(texts)) / (1 + known)) + 1)


def test() -> None:
    table, matrix = nn.Embedding(100, 8), nn.Linear(3 * 4 * 4, 8)
    sizes = tuple(sum(p.numel() for p in part.parameters()) for part in (table, matrix))
    assert door_parameters(8, 100, 4, 3) == sizes
    assert distance_share(torch.eye(5)) == 0
    assert abs(distance_share(torch.full((5, 5), 0.2)) - 1) < 1e-6
    assert (
        abs(distance_share(torch.eye(5).roll(1, 0)) - 1) < 1e-6
    )  # 4 + 1 + 1 + 1 + 1 of 8, as of an even map
    assert scores_of(224, 16) == 144 * 197**2
    assert scores_of(224, 8) == 144 * 785**2
    assert local_pairs(6, 5) == 36  # sees all
    q = torch.randn(6, 1, 1)
    seen = int((attend_local(q, q, torch.eye(6)[:, None], Packing((6,)), 2) > 0).sum())
    assert local_pairs(6, 2) == seen == 6 * 5 - 2 * 3
    assert abs(local_pairs(1000, 293) / 1000**2 - 0.5) < 1e-3
    first, second, many, few = both_orders(
        torch.randn(9, 4).double(), torch.randn(9, 4).double(), torch.randn(9, 4).double()
    )
    assert torch.allclose(first, second)
    assert few < many
    texts = [["a", "film", "a"], ["a", "dog"], ["one", "cat"]]
    vectorizer = TfidfVectorizer(analyzer=list, norm=None)
    row = vectorizer.fit_transform(texts)[0].toarray()[0]
    for word in ("a", "film", "cat"):
        assert abs(tfidf(word, texts[0], texts) - row[vectorizer.vocabulary_[word]]) < 1e-9
