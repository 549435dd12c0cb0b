"""Int8 quantization of the encoder's linear layers, for prediction."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.nn.feedforward import ACTIVATIONS, FeedForward
from glassformer.nn.kernels import int8, ops
from glassformer.nn.linear import Linear
from glassformer.runtime import is_compiling


class Int8Linear(nn.Module):
    """``f(x W^T + b)`` in int8 without a gradient; ``f`` is one of ``kernels.int8.ACTIVATIONS``.

    The module has no parameters: its weights have the memory layout of this CPU's kernels and are never
    saved.
    """

    def __init__(self, layer: nn.Linear, activation: str = "none"):
        super().__init__()
        self.packed = int8.pack(layer.weight, layer.bias)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:  # [..., in] -> [..., out]
        if torch.is_grad_enabled() and x.requires_grad:
            raise RuntimeError("int8 layers have no gradient: use the model in fp32")
        if is_compiling():
            return ops.int8_linear(x, *self.packed, self.activation)
        if x.ndim != 2:
            return int8.linear(x.flatten(0, -2), self.packed, self.activation).unflatten(0, x.shape[:-1])
        return int8.linear(x, self.packed, self.activation)

    def part(self, x: Tensor, begin: int, end: int) -> Tensor:  # [N, in] -> [N, end - begin]
        """The columns ``begin`` to ``end`` of the output."""
        columns = self.packed.columns_between(begin, end)
        return self(x)[:, begin:end] if columns is None else int8.linear(x, columns, self.activation)


class Int8FeedForward(nn.Module):
    """``FeedForward`` in evaluation mode, with the activation fused into the first product if possible."""

    def __init__(self, layer: FeedForward):
        super().__init__()
        fused = layer.activation in int8.ACTIVATIONS
        self.up = Int8Linear(layer.up, layer.activation if fused else "none")
        self.activation = None if fused else ACTIVATIONS[layer.activation]
        self.down = Int8Linear(layer.down)

    def forward(self, x: Tensor) -> Tensor:  # [N, D] -> [N, D]
        x = self.up(x)
        return self.down(x if self.activation is None else self.activation(x))


def quantized_copy(model: Any) -> Any:
    """A copy of the model with int8 linear layers in its encoder; other encoder layers use bf16 if possible.

    Embeddings, pooling and head stay in fp32. Requires that ``kernels.int8.why_not`` returns None.
    """
    model = copy.deepcopy(model)
    for part in list(model.encoder.modules()):
        for name, child in part.named_children():
            if isinstance(child, FeedForward):
                setattr(part, name, Int8FeedForward(child))
            elif isinstance(child, Linear):
                setattr(part, name, Int8Linear(child))
    return model.set_compute_dtype(int8.compute_dtype())


def has_linear_layers(model: Any) -> bool:
    """Whether a model has linear layers that ``quantized_copy`` replaces; every Transformer encoder does."""
    return any(isinstance(part, Linear) for part in getattr(model, "encoder", nn.Identity()).modules())


def precision_of(model: Any) -> str:
    """The precision in which a model computes predictions: fp32, bf16 or int8."""
    if any(isinstance(part, Int8Linear) for part in model.modules()):
        return "int8"
    layers = getattr(model, "encoder", model)  # a linear model has no encoder
    return "bf16" if any(p.dtype == torch.bfloat16 for p in layers.parameters()) else "fp32"
