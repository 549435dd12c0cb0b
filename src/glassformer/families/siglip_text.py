"""SigLIP's text encoder (Zhai et al., 2023): pre-norm, with learned positions.

Texts are padded to ``max_position_embeddings`` tokens, and the encoder reads the padding too. The vector of a
text is the projected hidden state of its last token. ``image_text.py`` reads and writes both encoders.
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
        "vision_model.": "the image encoder",
        "head.weight": "projection of texts into the shared space",
        "head.bias": "projection of texts into the shared space",
        "logit_scale": "scale of image-text similarities",
        "logit_bias": "bias of image-text similarities",
    },
)
SETTINGS = tuple(setting for setting in clip_text.SETTINGS if setting.key != "initializer_range")
DEFAULTS = {  # published files contain only the values that differ from these
    "vocab_size": 32_000,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 64,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
}


def read(settings: dict[str, Any], where: str, width: int) -> TextEncoderConfig:
    """Our config from the section ``text_config``; ``width`` is the number of features of an image vector.

    Raises:
        CheckpointError: an activation is not supported, a value is invalid, or text vectors have another
            width.
    """
    settings = DEFAULTS | settings
    base = clip_text.clip_text()
    base = replace(base, encoder=replace(base.encoder, causal=False))
    config = read_settings(SETTINGS, base, settings, where)
    if get_size(settings, "projection_size", where, config.encoder.d_model) != width:
        what = f"vectors of texts and of images ({width}) have different widths"
        raise UnsupportedModelError(what, where=where)
    return config


def write(config: TextEncoderConfig, width: int) -> dict[str, Any]:
    """The section ``text_config``."""
    settings = write_settings(SETTINGS, config)
    return settings | {"model_type": "siglip_text_model", "projection_size": width}
