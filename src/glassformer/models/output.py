"""What every model returns, under the field's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.nn.trace import TraceRecord
from glassformer.packing import Packing


@dataclass
class ModelOutput:
    """The result of a forward pass: states, ``[B, T, D]`` from padded input, ``[N, D]`` from packed."""

    packing: Packing
    states: Tensor | None = None
    pooler_output: Tensor | None = None  # [B, D]
    logits: Tensor | None = None  # [B, C]; of each token (tags, words, spans): [B, T, C] or [N, C]
    seq_relationship_logits: Tensor | None = None  # [B, 2], next sentence
    trace: TraceRecord | None = None

    @property
    def last_hidden_state(self) -> Tensor:
        """The encoder's output.

        Raises:
            ConfigError: a packed pass through a head that reads first rows only has not computed the others.
        """
        if self.states is None:
            raise ConfigError(
                "only the rows that the head reads were computed",
                where="last_hidden_state",
                fix="Ask for the rest with trace=Trace(hidden_states=[-1])",
            )
        return self.states

    def unpacked(
        self, shape: Sequence[int], real: Tensor | None = None, token_logits: bool = False
    ) -> ModelOutput:
        """The same with token-wise results in the padded layout ``shape`` = ``(B, T)``.

        Args:
            real: ``[N]`` the flat place of each row in that layout; None: every place holds a token.
            token_logits: whether logits are token-wise.
        """

        def spread(rows: Tensor) -> Tensor:
            if real is not None:
                rows = rows.new_zeros(math.prod(shape), *rows.shape[1:]).index_copy(0, real, rows)
            return rows.view(*shape, *rows.shape[1:])

        one_row = self.trace is not None and self.trace.request.rows == "first"

        def spread_maps(maps: tuple[Tensor, ...]) -> Tensor:  # tuple of [H, T_i, T_i] -> [B, H, T, T]
            if real is None:
                return torch.stack(maps)
            full = maps[0].new_zeros(shape[0], maps[0].shape[0], 1 if one_row else shape[1], shape[1])
            for b, (places, one) in enumerate(zip(self.packing.split(real % shape[1]), maps, strict=True)):
                rows = places[:1] * 0 if one_row else places
                full[b, :, rows[:, None], places] = one
            return full

        if self.states is not None:
            self.states = spread(self.states)
        if self.logits is not None and token_logits:
            self.logits = spread(self.logits)
        if self.trace is not None:
            self.trace = self.trace.mapped(spread_maps, spread)
        return self


@dataclass
class Memory:
    """What an encoder leaves for a decoder: its rows ``[M, D]``, of recurrent ones the thought vector too."""

    rows: Tensor
    packing: Packing
    thought: tuple[Tensor, ...] = ()  # the decoder's first state, [layers, B, D] each


@dataclass
class Seq2SeqOutput:
    """Teacher forcing: the state of every target place and the logits of the token after it."""

    packing: Packing  # of the target
    memory: Memory
    states: Tensor  # [N, D] packed, [B, T, D] padded
    logits: Tensor  # [N, V] or [B, T, V]
    encoder_trace: TraceRecord | None = None
    decoder_trace: TraceRecord | None = None
    cross_trace: TraceRecord | None = None  # cross_trace.attentions[layer][i] is [H, T_i, S_i]
