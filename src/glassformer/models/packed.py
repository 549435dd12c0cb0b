"""Base class of RNN and CNN text classifiers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.models.backbone import BACKBONE_PREFIXES, ModelOutput, TextForward, check_no_attentions
from glassformer.nn.embed import TextEmbedding
from glassformer.nn.heads import make_head
from glassformer.nn.trace import Trace
from glassformer.packing import Packing


class PackedClassifier(TextForward):
    """A text classifier without attention, for packed sequences.

    A subclass sets ``encoder`` and ``pooling`` and implements ``encode`` and ``pooled_padded``.
    """

    has_attention = False
    reads = "texts"
    kind: str  # selects default training settings (train/config.py)
    encoder: nn.Module
    pooling: nn.Module | None

    def __init__(self, config: Any, pooled_width: int):
        super().__init__()
        c = self.config = config
        self.embeddings = TextEmbedding(c.embedding)
        self.head = make_head(c, pooled_width)
        self.mlm = None
        self.weights_source = "random"

    @property
    def width(self) -> int:
        """Width of the encoder; for recurrent encoders, of one direction."""
        return self.config.d_model

    def embed(self, ids: Tensor, packing: Packing, segments: Tensor | None = None) -> tuple[Tensor, Packing]:
        """Embeddings ``[N, E]`` of packed ids ``[N]``; segments are ignored."""
        return self.embeddings(ids, packing), packing

    def run_rows(self, x: Tensor, packing: Packing, trace: Trace | None = None) -> ModelOutput:
        """Encode embeddings ``[N, E]`` and apply the head."""
        check_no_attentions(trace, "Use a Transformer, or the method occlusion")
        states, pooled = self.encode(x, packing)
        return ModelOutput(packing, states=states, pooler_output=pooled, logits=self.head(pooled))

    def pooled_padded(self, x: Tensor, mask: Tensor) -> Tensor:
        """One vector per sequence for padded ``[B, T, E]`` with mask ``[B, T]``, in evaluation mode."""
        raise NotImplementedError

    def padded_logits(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Logits ``[B, C]`` of padded embeddings ``[B, T, E]``, for exported graphs."""
        mask_or_ones = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask
        return self.head(self.pooled_padded(x, mask_or_ones))

    def encode(self, x: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
        """Hidden states ``[N, D]`` of embeddings ``[N, E]``, and the vectors of sequences ``[B, pooled]``."""
        raise NotImplementedError

    def read(
        self,
        ids: Tensor,
        packing: Packing,
        segments: Tensor | None,
        trace: Trace | None,
        every_row: bool = False,
    ) -> ModelOutput:
        """The forward pass for packed ids ``[N]``; segments are ignored."""
        return self.run_rows(self.embed(ids, packing)[0], packing, trace)

    # --- changing the head, as in ``Backbone`` ------------------------------------------------------

    def transferable_names(self, pooling: str | None, names: Iterable[str]) -> list[str]:
        """Select the tensor ``names`` of a model with ``pooling`` that this model can load, without heads."""
        has_same_pooling = pooling == getattr(self.config, "pooling", None)
        parts = (*BACKBONE_PREFIXES, "pooling.") if has_same_pooling else BACKBONE_PREFIXES
        return [name for name in names if name.startswith(parts)]

    def convert_state(self, config: Any, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors ``state``: they have the same shapes for every ``config``."""
        return dict(state)

    def init_module(self, part: nn.Module) -> None:
        """Initialize the linear layers of a part of the model, as torch does."""
        for module in part.modules():
            if isinstance(module, nn.Linear):
                module.reset_parameters()

    def set_compute_dtype(self, dtype: torch.dtype):
        """Compute the encoder in ``dtype``; embeddings, pooling and head stay in fp32."""
        self.encoder.to(dtype)
        self.embeddings.set_compute_dtype(dtype)
        return self

    def init_embeddings(self) -> None:
        """Initialize the token embeddings from a normal distribution."""
        for module in self.embeddings.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.embedding_std)
