"""AdamW whose eps counts before bias correction: "epsilon hat" of Kingma and Ba (2015, end of section 2).

    m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2
    w = w - lr sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + eps)
    w = w - lr decay w                                            decay last, on the new weight

``torch.optim.AdamW`` divides by ``sqrt(v / (1 - b2^t)) + eps`` instead, so that eps weighs less in the first
steps: with b2 = 0.999, a thirtieth of it at the first. The class of this name in transformers up to 4.48,
which many published fine-tunings used, is this one.

The update without decay is torch's own with ``eps / sqrt(1 - b2^t)`` in the place of eps, and so its fused
kernel does it, which reads and writes each number once where seven operations in turn did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim.adamw import adamw


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
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            alike: dict[tuple[float, bool], list[torch.Tensor]] = defaultdict(list)
            for w in group["params"]:
                if w.grad is None:
                    continue
                state = self.state[w]
                if not state:
                    state["step"] = torch.zeros((), dtype=torch.float32)
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(w), torch.zeros_like(w)
                # A weight that had no gradient in some step has taken fewer, and has another eps. The fused
                # kernel goes through memory as it lies, whatever the strides.
                flat = all(x.is_contiguous() for x in (w, w.grad, state["exp_avg"], state["exp_avg_sq"]))
                alike[state["step"].item(), flat and w.is_cpu].append(w)
            for (taken, fused), weights in alike.items():
                self._update(weights, taken + 1, fused, group)
        return loss

    def _update(self, weights: list[torch.Tensor], t: float, fused: bool, group: dict[str, Any]) -> None:
        b1, b2 = group["betas"]
        states = [self.state[w] for w in weights]
        adamw(
            weights,
            [w.grad.resolve_neg() for w in weights if w.grad is not None],
            [s["exp_avg"] for s in states],
            [s["exp_avg_sq"] for s in states],
            [],
            [s["step"] for s in states],
            fused=fused,  # on a CPU only: the fused kernel of a GPU wants the counts in its own memory
            foreach=not fused,
            amsgrad=False,
            beta1=b1,
            beta2=b2,
            lr=group["lr"],
            weight_decay=0.0,  # torch's comes first
            eps=group["eps"] / (1.0 - b2**t) ** 0.5,
            maximize=False,
        )
        torch.autograd.graph.increment_version(weights)  # the fused kernel tells nobody
        if group["weight_decay"]:
            torch._foreach_mul_(weights, 1.0 - group["lr"] * group["weight_decay"])  # type: ignore[attr-defined]  # torch's own optimizers take it
