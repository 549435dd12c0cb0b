"""Load and save models as Hugging Face folders (``config.json`` and ``model.safetensors``).

    load_pretrained("path/or/hub-id")            save_pretrained(model, folder)

If the Hugging Face format can represent a model, ``transformers`` opens the folder with the same logits. If
the format can represent only the encoder (for example with mean pooling), pooling and head are saved in
``head.safetensors``. All other models are saved under our own ``model_type``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.checkpoints.layout import (
    ENCODER_KEYS,
    add_label_maps,
    check_tensors,
    copy_weights,
    count_outputs,
    create_on_meta,
    create_uninitialized,
    describe_outputs,
    model_from_state,
    write_encoder_and_head,
    write_model,
)
from glassformer.checkpoints.names_lora import load_adapter
from glassformer.checkpoints.sentences import try_read_sentences
from glassformer.checkpoints.settings import get_section, shorten
from glassformer.checkpoints.tensors import check_unchanged, read_tensors
from glassformer.config import build, to_dict
from glassformer.errors import CheckpointError, ConfigError, InputError, UnsupportedModelError
from glassformer.families import FAMILIES, UNSUPPORTED_FAMILIES, family_of, find_family, hub_names
from glassformer.families.family import POOLING_TENSORS, Family, HubLayout
from glassformer.models.backbone import BACKBONE_PREFIXES
from glassformer.models.text import TextEncoder
from glassformer.nn.lora import part_weights
from glassformer.runtime import choose_dtype, isolated_torch, own_generator, torch_uses_own_generator
from glassformer.types import HeadKind, PoolingKind

# --- settings that Hugging Face's config.json lacks -----------------------------------------------
#
# Such settings, for example stochastic depth, are saved in ``config.json`` under ``EXTRA_KEY``.

EXTRA_KEY = "glassformer_settings"
# Fields of a config that are not compared: the file has them elsewhere (in ``architectures``, labels and the
# section ``glassformer``).
OTHER_KEYS = ("pooling", "head", "num_labels", "head_type", "sides", "projection")


def extra_settings(config: Any, restored: Any) -> dict[str, Any]:
    """``{EXTRA_KEY: values}``: the values that differ from ``restored``, the config read from the file."""
    values = _differences(config, restored)
    values = {key: value for key, value in values.items() if key not in OTHER_KEYS}
    return {EXTRA_KEY: values} if values else {}


def _differences(config: Any, restored: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in fields(config):
        value, restored_value = getattr(config, field.name), getattr(restored, field.name)
        if value == restored_value:
            continue
        if is_dataclass(value) and type(value) is type(restored_value):
            out[field.name] = _differences(value, restored_value)
        else:
            out[field.name] = to_dict(value) if is_dataclass(value) else value
    return out


def with_extra_settings(config: Any, settings: dict[str, Any], where: str) -> Any:
    """The config, updated with the ``extra_settings`` in ``config.json``."""
    if EXTRA_KEY not in settings:
        return config
    return build(type(config), _merge(to_dict(config), get_section(settings, EXTRA_KEY, where)), where)


def _merge(values: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(values)
    for key, value in changes.items():
        nested = out.get(key)
        if isinstance(nested, dict) and isinstance(value, Mapping):
            value = _merge(nested, value)
        out[key] = value
    return out


# --- adapters -------------------------------------------------------------------------------------
#
# LoRA updates in PEFT's format are added to the weights.


@torch.no_grad()
def add_adapter(model: Any, folder: str | Path, order: Sequence[int] | None = None) -> None:
    """Add the LoRA updates of an adapter to the weights of a Transformer, and load the adapter's head.

    If an error is raised, the model is not changed.

    Args:
        order: ``[C]``, for each class of the model the row in the adapter's head; None: the same order.
    """
    if not getattr(model, "has_attention", False) or not hasattr(model.encoder, "layers"):
        raise ConfigError(
            "this model does not support LoRA adapters", where="adapter", fix="Use a Transformer"
        )
    where = str(folder)
    hub = family_of(model.config).hub
    convert = hub and (lambda tensors, where: hub.from_hub(tensors, where, model.config))
    adapter = load_adapter(Path(folder), hub_names(model.config), convert)
    if not adapter.updates and not adapter.head:
        raise CheckpointError("the adapter has no updates", where=where)
    weights, state = part_weights(model), model.state_dict()
    weight_names = {key.removesuffix(".A").removesuffix(".B") for key in adapter.updates}
    for name in weight_names:
        shape = len(adapter.updates[f"{name}.B"]), adapter.updates[f"{name}.A"].shape[1]
        if name not in weights:
            count = len(model.encoder.layers)
            raise CheckpointError(
                f"the adapter updates {name}, but the model has {count} layers", where=where
            )
        if shape != tuple(weights[name].shape):
            what = f"the update of {name} has shape {shape}, but the weight {tuple(weights[name].shape)}"
            raise CheckpointError(what, where=where, fix="Load the model that the adapter was trained on")
    for name, tensor in adapter.head.items():
        in_model = tuple(state[name].shape) if name in state else "missing"
        if in_model != tuple(tensor.shape):
            what = f"{name} is {tuple(tensor.shape)}, but in the model it is {in_model}"
            raise CheckpointError(what, where=where, fix="Load it into a model with as many classes")
    for name in weight_names:
        up, down = (adapter.updates[f"{name}.{factor}"].to(weights[name].device) for factor in "BA")
        weights[name].add_((adapter.scale * (up @ down)).to(weights[name].dtype))
    for name, tensor in adapter.head.items():
        state[name].copy_(tensor[list(order)] if order and name.startswith("head.out.") else tensor)


def head_in_hub_format(model: Any) -> dict[str, Tensor]:
    """The tensors of pooling and head of a classifier, under the Hub's names."""
    config = model.config
    family = family_of(config)
    if family.hub is None or not family.hub.has_class(config):
        raise ConfigError(
            "transformers has no class with this pooling and head",
            where="head",
            fix="Save the updates only: head=False",
        )
    tensors = model.state_dict()
    backbone = {name: tensor for name, tensor in tensors.items() if name.startswith(BACKBONE_PREFIXES)}
    encoder = family.hub.to_hub(backbone, True, config).keys()
    return {name: t for name, t in family.hub.to_hub(tensors, True, config).items() if name not in encoder}


