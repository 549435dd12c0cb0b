"""How faithful any order of an input's parts could be: the orders with the lowest and the highest curves."""

from __future__ import annotations

import numpy as np

from glassformer.explain.faithfulness import SHARES, curves
from glassformer.explain.subject import Subject

EXACT = 20  # parts up to which every step of the search hides one of them
WIDTH = 5  # states that the search keeps from step to step


def extremes(subject: Subject, target: int, by: str = "mask", width: int = WIDTH) -> tuple[float, float]:
    """The lowest and the highest area under the deletion curve that a search over orders finds.

    A beam search (as for NAOPC: Edin et al., 2025). With more than ``EXACT`` parts a step hides as many at
    once as a step of the curve does, those whose effect is largest one by one. It finds no proof: an order
    may still lie outside by a little.

    Args:
        by: what stands in the place of a hidden part, as in ``Subject.logits``.

    Raises:
        InputError: nothing in this input can be hidden.
    """
    lowest, highest = (_search(subject, target, by, width, sign) for sign in (1.0, -1.0))
    areas = []
    for order in (lowest, highest):
        scores = np.zeros(len(subject))
        scores[order] = np.arange(len(order), 0, -1)
        if subject.grid is not None:
            scores = scores[subject.hideable]
        found = curves(subject, scores, target, by).figures()
        # Showing the parts of an order one after the other is hiding them from the last to the first.
        areas += [found["deletion"], found["insertion"]]
    return min(areas), max(areas)


def normalized(figures: dict[str, float], lowest: float, highest: float) -> dict[str, float]:
    """``deletion`` and ``insertion`` of one input as shares of the way from the worst order to the best one.

    0: as bad as the worst order; 1: as good as the best. Unlike plain areas they can be compared between
    models, whose probabilities fall at different rates.

    Args:
        figures: of ``Curves.figures``.
        lowest, highest: of ``extremes``, for the same input, target and way of hiding.
    """
    span = max(highest - lowest, 1e-12)
    return {
        "deletion": (highest - figures["deletion"]) / span,
        "insertion": (figures["insertion"] - lowest) / span,
    }


def _search(subject: Subject, target: int, by: str, width: int, sign: float) -> list[int]:
    """The order of hiding with the smallest (``sign`` 1) or largest (-1) sum of probabilities on its way."""
    parts, n = subject.hideable.tolist(), len(subject.hideable)
    sizes = [1] * n
    if n > EXACT:
        sizes, width = np.diff(np.unique(np.rint(np.array(SHARES) * n).astype(int))).tolist(), 1
    states: list[tuple[float, list[int]]] = [(0.0, [])]  # the sum so far, and what is hidden, in this order
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
