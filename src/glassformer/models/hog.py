"""A linear model of an image: what edges and colors are where, and a weight of each for every class.

logits = sum over the cells of an image (values of the cell * weights of the cell) + bias
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor, nn

from glassformer.errors import InputError, NotForThisModelError
from glassformer.models.backbone import Backbone, ModelOutput
from glassformer.nn.heads import ClassificationHead
from glassformer.nn.hog import HogConfig, HogEmbedding
from glassformer.nn.trace import Trace
from glassformer.packing import Packing


@dataclass(frozen=True)
class HogImageConfig:
    """What is read of an image, and what it decides."""

    embedding: HogConfig = field(default_factory=HogConfig)
    num_labels: int = 2


class HogImage(Backbone):
    """Histograms of oriented gradients and colors (``nn/hog.py``) under a linear head, in fp32. It has no
    attention, and no weights but the head's.
    """

    has_attention, fixed = False, True
    reads = "images"

    def __init__(self, config: HogImageConfig):
        super().__init__()
        self.config = config
        self.embeddings = HogEmbedding(config.embedding)
        self.encoder = nn.Identity()  # every cell speaks for itself
        self.head = ClassificationHead(self.width, config.num_labels)

    @property
    def width(self) -> int:
        """Of what the head reads: all cells, one after the other."""
        return self.config.embedding.num_tokens * self.config.embedding.d_model

    def forward(
        self, pixel_values: Tensor, *, packed: bool = False, trace: Trace | None = None
    ) -> ModelOutput:
        """Normalized images ``[B, C, H, W]`` of the config's size; else as of every image model.

        Raises:
            ShapeError: images of another size.
        """
        x, packing = self.embed(pixel_values)  # [N, D]
        out = self.run_rows(x, packing, trace)
        return out if packed else out.unpacked((packing.count, packing.max_length))

    def run_rows(
        self, x: Tensor, packing: Packing, trace: Trace | None = None, *, every_row: bool = False
    ) -> ModelOutput:
        """Rows of cells ``[N, D]`` -> logits.

        Raises:
            ConfigError: a trace of attention is asked for.
            InputError: an image lacks cells.
        """
        if trace is not None and trace.attentions:
            what = "a linear model has no attention to look at"
            raise NotForThisModelError(
                what, where="trace", fix="Use explain with occlusion or gradient_x_input"
            )
        if set(packing.lengths) != {self.config.embedding.num_tokens}:
            what = "a linear model has weights for all cells of an image, and some were left out"
            raise InputError(what, where="explain", fix="Hide cells with by=mask, not by=delete")
        vectors = x.reshape(packing.count, -1)
        return ModelOutput(packing, states=x, pooler_output=vectors, logits=self.head(vectors))

    def answer_padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """``[B, T, D]`` -> logits ``[B, C]``, for graphs."""
        return self.head(x.flatten(1))

    def set_compute_dtype(self, dtype: torch.dtype) -> Self:
        """A linear model computes in fp32, whatever the others do."""
        return self
