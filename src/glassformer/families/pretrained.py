"""Folders both ways: ``config.json`` and ``model.safetensors`` <-> our models.

    load_pretrained("path/or/hub-id")            save_pretrained(model, folder)

A model that the Hub's format can express is written so that ``transformers`` opens it with the same logits.
Of one that it can express in part (an encoder under mean pooling, say) the encoder is written so, and pooling
and head go to ``head.safetensors``. Anything else is written under our own ``model_type``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.checkpoints.layout import (
    ENCODER_KEYS,
    blank,
    compare,
    filled,
    label_maps,
    other_task,
    outline,
    outputs,
    write,
    write_beside,
)
from glassformer.checkpoints.names_lora import load_adapter
from glassformer.checkpoints.sentences import sentences_of
from glassformer.checkpoints.settings import section, shown
from glassformer.checkpoints.tensors import read_tensors
from glassformer.config import build, to_dict
from glassformer.errors import CheckpointError, ConfigError, InputError, UnsupportedModelError
from glassformer.families import FAMILIES, family_of, names_of
from glassformer.families.family import Family, HubLayout
from glassformer.models.backbone import BELOW
from glassformer.nn.lora import part_weights
from glassformer.runtime import computing
from glassformer.types import HeadKind

# --- keys that are ours alone ---------------------------------------------------------------------
#
# What the Hub's ``config.json`` has no key for, such as stochastic depth, is kept in it under one of ours.


KEY = "glassformer_settings"
SAID_BESIDE = ("pooling", "head", "num_labels", "head_type", "sides")


def unsaid(config: Any, said: Any) -> dict[str, Any]:
    """``{KEY: values}`` of a config that reading its ``config.json`` back does not give; may be empty."""
    values = _differences(config, said)
    values = {key: value for key, value in values.items() if key not in SAID_BESIDE}
    return {KEY: values} if values else {}


def _differences(config: Any, said: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in fields(config):
        ours, theirs = getattr(config, field.name), getattr(said, field.name)
        if ours == theirs:
            continue
        if is_dataclass(ours) and type(ours) is type(theirs):
            out[field.name] = _differences(ours, theirs)
        else:
            out[field.name] = to_dict(ours) if is_dataclass(ours) else ours
    return out


def with_unsaid(config: Any, settings: dict[str, Any], where: str) -> Any:
    """The config with the values that ``unsaid`` kept in ``config.json`` laid over it.

    Raises:
        CheckpointError: what stands there is no object.
        ConfigError: an unknown key, or a value of the wrong type.
    """
    if KEY not in settings:
        return config
    return build(type(config), _laid_over(to_dict(config), section(settings, KEY, where)), where)


def _laid_over(values: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(values)
    for key, value in changes.items():
        below = out.get(key)
        if isinstance(below, dict) and isinstance(value, Mapping):
            value = _laid_over(below, value)
        out[key] = value
    return out


# --- adapters -------------------------------------------------------------------------------------
#
# Low-rank updates in PEFT's layout become part of the weights.


@torch.no_grad()
def add_adapter(model: Any, folder: str | Path, order: Sequence[int] | None = None) -> None:
    """Add the updates of an adapter to the weights of a Transformer, and load the head that it may hold.

    Nothing changes unless all of it fits.

    Args:
        order: ``[C]``, which of the base's classes each row of the model's head is; None: the same ones.

    Raises:
        ConfigError: the model has no layers that could have updates.
        CheckpointError: no such folder, another kind of adapter, or tensors that do not fit the model.
    """
    if not getattr(model, "has_attention", False) or not hasattr(model.encoder, "layers"):
        raise ConfigError(
            "this model has no layers with low-rank updates", where="adapter", fix="Take a Transformer"
        )
    where = str(folder)
    hub = family_of(model.config).hub
    whole = hub and (lambda tensors, where: hub.from_hub(tensors, where, model.config))
    found = load_adapter(Path(folder), names_of(model.config), whole)
    if not found.updates and not found.head:
        raise CheckpointError("holds no updates", where=where)
    weights, state = part_weights(model), model.state_dict()
    for slot in {key[:-2] for key in found.updates}:
        shape = len(found.updates[f"{slot}.B"]), found.updates[f"{slot}.A"].shape[1]
        if slot not in weights:
            count = len(model.encoder.layers)
            raise CheckpointError(f"updates of {slot}, but the model has {count} layers", where=where)
        if shape != tuple(weights[slot].shape):
            what = f"the update of {slot} is {shape}, the model's weight {tuple(weights[slot].shape)}"
            raise CheckpointError(what, where=where, fix="Load the model that the adapter was trained on")
    for name, tensor in found.head.items():
        own = tuple(state[name].shape) if name in state else "not there"
        if own != tuple(tensor.shape):
            what = f"{name} is {tuple(tensor.shape)}, in the model it is {own}"
            raise CheckpointError(what, where=where, fix="Load it into a model with as many classes")
    for slot in {key[:-2] for key in found.updates}:
        up, down = (found.updates[f"{slot}.{side}"].to(weights[slot].device) for side in "BA")
        weights[slot].add_((found.scale * (up @ down)).to(weights[slot].dtype))
    for name, tensor in found.head.items():
        state[name].copy_(tensor[list(order)] if order and name.startswith("head.out.") else tensor)


def head_in_hub(model: Any) -> dict[str, Tensor]:
    """Pooling and head of a classifier under the Hub's names.

    Raises:
        ConfigError: the Hub's class has another pooling or head.
    """
    config = model.config
    family = family_of(config)
    if family.hub is None or not family.hub.is_own_head(config):
        raise ConfigError(
            "the Hub's layout has no such pooling and head",
            where="head",
            fix="Write the updates alone: head=False",
        )
    tensors = model.state_dict()
    below = {name: tensor for name, tensor in tensors.items() if name.startswith(BELOW)}
    encoder = family.hub.to_hub(below, True, config).keys()
    return {name: t for name, t in family.hub.to_hub(tensors, True, config).items() if name not in encoder}


# --- folders both ways ----------------------------------------------------------------------------


NEVER = -1e4  # a logit so low that its probability is 0 in every precision
# The tensor that says of a checkpoint which head it has.
HEADS: dict[str, HeadKind] = {
    "head.out.weight": "classification",
    "nsp.weight": "pretraining",
    "mlm.bias": "mlm",
    "spans.out.weight": "spans",
}
# The ending of a class in ``architectures`` -> a head with the tensors of a classifier's that is none.
UNREAD = {
    "ForMultipleChoice": "a head that chooses among several texts",
    "ForNextSentencePrediction": "a head that says whether one text follows another",
}


@dataclass(frozen=True)
class Checkpoint:
    """What lies in a folder, as its family reads it; ``build`` makes a model of it.

    Args:
        config: the checkpoint's own, pooling and head included.
        tensors: under our names, as many as that config has.
        settings: ``config.json`` as it stands.
        source: in words, where all this came from.
    """

    family: Family
    config: Any
    tensors: Mapping[str, Tensor]
    settings: dict[str, Any]
    folder: Path
    source: str

    @property
    def other(self) -> str:
        """What its head gives, in words, where that is no scores of classes; else empty."""
        is_classifier = self.head == "classification"
        where = f"{self.folder}/config.json"
        return other_task(self.settings, self.config.num_labels, where) if is_classifier else ""

    @property
    def head(self) -> HeadKind | None:
        """What stands on it; recurrent and convolutional models are classifiers always."""
        return self.config.head if self.family.model.has_attention else "classification"

    @property
    def weights_source(self) -> str:
        """The source with what was in it."""
        head = f" and {self.head} head" if self.head else ""
        return f"{self.source}: encoder{head}" + (f" for {self.other}" if self.other else "")

    def grown(self, rows: int, like: int) -> Checkpoint:
        """With a token table of that many rows: new ones are read as that token is, and never answered."""
        name, bias = "embeddings.tokens.weight", "mlm.bias"
        tensors = dict(self.tensors)
        table = tensors[name]
        tensors[name] = torch.cat([table, table[like].expand(rows - len(table), -1)])
        if bias in tensors:
            unsaid = tensors[bias].new_full((rows - len(table),), NEVER)
            tensors[bias] = torch.cat([tensors[bias], unsaid])
        embedding = replace(self.config.embedding, vocab_size=rows)
        return replace(self, config=replace(self.config, embedding=embedding), tensors=tensors)

    def build(self, config: Any = None, *, new_head: bool = False) -> Any:
        """A model of this config (None: the checkpoint's own) in fp32; only what is new is drawn.

        Learned positions are read on another grid for another size of image.

        Args:
            new_head: pooling and heads may be others; a head of classes is always new.
        """
        model = self._built(config, new_head)
        if hasattr(model, "sentences"):
            model.sentences = sentences_of(self.folder, self.config.encoder.d_model)
        return model

    def _built(self, config: Any, new_head: bool) -> Any:
        own, where = self.config, str(self.folder)
        if not new_head and config in (None, own):
            return filled(self.family.model, own, dict(self.tensors), where)
        compare(outline(self.family.model, own, len(self.tensors), where).state_dict(), self.tensors, where)
        model: Any = blank(self.family.model, config, where)
        kept = model.shared(getattr(own, "pooling", None), self.tensors) if new_head else list(self.tensors)
        state = model.adapted(own, {name: self.tensors[name].float() for name in kept})
        model.load_state_dict(state, strict=not new_head)
        for name, part in model.named_children():
            if not any(key.startswith(f"{name}.") for key in state):
                model.draw(part)
        return model


def read_checkpoint(name: str | Path, revision: str | None = None) -> Checkpoint:
    """What lies in a local folder, under a known name or a Hub id.

    Raises:
        CheckpointError: no such checkpoint, an unsupported kind of model, unexplained tensors (named),
            pickled weights (with the way to convert them).
    """
    folder, source, _ = resolve_checkpoint(name, revision)
    settings = read_json(folder / "config.json")
    where, at, kind = str(folder), f"{folder}/config.json", settings.get("model_type")
    fix = f"Supported: {', '.join(name for name, family in FAMILIES.items() if family.hub)}"
    if not isinstance(kind, str):
        raise UnsupportedModelError(f"model_type is {shown(kind)}", where=at, fix=fix)
    if kind not in FAMILIES:
        raise UnsupportedModelError(f"model_type {shown(kind)} is not supported", where=at, fix=fix)
    family = FAMILIES[kind]
    if family.hub is None:
        config = build(family.config, section(settings, "architecture", at), at)
        return Checkpoint(family, config, read_tensors(folder), settings, folder, source)
    _check_made_as(settings, at)
    if settings.get("quantization_config") is not None:
        what = "quantization_config: quantized weights are not supported"
        raise UnsupportedModelError(what, where=at, fix="Name a checkpoint in fp32, fp16 or bf16")
    try:
        config = with_unsaid(family.hub.read(settings, at), settings, at)
    except ConfigError as error:  # sizes that do not go together
        raise CheckpointError(str(error), where=at, fix="Download it again, or correct it") from None
    tensors = family.hub.from_hub(read_tensors(folder), where, config)
    if "glassformer" in settings:  # pooling and head of ours beside an encoder in the Hub's layout
        config = build(family.config, {**to_dict(config), **section(settings, "glassformer", at)}, at)
        tensors |= read_tensors(folder, "head")
    else:
        config = replace(config, **_head(family.hub, tensors, settings, where))
        if config.pooling == "tokens" or config.head == "spans":  # files may hold a pooler that nothing reads
            tensors = {name: t for name, t in tensors.items() if not name.startswith("pooling.")}
    return Checkpoint(family, config, tensors, settings, folder, source)


def positions_of(name: str | Path, revision: str | None = None) -> int | None:
    """The longest text, in tokens, that a checkpoint has positions for; None: nothing bounds it, or its
    ``config.json`` does not say (reading the checkpoint says what is wrong with it)."""
    return getattr(_embedding_of(name, revision), "max_positions", None)


def segments_of(name: str | Path, revision: str | None = None) -> int:
    """The kinds of segments that a checkpoint tells apart, as far as its ``config.json`` says; else 0."""
    return getattr(_embedding_of(name, revision), "segments", 0)


def _embedding_of(name: str | Path, revision: str | None) -> Any:
    """The embeddings' config of a Transformer; None: it is none, or its ``config.json`` does not say."""
    folder, _, _ = resolve_checkpoint(name, revision)
    settings, at = read_json(folder / "config.json"), f"{folder}/config.json"
    kind = settings.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None or family.configure is not None:
        return None
    try:
        if family.hub is None:
            config = build(family.config, section(settings, "architecture", at), at)
        else:
            config = with_unsaid(family.hub.read(settings, at), settings, at)
    except InputError:
        return None
    return config.embedding


def _check_made_as(settings: dict[str, Any], where: str) -> None:
    """Raises CheckpointError for a head that only its class tells from one of classes."""
    made_as = settings.get("architectures")
    for name in made_as if isinstance(made_as, list) else ():
        for ending, what in UNREAD.items():
            if isinstance(name, str) and name.endswith(ending):
                fix = "Fine-tune its encoder: save it alone with transformers.AutoModel, and name that folder"
                raise UnsupportedModelError(f"{what} ({shown(name)}) is not supported", where=where, fix=fix)


def _head(
    hub: HubLayout, tensors: Mapping[str, Tensor], settings: dict[str, Any], where: str
) -> dict[str, Any]:
    """The pooling and head that these tensors make; ``settings`` may name the class that wrote them.

    Raises:
        CheckpointError: a head that lacks a part.
    """
    head = next((kind for name, kind in HEADS.items() if name in tensors), None)
    pooling = "pooler" if "pooling.dense.weight" in tensors else None
    if head != "classification":
        return {"head": head, "pooling": None if head == "spans" else pooling}
    labels, made_as = outputs(tensors["head.out.weight"], where), settings.get("architectures")
    made_as = made_as if isinstance(made_as, list) else []
    said = settings.get("num_labels")
    if said is not None and said != labels:
        what = f"num_labels = {shown(said)}, but the head has {labels} outputs"
        raise CheckpointError(what, where=f"{where}/config.json")
    below = {"pooler": "pooling.dense.weight", "mlp": "head.hidden.weight"}
    lacks = [
        kind for kind, name in below.items() if kind in (hub.pooling, hub.head_type) and name not in tensors
    ]
    # Who says that it is of whole texts lacks a part, which is named where the model is filled.
    of_tokens = hub.classes.get("tokens")
    if of_tokens in made_as or (lacks and of_tokens and hub.classes["classification"] not in made_as):
        own = {"head_type": "linear"} if hub.own_head is None else hub.head_in(settings)
        return own | {"head": head, "pooling": "tokens", "num_labels": labels}
    return {"head": head, "num_labels": labels} | hub.head_in(settings)


def load_pretrained(
    name: str | Path | Checkpoint,
    head: HeadKind | None = None,
    *,
    revision: str | None = None,
    num_labels: int | None = None,
    dropout: float | None = None,
    attention_dropout: float | None = None,
    adapter: str | Path | None = None,
) -> Any:
    """The model in a local folder, a known name or a Hub id, or of a checkpoint; in fp32, in evaluation mode.

    Args:
        head: None: as the checkpoint has it, for regression or several labels at once too. Otherwise that
            head: the checkpoint's where it has one, else a new one. ``weights_source`` says all of this.
        num_labels: of a new classification head; None: what the checkpoint's config says.
        dropout, attention_dropout: instead of the checkpoint's own.
        adapter: a folder in PEFT's layout, whose updates are added to the weights (``add_adapter``).

    Raises:
        CheckpointError: no such checkpoint, an unsupported kind of model, missing, unexplained or misshapen
            tensors (named), pickled weights (with the way to convert); ``head="classification"`` without
            ``num_labels`` where the checkpoint's head is for another task; an adapter that does not fit.
    """
    with computing(gradients=True):
        model = _load(name, head, revision, num_labels, dropout, attention_dropout)
        if adapter is not None:
            add_adapter(model, adapter)
            model.weights_source += f"; adapter {adapter}"
    return model


def _load(
    name: str | Path | Checkpoint,
    head: HeadKind | None,
    revision: str | None,
    num_labels: int | None,
    dropout: float | None,
    attention_dropout: float | None,
) -> Any:
    checkpoint = name if isinstance(name, Checkpoint) else read_checkpoint(name, revision)
    if not checkpoint.family.model.has_attention:  # a classifier of ours, as it is
        model = checkpoint.build()
        model.weights_source = checkpoint.source
        return model.eval()
    config, source, other = checkpoint.config, checkpoint.weights_source, checkpoint.other
    if other and head == "classification" and num_labels is None:
        raise CheckpointError(
            f"its head is for {other}",
            where=str(checkpoint.folder),
            fix="Give num_labels for a new head, or head=None for this one as it is",
        )
    wanted = head or config.head
    unfit = bool(other) and head == "classification"
    new_head = unfit or wanted != config.head or bool(num_labels and num_labels != config.num_labels)
    if new_head:
        hub = checkpoint.family.hub
        reads = checkpoint.family.model.reads
        pooling = hub.pooling if hub and reads == "images" else config.pooling_under(wanted)
        changes: dict[str, Any] = {"head": wanted, "pooling": pooling}
        if wanted == "classification":
            changes["num_labels"] = num_labels or _labels(
                checkpoint.settings, f"{checkpoint.folder}/config.json"
            )
        new = ["pooler"] if pooling == "pooler" and config.pooling is None else []
        if not (config.head == "pretraining" and wanted == "mlm"):  # one of its two heads is asked for
            new.append(
                "next-sentence head" if (config.head, wanted) == ("mlm", "pretraining") else f"{wanted} head"
            )
        source += f"; new (random): {', '.join(new)}" if new else ""
        config = replace(config, **changes)
    if dropout is not None or attention_dropout is not None:
        config = with_dropout(config, dropout, attention_dropout)
    model = checkpoint.build(config, new_head=new_head)
    model.weights_source = source
    return model.eval()


def _labels(settings: dict[str, Any], where: str) -> int:
    """As many as ``id2label`` names; 2 without it."""
    return len(section(settings, "id2label", where)) if settings.get("id2label") else 2


def with_dropout(
    config: Any,
    dropout: float | None,
    attention_dropout: float | None,
    embedding_dropout: float | None = None,
    feed_forward_dropout: float | None = None,
) -> Any:
    """The same config with other dropout rates; None leaves a rate, or gives embeddings what layers have."""
    p = config.encoder.dropout if dropout is None else dropout
    a = config.encoder.attention_dropout if attention_dropout is None else attention_dropout
    f = config.encoder.feed_forward_dropout if feed_forward_dropout is None else feed_forward_dropout
    return replace(
        config,
        embedding=replace(config.embedding, dropout=p if embedding_dropout is None else embedding_dropout),
        encoder=replace(config.encoder, dropout=p, attention_dropout=a, feed_forward_dropout=f),
    )


def save_pretrained(
    model: Any,
    folder: str | Path,
    *,
    label_names: tuple[str, ...] = (),
    max_shard_bytes: int | None = None,
    order: Sequence[int] | None = None,
    problem_type: str | None = None,
) -> None:
    """Write ``config.json`` and the weights into a folder, which is made where it is missing.

    Args:
        label_names: of a classification head, in the order of the logits (``id2label``); without them they
            are ``LABEL_0`` and so on, because other readers take a head without names for one of two labels.
        order: ``[C]``, the row of the file that each row of the head becomes; None: as they stand.
        problem_type: what the outputs are, in the Hub's words, where they are no classes.
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
        label_maps(settings, label_names, problem_type)
        write(folder, settings, tensors, max_shard_bytes)
        return
    settings = family.hub.write(config)
    whole, said = family.hub.is_own_head(config), family.hub.read(settings, "config.json")
    if whole and head == "classification":
        said = replace(said, **{key: getattr(config, key) for key in family.hub.head_in(settings)})
    settings |= unsaid(config, said)
    label_maps(settings, label_names, problem_type)
    settings["architectures"] = [family.hub.class_of(config) if whole else family.hub.classes[None]]
    if whole:
        write(folder, settings, family.hub.to_hub(tensors, head is not None, config), max_shard_bytes)
        return
    encoder = {k: v for k, v in tensors.items() if k.startswith(ENCODER_KEYS)}
    rest = {k: v for k, v in tensors.items() if k not in encoder}
    write_beside(folder, settings, config, family.hub.to_hub(encoder, False, config), rest, max_shard_bytes)
