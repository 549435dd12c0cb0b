"""LoRA (Hu et al., 2022): the weights stay as they are, and a product of two thin matrices is learned beside them.

    W' = W + (alpha / r) B A        A [r, D_in] starts random, B [D_out, r] at 0: at first nothing changes

Queries and values get one pair each, as in the paper; they lie in one fused matrix here. The sum is made once a
forward pass (D x D numbers), not once a token, and ``merge`` leaves a plain model.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from glassformer.errors import ConfigError

PARTS = {"query": 0, "value": 2}  # thirds of the fused product that learn


class LowRank(nn.Module):
    """Adds low-rank updates to a fused weight ``[3 D, D]``."""

    def __init__(self, d_model: int, rank: int, alpha: float):
        super().__init__()
        self.d_model, self.scale = d_model, alpha / rank
        self.down = nn.ParameterDict({part: nn.Parameter(torch.empty(rank, d_model)) for part in PARTS})
        self.up = nn.ParameterDict({part: nn.Parameter(torch.zeros(d_model, rank)) for part in PARTS})
        for matrix in self.down.values():
            nn.init.kaiming_uniform_(matrix, a=math.sqrt(5))

    def forward(self, weight: Tensor) -> Tensor:
        query, key, value = weight.chunk(3)
        added = {part: self.scale * (self.up[part] @ self.down[part]) for part in PARTS}
        return torch.cat(
            [query + added["query"].to(weight.dtype), key, value + added["value"].to(weight.dtype)]
        )


def add_lora(model: nn.Module, rank: int, alpha: float = 16.0) -> None:
    """Freeze the encoder and what stands before it, and let low-rank updates of queries and values learn.

    Raises:
        ConfigError: a rank below 1, or above the width.
    """
    layers = model.get_submodule("encoder").layers
    d_model = layers[0].attention.qkv.in_features  # type: ignore[index,union-attr]
    if not 1 <= rank <= d_model:
        raise ConfigError(
            f"lora_rank = {rank} for a width of {d_model}", where="lora_rank", fix="Use 4 to 64"
        )
    for name, p in model.named_parameters():
        if name.startswith(("embeddings.", "encoder.")):
            p.requires_grad_(False)
    for layer in layers:  # type: ignore[union-attr]
        parametrize.register_parametrization(layer.attention.qkv, "weight", LowRank(d_model, rank, alpha))


def merge(model: nn.Module) -> None:
    """Put the updates into the weights; the model is plain again."""
    for layer in getattr(model.get_submodule("encoder"), "layers", ()):
        if parametrize.is_parametrized(layer.attention.qkv, "weight"):
            parametrize.remove_parametrizations(layer.attention.qkv, "weight", leave_parametrized=True)


def adapter(model: nn.Module) -> dict[str, Tensor]:
    """The updates by layer and part: ``{i}.query.A`` ``[r, D]`` and ``{i}.query.B`` ``[D, r]``, fp32."""
    out = {}
    for number, layer in enumerate(getattr(model.get_submodule("encoder"), "layers", ())):
        if parametrize.is_parametrized(layer.attention.qkv, "weight"):
            low: LowRank = layer.attention.qkv.parametrizations.weight[0]
            for part in PARTS:
                out[f"{number}.{part}.A"] = low.down[part].detach().float().clone()
                out[f"{number}.{part}.B"] = low.up[part].detach().float().clone()
    return out
