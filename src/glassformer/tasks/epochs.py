"""Evaluate a classifier's weights of each epoch, after training."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from glassformer.errors import CheckpointError, ConfigError
from glassformer.tasks.task import RunContext
from glassformer.train.callbacks import epoch_weights, kept_epochs


def evaluate_epochs(
    context: RunContext, evaluate: Callable[[], dict[str, Any]], final: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Metrics of a split for the saved weights of each epoch. The model's weights are restored at the end.

    Args:
        evaluate: computes the split's metrics with the model's current weights.
        final: the metrics of the final model, reused for an epoch with the same weights.

    Returns:
        One record per epoch: ``epoch`` (from 1), ``step``, ``batch_loss`` (mean over its steps), and the
        split's ``n``, ``accuracy``, ``accuracy_interval``, ``macro_f1``, ``log_loss``.
    """
    clf, folder = context.estimator, context.folder / "checkpoints" / "epochs"
    epochs = kept_epochs(folder)
    if not epochs:
        able = hasattr(context.recipe.train, "keep_epochs")
        fix = "Train with --set keep_epochs=true" if able else "Leave --every-epoch out"
        raise ConfigError("no epoch's weights were kept", where=str(folder), fix=fix)
    ended = {name: tensor.clone() for name, tensor in clf.model_.state_dict().items()}
    losses, out = _batch_losses(context.folder / "history.jsonl"), []
    try:
        for epoch, path in epochs:
            step, weights = epoch_weights(path)
            _load_weights(clf, weights, path)
            same = final is not None and all(torch.equal(ended[name], w) for name, w in weights.items())
            metrics = final if same and final is not None else evaluate()
            keys = ("n", "accuracy", "accuracy_interval", "macro_f1", "log_loss")
            record = {"epoch": epoch, "step": step, "batch_loss": losses.get(epoch)}
            out.append(record | {key: metrics[key] for key in keys})
    finally:
        clf.model_.load_state_dict(ended)
        clf._compute_model = None
    return out


def _load_weights(clf: Any, weights: Mapping[str, torch.Tensor], path: Path) -> None:
    own = clf.model_.state_dict()
    for name, tensor in weights.items():
        if name not in own or own[name].shape != tensor.shape:
            raise CheckpointError(f"{name} is of another model", where=str(path), fix="Train again")
    clf.model_.load_state_dict(own | dict(weights))
    clf._compute_model = None  # a cached copy of the old weights


def _batch_losses(history: Path) -> dict[int, float]:
    """Epoch (from 1) -> mean loss of its steps."""
    if not history.is_file():
        return {}
    by_epoch: dict[int, list[float]] = {}
    with open(history, encoding="utf-8") as file:
        for record in map(json.loads, file):
            if record["kind"] == "step":
                by_epoch.setdefault(record["epoch"] + 1, []).append(record["loss"])
    return {epoch: sum(losses) / len(losses) for epoch, losses in by_epoch.items()}
