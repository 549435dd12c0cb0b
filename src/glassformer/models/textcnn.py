"""TextCNN (Kim, 2014): convolutions over 3, 4 and 5 words, max-pooling over time, a linear layer.

Difference from the paper: texts are zero-padded, so that they may be shorter than a filter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError
from glassformer.models.packed import PackedClassifier
from glassformer.nn.dropout import Dropout
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.pooling import max_rows
from glassformer.packing import Packing


@dataclass(frozen=True)
class TextCnnConfig:
    """Config of embedding, filters and head."""

    embedding: EmbeddingConfig
    d_model: int = 100  # number of filters per width
    widths: tuple[int, ...] = (3, 4, 5)  # filter widths in words
    dropout: float = 0.5  # dropout before the head
    num_labels: int = 2
    head_type: str = "linear"
    head_hidden: int | None = None
    head_dropout: float = 0.0
    head_activation: str = "relu"
    head_input_dropout: float = 0.0
    embedding_std: float = 0.1
    pooling: Literal["max", "tokens"] = "max"  # "tokens": token classification

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1:
            raise ConfigError(
                f"filters cannot have the widths {self.widths}", where="widths", fix="Use widths of 1 or more"
            )


class PackedConvolution(nn.Module):
    """One-dimensional convolution of packed sequences, zero-padded at their ends: ``[N, E]`` -> ``[N, F]``.

    y_t = b + sum_j W_j x_(t + j - (width - 1) // 2)
    """

    def __init__(self, width: int, in_features: int, filters: int):
        super().__init__()
        self.width = width
        self.conv = nn.Conv1d(in_features, filters, width)

    def forward(self, x: Tensor, positions: Tensor, length: int) -> Tensor:
        """Convolve ``x`` ``[N, E]``, whose ``positions`` ``[N]`` (< ``length``) leave gaps between texts."""
        padded = x.new_zeros(length + self.width - 1, x.shape[1])
        padded = padded.index_copy(0, positions + (self.width - 1) // 2, x)  # zeros in the gaps
        # One matrix product per filter position, on a shifted view of ``padded``, without a copy.
        out = sum(padded[j : j + length] @ self.conv.weight[:, :, j].T for j in range(self.width))
        return out[positions] + self.conv.bias  # type: ignore[index,operator]  # a convolution has one

    def padded(self, x: Tensor) -> Tensor:
        """Convolve padded ``x`` ``[B, T, E]``, which is 0 at padding: ``[B, T, F]``."""
        front = (self.width - 1) // 2
        channels_first = nn.functional.pad(x.transpose(1, 2), (front, self.width - 1 - front))  # [B, E, T']
        return self.conv(channels_first).transpose(1, 2)


class TextCnn(PackedClassifier):
    """A convolutional text classifier."""

    config: TextCnnConfig

    kind = "convolution"

    def __init__(self, config: TextCnnConfig):
        c = config
        super().__init__(c, c.d_model * len(c.widths))
        self.encoder = nn.ModuleList(
            PackedConvolution(width, c.embedding.d_model, c.d_model) for width in c.widths
        )
        self.pooling = None
        self.dropout = Dropout(c.dropout)
        self.init_embeddings()

    def encode(self, x: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
        gap = max(self.config.widths) - 1  # zeros between sequences: no filter reaches two of them
        positions = torch.arange(packing.total, device=x.device) + gap * packing.sequence_ids
        length = packing.total + gap * packing.count
        outputs = [convolution(x, positions, length) for convolution in self.encoder.children()]
        states = torch.cat(outputs, 1).relu()  # [N, F * widths]
        pooled = states if self.config.pooling == "tokens" else max_rows(states, packing)
        return states, self.dropout(pooled.float())

    def pooled_padded(self, x: Tensor, mask: Tensor) -> Tensor:
        token_mask = mask[:, :, None]
        x = torch.where(token_mask, x, 0.0)
        outputs = [convolution.padded(x) for convolution in self.encoder.children()]  # type: ignore[operator]  # a PackedConvolution
        states = torch.cat(outputs, 2).relu()  # [B, T, F * widths]
        if self.config.pooling == "tokens":
            return states
        return torch.where(token_mask, states, 0.0).amax(1)  # after ReLU the minimum is 0
