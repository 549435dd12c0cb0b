"""Hugging Face folders both ways: ``config.json`` and ``model.safetensors`` <-> our models.

    load_pretrained("path/or/hub-id")            save_pretrained(model, folder)

A model that the format can express is written so that ``transformers`` opens it with the same logits. Of
one that it can express in part (an encoder under mean pooling, say) the encoder is written so, and pooling
and head go to ``head.safetensors``. Anything else is written under our own ``model_type``.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.folder_baselines import KINDS, load_baseline, save_baseline
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.checkpoints.names_bert import from_hub, to_hub
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.config import build, to_dict
from glassformer.errors import CheckpointError
from glassformer.models.bert import Bert, BertConfig
from glassformer.models.packed import PackedClassifier
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.encoder import EncoderConfig
from glassformer.types import HeadKind

OWN_TYPE = "glassformer-text"
ACTIVATION_NAMES = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
ARCHITECTURES = {
    None: "BertModel",
    "classification": "BertForSequenceClassification",
    "mlm": "BertForMaskedLM",
    "pretraining": "BertForPreTraining",
}
ENCODER_KEYS = ("embeddings.", "encoder.")


def load_pretrained(
    name: str | Path,
    head: HeadKind | None = None,
    *,
    revision: str | None = None,
    num_labels: int | None = None,
    dropout: float | None = None,
    attention_dropout: float | None = None,
) -> Bert:
    """A model from a local folder, a known name or a Hub id; in fp32, in evaluation mode.

    Args:
        head: None: as the checkpoint has it. Otherwise that head: the checkpoint's where it has one, else a
            new one, and ``weights_source`` says so.
        num_labels: of a new classification head; None: what the checkpoint's config says.
        dropout, attention_dropout: instead of the checkpoint's own.

    Raises:
        CheckpointError: no such checkpoint, an unsupported kind of model, missing, unexplained or wrongly
            shaped tensors (named), pickled weights (with the way to convert them).
    """
    folder, source, _ = resolve_checkpoint(name, revision)
    where = str(folder)
    settings = read_json(folder / "config.json")
    kind = settings.get("model_type")
    if kind in KINDS:
        return load_baseline(settings, folder, source)  # type: ignore[return-value]
    if kind == OWN_TYPE:
        model = _load_own(settings, folder)
    elif kind == "bert":
        model = _load_bert(settings, folder)
    else:
        raise CheckpointError(
            f"model_type {kind!r} is not supported", where=f"{where}/config.json", fix="Supported: bert"
        )
    source = f"{source}: encoder" + (f" and {model.config.head} head" if model.config.head else "")
    wanted = head or model.config.head
    if wanted != model.config.head or (num_labels and num_labels != model.config.num_labels):
        pooling = model.config.pooling or ("pooler" if wanted != "mlm" else None)
        changes: dict[str, Any] = {"head": wanted, "pooling": pooling}
        if wanted == "classification":
            changes["num_labels"] = num_labels or len(settings.get("id2label", (0, 1)))
        had_pooling = model.pooling is not None
        model = model.with_head(**changes)
        new = ["pooler"] if pooling == "pooler" and not had_pooling else []
        source = f"{source}; new (random): {', '.join([*new, f'{wanted} head'])}"
    if dropout is not None or attention_dropout is not None:
        model = with_dropout(model, dropout, attention_dropout)
    model.weights_source = source
    return model.eval()


def with_dropout(model: Bert, dropout: float | None, attention_dropout: float | None) -> Bert:
    """The same weights with other dropout rates; None leaves a rate as it is."""
    c = model.config
    p = c.encoder.dropout if dropout is None else dropout
    a = c.encoder.attention_dropout if attention_dropout is None else attention_dropout
    other = Bert(
        replace(
            c,
            embedding=replace(c.embedding, dropout=p),
            encoder=replace(c.encoder, dropout=p, attention_dropout=a),
        )
    )
    other.load_state_dict(model.state_dict())
    other.weights_source = model.weights_source
    return other


def _load_own(settings: dict[str, Any], folder: Path) -> Bert:
    config = build(BertConfig, settings.get("architecture", {}), f"{folder}/config.json")
    return _fill(Bert(config), read_tensors(folder), str(folder))


def _load_bert(settings: dict[str, Any], folder: Path) -> Bert:
    where = str(folder)
    tensors = from_hub(read_tensors(folder), where)
    if "glassformer" in settings:  # pooling and head of ours beside an encoder in the Hub's layout
        config = _bert_config(settings, where)
        own = build(BertConfig, {**to_dict(config), **settings["glassformer"]}, f"{where}/config.json")
        return _fill(Bert(own), tensors | read_tensors(folder, "head"), where)
    head: HeadKind | None = None
    if "head.out.weight" in tensors:
        head = "classification"
    elif "nsp.weight" in tensors:
        head = "pretraining"
    elif "mlm.bias" in tensors:
        head = "mlm"
    pooling = "pooler" if "pooling.dense.weight" in tensors else None
    config = replace(_bert_config(settings, where), head=head, pooling=pooling)
    if head == "classification":
        config = replace(config, num_labels=len(tensors["head.out.weight"]))
    return _fill(Bert(config), tensors, where)


def _fill(model: Bert, tensors: dict[str, Tensor], where: str) -> Bert:
    """Load every tensor; what is missing, left over or of another shape is named."""
    own = model.state_dict()
    missing, extra = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    for what, names in (("missing", missing), ("unexplained", extra)):
        if names:
            more = f" and {len(names) - 6} more" if len(names) > 6 else ""
            raise CheckpointError(f"{what} tensors: {', '.join(names[:6])}{more}", where=where)
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            raise CheckpointError(
                f"{name} is {tuple(tensor.shape)}, config.json says {tuple(own[name].shape)}", where=where
            )
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return model


def _bert_config(settings: dict[str, Any], where: str) -> BertConfig:
    """BERT's ``config.json`` as our config.

    Raises:
        CheckpointError: a missing key, or a variant (decoder, relative positions, other activation).
    """
    where = f"{where}/config.json"
    for key, wanted in (
        ("is_decoder", False),
        ("add_cross_attention", False),
        ("position_embedding_type", "absolute"),
    ):
        if settings.get(key, wanted) not in (wanted, None):
            raise CheckpointError(f"{key} = {settings[key]!r} is not supported", where=where)
    activation = settings.get("hidden_act", "gelu")
    if activation not in ACTIVATION_NAMES:
        raise CheckpointError(f"hidden_act = {activation!r} is not supported", where=where)
    try:
        vocab, d = settings["vocab_size"], settings["hidden_size"]
        layers, heads = settings["num_hidden_layers"], settings["num_attention_heads"]
        d_ff = settings["intermediate_size"]
    except KeyError as error:
        raise CheckpointError(f"missing key {error}", where=where) from None
    sizes = {"vocab_size": vocab, "hidden_size": d, "num_hidden_layers": layers, "intermediate_size": d_ff}
    for key, value in sizes.items():
        if not isinstance(value, int) or not 1 <= value <= 10_000_000:
            raise CheckpointError(f"{key} = {value!r} is no size", where=where)
    eps, dropout = settings.get("layer_norm_eps", 1e-12), settings.get("hidden_dropout_prob", 0.1)
    positions, segments = settings.get("max_position_embeddings", 512), settings.get("type_vocab_size", 2)
    head_dropout = settings.get("classifier_dropout")
    return BertConfig(
        EmbeddingConfig(vocab, d, "learned", positions, segments, norm=True, eps=eps, dropout=dropout),
        EncoderConfig(
            d, layers, heads, d_ff, "post", ACTIVATION_NAMES[activation], eps, dropout,  # type: ignore[arg-type]
            attention_dropout=settings.get("attention_probs_dropout_prob", 0.1),
        ),
        head_dropout=dropout if head_dropout is None else head_dropout,
        init_std=settings.get("initializer_range", 0.02),
    )  # fmt: skip


def is_bert(config: BertConfig) -> bool:
    """Whether the Hub's BERT layout can express this encoder."""
    e, c = config.embedding, config.encoder
    return (
        e.positions == "learned" and e.segments > 0 and e.norm and e.eps == c.eps
        and c.norm == "post" and not c.final_norm and e.token_width is None and not e.frozen
    )  # fmt: skip


