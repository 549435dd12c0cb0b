"""Exact explanations of linear text models.

The contribution of an n-gram to the logit is its value times its weight. It is shared equally among the
characters of all its occurrences, without spaces. The score of a word is the sum over its characters. So the
scores of all words and the bias sum to the logit.
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
from glassformer.data.text_pairs import SEPARATOR, TextPair
from glassformer.errors import InputError
from glassformer.explain.result import Scores
from glassformer.explain.subject import Subject, prediction_notes, target_scale

TOKEN = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]+")  # words ("don't") and punctuation ("..."), each with a score
NUM_STRONGEST = 5  # number of n-grams that the note of an explanation lists


@dataclass(frozen=True)
class NgramSubject(Subject):
    """A text or text pair for a linear model. Its tokens have no embeddings, so masking deletes characters.

    Args:
        ngrams: the vectorizer.
        sides: the cleaned text, or both texts of a pair.
        spans: ``[T]`` the text (0 or 1), start and end of each token.
        unit, origin: the reported logit is ``unit * logit + origin``. For regressors, it is a number in the
            unit of the training targets.
    """

    ngrams: Ngrams = field(kw_only=True)
    sides: tuple[str, ...] = field(kw_only=True)
    spans: Sequence[tuple[int, int, int]] = field(kw_only=True)
    unit: float = 1.0
    origin: float = 0.0

    def logits(self, keep: np.ndarray, by: str = "mask") -> np.ndarray:
        """See ``Subject``; ``mask`` and ``delete`` both delete the characters of a token."""
        if by not in ("mask", "delete"):
            what = f"a linear model has no baseline {by!r}"
            raise InputError(what, where="explain", fix="Use mask or delete")
        rows = self.ngrams.rows([self._without(row) for row in np.asarray(keep, bool)])
        weight, bias = head_weights(self.model)
        return rows @ weight.T + bias

    def _without(self, keep: np.ndarray) -> str:
        """The text or pair without the tokens where ``keep`` is False."""
        characters = [list(side) for side in self.sides]
        for (side, start, stop), is_kept in zip(self.spans, keep.tolist(), strict=True):
            if not is_kept:
                characters[side][start:stop] = [""] * (stop - start)
        sides = ["".join(side) for side in characters]
        return TextPair(*sides) if len(sides) == 2 else sides[0]

    def with_model(self, model: Any) -> Subject:
        raise InputError("a linear model has no layers to randomize", where="explain", fix="Use an encoder")


def head_weights(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Weights ``[C, W]`` and biases ``[C]`` of a linear model, fp64."""
    head = model.head.out
    return head.weight.detach().double().cpu().numpy(), head.bias.detach().double().cpu().numpy()


def ngram_subject(clf: Any, text: str) -> NgramSubject:
    """The ``NgramSubject`` of a text or pair for a fitted linear model."""
    clf.check_number_of_texts([text])
    ngrams: Ngrams = clf.tokenizer_
    sides = text.sides if isinstance(text, TextPair) else (text,)
    cleaned = tuple(clean_text(side, ngrams.clean) for side in sides)
    spans = [(i, *match.span()) for i, side in enumerate(cleaned) for match in TOKEN.finditer(side)]
    second_start = len(cleaned[0]) + len(SEPARATOR)
    weight, bias = head_weights(clf.model_)
    logits = ngrams.rows([text]) @ weight.T + bias
    probabilities = clf.to_probabilities(logits)[0]
    target = clf.kind_.explain_target(probabilities, clf.threshold_)
    label = clf.kind_.target_name(target, probabilities, clf.classes_)
    is_number = not clf.kind_.predicts_labels
    return NgramSubject(
        clf.model_,
        Tensor(),
        {},
        np.arange(len(spans)),
        clf.classes_.tolist(),
        target,
        probabilities,
        temperature=clf.temperature_,
        to_probabilities=clf.to_probabilities,
        scale=target_scale(clf, label),
        input_fields={
            "text": SEPARATOR.join(cleaned),
            "tokens": [cleaned[side][start:stop] for side, start, stop in spans],
            "offsets": [
                (start + side * second_start, stop + side * second_start) for side, start, stop in spans
            ],
            "word_ids": np.arange(len(spans)),
            "label": label,
            "number": is_number,
            "notes": prediction_notes(clf, probabilities),
            **({"sides": np.array([side for side, _, _ in spans], int)} if len(cleaned) == 2 else {}),
        },
        ngrams=ngrams,
        sides=cleaned,
        spans=spans,
        unit=clf.kind_.unit if is_number else 1.0,
        origin=clf.kind_.mean if is_number else 0.0,
    )


