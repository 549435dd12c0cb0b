"""Gradient x input and integrated gradients of the target's logit."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.explain.result import Scores
from glassformer.explain.subject import BATCH_TOKENS, Subject, run_rows


def gradient_x_input(subject: Subject, target: int) -> Scores:
    """``sum_d x_d * dy/dx_d`` for the embedding x of each token; y is the target's logit."""
    gradients = _gradients(subject, subject.embeddings[None], target)[0]
    return Scores((gradients * subject.embeddings).double().sum(1).cpu().numpy())


def integrated_gradients(
    subject: Subject,
    target: int,
    *,
    baseline: str = "mask",
    steps: int = 16,
    tolerance: float = 1e-3,
    max_steps: int = 1024,
) -> Scores:
    """Integrated gradients (Sundararajan, Taly and Yan, 2017).

    Scores sum to ``y(input) - y(baseline)`` (completeness). The integral is a Gauss-Legendre sum; the number
    of points is doubled until the error of completeness is at most ``tolerance``.

    Args:
        baseline: start of the path: ``mask``, ``unknown``, ``pad`` or ``zero`` for text.
        steps: initial number of points. It stays fixed if it equals ``max_steps``.
        tolerance: maximum relative error of completeness.
        max_steps: maximum number of points. The error may then exceed ``tolerance``; the result reports it.
    """
    if not 1 <= steps <= max_steps:
        fix = "Give 1 or more" if steps < 1 else "Give fewer, or raise max_steps"
        raise InputError(
            f"{steps} steps are not from 1 to {max_steps}", where="integrated_gradients", fix=fix
        )
    if not tolerance >= 0:
        raise InputError(
            f"tolerance {tolerance} is negative", where="integrated_gradients", fix="Give 0 or more"
        )
    start = subject.baseline(baseline)
    path = subject.embeddings - start  # [T, D]
    with torch.inference_mode():
        ends = run_rows(subject.model, torch.cat([subject.embeddings, start]), subject.packing(2)).logits
    assert ends is not None
    difference = float(ends[0, target].double() - ends[1, target].double())
    num_gradients = 0
    while True:
        total = torch.zeros_like(path, dtype=torch.float64)
        positions, weights = _legendre(steps)
        per_batch = max(1, BATCH_TOKENS // len(subject))
        for first in range(0, steps, per_batch):
            batch = slice(first, first + per_batch)
            points = start + positions[batch, None, None].to(path) * path  # [m, T, D]
            gradients = _gradients(subject, points, target)
            total += torch.einsum("m,mtd->td", weights[batch].to(total), gradients.double())
        num_gradients += steps
        scores = (total * path).sum(1).cpu().numpy()
        error = abs(float(scores.sum()) - difference) / max(abs(difference), 1e-12)
        is_converged = error <= tolerance
        if is_converged or 2 * steps > max_steps:
            break
        steps *= 2
    settings = {
        "baseline": baseline,
        "steps": steps,
        "gradients": num_gradients,
        "converged": is_converged,
    }
    return Scores(scores, error=error, settings=settings)


def _legendre(steps: int) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre points in (0, 1) and their weights, which sum to 1, fp64."""
    points, weights = np.polynomial.legendre.leggauss(steps)
    return torch.from_numpy((points + 1) / 2), torch.from_numpy(weights / 2)


def _gradients(subject: Subject, points: Tensor, target: int) -> Tensor:
    """The gradient of the target's logit at each of the points ``[M, T, D]``."""
    rows = points.flatten(0, 1).detach().clone().requires_grad_()
    with torch.enable_grad():
        logits = run_rows(subject.model, rows, subject.packing(len(points))).logits
        assert logits is not None
        (gradients,) = torch.autograd.grad(logits[:, target].sum(), rows)
    return gradients.view_as(points)
