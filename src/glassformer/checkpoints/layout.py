"""What the families of Hugging Face folders share: filling a model, ``config.json``, label names, ranges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

from glassformer.checkpoints.names import listing
from glassformer.checkpoints.tensors import write_tensors
from glassformer.errors import CheckpointError

Model = TypeVar("Model", bound=nn.Module)

ACTIVATION_NAMES = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
THEIR_ACTIVATION = {"gelu_tanh": "gelu_pytorch_tanh", "gelu": "gelu", "relu": "relu"}
ENCODER_KEYS = ("embeddings.", "encoder.")
# ``problem_type`` of a head with classifier.weight, and what its outputs are where they do not mean classes.
PROBLEMS = {
    "single_label_classification": "",
    "multi_label_classification": "several labels at once: a sigmoid for each logit",
    "regression": "regression: figures, no classes",
}
# What ``config.json`` says of a pooling and head of ours that stand beside an encoder in the Hub's layout.
OWN_KEYS = ("pooling", "head", "num_labels", "head_type", "head_hidden", "head_dropout")


def fill(model: Model, tensors: dict[str, Tensor], where: str) -> Model:
    """Load every tensor; what is missing, left over or of another shape is named."""
    own = model.state_dict()
    missing, extra = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    for what, names in (("missing", missing), ("unexplained", extra)):
        if names:
            raise CheckpointError(listing(f"{what} tensors", names), where=where)
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            raise CheckpointError(
                f"{name} is {tuple(tensor.shape)}, config.json says {tuple(own[name].shape)}", where=where
            )
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return model


def number(settings: dict[str, Any], key: str, where: str, default: int | None = None) -> int:
    """A size from ``config.json``.

    Raises:
        CheckpointError: it is missing and has no default, or is no size.
    """
    if key not in settings and default is None:
        raise CheckpointError(f"missing key {key!r}", where=where)
    value = settings.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 10_000_000:
        raise CheckpointError(f"{key} = {value!r} is no size", where=where)
    return value


def activation(settings: dict[str, Any], where: str) -> str:
    """Our name of ``hidden_act``.

    Raises:
        CheckpointError: one that we do not have.
    """
    name = settings.get("hidden_act", "gelu")
    if name not in ACTIVATION_NAMES:
        raise CheckpointError(f"hidden_act = {name!r} is not supported", where=where)
    return ACTIVATION_NAMES[name]


def other_task(settings: dict[str, Any], outputs: int) -> str:
    """What a classification head's outputs are, in words, where they are no scores of classes; else empty.

    Raises:
        CheckpointError: a ``problem_type`` that nobody knows.
    """
    problem = settings.get("problem_type")
    if problem not in (None, *PROBLEMS):
        raise CheckpointError(f"problem_type = {problem!r} is not known", where="config.json")
    if problem is None and outputs == 1:  # transformers' own rule
        problem = "regression"
    return PROBLEMS[problem] if problem else ""


def label_maps(settings: dict[str, Any], label_names: tuple[str, ...]) -> None:
    """Add ``id2label`` and ``label2id``."""
    if label_names:
        settings["id2label"] = {str(i): name for i, name in enumerate(label_names)}
        settings["label2id"] = {name: i for i, name in enumerate(label_names)}


def write(
    folder: Path, settings: dict[str, Any], tensors: dict[str, Tensor], max_shard_bytes: int | None
) -> None:
    """``config.json`` and the weights, in fp32."""
    text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
    write_tensors(folder, {k: v.float() for k, v in tensors.items()}, max_shard_bytes=max_shard_bytes)


def write_beside(
    folder: Path,
    settings: dict[str, Any],
    config: Any,
    encoder: dict[str, Tensor],
    rest: dict[str, Tensor],
    max_shard_bytes: int | None,
) -> None:
    """An encoder in the Hub's layout, and our pooling and head in ``head.safetensors`` beside it."""
    settings["glassformer"] = {k: getattr(config, k) for k in OWN_KEYS if getattr(config, k) is not None}
    write_tensors(folder, rest, name="head")
    write(folder, settings, encoder, max_shard_bytes)
