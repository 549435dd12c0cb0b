"""Duplicate examples: texts that differ only in case, spaces, punctuation and markup; similar images.

If a copy of a test example is in training, the score is too high. So all copies are put into the same split.
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
from glassformer.data.image import ImageRange, open_image, unwrap_record
from glassformer.data.text import clean_text
from glassformer.data.text_pairs import JOINT, TextPair
from glassformer.errors import DataError


def comparison_key(text: str) -> str:
    """A key for comparing texts: without case, spaces, punctuation and markup (the last two are kept if the
    text has nothing else).

    The key of a pair does not depend on the order of its texts.
    """
    if isinstance(text, TextPair):
        return JOINT.join(sorted(map(comparison_key, text.sides)))
    letters = clean_text(text, "words").casefold().replace(" ", "")
    return letters or case_insensitive_key(text)


def case_insensitive_key(text: str) -> str:
    """A stricter key for comparing texts: without case and spaces, in NFC; pairs keep their order."""
    if isinstance(text, TextPair):
        return JOINT.join(map(case_insensitive_key, text.sides))
    return "".join(unicodedata.normalize("NFC", text).casefold().split())


def digest(image: Any) -> str:
    """SHA-256 of an image's file, or of its pixels; empty if it is missing."""
    image = unwrap_record(image)
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


def content_lines(split: Any) -> Iterator[bytes]:
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
    """SHA-256 of ``content_lines``; it depends on the order of the examples."""
    out = hashlib.sha256()
    for line in content_lines(split):
        out.update(line)
    return out.hexdigest()


def copy_keys(split: Any, sides: bool = False) -> list[str]:
    """One key per example; copies (with ``sides`` also pairs that share a text) have the same key."""
    if sides:
        return keys_by_shared_text(split.texts)
    if hasattr(split, "images"):
        return list(map(digest, split.images))
    if hasattr(split, "source"):  # pairs: all translations of a source text stay together
        return list(map(comparison_key, split.source))
    return list(map(comparison_key, split.texts))


def keys_by_shared_text(pairs: Sequence[str]) -> list[str]:
    """One key per pair: pairs that share a text, directly or through other pairs, have the same key."""
    leader: dict[str, str] = {}

    def root(key: str) -> str:
        while leader.setdefault(key, key) != key:
            leader[key] = key = leader[leader[key]]
        return key

    sides = [
        list(map(comparison_key, pair.sides if isinstance(pair, TextPair) else (pair,))) for pair in pairs
    ]
    for first, *other_sides in sides:
        for other in other_sides:
            leader[root(other)] = root(first)
    return [root(first) for first, *_ in sides]


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
class Thumbnails:
    """Thumbnails of a split's images, and their hashes."""

    places: np.ndarray  # int64 [n]: positions of the images in the split
    pixels: np.ndarray  # uint8 [n, 16, 16, 3]
    hashes: np.ndarray  # uint64 [n]

    @staticmethod
    def of(images: Sequence[Any], places: Sequence[int], image_range: ImageRange = "full") -> Thumbnails:
        """Thumbnails of the images at ``places``, without unreadable and uniform images."""
        selected = np.asarray(places, np.int64)
        if len(selected) > MOST:
            selected = np.sort(np.random.default_rng(0).choice(selected, MOST, replace=False))
        usable, pixels, hashes = [], [], []
        for place in selected.tolist():
            try:
                image = open_image(images[place], image_range=image_range)
            except DataError:
                continue
            thumbnail = np.asarray(image.resize((SIDE, SIDE)))
            if thumbnail.std() < FLAT:
                continue
            gray = np.asarray(image.convert("L").resize((9, 8)), np.int16)
            usable.append(place)
            pixels.append(thumbnail)
            hashes.append(np.packbits(gray[:, 1:] > gray[:, :-1]).view(np.uint64)[0])
        thumbnail = np.array(pixels, np.uint8).reshape(len(usable), SIDE, SIDE, 3)
        return Thumbnails(np.array(usable, np.int64), thumbnail, np.array(hashes, np.uint64))


