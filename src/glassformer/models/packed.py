"""What the text baselines share: embeddings, pooling and head; each adds its own encoder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import NotForThisModelError
from glassformer.models.backbone import BELOW, ModelOutput, TextDoors
from glassformer.nn.embed import TextEmbedding
from glassformer.nn.heads import head_of
from glassformer.nn.trace import Trace
from glassformer.packing import Packing


class PackedClassifier(TextDoors):
    """Embedding, ``encoder``, pooling and head over packed rows. They have no attention, hence no maps.

    A subclass sets ``encoder`` and ``pooling`` and writes ``encode``.
    """

    has_attention = False
    reads = "texts"
    kind: str  # of training from random weights
    encoder: nn.Module
    pooling: nn.Module | None

    def __init__(self, config: Any, pooled_width: int):
        super().__init__()
        c = self.config = config
        self.embeddings = TextEmbedding(c.embedding)
        self.head = head_of(c, pooled_width)
        self.mlm = None
        self.weights_source = "random"

    @property
    def width(self) -> int:
        """Of the rows."""
        return self.config.d_model

    def embed(self, ids: Tensor, packing: Packing, segments: Tensor | None = None) -> tuple[Tensor, Packing]:
        """Packed ids ``[N]`` -> the rows ``[N, E]`` that enter the encoder; segments are not looked at."""
        return self.embeddings(ids, packing), packing

    def run_rows(self, x: Tensor, packing: Packing, trace: Trace | None = None) -> ModelOutput:
        """Embedded rows ``[N, E]`` -> answers.

        Raises:
            ConfigError: a trace of attention is asked for.
        """
        if trace is not None and trace.attentions:
            raise NotForThisModelError(
                "this model has no attention to look at",
                where="trace",
                fix="Take a Transformer, or occlusion",
            )
        states, pooled = self.encode(x, packing)
        return ModelOutput(packing, states=states, pooler_output=pooled, logits=self.head(pooled))

    def pooled_padded(self, x: Tensor, mask: Tensor) -> Tensor:
        """``[B, T, E]`` and its mask ``[B, T]`` -> one vector a sequence, as ``encode`` in evaluation."""
        raise NotImplementedError

    def answer_padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Embedded rows ``[B, T, E]`` -> logits ``[B, C]`` in the padded form that graphs are drawn of."""
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask
        return self.head(self.pooled_padded(x, real))

    def encode(self, x: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
        """``[N, E]`` -> the states of all rows ``[N, D]``, and one vector a sequence ``[B, pooled]``."""
        raise NotImplementedError

    def read(
        self,
        ids: Tensor,
        packing: Packing,
        segments: Tensor | None,
        trace: Trace | None,
        every_row: bool = False,
    ) -> ModelOutput:
        """Packed ids ``[N]`` -> answers; segments are not looked at.

        Raises:
            ConfigError: a trace of attention is asked for.
        """
        return self.run_rows(self.embed(ids, packing)[0], packing, trace)

    # --- a change of head, as ``Backbone`` has it ---------------------------------------------------

    def shared(self, pooling: str | None, names: Iterable[str]) -> list[str]:
        """Which tensors of a model with that pooling mean the same in this one; those of the head do not."""
        same = pooling == getattr(self.config, "pooling", None)
        return [name for name in names if name.startswith((*BELOW, "pooling.") if same else BELOW)]

    def adapted(self, config: Any, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors of a model of that config in the shapes that this one has."""
        return dict(state)

    def draw(self, part: nn.Module) -> None:
        """Give a part above the encoder its first weights, as torch has them."""
        for module in part.modules():
            if isinstance(module, nn.Linear):
                module.reset_parameters()

    def set_compute_dtype(self, dtype: torch.dtype):
        """Compute the encoder in ``dtype``; tables, pooling and head stay in fp32."""
        self.encoder.to(dtype)
        self.embeddings.set_compute_dtype(dtype)
        return self

    def init_embeddings(self) -> None:
        """Normal token rows; the rest starts as torch has it."""
        for module in self.embeddings.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.embedding_std)
