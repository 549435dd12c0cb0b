"""ViT (Dosovitskiy et al., 2021): ``config.json``, tensor names and presets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from glassformer.checkpoints.names import NameTable
from glassformer.checkpoints.settings import shorten
from glassformer.errors import CheckpointError, UnsupportedModelError
from glassformer.families.family import Family, HubLayout
from glassformer.families.settings import (
    Setting,
    activation,
    nonnegative,
    rate,
    read_settings,
    size,
    write_settings,
)
from glassformer.models.image import ImageEncoder, ImageEncoderConfig
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
PATCHES = "embeddings.projection.weight"


def from_hub(
    tensors: dict[str, Tensor],
    where: str,
    config: ImageEncoderConfig | None = None,
    names: NameTable = NAMES,
) -> dict[str, Tensor]:
    """Convert the Hub's tensors to ours, without leading axes of 1, with convolution kernels as matrices."""
    out = names.from_hub(tensors, where)
    for key in ("embeddings.cls", "embeddings.positions"):
        if key in out and out[key].ndim == 3:
            out[key] = out[key][0, 0] if key.endswith("cls") else out[key][0]
    if PATCHES in out and out[PATCHES].ndim == 4:
        out[PATCHES] = out[PATCHES].flatten(1)  # [D, C, p, q] -> [D, C * p * q]
    for key in [key for key in out if key.endswith("attention.qkv.weight")]:
        bias = key.removesuffix("weight") + "bias"
        out.setdefault(bias, torch.zeros(len(out[key])))  # qkv_bias = false equals a bias of zeros
    return out


def to_hub(
    tensors: dict[str, Tensor], with_prefix: bool, config: ImageEncoderConfig, names: NameTable = NAMES
) -> dict[str, Tensor]:
    """Convert our tensors to the Hub's; ``with_prefix``: encoder names start with ``vit.``."""
    shaped = {
        **tensors,
        "embeddings.cls": tensors["embeddings.cls"][None, None],
        "embeddings.positions": tensors["embeddings.positions"][None],
        PATCHES: as_kernel(tensors, config),
    }
    return names.to_hub(shaped, with_prefix)


def as_kernel(tensors: dict[str, Tensor], config: ImageEncoderConfig) -> Tensor:
    """The patch projection as the kernel of a convolution: ``[D, C * p * q]`` -> ``[D, C, p, q]``."""
    sizes = config.embedding.channels, *config.embedding.patch_size
    return tensors[PATCHES].unflatten(1, sizes)


# --- config.json ------------------------------------------------------------------------------------


def pair(settings: dict[str, Any], key: str, default: int, where: str) -> tuple[int, ...]:
    """A height and width from one number or a list of two."""
    value = settings.get(key, default)
    pair = tuple(value) if isinstance(value, list) else (value, value)
    if len(pair) != 2 or not all(isinstance(n, int) and 1 <= n <= 100_000 for n in pair):
        raise CheckpointError(f"{key} = {shorten(value)} is not a size", where=where)
    return pair


def sides(key: str, place: str, default: int) -> Setting:
    """A size in pixels: one number, or height and width."""
    return Setting(
        key,
        (place,),
        lambda settings, where: pair(settings, key, default, where),
        lambda size: size[0] if size[0] == size[1] else list(size),
    )


SETTINGS = (
    size("hidden_size", "embedding.d_model", "encoder.d_model"),
    size("num_hidden_layers", "encoder.num_layers"),
    size("num_attention_heads", "encoder.num_heads"),
    size("intermediate_size", "encoder.d_ff"),
    activation("hidden_act", "encoder.activation"),
    nonnegative("layer_norm_eps", "encoder.eps", default=1e-12),
    rate("hidden_dropout_prob", "embedding.dropout", "encoder.dropout", default=0.0),
    rate("attention_probs_dropout_prob", "encoder.attention_dropout", default=0.0),
    sides("image_size", "embedding.image_size", 224),
    sides("patch_size", "embedding.patch_size", 16),
    size("num_channels", "embedding.channels", default=3),
    nonnegative("initializer_range", "init_std", default=0.02),
)


