"""A linear image classifier on HOG features: one weight per cell, feature and class.

logits = sum over the cells of an image (features of the cell * weights of the cell) + bias
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.models.backbone import Backbone, ModelOutput, refuse_attentions
from glassformer.nn.heads import ClassificationHead
from glassformer.nn.hog import HogConfig, HogEmbedding
from glassformer.nn.trace import Trace
from glassformer.packing import Packing


@dataclass(frozen=True)
class HogImageConfig:
    """Config of ``HogImage``: features and number of classes."""

    embedding: HogConfig = field(default_factory=HogConfig)
    num_labels: int = 2


class HogImage(Backbone):
    """A linear head on histograms of oriented gradients and colors (``nn/hog.py``), in fp32."""

    has_attention, fixed = False, True
    reads = "images"

    def __init__(self, config: HogImageConfig):
        super().__init__()
        self.config = config
        self.embeddings = HogEmbedding(config.embedding)
        self.encoder = nn.Identity()
        self.head = ClassificationHead(self.width, config.num_labels)

    @property
    def width(self) -> int:
        """Number of features of an image: those of all cells."""
        return self.config.embedding.num_tokens * self.config.embedding.d_model

    def forward(
        self, pixel_values: Tensor, *, packed: bool = False, trace: Trace | None = None
    ) -> ModelOutput:
        """As ``ImageEncoder.forward``, for normalized images ``[B, C, H, W]`` of the config's size.

        Raises:
            ShapeError: images of another size.
        """
        x, packing = self.embed(pixel_values)  # [N, D]
        out = self.run_rows(x, packing, trace)
        return out if packed else out.unpacked((packing.count, packing.max_length))

    def run_rows(
        self, x: Tensor, packing: Packing, trace: Trace | None = None, *, every_row: bool = False
    ) -> ModelOutput:
        """Logits from the features of cells ``[N, D]``.

        Raises:
            ConfigError: ``trace`` requests attention weights.
            InputError: an image lacks cells.
        """
        refuse_attentions(trace, "Use explain with occlusion or gradient_x_input")
        if set(packing.lengths) != {self.config.embedding.num_tokens}:
            what = "a linear model needs all cells of an image, but some were deleted"
            raise InputError(what, where="explain", fix="Hide cells with by=mask, not by=delete")
        vectors = x.reshape(packing.count, -1)
        return ModelOutput(packing, states=x, pooler_output=vectors, logits=self.head(vectors))

    def answer_padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Logits ``[B, C]`` of cells ``[B, T, D]``, for exported graphs."""
        return self.head(x.flatten(1))

    def set_compute_dtype(self, dtype: torch.dtype) -> Self:
        """Does nothing: a linear model always computes in fp32."""
        return self
