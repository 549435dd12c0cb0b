"""Save and load LoRA adapters in PEFT's format.

A folder has ``adapter_config.json`` and ``adapter_model.safetensors``. Tensors have the names of the Hub's
checkpoints. Later releases of ``transformers`` use other names for some modules (``NameTable.new_names``).
Their tensors are saved under both names, so that ``peft`` opens the folder with any release. If the Hub has
one matrix for queries, keys and values (ModernBERT's ``Wqkv``), their updates are also fused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn.functional import pad

from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.names import NameTable, layer_patterns, list_names
from glassformer.checkpoints.settings import get_number, get_size, shorten
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.errors import CheckpointError, NoSuchModelError
from glassformer.finite import json_text

CONFIG, WEIGHTS, ROOT = "adapter_config.json", "adapter_model", "base_model.model."
QKV = "encoder.layers.{i}.attention.qkv"
QKV_PARTS = ("query", "key", "value")
# Name of a part in ``nn.lora`` -> our name of its linear layer.
LAYER_NAMES = {
    "qkv": QKV,
    "out": "encoder.layers.{i}.attention.out",
    "up": "encoder.layers.{i}.feed_forward.up",
    "down": "encoder.layers.{i}.feed_forward.down",
}
# Settings of variants of LoRA, which change the meaning of the tensors.
UNSUPPORTED = (
    "use_dora",
    "use_qalora",
    "use_bdlora",
    "lora_bias",
    "fan_in_fan_out",
    "rank_pattern",
    "alpha_pattern",
    "target_parameters",
    "layer_replication",
    "trainable_token_indices",
    "alora_invocation_tokens",
)
MAX_BYTES = 1 << 20  # maximum size of adapter_config.json
FromHub = Callable[[dict[str, Tensor], str], dict[str, Tensor]]


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter.

    Args:
        updates: name such as ``0.query.A`` (layer, part, matrix) -> low-rank matrix; see ``nn.lora.adapter``.
        rank, alpha: LoRA settings.
        scale: factor of the low-rank products, usually alpha / rank.
        head: tensors of the fully trained layers (only pooling and head), under our names.
    """

    updates: dict[str, Tensor]
    rank: int
    alpha: float
    scale: float
    head: dict[str, Tensor] = field(default_factory=dict)


def save_adapter(
    folder: Path,
    table: NameTable,
    updates: Mapping[str, Tensor],
    rank: int,
    alpha: float,
    *,
    with_prefix: bool = False,
    head: Mapping[str, Tensor] | None = None,
) -> None:
    """Write an adapter to a folder.

    Args:
        table: name table of the encoder's family.
        updates: see ``Adapter``.
        with_prefix: whether the encoder's names have the prefix, as in a Hub model with a head.
        head: tensors of the fully trained layers, under the Hub's names.
    """
    tensors, parts, num_layers = {}, [], 0
    if QKV in table.encoder:
        updates, rank, alpha = _fuse_qkv(updates, rank, alpha)
    name_sets = _names(table)
    for key, tensor in updates.items():
        layer, part, matrix = key.split(".")
        num_layers = max(num_layers, int(layer) + 1)
        parts += [part] if part not in parts else []
        for names in name_sets:
            stem = f"{table.prefix if with_prefix else ''}{names[part].format(i=layer)}"
            tensors[f"{ROOT}{stem}.lora_{matrix}.weight"] = tensor
    trained = {name.rpartition(".")[0] for name in head or {}}
    settings = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": _target_modules(table, parts, num_layers),
        "task_type": None,
        "inference_mode": True,
        "fan_in_fan_out": False,
        "base_model_name_or_path": None,
        "modules_to_save": sorted(stem.removeprefix(table.prefix) for stem in trained) or None,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(json_text(settings, indent=2, ascii=True) + "\n", encoding="utf-8")
    tensors |= {f"{ROOT}{name}": tensor for name, tensor in (head or {}).items()}
    write_tensors(folder, tensors, name=WEIGHTS)


def _fuse_qkv(updates: Mapping[str, Tensor], rank: int, alpha: float) -> tuple[dict[str, Tensor], int, float]:
    """All updates with those of queries, keys and values fused to ``{i}.qkv``, and the new rank and alpha.

    n updates of rank r become one update of rank n r: the matrices A are stacked, and the matrices B are the
    blocks of a diagonal matrix. All updates of an adapter have the same rank, so the other updates are padded
    with zeros.
    """
    used = [part for part in QKV_PARTS if any(key.split(".")[1] == part for key in updates)]
    total_rank = rank * max(len(used), 1)
    fused: dict[str, Tensor] = {}
    for key, tensor in updates.items():
        layer, part, matrix = key.split(".")
        is_qkv = part in QKV_PARTS
        first = rank * used.index(part) if is_qkv else 0
        rank_padding, row_padding = (first, total_rank - rank - first), (0, 0)
        if is_qkv and matrix == "B":
            index = QKV_PARTS.index(part)
            row_padding = (len(tensor) * index, len(tensor) * (2 - index))
        padded = pad(tensor, (*rank_padding, *row_padding) if matrix == "B" else (0, 0, *rank_padding))
        name = f"{layer}.{'qkv' if is_qkv else part}.{matrix}"
        fused[name] = fused[name] + padded if name in fused else padded
    return fused, total_rank, alpha * total_rank / rank