# --- checkpoints ----------------------------------------------------------------------------------


NEVER_PREDICTED = -1e4  # a logit so low that its probability is 0 in every precision
# Tensor name -> the kind of head that has this tensor.
HEAD_TENSORS: dict[str, HeadKind] = {
    "head.out.weight": "classification",
    "nsp.weight": "pretraining",
    "mlm.bias": "mlm",
    "spans.out.weight": "spans",
}
# Endings of unsupported classes in ``architectures`` whose heads have the tensor names of a classifier.
UNSUPPORTED_HEADS = {
    "ForMultipleChoice": "a multiple-choice head",
    "ForNextSentencePrediction": "a next-sentence-prediction head",
}


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint folder; ``build`` creates a model.

    Args:
        config: the config of the saved model, with pooling and head.
        tensors: all tensors of the model, under our names.
        settings: contents of ``config.json``.
        source: description of the origin of the checkpoint.
    """

    family: Family
    config: Any
    tensors: Mapping[str, Tensor]
    settings: dict[str, Any]
    folder: Path
    source: str

    @property
    def foreign_task(self) -> str:
        """Description of the head's task, if it is not single-label classification; else empty."""
        is_classifier = self.head == "classification"
        where = f"{self.folder}/config.json"
        return describe_outputs(self.settings, self.config.num_labels, where) if is_classifier else ""

    @property
    def head(self) -> HeadKind | None:
        """The kind of head; recurrent and convolutional models are always classifiers."""
        return self.config.head if self.family.model.has_attention else "classification"

    @property
    def weights_source(self) -> str:
        """``source`` with a description of the loaded parts."""
        head = f" and {self.head} head" if self.head else ""
        return f"{self.source}: encoder{head}" + (f" for {self.foreign_task}" if self.foreign_task else "")

    def with_new_tokens(self, vocab_size: int, like: int) -> Checkpoint:
        """A copy with ``vocab_size`` tokens; new ones are embedded like ``like`` and never predicted."""
        name, bias = "embeddings.tokens.weight", "mlm.bias"
        tensors = dict(self.tensors)
        table = tensors[name]
        tensors[name] = torch.cat([table, table[like].expand(vocab_size - len(table), -1)])
        if bias in tensors:
            new_biases = tensors[bias].new_full((vocab_size - len(table),), NEVER_PREDICTED)
            tensors[bias] = torch.cat([tensors[bias], new_biases])
        embedding = replace(self.config.embedding, vocab_size=vocab_size)
        return replace(self, config=replace(self.config, embedding=embedding), tensors=tensors)

    def build(self, config: Any = None, *, new_head: bool = False, dtype: torch.dtype = torch.float32) -> Any:
        """Create a model; only parts that the checkpoint lacks are randomly initialized.

        For another image size, learned positions are interpolated.

        Args:
            config: the config of the model; None: the checkpoint's own.
            new_head: whether pooling and head may differ from the checkpoint's. If so, a classification head
                is always new.
            dtype: the dtype of the encoder; embeddings, pooling and head have fp32.
        """
        model = self._build(config, new_head, dtype)
        if hasattr(model, "sentences"):
            model.sentences = self.sentences
        return model

    @property
    def sentences(self) -> Any:
        """The settings of sentence-transformers, see ``try_read_sentences``; None for other models."""
        if self.family.model is not TextEncoder:
            return None
        return try_read_sentences(self.folder, self.config.encoder.d_model)

    def without_head(self, pooling: PoolingKind | None) -> Checkpoint:
        """A copy without a head; ``pooling`` must have no weights."""
        tensors = {
            name: tensor for name, tensor in self.tensors.items() if name.startswith(BACKBONE_PREFIXES)
        }
        return replace(self, config=replace(self.config, head=None, pooling=pooling), tensors=tensors)

    def _build(self, config: Any, new_head: bool, dtype: torch.dtype) -> Any:
        base, where = self.config, str(self.folder)
        if not new_head and config in (None, base):
            return model_from_state(self.family.model, base, self.tensors, where, dtype)
        check_tensors(
            create_on_meta(self.family.model, base, len(self.tensors), where).state_dict(),
            self.tensors,
            where,
        )
        model: Any = create_uninitialized(self.family.model, config, where, dtype)
        pooling = getattr(base, "pooling", None)
        names = model.transferable_names(pooling, self.tensors) if new_head else list(self.tensors)
        state = model.convert_state(base, {name: self.tensors[name].float() for name in names})
        copy_weights(model, state)
        for name, part in model.named_children():
            if not any(key.startswith(f"{name}.") for key in state):
                model.init_module(part)
        return model


