"""ModernBERT (Warner et al., 2024): rotary positions, GeGLU, no biases, local attention in most layers.

Ettin, mmBERT, gte-modernbert and modernbert-embed have the same architecture. In ``sliding_attention``
layers, a token attends to ``local_attention // 2`` tokens on either side (64 if it is 128). The layers are
pre-norm, without a norm before the first attention. All heads begin with a dense layer, activation and norm.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from glassformer.checkpoints.layout import read_activation
from glassformer.checkpoints.names import NameTable
from glassformer.checkpoints.settings import get_number, get_section, get_size, shorten
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

KIND = "modernbert"
# Bases of rotary positions in layers with full and with local attention.
GLOBAL, LOCAL = 160_000.0, 10_000.0
FULL, SLIDING = "full_attention", "sliding_attention"
CLASS_PREFIX = "ModernBert"
# These keys are written as null: the tokenizer has these ids, and the defaults in ``transformers`` fit only
# one vocabulary.
TOKENIZER_KEYS = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
NAMES = NameTable(
    prefix="model.",
    encoder={
        "embeddings.tokens": "embeddings.tok_embeddings",
        "embeddings.norm": "embeddings.norm",
        "encoder.layers.{i}.norm1": "layers.{i}.attn_norm",
        "encoder.layers.{i}.attention.qkv": "layers.{i}.attn.Wqkv",
        "encoder.layers.{i}.attention.out": "layers.{i}.attn.Wo",
        "encoder.layers.{i}.norm2": "layers.{i}.mlp_norm",
        "encoder.layers.{i}.feed_forward.up": "layers.{i}.mlp.Wi",
        "encoder.layers.{i}.feed_forward.down": "layers.{i}.mlp.Wo",
        "encoder.final_norm": "final_norm",
    },
    fused={},
    heads={"head.hidden": "head.dense", "head.norm": "head.norm", "head.out": "classifier"},
)
# The masked language model has the same tensor names for its dense layer and norm. Its output layer is the
# tied token embeddings plus a bias.
MLM_NAMES = replace(
    NAMES,
    heads={"mlm.dense": "head.dense", "mlm.norm": "head.norm"},  # modules, with ``.weight`` and ``.bias``
    full_names={"mlm.bias": "decoder.bias"},  # a parameter outside a module: its full name
    head_parameters=("mlm.bias",),  # parameters of the head, which have no prefix
    # Not read: it is the same tensor as the token embeddings. If a file has both, they must be equal.
    ignored={"decoder.weight": "tied to the token embeddings"},
    tied={"decoder.weight": "embeddings.tok_embeddings.weight"},
)
# The question-answering model also uses the same head names.
SPAN_NAMES = replace(
    NAMES, heads={"spans.dense": "head.dense", "spans.norm": "head.norm", "spans.out": "classifier"}
)


def from_hub(
    tensors: dict[str, Tensor], where: str, config: TextEncoderConfig | None = None
) -> dict[str, Tensor]:
    """Convert the Hub's tensors to ours; a masked-language-modeling head without a bias gets zeros."""
    # A masked language model is recognized by a head without a classifier. Everything else is a classifier, a
    # span model, or an encoder without a head.
    if "classifier.weight" in tensors or "head.dense.weight" not in tensors:
        has_spans = config is not None and config.head == "spans"
        return (SPAN_NAMES if has_spans else NAMES).from_hub(tensors, where)
    out = MLM_NAMES.from_hub(tensors, where)
    table = out.get("embeddings.tokens.weight")
    return out if table is None else {"mlm.bias": torch.zeros(len(table)), **out}


def to_hub(tensors: dict[str, Tensor], with_prefix: bool, config: TextEncoderConfig) -> dict[str, Tensor]:
    """Convert our tensors to the Hub's; ``with_prefix``: encoder names start with ``model.``."""
    return {"mlm": MLM_NAMES, "spans": SPAN_NAMES}.get(config.head or "", NAMES).to_hub(tensors, with_prefix)


# --- config.json ------------------------------------------------------------------------------------


SETTINGS = (
    size("vocab_size", "embedding.vocab_size"),
    size("hidden_size", "embedding.d_model", "encoder.d_model"),
    size("num_hidden_layers", "encoder.num_layers"),
    size("num_attention_heads", "encoder.num_heads"),
    size("intermediate_size", "encoder.d_ff"),
    activation("hidden_activation", "encoder.activation"),
    size("max_position_embeddings", "embedding.max_positions", default=8192),
    nonnegative("norm_eps", "embedding.eps", "encoder.eps", default=1e-5),
    flag("norm_bias", "embedding.norm_bias", "encoder.norm_bias"),
    flag("attention_bias", "encoder.attention_bias"),
    flag("mlp_bias", "encoder.feed_forward_bias"),
    rate("mlp_dropout", "encoder.feed_forward_dropout", default=0.0),
    rate("embedding_dropout", "embedding.dropout", default=0.0),
    rate("classifier_dropout", "head_dropout", default=0.0),
    flag("classifier_bias", "head_bias"),
    activation("classifier_activation", "words_activation"),  # of the masked-language-modeling head
    nonnegative("initializer_range", "init_std", default=0.02),
)


