"""Attention maps prepared for a page: by word instead of token, as bytes instead of floats.

The units of a view are words and special tokens, or the patches of an image. Rows of the tokens of a word are
averaged and columns added, so that rows still sum to 1.
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

LEVELS = 10  # number of shades
MAX_PAIRS = 2_000_000  # maximum number of characters of encoded maps per input
THIN = "\u202f"


@dataclass(frozen=True)
class Piece:
    """One unit of a text: the preceding text, its own text, and its shade in the first view."""

    before: str
    text: str
    shade: str  # "h1" ... "h10" speaks for, "n1" ... "n10" against, "h0" neither
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
    """One input with the first view, and the data of further views for the script."""

    label: str
    predicted: str
    probability: float
    pieces: list[Piece]
    unread: str  # truncated text
    caption: str  # description of the first view in numbers
    data: dict[str, Any]  # for the script; contains no user text
    patches: list[Patch] = field(default_factory=list)
    picture: str = ""  # data URL
    size: tuple[int, int] = (0, 0)  # width and height of the image


@dataclass(frozen=True)
class Numbers:
    """Attention and scores of one input of T tokens; for an image, [CLS] and registers, then the patches.

    Args:
        rows: ``[L, H, T]`` attention from the pooled positions in each layer and head; L = 0: unknown.
        rollout_row: ``[T]`` rollout from the pooled positions; None: from ``flow`` and ``reads``, if given.
        flow: ``[T, T]`` rollout of every row.
        reads: ``[T]`` share of each row in the pooled vector.
        maps: ``[L, H, T, T]`` all attention weights.
        scores: ``[T]`` scores of a method, shown first; None: the rollout, or the last layer.
        signed: whether scores may be negative.
        method: method of the scores.
        max_pairs: maximum number of characters of encoded maps; larger maps are averaged over heads or
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

    def through(self) -> np.ndarray | None:
        """Rollout from the pooled positions ``[T]``; None: unknown."""
        if self.rollout_row is None and self.flow is not None and self.reads is not None:
            return self.reads @ self.flow
        return self.rollout_row

    def check(self, tokens: int) -> None:
        """Raises ValueError if the shapes do not match the number of tokens."""
        if self.maps is not None and self.maps.shape != (*self.rows.shape[:2], tokens, tokens):
            raise ValueError(f"{tokens} tokens, maps {self.maps.shape}")
        row = self.through()
        if row is not None and row.shape != (tokens,):
            raise ValueError(f"{tokens} tokens, rollout {row.shape}")


@dataclass(frozen=True)
class Answer:
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
    known = Numbers(
        rows,
        flow=flow,
        reads=reads,
        maps=maps,
        scores=e.scores,
        signed=e.target is not None,
        method=e.method,
        max_pairs=max_pairs,
    )
    answer = Answer(str(e.label), e.probability)
    if e.image is None:
        return text_view(e.text, e.tokens, e.offsets, known, answer, e.numbers)
    others = (e.scores.size if maps is None else maps.shape[-1]) - e.scores.size  # [CLS] and the like
    known = replace(known, scores=np.concatenate([np.zeros(others), e.scores.ravel()]))
    height, width = e.image.shape[:2]
    grid = (e.scores.shape[0], e.scores.shape[1])
    return picture_view(picture_url(e.image), (width, height), grid, known, answer)