def read_checkpoint(name: str | Path, revision: str | None = None) -> Checkpoint:
    """Read a checkpoint from a local folder, a known name or a Hub id.

    Raises:
        CheckpointError: the checkpoint does not exist, the kind of model is not supported, tensors are
            unknown or missing, or the weights are pickled.
    """
    folder, source, _ = resolve_checkpoint(name, revision)
    where, config_path = str(folder), f"{folder}/config.json"
    settings = read_json(config_path)
    family, config = _read_config(settings, config_path)
    if family.hub is None:
        return Checkpoint(family, config, read_tensors(folder), settings, folder, source)
    _check_supported(settings, config_path)
    tensors = family.hub.from_hub(read_tensors(folder), where, config)
    without_pooling = {name: t for name, t in tensors.items() if not name.startswith("pooling.")}
    if "glassformer" in settings:  # our pooling and head, in head.safetensors
        head = get_section(settings, "glassformer", config_path)
        config = build(family.config, {**to_dict(config), **head}, config_path)
        tensors = without_pooling | read_tensors(folder, "head")
    else:
        config = replace(config, **_infer_head(family.hub, tensors, settings, where))
        if config.pooling != _infer_pooling(tensors):  # files may contain a pooler that the head does not use
            tensors = without_pooling
    return Checkpoint(family, config, tensors, settings, folder, source)


