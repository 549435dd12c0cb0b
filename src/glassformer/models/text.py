"""BERT (Devlin et al., 2019) and every from-scratch text encoder: embeddings, THE encoder, pooling, head.

Read it from top to bottom: the config, the forward pass, the presets. The differences from the paper's
code are in layout only: rows are packed, and queries, keys and values come from one product.
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
from glassformer.types import HeadKind, PoolingKind


@dataclass(frozen=True)
class BertConfig:
    """Embeddings, encoder, and what stands on them."""

    embedding: EmbeddingConfig
    encoder: EncoderConfig
    pooling: PoolingKind | None = "pooler"  # None: no pooled vector
    head: HeadKind | None = None
    num_labels: int = 2  # of a classification head
    head_type: str = "linear"
    head_hidden: int | None = None
    head_dropout: float = 0.0
    init_std: float = 0.02  # of linear weights and, unless given below, of the tables
    embedding_std: float | None = None

    def __post_init__(self) -> None:
        if self.embedding.d_model != self.encoder.d_model:
            raise ConfigError(
                f"embedding width {self.embedding.d_model} and encoder width {self.encoder.d_model} differ"
            )
        if self.head == "classification" and self.pooling is None:
            raise ConfigError("a classification head needs a pooling", where="head")
        if self.head == "pretraining" and self.pooling != "pooler":
            raise ConfigError("next-sentence prediction reads the pooler", where="head")


class Bert(TextDoors, Backbone):
    """A text encoder with an optional pooling and head."""

    def __init__(self, config: BertConfig):
        super().__init__()
        c = self.config = config
        d = c.encoder.d_model
        self.embeddings = TextEmbedding(c.embedding)
        self.encoder = Encoder(c.encoder)
        self.pooling = make_pooling(c.pooling, d) if c.pooling else None
        if c.head == "classification":
            self.head = ClassificationHead(d, c.num_labels, c.head_type, c.head_hidden, c.head_dropout)
        if c.head in ("mlm", "pretraining"):
            self.mlm = MaskedLMHead(d, c.embedding.vocab_size, c.encoder.activation, c.encoder.eps)
        if c.head == "pretraining":
            self.nsp = nn.Linear(d, 2)
        self.init_weights()

    def read(
        self, ids: Tensor, packing: Packing, segments: Tensor | None, trace: Trace | None,
        every_row: bool = False,
    ) -> ModelOutput:  # fmt: skip
        return self.run_rows(self.embeddings(ids, packing, segments), packing, trace, every_row=every_row)


# --- presets: plain functions with every number visible -------------------------------------------


def bert(
    vocab_size: int = 30_522,
    d_model: int = 768,
    num_layers: int = 12,
    num_heads: int = 12,
    d_ff: int = 3072,
    max_positions: int = 512,
    dropout: float = 0.1,
    **options,
) -> BertConfig:
    """BERT-base: L12 H768 A12, 110 M parameters."""
    return BertConfig(
        EmbeddingConfig(
            vocab_size, d_model, "learned", max_positions, 2, norm=True, eps=1e-12, dropout=dropout
        ),
        EncoderConfig(
            d_model, num_layers, num_heads, d_ff, "post", "gelu", 1e-12, dropout, attention_dropout=dropout
        ),
        **options,
    )


def bert_large(vocab_size: int = 30_522, **options) -> BertConfig:
    """BERT-large: L24 H1024 A16, 340 M parameters."""
    return bert(vocab_size, 1024, 24, 16, 4096, **options)


def minilm(vocab_size: int = 30_522, **options) -> BertConfig:
    """MiniLM-L6-H384 (Wang et al., 2020): 22.7 M parameters."""
    return bert(vocab_size, 384, 6, 12, 1536, **options)


def encoder_small(vocab_size: int) -> BertConfig:
    """A small post-norm encoder for word tokens: d 128, 4 heads, 2 layers, d_ff 256, dropout 0.1, first word read."""
    return BertConfig(
        EmbeddingConfig(vocab_size, 128, "sinusoidal", segments=0, norm=False, dropout=0.1),
        EncoderConfig(128, 2, 4, 256, "post", "relu", eps=1e-5, dropout=0.1),
        pooling="first",
        init_std=0.05,
        embedding_std=1.0,
    )


def encoder_base(vocab_size: int) -> BertConfig:
    """BERT's width with four post-norm layers: d 768, 12 heads, d_ff 3072, dropout 0.1."""
    return BertConfig(
        EmbeddingConfig(vocab_size, 768, "learned", segments=0, norm=True, eps=1e-5, dropout=0.1),
        EncoderConfig(768, 4, 12, 3072, "post", "gelu", eps=1e-5, dropout=0.1),
        pooling="first",
    )


def encoder_mini(vocab_size: int) -> BertConfig:
    """One pre-norm layer, d 64, 2 heads, GELU, MLP ratio 2, dropout 0.1, sinusoidal, final norm, [CLS]."""
    return BertConfig(
        EmbeddingConfig(vocab_size, 64, "sinusoidal", segments=0, norm=False, dropout=0.1),
        EncoderConfig(64, 1, 2, 128, "pre", "gelu", eps=1e-5, dropout=0.1, final_norm=True),
        pooling="first",
        embedding_std=0.5,
    )
