"""How much longer a tokenizer's steps can make a text, counted from its file before any text is read.

A character has a weight: how many characters stand in its place at the end. The last step's weights are all
1, and from there the steps are gone through backwards. What Unicode itself lengthens once (18 characters for
one, at most) is left out; where a file puts such characters in, they count.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

from glassformer.data.patterns import simple_minimum

MOST = 64  # characters for one
MOST_CUT = 32  # the same for what cuts a text into words
UNICODE = ("NFC", "NFD", "NFKC", "NFKD")
FACTORS = {
    "ByteLevel": 5,
    "Metaspace": 2,
    "BertNormalizer": 3,
}  # a byte each and a blank; a mark; blanks around


def growth(steps: Sequence[dict[str, Any]], stretch: float = 1.0) -> float:
    """The largest weight that a character can have before these steps, all of them of known kinds.

    Args:
        stretch: how much longer than Unicode's own tables ``Precompiled`` makes a text.
    """
    factors = FACTORS | {"Precompiled": max(stretch, 1.0)}
    other, weights = 1.0, dict[str, float]()  # of every other character, and of those that a pattern names
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        kind = step["type"]
        if kind == "Replace":
            content = _longest(step["content"], steps[number + 1 :])
            put_in = sum(weights.get(c, other) for c in content)
            other, weights = _replaced(step["pattern"], put_in, other, weights)
        elif kind not in ("Prepend", "Strip", "StripAccents", "Fuse"):
            other = (
                max(other, *weights.values()) if weights else other
            )  # it may make any character of any other
            other, weights = other * factors.get(kind, 1), {}
    return max(other, *weights.values()) if weights else other


def _replaced(
    pattern: dict[str, str], put_in: float, other: float, weights: dict[str, float]
) -> tuple[float, dict[str, float]]:
    if (word := pattern.get("String")) is not None:
        alone = len(word) == 1
        share = {c: put_in if alone else max(weights.get(c, other), put_in / len(word)) for c in word}
        return other, weights | share
    least = simple_minimum(pattern["Regex"]) or 0
    if least == 0:  # it may match the nothing before each character
        return other + put_in, {c: weight + put_in for c, weight in weights.items()}
    return max(other, put_in / least), {c: max(weight, put_in) for c, weight in weights.items()}


def _longest(content: str, later: Sequence[dict[str, Any]]) -> str:
    """A text that is put in, as long as the later steps of Unicode can make it."""
    for step in later:
        if step["type"] in UNICODE:
            content = unicodedata.normalize(step["type"], content)
        elif step["type"] in ("Precompiled", "BertNormalizer"):
            content = max(content, unicodedata.normalize("NFKD", content), key=len)
        elif step["type"] == "Lowercase":
            content = content.lower()
    return content