def text_view(
    text: str,
    tokens: Sequence[str],
    offsets: Sequence[Sequence[int]],
    known: Numbers,
    answer: Answer,
    words: np.ndarray | None = None,
) -> View:
    """The view of one text.

    Args:
        words: ``[T]`` the word of each token, -1 for special ones; None: as the tokens' names and places say.

    Raises:
        ValueError: shapes that do not fit each other.
    """
    t = len(tokens)
    if known.rows.ndim != 3 or known.rows.shape[2] != t or len(offsets) != t:
        raise ValueError(f"{t} tokens, {len(offsets)} offsets, rows {known.rows.shape}")
    known.check(t)
    for start, end in offsets:
        if not 0 <= start <= end <= len(text):
            raise ValueError(f"offset {start}..{end} in a text of {len(text)} characters")
    words = wordpiece_word_ids(tokens, offsets) if words is None else words
    if len(words) != t:
        raise ValueError(f"{len(words)} words for {t} tokens")
    spans = word_spans(words, offsets)
    unit = _units(words)
    special = {int(unit[i]): str(tokens[i]) for i in np.flatnonzero(words < 0).tolist()}
    data, first = _data(unit, known)
    data["special"], data["parts"] = sorted(special), "words"
    shades = _shades(first)
    text = inert(text)
    pieces, end = [], 0
    for u in range(int(unit.max()) + 1):
        if u in special:
            pieces.append(Piece(" " if pieces else "", inert(special[u]), shades[u], True))
            continue
        start, stop = spans[int(words[np.flatnonzero(unit == u)[0]])]
        pieces.append(
            Piece(
                text[end:start] or (" " if pieces and pieces[-1].special else ""), text[start:stop], shades[u]
            )
        )
        end = stop
    caption = _caption(first, special, data["scores"])
    return View(answer.label, answer.predicted, answer.probability, pieces, text[end:].strip(), caption, data)


def picture_view(
    url: str,
    size: tuple[int, int],
    grid: tuple[int, int],
    known: Numbers,
    answer: Answer,
) -> View:
    """The view of one image.

    Args:
        url: the image, as ``data:``.
        size: width and height that the image is drawn in.
        grid: rows and columns of patches.

    Raises:
        ValueError: shapes that do not fit each other.
    """
    gh, gw = grid
    t, (width, height) = known.rows.shape[-1], size
    fixed = t - gh * gw
    if known.rows.ndim != 3 or min(gh, gw, width, height) < 1 or not 0 <= fixed < t:
        raise ValueError(f"{gh} by {gw} patches on {width} by {height}, rows {known.rows.shape}")
    known.check(t)
    data, first = _data(np.arange(t), known)
    special = {i: CLS if i == 0 else f"[{i}]" for i in range(fixed)}
    data["special"], data["parts"] = sorted(special), "patches"
    shades = _shades(first)
    h, w = height / gh, width / gw
    patches = [Patch(j * w, i * h, w, h, shades[fixed + i * gw + j]) for i in range(gh) for j in range(gw)]
    pieces = [Piece("", name, shades[i], True) for i, name in special.items()]
    caption = _caption(first, special, data["scores"], "patches")
    return View(
        answer.label, answer.predicted, answer.probability, pieces, "", caption, data, patches, url, size
    )


