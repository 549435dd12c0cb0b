"""THE text encoder: embeddings, encoder, pooling, head; read it from top to bottom.

Every family of text Transformers (``families/``) is this one with another config. Rows are packed, and queries, keys
and values come from one product.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from glassformer.errors import ConfigError
from glassformer.models.backbone import Backbone, TextDoors
from glassformer.models.output import ModelOutput
from glassformer.nn.embed import EmbeddingConfig, TextEmbedding
from glassformer.nn.encoder import Encoder, EncoderConfig
from glassformer.nn.heads import ClassificationHead, MaskedLMHead
from glassformer.nn.pooling import make_pooling
from glassformer.nn.trace import Trace
from glassformer.packing import Packing
from glassformer.types import Activation, HeadKind, PoolingKind


@dataclass(frozen=True)
class TextEncoderConfig:
    """Embeddings, encoder, and what stands on them."""

    embedding: EmbeddingConfig
    encoder: EncoderConfig
    pooling: PoolingKind | None = "pooler"  # None: no pooled vector
    head: HeadKind | None = None
    num_labels: int = 2  # of a classification head
    head_type: str = "linear"
    head_hidden: int | None = None
    head_dropout: float = 0.0
    drop_before_pooler: bool = False  # the head's dropout falls on the row that its pooler reads, too
    words_activation: Activation | None = None  # of the masked-word head; None: the encoder's
    init_std: float = 0.02  # of linear weights and, unless given below, of the tables
    embedding_std: float | None = None
    model_type: str | None = (
        None  # of the folder, where several write the same layout; None: the first of them
    )

    def __post_init__(self) -> None:
        if self.embedding.d_model != self.encoder.d_model:
            raise ConfigError(
                f"embedding width {self.embedding.d_model} and encoder width {self.encoder.d_model} differ"
            )
        if self.head == "classification" and self.pooling is None:
            raise ConfigError("a classification head needs a pooling", where="head")
        if self.head == "pretraining" and self.pooling != "pooler":
            raise ConfigError("next-sentence prediction reads the pooler", where="head")

    def pooling_under(self, head: str | None) -> PoolingKind | None:
        """What a new head of that kind reads, unless something else is asked for."""
        return self.pooling or ("pooler" if head != "mlm" else None)


class TextEncoder(TextDoors, Backbone):
    """A text encoder with an optional pooling and head."""

    reads = "texts"

    def __init__(self, config: TextEncoderConfig):
        super().__init__()
        c = self.config = config
        d = c.encoder.d_model
        self.embeddings = TextEmbedding(c.embedding)
        self.encoder = Encoder(c.encoder)
        drop = c.head_dropout if c.drop_before_pooler and c.head == "classification" else 0.0
        self.pooling = make_pooling(c.pooling, d, drop) if c.pooling else None
        if c.head == "classification":
            self.head = ClassificationHead(d, c.num_labels, c.head_type, c.head_hidden, c.head_dropout)
        if c.head in ("mlm", "pretraining"):
            activation = c.words_activation or c.encoder.activation
            self.mlm = MaskedLMHead(d, c.embedding.vocab_size, activation, c.encoder.eps)
        if c.head == "pretraining":
            self.nsp = nn.Linear(d, 2)
        self.init_weights()

    def read(
        self, ids: Tensor, packing: Packing, segments: Tensor | None, trace: Trace | None,
        every_row: bool = False,
    ) -> ModelOutput:  # fmt: skip
        return self.run_rows(self.embeddings(ids, packing, segments), packing, trace, every_row=every_row)
