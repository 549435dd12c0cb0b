"""Optimizers with fp32 master weights, and learning-rate schedules."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from glassformer.train.config import FitConfig
from glassformer.train.distributed import ONE_PROCESS, Ranks

# --- AdamW with "epsilon hat" ---------------------------------------------------------------------
#
# Epsilon is added before bias correction: Kingma and Ba (2015, end of section 2).
#
#     m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2
#     w = w - lr sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + eps)
#     w = w - lr decay w                                            decay last, on the new weight
#
# ``torch.optim.AdamW`` divides by ``sqrt(v / (1 - b2^t)) + eps`` instead, so eps has less weight in the first
# steps (1/30 at the first step with b2 = 0.999). The "epsilon hat" variant is the AdamW of transformers up to
# 4.48, with which many published models were fine-tuned.
#
# Without decay, the update equals torch's update with ``eps / sqrt(1 - b2^t)`` as eps. So torch's fused
# kernel is used.


class AdamWHat(torch.optim.Optimizer):
    """AdamW with "epsilon hat"; the state has the same keys as that of ``torch.optim.AdamW``."""

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
            batches: dict[tuple[float, bool], list[torch.Tensor]] = defaultdict(list)
            for w in group["params"]:
                if w.grad is None:
                    continue
                state = self.state[w]
                if not state:
                    state["step"] = torch.zeros((), dtype=torch.float32)
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(w), torch.zeros_like(w)
                # Weights without a gradient in some steps have another step count, and so another eps. The
                # fused kernel ignores strides.
                is_flat = all(x.is_contiguous() for x in (w, w.grad, state["exp_avg"], state["exp_avg_sq"]))
                batches[state["step"].item(), is_flat and w.is_cpu].append(w)
            for (steps_done, fused), weights in batches.items():
                self._update(weights, steps_done + 1, fused, group)
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
            fused=fused,  # on a CPU only: on a GPU the fused kernel needs the step counts in GPU memory
            foreach=not fused,
            amsgrad=False,
            beta1=b1,
            beta2=b2,
            lr=group["lr"],
            weight_decay=0.0,  # torch applies it first
            eps=group["eps"] / (1.0 - b2**t) ** 0.5,
            maximize=False,
        )
        torch.autograd.graph.increment_version(weights)  # the fused kernel does not increment it
        if group["weight_decay"]:
            torch._foreach_mul_(weights, 1.0 - group["lr"] * group["weight_decay"])  # type: ignore[attr-defined]  # torch's own optimizers take it


# --- optimizers and schedules ---------------------------------------------------------------------


SAVED_STATE = ("step", "exp_avg", "exp_avg_sq", "momentum_buffer")  # state of AdamW and Muon that is saved


def learning_rate(step: int, total: int, config: FitConfig) -> float:
    """Learning rate of ``step``, 0 to total - 1: linear warm-up, then linear or cosine decay, or constant."""
    warmup = round(config.warmup * total)
    if step < warmup:
        return config.lr * (step + 1) / warmup
    remaining = (total - step) / max(1, total - warmup)  # share of the steps after the warm-up
    if config.schedule == "linear":
        return config.lr * remaining
    if config.schedule == "cosine":
        return config.lr * 0.5 * (1.0 + math.cos(math.pi * (1.0 - remaining)))
    return config.lr


class MixedPrecisionOptimizer:
    """An optimizer on fp32 copies ("masters") of the weights, while the model computes in ``dtype``.

    bf16 has 8 bits of precision, too few for small updates. Embeddings and heads stay in fp32 and need no
    copies. Weight decay is not applied to biases, norms and position embeddings.

    Args:
        model: in fp32, with ``requires_grad`` set for trained weights; its encoder is converted to ``dtype``.
        ranks: the processes that train together. With sharding, each process has masters for its parts of the
            weights. ``weights``, ``tensors`` and ``load_tensors`` use full tensors.
    """

    def __init__(self, model: nn.Module, config: FitConfig, dtype: torch.dtype, ranks: Ranks = ONE_PROCESS):
        self.config, self.ranks = config, ranks
        self.params = {name: p for name, p in model.named_parameters() if p.requires_grad}
        originals = {name: p.detach().clone() for name, p in self.params.items()}
        # Copies of frozen weights in full precision, since saved weights must not be rounded to bf16.
        self.frozen = {n: p.detach().clone() for n, p in model.named_parameters() if not p.requires_grad}
        self.shapes = {name: p.shape for name, p in originals.items()}
        model.set_compute_dtype(dtype)  # type: ignore[operator]  # every model has it
        ranks.wrap(model, may_skip_weights=bool(config.unfreeze_every))
        self.params = {name: p for name, p in model.named_parameters() if name in originals}
        self.masters = {
            name: ranks.local(p) if p.dtype == torch.float32 else ranks.part(originals[name]).requires_grad_()
            for name, p in self.params.items()
        }
        self.separate = [name for name, p in self.params.items() if p is not self.masters[name]]
        self.low_precision = [name for name in self.separate if self.params[name].dtype != torch.float32]
        self.optimizers = self._make_optimizers(config)
        self.average = {n: m.detach().clone() for n, m in self.masters.items()} if config.average else None
        self.decay = config.average  # decay of the average; see limit_average_decay
        self.num_averaged = torch.zeros(())  # number of averaged steps; a tensor because it is saved
        self.start_share = getattr(config, "start_share", 0.0)
        if self.start_share:
            self.start = {n: m.detach().clone() for n, m in self.masters.items()}
        if self.start_share == "auto":  # chosen after the training (``choose_start_share``)
            self.start_share = 0.0

    def _make_optimizers(self, config: FitConfig) -> list[torch.optim.Optimizer]:
        """The optimizers for all weights, in groups with one learning-rate factor and weight decay.

        With ``optimizer = "muon"``, matrices of the encoder are trained by Muon (Jordan et al., 2024), which
        orthogonalizes updates, scaled to AdamW's learning rates. AdamW trains the remaining weights.
        """
        num_layers = 1 + max((depth for n in self.params if (depth := _depth(n)) is not None), default=-1)
        groups: dict[bool, dict[tuple[float, float], list[Tensor]]] = {True: {}, False: {}}
        for name, master in self.masters.items():
            decay = config.weight_decay if has_weight_decay(name, master) else 0.0
            key = (_lr_factor(name, num_layers, config), decay)
            uses_muon = config.optimizer == "muon" and master.ndim == 2 and _depth(name) is not None
            groups[uses_muon].setdefault(key, []).append(master)
        grouped = {
            uses_muon: [{"params": ps, "weight_decay": wd, "factor": f} for (f, wd), ps in by_key.items()]
            for uses_muon, by_key in groups.items()
        }
        optimizers: list[torch.optim.Optimizer] = []
        if grouped[False]:
            betas, eps = (config.betas[0], config.betas[1]), config.adam_eps
            if config.optimizer == "adamw-hat":
                optimizers.append(AdamWHat(grouped[False], config.lr, betas, eps))
            else:
                adam = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
                optimizers.append(adam(grouped[False], lr=config.lr, betas=betas, eps=eps, fused=True))
        if grouped[True]:
            optimizers.append(torch.optim.Muon(grouped[True], lr=config.lr, adjust_lr_fn="match_rms_adamw"))
        return optimizers

    def gradient_norm(self) -> Tensor:
        """Copy the gradients of the model to the masters; returns their norm before clipping."""
        local = {name: self.ranks.local(self.params[name].grad) for name in self.separate}
        for name, grad in local.items():
            self.masters[name].grad = None if grad is None else in_fp32(grad)
        if on_gpu := [name for name in self.separate if local[name] is not None and local[name].is_cuda]:
            torch.ops.aten._foreach_copy_(
                [self.masters[name].grad for name in on_gpu], [local[name] for name in on_gpu]
            )
        grads = [m.grad for m in self.masters.values() if m.grad is not None]
        return self.ranks.norm(nn.utils.get_total_norm(grads, foreach=True))

    def update(self, lr: float, norm: Tensor) -> None:
        """Clip the gradients of the masters, which have this ``norm``, and update; never waits for a GPU."""
        nn.utils.clip_grads_with_norm_(
            self.masters.values(), self.config.clip or math.inf, norm, foreach=True
        )
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr * group["factor"]
            optimizer.step()
        for p, master in zip(self.params.values(), self.masters.values(), strict=True):
            p.grad = master.grad = None
        self.copy_to_model()
        if self.average is not None:
            with torch.no_grad():
                masters = [m.detach() for m in self.masters.values()]
                averages = list(self.average.values())
                torch.ops.aten._foreach_lerp_.Scalar(averages, masters, self._newest_weight())

    def _newest_weight(self) -> float:
        """The share of this step's weights in the average, bias-corrected (Kingma and Ba, 2015)."""
        self.num_averaged += 1
        return (1.0 - self.decay) / (1.0 - self.decay ** self.num_averaged.item())

    def limit_average_decay(self, total_steps: int) -> None:
        """Limit the decay so that the average covers at most about a third of the steps, 1 / (1 - decay).

        Otherwise, early and late weights of a short run would have the same share.
        """
        self.decay = min(self.config.average, max(0.0, 1.0 - 3.0 / max(total_steps, 1)))

    @torch.no_grad()
    def copy_to_model(self) -> None:
        """Copy the masters into the weights of the model."""
        if self.low_precision:
            torch.ops.aten._foreach_copy_(
                [self.ranks.local(self.params[n]) for n in self.low_precision],
                [self.masters[n] for n in self.low_precision],
            )

    @torch.no_grad()
    def load(self, weights: dict[str, Tensor]) -> None:
        """Set the masters of this process and the weights of the model."""
        for name, master in self.masters.items():
            master.copy_(weights[name])
        self.copy_to_model()

    @property
    def evaluates_current_weights(self) -> bool:
        """Whether the masters themselves are evaluated, without averaging or interpolation."""
        return self.average is None and not self.start_share

    def evaluation_weights(self) -> dict[str, Tensor]:
        """The weights to evaluate (this process's parts).

        They are the average or the masters, interpolated to the initial weights if ``start_share`` is set.
        """
        source = self.average if self.average is not None else self.masters
        return self.interpolate_to_start(source, self.start_share) if self.start_share else source

    def interpolate_to_start(self, weights: dict[str, Tensor], share: float) -> dict[str, Tensor]:
        """``(1 - share) * weights + share * start`` (Wortsman et al., 2022, equation 1)."""
        return {n: torch.lerp(w.detach(), self.start[n], share) for n, w in weights.items()}

    def weights(self) -> dict[str, Tensor]:
        """A copy of the weights to evaluate and to save."""
        return {name: w.clone() for name, w in self._full_tensors(self.evaluation_weights()).items()}

    def _full_tensors(self, parts: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: self.ranks.full_tensor(w.detach(), self.shapes[name]) for name, w in parts.items()}

    def tensors(self) -> dict[str, Tensor]:
        """The complete state of the optimizer, by name."""
        out = {f"master/{n}": m for n, m in self._full_tensors(self.masters).items()}
        for name, master in self.masters.items():
            for optimizer in self.optimizers:
                for key, value in optimizer.state.get(master, {}).items():
                    out[f"{key}/{name}"] = self.ranks.full_tensor(value, self.shapes[name])
        if self.average is not None:
            out |= {f"average/{n}": w for n, w in self._full_tensors(self.average).items()}
            out["averaged"] = self.num_averaged
        return out

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state that ``tensors`` returned."""
        part = self.ranks.part
        self.load({n: part(tensors[f"master/{n}"]) for n in self.masters})
        for name, master in self.masters.items():
            for optimizer in self.optimizers:
                if any(master is p for group in optimizer.param_groups for p in group["params"]):
                    state = {
                        k: part(tensors[f"{k}/{name}"]).to(master.device, copy=True)
                        for k in SAVED_STATE
                        if f"{k}/{name}" in tensors
                    }
                    if state:
                        optimizer.state[master] = state
        if self.average is not None:
            self.average = {
                n: part(tensors[f"average/{n}"]).to(m.device, copy=True) for n, m in self.masters.items()
            }
            # Checkpoints of earlier versions have no count, and their averages are not bias-corrected.
            self.num_averaged = tensors.get("averaged", torch.tensor(math.inf)).clone()


def in_fp32(grad: Tensor) -> Tensor:
    """A gradient in fp32; on a GPU uninitialized memory, which the caller fills for all gradients at once."""
    return torch.empty_like(grad, dtype=torch.float32) if grad.is_cuda else grad.float()


def has_weight_decay(name: str, weight: Tensor) -> bool:
    """Whether weight decay applies: to matrices and token embeddings, not to biases, norms and positions."""
    return weight.ndim >= 2 and not any(part in name for part in ("positions", "segments", "relative"))


def _lr_factor(name: str, num_layers: int, config: FitConfig) -> float:
    """The learning-rate factor of a weight.

    This is the layer-wise decay (ELECTRA, Clark et al., 2020), for token embeddings times ``embedding_lr``.
    Positions, segments and norms get a gradient in each step, so ``embedding_lr`` does not apply to them.
    """
    if name.startswith(("embeddings.", "target_embeddings.", "encoder.relative.")):
        is_dense = any(part in name for part in ("positions", "segments", "norm", "relative"))
        return config.layer_decay ** (num_layers + 1) * (1.0 if is_dense else config.embedding_lr)
    depth = _depth(name)
    return 1.0 if depth is None else config.layer_decay ** (num_layers - depth)


def _depth(name: str) -> int | None:
    """The layer of a weight, counted from 0 at the input; None outside the encoder layers."""
    match = re.match(r"encoder\.layers\.(\d+)\.", name)
    return int(match[1]) if match else None
