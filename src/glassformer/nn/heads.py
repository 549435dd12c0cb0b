"""Heads for classification, answer spans and masked language modeling."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import BadValueError, ConfigError, ShapeError
from glassformer.nn.dropout import Dropout
from glassformer.nn.feedforward import ACTIVATIONS


class ClassificationHead(nn.Module):
    """A linear layer, or an MLP with one hidden layer. Always computes in fp32.

    Args:
        kind: "linear" or "mlp".
        hidden: width of the MLP's hidden layer; None: ``d_model``.
        dropout: rate before the last linear layer.
        activation: activation of the hidden layer: "relu", "gelu" or "none" (linear).
        input_dropout: rate before the hidden layer.
        norm_eps: eps of a layer norm after the activation of the hidden layer; None: no norm.
        bias: whether the hidden layer has a bias.
        norm_bias: whether the norm has a bias.

    Raises:
        ConfigError: there is no class or hidden unit, the kind or activation is unknown, or a linear head has
            an activation or ``input_dropout``.
        ShapeError: ``forward`` gets an input of another width.
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
        norm_eps: float | None = None,
        bias: bool = True,
        norm_bias: bool = True,
    ):
        super().__init__()
        if num_labels < 1:
            raise ConfigError(f"a head needs at least one class, got {num_labels}", where="head")
        if kind not in ("linear", "mlp"):
            raise BadValueError(f"unknown head type {kind!r}", where="head", fix="Use linear or mlp")
        if activation not in (*ACTIVATIONS, "none"):
            raise BadValueError(
                f"unknown activation {activation!r}", where="head_activation", fix="Use relu, gelu or none"
            )
        if kind == "linear" and (activation != "relu" or input_dropout):
            key = "head_activation" if activation != "relu" else "head_input_dropout"
            raise ConfigError("a linear head has no hidden layer", where=key, fix="Use head = mlp")
        self.d_model = d_model
        self.dropout = Dropout(dropout)
        self.input_dropout = Dropout(input_dropout)
        self.activation = activation
        self.norm: nn.LayerNorm | None = None
        if kind == "linear":
            self.hidden = None
            self.out = nn.Linear(d_model, num_labels)
        else:
            width = d_model if hidden is None else hidden
            if width < 1:
                raise ConfigError(f"a hidden layer needs at least one unit, got {width}", where="head")
            self.hidden = nn.Linear(d_model, width, bias)
            if norm_eps is not None:
                self.norm = nn.LayerNorm(width, eps=norm_eps, bias=norm_bias)
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
            x = x if self.norm is None else self.norm(x)
        return self.out(self.dropout(x))


def make_head(config: Any, width: int) -> ClassificationHead:
    """The classification head of a model with this config, for pooled vectors of ``width`` features."""
    c, norm_options = config, {}
    if getattr(c, "head_norm", False):
        norm_options = {"norm_eps": c.encoder.eps, "bias": c.head_bias, "norm_bias": c.encoder.norm_bias}
    return ClassificationHead(
        width,
        c.num_labels,
        c.head_type,
        c.head_hidden,
        c.head_dropout,
        c.head_activation,
        c.head_input_dropout,
        **norm_options,
    )


class SpanHead(nn.Module):
    """Start and end logits of an answer span for each token (Devlin et al., 2019). Always computes in fp32.

    Args:
        dropout: rate before the last linear layer.
        activation: activation of a hidden layer, before a norm; None: no hidden layer and no norm.
        eps, norm_bias: eps of the norm, and whether it has a bias.
        bias: whether the hidden layer has a bias.
    """

    def __init__(
        self,
        d_model: int,
        dropout: float = 0.0,
        activation: str | None = None,
        eps: float = 1e-5,
        bias: bool = True,
        norm_bias: bool = True,
    ):
        super().__init__()
        self.activation = activation
        self.dense = nn.Linear(d_model, d_model, bias) if activation else None
        self.norm = nn.LayerNorm(d_model, eps=eps, bias=norm_bias) if activation else None
        self.dropout = Dropout(dropout)
        self.out = nn.Linear(d_model, 2)

    def forward(self, x: Tensor) -> Tensor:  # [N, D] -> [N, 2], start and end
        x = x.to(self.out.weight.dtype)
        if self.activation is not None and self.dense is not None and self.norm is not None:
            x = self.norm(ACTIVATIONS[self.activation](self.dense(x)))
        return self.out(self.dropout(x))


class MaskedLMHead(nn.Module):
    """BERT's masked-language-modeling head: dense, activation, norm, then the tied token embeddings.

    Args:
        width: width of the token embeddings; None: ``d_model``.
        bias, norm_bias: whether the dense layer and the norm have a bias.
    """

    def __init__(
        self,
        d_model: int,
        vocab_size: int,
        activation: str,
        eps: float,
        width: int | None = None,
        bias: bool = True,
        norm_bias: bool = True,
    ):
        super().__init__()
        self.dense = nn.Linear(d_model, width or d_model, bias)
        self.norm = nn.LayerNorm(width or d_model, eps=eps, bias=norm_bias)
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.activation = activation

    def transform(self, x: Tensor) -> Tensor:
        """The head without the product with the token embeddings: ``[M, D]`` -> ``[M, width]``."""
        return self.norm(ACTIVATIONS[self.activation](self.dense(x.to(self.dense.weight.dtype))))

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        """``[M, D]`` and the token embeddings ``table`` ``[V, width]`` -> ``[M, V]``."""
        x = self.transform(x)
        return nn.functional.linear(x, table.to(x.dtype), self.bias.to(x.dtype))
