"""ViT's tensors under their two names: ours, and the Hub's."""

from __future__ import annotations

import torch
from torch import Tensor

from glassformer.checkpoints.names import NameTable

VIT = NameTable(
    prefix="vit.",
    encoder={
        "embeddings.projection": "embeddings.patch_embeddings.projection",
        "encoder.layers.{i}.attention.out": "encoder.layer.{i}.attention.output.dense",
        "encoder.layers.{i}.norm1": "encoder.layer.{i}.layernorm_before",
        "encoder.layers.{i}.feed_forward.up": "encoder.layer.{i}.intermediate.dense",
        "encoder.layers.{i}.feed_forward.down": "encoder.layer.{i}.output.dense",
        "encoder.layers.{i}.norm2": "encoder.layer.{i}.layernorm_after",
        "encoder.final_norm": "layernorm",
        "pooling.dense": "pooler.dense",
    },
    fused={
        "encoder.layers.{i}.attention.qkv": (
            "encoder.layer.{i}.attention.attention.query",
            "encoder.layer.{i}.attention.attention.key",
            "encoder.layer.{i}.attention.attention.value",
        )
    },
    heads={"head.out": "classifier"},
    whole={
        "embeddings.cls": "embeddings.cls_token",
        "embeddings.positions": "embeddings.position_embeddings",
    },
    dropped={"embeddings.mask_token": "stands for hidden patches in masked pre-training only"},
)
PATCHES = "embeddings.projection.weight"


def from_hub(tensors: dict[str, Tensor], where: str) -> dict[str, Tensor]:
    """The Hub's tensors under our names: no leading axes of 1, and a convolution's kernel as a matrix.

    Raises:
        CheckpointError: keys that the table does not explain, or a missing third of q, k, v.
    """
    out = VIT.from_hub(tensors, where)
    for key in ("embeddings.cls", "embeddings.positions"):
        if key in out and out[key].ndim == 3:
            out[key] = out[key][0, 0] if key.endswith("cls") else out[key][0]
    if PATCHES in out and out[PATCHES].ndim == 4:
        out[PATCHES] = out[PATCHES].flatten(1)  # [D, C, p, q] -> [D, C * p * q]
    for key in [key for key in out if key.endswith("attention.qkv.weight")]:
        bias = key.removesuffix("weight") + "bias"
        out.setdefault(bias, torch.zeros(len(out[key])))  # qkv_bias = false: the same as zeros
    return out


def to_hub(
    tensors: dict[str, Tensor], with_prefix: bool, channels: int, patch: tuple[int, ...]
) -> dict[str, Tensor]:
    """Our tensors under the Hub's names and in its shapes; ``with_prefix`` puts ``vit.`` before the encoder's."""
    shaped = dict(tensors)
    shaped["embeddings.cls"] = tensors["embeddings.cls"][None, None]
    shaped["embeddings.positions"] = tensors["embeddings.positions"][None]
    weight = tensors[PATCHES]
    shaped[PATCHES] = weight.view(len(weight), channels, *patch)
    return VIT.to_hub(shaped, with_prefix)
