"""Interactions between the words of a text pair, and attention between its texts.

The contribution of a word is the decrease of the target's logit if the word is masked. The interaction of
word i of the first text with word j of the second is the part of j's contribution that depends on i:

    I(i, j) = [f(x) - f(x without j)] - [f(x without i) - f(x without i and j)]

A positive interaction means that j supports the label because of i. It is a second difference (Lundberg et
al., 2020) without averaging over other masked words.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from glassformer.errors import InputError
from glassformer.explain.result import word_spans
from glassformer.explain.subject import Subject, attention_maps
from glassformer.explain.view import short_names

MOST = 48  # maximum number of words per text, those with the largest contributions
SHOWN = 8  # number of listed pairs


def cross(subject: Subject, target: int | None = None, by: str = "mask") -> dict[str, Any]:
    """Interactions of all words of a text pair, from about ``W1 x W2`` variants of the input.

    Args:
        target: number of the label; None: the predicted one.
        by: replacement of masked words, as in ``Subject.logits``.

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
        """Decrease of the logit from ``base`` if the words ``[M, W]`` are masked: ``[M]``."""
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
    """Attention of each word to the words of the other text, in both directions; None for a bi-encoder."""
    if not getattr(subject.model, "has_attention", True) or len(subject.parts) > 1:
        return None
    maps, _ = attention_maps(subject)
    mean = maps.mean((0, 1))  # [T, T]
    first, second = (np.stack([subject.words == w for w in rows]).astype(float) for rows in kept)  # [W, T]
    rows = [side / side.sum(1, keepdims=True) for side in (first, second)]
    return rows[0] @ mean @ second.T, rows[1] @ mean @ first.T


# --- heatmaps -------------------------------------------------------------------------------------


CELL, LETTER, LONGEST = 20, 6.6, 18  # pixels per square and per letter; letters of a word
FOR, AGAINST = "rgb(214 140 30)", "rgb(60 110 200)"
MAPS = (
    (
        "interactions",
        "first",
        "second",
        "What words of the second text give to “{target}” because of words of the first",
    ),
    ("first_reads_second", "first", "second", "What words of the first text read of the second"),
    ("second_reads_first", "second", "first", "What words of the second text read of the first"),
)


def cross_pictures(found: dict[str, Any]) -> list[tuple[str, str]]:
    """A title and an SVG for each map in the result of ``cross``."""
    made = []
    for key, rows, columns, heading in MAPS:
        if found[key] is not None:
            title = heading.format(target=found["target"])
            made.append((title, squares(found[rows], found[columns], found[key], title)))
    return made


def squares(rows: Sequence[str], columns: Sequence[str], table: Sequence[Sequence[float]], title: str) -> str:
    """A heatmap as SVG; opacity is relative to the largest value, negative values are blue."""
    names = [short_names(side, LONGEST) for side in (rows, columns)]
    left, top = (LETTER * max(map(len, side)) + 12 for side in names)
    width, height = left + CELL * len(columns) + 4, top + CELL * len(rows) + 4
    peak = max((abs(value) for line in table for value in line), default=0.0) or 1.0
    parts = [
        f'<text transform="translate({left + CELL * (i + 0.5) + 4:.0f} {top - 6:.0f}) rotate(-90)">'
        f"{escape(name)}</text>"
        for i, name in enumerate(names[1])
    ]
    for i, (name, line) in enumerate(zip(names[0], table, strict=True)):
        y = top + CELL * i
        parts.append(f'<text x="{left - 6:.0f}" y="{y + 14:.0f}" text-anchor="end">{escape(name)}</text>')
        for j, value in enumerate(line):
            about = f"{name} · {names[1][j]}: {value:.4f}"
            parts.append(
                f'<rect x="{left + CELL * j:.0f}" y="{y:.0f}" width="{CELL - 1}" height="{CELL - 1}" '
                f'fill="{FOR if value >= 0 else AGAINST}" fill-opacity="{abs(value) / peak:.3f}">'
                f"<title>{escape(about)}</title></rect>"
            )
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" font-size="11" '
        f'fill="currentColor" aria-label="{escape(title, quote=True)}">{"".join(parts)}</svg>'
    )
