"""What the families of Hugging Face folders share: filling a model, ``config.json``, label names, ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from glassformer.checkpoints.names import listing
from glassformer.checkpoints.settings import shown
from glassformer.checkpoints.tensors import write_tensors
from glassformer.errors import CheckpointError, InputError, UnsupportedModelError
from glassformer.finite import json_text

Model = TypeVar("Model", bound=nn.Module)

ACTIVATION_NAMES = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
THEIR_ACTIVATION = {"gelu_tanh": "gelu_pytorch_tanh", "gelu": "gelu", "relu": "relu"}
MOST_NUMBER = 10_000_000  # of any setting of a model
MOST_PATCHES = 1_000_000
# The root of eps is divided by, in 32 bits; the others are rates and spreads.
RANGES = {
    "eps": (1e-30, 1.0), "dropout": (0.0, 1.0), "attention_dropout": (0.0, 1.0),
    "stochastic_depth": (0.0, 1.0),
    "head_dropout": (0.0, 1.0), "patch_dropout": (0.0, 1.0), "damp_repeats": (0.0, 1.0),
    "feed_forward_dropout": (0.0, 1.0), "head_input_dropout": (0.0, 1.0),
    "init_std": (0.0, 1e3),
    "layer_scale": (0.0, 1e3),
    "embedding_std": (0.0, 1e3), "position_std": (0.0, 1e3), "scale": (1e-6, 1e6),
}  # fmt: skip
ENCODER_KEYS = ("embeddings.", "encoder.")
# ``problem_type`` of a head with classifier.weight, and what its outputs are where they do not mean classes.
PROBLEMS = {
    "single_label_classification": "",
    "multi_label_classification": "several labels at once: a sigmoid for each logit",
    "regression": "regression: figures, no classes",
}
# What ``config.json`` says of a pooling and head of ours that stand beside an encoder in the Hub's layout.
OWN_KEYS = ("pooling", "head", "num_labels", "head_type", "head_hidden", "head_dropout", "sides")


def filled(model_class: Callable[[Any], Model], config: Any, tensors: dict[str, Tensor], where: str) -> Model:
    """A model of this config, every tensor loaded; names what is missing, left over or of another shape.

    Names and shapes are compared before any memory is taken: a config may ask for more than there is.

    Raises:
        CheckpointError: tensors that do not fit, or a config of which no model can be made.
    """
    compare(outline(model_class, config, len(tensors), where).state_dict(), tensors, where)
    model = blank(model_class, config, where)
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return model


def blank(model_class: Callable[[Any], Model], config: Any, where: str) -> Model:
    """A model whose tensors will be loaded: their memory is there, and no random numbers are drawn."""
    with _NothingDrawn():
        return made(model_class, config, where)


def outline(model_class: Callable[[Any], Model], config: Any, num_tensors: int, where: str) -> Model:
    """The model without memory for its tensors, which have names and shapes only.

    Raises:
        CheckpointError: more layers than ``num_tensors``, or a config of which no model can be made.
    """
    _check_numbers(config, where)
    for layers in _layers(config):
        if layers > num_tensors:
            what = f"{layers:,} layers, but the weights hold {num_tensors} tensors"
            raise CheckpointError(what, where=f"{where}/config.json")
    with torch.device("meta"), _NothingDrawn():
        return made(model_class, config, where)


def made(model_class: Callable[[Any], Model], config: Any, where: str) -> Model:
    """A new model; raises CheckpointError where none can be made of the config."""
    try:
        return model_class(config)
    except InputError:
        raise
    except (RuntimeError, TypeError, ValueError, ArithmeticError) as error:
        what = f"no model can be made of it: {reason(error)}"
        raise CheckpointError(what, where=f"{where}/config.json") from None


class _NothingDrawn(TorchFunctionMode):
    """Leaves out drawing of weights: without memory it does nothing, but makes torch load half a compiler."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "").endswith(("normal_", "uniform_")):  # of torch.nn.init too
            if (std := (kwargs or {}).get("std", 0.0)) < 0:  # what drawing would say
                raise ValueError(f"weights of standard deviation {std}")
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def _layers(config: Any) -> Iterator[int]:
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            yield from _layers(value)
        elif field.name == "num_layers":
            yield value


