"""Hugging Face folders both ways: ``config.json`` and ``model.safetensors`` <-> our models.

    load_pretrained("path/or/hub-id")            save_pretrained(model, folder)

A model that the format can express is written so that ``transformers`` opens it with the same logits. Of
one that it can express in part (an encoder under mean pooling, say) the encoder is written so, and pooling
and head go to ``head.safetensors``. Anything else is written under our own ``model_type``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.checkpoints import folder_vit
from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.folder_baselines import KINDS, load_baseline, save_baseline
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.checkpoints.layout import (
    ENCODER_KEYS,
    THEIR_ACTIVATION,
    activation,
    filled,
    label_maps,
    other_task,
    outputs,
    write,
    write_beside,
)
from glassformer.checkpoints.names_bert import from_hub, to_hub
from glassformer.checkpoints.settings import number, real, section, shown
from glassformer.checkpoints.tensors import read_tensors
from glassformer.config import build, to_dict
from glassformer.errors import CheckpointError
from glassformer.models.image import ViT
from glassformer.models.packed import PackedClassifier
from glassformer.models.text import Bert, BertConfig
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.encoder import EncoderConfig
from glassformer.types import HeadKind

OWN_TYPE = "glassformer-text"
SUPPORTED = "Supported: bert, vit"
ARCHITECTURES = {
    None: "BertModel",
    "classification": "BertForSequenceClassification",
    "mlm": "BertForMaskedLM",
    "pretraining": "BertForPreTraining",
}


def load_pretrained(
    name: str | Path,
    head: HeadKind | None = None,
    *,
    revision: str | None = None,
    num_labels: int | None = None,
    dropout: float | None = None,
    attention_dropout: float | None = None,
) -> Any:
    """A ``Bert`` or ``ViT`` from a local folder, a known name or a Hub id; in fp32, in evaluation mode.

    Args:
        head: None: as the checkpoint has it, for regression or several labels at once too. Otherwise that head:
            the checkpoint's where it has one, else a new one. ``weights_source`` says all of this.
        num_labels: of a new classification head; None: what the checkpoint's config says.
        dropout, attention_dropout: instead of the checkpoint's own.

    Raises:
        CheckpointError: no such checkpoint, an unsupported kind of model, missing, unexplained or wrongly
            shaped tensors (named), pickled weights (with the way to convert them); ``head="classification"``
            without ``num_labels`` where the checkpoint's head is for another task.
    """
    folder, source, _ = resolve_checkpoint(name, revision)
    where = str(folder)
    settings = read_json(folder / "config.json")
    kind = settings.get("model_type")
    if not isinstance(kind, str):
        raise CheckpointError(f"model_type is {shown(kind)}", where=f"{where}/config.json", fix=SUPPORTED)
    if kind in KINDS:
        return load_baseline(settings, folder, source)  # type: ignore[return-value]
    model: Bert | ViT
    if kind == OWN_TYPE:
        model = _load_own(settings, folder)
    elif kind == "bert":
        model = _load_bert(settings, folder)
    elif kind in ("vit", folder_vit.OWN_TYPE):
        model = folder_vit.load_vit(settings, folder)
    else:
        raise CheckpointError(
            f"model_type {shown(kind)} is not supported", where=f"{where}/config.json", fix=SUPPORTED
        )
    source = f"{source}: encoder" + (f" and {model.config.head} head" if model.config.head else "")
    other = other_task(settings, model.config.num_labels) if model.config.head == "classification" else ""
    if other:
        source += f" for {other}"
    if other and head == "classification" and num_labels is None:
        raise CheckpointError(
            f"its head is for {other}",
            where=where,
            fix="Give num_labels for a new head, or head=None for this one as it is",
        )
    wanted = head or model.config.head
    unfit = bool(other) and head == "classification"
    if unfit or wanted != model.config.head or (num_labels and num_labels != model.config.num_labels):
        pooling = model.config.pooling or ("pooler" if wanted != "mlm" else None)
        if isinstance(model, ViT):
            pooling = "first"  # a ViT's own classifier reads [CLS] as it is
        changes: dict[str, Any] = {"head": wanted, "pooling": pooling}
        if wanted == "classification":
            changes["num_labels"] = num_labels or _labels(settings, f"{where}/config.json")
        had_pooling, had = model.pooling is not None, model.config.head
        model = model.with_head(**changes)
        new = ["pooler"] if pooling == "pooler" and not had_pooling else []
        if not (had == "pretraining" and wanted == "mlm"):  # one of its two heads is asked for
            new.append("next-sentence head" if (had, wanted) == ("mlm", "pretraining") else f"{wanted} head")
        source += f"; new (random): {', '.join(new)}" if new else ""
    if dropout is not None or attention_dropout is not None:
        model = with_dropout(model, dropout, attention_dropout)
    model.weights_source = source
    return model.eval()


def _labels(settings: dict[str, Any], where: str) -> int:
    """As many as ``id2label`` names; 2 without it."""
    return len(section(settings, "id2label", where)) if settings.get("id2label") else 2


def with_dropout(model: Any, dropout: float | None, attention_dropout: float | None) -> Any:
    """The same weights with other dropout rates; None leaves a rate as it is."""
    c = model.config
    p = c.encoder.dropout if dropout is None else dropout
    a = c.encoder.attention_dropout if attention_dropout is None else attention_dropout
    other = type(model)(
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
    where = f"{folder}/config.json"
    config = build(BertConfig, section(settings, "architecture", where), where)
    return filled(Bert, config, read_tensors(folder), str(folder))


def _load_bert(settings: dict[str, Any], folder: Path) -> Bert:
    where = str(folder)
    tensors = from_hub(read_tensors(folder), where)
    if "glassformer" in settings:  # pooling and head of ours beside an encoder in the Hub's layout
        config = _bert_config(settings, where)
        ours = section(settings, "glassformer", f"{where}/config.json")
        own = build(BertConfig, {**to_dict(config), **ours}, f"{where}/config.json")
        return filled(Bert, own, tensors | read_tensors(folder, "head"), where)
    head: HeadKind | None = None
    if "head.out.weight" in tensors:
        head = "classification"
    elif "nsp.weight" in tensors:
        head = "pretraining"
    elif "mlm.bias" in tensors:
        head = "mlm"
    pooling = "pooler" if "pooling.dense.weight" in tensors else None
    if head == "classification" and pooling is None:  # as BertForTokenClassification has it
        raise CheckpointError(
            "a classifier of tokens (a head without a pooler) is not supported", where=where
        )
    config = replace(_bert_config(settings, where), head=head, pooling=pooling)
    if head == "classification":
        config = replace(config, num_labels=outputs(tensors["head.out.weight"], where))
    return filled(Bert, config, tensors, where)


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
            raise CheckpointError(f"{key} = {shown(settings[key])} is not supported", where=where)
    vocab, d = number(settings, "vocab_size", where), number(settings, "hidden_size", where)
    layers, heads = (
        number(settings, "num_hidden_layers", where),
        number(settings, "num_attention_heads", where),
    )
    d_ff = number(settings, "intermediate_size", where)
    eps, dropout = (
        real(settings, "layer_norm_eps", where, 1e-12),
        real(settings, "hidden_dropout_prob", where, 0.1, 1),
    )
    positions = number(settings, "max_position_embeddings", where, 512)
    segments = number(settings, "type_vocab_size", where, 2)
    plain = settings.get("classifier_dropout") is None
    head_dropout = dropout if plain else real(settings, "classifier_dropout", where, dropout, 1)
    return BertConfig(
        EmbeddingConfig(vocab, d, "learned", positions, segments, norm=True, eps=eps, dropout=dropout),
        EncoderConfig(
            d, layers, heads, d_ff, "post", activation(settings, where), eps, dropout,  # type: ignore[arg-type]
            attention_dropout=real(settings, "attention_probs_dropout_prob", where, 0.1, 1),
        ),
        head_dropout=head_dropout,
        init_std=real(settings, "initializer_range", where, 0.02),
    )  # fmt: skip


def is_bert(config: BertConfig) -> bool:
    """Whether the Hub's BERT layout can express this encoder."""
    e, c = config.embedding, config.encoder
    return (
        e.positions == "learned" and e.segments > 0 and e.norm and e.eps == c.eps
        and c.norm == "post" and not c.final_norm and e.token_width is None and not e.frozen
        and not e.damp_repeats and e.scale == 1
    )  # fmt: skip