def weights(subject: Subject, target: int) -> Scores:
    """Contributions of the n-grams of a text, summed by word.

    The scores and the bias sum to the logit of the target. For regressors, they sum to the number or its
    logarithm.
    """
    assert isinstance(subject, NgramSubject)
    weight, bias = (values[target] for values in head_weights(subject.model))
    by_character, strongest = contributions(subject.ngrams, subject.sides, subject.unit * weight)
    scores = np.array([by_character[side][start:stop].sum() for side, start, stop in subject.spans])
    bias = subject.unit * float(bias) + subject.origin
    settings = {"bias": bias, "logit": bias + float(scores.sum())}
    notes = [f"the scores and the bias ({bias:+.4f}) add up to {settings['logit']:.4f}"]
    if strongest:
        notes.append("strongest n-grams: " + ", ".join(f"{name} {value:+.3f}" for name, value in strongest))
    return Scores(scores, settings=settings, notes=notes)


def contributions(
    ngrams: Ngrams, sides: Sequence[str], weight: np.ndarray
) -> tuple[list[np.ndarray], list[tuple[str, float]]]:
    """Contributions of all characters of each text, and the n-grams with the largest contributions.

    Args:
        sides: one or two cleaned texts.
        weight: ``[W]`` weight of each feature.
    """
    text = TextPair(*sides) if len(sides) == 2 else sides[0]
    row = ngrams.rows([text])
    by_feature = {int(f): float(v) * float(weight[f]) for f, v in zip(row.indices, row.data, strict=True)}
    occurrences = [_find_occurrences(ngrams, side) for side in sides]
    by_character = [np.zeros(len(side)) for side in sides]
    for feature, value in by_feature.items():
        block, gram = divmod(feature, len(ngrams.idf))
        # Blocks of features of a pair: n-grams in the first text, in the second, in both, in only one of
        # them.
        texts = [block] if block < 2 else [side for side in (0, 1) if gram in occurrences[side]]
        for i in texts:
            in_text = occurrences[i][gram]
            for occurrence in in_text:
                for character, share in occurrence:
                    by_character[i][character] += value * share / len(in_text) / len(texts)
    order = sorted(by_feature, key=lambda f: (-abs(by_feature[f]), f))[:NUM_STRONGEST]
    return by_character, [(ngrams.feature_name(f), by_feature[f]) for f in order]


Occurrence = list[tuple[int, float]]  # the characters of an n-gram with their shares, which sum to 1


def _find_occurrences(ngrams: Ngrams, text: str) -> dict[int, list[Occurrence]]:
    """The occurrences of each n-gram in a cleaned text."""
    prepared = ngrams.normalize_text(text)
    # Index in ``text`` of each prepared character.
    origin = np.repeat(np.arange(len(text)), [len(ngrams.normalize_text(c)) for c in text])
    occurrences: dict[int, list[Occurrence]] = {}

    def add(gram: int | None, spans: Sequence[tuple[int, int]]) -> None:
        if gram is not None:
            shares = [(int(origin[i]), 1 / len(spans) / (b - a)) for a, b in spans for i in range(a, b)]
            occurrences.setdefault(gram, []).append(shares)

    words = [match.span() for match in WORD.finditer(prepared)]
    for i, (a, b) in enumerate(words):
        add(ngrams.word_feature(prepared[a:b]), [(a, b)])
        if i + 1 < len(words):
            c, d = words[i + 1]
            add(ngrams.word_feature(f"{prepared[a:b]} {prepared[c:d]}"), [(a, b), (c, d)])
    for match in re.finditer(r"\S+", prepared):
        a, b = match.span()
        word = f" {match[0]} "
        for n in LENGTHS:
            for i in range(max(1, len(word) - n + 1)):
                inside = max(a, a + i - 1), min(b, a + i - 1 + n)
                add(ngrams.character_feature(word[i : i + n]), [inside])
            if n >= len(word):
                break
    return occurrences
