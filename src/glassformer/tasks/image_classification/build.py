"""How a picture classifier is put together from its settings: transform, model, and the folder they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.checkpoints.catalog import CATALOG
from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.hub import is_at_hand, resolve_checkpoint
from glassformer.checkpoints.settings import ABOUT
from glassformer.config import nearest
from glassformer.data.image import ImageRange
from glassformer.data.transform import ImageTransform
from glassformer.errors import ConfigError
from glassformer.families import IMAGE_ARCHITECTURES, family_of
from glassformer.families.pretrained import Checkpoint, read_checkpoint, with_dropout
from glassformer.finite import json_text
from glassformer.tasks.image_classification.recipe import ENCODER, FROM_SCRATCH, ImageConfig, ImageModelConfig
from glassformer.tasks.layers import given, layers_over
from glassformer.tasks.recipe import AUTO
from glassformer.tasks.start import check_start

TRANSFORM_FILE = "preprocessor_config.json"
SHAPE_KEYS = (
    "patch_size",
    "stem",
    "d_model",
    "num_layers",
    "num_heads",
    "d_ff",
    "norm",
    "norm_eps",
    "activation",
    "positions",
    "class_token",
    "final_norm",
    "zero_init",
    "attention",
    "attention_window",
    "init_std",
)


def is_image_architecture(model: str) -> bool:
    """Whether the name means an architecture (random weights) rather than a checkpoint."""
    return model in IMAGE_ARCHITECTURES


def build_transform(
    image: ImageConfig, model: ImageModelConfig, begun: Mapping[str, Any] | None = None
) -> ImageTransform:
    """The checkpoint's transform, or the architecture's size and plain statistics, with the settings over it.

    Before a fit has chosen, ``auto`` means its encoder where that is at hand: nothing is fetched.

    Args:
        begun: the fingerprint of a training that goes on; one from before there was ``image_range`` has
            taken the range of 16 bits as full.

    Raises:
        ConfigError: no such model, or settings that do not fit each other.
    """
    known = [*IMAGE_ARCHITECTURES, *CATALOG]
    name = model.model
    if name == AUTO:
        name = ENCODER if is_at_hand(ENCODER) else FROM_SCRATCH
    if name not in known and "/" not in name and not Path(name).expanduser().exists():
        raise ConfigError(f"no model {name!r}", where="model", fix=nearest(name, known))
    if is_image_architecture(name):
        channels = image.channels or 3
        size = IMAGE_ARCHITECTURES[name]().embedding.image_size
        base = ImageTransform(size, mean=(0.5,) * channels, std=(0.5,) * channels, channels=channels)
    else:
        check_start(name, "pictures")
        if image.channels is not None:
            raise ConfigError("channels belong to from-scratch models", where="channels")
        base = load_transform(resolve_checkpoint(name, model.revision).path)
    size = (image.image_size,) * 2 if image.image_size else base.size
    fit = image.framing or ("crop" if image.resize else base.fit)
    shorter = image.resize or (base.shorter if fit == "crop" else 0)
    if fit == "crop" and image.resize is None and image.image_size:
        shorter = 0 if not base.shorter else round(base.shorter * image.image_size / base.size[0])
    return replace(
        base,
        size=size,
        fit=fit,
        shorter=shorter,
        interpolation=image.interpolation or base.interpolation,
        mean=tuple(image.mean) or base.mean,
        std=tuple(image.std) or base.std,
        image_range=image.image_range or _range(base, begun),
    )


def saved_range(folder: Path) -> ImageRange:
    """``image_range`` of a saved model, or of a run's; ``full`` where there is none of images."""
    for place in (folder, folder / "model"):
        if (place / TRANSFORM_FILE).is_file():
            return load_transform(place, before="full" if (place / ABOUT).is_file() else None).image_range
    return "full"


def _range(base: ImageTransform, begun: Mapping[str, Any] | None) -> ImageRange:
    """``image_range`` where none is given: the checkpoint's if that is a number."""
    if begun is not None and "image_range" not in begun:
        return "full"
    return None if base.image_range == "full" else base.image_range


