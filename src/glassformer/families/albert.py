"""ALBERT (Lan et al., 2020): BERT with shared layers, narrower embeddings, and tanh GELU.

The layers are divided into ``num_hidden_groups`` groups, usually one. The layers of a group share their
weights. The sentence-order head is not read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from glassformer.checkpoints.settings import get_size, shorten
from glassformer.errors import UnsupportedModelError
from glassformer.families import bert
from glassformer.families.family import text_family
from glassformer.models.text import TextEncoderConfig
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.encoder import EncoderConfig

KIND = "albert"
LAYER = "encoder.albert_layer_groups.{i}.albert_layers.0"
MAX_LAYERS = 1_000  # layers share weights, so no missing tensors would reveal a wrong number of layers
NAMES = replace(
    bert.NAMES,
    prefix="albert.",
    encoder={
        **{name: hub_name for name, hub_name in bert.NAMES.encoder.items() if name.startswith("embeddings.")},
        "embeddings.widen": "encoder.embedding_hidden_mapping_in",
        "encoder.layers.{i}.attention.out": f"{LAYER}.attention.dense",
        "encoder.layers.{i}.norm1": f"{LAYER}.attention.LayerNorm",
        "encoder.layers.{i}.feed_forward.up": f"{LAYER}.ffn",
        "encoder.layers.{i}.feed_forward.down": f"{LAYER}.ffn_output",
        "encoder.layers.{i}.norm2": f"{LAYER}.full_layer_layer_norm",
        "pooling.dense": "pooler",
    },
    fused={
        "encoder.layers.{i}.attention.qkv": (
            f"{LAYER}.attention.query",
            f"{LAYER}.attention.key",
            f"{LAYER}.attention.value",
        )
    },
    heads={
        "head.out": "classifier",
        "mlm.dense": "predictions.dense",
        "mlm.norm": "predictions.LayerNorm",
        "spans.out": "qa_outputs",
    },
    full_names={"mlm.bias": "predictions.bias"},
    ignored={
        "embeddings.position_ids": "a constant 0, 1, 2, ...",
        "predictions.decoder.weight": "tied to the token embeddings",
        "predictions.decoder.bias": "the same as predictions.bias",
        "sop_classifier.": "sentence-order prediction head",
    },
    tied={
        "predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
)
DEFAULTS = {"hidden_act": "gelu_new", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def read(settings: dict[str, Any], where: str) -> TextEncoderConfig:
    """Our config from ALBERT's ``config.json``."""
    layers = get_size(settings, "num_hidden_layers", where)
    groups = get_size(settings, "num_hidden_groups", where, 1)
    if (inner := settings.get("inner_group_num", 1)) != 1:  # in all published models it is 1
        raise UnsupportedModelError(f"inner_group_num = {shorten(inner)} is not supported", where=where)
    if not groups <= layers <= MAX_LAYERS:
        what = f"num_hidden_layers = {layers} in num_hidden_groups = {groups} is not supported"
        raise UnsupportedModelError(what, where=where)
    dropout = {"classifier_dropout": settings.get("classifier_dropout_prob", 0.1)}
    config = bert.read(DEFAULTS | settings | dropout, where)
    width = get_size(settings, "embedding_size", where, 128)
    layers_per_group = layers / groups  # not always an integer; rounded down for each layer
    order = tuple(int(i / layers_per_group) for i in range(layers))
    return replace(
        config,
        embedding=replace(config.embedding, width=width),
        encoder=replace(config.encoder, layer_order=order),
        model_type=KIND,
    )


def write(config: TextEncoderConfig) -> dict[str, Any]:
    settings = bert.write(config) | {"model_type": KIND, "embedding_size": config.embedding.width}
    del settings["position_embedding_type"]
    settings["classifier_dropout_prob"] = settings.pop("classifier_dropout")
    groups = max(config.encoder.layer_order, default=0) + 1
    return settings | {"num_hidden_groups": groups, "inner_group_num": 1}


def albert(
    vocab_size: int = 30_000,
    d_model: int = 768,
    num_layers: int = 12,
    num_heads: int = 12,
    d_ff: int = 3072,
    max_positions: int = 512,
    dropout: float = 0.0,
    width: int = 128,
    **options,
) -> TextEncoderConfig:
    """ALBERT-base: 12 steps of one layer, H768 A12, embeddings of width 128, 12 M parameters."""
    embedding = EmbeddingConfig(
        vocab_size,
        d_model,
        positions="learned",
        max_positions=max_positions,
        segments=2,
        dropout=dropout,
        width=width,
    )
    sizes, order = (d_model, num_layers, num_heads, d_ff), (0,) * num_layers
    encoder = EncoderConfig(
        *sizes,
        norm="post",
        activation="gelu_tanh",
        eps=1e-12,
        dropout=dropout,
        attention_dropout=dropout,
        layer_order=order,
    )
    return TextEncoderConfig(embedding, encoder, model_type=KIND, **options)


ALBERT = text_family(
    KIND,
    "Albert",
    albert,
    read,
    write,
    NAMES,
    tiny_options={"width": 7},
    examples=("albert/albert-base-v2", "albert/albert-large-v2"),
)
