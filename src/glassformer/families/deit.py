"""DeiT (Touvron et al., 2021), distilled: ViT with a distillation token.

The distillation token is a register token with a position. ``DeiTForImageClassificationWithTeacher`` returns
the mean of two linear heads, on [CLS] and on this token. Here one equivalent linear head reads the
concatenation of both tokens (``pooling="first-two"``). DeiTs without distillation are published as ``vit``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import CheckpointError
from glassformer.families import image, vit
from glassformer.models.image import ImageEncoderConfig

NAMES = replace(
    vit.NAMES,
    prefix="deit.",
    full_names={**vit.NAMES.full_names, "embeddings.registers": "embeddings.distillation_token"},
)
TWO_HEADS = ("cls_classifier", "distillation_classifier")
WEIGHTS, BIASES = ([f"{head}.{part}" for head in TWO_HEADS] for part in ("weight", "bias"))


def from_hub(
    tensors: dict[str, Tensor], where: str, config: ImageEncoderConfig | None = None
) -> dict[str, Tensor]:
    """Convert the Hub's tensors to ours; two classification heads become one that computes their mean."""
    tensors = dict(tensors)
    if not tensors.keys().isdisjoint(head_keys := (*WEIGHTS, *BIASES)):
        if missing := [key for key in head_keys if key not in tensors]:
            raise CheckpointError(f"missing tensors: {', '.join(missing)}", where=where)
        weights, biases = ([tensors.pop(key) / 2 for key in keys] for keys in (WEIGHTS, BIASES))
        if len({t.shape for t in weights}) > 1 or len({t.shape for t in biases}) > 1:
            raise CheckpointError(f"{' and '.join(TWO_HEADS)} have different shapes", where=where)
        tensors |= {"classifier.weight": torch.cat(weights, -1), "classifier.bias": biases[0] + biases[1]}
    return image.from_hub(tensors, where, config, names=NAMES)


def to_hub(tensors: dict[str, Tensor], with_prefix: bool, config: ImageEncoderConfig) -> dict[str, Tensor]:
    """Convert our tensors to the Hub's; ``with_prefix``: encoder names start with ``deit.``."""
    out = image.to_hub(tensors, with_prefix, config, names=NAMES)
    if config.pooling == "first-two" and "classifier.weight" in out:
        halves = (2 * out.pop("classifier.weight")).chunk(2, -1)
        bias = out.pop("classifier.bias")
        out |= dict(zip(WEIGHTS, halves, strict=True)) | {key: bias.clone() for key in BIASES}
    return out


def deit(
    image_size: tuple[int, ...] = (224, 224),
    patch_size: tuple[int, ...] = (16, 16),
    d_model: int = 768,
    num_layers: int = 12,
    num_heads: int = 12,
    d_ff: int = 3072,
    **options,
) -> ImageEncoderConfig:
    """DeiT-B, distilled: L12 H768 A12, 87 M parameters."""
    config = vit.vit(
        image_size,
        patch_size,
        d_model=d_model,
        num_layers=num_layers,
        num_heads=num_heads,
        d_ff=d_ff,
        **options,
    )
    embedding = replace(config.embedding, registers=1, register_positions=True)
    return replace(config, embedding=embedding)


def write(config: ImageEncoderConfig) -> dict[str, Any]:
    return vit.write(config) | {"model_type": "deit"}


DEIT = image.image_family(
    "deit",
    "DeiT",
    deit,
    (partial(vit.read, base=deit()), write, from_hub, to_hub),
    NAMES,
    pooling="first",
    more_classes={"first-two": "DeiTForImageClassificationWithTeacher"},
    examples=("facebook/deit-base-distilled-patch16-224", "facebook/deit-tiny-distilled-patch16-224"),
)
