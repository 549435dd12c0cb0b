"""LSTM (Hochreiter and Schmidhuber, 1997) and GRU (Cho et al., 2014) text classifiers.

The head reads the final state of each direction, or the pooled hidden states of all tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.models.packed import PackedClassifier
from glassformer.nn.dropout import Dropout
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.pooling import make_pooling
from glassformer.nn.recurrent import Cell, PackedRNN
from glassformer.packing import Packing


@dataclass(frozen=True)
class RnnConfig:
    """Config of embedding, recurrent layers, pooling and head."""

    embedding: EmbeddingConfig
    cell: Cell = "lstm"
    d_model: int = 128  # width of one direction
    num_layers: int = 1
    bidirectional: bool = True
    dropout: float = 0.0  # between layers and before the head
    pooling: Literal["last", "mean", "max", "attention", "tokens"] = "last"
    num_labels: int = 2
    head_type: str = "linear"
    head_hidden: int | None = None
    head_dropout: float = 0.0
    head_activation: str = "relu"
    head_input_dropout: float = 0.0
    embedding_std: float = 0.1

    def __post_init__(self) -> None:
        if self.pooling in ("first", "pooler"):
            raise ConfigError(
                f"{self.pooling} pooling is only for Transformers",
                where="pooling",
                fix="Use auto (the last states), mean, max or attention",
            )


class Rnn(PackedClassifier):
    """A recurrent text classifier."""

    config: RnnConfig

    kind = "recurrent"

    def __init__(self, config: RnnConfig):
        c = config
        width = c.d_model * (2 if c.bidirectional else 1)
        super().__init__(c, width)
        self.encoder = PackedRNN(
            c.cell, c.embedding.d_model, c.d_model, c.num_layers, c.bidirectional, c.dropout
        )
        self.pooling = None if c.pooling == "last" else make_pooling(c.pooling, width)
        self.dropout = Dropout(c.dropout)
        self.init_embeddings()

    def encode(self, x: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
        states, last = self.encoder(x, packing)  # [N, D], tuple of [layers * directions, B, d]
        if self.pooling is not None:
            pooled = self.pooling(states, packing)
        elif self.config.bidirectional:
            pooled = torch.cat([last[0][-2], last[0][-1]], 1)  # [B, D]
        else:
            pooled = last[0][-1]
        return states, self.dropout(pooled)

    def pooled_padded(self, x: Tensor, mask: Tensor) -> Tensor:
        encoder: Any = self.encoder
        states, last, token_mask = encoder.padded(x, mask)  # [B, T, D], [layers * directions, B, d], [B, T]
        if self.pooling is not None:
            return self.pooling.padded(states, token_mask)  # type: ignore[operator]  # every pooling has it
        return torch.cat([last[-2], last[-1]], 1) if self.config.bidirectional else last[-1]
