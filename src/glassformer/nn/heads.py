"""What stands on the encoder: classification, masked words, next sentence, where an answer stands."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import BadValueError, ConfigError, ShapeError
from glassformer.nn.dropout import Dropout
from glassformer.nn.feedforward import ACTIVATIONS


class ClassificationHead(nn.Module):
    """Linear, or Linear, activation, Dropout, Linear. Computes in fp32: it is small, and logits are compared.

    Args:
        hidden: width of the MLP's hidden layer; None with ``kind="mlp"``: ``d_model``.
        dropout: before the last linear layer.
        activation: of the hidden layer: "relu", "gelu", or "none", which leaves it linear.
        input_dropout: before the hidden layer.

    Raises:
        ConfigError: fewer than one class or one hidden unit, a kind that is neither linear nor mlp, an
            unknown activation, either of the last two without a hidden layer.
        ShapeError: (forward) an input of another width, naming both.
    """

    def __init__(
        self,
        d_model: int,
        num_labels: int,
        kind: str = "linear",
        hidden: int | None = None,
        dropout: float = 0.0,
        activation: str = "relu",
        input_dropout: float = 0.0,
    ):
        super().__init__()
        if num_labels < 1:
            raise ConfigError(f"a head needs at least one class, got {num_labels}", where="head")
        if kind not in ("linear", "mlp"):
            raise BadValueError(f"no kind of head {kind!r}", where="head", fix="Use linear or mlp")
        if activation not in ("relu", "gelu", "none"):
            raise BadValueError(
                f"no activation {activation!r}", where="head_activation", fix="Use relu, gelu or none"
            )
        if kind == "linear" and (activation != "relu" or input_dropout):
            key = "head_activation" if activation != "relu" else "head_input_dropout"
            raise ConfigError("a linear head has no hidden layer", where=key, fix="Use head = mlp")
        self.d_model = d_model
        self.dropout = Dropout(dropout)
        self.input_dropout = Dropout(input_dropout)
        self.activation = activation
        if kind == "linear":
            self.hidden = None
            self.out = nn.Linear(d_model, num_labels)
        else:
            width = d_model if hidden is None else hidden
            if width < 1:
                raise ConfigError(f"a hidden layer needs at least one unit, got {width}", where="head")
            self.hidden = nn.Linear(d_model, width)
            self.out = nn.Linear(width, num_labels)

    def forward(self, x: Tensor) -> Tensor:  # [B, D] -> [B, C]
        if x.shape[-1] != self.d_model:
            raise ShapeError(
                f"the head expects {self.d_model} features, the encoder gives {x.shape[-1]}",
                where="head",
                fix=f"Build it with d_model={x.shape[-1]}",
            )
        x = x.to(self.out.weight.dtype)
        if self.hidden is not None:
            x = self.hidden(self.input_dropout(x))
            x = x if self.activation == "none" else ACTIVATIONS[self.activation](x)
        return self.out(self.dropout(x))


def head_of(config: Any, width: int) -> ClassificationHead:
    """The classification head that a model's config describes, on vectors of that width."""
    c = config
    return ClassificationHead(
        width,
        c.num_labels,
        c.head_type,
        c.head_hidden,
        c.head_dropout,
        c.head_activation,
        c.head_input_dropout,
    )


class SpanHead(nn.Module):
    """Where an answer begins and where it ends: two logits a token (Devlin et al., 2019). Computes in fp32.

    Args:
        dropout: before the linear layer.
    """

    def __init__(self, d_model: int, dropout: float = 0.0):
        super().__init__()
        self.dropout = Dropout(dropout)
        self.out = nn.Linear(d_model, 2)

    def forward(self, x: Tensor) -> Tensor:  # [N, D] -> [N, 2], begin and end
        return self.out(self.dropout(x.to(self.out.weight.dtype)))


class MaskedLMHead(nn.Module):
    """BERT's masked-word head: dense, activation, norm, then the transposed token table plus a bias.

    Args:
        width: of the token table; None: ``d_model``.
    """

    def __init__(self, d_model: int, vocab_size: int, activation: str, eps: float, width: int | None = None):
        super().__init__()
        self.dense = nn.Linear(d_model, width or d_model)
        self.norm = nn.LayerNorm(width or d_model, eps=eps)
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.activation = activation

    def transform(self, x: Tensor) -> Tensor:
        """All but the product with the table: ``[M, D]`` -> ``[M, width]``."""
        return self.norm(ACTIVATIONS[self.activation](self.dense(x.to(self.dense.weight.dtype))))

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        """``[M, D]`` and the token table ``[V, width]`` -> ``[M, V]``."""
        x = self.transform(x)
        return nn.functional.linear(x, table.to(x.dtype), self.bias.to(x.dtype))
