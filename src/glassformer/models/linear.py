"""A linear text classifier on n-gram features: one weight per feature and class.

logits = sum over the features of a text (value * weights of the feature) + bias
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.models.backbone import ModelOutput, TextForward, refuse_attentions
from glassformer.nn.heads import ClassificationHead
from glassformer.nn.trace import Trace
from glassformer.packing import Packing


@dataclass(frozen=True)
class FeaturesConfig:
    """Config of the features."""

    vocab_size: int  # number of features


@dataclass(frozen=True)
class LinearConfig:
    """Config of ``LinearText``: features and number of classes."""

    embedding: FeaturesConfig = field(default_factory=lambda: FeaturesConfig(1))
    num_labels: int = 2


class LinearText(TextForward):
    """A linear classifier of texts in fp32, without attention and without text vectors."""

    has_attention, fixed = False, True
    reads = "texts"
    kind = "linear"

    def __init__(self, config: LinearConfig):
        super().__init__()
        self.config = config
        width, labels = config.embedding.vocab_size, config.num_labels
        self.head = ClassificationHead(width, labels)
        # Shape [C, W] like every head, but stored by feature, so that a text reads contiguous rows.
        self.head.out.weight = nn.Parameter(torch.zeros(width, labels).T)
        nn.init.zeros_(self.head.out.bias)
        self.mlm = None
        self.weights_source = "zeros"

    @property
    def width(self) -> int:
        """Number of features."""
        return self.config.embedding.vocab_size

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        packing: Packing | None = None,
        trace: Trace | None = None,
        values: Tensor | None = None,
    ) -> ModelOutput:
        """As ``TextForward.forward``; ``input_ids`` are feature numbers.

        Args:
            values: ``[N]`` fp32 values of packed features; None: all 1.
        """
        if packing is None:
            return super().forward(input_ids, attention_mask, token_type_ids, trace=trace)
        return self.read(input_ids, packing, token_type_ids, trace, values=values)

    def read(
        self,
        ids: Tensor,
        packing: Packing,
        segments: Tensor | None,
        trace: Trace | None,
        every_row: bool = False,
        values: Tensor | None = None,
    ) -> ModelOutput:
        """Logits of packed features ``[N]``; the states ``[N, C]`` are the contributions of the features.

        Raises:
            ConfigError: ``trace`` requests attention weights.
        """
        refuse_attentions(trace, "Use explain, which gives the weights themselves")
        table, bias = self.head.out.weight.T, self.head.out.bias  # [W, C]
        values = torch.ones_like(ids, dtype=table.dtype) if values is None else values
        states = table[ids] * values[:, None] if every_row else None
        sums = F.embedding_bag(ids, table, packing.first_rows, mode="sum", per_sample_weights=values)
        return ModelOutput(packing, states=states, logits=sums + bias)  # [B, C]

    def set_compute_dtype(self, dtype: torch.dtype):
        """Does nothing: a linear model always computes in fp32."""
        return self