def save_pretrained(
    model: Bert | ViT,
    folder: str | Path,
    *,
    label_names: tuple[str, ...] = (),
    max_shard_bytes: int | None = None,
) -> None:
    """Write ``config.json`` and the weights into a folder, which is made where it is missing.

    Args:
        label_names: of a classification head, in the order of the logits (``id2label``); without them they are
            ``LABEL_0`` and so on, because other readers take a head without names for one of two labels.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(model, PackedClassifier):
        save_baseline(model, folder, label_names)
        return
    if not label_names and model.config.head == "classification":
        label_names = tuple(f"LABEL_{i}" for i in range(model.config.num_labels))
    if isinstance(model, ViT):
        folder_vit.save_vit(model, folder, label_names, max_shard_bytes)
        return
    config = model.config
    tensors = dict(model.state_dict())
    if not is_bert(config):
        settings: dict[str, Any] = {"model_type": OWN_TYPE, "architecture": to_dict(config)}
        label_maps(settings, label_names)
        write(folder, settings, tensors, max_shard_bytes)
        return
    settings = _bert_settings(config)
    label_maps(settings, label_names)
    plain_head = config.pooling == "pooler" and config.head_type == "linear"
    if (config.head == "classification" and not plain_head) or config.pooling not in ("pooler", None):
        encoder = {k: v for k, v in tensors.items() if k.startswith(ENCODER_KEYS)}
        settings["architectures"] = ["BertModel"]
        rest = {k: v for k, v in tensors.items() if k not in encoder}
        write_beside(folder, settings, config, to_hub(encoder, False), rest, max_shard_bytes)
        return
    settings["architectures"] = [ARCHITECTURES[config.head]]
    write(folder, settings, to_hub(tensors, with_prefix=config.head is not None), max_shard_bytes)


def _bert_settings(config: BertConfig) -> dict[str, Any]:
    e, c = config.embedding, config.encoder
    return {
        "model_type": "bert",
        "vocab_size": e.vocab_size,
        "hidden_size": c.d_model,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "intermediate_size": c.d_ff,
        "hidden_act": THEIR_ACTIVATION[c.activation],
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
