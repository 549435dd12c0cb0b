"""Name -> from-scratch architecture. Names of trained weights are in ``checkpoints/hub.py``."""

from __future__ import annotations

from collections.abc import Callable

from glassformer.models.bert import BertConfig, encoder_base, encoder_mini, encoder_small

TEXT_ARCHITECTURES: dict[str, Callable[[int], BertConfig]] = {
    "encoder-mini": encoder_mini,
    "encoder-small": encoder_small,
    "encoder-base": encoder_base,
}
