"""What a tagger says of a sentence: spans with their places and how sure they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from glassformer.data.tags import Scheme, kind_of_tag, spans_of


@dataclass(frozen=True)
class TaggedSpan:
    """Words ``first`` to ``last`` (exclusive) of a sentence, characters ``start`` to ``end`` of its text.

    ``probability`` is that of the least sure word: what the model gives to all tags of this kind together.
    """

    text: str
    kind: str
    start: int
    end: int
    first: int
    last: int
    probability: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def word_places(sentence: Any) -> list[tuple[int, int]]:
    """Where each word stands in a text, or in the words with blanks between them."""
    if isinstance(sentence, str):
        return [match.span() for match in re.finditer(r"\S+", sentence)]
    ends = np.cumsum([len(word) + 1 for word in sentence]) - 1
    return [(int(end) - len(word), int(end)) for word, end in zip(sentence, ends, strict=True)]


def tagged_spans(
    sentence: Any, tags: Sequence[str], probabilities: np.ndarray, classes: Sequence[str], scheme: Scheme
) -> list[TaggedSpan]:
    """The spans of one sentence.

    Args:
        sentence: a text, or a list of words.
        tags: ``[W]`` as they were decided.
        probabilities: ``[W, C]`` of the tags in the order of ``classes``.
    """
    text = sentence if isinstance(sentence, str) else " ".join(sentence)
    places = word_places(sentence)
    kinds = np.array([kind_of_tag(tag, scheme) for tag in classes])
    out = []
    for kind, first, last in spans_of(tags, scheme):
        start, end = places[first][0], places[last - 1][1]
        sure = float(probabilities[first:last, kinds == kind].sum(1).min())
        out.append(TaggedSpan(text[start:end], kind, start, end, first, last, min(sure, 1.0)))
    return out
