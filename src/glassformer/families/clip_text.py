"""CLIP (Radford et al., 2021), the half that reads texts: a causal pre-norm encoder with learned positions.

The vector of a text is the state of its first end-of-text token, ``eos_token_id``. Files from before 2023
have a wrong id there, 2: then it is the token with the highest id, as in ``transformers``. ``image_text.py``
reads and writes this half with the half that reads images.
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

WRONG_END = 2  # in old files
NAMES = replace(
    siglip.NAMES,
    prefix="text_model.",
    encoder={
        **{ours: theirs for ours, theirs in siglip.NAMES.encoder.items() if "{i}" in ours},
        "embeddings.tokens": "embeddings.token_embedding",
        "embeddings.positions": "embeddings.position_embedding",
        "encoder.final_norm": "final_layer_norm",
    },
    heads={},
    full_names={},
    ignored={
        "embeddings.position_ids": "a constant 0, 1, 2, ...",
        "vision_model.": "the half that reads images",
        "logit_scale": "of both halves",
        "text_projection.weight": "of both halves",
        "visual_projection.weight": "of both halves",
    },
)
SETTINGS = (  # published files hold only what differs from the defaults
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
    """The text half of CLIP's ViT-B/32: L12 H512 A8, 63 M parameters."""
    embedding = EmbeddingConfig(
        vocab_size, d_model, max_positions=max_positions, segments=0, norm=False, eps=1e-5
    )
    sizes = d_model, num_layers, num_heads, d_ff
    encoder = EncoderConfig(
        *sizes, norm="pre", activation="quick_gelu", eps=1e-5, final_norm=True, causal=True
    )
    return TextEncoderConfig(embedding, encoder, pooling=None)


def read(settings: dict[str, Any], where: str) -> tuple[TextEncoderConfig, int | None]:
    """Our config and the end-of-text token, from the section ``text_config``; None: it has the highest id.

    Raises:
        CheckpointError: an unsupported activation, an invalid value, or an end-of-text token outside the
            vocabulary.
        ConfigError: inconsistent sizes.
    """
    config = read_settings(SETTINGS, clip_text(), {"hidden_act": "quick_gelu"} | settings, where)
    end, vocab_size = get_count(settings, "eos_token_id", where, 49_407), config.embedding.vocab_size
    if end == WRONG_END:
        return config, None
    if end >= vocab_size:
        what = f"eos_token_id = {end} is not in the vocabulary of {vocab_size:,} tokens"
        raise CheckpointError(what, where=where, fix="Correct it: every text ends with this token")
    return config, end


def write(config: TextEncoderConfig, end_token: int | None) -> dict[str, Any]:
    """The section ``text_config``."""
    end = WRONG_END if end_token is None else end_token
    return write_settings(SETTINGS, config) | {"model_type": "clip_text_model", "eos_token_id": end}
