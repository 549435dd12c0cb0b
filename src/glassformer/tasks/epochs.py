"""A classifier's weights after each epoch, judged together once its training is over."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from glassformer.errors import CheckpointError, ConfigError
from glassformer.tasks.task import RunContext
from glassformer.train.callbacks import epoch_weights, kept_epochs


def judge_epochs(
    context: RunContext, judge: Callable[[], dict[str, Any]], final: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The figures of a split after each epoch, by the weights that were kept; the model stays as it is.

    Args:
        judge: gives the split's figures by the model as it is when called.
        final: the figures of the model as it ended, taken over for an epoch with the same weights.

    Returns:
        A record an epoch: ``epoch`` from 1, ``step``, ``batch_loss`` (mean over its steps), and of the
        split ``n``, ``accuracy``, ``accuracy_interval``, ``macro_f1``, ``log_loss``.

    Raises:
        ConfigError: no epochs were kept.
        CheckpointError: kept weights that are damaged, or of another model.
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
            _take(clf, weights, path)
            same = final is not None and all(torch.equal(ended[name], w) for name, w in weights.items())
            found = final if same and final is not None else judge()
            keys = ("n", "accuracy", "accuracy_interval", "macro_f1", "log_loss")
            record = {"epoch": epoch, "step": step, "batch_loss": losses.get(epoch)}
            out.append(record | {key: found[key] for key in keys})
    finally:
        clf.model_.load_state_dict(ended)
        clf._compute_model = None
    return out


def _take(clf: Any, weights: Mapping[str, torch.Tensor], path: Path) -> None:
    own = clf.model_.state_dict()
    for name, tensor in weights.items():
        if name not in own or own[name].shape != tensor.shape:
            raise CheckpointError(f"{name} is of another model", where=str(path), fix="Train again")
    clf.model_.load_state_dict(own | dict(weights))
    clf._compute_model = None  # of the weights before


def _batch_losses(history: Path) -> dict[int, float]:
    """Epoch, from 1 on -> the mean of its steps' losses."""
    if not history.is_file():
        return {}
    found: dict[int, list[float]] = {}
    with open(history, encoding="utf-8") as file:
        for record in map(json.loads, file):
            if record["kind"] == "step":
                found.setdefault(record["epoch"] + 1, []).append(record["loss"])
    return {epoch: sum(losses) / len(losses) for epoch, losses in found.items()}
