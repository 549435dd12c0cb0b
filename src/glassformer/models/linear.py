"""Linear classifiers.

For texts with n-gram features and for images with HOG features:

    logits = sum over the features of a text (value * weights of the feature) + bias
    logits = sum over the cells of an image (features of the cell * weights of the cell) + bias
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.errors import InputError
from glassformer.models.backbone import Backbone, ModelOutput, TextForward, check_no_attentions
from glassformer.nn.heads import ClassificationHead
from glassformer.nn.hog import HogConfig, HogEmbedding
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

    has_attention, is_linear = False, True
    reads = "texts"
    kind = "linear"

    def __init__(self, config: LinearConfig):
        super().__init__()
        self.config = config
        width, labels = config.embedding.vocab_size, config.num_labels
        self.head = ClassificationHead(width, labels)
        # Shape [C, W] like every head, but the C weights of a feature are contiguous, for faster sums.
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
        """Like ``TextForward.forward``; ``input_ids`` are feature indices.

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
        """Logits of packed features ``[N]``; ``states`` ``[N, C]`` are the contributions of the features."""
        check_no_attentions(trace, "Use explain, which gives the weights themselves")
        weight, bias = self.head.out.weight.T, self.head.out.bias  # [W, C], [C]
        values = torch.ones_like(ids, dtype=weight.dtype) if values is None else values
        states = weight[ids] * values[:, None] if every_row else None
        sums = F.embedding_bag(ids, weight, packing.first_rows, mode="sum", per_sample_weights=values)
        return ModelOutput(packing, states=states, logits=sums + bias)  # [B, C]

    def set_compute_dtype(self, dtype: torch.dtype):
        """Does nothing: a linear model always computes in fp32."""
        return self


# --- images ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HogImageConfig:
    """Config of ``HogImage``: features and number of classes."""

    embedding: HogConfig = field(default_factory=HogConfig)
    num_labels: int = 2


class HogImage(Backbone):
    """A linear head on histograms of oriented gradients and colors (``nn/hog.py``), in fp32."""

    has_attention, is_linear = False, True
    reads = "images"

    def __init__(self, config: HogImageConfig):
        super().__init__()
        self.config = config
        self.embeddings = HogEmbedding(config.embedding)
        self.encoder = nn.Identity()
        self.head = ClassificationHead(self.width, config.num_labels)

    @property
    def width(self) -> int:
        """Number of features of all cells of an image."""
        return self.config.embedding.num_tokens * self.config.embedding.d_model

    def forward(
        self, pixel_values: Tensor, *, packed: bool = False, trace: Trace | None = None
    ) -> ModelOutput:
        """Like ``ImageEncoder.forward``, for normalized images ``[B, C, H, W]`` of the config's size.

        Raises:
            ShapeError: images have another size.
        """
        x, packing = self.embed(pixel_values)  # [N, D]
        out = self.run_rows(x, packing, trace)
        return out if packed else out.to_padded((packing.count, packing.max_length))

    def run_rows(
        self, x: Tensor, packing: Packing, trace: Trace | None = None, *, every_row: bool = False
    ) -> ModelOutput:
        """Logits from the features of cells ``[N, D]``."""
        check_no_attentions(trace, "Use explain with occlusion or gradient_x_input")
        if set(packing.lengths) != {self.config.embedding.num_tokens}:
            what = "a linear model needs all cells of an image, but some were deleted"
            raise InputError(what, where="explain", fix="Hide cells with by=mask, not by=delete")
        vectors = x.reshape(packing.count, -1)
        return ModelOutput(packing, states=x, pooler_output=vectors, logits=self.head(vectors))

    def padded_logits(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Logits ``[B, C]`` of cells ``[B, T, D]``, for exported graphs."""
        return self.head(x.flatten(1))

    def set_compute_dtype(self, dtype: torch.dtype) -> Self:
        """Does nothing: a linear model always computes in fp32."""
        return self
