"""Build an image classifier's model from its settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from glassformer.data.transform import ImageTransform
from glassformer.errors import ConfigError, NotForThisModelError
from glassformer.families import IMAGE_ARCHITECTURES, family_of
from glassformer.families.pretrained import Checkpoint, read_checkpoint, with_dropout
from glassformer.inputs.images import is_image_architecture
from glassformer.tasks.classifier import NEW
from glassformer.tasks.image_classification.recipe import ImageModelConfig
from glassformer.tasks.layers import given, layers_over

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


def build_model(model: ImageModelConfig, transform: ImageTransform, num_labels: int) -> Any:
    """The encoder with a classification head, for images of the transform's size."""
    if is_image_architecture(model.model):
        config = scratch_config(model, transform, num_labels)
        built: Any = family_of(config).model(config)
        source = f"{model.model}; {NEW}" if built.fixed else f"random ({model.model}, from scratch)"
        built.weights_source = "; ".join([source, *_unseen(built)])
        return built
    if set_keys := [key for key in SHAPE_KEYS if getattr(model, key) is not None]:
        raise NotForThisModelError(
            f"{set_keys[0]} belongs to from-scratch models; {model.model!r} has its own", where="model"
        )
    checkpoint = read_checkpoint(model.model, model.revision)
    base = checkpoint.config
    if checkpoint.family.model.reads != "images":
        raise NotForThisModelError(
            f"{model.model!r} does not read images", where="model", fix="Use TextClassifier"
        )
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
    """The default pooling for a new head: that of the family's classifiers; for a model without [CLS], its
    own."""
    base, hub = checkpoint.config, checkpoint.family.hub
    if base.pooling and not base.embedding.class_token:
        return base.pooling
    return hub.pooling if hub else "first"


def _unseen(network: Any) -> list[str]:
    """A note if patches do not cover the lower and right border of the image; empty if they do."""
    c = network.config.embedding
    rest = [size % patch for size, patch in zip(c.image_size, c.patch_size, strict=True)]
    patch = " x ".join(map(str, c.patch_size))
    return [f"patches of {patch} leave {rest[0]} rows and {rest[1]} columns unseen"] if any(rest) else []


def scratch_config(model: ImageModelConfig, transform: ImageTransform, num_labels: int) -> Any:
    """The config of a from-scratch architecture: its preset with the settings applied."""
    preset = IMAGE_ARCHITECTURES[model.model]
    patch = {"patch_size": (model.patch_size,) * 2} if model.patch_size else {}
    config = preset(image_size=transform.size, **patch)
    config = replace(config, embedding=replace(config.embedding, channels=transform.channels))
    if (configure := family_of(config).configure) is not None:
        return configure(config, model, num_labels)
    embedding = {
        "d_model": model.d_model,
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