def _split_qkv(updates: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Split fused updates into those of queries, keys and values, which share the matrix A."""
    out: dict[str, Tensor] = {}
    for key, tensor in updates.items():
        layer, part, matrix = key.split(".")
        if part != "qkv":
            out[key] = tensor
            continue
        tensors = tensor.tensor_split(3) if matrix == "B" else (tensor,) * 3
        out |= {f"{layer}.{name}.{matrix}": t for name, t in zip(QKV_PARTS, tensors, strict=True)}
    return out


def _names(table: NameTable) -> list[dict[str, str]]:
    """Part -> Hub name of its layer; a second dict has the names in later releases of ``transformers``."""

    def by_part(fused: Mapping[str, tuple[str, ...]], single: Mapping[str, str]) -> dict[str, str]:
        qkv = dict(zip(QKV_PARTS, fused.get(QKV, ()), strict=False))
        return qkv | {part: single[ours] for part, ours in LAYER_NAMES.items() if ours in single}

    new_single = {ours: name for ours, name in table.new_names.items() if isinstance(name, str)}
    new_fused = {ours: names for ours, names in table.new_names.items() if not isinstance(names, str)}
    return [names for names in (by_part(table.fused, table.encoder), by_part(new_fused, new_single)) if names]


def _target_modules(table: NameTable, parts: list[str], num_layers: int) -> list[str]:
    """The shortest suffixes of module names that match only ``parts``; full names if there are none."""
    out: list[str] = []
    for names in _names(table):
        targets = [names[part] for part in parts]
        other_names = {*names.values(), *table.encoder.values(), *table.heads.values()} - {*targets}
        for name in targets:
            words = name.partition("{i}.")[2].split(".")
            suffixes = (".".join(words[-n:]) for n in range(1, len(words) + 1))
            unique = [end for end in suffixes if not any(f".{o}".endswith(f".{end}") for o in other_names)]
            out += unique[:1] or [name.format(i=layer) for layer in range(num_layers)]
    return list(dict.fromkeys(out))


def load_adapter(folder: Path, table: NameTable, from_hub: FromHub | None = None) -> Adapter:
    """Load an adapter, with its head if it has one.

    Args:
        table: name table of the encoder's family.
        from_hub: function that renames the fully trained layers to our names; None: ``table.from_hub``.

    Raises:
        CheckpointError: the folder has another kind of adapter or invalid settings, or tensors are missing,
            unexpected or not matrices.
    """
    where = str(folder / CONFIG)
    if not folder.is_dir():
        raise NoSuchModelError("no such folder", where=str(folder), fix=f"Name the folder with {CONFIG}")
    settings = read_json(folder / CONFIG, MAX_BYTES)
    kind = settings.get("peft_type")
    bad = [key for key in UNSUPPORTED if settings.get(key)]
    if kind != "LORA" or bad or settings.get("bias", "none") not in (None, "none"):
        what = f"{bad[0]} = {shorten(settings[bad[0]])}" if bad else f"bias = {shorten(settings.get('bias'))}"
        what = what if kind == "LORA" else f"peft_type = {shorten(kind)}"
        raise CheckpointError(f"only plain LORA is supported, not {what}", where=where)
    rank, alpha = get_size(settings, "r", where), get_number(settings, "lora_alpha", where, 8.0)
    scale = alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
    updates, head = _split_tensors(
        read_tensors(folder, WEIGHTS), table, str(folder), from_hub or table.from_hub
    )
    for layer in {key[:-2] for key in updates}:
        a, b = updates.get(f"{layer}.A"), updates.get(f"{layer}.B")
        if a is None or b is None:
            matrix = "A" if a is None else "B"
            raise CheckpointError(f"missing tensor: lora_{matrix} of {layer}", where=str(folder))
        if a.ndim != 2 or b.ndim != 2 or (len(a), b.shape[1]) != (rank, rank):
            what = f"the updates of {layer} are {tuple(a.shape)} and {tuple(b.shape)}, but the rank is {rank}"
            raise CheckpointError(what, where=str(folder))
    return Adapter(_split_qkv(updates), rank, alpha, scale, head)


def _split_tensors(
    tensors: dict[str, Tensor], table: NameTable, where: str, from_hub: FromHub
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split tensors into LoRA updates and fully trained layers, under our names."""
    parts = {name: part for names in _names(table) for part, name in names.items()}
    updates: dict[str, Tensor] = {}
    trained: dict[str, Tensor] = {}
    unexpected = []
    for key, tensor in tensors.items():
        stem, _, matrix = key.removesuffix(".weight").rpartition(".lora_")
        patterns = layer_patterns(stem.removeprefix(ROOT).removeprefix(table.prefix))
        matches = ((name, layer) for name, layer in patterns if name in parts and 0 < len(layer) < 7)
        name, layer = next(matches, ("", ""))
        if not key.startswith(ROOT) or not tensor.is_floating_point():
            unexpected.append(key)
        elif stem and matrix in ("A", "B") and name in parts:
            update = f"{int(layer)}.{parts[name]}.{matrix}"
            if update in updates and not updates[update].equal(tensor):
                raise CheckpointError(f"has two different updates of {update}", where=where)
            updates[update] = tensor.float()
        elif stem:
            unexpected.append(key)
        else:
            trained[key.removeprefix(ROOT)] = tensor.float()
    if unexpected:
        raise CheckpointError(list_names("unexpected tensors", unexpected), where=where)
    head: dict[str, Any] = from_hub(trained, where) if trained else {}
    if encoder_names := [name for name in head if not name.startswith(("head.", "pooling."))]:
        what = list_names("fully trained layers of the encoder are not supported", encoder_names)
        raise CheckpointError(what, where=where)
    return updates, head
