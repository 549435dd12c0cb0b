"""Encoder layers of a from-scratch model, from a preset and a recipe's model section."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from glassformer.errors import NotForThisModelError
from glassformer.nn.encoder import EncoderConfig

SAME = (  # settings with the same name in both
    "d_model",
    "num_layers",
    "num_heads",
    "d_ff",
    "norm",
    "activation",
    "dropout",
    "attention_dropout",
    "feed_forward_dropout",
    "stochastic_depth",
    "final_norm",
    "zero_init",
    "attention",
    "attention_window",
)


def given(values: dict[str, Any]) -> dict[str, Any]:
    """The settings that are not None; the preset keeps its value for the others."""
    return {key: value for key, value in values.items() if value is not None}


def layers_over(preset: EncoderConfig, model: Any) -> EncoderConfig:
    """The preset's layers with a model section's settings applied."""
    if model.attention_window is not None and model.attention != "local":
        what = "only local attention has a window"
        raise NotForThisModelError(
            what, where="attention_window", fix="Leave it out, or set attention = local"
        )
    return replace(preset, **given({key: getattr(model, key) for key in SAME} | {"eps": model.norm_eps}))
