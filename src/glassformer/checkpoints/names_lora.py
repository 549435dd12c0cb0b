"""LoRA adapters in PEFT's format: ``adapter_config.json`` and ``adapter_model.safetensors``.

Tensor names are those of the Hub's checkpoints. If later releases of ``transformers`` use other module names
(``NameTable.new_names``), tensors are saved under both, so that ``peft`` opens the folder with any release.
Where the Hub has one matrix for queries, keys and values (ModernBERT's ``Wqkv``), their updates are one, too.
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
from glassformer.checkpoints.names import NameTable, layer_patterns, listing
from glassformer.checkpoints.settings import number, real, shown
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.errors import CheckpointError, NoSuchModelError
from glassformer.finite import json_text

CONFIG, WEIGHTS, ROOT = "adapter_config.json", "adapter_model", "base_model.model."
QKV = "encoder.layers.{i}.attention.qkv"
THIRDS = ("query", "key", "value")
# part of an encoder layer in ``nn.lora`` -> our name of its linear layer
LAYER_NAMES = {
    "qkv": QKV,
    "out": "encoder.layers.{i}.attention.out",
    "up": "encoder.layers.{i}.feed_forward.up",
    "down": "encoder.layers.{i}.feed_forward.down",
}
# settings of other methods, with which the tensors have another meaning
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
MAX_BYTES = 1 << 20
FromHub = Callable[[dict[str, Tensor], str], dict[str, Tensor]]


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter.

    Args:
        updates: see ``nn.lora.adapter``.
        rank, alpha: LoRA settings.
        scale: factor of the low-rank products, usually alpha / rank.
        head: fully trained layers (only pooling and head), under our names.
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
    """Write an adapter.

    Args:
        table: name table of the encoder's family.
        updates: see ``nn.lora.adapter``.
        with_prefix: whether the base is a Hub model with a head, whose encoder's names have the prefix.
        head: fully trained layers, under the Hub's names.
    """
    tensors, parts, layers = {}, [], 0
    if QKV in table.encoder:
        updates, rank, alpha = _fuse(updates, rank, alpha)
    name_sets = _names(table)
    for key, tensor in updates.items():
        layer, part, matrix = key.split(".")
        layers = max(layers, int(layer) + 1)
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
        "target_modules": _targets(table, parts, layers),
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


def _fuse(updates: Mapping[str, Tensor], rank: int, alpha: float) -> tuple[dict[str, Tensor], int, float]:
    """Updates of queries, keys and values as one (``{i}.qkv``), with its rank and alpha.

    The n updates of rank r become one of rank n r: their A are stacked, their B are the blocks of a diagonal.
    An adapter has one rank, so the other updates are padded with zeros.
    """
    used = [part for part in THIRDS if any(key.split(".")[1] == part for key in updates)]
    total = rank * max(len(used), 1)
    fused: dict[str, Tensor] = {}
    for key, tensor in updates.items():
        layer, part, matrix = key.split(".")
        third = part in THIRDS
        before = rank * used.index(part) if third else 0
        ranks, rows = (before, total - rank - before), (0, 0)
        if third and matrix == "B":
            rows = (len(tensor) * THIRDS.index(part), len(tensor) * (2 - THIRDS.index(part)))
        padded = pad(tensor, (*ranks, *rows) if matrix == "B" else (0, 0, *ranks))
        slot = f"{layer}.{'qkv' if third else part}.{matrix}"
        fused[slot] = fused[slot] + padded if slot in fused else padded
    return fused, total, alpha * total / rank


def _split_qkv(updates: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The reverse: updates of queries, keys and values, which share their A."""
    out: dict[str, Tensor] = {}
    for key, tensor in updates.items():
        layer, part, matrix = key.split(".")
        thirds = tensor.tensor_split(3) if matrix == "B" else (tensor,) * 3
        split = zip(THIRDS, thirds, strict=True) if part == "qkv" else [(part, tensor)]
        out |= {f"{layer}.{name}.{matrix}": third for name, third in split}
    return out


def _names(table: NameTable) -> list[dict[str, str]]:
    """Part -> name of its layer: on the Hub, and in later releases of ``transformers`` if different."""

    def by_part(fused: Mapping[str, tuple[str, str, str]], single: Mapping[str, str]) -> dict[str, str]:
        thirds = dict(zip(THIRDS, fused.get(QKV, ()), strict=False))
        return thirds | {part: single[ours] for part, ours in LAYER_NAMES.items() if ours in single}

    newer = {ours: name for ours, name in table.new_names.items() if isinstance(name, str)}
    qkv = {ours: names for ours, names in table.new_names.items() if not isinstance(names, str)}
    return [names for names in (by_part(table.fused, table.encoder), by_part(qkv, newer)) if names]


