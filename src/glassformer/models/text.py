"""BERT (Devlin et al., 2019) and every from-scratch text encoder: embeddings, THE encoder, pooling, head.

Read it from top to bottom: the config, the forward pass, the presets. The differences from the paper's
code are in layout only: rows are packed, and queries, keys and values come from one product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError, ShapeError
from glassformer.models.output import ModelOutput
from glassformer.models.pooled import PooledHead
from glassformer.nn.embed import EmbeddingConfig, TextEmbedding
from glassformer.nn.encoder import Encoder, EncoderConfig
from glassformer.nn.heads import ClassificationHead, MaskedLMHead
from glassformer.nn.pooling import make_pooling
from glassformer.nn.trace import Trace, TraceRecord
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


class Bert(PooledHead, nn.Module):
    """A text encoder with an optional pooling and head."""

    def __init__(self, config: BertConfig):
        super().__init__()
        c = self.config = config
        d = c.encoder.d_model
        self.embeddings = TextEmbedding(c.embedding)
        self.encoder = Encoder(c.encoder)
        self.pooling = make_pooling(c.pooling, d) if c.pooling else None
        self.head = self.mlm = self.nsp = None
        if c.head == "classification":
            self.head = ClassificationHead(d, c.num_labels, c.head_type, c.head_hidden, c.head_dropout)  # type: ignore[arg-type]
        if c.head in ("mlm", "pretraining"):
            self.mlm = MaskedLMHead(d, c.embedding.vocab_size, c.encoder.activation, c.encoder.eps)
        if c.head == "pretraining":
            self.nsp = nn.Linear(d, 2)
        self.weights_source = "random"
        self.init_weights()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        packing: Packing | None = None,
        trace: Trace | None = None,
    ) -> ModelOutput:
        """Padded ``[B, T]`` ids with a mask, or packed ``[N]`` ids with a packing.

        Args:
            attention_mask: ``[B, T]``, non-zero where a token is real; None: everywhere.
            token_type_ids: the segments, in the layout of ``input_ids``; None: all 0.
            trace: what to record on the way; nothing else is kept.

        Positions count real tokens, so padding on the left gives what padding on the right gives.
        """
        if packing is not None:
            return self._encode(input_ids, token_type_ids, packing, trace, every_row=False)
        if input_ids.ndim != 2:
            raise ShapeError(f"padded input_ids are [B, T], got {tuple(input_ids.shape)}", where="input_ids")
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        if attention_mask.shape != input_ids.shape:
            raise ShapeError(
                f"mask {tuple(attention_mask.shape)} for ids {tuple(input_ids.shape)}", where="attention_mask"
            )
        if token_type_ids is not None and token_type_ids.shape != input_ids.shape:
            raise ShapeError(
                f"segments {tuple(token_type_ids.shape)} for ids {tuple(input_ids.shape)}",
                where="token_type_ids",
            )
        packing, real = Packing.from_mask(attention_mask)
        segments = None if token_type_ids is None else token_type_ids.flatten()[real]
        out = self._encode(input_ids.flatten()[real], segments, packing, trace, every_row=True)
        return _unpack(out, real, input_ids.shape, token_logits=self.mlm is not None)

    def _encode(
        self, ids: Tensor, segments: Tensor | None, packing: Packing, request: Trace | None, every_row: bool
    ) -> ModelOutput:
        record = TraceRecord(request, self.config.encoder.num_layers) if request is not None else None
        x = self.embeddings(ids, packing, segments)  # [N, D]
        few = self._reads_first_rows_only and not every_row and not (record and record.needs_all_rows)
        x = self.encoder(x, packing, rows=packing.first_rows if few else None, trace=record)  # [N or B, D]
        out = ModelOutput(packing, states=None if few else x, trace=record)
        if self.pooling is not None:
            out.pooler_output = self.pooling(x, packing)  # [B, D]
        if self.head is not None:
            out.logits = self.head(out.pooler_output)
        if self.mlm is not None:
            out.logits = self.mlm(x, self.embeddings.tokens.weight)
        if self.nsp is not None:
            out.seq_relationship_logits = self.nsp(out.pooler_output)
        return out

    def features(self, ids: Tensor, packing: Packing, segments: Tensor | None = None) -> Tensor:
        """Of packed ids ``[N]``, ``[B, D]``: see ``remains``."""
        return self.remains(self.embeddings(ids, packing, segments), packing)

    def set_compute_dtype(self, dtype: torch.dtype) -> Bert:
        """Compute the encoder in ``dtype``; tables, pooling and head stay in fp32 (see ``TextEmbedding``)."""
        self.encoder.to(dtype)
        self.embeddings.compute_dtype = dtype
        return self

    def init_weights(self) -> None:
        """Normal weights, zero biases (Devlin et al.); with ``zero_init`` the residual branches start at 0."""
        c = self.config
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=c.init_std)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=c.embedding_std or c.init_std)
        if self.embeddings.project is not None:  # rows keep their size, beside positions of size 1
            nn.init.normal_(self.embeddings.project.weight, std=self.embeddings.project.in_features**-0.5)
        if c.encoder.zero_init:
            for layer in self.encoder.layers:
                nn.init.zeros_(layer.attention.out.weight)  # type: ignore[union-attr]
                nn.init.zeros_(layer.feed_forward.down.weight)  # type: ignore[union-attr]

    def with_head(self, **changes) -> Bert:
        """The same encoder under another pooling or head; what is new is freshly initialised."""
        other = Bert(replace(self.config, **changes))
        other.load_state_dict(
            {k: v for k, v in self.state_dict().items() if k.startswith(("embeddings.", "encoder."))},
            strict=False,
        )
        if (
            other.config.pooling == self.config.pooling
            and self.pooling is not None
            and other.pooling is not None
        ):
            other.pooling.load_state_dict(self.pooling.state_dict())
        if self.mlm is not None and other.mlm is not None:
            other.mlm.load_state_dict(self.mlm.state_dict())
        other.weights_source = self.weights_source
        return other


def _unpack(out: ModelOutput, real: Tensor, shape: torch.Size, token_logits: bool) -> ModelOutput:
    """Packed rows back to the places ``real`` they had in the padded ``[B, T]`` layout."""

    def spread(rows: Tensor) -> Tensor:
        flat = rows.new_zeros(shape.numel(), *rows.shape[1:]).index_copy(0, real, rows)
        return flat.view(*shape, *rows.shape[1:])

    one_row = out.trace is not None and out.trace.request.rows == "first"

    def spread_maps(maps: tuple[Tensor, ...]) -> Tensor:  # tuple of [H, T_i, T_i] -> [B, H, T, T]
        full = maps[0].new_zeros(shape[0], maps[0].shape[0], 1 if one_row else shape[1], shape[1])
        for b, (places, one) in enumerate(zip(out.packing.split(real % shape[1]), maps, strict=True)):
            rows = places[:1] * 0 if one_row else places
            full[b, :, rows[:, None], places] = one
        return full

    if out.states is not None:
        out.states = spread(out.states)
    if out.logits is not None and token_logits:
        out.logits = spread(out.logits)
    if out.trace is not None:
        out.trace = out.trace.mapped(spread_maps, spread)
    return out


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
