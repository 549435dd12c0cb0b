"""Freezing of layers, LoRA, gradual unfreezing."""

from __future__ import annotations

import re

from torch import nn

from glassformer.errors import BadValueError, ConflictError, NotForThisModelError, counted
from glassformer.nn.lora import add_lora
from glassformer.train.callbacks import Callback
from glassformer.train.config import FitConfig
from glassformer.train.state import Training


def freeze(model: nn.Module, config: FitConfig) -> None:
    """Set ``requires_grad`` of all weights as configured, and add LoRA updates if configured."""
    n = config.train_layers
    if not hasattr(model.get_submodule("encoder"), "layers"):  # recurrent and convolutional classifiers
        keys = {"lora_rank": config.lora_rank, "unfreeze_every": config.unfreeze_every}
        key = "train_layers" if n is not None else next((key for key, value in keys.items() if value), None)
        if key is not None:
            what = "update" if key == "lora_rank" else "freeze"
            raise NotForThisModelError(
                f"this model has no encoder layers to {what}", where=key, fix="Leave it out"
            )
        return
    count = len(model.get_submodule("encoder").layers)  # type: ignore[arg-type]  # its ModuleList
    if config.lora_rank and (n is not None or config.unfreeze_every):
        raise ConflictError(
            "lora_rank already freezes the encoder", where="train_layers", fix="Set only one of them"
        )
    if config.unfreeze_every and config.train_layers is None:
        raise ConflictError(
            "unfreeze_every needs train_layers, the number of layers to train from the start",
            where="unfreeze_every",
            fix="Set train_layers = 0 or more",
        )
    if n is not None and n > count:
        what = f"train_layers = {n}, but the encoder has {counted(count, 'layer')}"
        raise BadValueError(what, where="train_layers", fix=f"Use 0 to {count}")
    if config.lora_rank:
        add_lora(model, config.lora_rank, config.lora_alpha, config.lora_targets)
    elif n is not None and not config.unfreeze_every:
        _train_last_layers(model, n)


def num_frozen_layers(model: nn.Module, config: FitConfig) -> int:
    """The number of lowest encoder layers that, like the embeddings, stay frozen throughout a fit."""
    if config.train_layers is None or config.epochs is None:
        return 0
    unfrozen = (config.epochs - 1) // config.unfreeze_every if config.unfreeze_every else 0
    count = len(model.get_submodule("encoder").layers)  # type: ignore[arg-type]  # its ModuleList
    return max(count - config.train_layers - unfrozen, 0)


def _train_last_layers(model: nn.Module, layers: int) -> None:
    """Train only the head and the last ``layers`` encoder layers.

    With all layers, also train the embeddings, except frozen word vectors.
    """
    count = len(model.get_submodule("encoder").layers)  # type: ignore[arg-type]  # its ModuleList
    embeddings = getattr(getattr(model, "embeddings", None), "config", None)
    frozen = "embeddings.tokens.weight" if getattr(embeddings, "frozen", False) else None
    for name, p in model.named_parameters():
        p.requires_grad_(name != frozen and _is_trained(name, count, layers))


def _is_trained(name: str, count: int, layers: int) -> bool:
    if name.startswith(("embeddings.", "encoder.relative.")):  # trained only if all layers are
        return layers >= count
    match = re.match(r"encoder\.layers\.(\d+)\.", name)
    if match:
        return int(match[1]) >= count - layers
    return layers > 0 if name.startswith("encoder.") else True  # the final norm counts as the last layer


class Unfreeze(Callback):
    """Gradual unfreezing (Howard and Ruder, 2018): one more encoder layer after every ``every`` epochs."""

    def __init__(self, begin: int, every: int):
        self.begin, self.every = begin, every

    def start(self, training: Training) -> None:
        self._apply(training)

    def step(self, training: Training, info) -> None:
        if training.cursor == 0:
            self._apply(training)

    def _apply(self, training: Training) -> None:
        _train_last_layers(training.model, self.begin + training.epoch // self.every)

    def end(self, training: Training) -> None:
        for p in training.model.parameters():
            p.requires_grad_(True)
