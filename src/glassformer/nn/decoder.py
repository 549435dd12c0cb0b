"""Transformer decoder: masked self-attention, cross-attention, feed-forward, three norms.

    post-norm   x = norm1(x + self(x));  x = norm2(x + cross(x, memory));  x = norm3(x + ff(x))
                (Vaswani et al., 2017)
    pre-norm    x = x + self(norm1(x)) ...  then one norm at the very end

Training computes all positions at once (``forward``, packed). Generation computes one position at a time
(``step``), with earlier keys and values in a ``DecoderCache``. Shapes: N target and M source tokens in all, B
sources of at most S tokens, R hypotheses in all, H heads of width K.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError
from glassformer.nn.attention import MultiHeadAttention, attend
from glassformer.nn.dropout import Dropout
from glassformer.nn.encoder import EncoderConfig
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.linear import LayerNorm
from glassformer.nn.trace import LayerRecord, TraceRecord
from glassformer.packing import Packing


@dataclass
class LayerCache:
    """Keys and values of one layer, for B sources and R hypotheses, which all have t tokens."""

    memory_k: Tensor  # [B, H, S, K]
    memory_v: Tensor  # [B, H, S, K]
    k: Tensor | None = None  # [R, H, t, K]
    v: Tensor | None = None


@dataclass
class DecoderCache:
    """The state of a generation: one ``LayerCache`` per layer, and the padding mask of the sources."""

    layers: list[LayerCache]
    memory_mask: Tensor  # [B, S] boolean, True at real tokens
    position: int = 0  # position of the next token

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Keep the hypotheses ``rows`` [R'] (indices, may repeat) and the ``sources`` [B'] (None: all)."""
        for layer in self.layers:
            if layer.k is not None and layer.v is not None:
                layer.k, layer.v = layer.k[rows], layer.v[rows]
            if sources is not None:
                layer.memory_k, layer.memory_v = layer.memory_k[sources], layer.memory_v[sources]
        if sources is not None:
            self.memory_mask = self.memory_mask[sources]


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention and feed-forward, each with residual connection and norm."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        c = config
        self.pre_norm = c.norm == "pre"
        self.attention = MultiHeadAttention(c.d_model, c.num_heads, c.attention_dropout)
        self.norm1 = LayerNorm(c.d_model, eps=c.eps)
        self.cross = MultiHeadAttention(c.d_model, c.num_heads, c.attention_dropout)
        self.norm2 = LayerNorm(c.d_model, eps=c.eps)
        self.feed_forward = FeedForward(c.d_model, c.d_ff, c.activation, c.feed_forward_dropout)
        self.norm3 = LayerNorm(c.d_model, eps=c.eps)
        self.dropout = Dropout(c.dropout)

    def forward(
        self,
        x: Tensor,
        packing: Packing,
        memory: Tensor,
        memory_packing: Packing,
        record: LayerRecord | None = None,
        cross_record: LayerRecord | None = None,
    ) -> Tensor:
        """``[N, D]`` -> ``[N, D]``, with cross-attention over ``memory`` ``[M, D]``."""
        x = self._add(x, self.norm1, lambda y: self.attention(y, packing, causal=True, record=record))
        x = self._add(
            x, self.norm2, lambda y: self.cross(y, packing, memory, memory_packing, record=cross_record)
        )
        return self._add(x, self.norm3, self.feed_forward)

    def step(self, x: Tensor, cache: LayerCache, memory_mask: Tensor) -> Tensor:
        """Compute the next position of hypotheses, ``[R, D]`` -> ``[R, D]``, and add it to the cache."""
        x = self._add(x, self.norm1, lambda y: self._step_self(y, cache))
        x = self._add(x, self.norm2, lambda y: self._step_cross(y, cache, memory_mask))
        return self._add(x, self.norm3, self.feed_forward)

    def _add(self, x: Tensor, norm: nn.Module, branch) -> Tensor:
        if self.pre_norm:
            return x + self.dropout(branch(norm(x)))
        return norm(x, self.dropout(branch(x)))

    def _step_self(self, x: Tensor, cache: LayerCache) -> Tensor:
        q, k, v = (part[:, :, None] for part in self.attention.project(x))  # 3 x [R, H, 1, K]
        if cache.k is not None and cache.v is not None:
            k, v = torch.cat([cache.k, k], 2), torch.cat([cache.v, v], 2)  # [R, H, t + 1, K]
        cache.k, cache.v = k, v
        return self.attention.out(attend(q, k, v).flatten(1))

    def _step_cross(self, x: Tensor, cache: LayerCache, memory_mask: Tensor) -> Tensor:
        # The hypotheses of a source are on the axis of positions: its keys need not be copied for each.
        q = self.cross.queries(x)  # [R, H, K]
        grouped = q.view(len(memory_mask), -1, *q.shape[1:]).transpose(1, 2)  # [B, H, R/B, K]
        out = attend(grouped, cache.memory_k, cache.memory_v, mask=memory_mask)
        return self.cross.out(out.transpose(1, 2).reshape(x.shape))


class Decoder(nn.Module):
    """A stack of decoder layers over packed tokens.

    Args:
        config: sizes as for an encoder; ``stochastic_depth`` and ``zero_init`` are ignored.

    Raises:
        ConfigError: ``config.attention`` is not "full".
    """

    def __init__(self, config: EncoderConfig):
        super().__init__()
        if config.attention != "full":
            what = f"a decoder does not support {config.attention} attention"
            raise ConfigError(what, where="attention", fix="Use full")
        self.config = config
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))
        self.final_norm = LayerNorm(config.d_model, eps=config.eps) if config.final_norm else nn.Identity()

    def forward(
        self,
        x: Tensor,
        packing: Packing,
        memory: Tensor,
        memory_packing: Packing,
        *,
        trace: TraceRecord | None = None,
        cross_trace: TraceRecord | None = None,
    ) -> Tensor:
        """``[N, D]`` -> ``[N, D]``; sequence i also attends to sequence i of ``memory``.

        Args:
            memory: ``[M, D]``, the encoder's output.
            trace: receives hidden states and self-attention weights.
            cross_trace: receives cross-attention weights ``[H, T_i, S_i]``.
        """
        if trace is not None:
            trace.hidden(0, x)
        for number, layer in enumerate(self.layers):
            record = trace.layer(number) if trace is not None else None
            cross = cross_trace.layer(number) if cross_trace is not None else None
            x = layer(x, packing, memory, memory_packing, record, cross)
            if trace is not None:
                trace.attention(number, record)
                trace.hidden(number + 1, x)
            if cross_trace is not None:
                cross_trace.attention(number, cross)
        return self.final_norm(x)

    def start(self, memory: Tensor, memory_packing: Packing) -> DecoderCache:
        """The initial cache, with the keys and values of ``memory`` ``[M, D]``."""
        layers = []
        for layer in self.layers:
            k, v = layer.cross.keys_values(memory)  # type: ignore[operator,union-attr]  # a DecoderLayer
            layers.append(LayerCache(*(memory_packing.pad(part).transpose(1, 2) for part in (k, v))))
        return DecoderCache(layers, memory_packing.mask())

    def step(self, x: Tensor, cache: DecoderCache) -> Tensor:
        """Compute the next position from its embedded tokens: ``[R, D]`` -> ``[R, D]``."""
        for layer, layer_cache in zip(self.layers, cache.layers, strict=True):
            x = layer.step(x, layer_cache, cache.memory_mask)  # type: ignore[operator]  # a DecoderLayer
        cache.position += 1
        return self.final_norm(x)
