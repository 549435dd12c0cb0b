"""Which examples are copies: texts equal but for case, spaces, punctuation, markup; images alike.

A copy in training of what is judged makes the figures too good. So copies stay on one side of a split.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.checks import is_missing
from glassformer.data.dataset import Split
from glassformer.data.image import ImageRange, file_of, open_picture
from glassformer.data.text import clean_text
from glassformer.data.text_pairs import JOINT, TextPair
from glassformer.errors import DataError


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
    """Of the bytes that an image lies in, or of its pixels; empty where it is missing."""
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
        if getattr(picture, "mode", None) in ("P", "PA"):  # whose numbers are of colors in a table
            picture = picture.convert("RGBA")
        array = np.ascontiguousarray(np.asarray(picture))
        picture = str(array.shape).encode() + array.tobytes()
    return hashlib.sha256(picture).hexdigest()


def content_of(split: Any) -> Iterator[bytes]:
    """A line for each example of a split, then one for what is learned of each; of images their digests."""
    columns = [split]  # texts, unless it is a split
    if isinstance(split, Split):
        names = [f.name for f in fields(split)]  # type: ignore[arg-type]  # each of them is a dataclass
        columns = [getattr(split, name) for name in names if name not in ("origin", "rows", "ids")]
    if hasattr(split, "images"):
        columns[0] = list(map(digest, columns[0]))
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

    sides = [list(map(alike, pair.sides if isinstance(pair, TextPair) else (pair,))) for pair in pairs]
    for first, *others in sides:
        for other in others:
            leader[first_of(other)] = first_of(first)
    return [first_of(first) for first, *_ in sides]


def distinct(keys: Sequence[Any]) -> list[int]:
    """The place of the first of each key, rising."""
    first: dict[Any, int] = {}
    for index, key in enumerate(keys):
        first.setdefault(key, index)
    return list(first.values())


# --- images that look nearly the same -----------------------------------------------------------
# A difference hash, checked on small copies.
# The hash says of 8 x 8 places whether an image grows brighter to the right (Krawetz, "Kind of like that",
# 2013), on Pillow's own resize. Images whose hashes differ in at most three places are compared as 16 x
# 16 pixels.

SIDE = 16  # pixels of a small copy
MOST = 30_000  # images of a split that are looked at, drawn with the seed 0
BITS = 3  # in which two hashes may differ
LEVELS = 6.0  # of 256, by which two small copies may differ on average, each at its own brightness
FLAT = 3.0  # standard deviation of a small copy in levels: less says nothing
CROWD = 200  # images that share a quarter of their hash, beyond which they are not compared one by one
FEW_HASHES = 500  # in a crowd, beyond which only equal ones are compared
NEAREST = 4  # hashes whose images one in a crowd is compared with


@dataclass(frozen=True)
class Thumbs:
    """Small copies of a split's images, and their hashes."""

    places: np.ndarray  # int64 [n]: which images of the split they are
    pixels: np.ndarray  # uint8 [n, 16, 16, 3]
    hashes: np.ndarray  # uint64 [n]

    @staticmethod
    def of(pictures: Sequence[Any], places: Sequence[int], image_range: ImageRange = "full") -> Thumbs:
        """Of the images at some places; those that cannot be read or show nothing are left out."""
        chosen = np.asarray(places, np.int64)
        if len(chosen) > MOST:
            chosen = np.sort(np.random.default_rng(0).choice(chosen, MOST, replace=False))
        kept, pixels, hashes = [], [], []
        for place in chosen.tolist():
            try:
                image = open_picture(pictures[place], image_range=image_range)
            except DataError:
                continue
            small = np.asarray(image.resize((SIDE, SIDE)))
            if small.std() < FLAT:
                continue
            grey = np.asarray(image.convert("L").resize((9, 8)), np.int16)
            kept.append(place)
            pixels.append(small)
            hashes.append(np.packbits(grey[:, 1:] > grey[:, :-1]).view(np.uint64)[0])
        small = np.array(pixels, np.uint8).reshape(len(kept), SIDE, SIDE, 3)
        return Thumbs(np.array(kept, np.int64), small, np.array(hashes, np.uint64))


