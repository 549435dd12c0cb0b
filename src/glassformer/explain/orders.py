"""Bounds of the area under the deletion curve, to normalize metrics."""

from __future__ import annotations

import numpy as np

from glassformer.explain.faithfulness import SHARES, curves
from glassformer.explain.subject import Subject

MAX_SINGLE_STEPS = 20  # number of tokens up to which each step of the search masks a single token
BEAM_WIDTH = 5


def deletion_bounds(
    subject: Subject, target: int, by: str = "mask", width: int = BEAM_WIDTH
) -> tuple[float, float]:
    """The lowest and the highest area under the deletion curve, over all orders of masking.

    A beam search finds them, as for NAOPC (Edin et al., 2025). With more than ``MAX_SINGLE_STEPS`` tokens, a
    step masks several tokens, as many as a step of the curve. The search is approximate: other orders may be
    slightly more extreme.

    Args:
        by: replacement of masked tokens, as in ``Subject.logits``.
    """
    lowest, highest = (_search(subject, target, by, width, sign) for sign in (1.0, -1.0))
    areas = []
    for order in (lowest, highest):
        scores = np.zeros(len(subject))
        scores[order] = np.arange(len(order), 0, -1)
        if subject.grid is not None:
            scores = scores[subject.maskable_indices]
        metrics = curves(subject, scores, target, by).metrics()
        # Showing the tokens in an order equals masking them in the reverse order.
        areas += [metrics["deletion"], metrics["insertion"]]
    return min(areas), max(areas)


def normalize_metrics(metrics: dict[str, float], lowest: float, highest: float) -> dict[str, float]:
    """``deletion`` and ``insertion`` of one input, scaled so that 0 is the worst order and 1 the best.

    Scaled areas are comparable between models, plain areas are not.

    Args:
        metrics: the result of ``Curves.metrics``.
        lowest, highest: the result of ``deletion_bounds`` for the same input, target and replacement.
    """
    span = max(highest - lowest, 1e-12)
    return {
        "deletion": (highest - metrics["deletion"]) / span,
        "insertion": (metrics["insertion"] - lowest) / span,
    }


def _search(subject: Subject, target: int, by: str, width: int, sign: float) -> list[int]:
    """The order of masking with the smallest (``sign`` 1) or largest (-1) sum of probabilities."""
    positions, n = subject.maskable_indices.tolist(), len(subject.maskable_indices)
    sizes = [1] * n
    if n > MAX_SINGLE_STEPS:
        sizes, width = np.diff(np.unique(np.rint(np.array(SHARES) * n).astype(int))).tolist(), 1
    beam: list[tuple[float, list[int]]] = [(0.0, [])]  # the sum so far, and the masked tokens in order
    for size in sizes:
        best_orders: dict[frozenset[int], tuple[float, list[int]]] = {}
        for total_so_far, masked in beam:
            remaining = [i for i in positions if i not in masked]
            keep = np.ones((len(remaining), len(subject)), bool)
            keep[:, masked] = False
            keep[np.arange(len(remaining)), remaining] = False
            probabilities = sign * subject.logits_to_probabilities(subject.logits(keep, by))[:, target]
            ranked = np.argsort(probabilities, kind="stable")
            for first in ranked[:width]:
                added = ranked[:size] if size > 1 else [first]
                order = masked + [remaining[i] for i in added]
                total = total_so_far + float(probabilities[first])
                if total < best_orders.get(frozenset(order), (np.inf,))[0]:
                    best_orders[frozenset(order)] = total, order
        beam = sorted(best_orders.values(), key=lambda candidate: candidate[0])[:width]
    return beam[0][1]
