"""Recurrent encoder-decoder models (Sutskever et al., 2014), optionally with attention (Luong et al., 2015).

    encoder    bidirectional over the source; its projected final states are the decoder's initial state
    decoder    unidirectional over the target, which starts with [CLS]
    attention  none: the decoder sees the source only through its initial state; or
               context = attention(decoder state, encoder states); state = tanh(W [decoder state; context])

Attention follows the recurrent layer, so training computes all target positions in one call. In Bahdanau et
al. (2015), the context is an input of this layer. ``nn/scores.py`` has the scoring functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError, ShapeError
from glassformer.models.backbone import Memory
from glassformer.models.seq2seq import Seq2Seq
from glassformer.nn.dropout import Dropout
from glassformer.nn.recurrent import Cell, PackedRNN
from glassformer.nn.scores import ScoredAttention
from glassformer.nn.trace import TraceRecord
from glassformer.packing import Packing

Attention = Literal["none", "dot", "multiplicative", "additive"]


@dataclass(frozen=True)
class RecurrentConfig:
    """Config of a recurrent encoder-decoder model."""

    source_vocab: int
    target_vocab: int
    d_model: int = 256  # width of embeddings and decoder states; each encoder direction has half
    num_layers: int = 1
    cell: Cell = "gru"
    attention: Attention = "none"
    dropout: float = 0.3
    shared_vocabulary: bool = False
    tied: bool = True

    def __post_init__(self) -> None:
        if self.d_model < 2 or self.d_model % 2 or self.num_layers < 1:
            raise ConfigError("d_model must be even and num_layers at least 1", where="d_model")
        if self.shared_vocabulary and self.source_vocab != self.target_vocab:
            raise ConfigError("source_vocab and target_vocab differ", where="shared_vocabulary")


@dataclass
class RecurrentState:
    """The state of a generation for B sources; R is B times the number of hypotheses per source."""

    hidden: tuple[Tensor, ...]  # [layers, R, D] each
    memory: Tensor  # [B, S, D]
    memory_mask: Tensor  # [B, S]

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Keep the ``rows`` [R'] (indices, may repeat) and the ``sources`` [B'] (None: all)."""
        self.hidden = tuple(part[:, rows] for part in self.hidden)
        if sources is not None:
            self.memory, self.memory_mask = self.memory[sources], self.memory_mask[sources]


class RecurrentSeq2Seq(Seq2Seq):
    """A recurrent encoder-decoder model with the interface of ``TransformerSeq2Seq``."""

    def __init__(self, config: RecurrentConfig):
        super().__init__()
        c = self.config = config
        d = c.d_model
        self.embeddings = nn.Embedding(c.source_vocab, d)
        self.target_embeddings = self.embeddings if c.shared_vocabulary else nn.Embedding(c.target_vocab, d)
        self.encoder = PackedRNN(c.cell, d, d // 2, c.num_layers, bidirectional=True, dropout=c.dropout)
        self.bridge = nn.Linear(d, d)
        self.decoder = PackedRNN(c.cell, d, d, c.num_layers, dropout=c.dropout)
        has_attention = c.attention != "none"
        self.attention = ScoredAttention(c.attention, d, d) if has_attention else None
        self.combine = nn.Linear(2 * d if has_attention else d, d)
        self.dropout = Dropout(c.dropout)
        self.output = None if c.tied else nn.Linear(d, c.target_vocab, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(c.target_vocab))
        self.compute_dtype = torch.float32
        self.weights_source = "random"
        self.init_weights()

    def encode(self, ids: Tensor, packing: Packing, trace: TraceRecord | None = None) -> Memory:
        """Hidden states ``[M, D]`` of source ids ``[M]``, and the initial state of the decoder.

        The initial state is ``[layers, B, D]``; an LSTM has two such tensors.
        """
        rows, last = self.encoder(self.dropout(self._embed(self.embeddings, ids, packing)), packing)
        if trace is not None:
            trace.hidden(0, rows)
        final_state = []
        for part in last:  # [layers * 2, B, D/2], forward and backward alternating
            joined = part.unflatten(0, (self.config.num_layers, 2)).transpose(1, 2).flatten(2)
            final_state.append(torch.tanh(self.bridge(joined)))  # [layers, B, D]
        return Memory(self.dropout(rows), packing, tuple(final_state))

    def decode(
        self,
        ids: Tensor,
        packing: Packing,
        memory: Memory,
        trace: TraceRecord | None = None,
        cross_trace: TraceRecord | None = None,
    ) -> Tensor:
        """Hidden states ``[N, D]`` of target ids ``[N]``; each text starts with [CLS]."""
        if packing.count != memory.packing.count:
            raise ShapeError(
                f"there are {packing.count} targets, but {memory.packing.count} sources",
                where="target_packing",
            )
        x = self.dropout(self._embed(self.target_embeddings, ids, packing))
        states, _ = self.decoder(x, packing, memory.final_state)
        if trace is not None:
            trace.hidden(0, states)
        if self.attention is not None:
            record = cross_trace.layer(0) if cross_trace is not None else None
            context = self.attention(states, memory.rows, packing, memory.packing, record)
            if cross_trace is not None:
                cross_trace.attention(0, record)
            states = torch.cat([states, context], 1)  # [N, 2 D]
        return self.dropout(torch.tanh(self.combine(states))).to(self.compute_dtype)

    def _embed(self, table: nn.Embedding, ids: Tensor, packing: Packing) -> Tensor:
        if ids.shape != (packing.total,):
            raise ShapeError(
                f"ids have shape {tuple(ids.shape)}, but the packing has {packing.total} tokens", where="ids"
            )
        return table(ids)

    def output_layer(self) -> tuple[Tensor, Tensor]:
        """Weight ``[V, D]`` and bias ``[V]`` of the output layer."""
        return (self.target_embeddings if self.output is None else self.output).weight, self.output_bias

    depths = (1, 1)

    # --- generation ----------------------------------------------------------------------------

    def start(self, memory: Memory) -> RecurrentState:
        """The initial state of a generation."""
        return RecurrentState(memory.final_state, memory.packing.pad(memory.rows), memory.packing.mask())

    def step(self, tokens: Tensor, state: RecurrentState) -> Tensor:
        """Next-token logits ``[R, V]`` in fp32 for the last tokens of R hypotheses; updates ``state``."""
        x, state.hidden = self.decoder.step(self.target_embeddings(tokens), state.hidden)  # [R, D]
        if self.attention is not None:
            grouped = x.view(len(state.memory), -1, x.shape[1])  # [B, R/B, D]: no copies of keys
            context, _ = self.attention.padded(grouped, state.memory, state.memory_mask)
            x = torch.cat([x, context.flatten(0, 1)], 1)
        return self.logits(torch.tanh(self.combine(x)).to(self.compute_dtype)).float()

    # --- weights -------------------------------------------------------------------------------

    def set_compute_dtype(self, dtype: torch.dtype) -> RecurrentSeq2Seq:
        """Compute the output layer in ``dtype``; the recurrent layers stay in fp32."""
        self.compute_dtype = dtype
        return self

    def init_weights(self) -> None:
        """Initialize recurrent weights as torch does, linear layers Xavier-uniform, embeddings N(0, 1/D)."""
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.d_model**-0.5)
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
