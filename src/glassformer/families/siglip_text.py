"""SigLIP (Zhai et al., 2023), the half that reads texts: a pre-norm encoder with learned positions.

Texts are padded to ``max_position_embeddings`` tokens, and the encoder reads the padding too. The vector of a
text is the projected state of its last token. ``image_text.py`` reads and writes this half with the half that
reads images.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from glassformer.checkpoints.settings import get_size
from glassformer.errors import UnsupportedModelError
from glassformer.families import clip_text
from glassformer.families.settings import read_settings, write_settings
from glassformer.models.text import TextEncoderConfig

NAMES = replace(
    clip_text.NAMES,
    ignored={
        "embeddings.position_ids": "a constant 0, 1, 2, ...",
        "vision_model.": "the half that reads images",
        "head.weight": "of both halves",
        "head.bias": "of both halves",
        "logit_scale": "of both halves",
        "logit_bias": "of both halves",
    },
)
SETTINGS = tuple(setting for setting in clip_text.SETTINGS if setting.key != "initializer_range")
DEFAULTS = {  # published files hold only what differs from these
    "vocab_size": 32_000,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 64,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
}


def read(settings: dict[str, Any], where: str, width: int) -> TextEncoderConfig:
    """Our config from the section ``text_config``; ``width`` is that of an image vector.

    Raises:
        CheckpointError: an unsupported activation, an invalid value, or vectors of another width.
    """
    settings = DEFAULTS | settings
    base = clip_text.clip_text()
    base = replace(base, encoder=replace(base.encoder, causal=False))
    config = read_settings(SETTINGS, base, settings, where)
    if get_size(settings, "projection_size", where, config.encoder.d_model) != width:
        what = f"texts have vectors of another width than images ({width})"
        raise UnsupportedModelError(what, where=where)
    return config


def write(config: TextEncoderConfig, width: int) -> dict[str, Any]:
    """The section ``text_config``."""
    own = {"model_type": "siglip_text_model", "projection_size": width}
    return write_settings(SETTINGS, config) | own
