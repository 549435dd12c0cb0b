"""Which examples are copies: texts equal but for case, spaces, punctuation and markup; equal pictures.

A copy in training of what is judged makes the figures too good. So copies stay on one side of a split.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.checks import is_missing
from glassformer.data.image import file_of
from glassformer.data.text import clean_text
from glassformer.data.text_pairs import JOINT, TextPair


def alike(text: str) -> str:
    """A text without case, spaces, punctuation and markup; without case and spaces where no more is left.

    Of a pair both, in whichever order: two pairs that are each other's swap are alike.
    """
    if isinstance(text, TextPair):
        return JOINT.join(sorted(map(alike, text.sides)))
    letters = clean_text(text, "words").casefold().replace(" ", "")
    return letters or same_but_for_case(text)


def same_but_for_case(text: str) -> str:
    """A text without case and spaces, its letters composed; of a pair both."""
    if isinstance(text, TextPair):
        return JOINT.join(map(same_but_for_case, text.sides))
    return "".join(unicodedata.normalize("NFC", text).casefold().split())


def digest(picture: Any) -> str:
    """Of the bytes that a picture lies in, or of its pixels; empty where it is missing."""
    picture = file_of(picture)
    if isinstance(picture, str | bytes) and (not picture or is_missing(picture)):
        return ""
    if isinstance(picture, str | os.PathLike):
        try:
            picture = Path(picture).expanduser().read_bytes()
        except OSError:
            picture = os.fsencode(picture)
    if not isinstance(picture, bytes | bytearray | memoryview):
        if is_missing(picture):
            return ""
        if getattr(picture, "mode", None) in ("P", "PA"):  # whose numbers are of colours in a table
            picture = picture.convert("RGBA")
        array = np.ascontiguousarray(np.asarray(picture))
        picture = str(array.shape).encode() + array.tobytes()
    return hashlib.sha256(picture).hexdigest()


def content_of(split: Any) -> Iterator[bytes]:
    """A line for each example of a split, then one for what is learned of each; of images their digests."""
    if hasattr(split, "scores"):  # pairs
        columns = [split.first, split.second, split.scores]
    elif hasattr(split, "source"):
        columns = [split.source, split.target]
    elif hasattr(split, "examples"):
        columns = [list(map(digest, split.images)) if hasattr(split, "images") else split.examples]
        columns.append(split.labels)
    else:  # texts
        columns = [split]
    for values in columns:
        for value in [None] if values is None else values:
            yield f"{value!r}\n".encode("utf-8", "surrogatepass")


def content_digest(split: Any) -> str:
    """SHA-256 of ``content_of``: of the same examples in another order it is another one."""
    out = hashlib.sha256()
    for line in content_of(split):
        out.update(line)
    return out.hexdigest()


def groups_of(split: Any, sides: bool = False) -> list[str]:
    """One key for each example of a split; copies have the same (``sides``: also pairs that share a text)."""
    if sides:
        return sides_together(split.texts)
    if hasattr(split, "images"):
        return list(map(digest, split.images))
    if hasattr(split, "source"):  # pairs: one source text stays on one side, however it is translated
        return list(map(alike, split.source))
    return list(map(alike, split.texts))


def sides_together(pairs: Sequence[str]) -> list[str]:
    """One key for each pair: those that share a text, directly or through others, have the same."""
    leader: dict[str, str] = {}

    def first_of(key: str) -> str:
        while leader.setdefault(key, key) != key:
            leader[key] = key = leader[leader[key]]
        return key

    sides = [
        tuple(map(alike, pair.sides)) if isinstance(pair, TextPair) else (alike(pair),) for pair in pairs
    ]
    for each in sides:
        for other in each[1:]:
            leader[first_of(other)] = first_of(each[0])
    return [first_of(each[0]) for each in sides]


def distinct(keys: Sequence[str]) -> list[int]:
    """The place of the first of each key, rising."""
    first: dict[str, int] = {}
    for index, key in enumerate(keys):
        first.setdefault(key, index)
    return list(first.values())