def checkpoint_max_positions(name: str | Path, revision: str | None = None) -> int | None:
    """The maximum text length of a checkpoint in tokens; None: unlimited, or ``config.json`` is invalid."""
    return getattr(_read_embedding(name, revision), "max_positions", None)


def checkpoint_segments(name: str | Path, revision: str | None = None) -> int:
    """The number of segments (token types) of a checkpoint; 0 if ``config.json`` is invalid."""
    return getattr(_read_embedding(name, revision), "segments", 0)


def _read_embedding(name: str | Path, revision: str | None) -> Any:
    """The embedding config of a Transformer; None for other models and for an invalid ``config.json``."""
    folder, _, _ = resolve_checkpoint(name, revision)
    settings = read_json(folder / "config.json")
    try:
        family, config = _read_config(settings, f"{folder}/config.json")
    except InputError:
        return None
    return config.embedding if family.configure is None else None


def _read_config(settings: dict[str, Any], where: str) -> tuple[Family, Any]:
    """The family and our config of a ``config.json``; for Hub formats without pooling and head."""
    kind = settings.get("model_type")
    family = find_family(kind)
    if family is None:
        fix = f"Supported: {', '.join(name for name, family in FAMILIES.items() if family.hub)}"
        what = f"model_type {shorten(kind)} is not supported"
        if isinstance(kind, str) and kind in UNSUPPORTED_FAMILIES:
            what += f": {UNSUPPORTED_FAMILIES[kind]}"
        elif kind is None and isinstance(timm_name := settings.get("architecture"), str):
            what = f"architecture {shorten(timm_name)}, a model of the package timm, is not supported"
        raise UnsupportedModelError(what, where=where, fix=fix)
    if family.hub is None:
        return family, build(family.config, get_section(settings, "architecture", where), where)
    try:
        return family, with_extra_settings(family.hub.read(settings, where), settings, where)
    except ConfigError as error:  # inconsistent sizes
        raise CheckpointError(str(error), where=where, fix="Download it again, or correct it") from None


def _check_supported(settings: dict[str, Any], where: str) -> None:
    """Raise CheckpointError for the classes in ``UNSUPPORTED_HEADS``, and for quantized weights."""
    if settings.get("quantization_config") is not None:
        what = "quantization_config: quantized weights are not supported"
        raise UnsupportedModelError(what, where=where, fix="Name a checkpoint in fp32, fp16 or bf16")
    classes = settings.get("architectures")
    for name in classes if isinstance(classes, list) else ():
        for ending, what in UNSUPPORTED_HEADS.items():
            if isinstance(name, str) and name.endswith(ending):
                fix = "Fine-tune its encoder: save it alone with transformers.AutoModel, and name that folder"
                raise UnsupportedModelError(
                    f"{what} ({shorten(name)}) is not supported", where=where, fix=fix
                )


def _infer_pooling(tensors: Mapping[str, Tensor]) -> str | None:
    """The pooling whose weights are among the tensors."""
    return next(
        (kind for kind, name in POOLING_TENSORS.items() if {name, f"{name}.weight"} & tensors.keys()), None
    )


def _infer_head(
    hub: HubLayout, tensors: Mapping[str, Tensor], settings: dict[str, Any], where: str
) -> dict[str, Any]:
    """Config fields of the pooling and head whose weights are among the tensors.

    ``settings`` is ``config.json``, which may name the class that saved the tensors.
    """
    head = next((kind for name, kind in HEAD_TENSORS.items() if name in tensors), None)
    if head != "classification":
        return {"head": head, "pooling": None if head == "spans" else _infer_pooling(tensors)}
    labels, classes = count_outputs(tensors["head.out.weight"], where), settings.get("architectures")
    classes = classes if isinstance(classes, list) else []
    num_labels = settings.get("num_labels")
    if num_labels is not None and num_labels != labels:
        what = f"num_labels = {shorten(num_labels)}, but the head has {labels} outputs"
        raise CheckpointError(what, where=f"{where}/config.json")
    parts = {"pooler": "pooling.dense.weight", "mlp": "head.hidden.weight"}
    missing = [
        kind for kind, name in parts.items() if kind in (hub.pooling, hub.head_type) and name not in tensors
    ]
    # If a part of a text classifier is missing, ``Checkpoint.build`` raises an error.
    if hub.classes.get("first-two") in classes:
        return {"head": head, "pooling": "first-two", "num_labels": labels}
    token_class = hub.classes.get("tokens")
    if token_class in classes or (missing and token_class and hub.classes["classification"] not in classes):
        token_head = {"head_type": "linear"} if hub.head_settings is None else hub.hub_head(settings)
        return token_head | {"head": head, "pooling": "tokens", "num_labels": labels}
    return {"head": head, "num_labels": labels} | hub.hub_head(settings)


