"""Detection of duplicate texts and images.

Copies of a text may differ in case, spaces, punctuation and markup. If a copy of a test example is in the
training split, the score is too high. So all copies are put into the same split.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.checks import is_missing
from glassformer.data.dataset import Split
from glassformer.data.image import ImageRange, open_image, unwrap_record
from glassformer.data.text import clean_text
from glassformer.data.text_pairs import SEPARATOR, TextPair
from glassformer.errors import DataError


def comparison_key(text: str) -> str:
    """A key for comparing texts, without case, spaces, punctuation and markup.

    Punctuation and markup stay if the text has nothing else. The key of a pair does not depend on the order
    of its texts.
    """
    if isinstance(text, TextPair):
        return SEPARATOR.join(sorted(map(comparison_key, text.sides)))
    letters = clean_text(text, "words").casefold().replace(" ", "")
    return letters or case_insensitive_key(text)


def case_insensitive_key(text: str) -> str:
    """A stricter key for comparing texts, without case and spaces, in NFC; pairs keep their order."""
    if isinstance(text, TextPair):
        return SEPARATOR.join(map(case_insensitive_key, text.sides))
    return "".join(unicodedata.normalize("NFC", text).casefold().split())


def image_digest(image: Any) -> str:
    """SHA-256 of an image's file, or of its pixels if it has no file; empty if the image is missing."""
    image = unwrap_record(image)
    if is_missing(image) or (isinstance(image, bytes) and not image):
        return ""
    if isinstance(image, str | os.PathLike):
        try:
            image = Path(image).expanduser().read_bytes()
        except OSError:
            image = os.fsencode(image)
    if not isinstance(image, bytes | bytearray | memoryview):
        if getattr(image, "mode", None) in ("P", "PA"):  # the values of the image are indices into a palette
            image = image.convert("RGBA")
        array = np.ascontiguousarray(np.asarray(image))
        image = str(array.shape).encode() + array.tobytes()
    return hashlib.sha256(image).hexdigest()


def content_lines(split: Any) -> Iterator[bytes]:
    """The content of a split, line by line: the examples (images as digests), then the targets.

    Args:
        split: a ``Split``, or a list of texts.
    """
    columns = [split]
    if isinstance(split, Split):
        names = [f.name for f in fields(split)]  # type: ignore[arg-type]  # splits are dataclasses
        columns = [getattr(split, name) for name in names if name not in ("origin", "rows", "ids")]
    if hasattr(split, "images"):
        columns[0] = list(map(image_digest, columns[0]))
    for values in columns:
        for value in [None] if values is None else values:
            yield f"{value!r}\n".encode("utf-8", "surrogatepass")


def content_digest(split: Any) -> str:
    """SHA-256 of ``content_lines``; the order of the examples matters."""
    out = hashlib.sha256()
    for line in content_lines(split):
        out.update(line)
    return out.hexdigest()


def copy_keys(split: Any, linked: bool = False) -> list[str]:
    """One key per example; copies have the same key, if ``linked`` also pairs that share a text."""
    if linked:
        return keys_by_shared_text(split.texts)
    if hasattr(split, "images"):
        return list(map(image_digest, split.images))
    if hasattr(split, "source"):  # translation pairs: all translations of a source text stay together
        return list(map(comparison_key, split.source))
    return list(map(comparison_key, split.texts))


def keys_by_shared_text(pairs: Sequence[str]) -> list[str]:
    """One key per pair: pairs that share a text, directly or through other pairs, have the same key."""
    from scipy.cluster.hierarchy import DisjointSet

    keys = [[comparison_key(text) for text in getattr(pair, "sides", (pair,))] for pair in pairs]
    texts = DisjointSet(text for texts_of_pair in keys for text in texts_of_pair)
    for texts_of_pair in keys:
        texts.merge(texts_of_pair[0], texts_of_pair[-1])
    return [texts[first] for first, *_ in keys]


