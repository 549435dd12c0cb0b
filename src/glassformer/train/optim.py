"""AdamW with fp32 master weights, decay groups, layer-wise rates, schedules, and a running mean of the weights."""

from __future__ import annotations

import math
import re

import torch
from torch import Tensor, nn

from glassformer.recipe import TrainConfig


def learning_rate(step: int, total: int, config: TrainConfig) -> float:
    """The rate of step 0 ... total - 1: linear warm-up, then linear or cosine decay to 0, or constant."""
    warmup = round(config.warmup * total)
    if step < warmup:
        return config.lr * (step + 1) / warmup
    left = (total - step) / max(1, total - warmup)  # 1 at the end of the warm-up, 1 / ... at the last step
    if config.schedule == "linear":
        return config.lr * left
    if config.schedule == "cosine":
        return config.lr * 0.5 * (1.0 + math.cos(math.pi * (1.0 - left)))
    return config.lr


class MasterOptimizer:
    """AdamW or Adam on fp32 copies of the weights, while the model computes in ``dtype``.

    bf16 has 8 bits of precision: an update of a thousandth of a weight would vanish in it. Tables and heads
    that stay in fp32 are their own masters. Weight decay spares biases, norms and position tables.

    Args:
        model: in fp32, the weights to train marked by ``requires_grad``; its encoder is converted to ``dtype`` here.
    """

    def __init__(self, model: nn.Module, config: TrainConfig, dtype: torch.dtype):
        self.config = config
        self.params = {name: p for name, p in model.named_parameters() if p.requires_grad}
        originals = {name: p.detach().clone() for name, p in self.params.items()}
        # Weights that stay as they are, in full precision: computing in bf16 must not round what is saved.
        self.frozen = {n: p.detach().clone() for n, p in model.named_parameters() if not p.requires_grad}
        model.set_compute_dtype(dtype)  # type: ignore[operator]
        self.masters = {
            name: p if p.dtype == torch.float32 else originals[name].requires_grad_()
            for name, p in self.params.items()
        }
        self.copied = [name for name, p in self.params.items() if p is not self.masters[name]]
        groups: dict[tuple[float, float], list[Tensor]] = {}
        num_layers = 1 + max((depth for n in self.params if (depth := _depth(n)) is not None), default=-1)
        for name, master in self.masters.items():
            key = (
                _rate_factor(name, num_layers, config),
                config.weight_decay if decays(name, master) else 0.0,
            )
            groups.setdefault(key, []).append(master)
        kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
        self.optimizer = kind(
            [{"params": ps, "weight_decay": wd, "factor": factor} for (factor, wd), ps in groups.items()],
            lr=config.lr,
            betas=(config.betas[0], config.betas[1]),
            fused=True,
        )
        self.average = {n: m.detach().clone() for n, m in self.masters.items()} if config.average else None

    def step(self, lr: float) -> float:
        """One update from the gradients on the model; returns the norm of the gradient before clipping."""
        for name in self.copied:
            grad = self.params[name].grad
            self.masters[name].grad = None if grad is None else grad.float()
        norm = nn.utils.clip_grad_norm_(self.masters.values(), self.config.clip or math.inf, foreach=True)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["factor"]
        self.optimizer.step()
        for p, master in zip(self.params.values(), self.masters.values(), strict=True):
            p.grad = master.grad = None
        self.publish()
        if self.average is not None:
            with torch.no_grad():
                torch.ops.aten._foreach_lerp_.Scalar(
                    list(self.average.values()), self._detached(), 1.0 - self.config.average
                )
        return float(norm)

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the masters into the weights that the model computes with."""
        if self.copied:
            torch.ops.aten._foreach_copy_(
                [self.params[n] for n in self.copied], [self.masters[n] for n in self.copied]
            )

    @torch.no_grad()
    def load(self, weights: dict[str, Tensor]) -> None:
        """Replace the masters and publish them."""
        for name, master in self.masters.items():
            master.copy_(weights[name])
        self.publish()

    def weights(self) -> dict[str, Tensor]:
        """The weights to judge and to keep: the running mean where there is one, else the masters."""
        source = self.average if self.average is not None else self.masters
        return {name: w.detach().clone() for name, w in source.items()}

    def _detached(self) -> list[Tensor]:
        return [m.detach() for m in self.masters.values()]

    def tensors(self) -> dict[str, Tensor]:
        """Everything that decides the next update, by name."""
        out = {f"master/{n}": m.detach() for n, m in self.masters.items()}
        for name, master in self.masters.items():
            for key, value in self.optimizer.state.get(master, {}).items():
                out[f"{key}/{name}"] = value
        if self.average is not None:
            out |= {f"average/{n}": w for n, w in self.average.items()}
        return out

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """The reverse of ``tensors``."""
        self.load({n: tensors[f"master/{n}"] for n in self.masters})
        for name, master in self.masters.items():
            keys = ("step", "exp_avg", "exp_avg_sq")
            if f"step/{name}" in tensors:
                self.optimizer.state[master] = {k: tensors[f"{k}/{name}"].clone() for k in keys}
        if self.average is not None:
            self.average = {n: tensors[f"average/{n}"].clone() for n in self.masters}


def decays(name: str, weight: Tensor) -> bool:
    """Whether weight decay applies: matrices of products and token tables, not biases, norms, positions."""
    return weight.ndim >= 2 and "positions" not in name and "segments" not in name


def _rate_factor(name: str, num_layers: int, config: TrainConfig) -> float:
    """Layer-wise decay (ELECTRA, Clark et al., 2020): the head learns at lr, each layer below at less."""
    if name.startswith("embeddings."):
        return config.layer_decay ** (num_layers + 1) * config.embedding_lr
    depth = _depth(name)
    return 1.0 if depth is None else config.layer_decay ** (num_layers - depth)


def _depth(name: str) -> int | None:
    """The number of the layer that a weight belongs to, counted from the input; None above and below the stack."""
    found = re.match(r"encoder\.layers\.(\d+)\.", name)
    return int(found[1]) if found else None
