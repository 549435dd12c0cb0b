"""Occlusion: the decrease of the logit when parts of the input are masked."""

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

    The windows cover the grid; a window at the edge may be smaller.
    """
    for n, s, step in zip(shape, size, stride, strict=True):
        if not 1 <= s <= n or step < 1:
            what = f"a window of {s} with stride {step} does not fit into {n} units"
            raise InputError(
                what, where="occlusion", fix=f"Use a window of 1 to {n} and a stride of 1 or more"
            )
    starts = [
        [i * step for i in range(1 + -(-(n - s) // step))]
        for n, s, step in zip(shape, size, stride, strict=True)
    ]
    corners = list(product(*starts))
    inside = np.zeros((len(corners), *shape), bool)
    for row, corner in zip(inside, corners, strict=True):
        row[tuple(slice(a, a + s) for a, s in zip(corner, size, strict=True))] = True
    return inside


def mean_decrease(
    predict: Callable[[np.ndarray], np.ndarray], masked: np.ndarray, target: int
) -> tuple[np.ndarray, np.ndarray]:
    """Decrease of the target's logit for each variant, and the mean decrease for each position.

    Args:
        predict: kept positions ``[M, ...]`` boolean -> logits ``[M, C]``.
        masked: ``[M, ...]`` boolean, True where a variant is masked.

    Returns:
        ``[M]`` and ``[...]``; 0 at positions that are never masked.
    """
    unmasked = predict(np.ones((1, *masked.shape[1:]), bool))[0, target]
    decreases = unmasked - predict(~masked)[:, target]  # [M]
    counts = masked.sum(0)
    return decreases, np.tensordot(decreases, masked.astype(np.float64), 1) / np.maximum(counts, 1)


def unit_indices(subject: Subject, unit: Unit) -> np.ndarray:
    """The unit of each token in ``subject.maskable_indices``, counted from 0; every patch is a unit."""
    maskable = subject.maskable_indices
    if subject.grid is not None or unit == "token":
        return np.arange(len(maskable))
    return subject.words[maskable]


def occlusion(
    subject: Subject,
    target: int,
    *,
    unit: Unit = "token",
    window: int | None = None,
    stride: int = 1,
    by: str = "mask",
) -> Scores:
    """Occlusion: the decrease of the target's logit when a part is masked (Zeiler and Fergus, 2014).

    Args:
        unit: what is masked: ``token``, ``word`` (its tokens share the score) or ``span`` (several words).
            For images, every unit is a patch.
        window: number of units that are masked together; None: 3 for spans, otherwise 1. For images, the
            number of patches per side.
        stride: step from one window to the next. The score of a unit is the mean over its windows.
        by: replacement of masked tokens: ``mask``, another baseline, or ``delete``.
    """
    if unit not in ("token", "word", "span"):
        raise InputError(f"unknown unit {unit!r}", where="occlusion", fix="Use token, word or span")
    size = (3 if unit == "span" else 1) if window is None else window
    maskable, token_units = subject.maskable_indices, unit_indices(subject, unit)
    if subject.grid is not None:
        inside = windows(subject.grid, (size, size), (stride, stride))
        inside = inside.reshape(len(inside), -1)  # [M, P]
    else:
        count = int(token_units.max(initial=-1)) + 1
        if count == 0:
            return Scores(np.zeros(len(subject)))
        inside = windows((count,), (min(size, count),), (stride,))  # [M, units]
    masked = np.zeros((len(inside), len(subject)), bool)
    masked[:, maskable] = inside[:, token_units]
    _, decreases = mean_decrease(lambda keep: subject.logits(keep, by), masked, target)
    scores = np.zeros(len(subject))
    scores[maskable] = decreases[maskable] / np.bincount(token_units)[token_units]
    return Scores(scores, settings={"unit": unit, "window": size, "stride": stride, "by": by})
