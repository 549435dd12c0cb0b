"""Attention maps and scores for HTML pages.

The units of a view are words and special tokens, or the patches of an image. In attention maps, the rows of a
word's tokens are averaged and their columns summed, so rows still sum to 1. Maps are encoded as bytes.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from glassformer.data.vocabulary import CLS, wordpiece_word_ids
from glassformer.explain.attention import rollout
from glassformer.explain.result import Result, word_spans

LEVELS = 10  # number of shades, without zero
MAX_PAIRS = 2_000_000  # maximum length of the encoded maps of an input, in characters
THIN_SPACE = "\u202f"


@dataclass(frozen=True)
class Piece:
    """One unit of a text: the preceding text, its own text, and its shade in the first view."""

    before: str
    text: str
    shade: str  # "h1" to "h10": positive, "n1" to "n10": negative, "h0": zero
    special: bool = False


@dataclass(frozen=True)
class Patch:
    """One patch of an image, in pixels."""

    x: float
    y: float
    width: float
    height: float
    shade: str


@dataclass(frozen=True)
class View:
    """One input as it is first displayed, and the data from which the script computes other displays."""

    label: str
    predicted: str
    probability: float
    pieces: list[Piece]
    unread: str  # the end of the text, which was truncated
    caption: str  # summary of the displayed numbers
    data: dict[str, Any]  # for the script; contains no user text
    patches: list[Patch] = field(default_factory=list)
    picture: str = ""  # data URL
    size: tuple[int, int] = (0, 0)  # width and height of the image


@dataclass(frozen=True)
class Numbers:
    """Attention and scores of one input of T tokens; for an image, [CLS] and registers, then the patches.

    Args:
        rows: ``[L, H, T]`` attention from the pooled positions in each layer and head; L = 0: unknown.
        rollout_row: ``[T]`` rollout from the pooled positions; None: computed from ``flow`` and ``reads``.
        flow: ``[T, T]`` rollout from every position.
        reads: ``[T]`` share of each position in the pooled vector.
        maps: ``[L, H, T, T]`` all attention weights.
        scores: ``[T]`` scores that are displayed first; None: the rollout, or the last layer.
        signed: whether scores may be negative.
        method: the attribution method of the scores.
        max_pairs: maximum length of the encoded maps in characters. Longer maps are averaged over heads or
            omitted.
    """

    rows: np.ndarray
    rollout_row: np.ndarray | None = None
    flow: np.ndarray | None = None
    reads: np.ndarray | None = None
    maps: np.ndarray | None = None
    scores: np.ndarray | None = None
    signed: bool = False
    method: str = ""
    max_pairs: int = MAX_PAIRS

    def pooled_rollout(self) -> np.ndarray | None:
        """Rollout from the pooled positions ``[T]``; None: unknown."""
        if self.rollout_row is None and self.flow is not None and self.reads is not None:
            return self.reads @ self.flow
        return self.rollout_row

    def check(self, tokens: int) -> None:
        """Raise ValueError if the shapes do not match the number of tokens."""
        if self.maps is not None and self.maps.shape != (*self.rows.shape[:2], tokens, tokens):
            raise ValueError(f"{tokens} tokens, maps {self.maps.shape}")
        row = self.pooled_rollout()
        if row is not None and row.shape != (tokens,):
            raise ValueError(f"{tokens} tokens, rollout {row.shape}")


@dataclass(frozen=True)
class Prediction:
    """The prediction for an input, and its true label if known."""

    predicted: str = ""
    probability: float = 0.0
    label: str = ""


def view_of(explanation: Result, *, max_pairs: int = MAX_PAIRS) -> View:
    """The view of an explanation: its scores first, then its attention maps, if any."""
    e = explanation
    maps, reads = e.maps, e.reads
    rows, flow = np.zeros((0, 0, e.scores.size)), None
    if maps is not None:
        reads = np.eye(maps.shape[-1])[0] if reads is None else reads
        rows, flow = np.einsum("t,lhts->lhs", reads, maps), rollout(maps)
    numbers = Numbers(
        rows,
        flow=flow,
        reads=reads,
        maps=maps,
        scores=e.scores,
        signed=e.target is not None,
        method=e.method,
        max_pairs=max_pairs,
    )
    prediction = Prediction(str(e.label), e.probability)
    if e.image is None:
        return text_view(e.text, e.tokens, e.offsets, numbers, prediction, e.numbers)
    num_special = 0 if maps is None else maps.shape[-1] - e.scores.size  # [CLS] and register tokens
    numbers = replace(numbers, scores=np.concatenate([np.zeros(num_special), e.scores.ravel()]))
    height, width = e.image.shape[:2]
    grid = (e.scores.shape[0], e.scores.shape[1])
    return image_view(image_data_url(e.image), (width, height), grid, numbers, prediction)


def text_view(
    text: str,
    tokens: Sequence[str],
    offsets: Sequence[Sequence[int]],
    numbers: Numbers,
    prediction: Prediction,
    words: np.ndarray | None = None,
) -> View:
    """The view of one text.

    Args:
        words: ``[T]`` the word of each token, -1 for special tokens; None: inferred from tokens and offsets.
    """
    t = len(tokens)
    if numbers.rows.ndim != 3 or numbers.rows.shape[2] != t or len(offsets) != t:
        raise ValueError(f"{t} tokens, {len(offsets)} offsets, rows {numbers.rows.shape}")
    numbers.check(t)
    for start, end in offsets:
        if not 0 <= start <= end <= len(text):
            raise ValueError(f"offset {start}..{end} in a text of {len(text)} characters")
    words = wordpiece_word_ids(tokens, offsets) if words is None else words
    if len(words) != t:
        raise ValueError(f"{len(words)} words for {t} tokens")
    spans = word_spans(words, offsets)
    unit = _units(words)
    special = {int(unit[i]): str(tokens[i]) for i in np.flatnonzero(words < 0).tolist()}
    data, displayed = _script_data(unit, numbers)
    data["special"], data["parts"] = sorted(special), "words"
    shades = _shades(displayed)
    text = inert(text)
    pieces, end = [], 0
    for u in range(int(unit.max()) + 1):
        if u in special:
            pieces.append(Piece(" " if pieces else "", inert(special[u]), shades[u], True))
            continue
        start, stop = spans[int(words[np.flatnonzero(unit == u)[0]])]
        before = text[end:start] or (" " if pieces and pieces[-1].special else "")
        pieces.append(Piece(before, text[start:stop], shades[u]))
        end = stop
    caption = _caption(displayed, special, data["scores"])
    p, unread = prediction, text[end:].strip()
    return View(p.label, p.predicted, p.probability, pieces, unread, caption, data)


def image_view(
    url: str,
    size: tuple[int, int],
    grid: tuple[int, int],
    numbers: Numbers,
    prediction: Prediction,
) -> View:
    """The view of one image.

    Args:
        url: ``data:`` URL of the image.
        size: width and height of the drawn image.
        grid: rows and columns of patches.
    """
    gh, gw = grid
    t, (width, height) = numbers.rows.shape[-1], size
    num_special = t - gh * gw
    if numbers.rows.ndim != 3 or min(gh, gw, width, height) < 1 or not 0 <= num_special < t:
        raise ValueError(f"{gh} by {gw} patches on {width} by {height}, rows {numbers.rows.shape}")
    numbers.check(t)
    data, displayed = _script_data(np.arange(t), numbers)
    special = {i: CLS if i == 0 else f"[{i}]" for i in range(num_special)}
    data["special"], data["parts"] = sorted(special), "patches"
    shades = _shades(displayed)
    h, w = height / gh, width / gw
    patches = [
        Patch(j * w, i * h, w, h, shades[num_special + i * gw + j]) for i in range(gh) for j in range(gw)
    ]
    pieces = [Piece("", name, shades[i], True) for i, name in special.items()]
    caption = _caption(displayed, special, data["scores"], "patches")
    p = prediction
    return View(p.label, p.predicted, p.probability, pieces, "", caption, data, patches, url, size)


def image_data_url(image: np.ndarray) -> str:
    """Pixels ``[height, width, 3]`` uint8 as a ``data:`` URL."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _script_data(unit: np.ndarray, numbers: Numbers) -> tuple[dict[str, Any], np.ndarray]:
    """The data for the script, and the values that are displayed first ``[U]``."""
    rows, flow, maps, row = numbers.rows, numbers.flow, numbers.maps, numbers.pooled_rollout()
    count = int(unit.max()) + 1
    layers, heads = rows.shape[:2]
    unit_rows = _sum_columns(rows, unit, count)  # [L, H, U]
    unit_rollout = None if row is None else _sum_columns(row, unit, count)
    pairs, num_heads = np.zeros(0), 0
    for num_heads in (heads, 1, 0):  # all heads, their mean, or nothing
        if maps is None or layers * num_heads * count * count * 4 / 3 > numbers.max_pairs:
            continue
        pairs = _pairs(maps if num_heads == heads else maps.mean(1, keepdims=True), unit, count)
        break
    scores = None
    if numbers.scores is not None:
        displayed = scores = _sum_columns(np.asarray(numbers.scores, np.float64), unit, count)
    elif unit_rollout is not None:
        displayed = unit_rollout
    else:
        displayed = unit_rows[-1].mean(0) if layers and heads else np.zeros(count)
    data = {
        "shape": [layers, heads, count],
        "rows": _encode(unit_rows),
        "rollout": _encode(np.zeros(0) if unit_rollout is None else unit_rollout),
        "flow": _encode(np.zeros(0) if flow is None else _pairs(flow, unit, count)),
        "pairs": _encode(pairs),
        "pairHeads": num_heads if pairs.size else 0,
        "scores": None if scores is None else [float(f"{value:.5g}") for value in scores],
        "method": numbers.method.replace("_", " "),
        "signed": numbers.signed,
    }
    return data, displayed


