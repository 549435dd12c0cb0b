"""A ViT as a Hugging Face folder, both ways; see ``huggingface.py`` for what is written when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.checkpoints.layout import (
    ENCODER_KEYS,
    THEIR_ACTIVATION,
    activation,
    filled,
    label_maps,
    outputs,
    write,
    write_beside,
)
from glassformer.checkpoints.names_vit import from_hub, to_hub
from glassformer.checkpoints.settings import number, real, section, shown
from glassformer.checkpoints.tensors import read_tensors
from glassformer.config import build, to_dict
from glassformer.errors import CheckpointError
from glassformer.models.image import ViT, ViTConfig
from glassformer.nn.encoder import EncoderConfig
from glassformer.nn.patches import PatchConfig

OWN_TYPE = "glassformer-image"


def load_vit(settings: dict[str, Any], folder: Path) -> ViT:
    """The model of a folder with ``model_type`` vit or our own.

    Raises:
        CheckpointError: missing, unexplained or wrongly shaped tensors, or a variant that is not supported.
    """
    where, at = str(folder), f"{folder}/config.json"
    if settings.get("model_type") == OWN_TYPE:
        config = build(ViTConfig, section(settings, "architecture", at), at)
        return filled(ViT, config, read_tensors(folder), where)
    tensors = from_hub(read_tensors(folder), where)
    config = _config(settings, at)
    if "glassformer" in settings:
        own = build(ViTConfig, {**to_dict(config), **section(settings, "glassformer", at)}, at)
        return filled(ViT, own, tensors | read_tensors(folder, "head"), where)
    if "head.out.weight" in tensors:
        labels = outputs(tensors["head.out.weight"], where)
        config = replace(config, head="classification", pooling="first", num_labels=labels)
    else:
        config = replace(config, pooling="pooler" if "pooling.dense.weight" in tensors else None)
    return filled(ViT, config, tensors, where)


def save_vit(
    model: ViT, folder: Path, label_names: tuple[str, ...] = (), max_shard_bytes: int | None = None
) -> None:
    """Write ``config.json`` and the weights into an existing folder."""
    config, tensors = model.config, dict(model.state_dict())
    if not is_vit(config):
        settings: dict[str, Any] = {"model_type": OWN_TYPE, "architecture": to_dict(config)}
        label_maps(settings, label_names)
        write(folder, settings, tensors, max_shard_bytes)
        return
    e = config.embedding
    settings = _settings(config)
    label_maps(settings, label_names)
    classifier = config.head == "classification"
    if (classifier and (config.pooling, config.head_type) == ("first", "linear")) or (
        config.head is None and config.pooling in ("pooler", None)
    ):
        settings["architectures"] = ["ViTForImageClassification" if classifier else "ViTModel"]
        write(folder, settings, to_hub(tensors, classifier, e.channels, e.patch_size), max_shard_bytes)
        return
    encoder = {k: v for k, v in tensors.items() if k.startswith(ENCODER_KEYS)}
    settings["architectures"] = ["ViTModel"]
    rest = {k: v for k, v in tensors.items() if k not in encoder}
    write_beside(
        folder, settings, config, to_hub(encoder, False, e.channels, e.patch_size), rest, max_shard_bytes
    )


def is_vit(config: ViTConfig) -> bool:
    """Whether the Hub's ViT layout can express patches and encoder."""
    e, c = config.embedding, config.encoder
    return (
        e.class_token and e.positions == "learned" and e.bias and not e.stem and e.dropout == c.dropout
        and c.norm == "pre" and c.final_norm
    )  # fmt: skip


def _pair(settings: dict[str, Any], key: str, default: int, where: str) -> tuple[int, ...]:
    """A height and width, which stand there as one number or two."""
    value = settings.get(key, default)
    pair = tuple(value) if isinstance(value, list) else (value, value)
    if len(pair) != 2 or not all(isinstance(n, int) and 1 <= n <= 100_000 for n in pair):
        raise CheckpointError(f"{key} = {shown(value)} is no size", where=where)
    return pair


def _config(settings: dict[str, Any], where: str) -> ViTConfig:
    if (act := settings.get("pooler_act", "tanh")) not in ("tanh", None):
        raise CheckpointError(f"pooler_act = {shown(act)} is not supported", where=where)
    d = number(settings, "hidden_size", where)
    if settings.get("pooler_output_size") not in (None, d):
        raise CheckpointError("a pooler of another width than the encoder is not supported", where=where)
    dropout = real(settings, "hidden_dropout_prob", where, 0.0, 1)
    channels = number(settings, "num_channels", where, 3)
    size, patch = _pair(settings, "image_size", 224, where), _pair(settings, "patch_size", 16, where)
    return ViTConfig(
        PatchConfig(d, size, patch, channels, dropout=dropout),
        EncoderConfig(
            d, number(settings, "num_hidden_layers", where), number(settings, "num_attention_heads", where),
            number(settings, "intermediate_size", where), "pre", activation(settings, where),  # type: ignore[arg-type]
            real(settings, "layer_norm_eps", where, 1e-12), dropout,
            attention_dropout=real(settings, "attention_probs_dropout_prob", where, 0.0, 1), final_norm=True,
        ),
        init_std=real(settings, "initializer_range", where, 0.02),
    )  # fmt: skip


def _settings(config: ViTConfig) -> dict[str, Any]:
    e, c = config.embedding, config.encoder

    def one(size: tuple[int, ...]) -> int | list[int]:
        return size[0] if size[0] == size[1] else list(size)

    return {
        "model_type": "vit",
        "hidden_size": c.d_model,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "intermediate_size": c.d_ff,
        "hidden_act": THEIR_ACTIVATION[c.activation],
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.attention_dropout,
        "initializer_range": config.init_std,
        "layer_norm_eps": c.eps,
        "image_size": one(e.image_size),
        "patch_size": one(e.patch_size),
        "num_channels": e.channels,
        "qkv_bias": True,
        "torch_dtype": "float32",
    }
