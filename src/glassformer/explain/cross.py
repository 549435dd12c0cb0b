"""Interactions between the words of a text pair.

The contribution of a word is the decrease of the target's logit if the word is masked. The interaction of
word i of the first text with word j of the second is the part of j's contribution that depends on i:

    I(i, j) = [f(x) - f(x without j)] - [f(x without i) - f(x without i and j)]

A positive interaction means that j supports the label because of i. It is a second difference (Lundberg et
al., 2020) without averaging over other masked words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.errors import InputError
from glassformer.explain.heatmap import heatmap_svg
from glassformer.explain.result import word_spans
from glassformer.explain.subject import Subject, attention_maps
from glassformer.explain.view import short_names

MAX_WORDS = 48  # maximum number of words per text; the words with the largest contributions are used
NUM_STRONGEST = 8  # number of listed pairs


def cross(subject: Subject, target: int | None = None, by: str = "mask") -> dict[str, Any]:
    """Interactions of the words of a text pair, from about ``W1 x W2`` variants with masked words.

    Args:
        target: index of the label; None: the predicted label.
        by: replacement of masked words, as in ``Subject.logits``.

    Returns:
        Plain values for JSON.

        - ``first``, ``second``: the words of each text.
        - ``contributions``, ``alone``: the contributions of these words, to the whole pair and with the
          other text masked.
        - ``interactions``: ``[W1, W2]``.
        - ``first_reads_second`` ``[W1, W2]``, ``second_reads_first`` ``[W2, W1]``: attention weights, mean
          over all layers and heads; None for models without attention between both texts.
        - ``strongest``: the pairs of words with the largest interactions.
        - ``left_out``: number of words beyond ``MAX_WORDS`` per text.
    """
    sides = subject.input_fields.get("sides")
    if sides is None:
        raise InputError("the input is not a pair of texts", where="cross", fix="Give two texts")
    target = subject.target if target is None else target
    words, text = subject.words, subject.input_fields["text"]
    spans = word_spans(words, subject.input_fields["offsets"])
    side_of = np.array([sides[np.flatnonzero(words == w)[0]] for w in range(len(spans))])
    words_of_texts = [np.flatnonzero(side_of == side) for side in (0, 1)]
    if not all(map(len, words_of_texts)):
        raise InputError("a text of the pair has no words", where="cross", fix="Give longer texts")

    def masked_logits(masked: np.ndarray) -> np.ndarray:
        """The logit of each of M variants ``[M]``; ``masked`` is ``[M, W]`` boolean."""
        keep = np.ones((len(masked), len(subject)), bool)
        in_word = words >= 0
        keep[:, in_word] = ~masked[:, words[in_word]]
        return subject.logits(keep, by)[:, target]

    each_word = np.eye(len(spans), dtype=bool)
    unmasked = float(masked_logits(np.zeros((1, len(spans)), bool))[0])
    contributions = unmasked - masked_logits(each_word)
    alone = np.zeros(len(spans))  # contributions with the other text masked
    for own, other in (words_of_texts, words_of_texts[::-1]):
        other_text = np.isin(np.arange(len(spans)), other)
        single_text = float(masked_logits(other_text[None])[0])
        alone[own] = single_text - masked_logits(each_word[own] | other_text)
    first, second = selected = [
        own[np.sort(np.argsort(-np.abs(contributions[own]), kind="stable")[:MAX_WORDS])]
        for own in words_of_texts
    ]
    word_pairs = each_word[first][:, None] | each_word[second][None]  # [W1, W2, W]
    joint = unmasked - masked_logits(word_pairs.reshape(-1, len(spans))).reshape(len(first), len(second))
    interactions = contributions[first][:, None] + contributions[second][None] - joint
    names = [text[a:b] for a, b in spans]
    order = np.argsort(-np.abs(interactions).ravel(), kind="stable")[:NUM_STRONGEST]
    strongest = [divmod(int(i), len(second)) for i in order]
    attention = _cross_attention(subject, selected)
    return {
        "first": [names[w] for w in first],
        "second": [names[w] for w in second],
        "target": str(subject.classes[target]),
        "by": by,
        "contributions": {"first": _to_list(contributions[first]), "second": _to_list(contributions[second])},
        "alone": {"first": _to_list(alone[first]), "second": _to_list(alone[second])},
        "interactions": _to_list(interactions),
        "first_reads_second": None if attention is None else _to_list(attention[0]),
        "second_reads_first": None if attention is None else _to_list(attention[1]),
        "strongest": [[names[first[i]], names[second[j]], float(interactions[i, j])] for i, j in strongest],
        "left_out": int(len(spans) - len(first) - len(second)),
    }


def _to_list(values: np.ndarray) -> list[Any]:
    return np.round(values, 6).tolist()


def _cross_attention(subject: Subject, selected: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    """Attention of each word to the words of the other text, in both directions; None for a bi-encoder."""
    if not getattr(subject.model, "has_attention", True) or len(subject.text_lengths) > 1:
        return None
    maps, _ = attention_maps(subject)
    mean = maps.mean((0, 1))  # [T, T]
    # For each text, [W, T]: 1 at the tokens of each word.
    first, second = (np.stack([subject.words == w for w in words]).astype(float) for words in selected)
    means = [tokens / tokens.sum(1, keepdims=True) for tokens in (first, second)]
    return means[0] @ mean @ second.T, means[1] @ mean @ first.T


# --- heatmaps -------------------------------------------------------------------------------------


MAX_LETTERS = 18  # maximum number of letters of a displayed word
POSITIVE, NEGATIVE = "rgb(214 140 30)", "rgb(60 110 200)"  # colors of positive and negative values
MAPS = (
    (
        "interactions",
        "first",
        "second",
        "Contributions of the second text's words to “{target}” that depend on the first text's words",
    ),
    ("first_reads_second", "first", "second", "Attention from the first text to the second"),
    ("second_reads_first", "second", "first", "Attention from the second text to the first"),
)


def cross_heatmaps(result: dict[str, Any]) -> list[tuple[str, str]]:
    """A title and an SVG for each map in the result of ``cross``."""
    maps = []
    for key, rows, columns, heading in MAPS:
        if result[key] is not None:
            title = heading.format(target=result["target"])
            maps.append((title, _heatmap(result[rows], result[columns], result[key], title)))
    return maps


def _heatmap(
    rows: Sequence[str], columns: Sequence[str], table: Sequence[Sequence[float]], title: str
) -> str:
    """A heatmap as SVG; opacity is relative to the largest value, negative values are blue."""
    row_names, column_names = (short_names(names, MAX_LETTERS) for names in (rows, columns))
    peak = max((abs(value) for line in table for value in line), default=0.0) or 1.0

    def cell(i: int, j: int) -> tuple[str, str, str]:
        value = table[i][j]
        color = POSITIVE if value >= 0 else NEGATIVE
        return color, f"{abs(value) / peak:.3f}", f"{row_names[i]} · {column_names[j]}: {value:.4f}"

    return heatmap_svg(row_names, column_names, cell, title)
