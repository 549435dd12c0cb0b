"""Change the weights of a fitted model: load and save LoRA adapters in PEFT's file layout, and pruning."""

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
from glassformer.families import names_of
from glassformer.families.pretrained import add_adapter, head_in_hub
from glassformer.nn.feedforward import FeedForward, GatedFeedForward
from glassformer.runtime import computes_gradients, computing
from glassformer.sklearn_base import check_is_fitted

# Fitted attributes that were measured with the old weights -> their values after the weights change.
RESET_VALUES = {
    "int8_": None,
    "temperature_": 1.0,
    "threshold_": None,
    "abstain_below_": None,
    "errors_": np.zeros(0),
}


def reset_measurements(est: Any) -> None:
    """Reset temperature, thresholds and the like after a change of weights; ``calibrate`` fits them again."""
    est._compute_model = None
    for name, value in RESET_VALUES.items():
        if hasattr(est, name):
            setattr(est, name, value)


class AdapterMixin:
    """Adapters and pruning, for an estimator with ``model_`` and ``class_order_``."""

    model_: Any
    class_order_: list[int] | None
    weights_source_: str
    configs: Any  # the method of ``Estimator``
    check_examples: Any

    def save_adapter(self, path: str | Path, *, head: bool = False) -> Path:
        """Write only the low-rank updates of a fit with ``lora_rank``, in PEFT's file layout.

        Args:
            head: whether to include pooling and head, for a base model of the Hub that has a head.

        Raises:
            ConfigError: the fit had no ``lora_rank``, or the Hub's layout has no such head.
        """
        check_is_fitted(self, "model_")
        updates = getattr(self, "adapter_", None)
        if not updates:
            raise ConfigError(
                "there are no low-rank updates", where="save_adapter", fix="Fit with lora_rank = 8"
            )
        train = self.configs()["train"]  # for old pickles, which lack ``adapter_scale_``
        rank, alpha = getattr(self, "adapter_scale_", None) or (train.lora_rank, train.lora_alpha)
        head_weights = head_in_hub(self.model_) if head else None
        save_adapter(
            Path(path),
            names_of(self.model_.config),
            updates,
            rank,
            alpha,
            with_prefix=head,
            head=head_weights,
        )
        return Path(path)

    def load_adapter(self, path: str | Path) -> Self:
        """Add an adapter in PEFT's file layout to the weights: its low-rank updates, and its head if any.

        The result is the same as ``PeftModel.from_pretrained(base, path)`` followed by
        ``merge_and_unload()``; save it as usual. The files do not name their base model: load them into the
        model they were trained on. Temperature, thresholds and a regressor's errors are reset; ``calibrate``
        fits them again.

        Raises:
            CheckpointError: no such folder, another kind of adapter, or tensors that do not fit the model.
        """
        check_is_fitted(self, "model_")
        with computing(gradients=True):
            add_adapter(self.model_, path, self.class_order_)
        self.weights_source_ = self.model_.weights_source = f"{self.weights_source_}; adapter {path}"
        reset_measurements(self)
        return self

    def prune(self, X: Sequence[Any], *, share: float = 0.3) -> Self:
        """A smaller, faster copy without the feed-forward units that its predictions use least.

        Every layer loses the same share of its units, so that the copy can be saved, exported, opened in
        transformers and trained further like any model. Temperature, thresholds and a regressor's intervals
        are reset; ``calibrate`` fits them again.

        Args:
            X: 100 or more inputs from the same distribution as future ones; labels are not needed.
            share: share of units to remove, between 0 and 1; the number kept is a multiple of 16.

        Raises:
            InputError: ``share`` out of range, unusable inputs, or a model without such units.
        """

        check_is_fitted(self, "model_")
        pruned = prune(self, self.check_examples(X), share)
        reset_measurements(pruned)
        return pruned

    def save_run_files(self, folder: Path) -> None:
        """Save the low-rank updates in ``folder``, if the fit had any."""
        if getattr(self, "adapter_", None):
            self.save_adapter(folder / "adapter")


MULTIPLE = 16  # the number of units kept is a multiple of it, which makes matrix products fast


@computes_gradients
def unit_importance(est: Any, X: Sequence[Any]) -> Tensor:
    """Importance of each unit, ``[layers, d_ff]``: how much the predicted class's logit changes without it,
    to first order.

    It is the mean over inputs of ``|sum over tokens of h * dlogit/dh|``, where ``h`` are the activations
    (Molchanov et al., 2017). No labels are needed.
    """
    model, values = differentiable_model(est), []
    hooks = [
        layer.feed_forward.down.register_forward_pre_hook(lambda _, inputs: values.append(inputs[0]))
        for layer in model.encoder.layers
    ]
    total = torch.zeros(len(hooks), model.config.encoder.d_ff)
    order = torch.tensor(model.encoder.order)  # the layer of each value: layers may run several times
    try:
        for x in X:
            subject = make_subject(est, x)
            values.clear()  # ``make_subject`` has run the model too
            logits = run_rows(model, subject.rows, subject.packing()).logits
            assert logits is not None
            slopes = torch.autograd.grad(logits[0, subject.target], values)
            changes = [(h.detach() * g).sum(0).abs() for h, g in zip(values, slopes, strict=True)]
            total.index_add_(0, order, torch.stack(changes).cpu().float())
    finally:
        for hook in hooks:
            hook.remove()
    return total / len(X)


def prune(est: Any, X: Sequence[Any], share: float) -> Any:
    """A copy without the least important feed-forward units; ``Supervised.prune`` resets the measurements."""
    if not 0 < share < 1:
        what = f"share is {share}, not between 0 and 1"
        raise BadValueError(what, where="prune", fix="Use 0.3 for 30 % of the units")
    layers = getattr(getattr(est.model_, "encoder", None), "layers", ())
    forwards = [getattr(layer, "feed_forward", None) for layer in layers]
    if not forwards or not all(isinstance(one, FeedForward | GatedFeedForward) for one in forwards):
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
    """Leave only those units, in place."""
    up, down = network.up, network.down
    units = units.to(up.weight.device)
    rows = units if isinstance(network, FeedForward) else torch.cat([units, units + down.in_features])
    up.weight = nn.Parameter(up.weight.detach()[rows])
    if up.bias is not None:
        up.bias = nn.Parameter(up.bias.detach()[rows])
    down.weight = nn.Parameter(down.weight.detach()[:, units].contiguous())
    up.out_features, down.in_features = len(rows), len(units)