def read(settings: dict[str, Any], where: str) -> TextEncoderConfig:
    """Our config from ``config.json``, as old and new versions of ``transformers`` write it."""
    if get_number(settings, "attention_dropout", where, 0.0, 1):
        what = f"attention_dropout = {shorten(settings['attention_dropout'])} is not supported"
        raise UnsupportedModelError(what, where=where, fix="Use 0, as ModernBERT was trained")
    layers = get_size(settings, "num_hidden_layers", where)
    full = _full_layers(settings, layers, where)
    overrides: dict[str, Any] = {
        "encoder.attention": "local" if len(full) < layers else "full",
        "encoder.full_layers": full if len(full) < layers else (),
        "encoder.attention_window": max(get_size(settings, "local_attention", where, 128) // 2, 1),
        "encoder.rotary_base": _base(settings, FULL, "global_rope_theta", GLOBAL, where),
        "encoder.rotary_base_local": _base(settings, SLIDING, "local_rope_theta", LOCAL, where),
    }
    # The head of the question-answering model has the tensor names of a classifier.
    if f"{CLASS_PREFIX}ForQuestionAnswering" in (settings.get("architectures") or ()):
        head = {key: value for key, value in head_settings(settings).items() if key != "pooling"}
        overrides |= {"head": "spans", **head}
    return read_settings(SETTINGS, modernbert(), settings, where, overrides)


def _full_layers(settings: dict[str, Any], layers: int, where: str) -> tuple[int, ...]:
    """The layers with full attention: in ``layer_types``, or every ``global_attn_every_n_layers``-th."""
    kinds = settings.get("layer_types")
    if kinds is None:
        return tuple(range(0, layers, get_size(settings, "global_attn_every_n_layers", where, 3)))
    if not isinstance(kinds, list) or len(kinds) != layers or not {*map(str, kinds)} <= {FULL, SLIDING}:
        what = f"layer_types must name {FULL} or {SLIDING} for each of {layers} layers"
        raise UnsupportedModelError(what, where=where)
    return tuple(i for i, kind in enumerate(kinds) if kind == FULL)


def _base(settings: dict[str, Any], kind: str, old: str, default: float, where: str) -> float:
    """The base of the rotary positions in layers of this type."""
    if settings.get("rope_scaling") is not None:
        raise UnsupportedModelError("rope_scaling is not supported", where=where)
    if settings.get("rope_parameters") is None:
        return default if settings.get(old) is None else get_number(settings, old, where, default)
    rope = get_section(settings, "rope_parameters", where)
    rope = get_section(rope, kind, where) if rope.get(kind) is not None else {}
    if rope.get("rope_type", "default") != "default":
        raise UnsupportedModelError(f"rope_type = {shorten(rope['rope_type'])} is not supported", where=where)
    return get_number(rope, "rope_theta", where, default)


def head_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of the classification head: dense, activation, norm, linear layer."""
    pooling = "mean" if settings.get("classifier_pooling") == "mean" else "first"
    return {
        "pooling": pooling,
        "head_norm": True,
        "head_activation": read_activation(settings, "config.json", "classifier_activation"),
    }


def write(config: TextEncoderConfig) -> dict[str, Any]:
    c = config.encoder
    full = range(c.num_layers) if c.attention == "full" else c.full_layers
    bases = {FULL: c.rotary_base, SLIDING: c.rotary_base_local or c.rotary_base}
    # The key ``classifier_activation`` is for both heads; here the classifier and the masked language model
    # have one setting each. Only a classifier has ``head_norm``.
    head_activation = config.head_activation if config.head_norm else config.words_activation
    settings = write_settings(SETTINGS, replace(config, words_activation=head_activation or "gelu"))
    return settings | {
        "model_type": KIND,
        "attention_dropout": 0.0,
        "local_attention": 2 * c.attention_window,
        "layer_types": [FULL if i in full else SLIDING for i in range(c.num_layers)],
        "rope_parameters": {k: {"rope_type": "default", "rope_theta": base} for k, base in bases.items()},
        "decoder_bias": True,
        "classifier_pooling": "mean" if config.pooling == "mean" else "cls",
        **dict.fromkeys(TOKENIZER_KEYS),
        "torch_dtype": "float32",
    }


# --- presets --------------------------------------------------------------------------------------


def modernbert(
    vocab_size: int = 50_368,
    d_model: int = 768,
    num_layers: int = 22,
    num_heads: int = 12,
    d_ff: int = 1152,
    max_positions: int = 8192,
    window: int = 64,
    full_attention_every: int = 3,
    **options,
) -> TextEncoderConfig:
    """ModernBERT-base: L22 H768 A12, 149 M parameters; every third layer has full attention."""
    encoder = EncoderConfig(
        d_model,
        num_layers,
        num_heads,
        d_ff,
        norm="pre",
        activation="gelu",
        eps=1e-5,
        final_norm=True,
        attention="local" if full_attention_every > 1 else "full",
        attention_window=window,
        feed_forward="geglu",
        rotary_base=GLOBAL,
        rotary_base_local=LOCAL,
        full_layers=tuple(range(0, num_layers, full_attention_every)) if full_attention_every > 1 else (),
        first_norm=False,
        attention_bias=False,
        feed_forward_bias=False,
        norm_bias=False,
    )
    embedding = EmbeddingConfig(
        vocab_size,
        d_model,
        positions="none",
        max_positions=max_positions,
        segments=0,
        eps=1e-5,
        norm_bias=False,
    )
    options = {"pooling": None, "words_activation": "gelu", "head_bias": False, **options}
    return TextEncoderConfig(embedding, encoder, model_type=KIND, **options)


MODERNBERT = text_family(
    KIND,
    CLASS_PREFIX,
    modernbert,
    read,
    write,
    NAMES,
    from_hub=from_hub,
    to_hub=to_hub,
    pooling="first",
    head_type="mlp",
    head_activation="gelu",
    head_settings=head_settings,
    tiny_options={"window": 2, "full_attention_every": 2, "head_norm": True},
    examples=(
        "answerdotai/ModernBERT-base",
        "jhu-clsp/ettin-encoder-150m",
        "Alibaba-NLP/gte-modernbert-base",
    ),
)