def near_duplicates(thumbs: Mapping[str, Thumbnails]) -> dict[tuple[str, str], list[tuple[int, int]]]:
    """Pairs of images that look nearly the same: (split, split) -> pairs of positions, ascending.

    For two splits, an image of the first is in at most one pair, with one similar image of the second.
    """
    split_of = [name for name, table in thumbs.items() for _ in range(len(table.places))]
    if not split_of:
        return {}
    columns = ((table.places, table.pixels, table.hashes) for table in thumbs.values())
    place, pixels, hashes = map(np.concatenate, zip(*columns, strict=True))
    similar: dict[tuple[str, str], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i, j in sorted(_candidates(hashes, np.array(split_of), pixels)):
        if _gap(pixels[i][None], pixels[j])[0] <= LEVELS:
            similar[split_of[i], split_of[j]][int(place[i])].append(int(place[j]))
    out = {}
    for (a, b), pairs in similar.items():
        out[a, b] = [(i, j) for i, partners in pairs.items() for j in (partners if a == b else partners[:1])]
    return out


def _candidates(hashes: np.ndarray, split_of: np.ndarray, pixels: np.ndarray) -> set[tuple[int, int]]:
    """Pairs whose hashes differ in at most three of 64 bits; then one of the four quarters is equal."""
    pairs: set[tuple[int, int]] = set()
    for quarter in range(4):
        keys = (hashes >> np.uint64(16 * quarter)) & np.uint64(0xFFFF)
        order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.diff(keys[order], prepend=keys[order[:1]] + np.uint64(1)))
        for group in np.split(order, starts[1:]):
            if len(group) > CROWD:
                pairs |= _in_crowd(np.sort(group), hashes, split_of, pixels)
            if not 1 < len(group) <= CROWD:
                continue
            group = np.sort(group)
            distance = np.bitwise_count(hashes[group][:, None] ^ hashes[group][None])
            rows, columns = np.nonzero(np.triu(distance <= BITS, 1))
            pairs |= set(zip(group[rows].tolist(), group[columns].tolist(), strict=True))
    return pairs


def _in_crowd(
    group: np.ndarray, hashes: np.ndarray, split_of: np.ndarray, pixels: np.ndarray
) -> set[tuple[int, int]]:
    """Similar pairs in a large group: each image is compared with representatives of equal or similar hashes.

    An image becomes a representative if it is similar to none of its split, up to ``CROWD`` per hash;
    otherwise it takes over the pairs of the first representative that it is similar to.
    """
    values, number = np.unique(hashes[group], return_inverse=True)
    representatives: dict[int, list[int]] = defaultdict(list)  # number of a hash -> images
    represented_by: dict[int, int] = {}
    pairs = set()
    for i, k in zip(group.tolist(), number.tolist(), strict=True):
        near = np.array([k])
        if len(values) <= FEW_HASHES:
            distance = np.bitwise_count(values ^ values[k])
            near = np.argsort(distance, kind="stable")[:NEAREST]
            near = near[distance[near] <= BITS]
        candidates = np.array([j for other in near.tolist() for j in representatives[other]], np.int64)
        like = candidates[_gap(pixels[candidates], pixels[i]) <= LEVELS].tolist() if len(candidates) else []
        pairs |= {(j, i) for j in like}
        same_split = [j for j in like if split_of[j] == split_of[i]]
        if same_split:
            represented_by[i] = same_split[0]
        elif len(representatives[k]) < CROWD:
            representatives[k].append(i)
    partner: dict[int, dict[str, int]] = defaultdict(dict)  # representative -> other split -> similar image
    for i, j in sorted(pairs):
        if split_of[i] != split_of[j]:
            partner[i].setdefault(str(split_of[j]), j)
    for i, representative in represented_by.items():
        pairs |= {(i, j) for j in partner[representative].values() if i < j}
    return pairs


def _gap(many: np.ndarray, one: np.ndarray) -> np.ndarray:
    """Mean difference ``[k]`` of thumbnails from one thumbnail, in gray levels at equal brightness."""
    a, b = many.astype(np.float32).reshape(len(many), -1), one.astype(np.float32).reshape(-1)
    return np.abs((a - a.mean(1, keepdims=True)) - (b - b.mean())).mean(1)