def build_model(model: ImageModelConfig, transform: ImageTransform, num_labels: int) -> Any:
    """The encoder with its classification head, for pictures of the transform's size.

    Raises:
        ConfigError: a key that this kind of model does not have, or sizes that do not fit.
    """
    if is_image_architecture(model.model):
        config = scratch_config(model, transform, num_labels)
        built: Any = family_of(config).model(config)
        built.weights_source = "; ".join([f"random ({model.model}, from scratch)", *_unseen(built)])
        return built
    if set_keys := [key for key in SHAPE_KEYS if getattr(model, key) is not None]:
        raise ConfigError(
            f"{set_keys[0]} belongs to from-scratch models; {model.model!r} has its own", where="model"
        )
    checkpoint = read_checkpoint(model.model, model.revision)
    base = checkpoint.config
    if checkpoint.family.model.reads != "pictures":
        raise ConfigError(f"{model.model!r} does not read pictures", where="model", fix="Use TextClassifier")
    if base.embedding.channels != transform.channels:
        raise ConfigError(
            f"the model reads {base.embedding.channels} channels, the transform gives {transform.channels}",
            where="channels",
        )
    notes = []
    if base.embedding.image_size != transform.size:
        notes.append(f"positions interpolated to {transform.size[0]} x {transform.size[1]} pixels")
    pooling = usual_pooling(checkpoint) if model.pooling == "auto" else model.pooling
    has_pooler = base.pooling == "pooler"
    new = [f"{pooling} pooling"] if pooling == "attention" or (pooling == "pooler" and not has_pooler) else []
    config = with_dropout(
        base,
        model.dropout or 0.0,
        model.attention_dropout or 0.0,
        model.embedding_dropout,
        model.feed_forward_dropout,
    )
    size = {"image_size": transform.size, "patch_dropout": model.patch_dropout}
    config = replace(
        config,
        embedding=replace(config.embedding, **size),
        encoder=replace(config.encoder, stochastic_depth=model.stochastic_depth),
        head="classification",
        pooling=pooling,
        num_labels=num_labels,
        head_type="linear" if model.head == "auto" else model.head,
        head_hidden=model.head_hidden,
        head_dropout=model.head_dropout,
        head_activation=model.head_activation,
        head_input_dropout=model.head_input_dropout,
    )
    built = checkpoint.build(config, new_head=True)
    built.weights_source = "; ".join(
        [
            checkpoint.weights_source,
            *notes,
            f"new (random): {', '.join([*new, 'classification head'])}",
            *_unseen(built),
        ]
    )
    return built


def usual_pooling(checkpoint: Checkpoint) -> Any:
    """What a new head reads where nothing is said: as the family's classifier, or without [CLS] as before."""
    base, hub = checkpoint.config, checkpoint.family.hub
    if base.pooling and not base.embedding.class_token:
        return base.pooling
    return hub.pooling if hub else "first"


def _unseen(network: Any) -> list[str]:
    """What patches leave over at the lower and right border, in words; nothing where they fit."""
    c = network.config.embedding
    rest = [size % patch for size, patch in zip(c.image_size, c.patch_size, strict=True)]
    patch = " x ".join(map(str, c.patch_size))
    return [f"patches of {patch} leave {rest[0]} rows and {rest[1]} columns unseen"] if any(rest) else []


def scratch_config(model: ImageModelConfig, transform: ImageTransform, num_labels: int) -> Any:
    """The config of a from-scratch architecture with the settings laid over its preset."""
    preset = IMAGE_ARCHITECTURES[model.model]
    patch = {"patch_size": (model.patch_size,) * 2} if model.patch_size else {}
    config = preset(image_size=transform.size, **patch)
    embedding = {
        "d_model": model.d_model,
        "channels": transform.channels,
        "stem": model.stem,
        "positions": model.positions,
        "class_token": model.class_token,
        "patch_dropout": model.patch_dropout,
        "dropout": model.dropout if model.embedding_dropout is None else model.embedding_dropout,
    }
    head = {"head_type": None if model.head == "auto" else model.head, "head_hidden": model.head_hidden}
    return replace(
        config,
        embedding=replace(config.embedding, **given(embedding)),
        encoder=layers_over(config.encoder, model),
        head="classification",
        num_labels=num_labels,
        pooling=config.pooling if model.pooling == "auto" else model.pooling,
        head_dropout=model.head_dropout,
        head_activation=model.head_activation,
        head_input_dropout=model.head_input_dropout,
        **given(head | {"init_std": model.init_std}),
    )


def save_transform(transform: ImageTransform, folder: Path) -> None:
    """``preprocessor_config.json``, as the Hub has it."""
    text = json_text(transform.to_hub(), indent=2, ascii=True) + "\n"
    (folder / TRANSFORM_FILE).write_text(text, encoding="utf-8")


def load_transform(folder: Path, before: ImageRange = None) -> ImageTransform:
    """The reverse.

    Args:
        before: ``image_range`` where the file is from before there was such a setting.

    Raises:
        CheckpointError: no such file, or it is damaged.
        ConfigError: a step that we do not have.
    """
    return ImageTransform.from_hub(read_json(folder / TRANSFORM_FILE), str(folder / TRANSFORM_FILE), before)
