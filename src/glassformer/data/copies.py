"""Duplicate examples: texts that differ only in case, spaces, punctuation and markup; similar images.

If a copy of a test example is in training, the score is too good. So copies are kept on one side of a split.
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
    """A key for comparing texts: without case, spaces, punctuation and markup (the last two stay if the text
    has nothing else).

    The key of a pair does not depend on the order of its texts.
    """
    if isinstance(text, TextPair):
        return JOINT.join(sorted(map(alike, text.sides)))
    letters = clean_text(text, "words").casefold().replace(" ", "")
    return letters or same_but_for_case(text)


def same_but_for_case(text: str) -> str:
    """A stricter key for comparing texts: without case and spaces, in NFC; of a pair both, in order."""
    if isinstance(text, TextPair):
        return JOINT.join(map(same_but_for_case, text.sides))
    return "".join(unicodedata.normalize("NFC", text).casefold().split())


def digest(image: Any) -> str:
    """SHA-256 of an image's file, or of its pixels; empty if it is missing."""
    image = file_of(image)
    if isinstance(image, str | bytes) and (not image or is_missing(image)):
        return ""
    if isinstance(image, str | os.PathLike):
        try:
            image = Path(image).expanduser().read_bytes()
        except OSError:
            image = os.fsencode(image)
    if not isinstance(image, bytes | bytearray | memoryview):
        if is_missing(image):
            return ""
        if getattr(image, "mode", None) in ("P", "PA"):  # its values are indices into a palette
            image = image.convert("RGBA")
        array = np.ascontiguousarray(np.asarray(image))
        image = str(array.shape).encode() + array.tobytes()
    return hashlib.sha256(image).hexdigest()


def content_of(split: Any) -> Iterator[bytes]:
    """The content of a split, line by line: the examples (images by their digests), then the targets."""
    columns = [split]  # a plain list of texts
    if isinstance(split, Split):
        names = [f.name for f in fields(split)]  # type: ignore[arg-type]  # each of them is a dataclass
        columns = [getattr(split, name) for name in names if name not in ("origin", "rows", "ids")]
    if hasattr(split, "images"):
        columns[0] = list(map(digest, columns[0]))
    for values in columns:
        for value in [None] if values is None else values:
            yield f"{value!r}\n".encode("utf-8", "surrogatepass")


def content_digest(split: Any) -> str:
    """SHA-256 of ``content_of``; it depends on the order of the examples."""
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
    if hasattr(split, "source"):  # pairs: all translations of a source text stay together
        return list(map(alike, split.source))
    return list(map(alike, split.texts))


def sides_together(pairs: Sequence[str]) -> list[str]:
    """One key per pair: pairs that share a text, directly or through other pairs, have the same key."""
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
    """The index of the first occurrence of each key, ascending."""
    first: dict[Any, int] = {}
    for index, key in enumerate(keys):
        first.setdefault(key, index)
    return list(first.values())


# --- images that look nearly the same -----------------------------------------------------------
# A difference hash proposes pairs, thumbnails confirm them. Each of the 64 bits of the hash says whether the
# image gets brighter to the right at one of 8 x 8 positions (Krawetz, "Kind of Like That", 2013; resized with
# Pillow). Images whose hashes differ in at most three bits are compared as thumbnails of 16 x 16 pixels.

SIDE = 16  # width and height of a thumbnail in pixels
MOST = 30_000  # maximum number of images per split; more are sampled with seed 0
BITS = 3  # maximum number of bits in which two hashes may differ
LEVELS = 6.0  # maximum mean difference of two thumbnails of equal mean brightness, of 256 gray levels
FLAT = 3.0  # minimum standard deviation of a thumbnail, of 256 gray levels; below, the image is too uniform
CROWD = 200  # if more images share a quarter of their hash, they are not compared pair by pair
FEW_HASHES = 500  # with more distinct hashes in such a group, only images with equal hashes are compared
NEAREST = 4  # number of nearest hashes whose images are compared with an image of such a group


@dataclass(frozen=True)
class Thumbs:
    """Thumbnails of a split's images, and their hashes."""

    places: np.ndarray  # int64 [n]: positions of the images in the split
    pixels: np.ndarray  # uint8 [n, 16, 16, 3]
    hashes: np.ndarray  # uint64 [n]

    @staticmethod
    def of(images: Sequence[Any], places: Sequence[int], image_range: ImageRange = "full") -> Thumbs:
        """Thumbnails of the images at ``places``, without those that are unreadable or uniform."""
        chosen = np.asarray(places, np.int64)
        if len(chosen) > MOST:
            chosen = np.sort(np.random.default_rng(0).choice(chosen, MOST, replace=False))
        kept, pixels, hashes = [], [], []
        for place in chosen.tolist():
            try:
                image = open_picture(images[place], image_range=image_range)
            except DataError:
                continue
            small = np.asarray(image.resize((SIDE, SIDE)))
            if small.std() < FLAT:
                continue
            gray = np.asarray(image.convert("L").resize((9, 8)), np.int16)
            kept.append(place)
            pixels.append(small)
            hashes.append(np.packbits(gray[:, 1:] > gray[:, :-1]).view(np.uint64)[0])
        small = np.array(pixels, np.uint8).reshape(len(kept), SIDE, SIDE, 3)
        return Thumbs(np.array(kept, np.int64), small, np.array(hashes, np.uint64))


def near_repeats(thumbs: Mapping[str, Thumbs]) -> dict[tuple[str, str], list[tuple[int, int]]]:
    """Pairs of images that look nearly the same: (split, split) -> pairs of positions, ascending.

    Between two splits, each image of the first occurs at most once, with one similar image of the second.
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
    """Pairs whose hashes differ in at most three of 64 bits; one of four quarters of them is then equal."""
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
    """Similar pairs in a large group: each image is compared with representatives of equal or similar hashes.

    An image becomes a representative if it is similar to none of its own split, up to ``CROWD`` per hash;
    otherwise it takes over the pairs of the first representative that it is similar to.
    """
    values, number = np.unique(hashes[group], return_inverse=True)
    representatives: dict[int, list[int]] = defaultdict(list)  # number of a hash -> images
    represented_by: dict[int, int] = {}
    out = set()
    for i, k in zip(group.tolist(), number.tolist(), strict=True):
        near = np.array([k])
        if len(values) <= FEW_HASHES:
            apart = np.bitwise_count(values ^ values[k])
            near = np.argsort(apart, kind="stable")[:NEAREST]
            near = near[apart[near] <= BITS]
        others = np.array([j for other in near.tolist() for j in representatives[other]], np.int64)
        like = others[_apart(pixels[others], pixels[i]) <= LEVELS].tolist() if len(others) else []
        out |= {(j, i) for j in like}
        own = [j for j in like if owner[j] == owner[i]]
        if own:
            represented_by[i] = own[0]
        elif len(representatives[k]) < CROWD:
            representatives[k].append(i)
    first: dict[int, dict[str, int]] = defaultdict(dict)  # representative -> other split -> similar image
    for i, j in sorted(out):
        if owner[i] != owner[j]:
            first[i].setdefault(str(owner[j]), j)
    for i, by in represented_by.items():
        out |= {(i, j) for j in first[by].values() if i < j}
    return out


def _apart(many: np.ndarray, one: np.ndarray) -> np.ndarray:
    """Mean difference ``[k]`` of thumbnails ``[k, 16, 16, 3]`` to one, in gray levels at equal brightness."""
    a, b = many.astype(np.float32).reshape(len(many), -1), one.astype(np.float32).reshape(-1)
    return np.abs((a - a.mean(1, keepdims=True)) - (b - b.mean())).mean(1)
