"""DINOv2 (Oquab et al., 2024), without and with registers (Darcet et al., 2024).

ViT with LayerScale; the largest model has SwiGLU feed-forward networks. The classifier reads [CLS]
concatenated with the mean of the patches. The model with registers interpolates positions with antialiasing.
``drop_path_rate`` is ignored; set ``stochastic_depth`` for training.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glassformer.checkpoints.names import NameTable
from glassformer.checkpoints.settings import get_number, get_size
from glassformer.families import image, vit
from glassformer.families.family import Family
from glassformer.families.settings import flag, nonnegative, rate, read_settings, size, write_settings
from glassformer.models.image import ImageEncoderConfig
from glassformer.nn.encoder import EncoderConfig
from glassformer.nn.patches import PatchConfig

PLAIN, REGISTERS = "dinov2", "dinov2_with_registers"
MASK = "embeddings.mask_token"
# Parts of the Hub's tensor names, and the same parts in the name table.
NAME_PARTS = (
    ("layer_scale1.lambda1", "layer_scale1.weight"),
    ("layer_scale2.lambda1", "layer_scale2.weight"),
    ("mlp.weights_in.", "mlp.fc1."),
    ("mlp.weights_out.", "mlp.fc2."),
)


def _names(kind: str) -> NameTable:
    encoder = {
        **vit.NAMES.encoder,
        "encoder.layers.{i}.norm1": "encoder.layer.{i}.norm1",
        "encoder.layers.{i}.norm2": "encoder.layer.{i}.norm2",
        "encoder.layers.{i}.scale1": "encoder.layer.{i}.layer_scale1",
        "encoder.layers.{i}.scale2": "encoder.layer.{i}.layer_scale2",
        "encoder.layers.{i}.feed_forward.up": "encoder.layer.{i}.mlp.fc1",
        "encoder.layers.{i}.feed_forward.down": "encoder.layer.{i}.mlp.fc2",
    }
    qkv = tuple(f"encoder.layer.{{i}}.attention.{part}_proj" for part in "qkv")
    return replace(
        vit.NAMES,
        prefix=f"{kind}.",
        encoder={name: hub_name for name, hub_name in encoder.items() if not name.startswith("pooling")},
        full_names={**vit.NAMES.full_names, "embeddings.registers": "embeddings.register_tokens"},
        new_names={
            "encoder.layers.{i}.attention.qkv": qkv,  # type: ignore[dict-item]  # three names
            "encoder.layers.{i}.attention.out": "encoder.layer.{i}.attention.o_proj",
            "encoder.layers.{i}.feed_forward.up": encoder["encoder.layers.{i}.feed_forward.up"],
            "encoder.layers.{i}.feed_forward.down": encoder["encoder.layers.{i}.feed_forward.down"],
        },
    )


def from_hub(
    tensors: dict[str, Tensor], where: str, config: ImageEncoderConfig | None = None, *, names: NameTable
) -> dict[str, Tensor]:
    """Convert the Hub's tensors to ours."""
    renamed = {}
    for key, tensor in tensors.items():
        for hub_part, table_part in NAME_PARTS:
            key = key.replace(hub_part, table_part)
        renamed[key] = tensor
    return image.from_hub(renamed, where, config, names=names)


def to_hub(
    tensors: dict[str, Tensor], with_prefix: bool, config: ImageEncoderConfig, *, names: NameTable
) -> dict[str, Tensor]:
    """Convert our tensors to the Hub's; adds a mask token of zeros, because our models have none."""
    is_gated = config.encoder.feed_forward == "swiglu"
    name_parts = NAME_PARTS if is_gated else NAME_PARTS[:2]  # the last two belong to gated networks
    out = {(names.prefix if with_prefix else "") + MASK: torch.zeros(1, config.encoder.d_model)}
    for key, tensor in image.to_hub(tensors, with_prefix, config, names=names).items():
        for hub_part, table_part in name_parts:
            key = key.replace(table_part, hub_part)
        out[key] = tensor
    return out


# --- config.json ------------------------------------------------------------------------------------


