"""What the target's logit owes to each row that enters the encoder, by its gradient."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.explain.result import Scores
from glassformer.explain.subject import BATCH_TOKENS, Subject, run_rows


def gradient_x_input(subject: Subject, target: int) -> Scores:
    """``sum_d x_d * dy/dx_d`` of each row: the first-order part of what the row gives to the logit."""
    slopes = _slopes(subject, subject.rows[None], target)[0]
    return Scores((slopes * subject.rows).double().sum(1).cpu().numpy())


def integrated_gradients(
    subject: Subject,
    target: int,
    *,
    baseline: str = "mask",
    steps: int = 16,
    tolerance: float = 1e-3,
    max_steps: int = 1024,
) -> Scores:
    """The gradient along the straight way from a baseline to the input (Sundararajan, Taly and Yan, 2017).

    Scores add up to ``y(input) - y(baseline)`` (completeness). The integral is a Gauss-Legendre sum whose
    points are doubled until the scores do so up to ``tolerance``.

    Args:
        baseline: where the way begins: ``mask``, ``unknown``, ``pad`` or ``zero`` for text.
        steps: points to begin with; equal to ``max_steps`` for a fixed number.
        tolerance: the relative error of completeness that is good enough.
        max_steps: points at most; what is left of the error is in the result all the same.

    Raises:
        InputError: fewer than one step or more than ``max_steps``, a tolerance below 0, or no such baseline.
    """
    if not 1 <= steps <= max_steps:
        fix = "Give 1 or more" if steps < 1 else "Give fewer, or raise max_steps"
        raise InputError(f"{steps} steps of at most {max_steps}", where="integrated_gradients", fix=fix)
    if not tolerance >= 0:
        raise InputError(f"tolerance {tolerance}", where="integrated_gradients", fix="Give 0 or more")
    start = subject.baseline(baseline)
    way = subject.rows - start  # [T, D]
    with torch.inference_mode():
        ends = run_rows(subject.model, torch.cat([subject.rows, start]), subject.packing(2)).logits
    assert ends is not None
    gap = float(ends[0, target].double() - ends[1, target].double())
    used = 0
    while True:
        total = torch.zeros_like(way, dtype=torch.float64)
        at, weights = _legendre(steps)
        per_batch = max(1, BATCH_TOKENS // len(subject))
        for first in range(0, steps, per_batch):
            part = slice(first, first + per_batch)
            points = start + at[part, None, None].to(way) * way  # [m, T, D]
            slopes = _slopes(subject, points, target)
            total += torch.einsum("m,mtd->td", weights[part].to(total), slopes.double())
        used += steps
        scores = (total * way).sum(1).cpu().numpy()
        error = abs(float(scores.sum()) - gap) / max(abs(gap), 1e-12)
        if error <= tolerance or 2 * steps > max_steps:
            break
        steps *= 2
    settings = {"baseline": baseline, "steps": steps, "gradients": used, "converged": error <= tolerance}
    return Scores(scores, error=error, settings=settings)


def _legendre(steps: int) -> tuple[Tensor, Tensor]:
    """Points in (0, 1) and their weights, which sum to 1, fp64."""
    at, weights = np.polynomial.legendre.leggauss(steps)
    return torch.from_numpy((at + 1) / 2), torch.from_numpy(weights / 2)


def _slopes(subject: Subject, points: Tensor, target: int) -> Tensor:
    """The gradient of the target's logit at each of ``[M, T, D]``."""
    rows = points.flatten(0, 1).detach().clone().requires_grad_()
    with torch.enable_grad():
        logits = run_rows(subject.model, rows, subject.packing(len(points))).logits
        assert logits is not None
        (slopes,) = torch.autograd.grad(logits[:, target].sum(), rows)
    return slopes.view_as(points)
