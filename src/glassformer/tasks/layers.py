"""Apply the section ``model`` to presets and checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from glassformer.errors import NotForThisModelError
from glassformer.families.pretrained import with_dropout
from glassformer.nn.encoder import EncoderConfig

SIZES = ("d_model", "num_layers", "num_heads", "d_ff")
# Settings of encoders that are trained from scratch.
LAYERS = (*SIZES, "norm", "activation", "final_norm", "zero_init", "attention", "attention_window")
SHAPE = (*LAYERS, "norm_eps", "positions", "init_std")
DROPOUTS = ("dropout", "attention_dropout", "feed_forward_dropout", "stochastic_depth")


def without_none(values: dict[str, Any]) -> dict[str, Any]:
    """The settings that are not None."""
    return {key: value for key, value in values.items() if value is not None}


def shared_settings(section: Any, other: type) -> dict[str, Any]:
    """The settings of a section that the section ``other`` has too."""
    names = {f.name for f in fields(other)}
    return {key: value for key, value in vars(section).items() if key in names}


def refuse_set_keys(model: Any, keys: Sequence[str]) -> None:
    """Raise ConfigError if one of these settings is set, because a checkpoint does not support them."""
    if key := next((key for key in keys if getattr(model, key) is not None), None):
        what = f"{key} belongs to from-scratch models; {model.model!r} has its own"
        raise NotForThisModelError(what, where="model")


def apply_layer_settings(preset: EncoderConfig, model: Any) -> EncoderConfig:
    """The layers of a preset with the settings of the section ``model``."""
    if model.attention_window is not None and model.attention != "local":
        what, fix = "only local attention has a window", "Leave it out, or set attention = local"
        raise NotForThisModelError(what, where="attention_window", fix=fix)
    values = {key: getattr(model, key) for key in (*LAYERS, *DROPOUTS)}
    return replace(preset, **without_none(values | {"eps": model.norm_eps}))


def embedding_dropout(model: Any) -> float | None:
    """Dropout on the embeddings; if it is not set, the dropout of the sub-layers."""
    return model.dropout if model.embedding_dropout is None else model.embedding_dropout


def head_fields(model: Any, num_labels: int) -> dict[str, Any]:
    """The fields of a model's config for a new classification head."""
    keys = ("head_hidden", "head_dropout", "head_activation", "head_input_dropout")
    values = {key: getattr(model, key) for key in keys}
    return {"head": "classification", "num_labels": num_labels} | values


def with_new_head(base: Any, model: Any, pooling: str, **fields: Any) -> tuple[Any, list[str]]:
    """The config of a checkpoint with a new head, and the names of other new parts.

    Dropout is off by default. ``fields`` are further fields of the config.
    """
    rates = model.dropout or 0.0, model.attention_dropout or 0.0
    config = with_dropout(base, *rates, model.embedding_dropout, model.feed_forward_dropout)
    encoder = replace(config.encoder, stochastic_depth=model.stochastic_depth)
    is_new = pooling == "attention" or (pooling == "pooler" and base.pooling != "pooler")
    return replace(config, encoder=encoder, pooling=pooling, **fields), [f"{pooling} pooling"] * is_new