def _hidden_width(d_model: int, ratio: float, gated: bool) -> int:
    """Hidden width of a feed-forward network; if gated, 2/3 of it, rounded up to a multiple of 8."""
    width = int(d_model * ratio)
    return (int(width * 2 / 3) + 7) // 8 * 8 if gated else width


def _ratio(c: EncoderConfig) -> int | None:
    """The ``mlp_ratio`` of an encoder; None if no integer ratio gives its ``d_ff``."""
    gated = c.feed_forward == "swiglu"
    candidates = range(1, 3 * c.d_ff // c.d_model + 2)
    return next((n for n in candidates if _hidden_width(c.d_model, n, gated) == c.d_ff), None)


SIZES: dict[str, int | None] = dict.fromkeys(("hidden_size", "num_hidden_layers", "num_attention_heads"))
OWN_SETTINGS = (
    rate("hidden_dropout_prob", "embedding.dropout", default=0.0),
    rate("attention_probs_dropout_prob", "encoder.attention_dropout", default=0.0),
    nonnegative("layerscale_value", "encoder.layer_scale", default=1.0),
    flag("use_swiglu_ffn", "encoder.feed_forward", values=("plain", "swiglu")),
    nonnegative("initializer_range", "init_std", default=0.02),
)
SETTINGS = (*image.image_settings(1e-6, 14, SIZES), *OWN_SETTINGS)
WITH_REGISTERS = (
    *image.image_settings(1e-6, 16, SIZES),
    *OWN_SETTINGS,
    size("num_register_tokens", "embedding.registers", default=4),
)


def read(settings: dict[str, Any], where: str, kind: str = PLAIN) -> ImageEncoderConfig:
    """Our config from ``config.json``."""
    table, base = (WITH_REGISTERS, dinov2(registers=4)) if kind == REGISTERS else (SETTINGS, dinov2())
    gated = settings.get("use_swiglu_ffn") is True
    d_ff = _hidden_width(
        get_size(settings, "hidden_size", where), get_number(settings, "mlp_ratio", where, 4), gated
    )
    return image.check_square(read_settings(table, base, settings, where, {"encoder.d_ff": d_ff}), where)


def write(config: ImageEncoderConfig) -> dict[str, Any]:
    registers = config.embedding.registers
    settings = write_settings(WITH_REGISTERS if registers else SETTINGS, config)
    kind = {"model_type": REGISTERS if registers else PLAIN, "mlp_ratio": _ratio(config.encoder)}
    return settings | kind | {"qkv_bias": True, "torch_dtype": "float32"}


# --- presets --------------------------------------------------------------------------------------


def dinov2(
    image_size: tuple[int, ...] = (518, 518),
    patch_size: tuple[int, ...] = (14, 14),
    d_model: int = 384,
    num_layers: int = 12,
    num_heads: int = 6,
    d_ff: int = 1536,
    registers: int = 0,
    gated: bool = False,
    **options,
) -> ImageEncoderConfig:
    """DINOv2-small: L12 H384 A6, 22 M parameters."""
    embedding = PatchConfig(d_model, image_size, patch_size, registers=registers, antialias=registers > 0)
    kind: Any = {"feed_forward": "swiglu" if gated else "plain", "layer_scale": 1.0, "final_norm": True}
    encoder = EncoderConfig(
        d_model, num_layers, num_heads, d_ff, norm="pre", activation="gelu", eps=1e-6, **kind
    )
    return ImageEncoderConfig(embedding, encoder, pooling=options.pop("pooling", None), **options)


def _family(kind: str, class_prefix: str, registers: int, *examples: str) -> Family:
    names = _names(kind)
    converters = partial(from_hub, names=names), partial(to_hub, names=names)
    return image.image_family(
        kind,
        class_prefix,
        dinov2,
        (partial(read, kind=kind), write, *converters),
        names,
        pooling="first-mean",
        tiny_options={"d_ff": 24, "registers": registers},
        examples=examples,
    )


DINOV2 = _family(PLAIN, "Dinov2", 0, "facebook/dinov2-small", "facebook/dinov2-base")
DINOV2_REGISTERS = _family(REGISTERS, "Dinov2WithRegisters", 3, "facebook/dinov2-with-registers-small")
