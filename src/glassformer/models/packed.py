"""What the text baselines share: the two doors of ``forward``, pooling and head; each adds its own encoder."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError, ShapeError
from glassformer.models.output import ModelOutput
from glassformer.nn.embed import TextEmbedding
from glassformer.nn.heads import ClassificationHead
from glassformer.nn.trace import Trace
from glassformer.packing import Packing


class PackedClassifier(nn.Module):
    """Embedding, ``encoder``, pooling and head over packed rows. They have no attention, hence no maps.

    A subclass sets ``encoder`` and ``pooling`` and writes ``encode``.
    """

    has_attention = False
    encoder: nn.Module
    pooling: nn.Module | None

    def __init__(self, config: Any, pooled_width: int):
        super().__init__()
        c = self.config = config
        self.embeddings = TextEmbedding(c.embedding)
        self.head = ClassificationHead(pooled_width, c.num_labels, c.head_type, c.head_hidden, c.head_dropout)
        self.weights_source = "random"

    def encode(self, x: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
        """``[N, E]`` -> the states of all rows ``[N, D]``, and one vector a sequence ``[B, pooled]``."""
        raise NotImplementedError

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        packing: Packing | None = None,
        trace: Trace | None = None,
    ) -> ModelOutput:
        """Padded ``[B, T]`` ids with a mask, or packed ``[N]`` ids with a packing; segments are not looked at.

        Raises:
            ConfigError: a trace of attention is asked for.
            ShapeError: ids, mask and packing do not fit together.
        """
        if trace is not None and trace.attentions:
            raise ConfigError(
                "this model has no attention to look at",
                where="trace",
                fix="Take a Transformer, or occlusion",
            )
        if packing is not None:
            return self._forward(input_ids, packing)
        if input_ids.ndim != 2:
            raise ShapeError(f"padded input_ids are [B, T], got {tuple(input_ids.shape)}", where="input_ids")
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        if mask.shape != input_ids.shape:
            raise ShapeError(
                f"mask {tuple(mask.shape)} for ids {tuple(input_ids.shape)}", where="attention_mask"
            )
        packing, real = Packing.from_mask(mask)
        out = self._forward(input_ids.flatten()[real], packing)
        rows = out.last_hidden_state
        flat = rows.new_zeros(input_ids.numel(), rows.shape[1]).index_copy(0, real, rows)
        out.states = flat.view(*input_ids.shape, -1)
        return out

    def _forward(self, ids: Tensor, packing: Packing) -> ModelOutput:
        states, pooled = self.encode(self.embeddings(ids, packing), packing)
        return ModelOutput(packing, states=states, pooler_output=pooled, logits=self.head(pooled))

    def set_compute_dtype(self, dtype: torch.dtype):
        """Compute the encoder in ``dtype``; tables, pooling and head stay in fp32."""
        self.encoder.to(dtype)
        self.embeddings.compute_dtype = dtype
        return self

    def init_embeddings(self) -> None:
        """Normal token rows; the rest starts as torch has it."""
        for module in self.embeddings.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.embedding_std)
