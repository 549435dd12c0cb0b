"""BERT (Devlin et al., 2019): ``config.json``, tensor names and presets."""

from __future__ import annotations

from typing import Any

from glassformer.checkpoints.layout import THEIR_ACTIVATION, activation
from glassformer.checkpoints.names import NameTable
from glassformer.checkpoints.settings import number, real, shown
from glassformer.errors import UnsupportedModelError
from glassformer.families.family import text_family
from glassformer.models.text import TextEncoderConfig
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.encoder import EncoderConfig

NAMES = NameTable(
    prefix="bert.",
    encoder={
        "embeddings.tokens": "embeddings.word_embeddings",
        "embeddings.positions": "embeddings.position_embeddings",
        "embeddings.segments": "embeddings.token_type_embeddings",
        "embeddings.norm": "embeddings.LayerNorm",
        "encoder.layers.{i}.attention.out": "encoder.layer.{i}.attention.output.dense",
        "encoder.layers.{i}.norm1": "encoder.layer.{i}.attention.output.LayerNorm",
        "encoder.layers.{i}.feed_forward.up": "encoder.layer.{i}.intermediate.dense",
        "encoder.layers.{i}.feed_forward.down": "encoder.layer.{i}.output.dense",
        "encoder.layers.{i}.norm2": "encoder.layer.{i}.output.LayerNorm",
        "pooling.dense": "pooler.dense",
    },
    fused={
        "encoder.layers.{i}.attention.qkv": (
            "encoder.layer.{i}.attention.self.query",
            "encoder.layer.{i}.attention.self.key",
            "encoder.layer.{i}.attention.self.value",
        )
    },
    heads={
        "head.out": "classifier",
        "mlm.dense": "cls.predictions.transform.dense",
        "mlm.norm": "cls.predictions.transform.LayerNorm",
        "nsp": "cls.seq_relationship",
        "spans.out": "qa_outputs",
    },
    whole={"mlm.bias": "cls.predictions.bias"},
    own_heads=("mlm.bias",),
    dropped={
        "embeddings.position_ids": "a constant 0, 1, 2, ...",
        "cls.predictions.decoder.weight": "tied to the token embeddings",
        "cls.predictions.decoder.bias": "the same as cls.predictions.bias",
    },
    tied={
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
)


# --- config.json ------------------------------------------------------------------------------------


def read(settings: dict[str, Any], where: str) -> TextEncoderConfig:
    """Our config from BERT's ``config.json``.

    Raises:
        CheckpointError: a missing key, or an unsupported variant (decoder, relative positions, activation).
    """
    for key, supported in (
        ("is_decoder", False),
        ("add_cross_attention", False),
        ("position_embedding_type", "absolute"),
    ):
        if settings.get(key, supported) not in (supported, None):
            raise UnsupportedModelError(f"{key} = {shown(settings[key])} is not supported", where=where)
    vocab, d = number(settings, "vocab_size", where), number(settings, "hidden_size", where)
    layers, heads = (
        number(settings, "num_hidden_layers", where),
        number(settings, "num_attention_heads", where),
    )
    d_ff = number(settings, "intermediate_size", where)
    eps, dropout = (
        real(settings, "layer_norm_eps", where, 1e-12),
        real(settings, "hidden_dropout_prob", where, 0.1, 1),
    )
    positions = number(settings, "max_position_embeddings", where, 512)
    segments = number(settings, "type_vocab_size", where, 2)
    unset = settings.get("classifier_dropout") is None
    head_dropout = dropout if unset else real(settings, "classifier_dropout", where, dropout, 1)
    return TextEncoderConfig(
        EmbeddingConfig(vocab, d, "learned", positions, segments, norm=True, eps=eps, dropout=dropout),
        EncoderConfig(
            d,
            layers,
            heads,
            d_ff,
            "post",
            activation(settings, where),  # type: ignore[arg-type]  # checked
            eps,
            dropout,
            attention_dropout=real(settings, "attention_probs_dropout_prob", where, 0.1, 1),
        ),
        head_dropout=head_dropout,
        init_std=real(settings, "initializer_range", where, 0.02),
    )


def is_representable(config: TextEncoderConfig) -> bool:
    """Whether this encoder can be saved as BERT."""
    e, c = config.embedding, config.encoder
    return (
        e.positions == "learned"
        and e.segments > 0
        and e.norm
        and e.eps == c.eps
        and c.norm == "post"
        and c.is_plain
        and not c.final_norm
        and (e.token_width, e.width, config.model_type) == (None, None, None)
        and not e.frozen
        and not e.damp_repeats
        and e.scale == 1
        and config.words_activation in (None, c.activation)
    )


def write(config: TextEncoderConfig) -> dict[str, Any]:
    e, c = config.embedding, config.encoder
    return {
        "model_type": "bert",
        "vocab_size": e.vocab_size,
        "hidden_size": c.d_model,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "intermediate_size": c.d_ff,
        "hidden_act": THEIR_ACTIVATION[c.activation],
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.attention_dropout,
        "classifier_dropout": config.head_dropout,
        "max_position_embeddings": e.max_positions,
        "type_vocab_size": e.segments,
        "initializer_range": config.init_std,
        "layer_norm_eps": c.eps,
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        "torch_dtype": "float32",
    }


# --- presets --------------------------------------------------------------------------------------


def bert(
    vocab_size: int = 30_522,
    d_model: int = 768,
    num_layers: int = 12,
    num_heads: int = 12,
    d_ff: int = 3072,
    max_positions: int = 512,
    dropout: float = 0.1,
    **options,
) -> TextEncoderConfig:
    """BERT-base: L12 H768 A12, 110 M parameters."""
    return TextEncoderConfig(
        EmbeddingConfig(
            vocab_size, d_model, "learned", max_positions, 2, norm=True, eps=1e-12, dropout=dropout
        ),
        EncoderConfig(
            d_model, num_layers, num_heads, d_ff, "post", "gelu", 1e-12, dropout, attention_dropout=dropout
        ),
        **options,
    )


def bert_large(vocab_size: int = 30_522, **options) -> TextEncoderConfig:
    """BERT-large: L24 H1024 A16, 340 M parameters."""
    return bert(vocab_size, 1024, 24, 16, 4096, **options)


def minilm(vocab_size: int = 30_522, **options) -> TextEncoderConfig:
    """MiniLM-L6-H384 (Wang et al., 2020): 22.7 M parameters."""
    return bert(vocab_size, 384, 6, 12, 1536, **options)


BERT = text_family(
    "bert",
    "Bert",
    bert,
    read,
    write,
    is_representable,
    NAMES,
    more_classes={"pretraining": "BertForPreTraining"},
    pretraining={"bert": bert},
    examples=(
        "google-bert/bert-base-uncased",
        "google-bert/bert-base-multilingual-cased",
        "sentence-transformers/all-MiniLM-L6-v2",
    ),
)
