"""DeBERTa (He et al., 2021), versions 2 and 3: BERT's layers with disentangled attention, without pooler.

The attention is in ``nn/disentangled.py``. The classifier has a hidden layer on the first token, like
ELECTRA's classifier. The masked-LM head of version 3 has other tensor names, which are also read. These are
not supported: models without relative positions, embeddings of another width than the layers, and the
convolution of v2-xlarge and v2-xxlarge.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from glassformer.checkpoints.settings import get_size, shorten
from glassformer.errors import UnsupportedModelError
from glassformer.families import bert
from glassformer.families.family import text_family
from glassformer.models.text import TextEncoderConfig
from glassformer.nn.disentangled import Disentangled
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.encoder import EncoderConfig

KIND = "deberta-v2"
LAYER = "encoder.layer.{i}.attention.self"
NAMES = replace(
    bert.NAMES,
    prefix="deberta.",
    encoder={name: hub_name for name, hub_name in bert.NAMES.encoder.items() if "pooling" not in name}
    | {
        "encoder.relative.table": "encoder.rel_embeddings",
        "encoder.relative.norm": "encoder.LayerNorm",
        "encoder.layers.{i}.attention.distance_keys": f"{LAYER}.pos_key_proj",
        "encoder.layers.{i}.attention.distance_queries": f"{LAYER}.pos_query_proj",
    },
    fused={
        "encoder.layers.{i}.attention.qkv": (
            f"{LAYER}.query_proj",
            f"{LAYER}.key_proj",
            f"{LAYER}.value_proj",
        )
    },
    heads={**bert.NAMES.heads, "head.hidden": "pooler.dense"},
)
# The masked-language-modeling head in version 3's own files (``legacy = false``).
V3_NAMES = {
    "lm_predictions.lm_head.dense": "cls.predictions.transform.dense",
    "lm_predictions.lm_head.LayerNorm": "cls.predictions.transform.LayerNorm",
    "lm_predictions.lm_head.bias": "cls.predictions.bias",
}
REPLACED_TOKEN_HEAD = "mask_predictions."  # version 3's head for replaced-token detection
# Keys of config.json, with the only value that is supported.
FIXED = {
    "relative_attention": True,
    "conv_kernel_size": 0,
    "attention_head_size": None,
    "pooler_hidden_act": "gelu",
    "pooler_dropout": 0,
}


def from_hub(
    tensors: dict[str, Tensor], where: str, config: TextEncoderConfig | None = None
) -> dict[str, Tensor]:
    """Convert the Hub's tensors to ours."""
    renamed = {}
    for key, tensor in tensors.items():
        stem = next((old for old in V3_NAMES if key.startswith(old)), None)
        if not key.startswith(REPLACED_TOKEN_HEAD):
            renamed[key if stem is None else V3_NAMES[stem] + key[len(stem) :]] = tensor
    return NAMES.from_hub(renamed, where)


def read(settings: dict[str, Any], where: str) -> TextEncoderConfig:
    """Our config from ``config.json``."""
    width = settings.get("hidden_size")
    width_keys = dict.fromkeys(("embedding_size", "pooler_hidden_size"), width)
    for key, value in (FIXED | width_keys).items():
        default = False if key == "relative_attention" else value  # meaning of a missing key
        if settings.get(key, default) != value:
            what = f"{key} = {shorten(settings.get(key))} is not supported"
            raise UnsupportedModelError(what, where=where, fix="Name another checkpoint")
    has_segments = settings.get("type_vocab_size", 0) != 0
    bert_keys = {"position_embedding_type": None, "classifier_dropout": settings.get("cls_dropout")}
    bert_keys |= {} if has_segments else {"type_vocab_size": 1}
    config = bert.read({"layer_norm_eps": 1e-7} | settings | bert_keys, where)
    positions = "learned" if settings.get("position_biased_input", True) is True else "none"
    segments = config.embedding.segments if has_segments else 0
    embedding = replace(config.embedding, positions=positions, segments=segments)
    score_kinds = settings.get("pos_att_type") or ()  # a list, or text such as "p2c|c2p"
    if isinstance(score_kinds, str):
        score_kinds = score_kinds.lower().split("|")
    score_kinds = [kind.strip() for kind in score_kinds]
    furthest, buckets = (settings.get(key, -1) for key in ("max_relative_positions", "position_buckets"))
    distance_keys = settings | {
        "max_relative_positions": furthest if furthest != -1 else config.embedding.max_positions
    }
    attention = Disentangled(
        buckets=0 if buckets in (-1, None) else get_size(settings, "position_buckets", where),
        furthest=get_size(distance_keys, "max_relative_positions", where),
        by_query="c2p" in score_kinds,
        by_key="p2c" in score_kinds,
        shared=settings.get("share_att_key") is True,
        norm="layer_norm" in str(settings.get("norm_rel_ebd", "none")).lower(),
    )
    return replace(
        config,
        embedding=embedding,
        encoder=replace(config.encoder, disentangled=attention),
        pooling=None,
        words_activation=config.encoder.activation,
        model_type=KIND,
    )


def write(config: TextEncoderConfig) -> dict[str, Any]:
    e, a = config.embedding, config.encoder.disentangled or Disentangled()
    bert_only = ("classifier_dropout", "position_embedding_type")
    kinds = [kind for kind, is_used in (("c2p", a.by_query), ("p2c", a.by_key)) if is_used]
    return {k: v for k, v in bert.write(config).items() if k not in bert_only} | {
        "model_type": KIND,
        "position_biased_input": e.positions != "none",
        "relative_attention": True,
        "max_relative_positions": -1 if a.furthest == e.max_positions else a.furthest,
        "position_buckets": a.buckets or -1,
        "pos_att_type": kinds,
        "share_att_key": a.shared,
        "norm_rel_ebd": "layer_norm" if a.norm else "none",
        "cls_dropout": config.head_dropout,
        "pooler_hidden_size": config.encoder.d_model,
    }


# --- presets --------------------------------------------------------------------------------------


def deberta_v3(
    vocab_size: int = 128_100,
    d_model: int = 768,
    num_layers: int = 12,
    num_heads: int = 12,
    d_ff: int = 3072,
    max_positions: int = 512,
    dropout: float = 0.1,
    attention: Disentangled | None = None,
    **options,
) -> TextEncoderConfig:
    """DeBERTa-v3-base: L12 H768 A12, 184 M parameters."""
    attention = attention or Disentangled(buckets=256, furthest=max_positions)
    embedding = EmbeddingConfig(
        vocab_size,
        d_model,
        positions="none",
        max_positions=max_positions,
        segments=0,
        eps=1e-7,
        dropout=dropout,
    )
    encoder = EncoderConfig(
        d_model,
        num_layers,
        num_heads,
        d_ff,
        norm="post",
        activation="gelu",
        eps=1e-7,
        dropout=dropout,
        attention_dropout=dropout,
        disentangled=attention,
    )
    options = {"pooling": None, "words_activation": "gelu", **options}
    return TextEncoderConfig(embedding, encoder, model_type=KIND, **options)


DEBERTA_V2 = text_family(
    KIND,
    "DebertaV2",
    deberta_v3,
    read,
    write,
    NAMES,
    from_hub=from_hub,
    pooling="first",
    head_type="mlp",
    head_activation="gelu",
    tiny_options={"attention": Disentangled(buckets=6, furthest=19)},
    examples=("microsoft/deberta-v3-base", "microsoft/deberta-v3-small", "microsoft/mdeberta-v3-base"),
)
