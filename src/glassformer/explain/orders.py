"""The orders of an input's parts with the lowest and the highest deletion curves, to normalize metrics."""

from __future__ import annotations

import numpy as np

from glassformer.explain.faithfulness import SHARES, curves
from glassformer.explain.subject import Subject

EXACT = 20  # up to this number of parts, each step of the search masks a single part
WIDTH = 5  # beam width


def extremes(subject: Subject, target: int, by: str = "mask", width: int = WIDTH) -> tuple[float, float]:
    """The lowest and the highest area under the deletion curve, found by beam search.

    As for NAOPC (Edin et al., 2025). With more than ``EXACT`` parts, a step masks as many parts as a step of
    the curve, those with the largest single effects. The search is approximate: other orders may be slightly
    more extreme.

    Args:
        by: the replacement of masked parts, as in ``Subject.logits``.

    Raises:
        InputError: the input has no part that may be masked.
    """
    lowest, highest = (_search(subject, target, by, width, sign) for sign in (1.0, -1.0))
    areas = []
    for order in (lowest, highest):
        scores = np.zeros(len(subject))
        scores[order] = np.arange(len(order), 0, -1)
        if subject.grid is not None:
            scores = scores[subject.hideable]
        found = curves(subject, scores, target, by).figures()
        # Showing the parts in an order equals masking them in the reverse order.
        areas += [found["deletion"], found["insertion"]]
    return min(areas), max(areas)


def normalized(figures: dict[str, float], lowest: float, highest: float) -> dict[str, float]:
    """``deletion`` and ``insertion`` of one input, scaled so that 0 is the worst order and 1 the best.

    Unlike plain areas they are comparable between models.

    Args:
        figures: of ``Curves.figures``.
        lowest, highest: of ``extremes``, for the same input, target and way of masking.
    """
    span = max(highest - lowest, 1e-12)
    return {
        "deletion": (highest - figures["deletion"]) / span,
        "insertion": (figures["insertion"] - lowest) / span,
    }


def _search(subject: Subject, target: int, by: str, width: int, sign: float) -> list[int]:
    """The order of masking with the smallest (``sign`` 1) or largest (-1) sum of probabilities."""
    parts, n = subject.hideable.tolist(), len(subject.hideable)
    sizes = [1] * n
    if n > EXACT:
        sizes, width = np.diff(np.unique(np.rint(np.array(SHARES) * n).astype(int))).tolist(), 1
    states: list[tuple[float, list[int]]] = [(0.0, [])]  # the sum so far and the masked parts, in order
    for size in sizes:
        found: dict[frozenset[int], tuple[float, list[int]]] = {}
        for total, hidden in states:
            rest = [part for part in parts if part not in hidden]
            keep = np.ones((len(rest), len(subject)), bool)
            keep[:, hidden] = False
            keep[np.arange(len(rest)), rest] = False
            chance = sign * subject.chance(subject.logits(keep, by))[:, target]
            ranked = np.argsort(chance, kind="stable")
            for first in ranked[:width]:
                chosen = ranked[:size] if size > 1 else [first]
                order, new = hidden + [rest[i] for i in chosen], total + float(chance[first])
                if new < found.get(frozenset(order), (np.inf,))[0]:
                    found[frozenset(order)] = new, order
        states = sorted(found.values(), key=lambda state: state[0])[:width]
    return states[0][1]