def _targets(table: NameTable, parts: list[str], layers: int) -> list[str]:
    """``target_modules``: name suffixes that only match these parts; full names if there are none."""
    out: list[str] = []
    for names in _names(table):
        targets = [names[part] for part in parts]
        names_here = list(names.values())
        other_names = {*names_here, *table.encoder.values(), *table.heads.values()} - {*targets}
        for name in targets:
            words = name.partition("{i}.")[2].split(".")
            suffixes = (".".join(words[-n:]) for n in range(1, len(words) + 1))
            unique = [end for end in suffixes if not any(f".{o}".endswith(f".{end}") for o in other_names)]
            out += unique[:1] or [name.format(i=layer) for layer in range(layers)]
    return list(dict.fromkeys(out))


def load_adapter(folder: Path, table: NameTable, from_hub: FromHub | None = None) -> Adapter:
    """Load an adapter, with its head if it has one.

    Args:
        table: name table of the encoder's family.
        from_hub: converts fully trained layers to our names; None: ``table`` does.

    Raises:
        CheckpointError: another kind of adapter, invalid settings, or tensors that are missing, unexpected or
            not matrices.
    """
    where = str(folder / CONFIG)
    if not folder.is_dir():
        raise NoSuchModelError("no such folder", where=str(folder), fix=f"Name the folder with {CONFIG}")
    settings = read_json(folder / CONFIG, MAX_BYTES)
    kind = settings.get("peft_type")
    bad = [key for key in UNSUPPORTED if settings.get(key)]
    if kind != "LORA" or bad or settings.get("bias", "none") not in (None, "none"):
        what = f"{bad[0]} = {shown(settings[bad[0]])}" if bad else f"bias = {shown(settings.get('bias'))}"
        what = what if kind == "LORA" else f"peft_type = {shown(kind)}"
        raise CheckpointError(f"only plain LORA is supported, not {what}", where=where)
    rank, alpha = number(settings, "r", where), real(settings, "lora_alpha", where, 8.0)
    scale = alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
    updates, head = _split_tensors(
        read_tensors(folder, WEIGHTS), table, str(folder), from_hub or table.from_hub
    )
    for slot in {key[:-2] for key in updates}:
        sides = [updates.get(f"{slot}.{side}") for side in "AB"]
        if sides[0] is None or sides[1] is None:
            side = "A" if sides[0] is None else "B"
            raise CheckpointError(f"missing tensor: lora_{side} of {slot}", where=str(folder))
        if any(t is None or t.ndim != 2 for t in sides) or (sides[0].shape[0], sides[1].shape[1]) != (
            rank,
            rank,
        ):
            shapes = f"{tuple(sides[0].shape)} and {tuple(sides[1].shape)}"
            raise CheckpointError(f"the updates of {slot} are {shapes}, the rank {rank}", where=str(folder))
    return Adapter(_split_qkv(updates), rank, alpha, scale, head)


def _split_tensors(
    tensors: dict[str, Tensor], table: NameTable, where: str, from_hub: FromHub
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split tensors into LoRA updates and fully trained layers, under our names."""
    slots = {name: part for names in _names(table) for part, name in names.items()}
    updates: dict[str, Tensor] = {}
    trained: dict[str, Tensor] = {}
    unexpected = []
    for key, tensor in tensors.items():
        stem, _, side = key.removesuffix(".weight").rpartition(".lora_")
        patterns = layer_patterns(stem.removeprefix(ROOT).removeprefix(table.prefix))
        known = ((name, layer) for name, layer in patterns if name in slots and 0 < len(layer) < 7)
        name, layer = next(known, ("", ""))
        if not key.startswith(ROOT) or not tensor.is_floating_point():
            unexpected.append(key)
        elif stem and side in ("A", "B") and name in slots:
            slot = f"{int(layer)}.{slots[name]}.{side}"
            if slot in updates and not updates[slot].equal(tensor):
                raise CheckpointError(f"holds two different updates of {slot}", where=where)
            updates[slot] = tensor.float()
        elif stem:
            unexpected.append(key)
        else:
            trained[key.removeprefix(ROOT)] = tensor.float()
    if unexpected:
        raise CheckpointError(listing("unexpected tensors", unexpected), where=where)
    head: dict[str, Any] = from_hub(trained, where) if trained else {}
    if inner := [name for name in head if not name.startswith(("head.", "pooling."))]:
        raise CheckpointError(listing("fully trained layers of the encoder", inner), where=where)
    return updates, head
