"""Attention maps made ready for the page: words instead of pieces, bytes instead of floats."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.errors import DataError

LEVELS = 10  # shades of the marker; 0 is none
MAX_PAYLOAD = 1_500_000  # characters of encoded maps in one page


@dataclass(frozen=True)
class MapExample:
    """A text cut into words, with what the summary position gives to each."""

    label: str
    predicted: str
    probability: float
    pieces: list[tuple[str, str, int]]  # text before the word, the word, its shade in the first view
    unread: str  # what was beyond max_length
    caption: str  # what went to special tokens and to words in the first view
    data: dict[str, Any]  # for the script: numbers and base64 only


def prepare(examples: list[dict[str, Any]]) -> tuple[list[MapExample], int]:
    """The examples that fit into a page, and how many had to be left out.

    Raises:
        DataError: an example whose tokens, offsets and rows do not fit each other; it is numbered.
    """
    ready: list[MapExample] = []
    size = 0
    for number, example in enumerate(examples, start=1):
        try:
            one = _example(example)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise DataError(f"example {number} does not fit ({error})", where="maps.json") from None
        if ready and one.data["shape"][:2] != ready[0].data["shape"][:2]:
            raise DataError(f"example {number} has other layers and heads than the first", where="maps.json")
        size += len(one.data["rows"])
        if size > MAX_PAYLOAD:
            return ready, len(examples) - len(ready)
        ready.append(one)
    return ready, 0


def _example(example: dict[str, Any]) -> MapExample:
    text, tokens = example["text"], example["tokens"]
    rows = np.asarray(example["cls_rows"], np.float64)  # [L, H, T]
    if rows.ndim != 3 or rows.shape[2] != len(tokens) or len(example["offsets"]) != len(tokens):
        raise ValueError(f"{len(tokens)} tokens, {len(example['offsets'])} offsets, rows {rows.shape}")
    rollout = np.asarray(example.get("rollout") or [], np.float64)
    if rollout.size and rollout.shape != (len(tokens),):
        raise ValueError(f"{len(tokens)} tokens, rollout {rollout.shape}")
    spans, owner = _words(text, tokens, example["offsets"])
    first = rollout if rollout.size else rows[-1].mean(0)
    weights = np.bincount(owner[owner >= 0], first[owner >= 0], minlength=len(spans))
    shades = np.rint(LEVELS * weights / max(weights.max(initial=0.0), 1e-9)).astype(int)
    starts = [0, *(end for _, end in spans)]
    special = {i: str(tokens[i]) for i in np.flatnonzero(owner < 0).tolist()}
    shares = [f"{name} {100 * first[i]:.0f}\u202f%" for i, name in special.items()]
    return MapExample(
        label=str(example.get("label", "")),
        predicted=str(example.get("predicted", "")),
        probability=float(example["probability"]),
        pieces=[
            (text[before:start], text[start:end], int(shade))
            for before, (start, end), shade in zip(starts, spans, shades, strict=False)
        ],
        unread=text[starts[-1] :].strip(),
        caption=" \u00b7 ".join([*shares, f"words {100 * weights.sum():.0f}\u202f%"]),
        data={
            "shape": list(rows.shape), "owner": owner.tolist(), "special": special,
            "rows": _encode(rows), "rollout": _encode(rollout),
        },
    )  # fmt: skip


def _words(
    text: str, tokens: list[str], offsets: list[list[int]]
) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Where the words lie in the text, and which word each token belongs to (-1: none, a special one)."""
    spans: list[tuple[int, int]] = []
    owner = np.full(len(tokens), -1)
    for i, (token, (start, end)) in enumerate(zip(tokens, offsets, strict=True)):
        if not 0 <= start <= end <= len(text):
            raise ValueError(f"offset {start}..{end} in a text of {len(text)} characters")
        if start == end:
            continue
        last = spans[-1][1] if spans else -1
        if start < last or (start == last and token.startswith("##")):  # a piece of the same word
            spans[-1] = (spans[-1][0], max(end, last))
        else:
            spans.append((start, end))
        owner[i] = len(spans) - 1
    return spans, owner


def _encode(shares: np.ndarray) -> str:
    """Shares in [0, 1] as base64 of one byte each; the square root keeps small ones apart."""
    roots = np.sqrt(np.clip(np.nan_to_num(shares), 0, 1))
    return base64.b64encode(np.rint(255 * roots).astype(np.uint8).tobytes()).decode()
