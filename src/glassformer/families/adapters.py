"""Adapters and their models: low-rank updates in PEFT's layout become part of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.checkpoints.names_lora import load_adapter
from glassformer.errors import CheckpointError, ConfigError
from glassformer.families import family_of, names_of
from glassformer.models.backbone import BELOW
from glassformer.nn.lora import part_weights


@torch.no_grad()
def add_adapter(model: Any, folder: str | Path, order: Sequence[int] | None = None) -> None:
    """Add the updates of an adapter to the weights of a Transformer, and load the head that it may hold.

    Nothing changes unless all of it fits.

    Args:
        order: ``[C]``, which of the base's classes each row of the model's head is; None: the same ones.

    Raises:
        ConfigError: the model has no layers that could have updates.
        CheckpointError: no such folder, another kind of adapter, or tensors that do not fit the model.
    """
    if not getattr(model, "has_attention", False) or not hasattr(model.encoder, "layers"):
        raise ConfigError(
            "this model has no layers with low-rank updates", where="adapter", fix="Take a Transformer"
        )
    where = str(folder)
    hub = family_of(model.config).hub
    whole = hub and (lambda tensors, where: hub.from_hub(tensors, where, model.config))
    found = load_adapter(Path(folder), names_of(model.config), whole)
    if not found.updates and not found.head:
        raise CheckpointError("holds no updates", where=where)
    weights, state = part_weights(model), model.state_dict()
    for slot in {key[:-2] for key in found.updates}:
        shape = len(found.updates[f"{slot}.B"]), found.updates[f"{slot}.A"].shape[1]
        if slot not in weights:
            count = len(model.encoder.layers)
            raise CheckpointError(f"updates of {slot}, but the model has {count} layers", where=where)
        if shape != tuple(weights[slot].shape):
            what = f"the update of {slot} is {shape}, the model's weight {tuple(weights[slot].shape)}"
            raise CheckpointError(what, where=where, fix="Load the model that the adapter was trained on")
    for name, tensor in found.head.items():
        own = tuple(state[name].shape) if name in state else "not there"
        if own != tuple(tensor.shape):
            what = f"{name} is {tuple(tensor.shape)}, in the model it is {own}"
            raise CheckpointError(what, where=where, fix="Load it into a model with as many classes")
    for slot in {key[:-2] for key in found.updates}:
        up, down = (found.updates[f"{slot}.{side}"].to(weights[slot].device) for side in "BA")
        weights[slot].add_((found.scale * (up @ down)).to(weights[slot].dtype))
    for name, tensor in found.head.items():
        state[name].copy_(tensor[list(order)] if order and name.startswith("head.out.") else tensor)


def head_in_hub(model: Any) -> dict[str, Tensor]:
    """Pooling and head of a classifier under the Hub's names.

    Raises:
        ConfigError: the Hub's class has another pooling or head.
    """
    config = model.config
    family = family_of(config)
    if family.hub is None or not family.hub.is_own_head(config):
        raise ConfigError(
            "the Hub's layout has no such pooling and head",
            where="head",
            fix="Write the updates alone: head=False",
        )
    tensors = model.state_dict()
    below = {name: tensor for name, tensor in tensors.items() if name.startswith(BELOW)}
    encoder = family.hub.to_hub(below, True, config).keys()
    return {name: t for name, t in family.hub.to_hub(tensors, True, config).items() if name not in encoder}