def save_pretrained(
    model: Bert, folder: str | Path, *, label_names: tuple[str, ...] = (), max_shard_bytes: int | None = None
) -> None:
    """Write ``config.json`` and the weights into an existing folder.

    Args:
        label_names: of a classification head, in the order of the logits (``id2label``).
    """
    if isinstance(model, PackedClassifier):
        save_baseline(model, Path(folder), label_names)
        return
    folder, config = Path(folder), model.config
    tensors = dict(model.state_dict())
    if not is_bert(config):
        settings: dict[str, Any] = {"model_type": OWN_TYPE, "architecture": to_dict(config)}
        _label_maps(settings, label_names)
        _write(folder, settings, tensors, max_shard_bytes)
        return
    settings = _bert_settings(config)
    _label_maps(settings, label_names)
    plain_head = config.pooling == "pooler" and config.head_type == "linear"
    if (config.head == "classification" and not plain_head) or config.pooling not in ("pooler", None):
        encoder = {k: v for k, v in tensors.items() if k.startswith(ENCODER_KEYS)}
        keys = ("pooling", "head", "num_labels", "head_type", "head_hidden", "head_dropout")
        settings["architectures"] = ["BertModel"]
        settings["glassformer"] = {k: getattr(config, k) for k in keys if getattr(config, k) is not None}
        rest = {k: v for k, v in tensors.items() if k not in encoder}
        write_tensors(folder, rest, name="head")
        _write(folder, settings, to_hub(encoder, with_prefix=False), max_shard_bytes)
        return
    settings["architectures"] = [ARCHITECTURES[config.head]]
    _write(folder, settings, to_hub(tensors, with_prefix=config.head is not None), max_shard_bytes)


def _bert_settings(config: BertConfig) -> dict[str, Any]:
    e, c = config.embedding, config.encoder
    return {
        "model_type": "bert",
        "vocab_size": e.vocab_size,
        "hidden_size": c.d_model,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "intermediate_size": c.d_ff,
        "hidden_act": {"gelu_tanh": "gelu_pytorch_tanh"}.get(c.activation, c.activation),
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.attention_dropout,
        "classifier_dropout": config.head_dropout,
        "max_position_embeddings": e.max_positions,
        "type_vocab_size": e.segments,
        "initializer_range": config.init_std,
        "layer_norm_eps": c.eps,
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        "torch_dtype": "float32",
    }


def _label_maps(settings: dict[str, Any], label_names: tuple[str, ...]) -> None:
    if label_names:
        settings["id2label"] = {str(i): name for i, name in enumerate(label_names)}
        settings["label2id"] = {name: i for i, name in enumerate(label_names)}


def _write(
    folder: Path, settings: dict[str, Any], tensors: dict[str, Tensor], max_shard_bytes: int | None
) -> None:
    text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
    write_tensors(folder, {k: v.float() for k, v in tensors.items()}, max_shard_bytes=max_shard_bytes)
