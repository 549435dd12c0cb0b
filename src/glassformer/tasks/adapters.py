"""LoRA adapters and pruning of fitted models."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.checkpoints.names_lora import save_adapter
from glassformer.errors import BadValueError, ConfigError, NotForThisModelError
from glassformer.explain.methods import make_subject
from glassformer.explain.subject import differentiable_model, run_rows
from glassformer.families import hub_names
from glassformer.families.pretrained import add_adapter, head_in_hub_format
from glassformer.nn.feedforward import FeedForward, GatedFeedForward
from glassformer.runtime import isolated_torch, runs_isolated_with_gradients
from glassformer.sklearn_base import check_is_fitted

# Fitted attribute that depends on the weights -> its value after the weights were changed.
RESET_VALUES = {
    "int8_": None,
    "temperature_": 1.0,
    "threshold_": None,
    "abstain_below_": None,
    "errors_": np.zeros(0),
}


def reset_measurements(est: Any) -> None:
    """Reset the fitted attributes that depend on the weights; ``calibrate`` fits them again."""
    est._compute_model = None
    for name, value in RESET_VALUES.items():
        if hasattr(est, name):
            setattr(est, name, value)


class AdapterMixin:
    """Mixin with LoRA adapters and pruning, for estimators with ``model_`` and ``class_order_``."""

    model_: Any
    class_order_: list[int] | None
    weights_source_: str
    configs: Any  # the method of ``Estimator``
    check_examples: Any

    def save_adapter(self, path: str | Path, *, head: bool = False) -> Path:
        """Write only the low-rank updates of a fit with ``lora_rank``, in PEFT's file layout.

        Args:
            head: also write pooling and head, to load the adapter with PEFT onto a class with a head, such as
                ``BertForSequenceClassification``.

        Raises:
            ConfigError: the fit had no ``lora_rank``, or the Hub's layout has no such head.
        """
        check_is_fitted(self, "model_")
        updates = getattr(self, "adapter_", None)
        if not updates:
            what = "there are no low-rank updates"
            raise ConfigError(what, where="save_adapter", fix="Fit with lora_rank = 8")
        train = self.configs()["train"]  # pickles of older versions have no ``adapter_scale_``
        rank, alpha = getattr(self, "adapter_scale_", None) or (train.lora_rank, train.lora_alpha)
        head_weights = head_in_hub_format(self.model_) if head else None
        save_adapter(
            Path(path),
            hub_names(self.model_.config),
            updates,
            rank,
            alpha,
            with_prefix=head,
            head=head_weights,
        )
        return Path(path)

    def load_adapter(self, path: str | Path) -> Self:
        """Add an adapter in PEFT's file layout to the weights. If the adapter has a head, it is used too.

        The result is the same as that of ``PeftModel.from_pretrained(base, path).merge_and_unload()``. The
        files do not name their base model; use the model that the adapter was trained on. Temperature,
        thresholds and prediction intervals are reset; ``calibrate`` fits them again.

        Raises:
            CheckpointError: the folder is missing or has another kind of adapter, or its tensors do not match
                the model.
        """
        check_is_fitted(self, "model_")
        with isolated_torch(gradients=True):
            add_adapter(self.model_, path, self.class_order_)
        self.weights_source_ = self.model_.weights_source = f"{self.weights_source_}; adapter {path}"
        reset_measurements(self)
        return self

    def prune(self, X: Sequence[Any], *, share: float = 0.3) -> Self:
        """A smaller, faster copy without the least important feed-forward units.

        Every layer loses the same share of its units, so that you can save, export and train the copy, and
        open it in transformers. Temperature, thresholds and prediction intervals are reset;
        ``calibrate`` fits them again.

        Args:
            X: at least 100 inputs from the same distribution as future inputs; labels are not needed.
            share: share of units to remove, between 0 and 1. The number of remaining units is a multiple
                of 16.

        Raises:
            InputError: ``share`` is out of range, inputs cannot be used, or the model has no such units.
        """
        check_is_fitted(self, "model_")
        pruned = prune(self, self.check_examples(X), share)
        reset_measurements(pruned)
        return pruned

    def save_run_files(self, folder: Path) -> None:
        """Save the low-rank updates in ``folder``, if the fit had any."""
        if getattr(self, "adapter_", None):
            self.save_adapter(folder / "adapter")


MULTIPLE = 16  # matrix multiplication is fast if the number of units is a multiple of it


@runs_isolated_with_gradients
def unit_importance(est: Any, X: Sequence[Any]) -> Tensor:
    """Importance of each feed-forward unit, ``[layers, d_ff]``.

    It estimates how much the logit of the predicted class changes without the unit: the mean over inputs of
    ``|sum over tokens of h * dlogit/dh|``, where ``h`` are the activations (Molchanov et al., 2017).
    """
    model, values = differentiable_model(est), []
    hooks = [
        layer.feed_forward.down.register_forward_pre_hook(lambda _, inputs: values.append(inputs[0]))
        for layer in model.encoder.layers
    ]
    total = torch.zeros(len(hooks), model.config.encoder.d_ff)
    order = torch.tensor(model.encoder.order)  # the layer of each value; a layer may run several times
    try:
        for x in X:
            subject = make_subject(est, x)
            values.clear()  # ``make_subject`` has run the model too
            logits = run_rows(model, subject.embeddings, subject.packing()).logits
            assert logits is not None
            gradients = torch.autograd.grad(logits[0, subject.target], values)
            changes = [(h.detach() * g).sum(0).abs() for h, g in zip(values, gradients, strict=True)]
            total.index_add_(0, order, torch.stack(changes).cpu().float())
    finally:
        for hook in hooks:
            hook.remove()
    return total / len(X)


def prune(est: Any, X: Sequence[Any], share: float) -> Any:
    """A copy without the least important feed-forward units; see ``AdapterMixin.prune``."""
    if not 0 < share < 1:
        what = f"share is {share}, not between 0 and 1"
        raise BadValueError(what, where="prune", fix="Use 0.3 for 30 % of the units")
    layers = getattr(getattr(est.model_, "encoder", None), "layers", ())
    networks = [getattr(layer, "feed_forward", None) for layer in layers]
    if not networks or not all(isinstance(n, FeedForward | GatedFeedForward) for n in networks):
        what = f"{est.model!r} has no feed-forward units"
        raise NotForThisModelError(what, where="prune", fix="Use a Transformer")
    importance = unit_importance(est, X)
    units = importance.shape[1]
    count = max(round((1 - share) * units / MULTIPLE) * MULTIPLE, min(MULTIPLE, units))
    pruned = copy.copy(est)
    pruned.model_ = model = copy.deepcopy(differentiable_model(est))
    for layer, values in zip(model.encoder.layers, importance, strict=True):
        _keep_units(layer.feed_forward, values.topk(count).indices.sort().values)
    encoder = replace(model.config.encoder, d_ff=count)
    model.encoder.config, model.config = encoder, replace(model.config, encoder=encoder)
    return pruned


def _keep_units(network: FeedForward | GatedFeedForward, units: Tensor) -> None:
    """Remove all units except ``units``, in place."""
    up, down = network.up, network.down
    units = units.to(up.weight.device)
    rows = units if isinstance(network, FeedForward) else torch.cat([units, units + down.in_features])
    up.weight = nn.Parameter(up.weight.detach()[rows])
    if up.bias is not None:
        up.bias = nn.Parameter(up.bias.detach()[rows])
    down.weight = nn.Parameter(down.weight.detach()[:, units].contiguous())
    up.out_features, down.in_features = len(rows), len(units)
