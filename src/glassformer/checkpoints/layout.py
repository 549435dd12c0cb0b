"""Build, check and write models in the layout of the Hugging Face Hub; used by all model families."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from glassformer.checkpoints.names import list_names
from glassformer.checkpoints.settings import shorten
from glassformer.checkpoints.tensors import copy_and_release, write_tensors
from glassformer.errors import CheckpointError, InputError, ShapeError, UnsupportedModelError
from glassformer.finite import json_text

Model = TypeVar("Model", bound=nn.Module)

HUB_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
}
ACTIVATION_NAMES = {theirs: ours for ours, theirs in HUB_ACTIVATIONS.items()} | {"gelu_new": "gelu_tanh"}
MAX_NUMBER = 10_000_000  # maximum absolute value of a setting without an entry in RANGES
MAX_PATCHES = 1_000_000  # maximum number of patches of an image
# Valid ranges of settings. eps must be above 0 in fp32, because layers divide by its square root.
RANGES = {
    "eps": (1e-30, 1.0), "dropout": (0.0, 1.0), "attention_dropout": (0.0, 1.0),
    "stochastic_depth": (0.0, 1.0),
    "head_dropout": (0.0, 1.0), "patch_dropout": (0.0, 1.0), "damp_repeats": (0.0, 1.0),
    "feed_forward_dropout": (0.0, 1.0), "head_input_dropout": (0.0, 1.0),
    "init_std": (0.0, 1e3),
    "layer_scale": (0.0, 1e3),
    "embedding_std": (0.0, 1e3), "position_std": (0.0, 1e3), "scale": (1e-6, 1e6),
}  # fmt: skip
ENCODER_KEYS = ("embeddings.", "encoder.")  # prefixes of the encoder's tensors
# ``problem_type`` -> description of the outputs for error messages; empty for scores of classes
PROBLEMS = {
    "single_label_classification": "",
    "multi_label_classification": "multi-label: a sigmoid for each logit",
    "regression": "regression: numbers instead of classes",
}
# Settings of glassformer's pooling and head, which ``config.json`` has under "glassformer"
OWN_KEYS = (
    "pooling",
    "head",
    "num_labels",
    "head_type",
    "head_hidden",
    "head_dropout",
    "sides",
    "projection",
)


def model_from_state(
    model_class: Callable[[Any], Model],
    config: Any,
    state: Mapping[str, Tensor],
    where: str,
    dtype: torch.dtype = torch.float32,
) -> Model:
    """Create a model from a config, and load its tensors.

    Names and shapes are compared before memory is allocated, because a config may describe a huge model.

    Args:
        dtype: dtype of the encoder.

    Raises:
        CheckpointError: tensors do not match (the message names them), or the config is not valid.
    """
    check_tensors(create_on_meta(model_class, config, len(state), where).state_dict(), state, where)
    model = create_uninitialized(model_class, config, where, dtype)
    copy_weights(model, state)
    return model


@torch.no_grad()
def copy_weights(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy tensors into a model, each in the model's dtype."""
    target = model.state_dict()
    for name, tensor in state.items():
        if target[name].shape != tensor.shape:
            expected = tuple(target[name].shape)
            raise ShapeError(f"{name} has the shape {tuple(tensor.shape)}, but in the model it is {expected}")
        copy_and_release(target[name], tensor)


def create_uninitialized(
    model_class: Callable[[Any], Model], config: Any, where: str, dtype: torch.dtype = torch.float32
) -> Model:
    """Create a model whose tensors are allocated but not initialized; its encoder has the dtype."""
    with _NoInitialization():
        model: Any = create_model(model_class, config, where)
    return model if dtype == torch.float32 else model.set_compute_dtype(dtype)


def create_on_meta(model_class: Callable[[Any], Model], config: Any, num_tensors: int, where: str) -> Model:
    """Create a model on the meta device: its tensors have names and shapes, but no memory.

    Raises:
        CheckpointError: the model would have more layers than ``num_tensors``, or the config is not valid.
    """
    _check_numbers(config, where)
    for num_layers in _layer_counts(config):
        if num_layers > num_tensors:
            what = f"{num_layers:,} layers, but the weights have only {num_tensors} tensors"
            raise CheckpointError(what, where=f"{where}/config.json")
    with torch.device("meta"), _NoInitialization():
        return create_model(model_class, config, where)


def create_model(model_class: Callable[[Any], Model], config: Any, where: str) -> Model:
    """Create a model; raise CheckpointError if the config is not valid."""
    try:
        return model_class(config)
    except InputError:
        raise
    except (RuntimeError, TypeError, ValueError, ArithmeticError) as error:
        what = f"no model can be built from this config: {first_line(error)}"
        raise CheckpointError(what, where=f"{where}/config.json") from None


