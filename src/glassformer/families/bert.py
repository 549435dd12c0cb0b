"""BERT (Devlin et al., 2019): ``config.json``, tensor names and presets."""

from __future__ import annotations

from typing import Any

from glassformer.checkpoints.names import NameTable
from glassformer.checkpoints.settings import shorten
from glassformer.errors import UnsupportedModelError
from glassformer.families.family import text_family
from glassformer.families.settings import activation, nonnegative, rate, read_settings, size, write_settings
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
    full_names={"mlm.bias": "cls.predictions.bias"},
    head_parameters=("mlm.bias",),
    ignored={
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


SETTINGS = (
    size("vocab_size", "embedding.vocab_size"),
    size("hidden_size", "embedding.d_model", "encoder.d_model"),
    size("num_hidden_layers", "encoder.num_layers"),
    size("num_attention_heads", "encoder.num_heads"),
    size("intermediate_size", "encoder.d_ff"),
    activation("hidden_act", "encoder.activation"),
    nonnegative("layer_norm_eps", "embedding.eps", "encoder.eps", default=1e-12),
    rate("hidden_dropout_prob", "embedding.dropout", "encoder.dropout", default=0.1),
    rate("attention_probs_dropout_prob", "encoder.attention_dropout", default=0.1),
    rate("classifier_dropout", "head_dropout", default=0.1),
    size("max_position_embeddings", "embedding.max_positions", default=512),
    size("type_vocab_size", "embedding.segments", default=2),
    nonnegative("initializer_range", "init_std", default=0.02),
)
# Keys for variants of BERT, with the only value that is supported.
FIXED = {"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"}


def read(settings: dict[str, Any], where: str) -> TextEncoderConfig:
    """Our config from BERT's ``config.json``."""
    for key, supported in FIXED.items():
        if settings.get(key, supported) not in (supported, None):
            raise UnsupportedModelError(f"{key} = {shorten(settings[key])} is not supported", where=where)
    if settings.get("classifier_dropout") is None:
        settings = settings | {"classifier_dropout": settings.get("hidden_dropout_prob", 0.1)}
    return read_settings(SETTINGS, bert(), settings, where)


def write(config: TextEncoderConfig) -> dict[str, Any]:
    fixed = {"position_embedding_type": "absolute", "pad_token_id": 0, "torch_dtype": "float32"}
    return {"model_type": "bert", **write_settings(SETTINGS, config), **fixed}


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
            vocab_size,
            d_model,
            positions="learned",
            max_positions=max_positions,
            segments=2,
            norm=True,
            eps=1e-12,
            dropout=dropout,
        ),
        EncoderConfig(
            d_model,
            num_layers,
            num_heads,
            d_ff,
            norm="post",
            activation="gelu",
            eps=1e-12,
            dropout=dropout,
            attention_dropout=dropout,
        ),
        **options,
    )


def bert_large(vocab_size: int = 30_522, **options) -> TextEncoderConfig:
    """BERT-large: L24 H1024 A16, 340 M parameters."""
    return bert(vocab_size, d_model=1024, num_layers=24, num_heads=16, d_ff=4096, **options)


def minilm(vocab_size: int = 30_522, **options) -> TextEncoderConfig:
    """MiniLM-L6-H384 (Wang et al., 2020): 22.7 M parameters."""
    return bert(vocab_size, d_model=384, num_layers=6, num_heads=12, d_ff=1536, **options)


BERT = text_family(
    "bert",
    "Bert",
    bert,
    read,
    write,
    NAMES,
    more_classes={"pretraining": "BertForPreTraining"},
    pretraining={"bert": bert},
    examples=(
        "google-bert/bert-base-uncased",
        "google-bert/bert-base-multilingual-cased",
        "sentence-transformers/all-MiniLM-L6-v2",
    ),
)
