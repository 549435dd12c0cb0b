"""Text encoder with pooling and heads.

All families of text Transformers (``families/``) use this model and differ only in their configs. The
sequences of a batch are packed: there is no padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError, InputError
from glassformer.models.backbone import Backbone, ModelOutput, TextForward
from glassformer.models.sentences import EmbeddingSettings
from glassformer.nn.embed import EmbeddingConfig, TextEmbedding
from glassformer.nn.encoder import Encoder, EncoderConfig
from glassformer.nn.heads import MaskedLMHead, SpanHead, make_head
from glassformer.nn.pairs import PairPooling, pair_width, split_pairs
from glassformer.nn.pooling import make_pooling, pooled_width
from glassformer.nn.positions import LearnedPositions, shift_matrix, sinusoidal
from glassformer.nn.trace import Trace
from glassformer.packing import Packing
from glassformer.types import Activation, HeadKind, PoolingKind


@dataclass(frozen=True)
class TextEncoderConfig:
    """Config of embeddings, encoder, pooling and head."""

    embedding: EmbeddingConfig
    encoder: EncoderConfig
    pooling: PoolingKind | None = "pooler"  # None: no pooled vector; "tokens": token classification
    head: HeadKind | None = None
    num_labels: int = 2  # number of outputs of the classification head
    head_type: str = "linear"
    head_hidden: int | None = None
    head_dropout: float = 0.0
    head_activation: str = "relu"  # activation of the hidden layer of an mlp head; or "gelu", "none"
    head_input_dropout: float = 0.0  # dropout before the hidden layer
    drop_before_pooler: bool = False  # whether the head's dropout is also applied before the pooler
    words_activation: Activation | None = None  # activation of the mlm head; None: that of the encoder
    init_std: float = 0.02  # initial standard deviation of weights
    embedding_std: float | None = None  # initial standard deviation of embeddings; None: init_std
    # model_type in config.json; None: the first registered family with this layout
    model_type: str | None = None
    head_norm: bool = False  # layer norm after the hidden layer of an mlp head
    head_bias: bool = True  # bias of the hidden layer of an mlp head, and of the mlm head
    # How the two texts of a pair are encoded. "apart": separately, as a bi-encoder (nn/pairs.py); None: as
    # one input. A saved model has this key in config.json.
    sides: Literal["apart"] | None = None

    def __post_init__(self) -> None:
        if self.embedding.d_model != self.encoder.d_model:
            raise ConfigError(
                f"embedding width {self.embedding.d_model} and encoder width {self.encoder.d_model} differ"
            )
        if self.head == "spans":  # the span head reads all hidden states
            object.__setattr__(self, "pooling", None)
        if self.head != "classification":  # only classification supports a bi-encoder
            object.__setattr__(self, "sides", None)
        if self.head == "classification" and self.pooling is None:
            raise ConfigError("a classification head needs a pooling", where="head")
        if self.head == "pretraining" and self.pooling != "pooler":
            raise ConfigError("next-sentence prediction reads the pooler", where="head")

    def default_pooling(self, head: str | None) -> PoolingKind | None:
        """The default pooling for a new ``head``."""
        if head == "spans":
            return None
        pooling = None if self.pooling == "tokens" and head != "classification" else self.pooling
        return pooling or ("pooler" if head != "mlm" else None)


class TextEncoder(TextForward, Backbone):
    """A text encoder with an optional pooling and head.

    ``sentences`` has the settings of sentence embeddings, or the error from reading them. It is None if the
    checkpoint has no such settings.
    """

    reads = "texts"
    sentences: EmbeddingSettings | InputError | None = None

    def __init__(self, config: TextEncoderConfig):
        super().__init__()
        c = self.config = config
        d = c.encoder.d_model
        self.embeddings = TextEmbedding(c.embedding)
        self.encoder = Encoder(c.encoder)
        drop = c.head_dropout if c.drop_before_pooler and c.head == "classification" else 0.0
        self.pooling = make_pooling(c.pooling, d, drop) if c.pooling else None
        width = pooled_width(c.pooling, d)
        if c.sides and self.pooling is not None:
            self.pooling, width = PairPooling(self.pooling, str(c.pooling), d), pair_width(d)
        if c.head == "classification":
            self.head = make_head(c, width)
        if c.head in ("mlm", "pretraining"):
            activation = c.words_activation or c.encoder.activation
            token_width = c.embedding.token_width or c.embedding.width
            biases = c.head_bias, c.encoder.norm_bias
            eps = c.encoder.eps
            self.mlm = MaskedLMHead(d, c.embedding.vocab_size, activation, eps, token_width, *biases)
        if c.head == "pretraining":
            self.nsp = nn.Linear(d, 2)
        if c.head == "spans":
            hidden = c.head_activation if c.head_norm else None
            biases = c.head_bias, c.encoder.norm_bias
            self.spans = SpanHead(d, c.head_dropout, hidden, c.encoder.eps, *biases)
        self.init_weights()

    def read(
        self,
        ids: Tensor,
        packing: Packing,
        segments: Tensor | None,
        trace: Trace | None,
        every_row: bool = False,
    ) -> ModelOutput:
        x, packing = self.embed(ids, packing, segments)
        return self.run_rows(x, packing, trace, every_row=every_row)

    def embed(  # type: ignore[override]  # sentence embeddings of texts, or token embeddings of ids
        self, inputs: Any, packing: Packing | None = None, segments: Tensor | None = None, **options: Any
    ) -> Any:
        """Sentence embeddings of texts, like ``SentenceTransformer(folder).encode``; token embeddings of ids.

        Args:
            inputs: a list of texts, or ids ``[N]`` with their packing (``Backbone.embed``).
            options: for texts: ``prompt_name`` (one of the folder's prompts) or ``prompt`` (a text) before
                each text; ``batch_tokens``, the number of tokens per batch (8192); ``tokenizer`` (None: the
                folder's tokenizer).

        Returns:
            A numpy array ``[n, E]``, fp32.

        Raises:
            ConfigError: the folder of the model has no ``modules.json``, or the prompt is unknown.
            CheckpointError: ``modules.json`` has an unknown step or unreadable settings.
            DataError: ``inputs`` is not a list of strings.
        """
        if isinstance(inputs, Tensor):
            if self.config.sides and packing is not None:
                packing, segments = split_pairs(packing, segments), None
            return super().embed(inputs, packing, segments)
        return self.embed_texts(inputs, **options)

    def embed_texts(self, texts: Iterable[str], **options: Any) -> np.ndarray:
        """Sentence embeddings of texts; see ``embed``."""
        if isinstance(self.sentences, InputError):
            raise self.sentences
        if self.sentences is None:
            raise ConfigError(
                "the model's folder has no modules.json, which defines the sentence embedding",
                where="embed",
                fix="Load a sentence-transformers folder, or fit a TextClassifier and use its embed",
            )
        was_training = self.training
        try:
            return self.sentences.embed(self.eval(), texts, **options)
        finally:
            self.train(was_training)


# --- local attention at initialization ------------------------------------------------------------
#
# A masked word can be predicted from its neighbors, which a model finds through its positions. With random
# weights the attention of every head is uniform, so in its first millions of tokens BERT learns only word
# frequencies. Trockman and Kolter (2023) initialize a ViT with the attention patterns of trained heads.
# ``init_local_attention`` does the same for text.


# The relative positions that the first heads of the model initially attend to; later heads are random.
OFFSETS = (-1, 1, -2, 2, -3, 3)
# Difference between the score of the offset that a head attends to and the score of the next position.
SHARPNESS = 3.0
AMPLITUDE = 2.0  # amplitude of the sinusoids, relative to the standard deviation of the tokens


@torch.no_grad()
def init_local_attention(model: TextEncoder) -> int:
    """Initialize the first heads of a new BERT to attend to the previous token, the next token, and so on.

    The first P features of an embedding are sinusoidal positions (P is even, at most a quarter of all
    features, and at most the width of a head). The keys of a head copy these features. The queries are the
    features shifted by k positions, a linear map (``shift_matrix``). So the score is highest k positions
    away:

        q_t . k_s  ~  sum_i cos(w_i (t + k - s))

    The second layer reads mixed embeddings, so its heads attend to these positions only approximately. The
    wavelengths are 2 pi to 2 pi times the number of positions. All weights stay trainable, and the saved
    model is an ordinary BERT. The function does not change a model that is too narrow, or that lacks learned
    positions or the norm after the embeddings.

    Returns:
        P, the number of features of the token embeddings that are set to 0; 0: the model is unchanged.
    """
    c, e = model.config, model.embeddings
    d, heads = c.encoder.d_model, c.encoder.num_heads
    width, positions = d // heads, e.positions
    waves = min(d // 4, width) // 2
    if not waves or not isinstance(positions, LearnedPositions) or e.norm is None or e.project is not None:
        return 0
    p, base = 2 * waves, float(positions.num_embeddings)
    for table in (e.tokens, e.segments):
        if table is not None:
            table.weight[:, :p] = 0
    positions.weight.zero_()
    positions.weight[:, :p] = AMPLITUDE * c.init_std * sinusoidal(positions.num_embeddings, p, base)
    # Before the norm, the variance of an embedding is that of tokens and segments plus half the squared
    # amplitude. The norm scales it to 1.
    token_variance = (1 + (e.segments is not None)) * (d - p) / d
    amplitude = AMPLITUDE / math.sqrt(token_variance + AMPLITUDE**2 / 2 * p / d)
    frequencies = base ** (-torch.arange(waves, dtype=torch.float32) / waves)
    drop = amplitude**2 * float((1 - torch.cos(frequencies)).sum()) / math.sqrt(width)
    gain = math.sqrt(SHARPNESS / drop)
    offsets = chain(OFFSETS, repeat(None))
    for layer in model.encoder.layers:
        weight = layer.attention.qkv.weight
        for head in range(heads):
            offset = next(offsets)
            if offset is None:
                return p
            for first, matrix in ((0, shift_matrix(offset, p, base)), (d, torch.eye(p))):
                rows = weight[first + head * width : first + (head + 1) * width]
                nn.init.normal_(rows, std=c.init_std)
                rows[:p, :p] += gain * matrix
    return p
