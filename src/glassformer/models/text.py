"""THE text encoder: embeddings, encoder, pooling, head; read it from top to bottom.

Every family of text Transformers (``families/``) is this one with another config. Rows are packed, and
queries, keys and values come from one product.
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
from glassformer.models.backbone import Backbone, ModelOutput, TextDoors
from glassformer.models.sentences import Sentences
from glassformer.nn.embed import EmbeddingConfig, TextEmbedding
from glassformer.nn.encoder import Encoder, EncoderConfig
from glassformer.nn.heads import MaskedLMHead, SpanHead, head_of
from glassformer.nn.pairs import PairPooling, pair_width, sides_of
from glassformer.nn.pooling import make_pooling, pooled_width
from glassformer.nn.positions import LearnedPositions, shift_matrix, sinusoidal
from glassformer.nn.trace import Trace
from glassformer.packing import Packing
from glassformer.types import Activation, HeadKind, PoolingKind


@dataclass(frozen=True)
class TextEncoderConfig:
    """Embeddings, encoder, and what stands on them."""

    embedding: EmbeddingConfig
    encoder: EncoderConfig
    pooling: PoolingKind | None = "pooler"  # None: no pooled vector; tokens: the head answers each of them
    head: HeadKind | None = None
    num_labels: int = 2  # of a classification head
    head_type: str = "linear"
    head_hidden: int | None = None
    head_dropout: float = 0.0
    head_activation: str = "relu"  # of the hidden layer of an mlp head; or "gelu", "none"
    head_input_dropout: float = 0.0  # before that layer
    drop_before_pooler: bool = False  # the head's dropout falls on the row that its pooler reads, too
    words_activation: Activation | None = None  # of the masked-word head; None: the encoder's
    init_std: float = 0.02  # of linear weights and, unless given below, of the tables
    embedding_std: float | None = None
    model_type: str | None = (
        None  # of the folder, where several write the same layout; None: the first of them
    )
    head_norm: bool = False  # behind the hidden layer of an mlp head
    head_bias: bool = True  # of the hidden layer of an mlp head, and of the masked-word head's
    sides: Literal["apart"] | None = None  # of pairs of texts (``nn/pairs.py``); None: read as one text

    def __post_init__(self) -> None:
        if self.embedding.d_model != self.encoder.d_model:
            raise ConfigError(
                f"embedding width {self.embedding.d_model} and encoder width {self.encoder.d_model} differ"
            )
        if self.head == "spans":  # it reads every row as it is; a folder that says nothing means the same
            object.__setattr__(self, "pooling", None)
        if self.head != "classification":  # no other reads pairs so
            object.__setattr__(self, "sides", None)
        if self.head == "classification" and self.pooling is None:
            raise ConfigError("a classification head needs a pooling", where="head")
        if self.head == "pretraining" and self.pooling != "pooler":
            raise ConfigError("next-sentence prediction reads the pooler", where="head")

    def pooling_under(self, head: str | None) -> PoolingKind | None:
        """What a new head of that kind reads, unless something else is asked for."""
        if head == "spans":  # reads every row as it is
            return None
        own = None if self.pooling == "tokens" and head != "classification" else self.pooling
        return own or ("pooler" if head != "mlm" else None)


class TextEncoder(TextDoors, Backbone):
    """A text encoder with an optional pooling and head.

    ``sentences`` says how it makes one vector of a text, if its folder says so (or why it is unreadable).
    """

    reads = "texts"
    sentences: Sentences | InputError | None = None

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
            self.head = head_of(c, width)
        if c.head in ("mlm", "pretraining"):
            activation = c.words_activation or c.encoder.activation
            table = c.embedding.token_width or c.embedding.width
            biases = c.head_bias, c.encoder.norm_bias
            self.mlm = MaskedLMHead(d, c.embedding.vocab_size, activation, c.encoder.eps, table, *biases)
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

    def embed(  # type: ignore[override]  # texts give vectors, ids the rows that enter the encoder
        self, inputs: Any, packing: Packing | None = None, segments: Tensor | None = None, **options: Any
    ) -> Any:
        """Texts -> one vector each, as the folder's ``modules.json`` says; packed ids as ``Backbone.embed``.

        Args:
            inputs: a list of texts, or ids ``[N]`` with their packing.
            options: of texts: ``prompt_name`` (of the folder's prompts) or ``prompt`` (as it is), put before
                each text; ``batch_tokens`` computed at once (8192); ``tokenizer``, None: the folder's.

        Returns:
            ``[n, E]`` fp32 of numpy, in the order given; what ``SentenceTransformer(folder).encode`` gives.

        Raises:
            ConfigError: the model is of a folder without ``modules.json``; no prompt of that name.
            CheckpointError: that file has a step of an unknown kind, or settings that cannot be read.
            DataError: something that is no list of texts.
        """
        if isinstance(inputs, Tensor):
            if self.config.sides and packing is not None:
                packing, segments = sides_of(packing, segments), None
            return super().embed(inputs, packing, segments)
        return self.embed_texts(inputs, **options)

    def embed_texts(self, texts: Iterable[str], **options: Any) -> np.ndarray:
        """Texts -> one vector each; see ``embed``."""
        if isinstance(self.sentences, InputError):
            raise self.sentences
        if self.sentences is None:
            raise ConfigError(
                "its folder has no modules.json, which says how a text becomes one vector",
                where="embed",
                fix="Load a folder of sentence-transformers, or fit a TextClassifier and take its embed",
            )
        was_training = self.training
        try:
            return self.sentences.embed(self.eval(), texts, **options)
        finally:
            self.train(was_training)


# --- heads that begin by looking at the tokens beside them ----------------------------------------
#
# A start for BERT's masked-word task.
#
# A masked word can be guessed from its neighbors alone, and nothing but positions says where these stand.
# With random weights every head looks everywhere alike, so for millions of tokens a model learns no more
# than how frequent each word is. Trockman and Kolter (2023) begin a ViT's heads with maps that trained ones
# have; these are such maps for text.


# How many tokens from its own a head looks at first, head by head, layer by layer; later heads are random.
OFFSETS = (-1, 1, -2, 2, -3, 3)
SHARPNESS = 3.0  # by how much the score of the place beside the wanted one is lower
LOUDNESS = 2.0  # the waves' amplitude over the tokens' standard deviation


@torch.no_grad()
def look_beside(model: TextEncoder) -> int:
    """Begin a new BERT so that its first heads look at the token before, the one after, and so on.

    The first P numbers of a row (P even, at most a quarter of them and no more than a head has) hold waves
    that say where a token stands. A head's keys read them as they are; its queries read them moved on by k
    places, which is a linear map (``shift_matrix``), so that a score is highest k places on:

        q_t . k_s  ~  sum_i cos(w_i (t + k - s))

    Heads of the second layer read rows that the first has mixed, and so begin where they should only about.

    The wavelengths run from 2 pi to 2 pi times the number of positions. Everything learns on as ever, and
    what is saved is a BERT like any other. A model too narrow for one wave stays as it is, and so does one
    without learned positions or without the norm after the embeddings.

    Returns:
        P, how many of the tokens' first numbers are 0 now, where the waves are; 0: the model is unchanged.
    """
    c, e = model.config, model.embeddings
    d, heads = c.encoder.d_model, c.encoder.num_heads
    width, positions = d // heads, e.positions
    waves = min(d // 4, width) // 2
    if not waves or not isinstance(positions, LearnedPositions) or e.norm is None or e.project is not None:
        return 0
    part, base = 2 * waves, float(positions.num_embeddings)
    for table in (e.tokens, e.segments):
        if table is not None:
            table.weight[:, :part] = 0
    positions.weight.zero_()
    positions.weight[:, :part] = LOUDNESS * c.init_std * sinusoidal(positions.num_embeddings, part, base)
    # The norm brings a row to variance 1: the tokens' (and the segments') and half of the amplitude squared.
    tokens = (1 + (e.segments is not None)) * (d - part) / d
    amplitude = LOUDNESS / math.sqrt(tokens + LOUDNESS**2 / 2 * part / d)
    rates = base ** (-torch.arange(waves, dtype=torch.float32) / waves)
    drop = amplitude**2 * float((1 - torch.cos(rates)).sum()) / math.sqrt(width)
    gain = math.sqrt(SHARPNESS / drop)
    offsets = chain(OFFSETS, repeat(None))
    for layer in model.encoder.layers:
        weight = layer.attention.qkv.weight
        for head in range(heads):
            offset = next(offsets)
            if offset is None:
                return part
            for first, seen in ((0, shift_matrix(offset, part, base)), (d, torch.eye(part))):
                rows = weight[first + head * width : first + (head + 1) * width]
                nn.init.normal_(rows, std=c.init_std)
                rows[:part, :part] += gain * seen
    return part
