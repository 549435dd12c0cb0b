"""What every model returns, under the field's names."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.nn.trace import TraceRecord
from glassformer.packing import Packing


@dataclass
class ModelOutput:
    """The result of a forward pass: ``[B, T, D]`` states when padded input came in, ``[N, D]`` when packed."""

    packing: Packing
    states: Tensor | None = None
    pooler_output: Tensor | None = None  # [B, D]
    logits: Tensor | None = None  # [B, C]; masked LM: [B, T, V] or [N, V]
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


@dataclass
class Memory:
    """What an encoder leaves for a decoder: its rows ``[M, D]``, and for recurrent ones the thought vector."""

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
