"""Position-wise feed-forward networks: two linear layers with an activation or a gate between them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import suggest
from glassformer.errors import BadValueError
from glassformer.nn.dropout import Dropout
from glassformer.nn.kernels import gelu_norm, ops
from glassformer.nn.linear import Linear
from glassformer.runtime import is_compiling


def gelu(x: Tensor) -> Tensor:
    """The exact GELU, ``x * Phi(x)`` (Hendrycks and Gimpel, 2016); uses our kernel if it supports ``x``."""
    if not gelu_norm.can_gelu(x):
        return F.gelu(x)
    return ops.gelu(x) if is_compiling() else gelu_norm.gelu(x)


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU with the tanh approximation of ``Phi``."""
    if is_compiling() or not gelu_norm.can_gelu(x, tanh=True):
        return F.gelu(x, approximate="tanh")
    return gelu_norm.gelu(x, tanh=True)


def quick_gelu(x: Tensor) -> Tensor:
    """GELU with a logistic curve for ``Phi``: ``x * sigmoid(1.702 x)`` (CLIP)."""
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "quick_gelu": quick_gelu,
    "silu": F.silu,
}


def check_activation(name: str) -> None:
    """Raise ConfigError for a name that is not in ``ACTIVATIONS``."""
    if name not in ACTIVATIONS:
        raise BadValueError(f"unknown activation {name!r}", fix=suggest(name, list(ACTIVATIONS)))


class GatedFeedForward(nn.Module):
    """``W2 (f(W1 x) * W3 x)`` (Shazeer, 2020); f is SiLU (SwiGLU) or GELU (GeGLU), ``up`` stacks W1 and W3.

    Args:
        dropout: rate on the hidden units, in training; the encoder layer applies dropout to the output.
        activation: f, one of ``ACTIVATIONS``.
        bias: whether the linear layers have a bias.
        up_bias: whether ``up`` has a bias; None: as ``bias``.

    Raises:
        ConfigError: the activation is unknown.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        dropout: float = 0.0,
        activation: str = "silu",
        bias: bool = True,
        up_bias: bool | None = None,
    ):
        super().__init__()
        check_activation(activation)
        self.up = Linear(d_model, 2 * d_ff, bias if up_bias is None else up_bias)
        self.down = Linear(d_ff, d_model, bias)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def apply_gate(self, gate: Tensor) -> Tensor:
        """Apply f to the first half of the output of ``up``."""
        return ACTIVATIONS[self.activation](gate)

    def forward(self, x: Tensor) -> Tensor:  # [N, D] -> [N, D]
        gate, up = self.up(x).chunk(2, -1)
        return self.down(self.dropout(self.apply_gate(gate) * up))


class FeedForward(nn.Module):
    """``W2 f(W1 x + b1) + b2`` with an activation f (Vaswani et al., 2017, equation 2).

    Args:
        dropout: rate on the hidden units, in training; the encoder layer applies dropout to the output.
        bias: whether the linear layers have a bias.

    Raises:
        ConfigError: the activation is not in ``ACTIVATIONS``, or the rate is outside [0, 1).
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: str = "gelu",
        dropout: float = 0.0,
        bias: bool = True,
    ):
        super().__init__()
        check_activation(activation)
        self.up = Linear(d_model, d_ff, bias)
        self.down = Linear(d_ff, d_model, bias)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:  # [N, D] -> [N, D]
        return self.down(self.dropout(ACTIVATIONS[self.activation](self.up(x))))
