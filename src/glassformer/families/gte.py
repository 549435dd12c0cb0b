"""GTE (Zhang et al., 2024, mGTE): BERT with rotary positions and GeGLU, for long and multilingual texts.

Published files have ``model_type`` ``new`` or ``gte``. The layers have biases, except the first of the
feed-forward network. The published ``up_gate_proj`` stacks up and gate; our tensor stacks gate and up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from glassformer.checkpoints.settings import shorten
from glassformer.errors import UnsupportedModelError
from glassformer.families import nomic_bert
from glassformer.families.family import text_family
from glassformer.families.nomic_bert import QKV, UP
from glassformer.models.text import TextEncoderConfig
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.encoder import EncoderConfig

KIND = "gte"
BASE = 160_000.0  # base of rotary positions
NAMES = replace(
    nomic_bert.NAMES,
    prefix="gte.",
    heads={"head.out": "classifier", "mlm.dense": "lm_head.dense", "mlm.norm": "lm_head.layer_norm"},
    full_names={"mlm.bias": "lm_head.decoder.bias"},
    ignored={"lm_head.decoder.weight": "tied to the token embeddings"},
    tied={"lm_head.decoder.weight": "embeddings.word_embeddings.weight"},
)
PUBLISHED = replace(
    NAMES,
    encoder={
        **NAMES.encoder,
        QKV: "encoder.layer.{i}.attention.qkv_proj",
        "encoder.layers.{i}.attention.out": "encoder.layer.{i}.attention.o_proj",
        "encoder.layers.{i}.norm1": "encoder.layer.{i}.attn_ln",
        UP: "encoder.layer.{i}.mlp.up_gate_proj",
        "encoder.layers.{i}.feed_forward.down": "encoder.layer.{i}.mlp.down_proj",
        "encoder.layers.{i}.norm2": "encoder.layer.{i}.mlp_ln",
    },
    fused={},
    heads={**NAMES.heads, "mlm.norm": "lm_head.norm"},
)
FIXED = {"layer_norm_type": "layer_norm", "position_embedding_type": "rope", "logn_attention_scale": False}
DEFAULTS = {"attention_probs_dropout_prob": 0.0, "type_vocab_size": 1, "max_position_embeddings": 8192}


def swap_halves(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """Exchange the upper and lower half of the rows of all tensors with ``name`` in their key."""
    return {key: t.roll(len(t) // 2, 0) if name in key else t for key, t in tensors.items()}


def from_hub(
    tensors: dict[str, Tensor], where: str, config: TextEncoderConfig | None = None
) -> dict[str, Tensor]:
    """Convert tensors to ours, from published names or from the names of ``transformers`` in memory."""
    if not any("qkv_proj" in key for key in tensors):
        return NAMES.from_hub(tensors, where)
    # Published names start with ``new.`` in models with a head.
    tensors = {
        f"{NAMES.prefix}{key.removeprefix('new.')}" if key.startswith("new.") else key: tensor
        for key, tensor in tensors.items()
    }
    return PUBLISHED.from_hub(swap_halves(tensors, "up_gate_proj"), where)


def to_hub(tensors: dict[str, Tensor], with_prefix: bool, config: TextEncoderConfig) -> dict[str, Tensor]:
    """Convert our tensors to published names; ``with_prefix``: encoder names start with ``gte.``."""
    return PUBLISHED.to_hub(swap_halves(tensors, "feed_forward.up."), with_prefix)


def read(settings: dict[str, Any], where: str) -> TextEncoderConfig:
    """Our config from ``config.json``, as ``transformers`` or the authors' code writes it."""
    for key, supported in FIXED.items():
        if settings.get(key, supported) not in (supported, None):
            raise UnsupportedModelError(f"{key} = {shorten(settings[key])} is not supported", where=where)
    biases = {"feed_forward_bias": True, "feed_forward_up_bias": False}
    config = nomic_bert.read_rotary_bert(DEFAULTS | settings, where, KIND, BASE, **biases)
    encoder = replace(config.encoder, feed_forward_dropout=config.encoder.dropout)
    return replace(config, encoder=encoder, words_activation="gelu")


def write(config: TextEncoderConfig) -> dict[str, Any]:
    return nomic_bert.write(config) | {"pad_token_id": 1}


def gte(
    vocab_size: int = 250_048,
    d_model: int = 768,
    num_layers: int = 12,
    num_heads: int = 12,
    d_ff: int = 3072,
    max_positions: int = 8192,
    dropout: float = 0.1,
    **options,
) -> TextEncoderConfig:
    """GTE-multilingual-base without its scaling of positions: L12 H768 A12, 305 M parameters."""
    sizes = d_model, num_layers, num_heads, d_ff
    encoder = EncoderConfig(
        *sizes,
        dropout=dropout,
        feed_forward="geglu",
        feed_forward_dropout=dropout,
        rotary_base=BASE,
        feed_forward_up_bias=False,
    )
    embedding = EmbeddingConfig(
        vocab_size, d_model, positions="none", max_positions=max_positions, segments=1, dropout=dropout
    )
    return TextEncoderConfig(embedding, encoder, words_activation="gelu", model_type=KIND, **options)


GTE = replace(
    text_family(
        KIND,
        "Gte",
        gte,
        read,
        write,
        NAMES,
        from_hub=from_hub,
        to_hub=to_hub,
        class_suffixes=nomic_bert.CLASSES,
        examples=("Alibaba-NLP/gte-multilingual-base", "Snowflake/snowflake-arctic-embed-m-v2.0"),
    ),
    aliases=("new",),
)
