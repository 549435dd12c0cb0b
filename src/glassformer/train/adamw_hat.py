"""AdamW whose eps counts before bias correction: "epsilon hat" of Kingma and Ba (2015, end of section 2).

    m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2
    w = w - lr sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + eps)
    w = w - lr decay w                                            decay last, on the new weight

``torch.optim.AdamW`` divides by ``sqrt(v / (1 - b2^t)) + eps`` instead, so that eps weighs less in the first
steps: with b2 = 0.999, a thirtieth of it at the first. The class of this name in transformers up to 4.48,
which many published fine-tunings used, is this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch


class AdamWHat(torch.optim.Optimizer):
    """The update at the top of this file; the state has the names of ``torch.optim.AdamW``'s."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]  # one form
        """One update of every weight that has a gradient."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                state = self.state[w]
                if not state:
                    state["step"] = torch.zeros(())
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(w), torch.zeros_like(w)
                state["step"] += 1
                t, m, v = state["step"].item(), state["exp_avg"], state["exp_avg_sq"]
                m.mul_(b1).add_(w.grad, alpha=1.0 - b1)
                v.mul_(b2).addcmul_(w.grad, w.grad, value=1.0 - b2)
                rate = group["lr"] * (1.0 - b2**t) ** 0.5 / (1.0 - b1**t)
                w.addcdiv_(m, v.sqrt().add_(group["eps"]), value=-rate)
                if group["weight_decay"]:
                    w.add_(w, alpha=-group["lr"] * group["weight_decay"])
        return loss