def _check_numbers(config: Any, where: str) -> None:
    """Raises CheckpointError for a number of a config that is not finite, or a size that nothing real has."""
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            _check_numbers(value, where)
            continue
        low, high = RANGES.get(field.name, (-MOST_NUMBER, MOST_NUMBER))
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, int | float) and not low <= one <= high:
                what = f"{field.name} = {shown(one)} is not between {low:g} and {high:g}"
                raise CheckpointError(what, where=f"{where}/config.json")
    if (grid := getattr(config, "grid", None)) is not None and grid[0] * grid[1] > MOST_PATCHES:
        raise CheckpointError(f"images of {grid[0] * grid[1]:,} patches", where=f"{where}/config.json")


def reason(error: BaseException) -> str:
    """The first line of what another library says."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def compare(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor], where: str) -> None:
    """Raises CheckpointError where a tensor is missing, left over or of another shape."""
    missing, extra = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    for what, names in (("missing", missing), ("unexplained", extra)):
        if names:
            raise CheckpointError(listing(f"{what} tensors", names), where=where)
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            raise CheckpointError(
                f"{name} is {tuple(tensor.shape)}, config.json says {tuple(own[name].shape)}", where=where
            )


def outputs(weight: Tensor, where: str) -> int:
    """Of a linear head, from its weight ``[C, D]``."""
    if weight.dim() != 2:
        raise CheckpointError(f"the head's weight is {tuple(weight.shape)}, no matrix", where=where)
    return len(weight)


def activation(settings: dict[str, Any], where: str, key: str = "hidden_act") -> str:
    """Our name of the activation under that key.

    Raises:
        CheckpointError: one that we do not have.
    """
    name = settings.get(key, "gelu")
    if not isinstance(name, str) or name not in ACTIVATION_NAMES:
        raise UnsupportedModelError(f"{key} = {shown(name)} is not supported", where=where)
    return ACTIVATION_NAMES[name]


def other_task(settings: dict[str, Any], outputs: int, where: str = "config.json") -> str:
    """What a classification head's outputs are, in words, where they are not scores of classes; else empty.

    Raises:
        CheckpointError: a ``problem_type`` that nobody knows.
    """
    problem = settings.get("problem_type")
    if problem not in (None, *PROBLEMS):
        raise UnsupportedModelError(
            f"problem_type = {shown(problem)} is not known", where=where, fix=f"Known: {', '.join(PROBLEMS)}"
        )
    if problem is None and outputs == 1:  # transformers' own rule
        problem = "regression"
    return PROBLEMS[problem] if problem else ""


def label_maps(
    settings: dict[str, Any], label_names: tuple[str, ...], problem_type: str | None = None
) -> None:
    """Add ``id2label`` and ``label2id``, and what the outputs are where they are no classes."""
    if problem_type is not None:
        settings["problem_type"] = problem_type
    if label_names:
        settings["id2label"] = {str(i): name for i, name in enumerate(label_names)}
        settings["label2id"] = {name: i for i, name in enumerate(label_names)}


def write(
    folder: Path, settings: dict[str, Any], tensors: dict[str, Tensor], max_shard_bytes: int | None
) -> None:
    """``config.json`` and the weights, in fp32."""
    text = json_text(settings, indent=2, sort_keys=True, ascii=True) + "\n"
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
    settings["glassformer"] = {k: v for k in OWN_KEYS if (v := getattr(config, k, None)) is not None}
    write_tensors(folder, rest, name="head")
    write(folder, settings, encoder, max_shard_bytes)