class _NoInitialization(TorchFunctionMode):
    """A mode that skips random initialization; on the meta device it would make torch load a compiler."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "").endswith(("normal_", "uniform_")):  # including torch.nn.init
            if (std := (kwargs or {}).get("std", 0.0)) < 0:  # the skipped call would raise this error
                raise ValueError(f"weights of standard deviation {std}")
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def _layer_counts(config: Any) -> Iterator[int]:
    """Yield every ``num_layers`` in a config and its sub-configs."""
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            yield from _layer_counts(value)
        elif field.name == "num_layers":
            yield value


def _check_numbers(config: Any, where: str) -> None:
    """Raise CheckpointError for a number in a config that is out of range."""
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            _check_numbers(value, where)
            continue
        low, high = RANGES.get(field.name, (-MAX_NUMBER, MAX_NUMBER))
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float) and not low <= number <= high:
                what = f"{field.name} = {shorten(number)} is not between {low:g} and {high:g}"
                raise CheckpointError(what, where=f"{where}/config.json")
    if (grid := getattr(config, "grid", None)) is not None and grid[0] * grid[1] > MAX_PATCHES:
        raise CheckpointError(f"images of {grid[0] * grid[1]:,} patches", where=f"{where}/config.json")


def first_line(error: BaseException) -> str:
    """The first line of another library's error message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def check_tensors(expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor], where: str) -> None:
    """Raise CheckpointError if a tensor is missing, unexpected or has another shape."""
    missing, unexpected = expected.keys() - tensors.keys(), tensors.keys() - expected.keys()
    for what, names in (("missing", missing), ("unexpected", unexpected)):
        if names:
            raise CheckpointError(list_names(f"{what} tensors", list(names)), where=where)
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            shape, required = tuple(tensor.shape), tuple(expected[name].shape)
            raise CheckpointError(f"{name} is {shape}, but config.json requires {required}", where=where)


def count_outputs(weight: Tensor, where: str) -> int:
    """The number of outputs of a linear head, from its weight ``[C, D]``."""
    if weight.dim() != 2:
        raise CheckpointError(f"the head's weight is {tuple(weight.shape)}, not a matrix", where=where)
    return len(weight)


def read_activation(settings: dict[str, Any], where: str, key: str = "hidden_act") -> str:
    """The name in glassformer of the activation ``settings[key]``."""
    name = settings.get(key, "gelu")
    if not isinstance(name, str) or name not in ACTIVATION_NAMES:
        raise UnsupportedModelError(f"{key} = {shorten(name)} is not supported", where=where)
    return ACTIVATION_NAMES[name]


def describe_outputs(settings: dict[str, Any], outputs: int, where: str = "config.json") -> str:
    """The kind of a head's outputs, for an error message; empty if they are scores of classes."""
    problem = settings.get("problem_type")
    if problem not in (None, *PROBLEMS):
        raise UnsupportedModelError(
            f"problem_type = {shorten(problem)} is not known",
            where=where,
            fix=f"Known: {', '.join(PROBLEMS)}",
        )
    if problem is None and outputs == 1:  # the default of transformers
        problem = "regression"
    return PROBLEMS[problem] if problem else ""


def add_label_maps(
    settings: dict[str, Any], label_names: tuple[str, ...], problem_type: str | None = None
) -> None:
    """Add ``id2label``, ``label2id`` and, if given, ``problem_type`` to the settings."""
    if problem_type is not None:
        settings["problem_type"] = problem_type
    if label_names:
        settings["id2label"] = {str(i): name for i, name in enumerate(label_names)}
        settings["label2id"] = {name: i for i, name in enumerate(label_names)}


def write_model(
    folder: Path, settings: dict[str, Any], tensors: dict[str, Tensor], max_shard_bytes: int | None
) -> None:
    """Write ``config.json`` and the weights, in fp32."""
    text = json_text(settings, indent=2, sort_keys=True, ascii=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
    write_tensors(folder, {k: v.float() for k, v in tensors.items()}, max_shard_bytes=max_shard_bytes)


def write_encoder_and_head(
    folder: Path,
    settings: dict[str, Any],
    config: Any,
    encoder: dict[str, Tensor],
    head_tensors: dict[str, Tensor],
    max_shard_bytes: int | None,
) -> None:
    """Write an encoder in the Hub's layout, and glassformer's pooling and head to ``head.safetensors``."""
    settings["glassformer"] = {k: v for k in OWN_KEYS if (v := getattr(config, k, None)) is not None}
    write_tensors(folder, head_tensors, name="head")
    write_model(folder, settings, encoder, max_shard_bytes)
