"""CLIP's text encoder (Radford et al., 2021): causal, pre-norm, with learned positions.

The vector of a text is the hidden state of its first end-of-text token, ``eos_token_id``. Files from before
2023 have the wrong ``eos_token_id`` 2. For them the end-of-text token is the one with the highest id, as in
``transformers``. ``image_text.py`` reads and writes both encoders.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from glassformer.checkpoints.settings import get_count
from glassformer.errors import CheckpointError
from glassformer.families import siglip
from glassformer.families.settings import activation, nonnegative, rate, read_settings, size, write_settings
from glassformer.models.text import TextEncoderConfig
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.encoder import EncoderConfig

WRONG_END_TOKEN = 2  # ``eos_token_id`` in files from before 2023
NAMES = replace(
    siglip.NAMES,
    prefix="text_model.",
    encoder={
        **{name: hub_name for name, hub_name in siglip.NAMES.encoder.items() if "{i}" in name},
        "embeddings.tokens": "embeddings.token_embedding",
        "embeddings.positions": "embeddings.position_embedding",
        "encoder.final_norm": "final_layer_norm",
    },
    heads={},
    full_names={},
    ignored={
        "embeddings.position_ids": "a constant 0, 1, 2, ...",
        "vision_model.": "the image encoder",
        "logit_scale": "scale of image-text similarities",
        "text_projection.weight": "projection of texts into the shared space",
        "visual_projection.weight": "projection of images into the shared space",
    },
)
SETTINGS = (  # published files contain only the values that differ from these defaults
    size("vocab_size", "embedding.vocab_size", default=49_408),
    size("hidden_size", "embedding.d_model", "encoder.d_model", default=512),
    size("num_hidden_layers", "encoder.num_layers", default=12),
    size("num_attention_heads", "encoder.num_heads", default=8),
    size("intermediate_size", "encoder.d_ff", default=2048),
    size("max_position_embeddings", "embedding.max_positions", default=77),
    activation("hidden_act", "encoder.activation"),
    nonnegative("layer_norm_eps", "encoder.eps", default=1e-5),
    rate("attention_dropout", "encoder.attention_dropout", default=0.0),
    nonnegative("initializer_range", "init_std", default=0.02),
)


def clip_text(
    vocab_size: int = 49_408,
    d_model: int = 512,
    num_layers: int = 12,
    num_heads: int = 8,
    d_ff: int = 2048,
    max_positions: int = 77,
) -> TextEncoderConfig:
    """The text encoder of CLIP-ViT-B/32: L12 H512 A8, 63 M parameters."""
    embedding = EmbeddingConfig(
        vocab_size, d_model, max_positions=max_positions, segments=0, norm=False, eps=1e-5
    )
    sizes = d_model, num_layers, num_heads, d_ff
    encoder = EncoderConfig(
        *sizes, norm="pre", activation="quick_gelu", eps=1e-5, final_norm=True, causal=True
    )
    return TextEncoderConfig(embedding, encoder, pooling=None)


def read(settings: dict[str, Any], where: str) -> tuple[TextEncoderConfig, int | None]:
    """Our config and the id of the end-of-text token (None: the highest id), from ``text_config``.

    Raises:
        CheckpointError: an activation is not supported, a value is invalid, or the end-of-text token is not
            in the vocabulary.
        ConfigError: sizes are inconsistent.
    """
    config = read_settings(SETTINGS, clip_text(), {"hidden_act": "quick_gelu"} | settings, where)
    end, vocab_size = get_count(settings, "eos_token_id", where, 49_407), config.embedding.vocab_size
    if end == WRONG_END_TOKEN:
        return config, None
    if end >= vocab_size:
        what = f"eos_token_id = {end} is not in the vocabulary of {vocab_size:,} tokens"
        raise CheckpointError(what, where=where, fix="Correct it: every text ends with this token")
    return config, end


def write(config: TextEncoderConfig, end_token: int | None) -> dict[str, Any]:
    """The section ``text_config`` of ``config.json``."""
    end = WRONG_END_TOKEN if end_token is None else end_token
    return write_settings(SETTINGS, config) | {"model_type": "clip_text_model", "eos_token_id": end}
