"""MPNet (Song et al., 2020): RoBERTa without segments, with a relative position bias shared by all layers.

``transformers`` ignores ``pad_token_id`` (positions always start at index 2) and the number of buckets
(always 32) in ``config.json``. Here, other values raise an error.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from glassformer.checkpoints.settings import shorten
from glassformer.errors import UnsupportedModelError
from glassformer.families import bert, roberta
from glassformer.families.family import text_family
from glassformer.models.text import TextEncoderConfig
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.encoder import EncoderConfig

BUCKETS = 32  # buckets of relative positions
NAMES = replace(
    roberta.NAMES,
    prefix="mpnet.",
    encoder={
        **{name: hub_name for name, hub_name in bert.NAMES.encoder.items() if "segments" not in name},
        "encoder.layers.{i}.attention.out": "encoder.layer.{i}.attention.attn.o",
        "encoder.layers.{i}.norm1": "encoder.layer.{i}.attention.LayerNorm",
        "encoder.relative": "encoder.relative_attention_bias",
    },
    fused={
        "encoder.layers.{i}.attention.qkv": (
            "encoder.layer.{i}.attention.attn.q",
            "encoder.layer.{i}.attention.attn.k",
            "encoder.layer.{i}.attention.attn.v",
        )
    },
)
# Keys of BERT's config.json that MPNet's lacks.
BERT_ONLY = ("type_vocab_size", "position_embedding_type")


def read(settings: dict[str, Any], where: str) -> TextEncoderConfig:
    """Our config from ``config.json``."""
    fixed = {"pad_token_id": roberta.PAD, "relative_attention_num_buckets": BUCKETS}
    for key, value in fixed.items():
        if settings.get(key, value) != value:
            what = f"{key} = {shorten(settings[key])} is not supported"
            fix = f"Use {value}, as MPNet was trained"
            raise UnsupportedModelError(what, where=where, fix=fix)
    config = roberta.read({k: v for k, v in settings.items() if k not in BERT_ONLY} | fixed, where)
    embedding = replace(config.embedding, segments=0)
    return replace(config, embedding=embedding, encoder=replace(config.encoder, relative_buckets=BUCKETS))


def write(config: TextEncoderConfig) -> dict[str, Any]:
    settings = {k: v for k, v in roberta.write(config).items() if k not in BERT_ONLY}
    return settings | {"model_type": "mpnet", "relative_attention_num_buckets": BUCKETS}


# --- presets --------------------------------------------------------------------------------------


def mpnet(
    vocab_size: int = 30_527,
    d_model: int = 768,
    num_layers: int = 12,
    num_heads: int = 12,
    d_ff: int = 3072,
    max_positions: int = 512,
    dropout: float = 0.1,
    **options,
) -> TextEncoderConfig:
    """MPNet-base: L12 H768 A12, 109 M parameters."""
    config = roberta.roberta(
        vocab_size, d_model, num_layers, num_heads, d_ff, max_positions, dropout, **options
    )
    embedding: EmbeddingConfig = replace(config.embedding, segments=0)
    encoder: EncoderConfig = replace(config.encoder, relative_buckets=BUCKETS)
    return replace(config, embedding=embedding, encoder=encoder)


MPNET = text_family(
    "mpnet",
    "MPNet",
    mpnet,
    read,
    write,
    NAMES,
    from_hub=partial(roberta.from_hub, names=NAMES),
    to_hub=partial(roberta.to_hub, names=NAMES),
    examples=("sentence-transformers/all-mpnet-base-v2", "microsoft/mpnet-base"),
)