def _units(words: np.ndarray) -> np.ndarray:
    """The unit of each token ``[T]``: a word or a special token."""
    unit = np.zeros(len(words), int)
    for i in range(1, len(words)):
        unit[i] = unit[i - 1] + (words[i] < 0 or words[i] != words[i - 1])
    return unit


def _sum_columns(values: np.ndarray, unit: np.ndarray, count: int) -> np.ndarray:
    """Sums over the tokens of each unit: ``[..., T]`` -> ``[..., U]``."""
    out = np.zeros((*values.shape[:-1], count))
    for t, u in enumerate(unit):
        out[..., u] += values[..., t]
    return out


def _pairs(maps: np.ndarray, unit: np.ndarray, count: int) -> np.ndarray:
    """Rows averaged and columns summed over the tokens of each unit: ``[..., T, T]`` -> ``[..., U, U]``."""
    columns = np.swapaxes(_sum_columns(maps, unit, count), -1, -2)  # [..., U, T]
    sums = _sum_columns(columns, unit, count)  # [..., U, U], transposed
    return np.swapaxes(sums / np.bincount(unit, minlength=count), -1, -2)


def _shades(values: np.ndarray) -> list[str]:
    largest = max(float(np.abs(values).max(initial=0.0)), 1e-12)
    levels = np.rint(LEVELS * np.abs(values) / largest).astype(int)
    return [f"{'h' if value >= 0 else 'n'}{level}" for value, level in zip(values, levels, strict=True)]


