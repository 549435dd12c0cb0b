"""Exact explanations of linear models: contributions of n-grams, summed by word.

The contribution of an n-gram to the logit is its value times its weight. It is distributed over the
characters of its occurrences in equal shares; shares of characters between two words go to these words. So
the scores of all words and the bias sum to the logit exactly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from glassformer.data.ngrams import LENGTHS, WORD, Ngrams
from glassformer.data.text import clean_text
from glassformer.data.text_pairs import JOINT, TextPair
from glassformer.errors import InputError
from glassformer.explain.result import Scores
from glassformer.explain.subject import Subject, several_said, spread_of

TOKEN = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]+")  # words and punctuation, each with a score
STRONGEST = 5  # number of n-grams in the note


@dataclass(frozen=True)
class NgramSubject(Subject):
    """A text or text pair for a linear model; tokens have no embeddings and are masked by deletion.

    Args:
        ngrams: the vectorizer.
        sides: the text, or both texts of a pair.
        spans: ``[T]`` side, start and end of each token.
        unit, origin: the reported logit is ``unit * logit + origin``; for regressors, in the original unit.
    """

    ngrams: Ngrams = field(kw_only=True)
    sides: tuple[str, ...] = field(kw_only=True)
    spans: Sequence[tuple[int, int, int]] = field(kw_only=True)
    unit: float = 1.0
    origin: float = 0.0

    def logits(self, keep: np.ndarray, by: str = "mask") -> np.ndarray:
        """See ``Subject``; ``mask`` and ``delete`` both delete the characters of a token."""
        if by not in ("mask", "delete"):
            what = f"no baseline {by!r} for a linear model"
            raise InputError(what, where="explain", fix="Use mask or delete")
        rows = self.ngrams.rows([self._without(row) for row in np.asarray(keep, bool)])
        weight, bias = weights_of(self.model)
        return rows @ weight.T + bias

    def _without(self, keep: np.ndarray) -> str:
        """The text or pair without the tokens where ``keep`` is False."""
        left = [list(side) for side in self.sides]
        for (side, start, stop), stays in zip(self.spans, keep.tolist(), strict=True):
            if not stays:
                left[side][start:stop] = [""] * (stop - start)
        sides = ["".join(side) for side in left]
        return TextPair(*sides) if len(sides) == 2 else sides[0]

    def under(self, model: Any) -> Subject:
        raise InputError("a linear model has no layers to randomize", where="explain", fix="Use an encoder")


def weights_of(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Weights ``[C, W]`` and biases ``[C]`` of a linear model, fp64."""
    head = model.head.out
    return head.weight.detach().double().cpu().numpy(), head.bias.detach().double().cpu().numpy()


def ngram_subject(clf: Any, text: str) -> NgramSubject:
    """The ``NgramSubject`` of a text or pair for a fitted linear model."""
    clf.check_sides([text])
    ngrams: Ngrams = clf.tokenizer_
    sides = text.sides if isinstance(text, TextPair) else (text,)
    shown = tuple(clean_text(side, ngrams.clean) for side in sides)
    spans = [(i, *match.span()) for i, side in enumerate(shown) for match in TOKEN.finditer(side)]
    behind = len(shown[0]) + len(JOINT)
    weight, bias = weights_of(clf.model_)
    logits = ngrams.rows([text]) @ weight.T + bias
    probabilities = clf.chances(logits)[0]
    target = clf.kind_.explain_target(probabilities, clf.threshold_)
    label = clf.kind_.target_name(target, probabilities, clf.classes_)
    number = not clf.kind_.labels_given
    return NgramSubject(
        clf.model_,
        Tensor(),
        {},
        np.arange(len(spans)),
        clf.classes_.tolist(),
        target,
        probabilities,
        temperature=clf.temperature_,
        to_probabilities=clf.chances,
        spread=spread_of(clf, label),
        shown={
            "text": JOINT.join(shown),
            "tokens": [shown[side][start:stop] for side, start, stop in spans],
            "offsets": [(start + side * behind, stop + side * behind) for side, start, stop in spans],
            "word_ids": np.arange(len(spans)),
            "label": label,
            "number": number,
            "notes": several_said(clf, probabilities),
            **({"sides": np.array([side for side, _, _ in spans], int)} if len(shown) == 2 else {}),
        },
        ngrams=ngrams,
        sides=shown,
        spans=spans,
        unit=clf.kind_.unit if number else 1.0,
        origin=clf.kind_.mean if number else 0.0,
    )


