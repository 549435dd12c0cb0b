"""BERT's tensors under their two names: ours, and the Hub's.

``{i}`` is the layer. Queries, keys and values are three tensors there and one here: ``FUSED``. What is left
out on purpose is written out too; every other key is an error that names it.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

from glassformer.errors import CheckpointError

# ours -> the Hub's, without the "bert." that models with a head put in front of the encoder's keys
ENCODER = {
    "embeddings.tokens": "embeddings.word_embeddings",
    "embeddings.positions": "embeddings.position_embeddings",
    "embeddings.segments": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    "encoder.layers.{i}.attention.out": "encoder.layer.{i}.attention.output.dense",
    "encoder.layers.{i}.norm1": "encoder.layer.{i}.attention.output.LayerNorm",
    "encoder.layers.{i}.feed_forward.up": "encoder.layer.{i}.intermediate.dense",
    "encoder.layers.{i}.feed_forward.down": "encoder.layer.{i}.output.dense",
    "encoder.layers.{i}.norm2": "encoder.layer.{i}.output.LayerNorm",
    "pooling.dense": "pooler.dense",
}
FUSED = {
    "encoder.layers.{i}.attention.qkv": tuple(
        f"encoder.layer.{{i}}.attention.self.{part}" for part in ("query", "key", "value")
    )
}
HEADS = {
    "head.out": "classifier",
    "mlm.dense": "cls.predictions.transform.dense",
    "mlm.norm": "cls.predictions.transform.LayerNorm",
    "nsp": "cls.seq_relationship",
}
MLM_BIAS = ("mlm.bias", "cls.predictions.bias")  # the one name without .weight or .bias behind it
DROPPED = {
    "embeddings.position_ids": "a constant 0, 1, 2, ...",
    "cls.predictions.decoder.weight": "tied to the token table",
    "cls.predictions.decoder.bias": "the same as cls.predictions.bias",
}
OLD_ENDINGS = {"gamma": "weight", "beta": "bias"}  # of layer norms in the first checkpoints


def from_hub(tensors: dict[str, Tensor], where: str) -> dict[str, Tensor]:
    """The Hub's tensors under our names.

    Raises:
        CheckpointError: keys that no table explains, a decoder that is not tied, a missing third of q, k, v.
    """
    to_ours = {theirs: ours for ours, theirs in (ENCODER | HEADS).items()}
    parts = {name: (ours, n) for ours, names in FUSED.items() for n, name in enumerate(names)}
    out: dict[str, Tensor] = {}
    thirds: dict[str, dict[int, Tensor]] = {}
    unexplained = []
    plain = {key.removeprefix("bert."): key for key in tensors}
    for key, full in plain.items():
        if key in DROPPED:
            continue
        if key == MLM_BIAS[1]:
            out[MLM_BIAS[0]] = tensors[full]
            continue
        stem, _, ending = key.rpartition(".")
        ending = OLD_ENDINGS.get(ending, ending)
        layer = re.search(r"(?<=encoder\.layer\.)\d+", stem)
        number = layer.group() if layer else ""
        pattern = re.sub(r"(?<=encoder\.layer\.)\d+", "{i}", stem)
        if ending not in ("weight", "bias"):
            unexplained.append(full)
        elif pattern in to_ours:
            out[f"{to_ours[pattern].format(i=number)}.{ending}"] = tensors[full]
        elif pattern in parts:
            ours, n = parts[pattern]
            thirds.setdefault(f"{ours.format(i=number)}.{ending}", {})[n] = tensors[full]
        else:
            unexplained.append(full)
    if unexplained:
        raise CheckpointError(_listing("unexplained tensors", unexplained), where=where)
    for name, three in thirds.items():
        if len(three) < 3:
            part = ("query", "key", "value")[min({0, 1, 2} - set(three))]
            raise CheckpointError(f"missing tensor: the {part} of {name}", where=where)
        out[name] = torch.cat([three[n] for n in range(3)])
    _check_tied(tensors, plain, where)
    return out


def _check_tied(tensors: dict[str, Tensor], plain: dict[str, str], where: str) -> None:
    for key, twin in (
        ("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ):
        if key in plain and twin in plain and not torch.equal(tensors[plain[key]], tensors[plain[twin]]):
            raise CheckpointError(
                f"{plain[key]} differs from {plain[twin]}: untied heads are not supported", where=where
            )


def to_hub(tensors: dict[str, Tensor], with_prefix: bool) -> dict[str, Tensor]:
    """Our tensors under the Hub's names; ``with_prefix`` puts ``bert.`` before the encoder's."""
    out: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        if key == MLM_BIAS[0]:
            out[MLM_BIAS[1]] = tensor
            continue
        stem, _, ending = key.rpartition(".")
        number = (re.findall(r"(?<=encoder\.layers\.)\d+", stem) or [""])[0]
        pattern = re.sub(r"(?<=encoder\.layers\.)\d+", "{i}", stem)
        prefix = "bert." if with_prefix else ""
        if pattern in FUSED:
            for name, third in zip(FUSED[pattern], tensor.chunk(3), strict=True):
                out[f"{prefix}{name.format(i=number)}.{ending}"] = third
        elif pattern in ENCODER:
            out[f"{prefix}{ENCODER[pattern].format(i=number)}.{ending}"] = tensor
        else:
            out[f"{HEADS[pattern]}.{ending}"] = tensor
    return out


def _listing(what: str, names: list[str]) -> str:
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return f"{what}: {', '.join(sorted(names)[:6])}{more}"
