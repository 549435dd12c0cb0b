"""LoRA adapters in PEFT's format: ``adapter_config.json`` and ``adapter_model.safetensors``.

Tensor names are those of the Hub's checkpoints. If later releases of ``transformers`` use other module names
(``NameTable.newer``), tensors are saved under both names, so that ``peft`` opens the folder with any release.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.names import NameTable, layered, listing
from glassformer.checkpoints.settings import number, real, shown
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.errors import CheckpointError, NoSuchModelError, NotForThisModelError
from glassformer.finite import json_text

CONFIG, WEIGHTS, ROOT = "adapter_config.json", "adapter_model", "base_model.model."
QKV = "encoder.layers.{i}.attention.qkv"
# part of an encoder layer in ``nn.lora`` -> our name of its linear layer
OURS = {
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
    if QKV not in table.fused:
        what = "PEFT's format has no names for separate query, key and value updates of a fused matrix"
        raise NotForThisModelError(what, where="adapter", fix="Save the whole model")
    sets = _names(table)
    for key, tensor in updates.items():
        layer, part, matrix = key.split(".")
        layers = max(layers, int(layer) + 1)
        parts += [part] if part not in parts else []
        for names in sets:
            stem = f"{table.prefix if with_prefix else ''}{names[part].format(i=layer)}"
            tensors[f"{ROOT}{stem}.lora_{matrix}.weight"] = tensor
    whole = {name.rpartition(".")[0] for name in head or {}}
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
        "modules_to_save": sorted(stem.removeprefix(table.prefix) for stem in whole) or None,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(json_text(settings, indent=2, ascii=True) + "\n", encoding="utf-8")
    tensors |= {f"{ROOT}{name}": tensor for name, tensor in (head or {}).items()}
    write_tensors(folder, tensors, name=WEIGHTS)


def _names(table: NameTable) -> list[dict[str, str]]:
    """Part -> name of its layer: on the Hub, and in later releases of ``transformers`` if different."""

    def of(fused: Mapping[str, tuple[str, str, str]], single: Mapping[str, str]) -> dict[str, str]:
        thirds = dict(zip(("query", "key", "value"), fused.get(QKV, ()), strict=False))
        return thirds | {part: single[ours] for part, ours in OURS.items() if ours in single}

    later = {ours: name for ours, name in table.newer.items() if isinstance(name, str)}
    threes = {ours: names for ours, names in table.newer.items() if not isinstance(names, str)}
    return [names for names in (of(table.fused, table.encoder), of(threes, later)) if names]


def _targets(table: NameTable, parts: list[str], layers: int) -> list[str]:
    """``target_modules``: name suffixes that only match these parts; full names if there are none."""
    out: list[str] = []
    for names in _names(table):
        taken = [names[part] for part in parts]
        own = list(names.values())
        others = {*own, *table.encoder.values(), *table.heads.values()} - {*taken}
        for name in taken:
            words = name.partition("{i}.")[2].split(".")
            ends = (".".join(words[-n:]) for n in range(1, len(words) + 1))
            alone = [end for end in ends if not any(f".{other}".endswith(f".{end}") for other in others)]
            out += alone[:1] or [name.format(i=layer) for layer in range(layers)]
    return list(dict.fromkeys(out))


def load_adapter(folder: Path, table: NameTable, from_hub: FromHub | None = None) -> Adapter:
    """Load an adapter, with its head if it has one.

    Args:
        table: name table of the encoder's family.
        from_hub: converts fully trained layers to our names; None: by the table.

    Raises:
        CheckpointError: another kind of adapter, invalid settings, or tensors that are missing, unexpected or
            not matrices.
    """
    where = str(folder / CONFIG)
    if not folder.is_dir():
        raise NoSuchModelError("no such folder", where=str(folder), fix=f"Name the folder with {CONFIG}")
    settings = read_json(folder / CONFIG, MAX_BYTES)
    kind = settings.get("peft_type")
    odd = [key for key in UNSUPPORTED if settings.get(key)]
    if kind != "LORA" or odd or settings.get("bias", "none") not in (None, "none"):
        what = f"{odd[0]} = {shown(settings[odd[0]])}" if odd else f"bias = {shown(settings.get('bias'))}"
        what = what if kind == "LORA" else f"peft_type = {shown(kind)}"
        raise CheckpointError(f"only plain LORA is supported, not {what}", where=where)
    rank, alpha = number(settings, "r", where), real(settings, "lora_alpha", where, 8.0)
    scale = alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
    found, rest = _split_tensors(
        read_tensors(folder, WEIGHTS), table, str(folder), from_hub or table.from_hub
    )
    for slot in {key[:-2] for key in found}:
        sides = [found.get(f"{slot}.{side}") for side in "AB"]
        if sides[0] is None or sides[1] is None:
            side = "A" if sides[0] is None else "B"
            raise CheckpointError(f"missing tensor: lora_{side} of {slot}", where=str(folder))
        if any(t is None or t.ndim != 2 for t in sides) or (sides[0].shape[0], sides[1].shape[1]) != (
            rank,
            rank,
        ):
            shapes = f"{tuple(sides[0].shape)} and {tuple(sides[1].shape)}"
            raise CheckpointError(f"the updates of {slot} are {shapes}, the rank {rank}", where=str(folder))
    return Adapter(found, rank, alpha, scale, rest)


def _split_tensors(
    tensors: dict[str, Tensor], table: NameTable, where: str, from_hub: FromHub
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split tensors into LoRA updates and fully trained layers, under our names."""
    slots = {name: part for names in _names(table) for part, name in names.items()}
    found: dict[str, Tensor] = {}
    whole: dict[str, Tensor] = {}
    unexplained = []
    for key, tensor in tensors.items():
        stem, _, side = key.removesuffix(".weight").rpartition(".lora_")
        patterns = layered(stem.removeprefix(ROOT).removeprefix(table.prefix))
        known = ((name, layer) for name, layer in patterns if name in slots and 0 < len(layer) < 7)
        name, layer = next(known, ("", ""))
        if not key.startswith(ROOT) or not tensor.is_floating_point():
            unexplained.append(key)
        elif stem and side in ("A", "B") and name in slots:
            slot = f"{int(layer)}.{slots[name]}.{side}"
            if slot in found and not found[slot].equal(tensor):
                raise CheckpointError(f"holds two different updates of {slot}", where=where)
            found[slot] = tensor.float()
        elif stem:
            unexplained.append(key)
        else:
            whole[key.removeprefix(ROOT)] = tensor.float()
    if unexplained:
        raise CheckpointError(listing("unexplained tensors", unexplained), where=where)
    rest: dict[str, Any] = from_hub(whole, where) if whole else {}
    if deep := [name for name in rest if not name.startswith(("head.", "pooling."))]:
        raise CheckpointError(listing("whole layers of the encoder", deep), where=where)
    return found, rest