def weights(subject: Subject, target: int) -> Scores:
    """Contributions of the n-grams of a text, summed by word. With the bias they sum to the logit of the
    target (for regressors, to the number or its logarithm).
    """
    assert isinstance(subject, NgramSubject)
    weight, bias = (part[target] for part in weights_of(subject.model))
    parts, strongest = contributions(subject.ngrams, subject.sides, subject.unit * weight)
    scores = np.array([parts[side][start:stop].sum() for side, start, stop in subject.spans])
    given = subject.unit * float(bias) + subject.origin
    settings = {"bias": given, "logit": given + float(scores.sum())}
    notes = [f"the scores and the bias ({given:+.4f}) add up to {settings['logit']:.4f}"]
    if strongest:
        said = ", ".join(f"{name} {value:+.3f}" for name, value in strongest)
        notes.append(f"strongest n-grams: {said}")
    return Scores(scores, settings=settings, notes=notes)


def contributions(
    ngrams: Ngrams, sides: Sequence[str], weight: np.ndarray
) -> tuple[list[np.ndarray], list[tuple[str, float]]]:
    """Contributions of each character to a logit, per text, and the n-grams with the largest contributions.

    Args:
        sides: one or two cleaned texts.
        weight: ``[W]`` weight of each feature.
    """
    text = TextPair(*sides) if len(sides) == 2 else sides[0]
    row = ngrams.rows([text])
    found = {int(f): float(v) * float(weight[f]) for f, v in zip(row.indices, row.data, strict=True)}
    places = [_places(ngrams, side) for side in sides]
    out = [np.zeros(len(side)) for side in sides]
    size = len(ngrams.idf)
    for feature, value in found.items():
        part, gram = divmod(feature, size)
        # Features of a pair: n-grams in the first text, in the second, in both, or in only one of them.
        owners = [part] if part < 2 else [side for side in (0, 1) if gram in places[side]]
        for owner in owners:
            spots = places[owner][gram]
            for shares in spots:
                for character, share in shares:
                    out[owner][character] += value * share / len(spots) / len(owners)
    order = sorted(found, key=lambda f: (-abs(found[f]), f))[:STRONGEST]
    return out, [(ngrams.name_of(f), found[f]) for f in order]


Spot = list[
    tuple[int, float]
]  # the characters that an n-gram stands on, each with its share; shares add up to 1


def _places(ngrams: Ngrams, shown: str) -> dict[int, list[Spot]]:
    """The occurrences of each n-gram in a cleaned text."""
    prepared = ngrams.folded(shown)
    owner = np.repeat(
        np.arange(len(shown)), [len(ngrams.folded(c)) for c in shown]
    )  # of each prepared character
    places: dict[int, list[Spot]] = {}

    def put(gram: int | None, spans: Sequence[tuple[int, int]]) -> None:
        if gram is not None:
            each = [(int(owner[i]), 1 / len(spans) / (b - a)) for a, b in spans for i in range(a, b)]
            places.setdefault(gram, []).append(each)

    words = [match.span() for match in WORD.finditer(prepared)]
    for i, (a, b) in enumerate(words):
        put(ngrams.number_of_words(prepared[a:b]), [(a, b)])
        if i + 1 < len(words):
            c, d = words[i + 1]
            put(ngrams.number_of_words(f"{prepared[a:b]} {prepared[c:d]}"), [(a, b), (c, d)])
    for match in re.finditer(r"\S+", prepared):
        a, b = match.span()
        word = f" {match[0]} "
        for n in LENGTHS:
            for i in range(max(1, len(word) - n + 1)):
                inside = max(a, a + i - 1), min(b, a + i - 1 + n)
                put(ngrams.number_of_pieces(word[i : i + n]), [inside])
            if n >= len(word):
                break
    return places
