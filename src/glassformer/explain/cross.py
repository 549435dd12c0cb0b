"""What the two texts of a pair do to each other: which words read which, and which count because of which.

A word's contribution is the fall of the target's logit when the word is hidden. The interaction of a word of
the first text with one of the second is the part of the second's contribution that goes with the first:

    I(i, j) = [f(x) - f(x without j)] - [f(x without i) - f(x without i and j)]

Above 0 the two count together: j speaks for the label because i stands there. It is a second difference of
hidden parts (Lundberg et al., 2020), without their average over what else is hidden.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassformer.errors import InputError
from glassformer.explain.subject import Subject, attention_maps
from glassformer.explain.tokens import word_spans

MOST = 48  # words of a side that are set against those of the other; the strongest are taken
SHOWN = 8  # pairs of words that are listed


def cross(subject: Subject, target: int | None = None, by: str = "mask") -> dict[str, Any]:
    """A pair's words against each other, in about ``W1 x W2`` variants of the input.

    Args:
        target: number of the label; None: the predicted one.
        by: what stands in the place of a hidden word, as in ``Subject.logits``.

    Returns:
        Plain values for JSON: ``first`` and ``second`` (words), ``contributions`` and ``alone`` (of each
        side's words: as the input stands, and with the other side hidden), ``interactions`` ``[W1, W2]``,
        ``first_reads_second`` ``[W1, W2]`` and ``second_reads_first`` ``[W2, W1]`` (attention, the mean of
        all layers and heads; None of a model without), ``strongest`` (pairs of words, the largest
        interaction first) and ``left_out`` (words beyond ``MOST`` of a side).

    Raises:
        InputError: the input is no pair, or one of its sides has no word.
    """
    sides = subject.shown.get("sides")
    if sides is None:
        raise InputError("only a pair of texts has two sides", where="cross", fix="Give two texts")
    target = subject.target if target is None else target
    words, text = subject.words, subject.shown["text"]
    spans = word_spans(words, subject.shown["offsets"])
    side_of = np.array([sides[np.flatnonzero(words == w)[0]] for w in range(len(spans))])
    both = [np.flatnonzero(side_of == side) for side in (0, 1)]
    if not all(map(len, both)):
        raise InputError("a side of the pair has no word", where="cross", fix="Give longer texts")

    def falls(hidden: np.ndarray, base: np.ndarray | float) -> np.ndarray:
        """``[M]``: how far the logit lies below ``base`` where the words ``[M, W]`` are hidden."""
        keep = np.ones((len(hidden), len(subject)), bool)
        chosen = words >= 0
        keep[:, chosen] = ~hidden[:, words[chosen]]
        return base - subject.logits(keep, by)[:, target]

    one = np.eye(len(spans), dtype=bool)
    whole = -float(falls(np.zeros((1, len(spans)), bool), 0.0)[0])
    contributions = falls(one, whole)
    alone = np.zeros(len(spans))
    for own, other in (both, both[::-1]):
        without = np.isin(np.arange(len(spans)), other)
        bare = -float(falls(without[None], 0.0)[0])
        alone[own] = falls(one[own] | without, bare)
    kept = [rows[np.sort(np.argsort(-np.abs(contributions[rows]), kind="stable")[:MOST])] for rows in both]
    first, second = kept
    together = one[first][:, None] | one[second][None]  # [W1, W2, W]
    joint = falls(together.reshape(-1, len(spans)), whole).reshape(len(first), len(second))
    interactions = contributions[first][:, None] + contributions[second][None] - joint
    names = [text[a:b] for a, b in spans]
    order = np.argsort(-np.abs(interactions).ravel(), kind="stable")[:SHOWN]
    places = [divmod(int(i), len(second)) for i in order]
    reads = _reads(subject, kept)
    return {
        "first": [names[w] for w in first],
        "second": [names[w] for w in second],
        "target": str(subject.classes[target]),
        "by": by,
        "contributions": {"first": _plain(contributions[first]), "second": _plain(contributions[second])},
        "alone": {"first": _plain(alone[first]), "second": _plain(alone[second])},
        "interactions": _plain(interactions),
        "first_reads_second": None if reads is None else _plain(reads[0]),
        "second_reads_first": None if reads is None else _plain(reads[1]),
        "strongest": [[names[first[i]], names[second[j]], float(interactions[i, j])] for i, j in places],
        "left_out": int(len(spans) - len(first) - len(second)),
    }


def _plain(values: np.ndarray) -> list[Any]:
    return np.round(values, 6).tolist()


def _reads(subject: Subject, kept: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    """How much of the other side's words each word reads, both ways; rows are means over a word's pieces."""
    if not getattr(subject.model, "has_attention", True):
        return None
    maps, _ = attention_maps(subject)
    mean = maps.mean((0, 1))  # [T, T]
    first, second = (np.stack([subject.words == w for w in rows]).astype(float) for rows in kept)  # [W, T]
    rows = [side / side.sum(1, keepdims=True) for side in (first, second)]
    return rows[0] @ mean @ second.T, rows[1] @ mean @ first.T
