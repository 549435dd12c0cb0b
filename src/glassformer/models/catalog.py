"""Name -> from-scratch architecture. Names of trained weights are in ``checkpoints/hub.py``."""

from __future__ import annotations

from collections.abc import Callable

from glassformer.models.image import ViTConfig, vit_base, vit_large, vit_one, vit_small, vit_tiny
from glassformer.models.rnn import RnnConfig, gru, lstm
from glassformer.models.text import BertConfig, encoder_base, encoder_mini, encoder_small
from glassformer.models.textcnn import TextCnnConfig, textcnn

TEXT_ARCHITECTURES: dict[str, Callable[[int], BertConfig | RnnConfig | TextCnnConfig]] = {
    "encoder-mini": encoder_mini,
    "encoder-small": encoder_small,
    "encoder-base": encoder_base,
    "lstm": lstm,
    "gru": gru,
    "textcnn": textcnn,
}

IMAGE_ARCHITECTURES: dict[str, Callable[..., ViTConfig]] = {
    "vit-tiny": vit_tiny,
    "vit-small": vit_small,
    "vit-base": vit_base,
    "vit-large": vit_large,
    "vit-one": vit_one,
}
