"""Nomic BERT (Nussbaum et al., 2024): BERT with rotary positions, SwiGLU, and no biases in its layers.

Published files have the names of the authors' code (``Wqkv``, ``n_embd``). ``transformers`` saves these names
too, but has other names in memory, which adapters use. Version 2, a mixture of experts, is not supported.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from glassformer.checkpoints.names import NameTable
from glassformer.checkpoints.settings import get_number, get_section, get_size, shorten
from glassformer.errors import UnsupportedModelError
from glassformer.families import bert
from glassformer.families.family import TEXT_CLASSES, text_family
from glassformer.models.text import TextEncoderConfig
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.encoder import EncoderConfig

KIND = "nomic_bert"
BASE = 1000.0  # base of rotary positions
QKV, UP = "encoder.layers.{i}.attention.qkv", "encoder.layers.{i}.feed_forward.up"
CLASSES = {head: suffix for head, suffix in TEXT_CLASSES.items() if head != "spans"}
NAMES = NameTable(
    prefix="nomic_bert.",
    encoder={
        "embeddings.tokens": "embeddings.word_embeddings",
        "embeddings.segments": "embeddings.token_type_embeddings",
        "embeddings.norm": "embeddings.LayerNorm",
        "encoder.layers.{i}.attention.out": "layers.{i}.self_attn.o_proj",
        "encoder.layers.{i}.norm1": "layers.{i}.post_attention_layernorm",
        "encoder.layers.{i}.feed_forward.down": "layers.{i}.mlp.down_proj",
        "encoder.layers.{i}.norm2": "layers.{i}.post_mlp_layernorm",
        "pooling.dense": "pooler.dense",
    },
    fused={
        QKV: ("layers.{i}.self_attn.q_proj", "layers.{i}.self_attn.k_proj", "layers.{i}.self_attn.v_proj"),
        UP: ("layers.{i}.mlp.gate_proj", "layers.{i}.mlp.up_proj"),
    },
    heads={
        "head.out": "classifier",
        "mlm.dense": "cls.predictions.transform.dense",
        "mlm.norm": "cls.predictions.transform.layer_norm",
    },
    full_names=bert.NAMES.full_names,
    head_parameters=bert.NAMES.head_parameters,
    ignored=bert.NAMES.ignored,
    tied=bert.NAMES.tied,
)
PUBLISHED = replace(
    NAMES,
    encoder={
        **NAMES.encoder,
        "embeddings.norm": "emb_ln",
        QKV: "encoder.layers.{i}.attn.Wqkv",
        "encoder.layers.{i}.attention.out": "encoder.layers.{i}.attn.out_proj",
        "encoder.layers.{i}.norm1": "encoder.layers.{i}.norm1",
        "encoder.layers.{i}.feed_forward.down": "encoder.layers.{i}.mlp.fc2",
        "encoder.layers.{i}.norm2": "encoder.layers.{i}.norm2",
    },
    fused={UP: ("encoder.layers.{i}.mlp.fc12", "encoder.layers.{i}.mlp.fc11")},
)
PUBLISHED_KEYS = {  # key of a published config.json -> BERT's key
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "activation_function": "hidden_act",
    "layer_norm_epsilon": "layer_norm_eps",
    "resid_pdrop": "hidden_dropout_prob",
    "attn_pdrop": "attention_probs_dropout_prob",
    "rotary_emb_base": "rope_theta",
}
FIXED = {  # published keys with the only supported value; the first key belongs to version 2
    "num_experts": 0,
    "prenorm": False,
    "parallel_block": False,
    "use_rms_norm": False,
    "causal": False,
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
}
DEFAULTS = {
    "hidden_act": "silu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 2048,
    "rope_theta": BASE,
}


def from_hub(
    tensors: dict[str, Tensor], where: str, config: TextEncoderConfig | None = None
) -> dict[str, Tensor]:
    """Convert tensors to ours, from published names or from the names of ``transformers`` in memory."""
    return (PUBLISHED if any("Wqkv" in key for key in tensors) else NAMES).from_hub(tensors, where)


def to_hub(tensors: dict[str, Tensor], with_prefix: bool, config: TextEncoderConfig) -> dict[str, Tensor]:
    """Convert our tensors to published names; ``with_prefix``: encoder names start with ``nomic_bert.``."""
    return PUBLISHED.to_hub(tensors, with_prefix)


def rotary_settings(settings: dict[str, Any], where: str, width: int, default: float) -> tuple[float, float]:
    """Base and scaling factor of the rotary positions of heads with ``width`` features.

    Static NTK scaling, ``"ntk"`` in the code of GTE's authors, changes both.
    """
    # Newer files have one section ``rope_parameters``; older ones have ``rope_theta`` and ``rope_scaling``.
    is_new = settings.get("rope_parameters") is not None
    rope = get_section(settings, "rope_parameters", where) if is_new else settings
    has_scaling = settings.get("rope_scaling") is not None
    scaling = get_section(settings, "rope_scaling", where) if has_scaling else rope
    base = get_number(rope, "rope_theta", where, default)
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    factor = 1.0 if kind == "default" else get_number(scaling, "factor", where, 1.0)
    rotates_all = rope.get("partial_rotary_factor", 1.0) == 1.0
    if kind not in ("default", "linear", "ntk") or not rotates_all or factor < 1:
        raise UnsupportedModelError(f"rotary positions {shorten(scaling)} are not supported", where=where)
    if kind == "ntk":
        return base * factor, factor ** (2 / width)
    return base, factor


def read_rotary_bert(
    settings: dict[str, Any], where: str, kind: str, default_base: float, **encoder: Any
) -> TextEncoderConfig:
    """Our config from the keys of BERT and of rotary positions.

    Args:
        encoder: further fields of the encoder's config.
    """
    has_segments = settings.get("type_vocab_size") != 0
    bert_keys = {"position_embedding_type": None} | ({} if has_segments else {"type_vocab_size": 1})
    config = bert.read(settings | bert_keys, where)
    e = config.encoder
    width = e.d_model // e.num_heads
    if get_size(settings, "head_dim", where, width) != width:
        raise UnsupportedModelError(f"head_dim = {settings['head_dim']} is not supported", where=where)
    base, factor = rotary_settings(settings, where, width, default_base)
    feed_forward = "swiglu" if e.activation == "silu" else "geglu"
    segments = config.embedding.segments if has_segments else 0
    return replace(
        config,
        embedding=replace(config.embedding, positions="none", segments=segments),
        encoder=replace(e, feed_forward=feed_forward, rotary_base=base, rotary_factor=factor, **encoder),
        model_type=kind,
    )


def read(settings: dict[str, Any], where: str) -> TextEncoderConfig:
    """Our config from ``config.json``, as ``transformers`` or the authors' code writes it."""
    for key, supported in FIXED.items():
        if settings.get(key, supported) not in (supported, None):
            raise UnsupportedModelError(f"{key} = {shorten(settings[key])} is not supported", where=where)
    settings = DEFAULTS | {PUBLISHED_KEYS.get(key, key): value for key, value in settings.items()}
    gates = {"swiglu": "silu", "geglu": "gelu"}
    settings["hidden_act"] = gates.get(str(settings["hidden_act"]), settings["hidden_act"])
    biases = {"attention_bias": False, "feed_forward_bias": False}
    return read_rotary_bert(settings, where, KIND, BASE, **biases)


