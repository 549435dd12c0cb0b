"""Checkpoints of a training run: one folder per saved step; resuming uses the newest complete one.

    checkpoints/step-00000400/   state.safetensors   every tensor (weights, optimizer, RNG states)
                                 state.json          every other value
                                 manifest.json       sizes and SHA-256 sums, written last

If the newest checkpoint is damaged, the previous one is used.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from glassformer.checkpoints.files import (
    UPDATE,
    disk_errors,
    read_json,
    restore_folder,
    sweep,
    temporary_name,
    verify_folder,
    write_folder,
)
from glassformer.checkpoints.locks import check_unlocked
from glassformer.checkpoints.settings import count
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.errors import CheckpointError, ConfigError, IncompleteError, NewerFormatError, RunInUseError
from glassformer.finite import json_text, restored

# 1: records of all steps in state.json. 2: their numbers among the tensors. All formats stay readable.
STATE_FORMAT = 2
_STEP = re.compile(r"step-(\d{8,})")
_BACKUP = re.compile(r"\.(step-\d{8,})\.(?:.*\.)?old")  # see ``restore_folder``


class LoadedState(NamedTuple):
    """Result of :func:`load_state`; ``skipped`` lists newer checkpoints that are damaged."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]
    path: Path
    skipped: list[tuple[Path, str]]


def save_state(
    folder: str | Path,
    step: int,
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Any],
    keep_last: int = 2,
) -> Path:
    """Save a checkpoint and remove old ones; if killed at any time, a complete checkpoint remains.

    Checkpoints of later steps are removed, too: they are outdated, because the run was resumed before them.

    Args:
        folder: the run's ``checkpoints`` folder; created if missing.
        step: optimizer steps done, ≥ 0; an older checkpoint of the same step is replaced.
        tensors: any device and dtype.
        state: values for JSON with text keys (tuples come back as lists).
        keep_last: how many complete checkpoints to keep, this one included, ≥ 1.

    Returns:
        The new checkpoint's folder.

    Raises:
        GlassformerError: the disk is full or read-only; older checkpoints are untouched.
        ValueError: ``step`` or ``keep_last`` out of range, or ``state`` cannot be written as JSON.
    """
    if step < 0 or keep_last < 1:
        raise ValueError(f"step must be >= 0 and keep_last >= 1, got {step} and {keep_last}")
    folder = Path(folder)
    try:
        text = json_text(state, indent=1, sort_keys=True, ascii=True)
    except TypeError as error:
        raise ValueError(f"the state cannot be written as JSON: {error}") from error

    def write(fresh: Path) -> None:
        write_tensors(fresh, tensors, name="state")
        (fresh / "state.json").write_text(text + "\n", encoding="utf-8")

    path = folder / f"step-{step:08d}"
    with disk_errors(path):
        if path.is_dir() and not _looks_complete(path):
            os.rename(path, temporary_name(path))  # write_folder would refuse to replace it
        write_folder(path, write, extra={"step": step, "format": STATE_FORMAT}, overwrite=True)
        _remove_old(folder, step, keep_last)
    return path


def list_states(folder: str | Path) -> list[tuple[int, Path]]:
    """Steps and folders of all checkpoints, damaged ones included, oldest first."""
    folder = Path(folder)
    if not folder.is_dir():
        return []
    for name in os.listdir(folder):
        if backup := _BACKUP.fullmatch(name):
            restore_folder(folder / backup[1])
    matches = [(match, folder / name) for name in os.listdir(folder) if (match := _STEP.fullmatch(name))]
    return sorted((int(match[1]), path) for match, path in matches if path.is_dir())


def newest_state(folder: str | Path) -> str:
    """The path of the newest checkpoint, even if damaged; empty if there is none."""
    states = list_states(folder)
    return str(states[-1][1]) if states else ""


def load_state(folder: str | Path) -> LoadedState:
    """Load the newest complete checkpoint; damaged ones are skipped and listed in ``skipped``.

    Raises:
        CheckpointError: there is no complete checkpoint; the message has the error of the newest checkpoint.
        NewerFormatError: a later version wrote the newest checkpoint. Older ones are not used instead,
            because the next save would remove the newest one.
    """
    folder = Path(folder)
    skipped: list[tuple[Path, str]] = []
    for step, path in reversed(list_states(folder)):
        try:
            manifest = verify_folder(path)
            if manifest["extra"].get("step") != step:
                raise CheckpointError(f"holds step {manifest['extra'].get('step')}", where=str(path))
            version = count(manifest["extra"], "format", str(path), 1)
            if version > STATE_FORMAT:
                what = f"has format {version}; this version reads up to {STATE_FORMAT}"
                raise NewerFormatError(what, where=str(path), fix=UPDATE)
            missing = {"state.json", "state.safetensors"} - manifest["files"].keys()
            if missing:
                raise CheckpointError(f"has no {min(missing)}", where=str(path))
            return LoadedState(
                step, read_tensors(path, "state"), restored(read_json(path / "state.json")), path, skipped
            )
        except NewerFormatError:  # after resuming from an older one, the next save would remove it
            raise
        except CheckpointError as error:
            skipped.append((path, str(error)))
    if skipped:
        what = f"none of {len(skipped)} checkpoints is complete; the newest: {skipped[0][1]}"
        raise IncompleteError(what, where=str(folder), fix="Start the run again")
    raise IncompleteError("holds no checkpoint to resume from", where=str(folder), fix="Start the run again")


