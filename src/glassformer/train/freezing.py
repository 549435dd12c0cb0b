"""Which weights learn: all, the head alone, the head and the last layers, or one more layer
after the other.
"""

from __future__ import annotations

import re

from torch import nn

from glassformer.errors import BadValueError, ConflictError, NotForThisModelError
from glassformer.nn.lora import add_lora
from glassformer.train.callbacks import Callback
from glassformer.train.config import FitConfig
from glassformer.train.state import Training


def freeze(model: nn.Module, config: FitConfig) -> None:
    """Mark by ``requires_grad`` what a fit will ever change, and add low-rank updates where asked for.

    Raises:
        ConfigError: more layers than there are, or settings that exclude each other.
    """
    n = config.train_layers
    if not hasattr(model.get_submodule("encoder"), "layers"):  # recurrent and convolutional classifiers
        given = {"lora_rank": config.lora_rank, "unfreeze_every": config.unfreeze_every}
        key = "train_layers" if n is not None else next((key for key, value in given.items() if value), None)
        if key is not None:
            what = "update" if key == "lora_rank" else "freeze"
            raise NotForThisModelError(
                f"this model has no encoder layers to {what}", where=key, fix="Leave it out"
            )
        return
    count = len(model.get_submodule("encoder").layers)  # type: ignore[arg-type]  # its ModuleList
    if config.lora_rank and (n is not None or config.unfreeze_every):
        raise ConflictError(
            "lora_rank leaves the encoder as it is", where="train_layers", fix="Choose one of them"
        )
    if config.unfreeze_every and config.train_layers is None:
        raise ConflictError(
            "unfreeze_every says when layers follow, train_layers with how many it begins",
            where="unfreeze_every",
            fix="Set train_layers = 0, or as many as shall learn from the start",
        )
    if n is not None and n > count:
        raise BadValueError(f"train_layers = {n}, the encoder has {count}", where="train_layers")
    if config.lora_rank:
        add_lora(model, config.lora_rank, config.lora_alpha, config.lora_targets)
    elif n is not None and not config.unfreeze_every:
        _open(model, n)


def fixed_layers(model: nn.Module, config: FitConfig) -> int:
    """How many of the lowest encoder layers no step of a fit changes; where any is, nor the embeddings."""
    if config.train_layers is None or config.epochs is None:
        return 0
    more = (config.epochs - 1) // config.unfreeze_every if config.unfreeze_every else 0
    count = len(model.get_submodule("encoder").layers)  # type: ignore[arg-type]  # its ModuleList
    return max(count - config.train_layers - more, 0)


def _open(model: nn.Module, layers: int | None) -> None:
    """Let the head and the last ``layers`` encoder layers learn; with all of them the embeddings too, but for
    vectors that were given to stay as they are."""
    count = len(model.get_submodule("encoder").layers)  # type: ignore[arg-type]  # its ModuleList
    table = getattr(getattr(model, "embeddings", None), "config", None)
    kept = "embeddings.tokens.weight" if getattr(table, "frozen", False) else None
    for name, p in model.named_parameters():
        p.requires_grad_(name != kept and _learns(name, count, count if layers is None else layers))


def _learns(name: str, count: int, layers: int) -> bool:
    if name.startswith(("embeddings.", "encoder.relative.")):  # what all layers build on
        return layers >= count
    found = re.match(r"encoder\.layers\.(\d+)\.", name)
    if found:
        return int(found[1]) >= count - layers
    return layers > 0 if name.startswith("encoder.") else True  # the final norm goes with the last layer


class Unfreeze(Callback):
    """One more encoder layer learns after every so many epochs (Howard and Ruder, 2018). What is open follows
    from the epoch alone, so a resumed training opens the same.
    """

    def __init__(self, begin: int, every: int):
        self.begin, self.every = begin, every

    def start(self, training: Training) -> None:
        self._apply(training)

    def step(self, training: Training, info) -> None:
        if training.cursor == 0:
            self._apply(training)

    def _apply(self, training: Training) -> None:
        _open(training.model, self.begin + training.epoch // self.every)

    def end(self, training: Training) -> None:
        for p in training.model.parameters():
            p.requires_grad_(True)
