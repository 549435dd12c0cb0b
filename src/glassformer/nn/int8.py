"""The encoder's linear layers in int8, for prediction: what replaces them in a copy of a model."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.nn.feedforward import FeedForward
from glassformer.nn.kernels import int8, ops
from glassformer.nn.linear import Linear
from glassformer.runtime import is_compiling


class Int8Linear(nn.Module):
    """``f(x W^T + b)`` by whole numbers of 8 bits, ``f`` one of ``kernels.int8.ACTIVATIONS``; no gradient.

    It has no parameters: what it multiplies by is laid out for this process's kernels and is never saved.
    """

    def __init__(self, layer: nn.Linear, activation: str = "none"):
        super().__init__()
        self.packed = int8.pack(layer.weight, layer.bias)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:  # [..., in] -> [..., out]
        if torch.is_grad_enabled() and x.requires_grad:
            raise RuntimeError("products in int8 have no gradient: ask the model in fp32")
        if is_compiling():
            return ops.int8_linear(x, *self.packed, self.activation)
        if x.ndim != 2:
            return int8.linear(x.flatten(0, -2), self.packed, self.activation).unflatten(0, x.shape[:-1])
        return int8.linear(x, self.packed, self.activation)

    def part(self, x: Tensor, begin: int, end: int) -> Tensor:  # [N, in] -> [N, end - begin]
        """Columns ``begin`` to ``end`` of the result alone."""
        found = self.packed.columns_between(begin, end)
        return self(x)[:, begin:end] if found is None else int8.linear(x, found, self.activation)


class Int8FeedForward(nn.Module):
    """``FeedForward`` in evaluation, its activation being part of the first product."""

    def __init__(self, layer: FeedForward):
        super().__init__()
        self.up = Int8Linear(layer.up, layer.activation)
        self.down = Int8Linear(layer.down)

    def forward(self, x: Tensor) -> Tensor:  # [N, D] -> [N, D]
        return self.down(self.up(x))


def in_int8(model: Any) -> Any:
    """A copy of a model whose encoder multiplies in int8; the rest is in bf16, or without it in fp32.

    Tables, pooling and head stay in fp32. ``kernels.int8.why_not`` says nothing.
    """
    model = copy.deepcopy(model)
    for part in list(model.encoder.modules()):
        for name, child in part.named_children():
            if isinstance(child, FeedForward):
                setattr(part, name, Int8FeedForward(child))
            elif isinstance(child, Linear):
                setattr(part, name, Int8Linear(child))
    return model.set_compute_dtype(int8.compute_dtype())


def multiplies(model: Any) -> bool:
    """Whether a model has linear layers that ``in_int8`` replaces, as every Transformer's encoder."""
    return any(isinstance(part, Linear) for part in getattr(model, "encoder", nn.Identity()).modules())


def precision_of(model: Any) -> str:
    """What a model that was made ready for prediction computes in: fp32, bf16 or int8."""
    if any(isinstance(part, Int8Linear) for part in model.modules()):
        return "int8"
    layers = getattr(model, "encoder", model)  # a linear model has none
    return "bf16" if any(p.dtype == torch.bfloat16 for p in layers.parameters()) else "fp32"
