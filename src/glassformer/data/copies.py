"""Which examples are copies: texts equal but for case, spaces, punctuation and markup; equal pictures.

A copy in training of what is judged makes the figures too good. So copies stay on one side of a split.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.checks import is_missing
from glassformer.data.text import clean_text


def alike(text: str) -> str:
    """A text without case, spaces, punctuation and markup; without case and spaces where no more is left."""
    letters = clean_text(text, "words").casefold().replace(" ", "")
    return letters or same_but_for_case(text)


def same_but_for_case(text: str) -> str:
    """A text without case and spaces, its letters composed."""
    return "".join(unicodedata.normalize("NFC", text).casefold().split())


def digest(picture: Any) -> str:
    """Of the bytes that a picture lies in, or of its pixels."""
    if isinstance(picture, Mapping):
        picture = picture.get("bytes") or picture.get("path")
    if isinstance(picture, str | os.PathLike):
        try:
            picture = Path(picture).expanduser().read_bytes()
        except OSError:
            picture = str(picture).encode()
    if not isinstance(picture, bytes):
        if is_missing(picture):
            return ""
        array = np.ascontiguousarray(np.asarray(picture))
        picture = str(array.shape).encode() + array.tobytes()
    return hashlib.sha256(picture).hexdigest()


def groups_of(split: Any) -> list[str]:
    """One key for each example of a split; copies have the same."""
    if hasattr(split, "images"):
        return list(map(digest, split.images))
    if hasattr(split, "source"):  # pairs: one source text stays on one side, however it is translated
        return list(map(alike, split.source))
    return list(map(alike, split.texts))


def distinct(keys: Sequence[str]) -> list[int]:
    """The place of the first of each key, rising."""
    first: dict[str, int] = {}
    for index, key in enumerate(keys):
        first.setdefault(key, index)
    return list(first.values())