@isolated_torch(gradients=True)
def load_pretrained(
    name: str | Path | Checkpoint,
    head: HeadKind | None = None,
    *,
    revision: str | None = None,
    num_labels: int | None = None,
    dropout: float | None = None,
    attention_dropout: float | None = None,
    adapter: str | Path | None = None,
    precision: Literal["fp32", "bf16"] = "fp32",
) -> Any:
    """Load a model from a local folder, a known name, a Hub id or a ``Checkpoint``, in evaluation mode.

    Args:
        head: the kind of head. None: the checkpoint's own head, also for regression and multi-label. If the
            checkpoint has no head of this kind, the model gets a new head; see ``model.weights_source``.
        num_labels: outputs of a new classification head; None: as in ``config.json``.
        dropout, attention_dropout: rates that replace the checkpoint's rates.
        adapter: a folder with a PEFT adapter, which is added to the weights (``add_adapter``).
        precision: with bf16, the weights of a Transformer's encoder are read straight into bf16, for
            predictions. The model then takes about half the memory, and ``model.in_fp32()`` reads it again.

    Raises:
        CheckpointError: the checkpoint does not exist, the kind of model is not supported, tensors are
            missing, unknown or misshapen, the weights are pickled, or the adapter does not fit the model.
            Also for ``head="classification"`` without ``num_labels`` if the checkpoint's head is for another
            task.
    """
    checkpoint = name if isinstance(name, Checkpoint) else read_checkpoint(name, revision)
    if not checkpoint.family.model.has_attention:  # recurrent, convolutional or linear classifiers
        model = checkpoint.build()
        model.weights_source = checkpoint.source
        if adapter is not None:
            add_adapter(model, adapter)  # raises an error: these models have no LoRA layers
        return model.eval()
    config, source, foreign_task = checkpoint.config, checkpoint.weights_source, checkpoint.foreign_task
    if foreign_task and head == "classification" and num_labels is None:
        raise CheckpointError(
            f"the checkpoint's head is for {foreign_task}",
            where=str(checkpoint.folder),
            fix="Give num_labels for a new head, or head=None for the checkpoint's own head",
        )
    kind = head or config.head
    other_task = bool(foreign_task) and head == "classification"
    other_size = bool(num_labels and num_labels != config.num_labels)
    new_head = other_task or other_size or kind != config.head
    if new_head:
        hub = checkpoint.family.hub
        reads = checkpoint.family.model.reads
        pooling = hub.pooling if hub and reads == "images" else config.default_pooling(kind)
        changes: dict[str, Any] = {"head": kind, "pooling": pooling}
        if kind == "classification":
            has_names = not num_labels and checkpoint.settings.get("id2label")
            where = f"{checkpoint.folder}/config.json"
            default = len(get_section(checkpoint.settings, "id2label", where)) if has_names else 2
            changes["num_labels"] = num_labels or default
        new = ["pooler"] if pooling == "pooler" and config.pooling is None else []
        # A pretraining head is a masked-language-modeling head and a next-sentence head.
        if (config.head, kind) == ("mlm", "pretraining"):
            new.append("next-sentence head")
        elif (config.head, kind) != ("pretraining", "mlm"):
            new.append(f"{kind} head")
        source += f"; new (random): {', '.join(new)}" if new else ""
        config = replace(config, **changes)
    if dropout is not None or attention_dropout is not None:
        config = with_dropout(config, dropout, attention_dropout)
    dtype = choose_dtype(precision, torch.device("cpu"))
    # An adapter is added before the weights are rounded.
    model = checkpoint.build(config, new_head=new_head, dtype=torch.float32 if adapter is not None else dtype)
    model.weights_source = source
    if adapter is not None:
        add_adapter(model, adapter)
        model.weights_source += f"; adapter {adapter}"
    if dtype != torch.float32:
        model.set_compute_dtype(dtype).in_fp32 = lambda: _in_fp32(checkpoint, model, adapter)
    return model.eval()


