"""What a run folder says to whoever asks a model of it before its training has ended."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path

from glassformer.checkpoints.files import read_json, restore_folder
from glassformer.checkpoints.locks import refuse_held
from glassformer.checkpoints.native import list_states
from glassformer.errors import CheckpointError, ConfigError

CONFIG = "config.toml"
FINISHED = ("model", "glassformer.json", "config.json")  # a run's model, or a model itself


def go_on(folder: str | Path, *options: str) -> str:
    """The command that goes on with the run in a folder, with options that its recipe does not hold."""
    return shlex.join(["glassformer", "train", "--resume", "--out", str(folder), *options])


def refuse_unfinished(folder: str | Path) -> None:
    """Nothing, unless ``folder`` is a run whose training has begun and has left no model yet.

    Raises:
        ConfigError: it is; the message names the step it stands at, and how to go on.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        return
    restore_folder(folder / "model")  # of a save that a kill, or this instant, finds between its moves
    if any((folder / name).exists() for name in FINISHED):
        return
    what = f"training is not finished ({reached(folder)}), so there is no model yet"
    try:
        refuse_held(folder)
    except ConfigError:  # by the process that trains it
        raise ConfigError(what, where=str(folder), fix="It is being trained: wait until it ends") from None
    raise ConfigError(what, where=str(folder), fix=f"Go on with: {go_on(folder)}")


def reached(folder: Path) -> str:
    """The step of the newest checkpoint of a run, and of how many, where that is said."""
    states = list_states(folder / "checkpoints")
    if not states:
        return "no checkpoint yet"
    step, path = states[-1]
    total = None
    with suppress(CheckpointError):  # a damaged one is said where the training is gone on with
        total = read_json(path / "state.json").get("total_steps")
    return f"step {step:,} of {total:,}" if type(total) is int else f"step {step:,}"