def read(settings: dict[str, Any], where: str, base: ImageEncoderConfig | None = None) -> ImageEncoderConfig:
    """Our config from ViT's ``config.json``; ``base`` has the values of missing keys (None: ViT's)."""
    if (act := settings.get("pooler_act", "tanh")) not in ("tanh", None):
        raise UnsupportedModelError(f"pooler_act = {shorten(act)} is not supported", where=where)
    if settings.get("pooler_output_size") not in (None, settings.get("hidden_size")):
        raise UnsupportedModelError(
            "a pooler of another width than the encoder is not supported", where=where
        )
    return read_settings(SETTINGS, base or vit(), settings, where)


def check_square(config: ImageEncoderConfig, where: str) -> None:
    """Raise CheckpointError for a grid of patches that is not square, for families that need one."""
    e = config.embedding
    if e.image_size[0] != e.image_size[1] or e.grid[0] != e.grid[1]:  # ``transformers`` cannot open others
        what = f"images of {e.image_size} pixels in patches of {e.patch_size} have a grid that is not square"
        raise CheckpointError(what, where=where)


def write(config: ImageEncoderConfig) -> dict[str, Any]:
    return {
        "model_type": "vit",
        **write_settings(SETTINGS, config),
        "qkv_bias": True,
        "torch_dtype": "float32",
    }


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
        EncoderConfig(d_model, num_layers, num_heads, d_ff, "pre", "gelu", 1e-12, dropout, final_norm=True),
        **options,
    )


def vit_base(
    image_size: tuple[int, ...] = (224, 224), patch_size: tuple[int, ...] = (16, 16)
) -> ImageEncoderConfig:
    """ViT-B: L12 H768 A12, 86 M parameters at patch 16."""
    return vit(image_size, patch_size)


def vit_large(
    image_size: tuple[int, ...] = (224, 224), patch_size: tuple[int, ...] = (16, 16)
) -> ImageEncoderConfig:
    """ViT-L: L24 H1024 A16, 304 M parameters at patch 16."""
    return vit(image_size, patch_size, 1024, 24, 16, 4096)


def vit_small(
    image_size: tuple[int, ...] = (224, 224), patch_size: tuple[int, ...] = (16, 16)
) -> ImageEncoderConfig:
    """DeiT-S (Touvron et al., 2021): L12 H384 A6, 22 M parameters at patch 16."""
    return vit(image_size, patch_size, 384, 12, 6, 1536)


def vit_tiny(
    image_size: tuple[int, ...] = (32, 32), patch_size: tuple[int, ...] = (4, 4)
) -> ImageEncoderConfig:
    """A ViT for images of about 32 pixels: L6 H192 A3, MLP ratio 2, 1.8 M parameters, 65 tokens.

    Weights and positions start larger than with the usual standard deviation of 0.02, which suits widths of
    about 768 and makes narrow layers learn slowly.
    """
    config = vit(image_size, patch_size, 192, 6, 3, 384, init_std=0.08)
    return replace(config, embedding=replace(config.embedding, position_std=0.5))


def vit_one(
    image_size: tuple[int, ...] = (224, 224), patch_size: tuple[int, ...] = (16, 16)
) -> ImageEncoderConfig:
    """One encoder layer without [CLS]; the head reads patch 0 (a course exercise).

    512 wide, patches without bias, positions from 512^-0.5 N(0, 1), 196 tokens at 224 pixels, head
    Linear -> 20 -> classes.
    """
    d = 512
    return ImageEncoderConfig(
        PatchConfig(
            d,
            image_size,
            patch_size,
            positions="learned",
            class_token=False,
            bias=False,
            position_std=d**-0.5,
        ),
        EncoderConfig(d, 1, 8, 2048, "post", "relu", 1e-6, dropout=0.1),
        pooling="first",
        head_type="mlp",
        head_hidden=20,
    )


VIT = Family(
    "vit",
    ImageEncoder,
    ImageEncoderConfig,
    lambda: vit((8, 8), (4, 4), 12, 2, 3, 17, head="classification", num_labels=3),
    HubLayout(
        read,
        write,
        NAMES,
        from_hub,
        to_hub,
        classes={None: "ViTModel", "classification": "ViTForImageClassification"},
        pooling="first",
    ),
    presets={
        "vit-tiny": vit_tiny,
        "vit-small": vit_small,
        "vit-base": vit_base,
        "vit-large": vit_large,
        "vit-one": vit_one,
    },
    examples=("google/vit-base-patch16-224", "google/vit-base-patch16-224-in21k"),
)