def _in_fp32(checkpoint: Checkpoint, model: Any, adapter: str | Path | None) -> Any:
    """Load the checkpoint of ``model``, whose encoder is in bf16, again in fp32.

    The fp32 parts of ``model`` are copied, because they may have changed.
    """
    check_unchanged(checkpoint.tensors.values())
    with own_generator(), isolated_torch(gradients=True), torch_uses_own_generator():
        full = checkpoint.build(model.config, new_head=True)
        if adapter is not None:
            add_adapter(full, adapter)
        copy_weights(full, {k: t for k, t in model.state_dict().items() if t.dtype == torch.float32})
    full.weights_source = model.weights_source
    return full.eval()


def with_dropout(
    config: Any,
    dropout: float | None,
    attention_dropout: float | None,
    embedding_dropout: float | None = None,
    feed_forward_dropout: float | None = None,
) -> Any:
    """The config with other dropout rates; None keeps a rate, or uses ``dropout`` for the embeddings."""
    encoder_rates = {
        "dropout": dropout,
        "attention_dropout": attention_dropout,
        "feed_forward_dropout": feed_forward_dropout,
    }
    changes: dict[str, Any] = {key: rate for key, rate in encoder_rates.items() if rate is not None}
    encoder = replace(config.encoder, **changes)
    rate = encoder.dropout if embedding_dropout is None else embedding_dropout
    return replace(config, embedding=replace(config.embedding, dropout=rate), encoder=encoder)


def save_pretrained(
    model: Any,
    folder: str | Path,
    *,
    label_names: tuple[str, ...] = (),
    max_shard_bytes: int | None = None,
    order: Sequence[int] | None = None,
    problem_type: str | None = None,
) -> None:
    """Write ``config.json`` and the weights into a folder, which is created if missing.

    Args:
        label_names: labels of a classification head in the order of the logits (``id2label``); by default
            ``LABEL_0`` and so on, because other programs assume two labels without names.
        order: ``[C]`` the index of each class in the file; None: the order of the model.
        problem_type: the Hub's ``problem_type`` if the task is not single-label classification.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config, tensors = model.config, dict(model.state_dict())
    family = family_of(config)
    head = getattr(config, "head", None)
    if not label_names and head == "classification":
        label_names = tuple(f"LABEL_{i}" for i in range(config.num_labels))
    if order is not None:
        rows = sorted(range(len(order)), key=lambda i: order[i])
        tensors |= {k: t[rows] for k, t in tensors.items() if k.startswith("head.out.")}
        label_names = tuple(label_names[i] for i in rows)
    if family.hub is None:
        settings: dict[str, Any] = {"model_type": family.model_type, "architecture": to_dict(config)}
        add_label_maps(settings, label_names, problem_type)
        write_model(folder, settings, tensors, max_shard_bytes)
        return
    settings = family.hub.write(config)
    in_hub_format, restored = family.hub.has_class(config), family.hub.read(settings, "config.json")
    if in_hub_format and head == "classification":
        restored = replace(restored, **{key: getattr(config, key) for key in family.hub.hub_head(settings)})
    settings |= extra_settings(config, restored)
    add_label_maps(settings, label_names, problem_type)
    settings["architectures"] = [family.hub.class_of(config) if in_hub_format else family.hub.classes[None]]
    if in_hub_format:
        write_model(folder, settings, family.hub.to_hub(tensors, head is not None, config), max_shard_bytes)
        return
    encoder = {k: v for k, v in tensors.items() if k.startswith(ENCODER_KEYS)}
    head_tensors = {k: v for k, v in tensors.items() if k not in encoder}
    encoder_tensors = family.hub.to_hub(encoder, False, config)
    write_encoder_and_head(folder, settings, config, encoder_tensors, head_tensors, max_shard_bytes)