def picture_url(image: np.ndarray) -> str:
    """Pixels ``[height, width, 3]`` uint8 as a ``data:`` URL."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _data(unit: np.ndarray, known: Numbers) -> tuple[dict[str, Any], np.ndarray]:
    """The numbers for the script, and the values of the first view ``[U]``."""
    rows, flow, maps, row = known.rows, known.flow, known.maps, known.through()
    count = int(unit.max()) + 1
    layers, heads = rows.shape[:2]
    joined = _columns(rows, unit, count)  # [L, H, U]
    through = None if row is None else _columns(row, unit, count)
    pairs, kept = np.zeros(0), 0
    for kept in (heads, 1, 0):  # all heads, their mean, or nothing
        if maps is None or layers * kept * count * count * 4 / 3 > known.max_pairs:
            continue
        pairs = _pairs(maps if kept == heads else maps.mean(1, keepdims=True), unit, count)
        break
    first = joined[-1].mean(0) if layers and heads else np.zeros(count)
    if through is not None:
        first = through
    shown = None
    if known.scores is not None:
        shown = first = _columns(np.asarray(known.scores, np.float64), unit, count)
    data = {
        "shape": [layers, heads, count],
        "rows": _encode(joined),
        "rollout": _encode(np.zeros(0) if through is None else through),
        "flow": _encode(np.zeros(0) if flow is None else _pairs(flow, unit, count)),
        "pairs": _encode(pairs),
        "pairHeads": kept if pairs.size else 0,
        "scores": None if shown is None else [float(f"{value:.5g}") for value in shown],
        "method": known.method.replace("_", " "),
        "signed": known.signed,
    }
    return data, first


def _units(words: np.ndarray) -> np.ndarray:
    """The unit of each token ``[T]``: a word or a special token."""
    unit = np.zeros(len(words), int)
    for i in range(1, len(words)):
        unit[i] = unit[i - 1] + (words[i] < 0 or words[i] != words[i - 1])
    return unit


def _columns(values: np.ndarray, unit: np.ndarray, count: int) -> np.ndarray:
    """Sums over the tokens of each unit: ``[..., T]`` -> ``[..., U]``."""
    out = np.zeros((*values.shape[:-1], count))
    for t, u in enumerate(unit):
        out[..., u] += values[..., t]
    return out


def _pairs(maps: np.ndarray, unit: np.ndarray, count: int) -> np.ndarray:
    """Rows averaged and columns summed over the tokens of each unit: ``[..., T, T]`` -> ``[..., U, U]``."""
    rows = _columns(np.swapaxes(_columns(maps, unit, count), -1, -2), unit, count)  # [..., U, U] transposed
    return np.swapaxes(rows / np.bincount(unit, minlength=count), -1, -2)


def _shades(values: np.ndarray) -> list[str]:
    most = max(float(np.abs(values).max(initial=0.0)), 1e-12)
    steps = np.rint(LEVELS * np.abs(values) / most).astype(int)
    return [f"{'h' if v >= 0 else 'n'}{s}" for v, s in zip(values, steps, strict=True)]


def _caption(
    values: np.ndarray, special: dict[int, str], scores: list[float] | None, parts: str = "words"
) -> str:
    """The shares of special tokens and of the rest, or the range of the scores; like the script's caption."""
    if scores is not None:
        low, high, whole = map(_figure, (min(scores), max(scores), sum(scores)))
        return f"scores from {low} to {high}, {whole} in all"
    shares = [f"{inert(name)} {100 * values[u]:.0f}{THIN}%" for u, name in special.items()]
    rest = sum(v for u, v in enumerate(values) if u not in special)
    return " \u00b7 ".join([*shares, f"{parts} {100 * rest:.0f}{THIN}%"])


def certainty(share: float) -> str:
    """A probability in percent; only 1 is shown as 100."""
    return "99.9" if 0.9995 <= share < 1 else f"{100 * share:.1f}"


def _figure(value: float) -> str:
    """A number with three digits, formatted like in the script."""
    return np.format_float_positional(float(f"{value:.3g}"), trim="-").replace("-", "\u2212")


def inert(text: str) -> str:
    """The text of the same length without control characters and bidirectional formatting."""
    bad = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x7F}
    return "".join(
        "\ufffd" if (ord(c) < 32 and c not in "\n\t\r") or ord(c) in bad or 0xD800 <= ord(c) < 0xE000 else c
        for c in text
    )


def short_names(names: Sequence[str], longest: int) -> list[str]:
    """Names shortened in the middle to at most ``longest`` letters; longer ones if two would be equal."""
    names = [inert(str(name)) for name in names]
    for size in range(longest, max(map(len, names), default=0)):
        end = (size - 1) // 2
        short = [n if len(n) <= size else f"{n[: size - 1 - end]}…{n[len(n) - end :]}" for n in names]
        if len(set(short)) == len(set(names)):
            return short
    return names


def _encode(shares: np.ndarray) -> str:
    """Shares in [0, 1] as base64, one byte each; the square root preserves small values."""
    roots = np.sqrt(np.clip(np.nan_to_num(shares), 0, 1))
    return base64.b64encode(np.rint(255 * roots).astype(np.uint8).tobytes()).decode()