def near_repeats(thumbs: Mapping[str, Thumbs]) -> dict[tuple[str, str], list[tuple[int, int]]]:
    """(split, split) -> pairs of places whose images look nearly the same, in rising order.

    Across splits every image of the first is named once, with one of the second that is like it.
    """
    owner = [name for name, table in thumbs.items() for _ in range(len(table.places))]
    if not owner:
        return {}
    columns = ((table.places, table.pixels, table.hashes) for table in thumbs.values())
    place, pixels, hashes = map(np.concatenate, zip(*columns, strict=True))
    found: dict[tuple[str, str], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i, j in sorted(_candidates(hashes, np.array(owner), pixels)):
        if _apart(pixels[i][None], pixels[j])[0] <= LEVELS:
            found[owner[i], owner[j]][int(place[i])].append(int(place[j]))
    out = {}
    for (a, b), pairs in found.items():
        out[a, b] = [(i, j) for i, others in pairs.items() for j in (others if a == b else others[:1])]
    return out


def _candidates(hashes: np.ndarray, owner: np.ndarray, pixels: np.ndarray) -> set[tuple[int, int]]:
    """Pairs whose hashes differ in at most three of 64 bits: of four quarters, one then is the same."""
    out: set[tuple[int, int]] = set()
    for quarter in range(4):
        keys = (hashes >> np.uint64(16 * quarter)) & np.uint64(0xFFFF)
        order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.diff(keys[order], prepend=keys[order[:1]] + np.uint64(1)))
        for group in np.split(order, starts[1:]):
            if len(group) > CROWD:
                out |= _in_crowd(np.sort(group), hashes, owner, pixels)
            if not 1 < len(group) <= CROWD:
                continue
            group = np.sort(group)
            apart = np.bitwise_count(hashes[group][:, None] ^ hashes[group][None])
            rows, columns = np.nonzero(np.triu(apart <= BITS, 1))
            out |= set(zip(group[rows].tolist(), group[columns].tolist(), strict=True))
    return out


def _in_crowd(
    group: np.ndarray, hashes: np.ndarray, owner: np.ndarray, pixels: np.ndarray
) -> set[tuple[int, int]]:
    """Each of many with those of its hash, or of near ones, that stand for the others of their split.

    An image stands for itself where it is like none of its split that stands there already, up to ``CROWD``
    a hash; else it shares what is found like the first of these.
    """
    values, number = np.unique(hashes[group], return_inverse=True)
    stand: dict[int, list[int]] = defaultdict(list)  # those of a hash that stand for others
    stood_for: dict[int, int] = {}
    out = set()
    for i, k in zip(group.tolist(), number.tolist(), strict=True):
        near = np.array([k])
        if len(values) <= FEW_HASHES:
            apart = np.bitwise_count(values ^ values[k])
            near = np.argsort(apart, kind="stable")[:NEAREST]
            near = near[apart[near] <= BITS]
        others = np.array([j for other in near.tolist() for j in stand[other]], np.int64)
        like = others[_apart(pixels[others], pixels[i]) <= LEVELS].tolist() if len(others) else []
        out |= {(j, i) for j in like}
        own = [j for j in like if owner[j] == owner[i]]
        if own:
            stood_for[i] = own[0]
        elif len(stand[k]) < CROWD:
            stand[k].append(i)
    first: dict[int, dict[str, int]] = defaultdict(dict)  # of another split, like one that stands for others
    for i, j in sorted(out):
        if owner[i] != owner[j]:
            first[i].setdefault(str(owner[j]), j)
    for i, by in stood_for.items():
        out |= {(i, j) for j in first[by].values() if i < j}
    return out


def _apart(many: np.ndarray, one: np.ndarray) -> np.ndarray:
    """How far small copies ``[k, 16, 16, 3]`` are from one, each at its own brightness, in levels ``[k]``."""
    a, b = many.astype(np.float32).reshape(len(many), -1), one.astype(np.float32).reshape(-1)
    return np.abs((a - a.mean(1, keepdims=True)) - (b - b.mean())).mean(1)