def newest_fingerprint(folder: str | Path) -> Mapping[str, Any] | None:
    """The fingerprint (data and settings) of the newest readable checkpoint; None: there is none."""
    if not newest_state(folder):
        return None
    try:
        return load_state(folder).state.get("fingerprint", {})
    except CheckpointError:  # reported when the training is resumed
        return None


OTHER_DATA = "was made with other training data: the data have changed since"


def check_fingerprint(loaded: LoadedState, current: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raise CheckpointError, with the first difference, if a checkpoint has other data or settings.

    Args:
        defaults: values of settings that did not exist when the checkpoint was written.
    """
    saved = {key: defaults[key] for key in current if key in defaults} | loaded.state.get("fingerprint", {})
    # Settings first, because many of them change the data, too.
    for key in sorted(current.keys() | saved.keys(), key=lambda key: (key == "data_sha256", key)):
        if key == "data_sha256" and current.get(key) != saved.get(key):
            raise CheckpointError(
                OTHER_DATA,
                where=str(loaded.path),
                fix="Put the data back as they were, or start a new run",
            )
        if current.get(key) != saved.get(key):
            old = f"with {key} = {saved[key]!r}" if key in saved else f"without {key}"
            new = f"now it is {current[key]!r}" if key in current else "but now it is not set"
            raise CheckpointError(
                f"was made {old}, {new}",
                where=str(loaded.path),
                fix="Resume with the settings of the first run, or start a new run",
            )


def _remove_old(folder: Path, newest: int, keep_last: int) -> None:
    num_kept = 1
    for step, path in reversed(list_states(folder)):
        if step == newest:
            continue
        if step < newest and num_kept < keep_last and _looks_complete(path):
            num_kept += 1
            continue
        # Renamed first, so that a kill during removal does not leave an incomplete checkpoint in the list.
        os.rename(path, temporary_name(path))
    sweep(folder)


def _looks_complete(path: Path) -> bool:
    try:
        verify_folder(path, contents=False)
    except CheckpointError:
        return False
    return True


# --- unfinished runs ------------------------------------------------------------------------------


CONFIG = "config.toml"
FINISHED = ("model", "glassformer.json", "config.json")  # a run's model, or a model itself


def resume_command(folder: str | Path, *options: str) -> str:
    """The command that continues a run, with options that are not stored in its recipe."""
    return shlex.join(["glassformer", "train", "--resume", "--out", str(folder), *options])


def refuse_unfinished(folder: str | Path) -> None:
    """Raise an error if ``folder`` is a run without a trained model.

    Raises:
        ConfigError: the training is not finished; the message has its step and the command to continue.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        return
    restore_folder(folder / "model")  # if a save was interrupted between its two renames
    if any((folder / name).exists() for name in FINISHED):
        return
    if (folder / "metrics.json").is_file():
        what, fix = (
            "the run is finished, but its folder model/ is missing",
            f"Copy it back, or train again: {resume_command(folder)}",
        )
        raise IncompleteError(what, where=str(folder), fix=fix)
    what = f"training is not finished ({progress(folder)}), so there is no model yet"
    try:
        check_unlocked(folder)
    except ConfigError:  # locked by the process that trains it
        raise RunInUseError(what, where=str(folder), fix="It is being trained: wait until it ends") from None
    raise RunInUseError(what, where=str(folder), fix=f"Continue with: {resume_command(folder)}")


def progress(folder: Path) -> str:
    """The step of the newest checkpoint of a run and, if known, the total number of steps."""
    states = list_states(folder / "checkpoints")
    if not states:
        return "no checkpoint yet"
    step, path = states[-1]
    total = None
    with suppress(CheckpointError):  # damage is reported when the training is resumed
        total = read_json(path / "state.json").get("total_steps")
    return f"step {step:,} of {total:,}" if type(total) is int else f"step {step:,}"