def group_by(items: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    """Key -> the items with this key, in the order of the first items."""
    groups: dict[Any, list[Any]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)


def conflicts(examples: Iterable[tuple[Any, Any]]) -> dict[Any, set[Any]]:
    """Key -> its different targets, for the keys that occur with several targets."""
    targets: dict[Any, set[Any]] = defaultdict(set)
    for key, target in examples:
        targets[key].add(target)
    return {key: distinct for key, distinct in targets.items() if len(distinct) > 1}


def positions_by_key(keys: Sequence[Any]) -> dict[Any, list[int]]:
    """Key -> the positions at which it occurs, ascending."""
    return group_by(range(len(keys)), keys.__getitem__)


def first_occurrences(keys: Sequence[Any]) -> list[int]:
    """The index of the first occurrence of each key, ascending."""
    return [first for first, *_ in positions_by_key(keys).values()]


# --- images that look nearly the same -----------------------------------------------------------
# A difference hash proposes pairs, and thumbnails confirm them (Krawetz, "Kind of Like That", 2013). Each of
# the 64 bits of the hash says whether the image gets brighter to the right at one of 8 x 8 positions. Images
# whose hashes differ in at most three bits are compared as thumbnails of 16 x 16 pixels.

THUMBNAIL_SIZE = 16  # width and height of a thumbnail in pixels
MAX_IMAGES = 30_000  # maximum number of images per split; of more images, a sample is drawn with seed 0
MAX_BITS = 3  # maximum number of bits in which two hashes may differ
MAX_DIFFERENCE = 6.0  # maximum mean difference of two thumbnails in gray levels (0 to 255)
MIN_CONTRAST = 3.0  # minimum standard deviation of a thumbnail in gray levels (0 to 255)
LARGE_GROUP = 200  # if more images share a quarter of their hash, not all pairs are compared
MAX_HASHES = 500  # with more distinct hashes in a large group, only images with equal hashes are compared
NUM_NEAREST = 4  # in a large group, an image is compared with the images of this many nearest hashes


@dataclass(frozen=True)
class Thumbnails:
    """Thumbnails of a split's images, and their hashes."""

    positions: np.ndarray  # int64 [n]: positions of the images in the split
    pixels: np.ndarray  # uint8 [n, 16, 16, 3]
    hashes: np.ndarray  # uint64 [n]

    @staticmethod
    def of(images: Sequence[Any], positions: Sequence[int], image_range: ImageRange = "full") -> Thumbnails:
        """Thumbnails of the images at ``positions``, without unreadable and uniform images."""
        selected = np.asarray(positions, np.int64)
        if len(selected) > MAX_IMAGES:
            selected = np.sort(np.random.default_rng(0).choice(selected, MAX_IMAGES, replace=False))
        usable, pixels, hashes = [], [], []
        for position in selected.tolist():
            try:
                image = open_image(images[position], image_range=image_range)
            except DataError:
                continue
            thumbnail = np.asarray(image.resize((THUMBNAIL_SIZE, THUMBNAIL_SIZE)))
            if thumbnail.std() < MIN_CONTRAST:
                continue
            gray = np.asarray(image.convert("L").resize((9, 8)), np.int16)
            usable.append(position)
            pixels.append(thumbnail)
            hashes.append(np.packbits(gray[:, 1:] > gray[:, :-1]).view(np.uint64)[0])
        thumbnails = np.array(pixels, np.uint8).reshape(len(usable), THUMBNAIL_SIZE, THUMBNAIL_SIZE, 3)
        return Thumbnails(np.array(usable, np.int64), thumbnails, np.array(hashes, np.uint64))


def near_duplicates(thumbnails: Mapping[str, Thumbnails]) -> dict[tuple[str, str], list[tuple[int, int]]]:
    """Pairs of images that look nearly the same: (split, split) -> pairs of positions, ascending.

    For two splits, an image of the first split is in at most one pair.
    """
    split_of = [name for name, table in thumbnails.items() for _ in range(len(table.positions))]
    if not split_of:
        return {}
    columns = ((table.positions, table.pixels, table.hashes) for table in thumbnails.values())
    positions, pixels, hashes = map(np.concatenate, zip(*columns, strict=True))
    similar: dict[tuple[str, str], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i, j in sorted(_candidate_pairs(hashes, np.array(split_of), pixels)):
        if _mean_difference(pixels[i][None], pixels[j])[0] <= MAX_DIFFERENCE:
            similar[split_of[i], split_of[j]][int(positions[i])].append(int(positions[j]))
    return {
        (a, b): [(i, j) for i, partners in pairs.items() for j in (partners if a == b else partners[:1])]
        for (a, b), pairs in similar.items()
    }


def _candidate_pairs(hashes: np.ndarray, split_of: np.ndarray, pixels: np.ndarray) -> set[tuple[int, int]]:
    """Pairs whose hashes differ in at most three of 64 bits.

    Three bits leave at least one of the four quarters unchanged, so only images that share a quarter are
    compared.
    """
    pairs: set[tuple[int, int]] = set()
    for quarter in range(4):
        keys = (hashes >> np.uint64(16 * quarter)) & np.uint64(0xFFFF)
        order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.diff(keys[order], prepend=keys[order[:1]] + np.uint64(1)))
        for group in np.split(order, starts[1:]):
            if len(group) > LARGE_GROUP:
                pairs |= _similar_in_large_group(np.sort(group), hashes, split_of, pixels)
            if not 1 < len(group) <= LARGE_GROUP:
                continue
            group = np.sort(group)
            distance = np.bitwise_count(hashes[group][:, None] ^ hashes[group][None])
            rows, columns = np.nonzero(np.triu(distance <= MAX_BITS, 1))
            pairs |= set(zip(group[rows].tolist(), group[columns].tolist(), strict=True))
    return pairs


def _similar_in_large_group(
    group: np.ndarray, hashes: np.ndarray, split_of: np.ndarray, pixels: np.ndarray
) -> set[tuple[int, int]]:
    """Similar pairs in a large group, found by comparing each image only with representatives.

    An image becomes a representative if it is not similar to a representative of its split, up to
    ``LARGE_GROUP`` per hash. Otherwise it takes over the pairs of the first similar representative.
    """
    values, hash_numbers = np.unique(hashes[group], return_inverse=True)
    representatives: dict[int, list[int]] = defaultdict(list)  # number of a hash -> images
    represented_by: dict[int, int] = {}
    pairs = set()
    for i, k in zip(group.tolist(), hash_numbers.tolist(), strict=True):
        near = np.array([k])
        if len(values) <= MAX_HASHES:
            distance = np.bitwise_count(values ^ values[k])
            near = np.argsort(distance, kind="stable")[:NUM_NEAREST]
            near = near[distance[near] <= MAX_BITS]
        candidates = np.array([j for other in near.tolist() for j in representatives[other]], np.int64)
        similar = []
        if len(candidates):
            differences = _mean_difference(pixels[candidates], pixels[i])
            similar = candidates[differences <= MAX_DIFFERENCE].tolist()
        pairs |= {(j, i) for j in similar}
        same_split = [j for j in similar if split_of[j] == split_of[i]]
        if same_split:
            represented_by[i] = same_split[0]
        elif len(representatives[k]) < LARGE_GROUP:
            representatives[k].append(i)
    partner: dict[int, dict[str, int]] = defaultdict(dict)  # representative -> other split -> similar image
    for i, j in sorted(pairs):
        if split_of[i] != split_of[j]:
            partner[i].setdefault(str(split_of[j]), j)
    for i, representative in represented_by.items():
        pairs |= {(i, j) for j in partner[representative].values() if i < j}
    return pairs


def _mean_difference(many: np.ndarray, one: np.ndarray) -> np.ndarray:
    """Mean absolute difference ``[k]`` of k thumbnails from ``one``, after subtracting their means."""
    a, b = many.astype(np.float32).reshape(len(many), -1), one.astype(np.float32).reshape(-1)
    return np.abs((a - a.mean(1, keepdims=True)) - (b - b.mean())).mean(1)
