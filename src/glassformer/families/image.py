"""Shared code of image families: keys of ``config.json``, shapes of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from glassformer.checkpoints.names import NameTable
from glassformer.checkpoints.settings import shorten
from glassformer.errors import CheckpointError
from glassformer.families.family import Family, HubLayout
from glassformer.families.settings import Setting, activation, nonnegative, size
from glassformer.models.image import ImageEncoder, ImageEncoderConfig

PATCHES = "embeddings.projection.weight"
MAX_SIDE = 100_000  # pixels; a larger value in a file is an error
# Tensors that have leading axes of size 1 in files of some families -> their number of axes in our models
AXES = {"embeddings.cls": 1, "embeddings.positions": 2, "embeddings.registers": 2, "pooling.query": 1}
HUB_AXES = 3  # number of axes of these tensors with their leading axes
VIT_AXES = ("embeddings.cls", "embeddings.positions", "embeddings.registers")


# --- tensors --------------------------------------------------------------------------------------


def from_hub(
    tensors: dict[str, Tensor], where: str, config: ImageEncoderConfig | None = None, *, names: NameTable
) -> dict[str, Tensor]:
    """Convert the Hub's tensors to ours: without leading axes of size 1, convolution kernels as matrices."""
    out = names.from_hub(tensors, where)
    for key, axes in AXES.items():
        if key in out and out[key].ndim == HUB_AXES:
            leading = HUB_AXES - axes
            out[key] = out[key][(0,) * leading]
    if PATCHES in out and out[PATCHES].ndim == 4:
        out[PATCHES] = out[PATCHES].flatten(1)  # [D, C, p, q] -> [D, C * p * q]
    for key in [key for key in out if key.endswith("attention.qkv.weight")]:
        bias = key.removesuffix("weight") + "bias"
        out.setdefault(bias, torch.zeros(len(out[key])))  # qkv_bias = false equals a bias of zeros
    return out


def to_hub(
    tensors: dict[str, Tensor],
    with_prefix: bool,
    config: ImageEncoderConfig,
    *,
    names: NameTable,
    with_axes: tuple[str, ...] = VIT_AXES,
) -> dict[str, Tensor]:
    """Convert our tensors to the Hub's; ``with_axes`` are those of ``AXES`` that get their leading axes."""
    sizes = config.embedding.channels, *config.embedding.patch_size
    shaped = {**tensors, PATCHES: tensors[PATCHES].unflatten(1, sizes)}
    shaped |= {key: tensors[key][(None,) * (HUB_AXES - AXES[key])] for key in with_axes if key in tensors}
    return names.to_hub(shaped, with_prefix)


# --- config.json ------------------------------------------------------------------------------------


def _pair(settings: dict[str, Any], key: str, default: int, where: str) -> tuple[int, ...]:
    """Height and width in pixels; the file has one number or both."""
    value = settings.get(key, default)
    pair = tuple(value) if isinstance(value, list) else (value, value)
    if len(pair) != 2 or not all(isinstance(n, int) and 1 <= n <= MAX_SIDE for n in pair):
        raise CheckpointError(f"{key} = {shorten(value)} is not a size", where=where)
    return pair


def pixel_size(key: str, path: str, default: int) -> Setting:
    """A size in pixels: one number, or height and width."""
    return Setting(
        key,
        (path,),
        lambda settings, where: _pair(settings, key, default, where),
        lambda size: size[0] if size[0] == size[1] else list(size),
    )


def image_settings(
    eps: float,
    patch_size: int,
    sizes: Mapping[str, int | None],
    eps_paths: tuple[str, ...] = ("encoder.eps",),
) -> tuple[Setting, ...]:
    """The keys of ``config.json`` that all image families have.

    Args:
        eps, patch_size: default values.
        sizes: key of a size of the encoder -> default value; None: the key is required.
    """
    paths = {"hidden_size": ("embedding.d_model", "encoder.d_model"), "intermediate_size": ("encoder.d_ff",)}
    paths |= {"num_hidden_layers": ("encoder.num_layers",), "num_attention_heads": ("encoder.num_heads",)}
    return (
        *(size(key, *paths[key], default=default) for key, default in sizes.items()),
        activation("hidden_act", "encoder.activation"),
        nonnegative("layer_norm_eps", *eps_paths, default=eps),
        pixel_size("image_size", "embedding.image_size", 224),
        pixel_size("patch_size", "embedding.patch_size", patch_size),
        size("num_channels", "embedding.channels", default=3),
    )


def check_square(config: ImageEncoderConfig, where: str) -> ImageEncoderConfig:
    """Return the config; raise CheckpointError if the grid of patches is not square."""
    e = config.embedding
    if e.image_size[0] != e.image_size[1] or e.grid[0] != e.grid[1]:  # transformers cannot open these
        what = f"images of {e.image_size} pixels in patches of {e.patch_size} have a grid that is not square"
        raise CheckpointError(what, where=where)
    return config


# --- family ---------------------------------------------------------------------------------------


def image_family(
    model_type: str,
    class_prefix: str,
    preset: Callable[..., ImageEncoderConfig],
    layout: tuple[Callable[..., Any], ...],
    names: NameTable,
    *,
    pooling: str,
    more_classes: Mapping[str | None, str] | None = None,
    tiny_options: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Family:
    """The ``Family`` of a vision Transformer.

    Args:
        class_prefix: prefix of the class names in ``transformers``, such as ``ViT``.
        preset: returns the config for image size, patch size, width, layers, heads, d_ff and options.
        layout: ``read``, ``write``, ``from_hub`` and ``to_hub`` of ``HubLayout``.
        pooling: pooling of the classifier in ``transformers``.
        more_classes: head -> name of a further class.
        tiny_options: further options of ``preset`` for ``Family.tiny``.
        fields: further fields of ``Family``.
    """
    classes: dict[str | None, str]
    classes = {None: f"{class_prefix}Model", "classification": f"{class_prefix}ForImageClassification"}
    read, write, convert_from, convert_to = layout
    options = {"pooling": pooling, "head": "classification", "num_labels": 3, **(tiny_options or {})}
    sizes = {"d_model": 12, "num_layers": 2, "num_heads": 3, "d_ff": options.pop("d_ff", 17)}
    return Family(
        model_type,
        ImageEncoder,
        ImageEncoderConfig,
        lambda: preset(image_size=(8, 8), patch_size=(4, 4), **sizes, **options),
        HubLayout(
            read, write, names, convert_from, convert_to, classes | dict(more_classes or {}), pooling=pooling
        ),
        **fields,
    )
