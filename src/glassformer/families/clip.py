"""CLIP's image encoder (Radford et al., 2021): ViT with a norm before its layers and none after them.

The classifier reads the mean of the patches, without a norm. A model without a classifier keeps the norm of
[CLS], which CLIP projects and compares with texts. ``clip_text.py`` has the text encoder. The file format is
like that of SigLIP (``siglip.py``).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glassformer.checkpoints.settings import get_section
from glassformer.families import image, siglip
from glassformer.families.settings import nonnegative, read_settings, write_settings
from glassformer.models.image import ImageEncoderConfig
from glassformer.nn.encoder import EncoderConfig
from glassformer.nn.patches import PatchConfig

PAIR_MODEL_TYPE = "clip"
NAMES = replace(
    siglip.NAMES,
    encoder={
        **{name: hub_name for name, hub_name in siglip.NAMES.encoder.items() if "{i}" in name},
        "embeddings.projection": "embeddings.patch_embedding",
        "embeddings.norm": "pre_layrnorm",  # as the Hub spells it
        "pooling.norm": "post_layernorm",
    },
    full_names={
        "embeddings.cls": "embeddings.class_embedding",
        "embeddings.positions": "embeddings.position_embedding.weight",
    },
    ignored={
        "embeddings.position_ids": "a constant 0, 1, 2, ...",
        "text_model.": "the text encoder",
        "logit_scale": "scale of image-text similarities",
        "text_projection.weight": "projection of texts into the shared space",
        "visual_projection.weight": "projection of images into the shared space",
    },
)

from_hub = partial(image.from_hub, names=NAMES)


def to_hub(tensors: dict[str, Tensor], with_prefix: bool, config: ImageEncoderConfig) -> dict[str, Tensor]:
    """Convert our tensors to the Hub's; a model without a norm of [CLS] gets one with weight 1, bias 0."""
    d = config.encoder.d_model
    norm = {"pooling.norm.weight": torch.ones(d), "pooling.norm.bias": torch.zeros(d)}
    return image.to_hub({**norm, **tensors}, with_prefix, config, names=NAMES, with_axes=())


SETTINGS = (
    *image.image_settings(1e-5, 32, siglip.SIZES, ("embedding.eps", "encoder.eps")),
    siglip.DROPOUT,
    nonnegative("initializer_range", "init_std", default=0.02),
)


def read(settings: dict[str, Any], where: str) -> ImageEncoderConfig:
    """Our config from a ``config.json`` of CLIP's image encoder, or of both encoders.

    Raises:
        CheckpointError: an activation is not supported, a value is invalid, or the grid of patches is not
            square.
    """
    is_pair = settings.get("model_type") == PAIR_MODEL_TYPE
    section = encoder_section(settings, "vision_config", where) if is_pair else settings
    return image.check_square(
        read_settings(SETTINGS, clip(), {"hidden_act": "quick_gelu"} | section, where), where
    )


def encoder_section(settings: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    """The section ``key`` of ``config.json``; in old files, a section ``{key}_dict`` overrides its values."""
    section, override = get_section(settings, key, where), f"{key}_dict"
    return section if settings.get(override) is None else section | get_section(settings, override, where)


def write(config: ImageEncoderConfig) -> dict[str, Any]:
    return siglip.hub_config(write_settings(SETTINGS, config), PAIR_MODEL_TYPE, config, CLIP)


def clip(
    image_size: tuple[int, ...] = (224, 224),
    patch_size: tuple[int, ...] = (32, 32),
    d_model: int = 768,
    num_layers: int = 12,
    num_heads: int = 12,
    d_ff: int = 3072,
    **options,
) -> ImageEncoderConfig:
    """The image encoder of CLIP-ViT-B/32: L12 H768 A12, 87 M parameters."""
    embedding = PatchConfig(d_model, image_size, patch_size, bias=False, norm=True)
    encoder = EncoderConfig(
        d_model, num_layers, num_heads, d_ff, norm="pre", activation="quick_gelu", eps=1e-5
    )
    return ImageEncoderConfig(embedding, encoder, pooling=options.pop("pooling", None), **options)


CLIP = image.image_family(
    PAIR_MODEL_TYPE,
    "CLIP",
    clip,
    (read, write, from_hub, to_hub),
    NAMES,
    pooling="patches",
    more_classes={None: "CLIPVisionModel"},
    examples=("openai/clip-vit-base-patch32", "openai/clip-vit-large-patch14"),
    aliases=("clip_vision_model",),
)
