"""Transformer encoder over packed sequences, shared by all text and image models.

The tokens of a batch follow each other without padding; a ``Packing`` has the lengths of its B sequences.
Shapes: N tokens in all, D features, H heads.

Post-norm (Vaswani et al., 2017; BERT):    x = norm(x + f(x))
Pre-norm  (Xiong et al., 2020; ViT):       x = x + f(norm(x)),  then one norm at the very end
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor, nn

from glassformer.config import check_heads, suggest
from glassformer.errors import BadValueError, ConfigError
from glassformer.nn.attention import LONG_INPUT, MultiHeadAttention
from glassformer.nn.cheaper import LinearAttention, LocalAttention, check_window
from glassformer.nn.disentangled import Disentangled, DisentangledAttention, DistanceTable
from glassformer.nn.dropout import Dropout, check_rate, stochastic_depth
from glassformer.nn.feedforward import FeedForward, GatedFeedForward
from glassformer.nn.linear import LayerNorm, in_chunks, uses_chunks
from glassformer.nn.positions import RelativeBias
from glassformer.nn.trace import LayerRecord, TraceRecord
from glassformer.packing import Packing
from glassformer.runtime import check_fits_memory, return_freed_memory
from glassformer.types import Activation, AttentionKind, FeedForwardKind, NormOrder


@dataclass(frozen=True)
class EncoderConfig:
    """Sizes and options of an encoder.

    Raises:
        ConfigError: ``num_heads`` does not divide ``d_model``, a size is below 1, the kind of attention is
            unknown, or options are incompatible.
    """

    d_model: int
    num_layers: int
    num_heads: int
    d_ff: int
    norm: NormOrder = "post"
    activation: Activation = "gelu"
    eps: float = 1e-12  # of the layer norms
    dropout: float = 0.0  # on the output of each sub-layer
    attention_dropout: float = 0.0  # on the attention weights
    stochastic_depth: float = 0.0  # rate of the last layer; rates grow linearly from 0 at the first layer
    final_norm: bool = False
    zero_init: bool = False  # residual branches start at 0, so a pre-norm encoder starts as the identity
    feed_forward_dropout: float = 0.0  # inside the feed-forward network, after its activation
    attention: AttentionKind = "full"  # local: within the window; linear: no softmax (nn/cheaper.py)
    attention_window: int = 64  # local attention: positions on either side
    relative_buckets: int = 0  # buckets of relative positions, shared by all layers (nn/positions.py)
    feed_forward: FeedForwardKind = "plain"  # swiglu, geglu: gated (nn/feedforward.py)
    layer_scale: float | None = None  # initial value of LayerScale on residual branches; None: no LayerScale
    rotary_base: float | None = None  # base of rotary positions (nn/positions.py); None: no rotary positions
    rotary_base_local: float | None = None  # base in layers with local attention; None: rotary_base
    rotary_factor: float = 1.0  # rotary positions are divided by this number
    full_layers: tuple[int, ...] = ()  # layers, from 0, that keep full attention
    first_norm: bool = True  # pre-norm: whether the first layer has a norm before its attention
    attention_bias: bool = True
    feed_forward_bias: bool = True
    # Gated networks: whether the first layer has a bias; None: as feed_forward_bias.
    feed_forward_up_bias: bool | None = None
    norm_bias: bool = True
    layer_order: tuple[int, ...] = ()  # the layer that each of the num_layers steps runs; (): each layer once
    disentangled: Disentangled | None = None  # DeBERTa: separate scores for content and distance
    causal: bool = False  # whether each position attends only to itself and to earlier ones

    def __post_init__(self) -> None:
        if min(self.d_model, self.num_layers, self.num_heads, self.d_ff) < 1:
            raise ConfigError("d_model, num_layers, num_heads and d_ff must be at least 1", where="encoder")
        check_heads(self.d_model, self.num_heads)
        for name in ("dropout", "attention_dropout", "stochastic_depth", "feed_forward_dropout"):
            check_rate(name, getattr(self, name))
        kinds = get_args(AttentionKind)
        if self.attention not in kinds:
            what = f"unknown attention {self.attention!r}"
            raise BadValueError(what, where="attention", fix=suggest(self.attention, kinds))
        check_window(self.attention_window, "attention_window")
        forwards = get_args(FeedForwardKind)
        if self.feed_forward not in forwards:
            what = f"unknown feed-forward network {self.feed_forward!r}"
            raise BadValueError(what, where="feed_forward", fix=suggest(self.feed_forward, forwards))
        if any(not 0 <= i < self.num_layers for i in self.full_layers):
            what = f"full_layers must be from 0 to {self.num_layers - 1}, got {self.full_layers}"
            raise ConfigError(what, where="full_layers", fix="Count from 0")
        if (order := self.layer_order) and (
            len(order) != self.num_layers or {*order} != {*range(max(order) + 1)}
        ):
            what = f"layer_order = {order} must have {self.num_layers} entries "
            what += "and use every layer from 0 to its maximum"
            raise ConfigError(what, where="layer_order", fix="Name one layer per step, counted from 0")
        if self.rotary_base is not None and self.d_model // self.num_heads % 2:
            what = f"rotary positions need heads of an even width, not of {self.d_model // self.num_heads}"
            raise ConfigError(what, where="rotary_base", fix="Use another num_heads")
        if not self.first_norm and self.norm != "pre":
            raise ConfigError("first_norm=False requires norm='pre'", where="first_norm", fix="Leave it out")
        if self.attention != "full" and self.attention_dropout:
            what = f"{self.attention} attention does not support dropout on its weights"
            raise ConfigError(what, where="attention_dropout", fix="Use 0, or attention = full")
        if self.attention != "full" and self.relative_buckets:
            what = f"{self.attention} attention does not support relative positions"
            raise ConfigError(what, where="relative_buckets", fix="Use 0, or attention = full")

        if self.disentangled is not None and not (
            (self.attention, self.relative_buckets, self.rotary_base) == ("full", 0, None)
            and self.attention_bias
        ):
            what = "disentangled attention requires full attention with biases and no other positions"
            raise ConfigError(
                what, where="disentangled", fix="Leave it out, or use the defaults of the other options"
            )
        if self.causal and (
            self.attention != "full" or self.relative_buckets or self.disentangled is not None
        ):
            what = "a causal encoder requires full attention without relative positions"
            raise ConfigError(what, where="causal", fix="Use causal=False, or the defaults of attention")

    @property
    def is_plain(self) -> bool:
        """Whether the layers are those of Vaswani et al.: all BERT-like formats can represent them."""
        extra = self.relative_buckets or self.feed_forward != "plain" or self.layer_scale is not None
        extra = extra or self.rotary_base is not None or not self.first_norm or self.disentangled is not None
        extra = extra or bool(self.layer_order) or self.causal
        all_biases = self.attention_bias and self.feed_forward_bias and self.norm_bias
        return self.attention == "full" and all_biases and not extra


def attention_of(config: EncoderConfig, number: int = 0) -> MultiHeadAttention:
    """The self-attention module of layer ``number`` (from 0)."""
    c = config
    if c.disentangled is not None:
        sizes = c.d_model, c.num_heads, c.attention_dropout
        return DisentangledAttention(*sizes, c.disentangled, c.dropout)
    options: dict[str, Any] = {
        "bias": c.attention_bias,
        "rotary": c.rotary_base,
        "rotary_factor": c.rotary_factor,
    }
    if c.attention == "local" and number not in c.full_layers:
        options["rotary"] = c.rotary_base_local or c.rotary_base
        return LocalAttention(c.d_model, c.num_heads, c.attention_window, **options)
    if c.attention == "linear" and number not in c.full_layers:
        return LinearAttention(c.d_model, c.num_heads, **options)
    return MultiHeadAttention(c.d_model, c.num_heads, c.attention_dropout, **options)


def norm_of(config: EncoderConfig) -> LayerNorm:
    """A layer norm with the width, eps and bias of this config."""
    return LayerNorm(config.d_model, eps=config.eps, bias=config.norm_bias)


class LayerScale(nn.Module):
    """A learned factor for each feature of a residual branch (Touvron et al., 2021, CaiT)."""

    def __init__(self, d_model: int, initial: float):
        super().__init__()
        self.weight = nn.Parameter(torch.full((d_model,), initial))

    def forward(self, x: Tensor) -> Tensor:  # [..., D] -> [..., D]
        return x * self.weight


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each with a residual connection and a layer norm."""

    def __init__(self, config: EncoderConfig, drop_path: float = 0.0, number: int = 0):
        super().__init__()
        c = config
        self.pre_norm = c.norm == "pre"
        # Only options that are set are passed to the attention, because not every kind accepts them.
        self.attention_options: dict[str, Any] = {"causal": True} if c.causal else {}
        self.attention = attention_of(c, number)
        self.norm1: nn.Module = norm_of(c) if c.first_norm or number else nn.Identity()
        sizes, drop, bias = (c.d_model, c.d_ff), c.feed_forward_dropout, c.feed_forward_bias
        gate = "silu" if c.feed_forward == "swiglu" else c.activation
        self.feed_forward: FeedForward | GatedFeedForward = (
            FeedForward(*sizes, c.activation, drop, bias)
            if c.feed_forward == "plain"
            else GatedFeedForward(*sizes, drop, gate, bias, c.feed_forward_up_bias)
        )
        self.norm2 = norm_of(c)
        self.dropout = Dropout(c.dropout)
        self.drop_path = drop_path
        initial = c.layer_scale
        self.scale1, self.scale2 = (
            nn.Identity() if initial is None else LayerScale(c.d_model, initial) for _ in range(2)
        )

    def forward(
        self,
        x: Tensor,
        packing: Packing,
        rows: Tensor | None = None,
        record: LayerRecord | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """``[N, D]`` -> ``[N, D]``, or ``[B, D]`` with ``rows`` ``[B]``, one token index per sequence.

        ``bias``: relative positions, ``[H, 2 L - 1]`` (see ``attend``) or a table (``nn/disentangled.py``).
        """
        normed = self.norm1(x) if self.pre_norm else x
        # Local and linear attention accept no bias.
        options = self.attention_options if bias is None else {"bias": bias}
        a = self.scale1(self.attention(normed, packing, rows=rows, record=record, **options))
        a = self._branch(a, packing, rows)
        x = x if rows is None else x[rows]
        if not self.training and uses_chunks(x):  # saves memory for long inputs
            del normed
            x = a.add_(x) if self.pre_norm else self.norm1(x, a)  # norm(x + a), in one pass
            if len(x) > LONG_INPUT:
                return_freed_memory()
            return in_chunks(self._feed_forward, x, in_place=True)
        if self.pre_norm:
            x = x + a
            return x + self._branch(self.scale2(self.feed_forward(self.norm2(x))), packing, rows)
        x = self.norm1(x, a)
        return self.norm2(x, self._branch(self.scale2(self.feed_forward(x)), packing, rows))

    def _feed_forward(self, x: Tensor) -> Tensor:
        """The feed-forward network with its residual connection and norm, in evaluation mode."""
        if self.pre_norm:
            return x + self.scale2(self.feed_forward(self.norm2(x)))
        return self.norm2(x, self.scale2(self.feed_forward(x)))

    def padded(self, x: Tensor, mask: Tensor | None, bias: Tensor | None = None) -> Tensor:
        """``forward`` in evaluation mode for padded ``[B, T, D]``; ``mask`` is True at real tokens."""
        options: dict[str, Any] = self.attention_options if bias is None else {"bias": bias}
        if self.pre_norm:
            return self._feed_forward(x + self.scale1(self.attention.padded(self.norm1(x), mask, **options)))
        return self._feed_forward(self.norm1(x + self.scale1(self.attention.padded(x, mask, **options))))

    def _branch(self, x: Tensor, packing: Packing, rows: Tensor | None) -> Tensor:
        packing = packing if rows is None else packing.one_row_each
        return stochastic_depth(self.dropout(x), packing, self.drop_path, self.training)


class Encoder(nn.Module):
    """A stack of layers over packed tokens.

    ``layers`` have the weights. ``steps`` are the layers in the order in which they run. They differ only if
    a layer runs several times (``layer_order``).
    """

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config
        n = max(config.layer_order) + 1 if config.layer_order else config.num_layers
        # Attention has four D x D matrices, a feed-forward block two D x F, or three if it is gated.
        matrices = 2 if config.feed_forward == "plain" else 3
        check_fits_memory(n * config.d_model * (4 * config.d_model + matrices * config.d_ff))
        self.layers = nn.ModuleList(
            EncoderLayer(config, config.stochastic_depth * (i / (n - 1) if n > 1 else 1.0), i)
            for i in range(n)
        )
        self.final_norm = norm_of(config) if config.final_norm else nn.Identity()
        buckets = config.relative_buckets
        self.relative: RelativeBias | DistanceTable | None = (
            RelativeBias(buckets, config.num_heads) if buckets else None
        )
        if config.disentangled is not None:
            self.relative = DistanceTable(config.disentangled, config.d_model, config.eps)

    @property
    def order(self) -> tuple[int, ...]:
        """For each step, the index of its layer."""
        return self.config.layer_order or tuple(range(len(self.layers)))

    @property
    def steps(self) -> list[EncoderLayer]:
        """The layer of each step, from the input to the output."""
        return [self.layers[i] for i in self.order]  # type: ignore[misc]  # a ModuleList yields Modules

    def forward(
        self,
        x: Tensor,
        packing: Packing,
        *,
        rows: Tensor | None = None,
        trace: TraceRecord | None = None,
        begin: int = 0,
        end: int | None = None,
    ) -> Tensor:
        """``[N, D]`` -> ``[N, D]``.

        Args:
            rows: ``[B]`` one token index per sequence; the last layer computes only these tokens, and the
                output is ``[B, D]``.
            trace: receives the requested hidden states and attention weights.
            begin, end: slice of the steps to run; the final norm is applied only if ``end`` is None.
        """
        last = len(self.order) - 1
        bias = self.relative(packing.max_length) if self.relative is not None else None
        is_long = uses_chunks(x, LONG_INPUT)
        if trace is not None:
            trace.hidden(0, x)
        for number, layer in enumerate(self.steps[begin:end], begin):
            record = trace.layer(number) if trace is not None else None
            x = layer(x, packing, rows if number == last else None, record, bias)
            if is_long:  # costs little compared with the layer
                return_freed_memory()
            if trace is not None:
                trace.attention(number, record)
                trace.hidden(number + 1, x)
        return x if end is not None else self.final_norm(x)

    def padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """``forward`` in evaluation mode for padded input; see ``EncoderLayer.padded``."""
        bias = self.relative(x.shape[1]) if self.relative is not None else None
        for layer in self.steps:
            x = layer.padded(x, mask, bias)
        return self.final_norm(x)
