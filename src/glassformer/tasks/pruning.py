"""Prune a fitted model: remove the feed-forward units that its predictions use least."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import BadValueError, NotForThisModelError
from glassformer.explain.methods import subject_of
from glassformer.explain.subject import model_of, run_rows
from glassformer.nn.feedforward import FeedForward, GatedFeedForward
from glassformer.runtime import computes_gradients

MULTIPLE = 16  # the number of units kept is a multiple of it, which makes matrix products fast


@computes_gradients
def unit_importance(est: Any, X: Sequence[Any]) -> Tensor:
    """Importance of each unit ``[L, d_ff]``: how much the predicted class's logit changes without it, to
    first order.

    It is the mean over inputs of ``|sum over tokens of h * dlogit/dh|``, where ``h`` are the activations
    (Molchanov et al., 2017). No labels are needed.
    """
    model, values = model_of(est), []
    hooks = [
        layer.feed_forward.down.register_forward_pre_hook(lambda _, given: values.append(given[0]))
        for layer in model.encoder.layers
    ]
    total = torch.zeros(len(hooks), model.config.encoder.d_ff)
    try:
        for x in X:
            subject = subject_of(est, x)
            values.clear()  # ``subject_of`` has run the model too
            logits = run_rows(model, subject.rows, subject.packing()).logits
            assert logits is not None
            slopes = torch.autograd.grad(logits[0, subject.target], values)
            total += torch.stack(
                [(h.detach() * g).sum(0).abs() for h, g in zip(values, slopes, strict=True)]
            ).cpu()
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
    pruned.model_ = model = copy.deepcopy(model_of(est))
    for layer, values in zip(model.encoder.layers, importance, strict=True):
        _keep(layer.feed_forward, values.topk(count).indices.sort().values)
    encoder = replace(model.config.encoder, d_ff=count)
    model.encoder.config, model.config = encoder, replace(model.config, encoder=encoder)
    return pruned


def _keep(network: FeedForward | GatedFeedForward, units: Tensor) -> None:
    """Leave only those units, in place."""
    up, down = network.up, network.down
    units = units.to(up.weight.device)
    rows = units if isinstance(network, FeedForward) else torch.cat([units, units + down.in_features])
    up.weight = nn.Parameter(up.weight.detach()[rows])
    if up.bias is not None:
        up.bias = nn.Parameter(up.bias.detach()[rows])
    down.weight = nn.Parameter(down.weight.detach()[:, units].contiguous())
    up.out_features, down.in_features = len(rows), len(units)
