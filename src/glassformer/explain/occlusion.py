"""Occlusion: the decrease of the logit if tokens, words, spans of words or windows of patches are masked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Literal

import numpy as np

from glassformer.errors import InputError
from glassformer.explain.result import Scores
from glassformer.explain.subject import Subject

Unit = Literal["token", "word", "span"]


def windows(shape: Sequence[int], size: Sequence[int], stride: Sequence[int]) -> np.ndarray:
    """All positions of a sliding window on a grid, ``[M, *shape]`` boolean, True inside the window.

    Together they cover the grid; the last window may be cut at the edge.

    Raises:
        InputError: a window or stride below 1, or a window larger than the grid.
    """
    for n, s, step in zip(shape, size, stride, strict=True):
        if not 1 <= s <= n or step < 1:
            what = f"a window of {s} with stride {step} on {n}"
            raise InputError(
                what, where="occlusion", fix=f"Use a window of 1 to {n} and a stride of 1 or more"
            )
    starts = [
        [i * step for i in range(1 + -(-(n - s) // step))]
        for n, s, step in zip(shape, size, stride, strict=True)
    ]
    places = list(product(*starts))
    inside = np.zeros((len(places), *shape), bool)
    for row, place in zip(inside, places, strict=True):
        row[tuple(slice(a, a + s) for a, s in zip(place, size, strict=True))] = True
    return inside


def drops(
    predict: Callable[[np.ndarray], np.ndarray], hidden: np.ndarray, target: int
) -> tuple[np.ndarray, np.ndarray]:
    """Decrease of the target's logit for each variant, and the mean decrease for each position.

    Args:
        predict: kept positions ``[M, ...]`` boolean -> logits ``[M, C]``.
        hidden: ``[M, ...]`` boolean, True where a variant is masked.

    Returns:
        ``[M]`` and ``[...]``; 0 at positions that are never masked.
    """
    whole = predict(np.ones((1, *hidden.shape[1:]), bool))[0, target]
    falls = whole - predict(~hidden)[:, target]  # [M]
    covered = hidden.sum(0)
    return falls, np.tensordot(falls, hidden.astype(np.float64), 1) / np.maximum(covered, 1)


def units_of(subject: Subject, unit: Unit) -> np.ndarray:
    """The unit number of each token in ``subject.hideable``, from 0; every patch is a unit."""
    chosen = subject.hideable
    return np.arange(len(chosen)) if subject.grid is not None or unit == "token" else subject.words[chosen]


def occlusion(
    subject: Subject,
    target: int,
    *,
    unit: Unit = "token",
    window: int | None = None,
    stride: int = 1,
    by: str = "mask",
) -> Scores:
    """Occlusion: the decrease of the target's logit if a part is masked (Zeiler and Fergus, 2014).

    Args:
        unit: what is masked at a time: a token, a word (its tokens share the score), or a span of words. For
            images, tokens are patches.
        window: number of units masked together; None: 1, and 3 for spans. For images: patches per side.
        stride: step from one window to the next; a unit in several windows gets their mean.
        by: the replacement: ``mask``, another baseline, or ``delete``.

    Raises:
        InputError: an unknown unit or baseline, or a window that does not fit.
    """
    if unit not in ("token", "word", "span"):
        raise InputError(f"no unit {unit!r}", where="occlusion", fix="Use token, word or span")
    size = (3 if unit == "span" else 1) if window is None else window
    chosen, unit_of = subject.hideable, units_of(subject, unit)
    if subject.grid is not None:
        inside = windows(subject.grid, (size, size), (stride, stride))
        inside = inside.reshape(len(inside), -1)  # [M, P]
    else:
        count = int(unit_of.max(initial=-1)) + 1
        if count == 0:
            return Scores(np.zeros(len(subject)))
        inside = windows((count,), (min(size, count),), (stride,))  # [M, units]
    hidden = np.zeros((len(inside), len(subject)), bool)
    hidden[:, chosen] = inside[:, unit_of]
    _, falls = drops(lambda keep: subject.logits(keep, by), hidden, target)
    scores = np.zeros(len(subject))
    scores[chosen] = falls[chosen] / np.bincount(unit_of)[unit_of]
    return Scores(scores, settings={"unit": unit, "window": size, "stride": stride, "by": by})
