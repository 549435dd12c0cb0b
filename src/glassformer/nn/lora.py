"""LoRA: low-rank updates of frozen weights (Hu et al., 2022).

    W' = W + (alpha / r) B A        A [r, D_in] starts random, B [D_out, r] at 0, so W' starts as W

Every linear layer of the encoder can have an update. By default, as in the paper, only queries and values
have one. The weights of queries, keys and values are one fused matrix here. W' is computed once per forward
pass. ``merge`` adds the updates to the weights and makes the model a plain model again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from glassformer.config import suggest
from glassformer.errors import BadValueError, ConfigError
from glassformer.nn.feedforward import GatedFeedForward

# Linear layer of an encoder layer -> the blocks of rows of its weight, called parts; each can have an update.
LAYERS = {
    "attention.qkv": ("query", "key", "value"),
    "attention.out": ("out",),
    "feed_forward.up": ("up",),
    "feed_forward.down": ("down",),
}
ALL_PARTS = tuple(part for parts in LAYERS.values() for part in parts)
PARTS = ("query", "value")  # the default targets
SHORT_NAMES = {"q": "query", "k": "key", "v": "value", "o": "out", "output": "out"}
ALL_LINEAR = "all-linear"


def select_parts(targets: str | Sequence[str]) -> tuple[str, ...]:
    """The parts that ``targets`` selects, without duplicates, in the order of ``ALL_PARTS``.

    Args:
        targets: a list or a comma-separated string of q, k, v, o (attention output), up and down
            (feed-forward network), the longer names in ``ALL_PARTS``, or all-linear.
    """
    names = [name.strip() for name in targets.split(",")] if isinstance(targets, str) else list(targets)
    known = [*SHORT_NAMES, *ALL_PARTS, ALL_LINEAR]
    for name in names:
        if name not in known:
            raise BadValueError(
                f"unknown linear layer {name!r}", where="lora_targets", fix=suggest(str(name), known)
            )
    if not names:
        raise ConfigError("no linear layers selected", where="lora_targets", fix=f"Known: {', '.join(known)}")
    selected = {SHORT_NAMES.get(name, name) for name in names}
    return tuple(part for part in ALL_PARTS if part in selected or ALL_LINEAR in selected)


class LowRank(nn.Module):
    """Parametrization that adds low-rank updates to parts of a weight, each ``[rows, D_in]``.

    Args:
        d_in: number of columns of the weight.
        index: name of a part -> its index in the weight.
        rows: number of rows of each part; None: ``d_in``.
    """

    def __init__(
        self,
        d_in: int,
        rank: int,
        alpha: float,
        index: Mapping[str, int] | None = None,
        rows: int | None = None,
    ):
        super().__init__()
        self.rows, self.scale = rows or d_in, alpha / rank
        self.index = dict(index) if index is not None else {"query": 0, "value": 2}
        self.down = nn.ParameterDict({part: nn.Parameter(torch.empty(rank, d_in)) for part in self.index})
        self.up = nn.ParameterDict({part: nn.Parameter(torch.zeros(self.rows, rank)) for part in self.index})
        for matrix in self.down.values():
            nn.init.kaiming_uniform_(matrix, a=math.sqrt(5))

    def forward(self, weight: Tensor) -> Tensor:
        blocks = list(weight.split(self.rows))
        for part, block in self.index.items():
            update = self.scale * (self.up[part] @ self.down[part])
            blocks[block] = blocks[block] + update.to(weight.dtype)
        return torch.cat(blocks)


def add_lora(model: nn.Module, rank: int, alpha: float = 16.0, targets: str | Sequence[str] = PARTS) -> None:
    """Freeze embeddings and encoder, and add trainable low-rank updates of the ``targets``."""
    layers: Any = model.get_submodule("encoder").layers
    selected = select_parts(targets)
    linears = [(linear, parts) for _, linear, parts in _linear_layers(model) if set(parts) & set(selected)]
    width = min(min(linear.in_features, linear.out_features) for linear, _ in linears)
    width = min(width, layers[0].attention.qkv.in_features)
    if not 1 <= rank <= width:
        raise BadValueError(
            f"lora_rank = {rank} is not from 1 to the width {width}", where="lora_rank", fix="Use 4 to 64"
        )
    gated = [m for m in model.modules() if isinstance(m, GatedFeedForward)]
    # In ``transformers``, such networks have two layers instead of ``up``, except in ModernBERT.
    is_split = any(m.activation == "silu" or (m.up.bias is None) != (m.down.bias is None) for m in gated)
    if is_split and (unsupported := [part for part in selected if part in ("up", "down")]):
        what = f"PEFT has no format for updates of {unsupported[0]!r} in this gated feed-forward network"
        raise ConfigError(what, where="lora_targets", fix="Use q,k,v,o")
    for name, p in model.named_parameters():
        if name.startswith(("embeddings.", "encoder.")):
            p.requires_grad_(False)
    for linear, parts in linears:
        index = {part: block for block, part in enumerate(parts) if part in selected}
        rows = linear.out_features // len(parts)
        update = LowRank(linear.in_features, rank, alpha, index, rows)
        parametrize.register_parametrization(linear, "weight", update)


def _linear_layers(model: nn.Module) -> Iterator[tuple[int, nn.Linear, tuple[str, ...]]]:
    """Yield layer number, linear layer and its parts; nothing for a model without encoder layers."""
    for number, layer in enumerate(getattr(model.get_submodule("encoder"), "layers", ())):
        for path, parts in LAYERS.items():
            yield number, layer.get_submodule(path), parts


def merge(model: nn.Module) -> None:
    """Add the updates to the weights and remove the parametrizations."""
    for _, linear, _ in _linear_layers(model):
        if parametrize.is_parametrized(linear, "weight"):
            parametrize.remove_parametrizations(linear, "weight", leave_parametrized=True)


def adapter(model: nn.Module) -> dict[str, Tensor]:
    """The updates in fp32, named like ``{i}.query.A`` ``[r, D_in]`` and ``{i}.query.B`` ``[D_out, r]``."""
    out = {}
    for number, linear, _ in _linear_layers(model):
        if parametrize.is_parametrized(linear, "weight"):
            lora: Any = linear.parametrizations.weight[0]  # type: ignore[union-attr,index]  # registered by torch
            for part in lora.index:
                out[f"{number}.{part}.A"] = lora.down[part].detach().float().clone()
                out[f"{number}.{part}.B"] = lora.up[part].detach().float().clone()
    return out


def part_weights(model: nn.Module) -> dict[str, Tensor]:
    """Views of the weights ``[D_out, D_in]``, keyed by layer and part (``{i}.query``)."""
    return {
        f"{number}.{part}": block
        for number, linear, parts in _linear_layers(model)
        for part, block in zip(parts, linear.weight.detach().chunk(len(parts)), strict=True)
    }
