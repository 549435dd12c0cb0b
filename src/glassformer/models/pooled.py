"""What BERT and ViT share above the encoder: pooling and head, and the vectors that a frozen encoder leaves to them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.nn.pooling import AttentionPooling
from glassformer.packing import Packing


class PooledHead:
    """For a model with ``encoder``, ``pooling`` and ``head``."""

    encoder: Any
    pooling: Any
    head: Any

    def remains(self, x: Tensor, packing: Packing) -> Tensor:
        """Embedded rows ``[N, D]`` -> ``[B, D]``: what is left of each sequence where only the head still learns.

        ``classify`` goes on from it.

        Raises:
            ConfigError: the pooling weighs all rows anew and so has no such vector.
        """
        if isinstance(self.pooling, AttentionPooling) or self.pooling is None:
            raise ConfigError("attention pooling reads every row", where="pooling", fix="Use another pooling")
        few = self._reads_first_rows_only
        x = self.encoder(x, packing, rows=packing.first_rows if few else None)
        return x if few else self.pooling(x, packing)

    def classify(self, features: Tensor) -> Tensor:
        """``features`` ``[B, D]`` -> logits ``[B, C]``: pooling (of one row) and head."""
        if self.pooling is None or self.head is None:
            raise ConfigError("there is no classification head", where="classify")
        return self.head(self.pooling(features, Packing.uniform(len(features), 1, features.device)))

    @property
    def _reads_first_rows_only(self) -> bool:
        return self.head is not None and bool(getattr(self.pooling, "reads_first_row_only", False))
