"""Products in int8 held to a finished run's validation labels, once; the outcome is saved with its model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from glassformer.checkpoints.locks import writing
from glassformer.data.splits import labelled
from glassformer.errors import ConfigError, GlassformerError
from glassformer.runtime import choose_device, choose_dtype
from glassformer.tasks.card import write_card
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.decisions import Classifier
from glassformer.tasks.int8 import obstacle, refuse_int8, told
from glassformer.tasks.run_folder import read_run_recipe
from glassformer.tasks.same_data import own_data
from glassformer.tasks.task import Work


def set_precision(folder: str | Path, model: Any, precision: str, say: Callable[[str], None]) -> None:
    """Let a loaded model predict in a number format; for int8 its gate is measured where that was not done.

    Args:
        folder: of the run, or of the model in it.

    Raises:
        ConfigError: no such format; int8 for what gives no labels or has no validation examples.
    """
    choose_dtype(precision, torch.device("cpu"))
    if precision == "int8":
        _settle(Path(folder), model, say)
    model.precision = precision


def _settle(folder: Path, model: Any, say: Callable[[str], None]) -> None:
    if not isinstance(model, Classifier):
        refuse_int8("int8", type(model).__name__)
    if model.int8_ is not None or obstacle(model.model_, choose_device(model.device)) is not None:
        return
    run = folder.resolve().parent if folder.resolve().name == "model" else folder
    if not (run / "config.toml").is_file():
        raise ConfigError(
            "int8 is held to validation labels, and this folder is no run that has some",
            where=str(folder),
            fix="Call check_int8(X, y) in Python and save, or use auto",
        )
    recipe = read_run_recipe(run)
    work = Work(TASKS[recipe.task], recipe, run, say)
    held = labelled(own_data(work, ["validation"]).validation)
    if held is None:
        what = "int8 is held to validation labels, and this run has no validation split"
        raise ConfigError(what, where=str(run), fix="Train with --set validation_size=0.1, or use auto")
    say(f"int8 is held to {len(held):,} validation examples, once for this model")
    say(f"int8 is {told(model.check_int8(held.examples, held.labels))}")
    try:
        with writing(run):
            model.save(run / "model", overwrite=True)
            write_card(run / "model", model, run)
    except (OSError, GlassformerError) as error:
        say(f"the outcome is not kept with the model: {error}")