def _caption(
    values: np.ndarray, special: dict[int, str], scores: list[float] | None, parts: str = "words"
) -> str:
    """The shares of special tokens and of all other units, or the range of the scores.

    The script writes the same captions.
    """
    if scores is not None:
        low, high, total = map(_format_number, (min(scores), max(scores), sum(scores)))
        return f"scores from {low} to {high}, {total} in all"
    shares = [f"{inert(name)} {100 * values[u]:.0f}{THIN_SPACE}%" for u, name in special.items()]
    others = sum(v for u, v in enumerate(values) if u not in special)
    return " \u00b7 ".join([*shares, f"{parts} {100 * others:.0f}{THIN_SPACE}%"])


def certainty(share: float) -> str:
    """A probability in percent; only 1 is shown as 100."""
    return "99.9" if 0.9995 <= share < 1 else f"{100 * share:.1f}"


def _format_number(value: float) -> str:
    """A number with three digits, formatted like in the script."""
    return np.format_float_positional(float(f"{value:.3g}"), trim="-").replace("-", "\u2212")


def inert(text: str) -> str:
    """The text with control characters and bidirectional formatting replaced; the length stays the same."""
    bidirectional = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x7F}
    return "".join(
        "\ufffd"
        if (ord(c) < 32 and c not in "\n\t\r") or ord(c) in bidirectional or 0xD800 <= ord(c) < 0xE000
        else c
        for c in text
    )


def short_names(names: Sequence[str], longest: int) -> list[str]:
    """Names shortened in the middle to at most ``longest`` letters, or more if two names would be equal."""
    names = [inert(str(name)) for name in names]
    for size in range(longest, max(map(len, names), default=0)):
        end = (size - 1) // 2
        shortened = [n if len(n) <= size else f"{n[: size - 1 - end]}…{n[len(n) - end :]}" for n in names]
        if len(set(shortened)) == len(set(names)):
            return shortened
    return names


def _encode(shares: np.ndarray) -> str:
    """Shares in [0, 1] as base64, one byte each; the square root preserves small values."""
    roots = np.sqrt(np.clip(np.nan_to_num(shares), 0, 1))
    return base64.b64encode(np.rint(255 * roots).astype(np.uint8).tobytes()).decode()
