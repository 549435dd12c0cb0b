"""ViT (Dosovitskiy et al., 2021): ``config.json``, tensor names and presets."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from glassformer.checkpoints.names import NameTable
from glassformer.checkpoints.settings import shorten
from glassformer.errors import UnsupportedModelError
from glassformer.families import image
from glassformer.families.settings import nonnegative, rate, read_settings, write_settings
from glassformer.models.image import ImageEncoderConfig
from glassformer.nn.encoder import EncoderConfig
from glassformer.nn.patches import PatchConfig

NAMES = NameTable(
    prefix="vit.",
    encoder={
        "embeddings.projection": "embeddings.patch_embeddings.projection",
        "encoder.layers.{i}.attention.out": "encoder.layer.{i}.attention.output.dense",
        "encoder.layers.{i}.norm1": "encoder.layer.{i}.layernorm_before",
        "encoder.layers.{i}.feed_forward.up": "encoder.layer.{i}.intermediate.dense",
        "encoder.layers.{i}.feed_forward.down": "encoder.layer.{i}.output.dense",
        "encoder.layers.{i}.norm2": "encoder.layer.{i}.layernorm_after",
        "encoder.final_norm": "layernorm",
        "pooling.dense": "pooler.dense",
    },
    fused={
        "encoder.layers.{i}.attention.qkv": (
            "encoder.layer.{i}.attention.attention.query",
            "encoder.layer.{i}.attention.attention.key",
            "encoder.layer.{i}.attention.attention.value",
        )
    },
    heads={"head.out": "classifier"},
    full_names={
        "embeddings.cls": "embeddings.cls_token",
        "embeddings.positions": "embeddings.position_embeddings",
    },
    ignored={"embeddings.mask_token": "used in masked pre-training only"},
    new_names={
        "encoder.layers.{i}.attention.qkv": (
            "layers.{i}.attention.q_proj",
            "layers.{i}.attention.k_proj",
            "layers.{i}.attention.v_proj",
        ),
        "encoder.layers.{i}.attention.out": "layers.{i}.attention.o_proj",
        "encoder.layers.{i}.feed_forward.up": "layers.{i}.mlp.fc1",
        "encoder.layers.{i}.feed_forward.down": "layers.{i}.mlp.fc2",
    },
)
from_hub, to_hub = partial(image.from_hub, names=NAMES), partial(image.to_hub, names=NAMES)


# --- config.json ------------------------------------------------------------------------------------

SIZES: dict[str, int | None] = dict.fromkeys(
    ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
)
SETTINGS = (
    *image.image_settings(1e-12, 16, SIZES),
    rate("hidden_dropout_prob", "embedding.dropout", "encoder.dropout", default=0.0),
    rate("attention_probs_dropout_prob", "encoder.attention_dropout", default=0.0),
    nonnegative("initializer_range", "init_std", default=0.02),
)


def read(settings: dict[str, Any], where: str, base: ImageEncoderConfig | None = None) -> ImageEncoderConfig:
    """Our config from ViT's ``config.json``; ``base`` has the defaults of missing keys (None: ViT's)."""
    if (act := settings.get("pooler_act", "tanh")) not in ("tanh", None):
        raise UnsupportedModelError(f"pooler_act = {shorten(act)} is not supported", where=where)
    if settings.get("pooler_output_size") not in (None, settings.get("hidden_size")):
        what = "a pooler of another width than the encoder is not supported"
        raise UnsupportedModelError(what, where=where)
    return read_settings(SETTINGS, base or vit(), settings, where)


def write(config: ImageEncoderConfig) -> dict[str, Any]:
    fixed = {"model_type": "vit", "qkv_bias": True, "torch_dtype": "float32"}
    return write_settings(SETTINGS, config) | fixed


# --- presets --------------------------------------------------------------------------------------


def vit(
    image_size: tuple[int, ...] = (224, 224),
    patch_size: tuple[int, ...] = (16, 16),
    d_model: int = 768,
    num_layers: int = 12,
    num_heads: int = 12,
    d_ff: int = 3072,
    channels: int = 3,
    dropout: float = 0.0,
    **options,
) -> ImageEncoderConfig:
    """ViT-B/16: L12 H768 A12, 86 M parameters."""
    return ImageEncoderConfig(
        PatchConfig(d_model, image_size, patch_size, channels, "learned", dropout=dropout),
        EncoderConfig(
            d_model,
            num_layers,
            num_heads,
            d_ff,
            norm="pre",
            activation="gelu",
            eps=1e-12,
            dropout=dropout,
            final_norm=True,
        ),
        **options,
    )


vit_base = vit
vit_large = partial(vit, d_model=1024, num_layers=24, num_heads=16, d_ff=4096)  # 304 M parameters
vit_small = partial(vit, d_model=384, num_heads=6, d_ff=1536)  # DeiT-S (Touvron et al., 2021): 22 M


def vit_tiny(
    image_size: tuple[int, ...] = (32, 32), patch_size: tuple[int, ...] = (4, 4)
) -> ImageEncoderConfig:
    """A ViT for images of about 32 pixels: L6 H192 A3, MLP ratio 2, 1.8 M parameters, 65 tokens.

    Weights and positions start larger than with the usual standard deviation of 0.02, which suits widths of
    about 768 and makes narrow layers learn slowly.
    """
    config = vit(image_size, patch_size, d_model=192, num_layers=6, num_heads=3, d_ff=384, init_std=0.08)
    return replace(config, embedding=replace(config.embedding, position_std=0.5))


def vit_one(
    image_size: tuple[int, ...] = (224, 224), patch_size: tuple[int, ...] = (16, 16)
) -> ImageEncoderConfig:
    """One encoder layer without [CLS]; the head reads patch 0 (a course exercise).

    Width 512, patch projection without bias, positions from 512^-0.5 N(0, 1), 196 tokens at 224 x 224 pixels,
    a head with 20 hidden units.
    """
    d = 512
    options: dict[str, Any] = {"class_token": False, "bias": False, "position_std": d**-0.5}
    embedding = PatchConfig(d, image_size, patch_size, positions="learned", **options)
    encoder = EncoderConfig(
        d, num_layers=1, num_heads=8, d_ff=2048, norm="post", activation="relu", eps=1e-6, dropout=0.1
    )
    return ImageEncoderConfig(embedding, encoder, pooling="first", head_type="mlp", head_hidden=20)


VIT = image.image_family(
    "vit",
    "ViT",
    vit,
    (read, write, from_hub, to_hub),
    NAMES,
    pooling="first",
    presets={
        "vit-tiny": vit_tiny,
        "vit-small": vit_small,
        "vit-base": vit_base,
        "vit-large": vit_large,
        "vit-one": vit_one,
    },
    examples=("google/vit-base-patch16-224", "google/vit-base-patch16-224-in21k"),
)