def write(config: TextEncoderConfig) -> dict[str, Any]:
    c = config.encoder
    settings = bert.write(config) | {"model_type": config.model_type}
    del settings["position_embedding_type"]
    scaling = {"rope_type": "linear", "factor": c.rotary_factor} if c.rotary_factor != 1 else {}
    rope = {"rope_type": "default", "rope_theta": c.rotary_base} | scaling
    return settings | {"rope_parameters": rope}


def nomic_bert(
    vocab_size: int = 30_528,
    d_model: int = 768,
    num_layers: int = 12,
    num_heads: int = 12,
    d_ff: int = 3072,
    max_positions: int = 2048,
    **options,
) -> TextEncoderConfig:
    """Nomic BERT, as large as BERT-base: L12 H768 A12, 137 M parameters."""
    sizes = d_model, num_layers, num_heads, d_ff
    encoder = EncoderConfig(
        *sizes,
        activation="silu",
        feed_forward="swiglu",
        rotary_base=BASE,
        attention_bias=False,
        feed_forward_bias=False,
    )
    embedding = EmbeddingConfig(
        vocab_size, d_model, positions="none", max_positions=max_positions, segments=2
    )
    return TextEncoderConfig(embedding, encoder, model_type=KIND, **options)


NOMIC_BERT = text_family(
    KIND,
    "NomicBert",
    nomic_bert,
    read,
    write,
    NAMES,
    from_hub=from_hub,
    to_hub=to_hub,
    class_suffixes=CLASSES,
    examples=("nomic-ai/nomic-embed-text-v1.5", "nomic-ai/nomic-bert-2048"),
)
