"""Name -> from-scratch architecture. Names of trained weights are in ``checkpoints/hub.py``."""

from __future__ import annotations

from collections.abc import Callable

from glassformer.models.bert import BertConfig, encoder_base, encoder_mini, encoder_small
from glassformer.models.vit import ViTConfig, vit_base, vit_large, vit_one, vit_small, vit_tiny

TEXT_ARCHITECTURES: dict[str, Callable[[int], BertConfig]] = {
    "encoder-mini": encoder_mini,
    "encoder-small": encoder_small,
    "encoder-base": encoder_base,
}

IMAGE_ARCHITECTURES: dict[str, Callable[..., ViTConfig]] = {
    "vit-tiny": vit_tiny,
    "vit-small": vit_small,
    "vit-base": vit_base,
    "vit-large": vit_large,
    "vit-one": vit_one,
}
