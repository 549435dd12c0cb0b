"""The decoder of the Transformer: masked self-attention, cross-attention, feed-forward, three norms.

    post-norm   x = norm1(x + self(x));  x = norm2(x + cross(x, memory));  x = norm3(x + ff(x))
                (Vaswani et al., 2017)
    pre-norm    x = x + self(norm1(x)) ...  then one norm at the very end

Training sees all places at once (``forward``, packed rows). Generation goes place by place (``step``) and
keeps the keys and values of what was before in a ``DecoderCache``; the tests hold the two equal.
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
    """What one layer has seen. B sources, R = B * hypotheses rows, each at the same place t."""

    memory_k: Tensor  # [B, H, S, K]
    memory_v: Tensor  # [B, H, S, K]
    k: Tensor | None = None  # [R, H, t, K]
    v: Tensor | None = None


@dataclass
class DecoderCache:
    """The state of a generation: one ``LayerCache`` a layer, and which places of the sources are real."""

    layers: list[LayerCache]
    memory_mask: Tensor  # [B, S] boolean
    position: int = 0  # the place of the next token

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Go on with these ``rows`` [R'] (an index, may repeat), of ``sources`` [B'] (None: the same)."""
        for layer in self.layers:
            if layer.k is not None and layer.v is not None:
                layer.k, layer.v = layer.k[rows], layer.v[rows]
            if sources is not None:
                layer.memory_k, layer.memory_v = layer.memory_k[sources], layer.memory_v[sources]
        if sources is not None:
            self.memory_mask = self.memory_mask[sources]


class DecoderLayer(nn.Module):
    """Causal self-attention, attention over the encoder's rows, feed-forward, each with residual and norm."""

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
        """``[N, D]`` over ``memory`` ``[M, D]`` -> ``[N, D]``."""
        x = self._add(x, self.norm1, lambda y: self.attention(y, packing, causal=True, record=record))
        x = self._add(
            x, self.norm2, lambda y: self.cross(y, packing, memory, memory_packing, record=cross_record)
        )
        return self._add(x, self.norm3, self.feed_forward)

    def step(self, x: Tensor, cache: LayerCache, memory_mask: Tensor) -> Tensor:
        """The next place of every row: ``[R, D]`` -> ``[R, D]``; the cache grows by it."""
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
        # The hypotheses of one source stand where the places of a sequence do: its keys are never copied.
        q = self.cross.queries(x)  # [R, H, K]
        grouped = q.view(len(memory_mask), -1, *q.shape[1:]).transpose(1, 2)  # [B, H, R/B, K]
        out = attend(grouped, cache.memory_k, cache.memory_v, mask=memory_mask)
        return self.cross.out(out.transpose(1, 2).reshape(x.shape))


class Decoder(nn.Module):
    """A stack of decoder layers over packed rows.

    Args:
        config: the numbers of an encoder; ``stochastic_depth`` and ``zero_init`` are not used.

    Raises:
        ConfigError: an attention that is not full.
    """

    def __init__(self, config: EncoderConfig):
        super().__init__()
        if config.attention != "full":
            what = f"a decoder has no {config.attention} attention"
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
        """``[N, D]`` -> ``[N, D]``; sequence i reads itself up to each place, and ``memory``'s sequence i.

        Args:
            memory: ``[M, D]``, the encoder's rows.
            trace, cross_trace: where to record states and self-attention; cross-attention ``[H, T_i, S_i]``.
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
        """The cache before the first place: keys and values of ``memory`` ``[M, D]``, made once."""
        layers = []
        for layer in self.layers:
            k, v = layer.cross.keys_values(memory)  # type: ignore[operator,union-attr]  # a DecoderLayer
            layers.append(LayerCache(*(memory_packing.pad(part).transpose(1, 2) for part in (k, v))))
        return DecoderCache(layers, memory_packing.mask())

    def step(self, x: Tensor, cache: DecoderCache) -> Tensor:
        """One place further: the embedded tokens ``[R, D]`` -> ``[R, D]``."""
        for layer, kept in zip(self.layers, cache.layers, strict=True):
            x = layer.step(x, kept, cache.memory_mask)  # type: ignore[operator]  # a DecoderLayer
        cache.position += 1
        return self.final_norm(x)
