"""DistilBERT (Sanh et al., 2019): BERT without segments and pooler."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from glassformer.checkpoints.names import NameTable
from glassformer.errors import UnsupportedModelError
from glassformer.families.family import text_family
from glassformer.families.settings import (
    activation,
    flag,
    nonnegative,
    rate,
    read_settings,
    size,
    write_settings,
)
from glassformer.models.text import TextEncoderConfig
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.encoder import EncoderConfig
from glassformer.nn.positions import sinusoidal

EPS = 1e-12  # of all layer norms; config.json has no key for it
NAMES = NameTable(
    prefix="distilbert.",
    encoder={
        "embeddings.tokens": "embeddings.word_embeddings",
        "embeddings.positions": "embeddings.position_embeddings",
        "embeddings.norm": "embeddings.LayerNorm",
        "encoder.layers.{i}.attention.out": "transformer.layer.{i}.attention.out_lin",
        "encoder.layers.{i}.norm1": "transformer.layer.{i}.sa_layer_norm",
        "encoder.layers.{i}.feed_forward.up": "transformer.layer.{i}.ffn.lin1",
        "encoder.layers.{i}.feed_forward.down": "transformer.layer.{i}.ffn.lin2",
        "encoder.layers.{i}.norm2": "transformer.layer.{i}.output_layer_norm",
    },
    fused={
        "encoder.layers.{i}.attention.qkv": (
            "transformer.layer.{i}.attention.q_lin",
            "transformer.layer.{i}.attention.k_lin",
            "transformer.layer.{i}.attention.v_lin",
        )
    },
    heads={
        "head.hidden": "pre_classifier",
        "head.out": "classifier",
        "mlm.dense": "vocab_transform",
        "mlm.norm": "vocab_layer_norm",
        "spans.out": "qa_outputs",
    },
    full_names={"mlm.bias": "vocab_projector.bias"},
    head_parameters=("mlm.bias",),
    ignored={
        "embeddings.position_ids": "a constant 0, 1, 2, ...",
        "vocab_projector.weight": "tied to the token embeddings",
    },
    tied={"vocab_projector.weight": "embeddings.word_embeddings.weight"},
)
POSITIONS, HUB_POSITIONS = "embeddings.positions.weight", "embeddings.position_embeddings.weight"
TOLERANCE = 2e-3  # tolerance for sinusoidal positions, which a file may store in half precision


def from_hub(tensors: dict[str, Tensor], where: str, config: TextEncoderConfig) -> dict[str, Tensor]:
    """Convert the Hub's tensors to ours, without sinusoidal positions, which our models compute."""
    out = NAMES.from_hub(tensors, where)
    rows, width = config.embedding.max_positions, config.embedding.d_model
    if config.embedding.positions == "sinusoidal" and (table := out.pop(POSITIONS, None)) is not None:
        is_sinusoidal = (
            table.shape == (rows, width) and (table.float() - sinusoidal(rows, width)).abs().max() < TOLERANCE
        )
        if not is_sinusoidal:
            what = "sinusoidal_pos_embds = True, but the position_embeddings are not sines and cosines"
            raise UnsupportedModelError(what, where=where, fix="Set it to false in config.json")
    return out


def to_hub(tensors: dict[str, Tensor], with_prefix: bool, config: TextEncoderConfig) -> dict[str, Tensor]:
    """Convert our tensors to the Hub's, with sinusoidal positions if the config has them."""
    out = NAMES.to_hub(tensors, with_prefix)
    if config.embedding.positions == "sinusoidal":
        table = sinusoidal(config.embedding.max_positions, config.embedding.d_model)
        out[(NAMES.prefix if with_prefix else "") + HUB_POSITIONS] = table
    return out


# --- config.json ------------------------------------------------------------------------------------


SETTINGS = (
    flag("sinusoidal_pos_embds", "embedding.positions", values=("learned", "sinusoidal")),
    size("vocab_size", "embedding.vocab_size"),
    size("dim", "embedding.d_model", "encoder.d_model"),
    size("n_layers", "encoder.num_layers"),
    size("n_heads", "encoder.num_heads"),
    size("hidden_dim", "encoder.d_ff"),
    activation("activation", "encoder.activation"),
    rate("dropout", "embedding.dropout", "encoder.dropout", default=0.1),
    rate("attention_dropout", "encoder.attention_dropout", default=0.1),
    rate("seq_classif_dropout", "head_dropout", default=0.2),
    size("max_position_embeddings", "embedding.max_positions", default=512),
    nonnegative("initializer_range", "init_std", default=0.02),
)


def read(settings: dict[str, Any], where: str) -> TextEncoderConfig:
    """Our config from DistilBERT's ``config.json``."""
    return read_settings(SETTINGS, distilbert(), settings, where)


def write(config: TextEncoderConfig) -> dict[str, Any]:
    settings = write_settings(SETTINGS, config) | {"activation": config.encoder.activation}
    return {"model_type": "distilbert", **settings, "pad_token_id": 0, "torch_dtype": "float32"}


# --- presets --------------------------------------------------------------------------------------


def distilbert(
    vocab_size: int = 30_522,
    d_model: int = 768,
    num_layers: int = 6,
    num_heads: int = 12,
    d_ff: int = 3072,
    max_positions: int = 512,
    dropout: float = 0.1,
    **options,
) -> TextEncoderConfig:
    """DistilBERT: L6 H768 A12, 66 M parameters."""
    return TextEncoderConfig(
        EmbeddingConfig(
            vocab_size,
            d_model,
            positions="learned",
            max_positions=max_positions,
            segments=0,
            eps=EPS,
            dropout=dropout,
        ),
        EncoderConfig(
            d_model,
            num_layers,
            num_heads,
            d_ff,
            norm="post",
            activation="gelu",
            eps=EPS,
            dropout=dropout,
            attention_dropout=dropout,
        ),
        pooling=options.pop("pooling", None),
        **options,
    )


DISTILBERT = text_family(
    "distilbert",
    "DistilBert",
    distilbert,
    read,
    write,
    NAMES,
    from_hub=from_hub,
    to_hub=to_hub,
    pooling="first",
    head_type="mlp",
    examples=(
        "distilbert/distilbert-base-uncased",
        "distilbert/distilbert-base-uncased-finetuned-sst-2-english",
    ),
)
