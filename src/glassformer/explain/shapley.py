"""Shapley values by permutation sampling."""

from __future__ import annotations

from typing import Literal

import numpy as np

from glassformer.errors import InputError
from glassformer.explain.occlusion import unit_indices
from glassformer.explain.result import Scores
from glassformer.explain.subject import Subject


def shapley(
    subject: Subject,
    target: int,
    *,
    unit: Literal["token", "word"] = "word",
    pairs: int = 4,
    by: str = "mask",
    seed: int = 0,
) -> Scores:
    """Shapley values of the target's logit, estimated from random permutations (Castro et al., 2009).

    Each permutation is also used in reverse, which reduces the variance (Mitchell et al., 2022). Scores sum
    to ``y(input) - y(all masked)`` and need ``2 pairs (units - 1) + 2`` variants of the input.

    Args:
        unit: ``token``, or ``word`` (its tokens share the score). For images, every unit is a patch.
        pairs: number of random permutations, each with its reverse.
        by: replacement of masked units: ``mask``, another baseline, or ``delete``.
        seed: random seed of the permutations.
    """
    if unit not in ("token", "word"):
        raise InputError(f"unknown unit {unit!r}", where="shapley", fix="Use token or word")
    if pairs < 1:
        raise InputError(f"{pairs} pairs of orders are too few", where="shapley", fix="Give 1 or more")
    if seed < 0:
        raise InputError(f"seed {seed} is negative", where="shapley", fix="Give 0 or more")
    maskable, token_units = subject.maskable_indices, unit_indices(subject, unit)
    count, scores = int(token_units.max(initial=-1)) + 1, np.zeros(len(subject))
    if count == 0:
        return Scores(scores)
    rng = np.random.default_rng(seed)
    orders = [order[::step] for order in (rng.permutation(count) for _ in range(pairs)) for step in (1, -1)]
    ranks = np.argsort(orders, axis=1)  # [2 pairs, units], position of each unit in each order
    is_shown = ranks[:, None, :] < np.arange(count + 1)[:, None]  # [2 pairs, units + 1, units]
    keep = np.zeros((is_shown[..., 0].size, len(subject)), bool)
    keep[:, maskable] = is_shown.reshape(-1, count)[:, token_units]
    variants, inverse = np.unique(keep, axis=0, return_inverse=True)
    logits = subject.logits(variants, by)[:, target][inverse.reshape(-1)].reshape(is_shown.shape[:2])
    increases = np.take_along_axis(np.diff(logits, axis=1), ranks, 1)  # [2 pairs, units]
    scores[maskable] = (increases.mean(0) / np.bincount(token_units))[token_units]
    return Scores(
        scores, settings={"unit": unit, "pairs": pairs, "by": by, "seed": seed, "variants": len(variants)}
    )
