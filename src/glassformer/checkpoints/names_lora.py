"""A LoRA adapter in PEFT's file layout: ``adapter_config.json`` and ``adapter_model.safetensors``.

The names are those of the Hub's checkpoints. ``peft`` opens the folder on a model whose modules bear these
names: BERT, and ViT in transformers 4; ViT in transformers 5 calls its own modules otherwise.
"""

from __future__ import annotations

import json
from pathlib import Path

from torch import Tensor

from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.names import NameTable
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.errors import CheckpointError

QKV = "encoder.layers.{i}.attention.qkv"
PLACES = {"query": 0, "value": 2}


def _stem(table: NameTable, part: str, layer: str, prefix: bool) -> str:
    name = table.fused[QKV][PLACES[part]].format(i=layer)
    return f"base_model.model.{table.prefix if prefix else ''}{name}"


def save_adapter(
    folder: Path,
    table: NameTable,
    updates: dict[str, Tensor],
    rank: int,
    alpha: float,
    *,
    with_prefix: bool = False,
) -> None:
    """Write an adapter.

    Args:
        table: the names of the family that the encoder is of.
        updates: as ``nn.lora.adapter`` gives them.
        with_prefix: the base is a Hub model with a head, whose encoder's keys begin with ``bert.`` or
            ``vit.``.
    """
    tensors = {}
    for key, tensor in updates.items():
        layer, part, matrix = key.split(".")
        tensors[f"{_stem(table, part, layer, with_prefix)}.lora_{matrix}.weight"] = tensor
    settings = {
        "peft_type": "LORA", "r": rank, "lora_alpha": alpha, "lora_dropout": 0.0, "bias": "none",
        "target_modules": ["query", "value"], "task_type": None, "inference_mode": True,
        "fan_in_fan_out": False, "base_model_name_or_path": None,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(settings, indent=2) + "\n"
    (folder / "adapter_config.json").write_text(text, encoding="utf-8")
    write_tensors(folder, tensors, name="adapter_model")


def load_adapter(folder: Path, table: NameTable) -> tuple[dict[str, Tensor], int, float]:
    """The updates of an adapter on queries and values, its rank and its alpha.

    Raises:
        CheckpointError: another kind of adapter, or tensors that are not explained.
    """
    settings = read_json(folder / "adapter_config.json")
    modules = set(settings.get("target_modules") or ())
    if settings.get("peft_type") != "LORA" or modules != {"query", "value"}:
        raise CheckpointError(
            "only LoRA on query and value is read", where=str(folder / "adapter_config.json")
        )
    tensors, out = read_tensors(folder, "adapter_model"), {}
    layers = 1 + max((int(p) for key in tensors for p in key.split(".") if p.isdigit()), default=-1)
    for layer in range(layers):
        for part in PLACES:
            for matrix in "AB":
                names = [f"{_stem(table, part, str(layer), p)}.lora_{matrix}.weight" for p in (False, True)]
                found = [name for name in names if name in tensors]
                if not found:
                    raise CheckpointError(f"missing tensor: {names[0]}", where=str(folder))
                out[f"{layer}.{part}.{matrix}"] = tensors.pop(found[0])
    if tensors:
        raise CheckpointError(f"unexplained tensors: {', '.join(sorted(tensors)[:3])}", where=str(folder))
    return out, int(settings["r"]), float(settings["lora_alpha"])
