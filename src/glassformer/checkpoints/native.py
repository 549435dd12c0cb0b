"""Checkpoints of a training run, one folder per saved step.

    checkpoints/step-00000400/   state.safetensors   all tensors (weights, optimizer, RNG states)
                                 state.json          all other values
                                 manifest.json       sizes and SHA-256 sums, written last

A resumed run continues from the newest complete checkpoint.
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
    remove_leftovers,
    restore_folder,
    temporary_name,
    verify_folder,
    write_folder,
)
from glassformer.checkpoints.locks import check_unlocked
from glassformer.checkpoints.settings import get_count
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.errors import CheckpointError, ConfigError, IncompleteError, NewerFormatError, RunInUseError
from glassformer.finite import json_text, restore_nonfinite

# Format 1 has the metrics of all steps in state.json, format 2 has them among the tensors.
STATE_FORMAT = 2
_STEP = re.compile(r"step-(\d{8,})")
_BACKUP = re.compile(r"\.(step-\d{8,})\.(?:.*\.)?old")  # see ``restore_folder``


class LoadedState(NamedTuple):
    """Result of :func:`load_state`."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]
    path: Path
    skipped: list[tuple[Path, str]]  # newer checkpoints that are damaged, with their errors


def save_state(
    folder: str | Path,
    step: int,
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Any],
    keep_last: int = 2,
) -> Path:
    """Save a checkpoint, then remove old ones; if the process is killed, a complete checkpoint remains.

    Checkpoints of later steps are removed, too. They exist if the run was resumed from an earlier step.

    Args:
        folder: the run's ``checkpoints`` folder; created if missing.
        step: number of optimizer steps so far, ≥ 0; an existing checkpoint of this step is replaced.
        tensors: tensors of any device and dtype.
        state: values that JSON supports, with string keys (tuples are loaded as lists).
        keep_last: number of complete checkpoints to keep, including this one, ≥ 1.

    Returns:
        The new checkpoint's folder.

    Raises:
        GlassformerError: the disk is full or read-only; older checkpoints are untouched.
        ValueError: ``step`` or ``keep_last`` is out of range, or ``state`` cannot be written as JSON.
    """
    if step < 0 or keep_last < 1:
        raise ValueError(f"step must be >= 0 and keep_last >= 1, got {step} and {keep_last}")
    folder = Path(folder)
    try:
        text = json_text(state, indent=1, sort_keys=True, ascii=True)
    except TypeError as error:
        raise ValueError(f"the state cannot be written as JSON: {error}") from error

    def write(draft: Path) -> None:
        write_tensors(draft, tensors, name="state")
        (draft / "state.json").write_text(text + "\n", encoding="utf-8")

    path = folder / f"step-{step:08d}"
    with disk_errors(path):
        if path.is_dir() and not _looks_complete(path):
            os.rename(path, temporary_name(path))  # write_folder does not replace a damaged folder
        write_folder(path, write, extra={"step": step, "format": STATE_FORMAT}, overwrite=True)
        _remove_old(folder, step, keep_last)
    return path


def list_states(folder: str | Path) -> list[tuple[int, Path]]:
    """The steps and folders of all checkpoints, including damaged ones, oldest first."""
    folder = Path(folder)
    if not folder.is_dir():
        return []
    for name in os.listdir(folder):
        if backup := _BACKUP.fullmatch(name):
            restore_folder(folder / backup[1])
    matches = [(match, folder / name) for name in os.listdir(folder) if (match := _STEP.fullmatch(name))]
    return sorted((int(match[1]), path) for match, path in matches if path.is_dir())


def newest_state(folder: str | Path) -> str:
    """The path of the newest checkpoint, which may be damaged; empty if there is none."""
    states = list_states(folder)
    return str(states[-1][1]) if states else ""


def load_state(folder: str | Path) -> LoadedState:
    """Load the newest complete checkpoint; damaged ones are skipped and listed in ``skipped``.

    Raises:
        CheckpointError: there is no complete checkpoint.
        NewerFormatError: a later version wrote the newest checkpoint. An older one is not used instead,
            because the next save would then remove the newest one.
    """
    folder = Path(folder)
    skipped: list[tuple[Path, str]] = []
    for step, path in reversed(list_states(folder)):
        try:
            manifest = verify_folder(path)
            if manifest["extra"].get("step") != step:
                raise CheckpointError(f"has the step {manifest['extra'].get('step')}", where=str(path))
            version = get_count(manifest["extra"], "format", str(path), 1)
            if version > STATE_FORMAT:
                what = f"has format {version}; this version reads up to {STATE_FORMAT}"
                raise NewerFormatError(what, where=str(path), fix=UPDATE)
            missing = {"state.json", "state.safetensors"} - manifest["files"].keys()
            if missing:
                raise CheckpointError(f"has no {min(missing)}", where=str(path))
            return LoadedState(
                step,
                read_tensors(path, "state"),
                restore_nonfinite(read_json(path / "state.json")),
                path,
                skipped,
            )
        except NewerFormatError:
            raise
        except CheckpointError as error:
            skipped.append((path, str(error)))
    if skipped:
        what = f"none of {len(skipped)} checkpoints is complete; the newest: {skipped[0][1]}"
        raise IncompleteError(what, where=str(folder), fix="Start the run again")
    raise IncompleteError("has no checkpoint to resume from", where=str(folder), fix="Start the run again")


def newest_fingerprint(folder: str | Path) -> Mapping[str, Any] | None:
    """The fingerprint of data and settings in the newest complete checkpoint; None if there is none."""
    if not newest_state(folder):
        return None
    try:
        return load_state(folder).state.get("fingerprint", {})
    except CheckpointError:  # resuming the training reports it
        return None


OTHER_DATA = "was made with other training data: the data have changed since"


def check_fingerprint(loaded: LoadedState, current: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raise CheckpointError if a checkpoint was made with other data or settings.

    Args:
        defaults: values of settings that older checkpoints do not have.
    """
    saved = {key: defaults[key] for key in current if key in defaults} | loaded.state.get("fingerprint", {})
    # The data come last, because many settings change them.
    for key in sorted(current.keys() | saved.keys(), key=lambda key: (key == "data_sha256", key)):
        if current.get(key) == saved.get(key):
            continue
        if key == "data_sha256":
            fix = "Restore the data, or start a new run"
            raise CheckpointError(OTHER_DATA, where=str(loaded.path), fix=fix)
        old = f"with {key} = {saved[key]!r}" if key in saved else f"without {key}"
        new = f"now it is {current[key]!r}" if key in current else "but now it is not set"
        fix = "Resume with the settings of the first run, or start a new run"
        raise CheckpointError(f"was made {old}, {new}", where=str(loaded.path), fix=fix)


def _remove_old(folder: Path, newest: int, keep_last: int) -> None:
    num_kept = 1
    for step, path in reversed(list_states(folder)):
        if step == newest:
            continue
        if step < newest and num_kept < keep_last and _looks_complete(path):
            num_kept += 1
            continue
        # The folder is renamed first, so that a kill during the removal does not leave a damaged checkpoint.
        os.rename(path, temporary_name(path))
    remove_leftovers(folder)


def _looks_complete(path: Path) -> bool:
    try:
        verify_folder(path, contents=False)
    except CheckpointError:
        return False
    return True


# --- unfinished runs ------------------------------------------------------------------------------


CONFIG = "config.toml"
FINISHED = ("model", "glassformer.json", "config.json")  # in a trained run: model; in a model: the others


def resume_command(folder: str | Path, *options: str) -> str:
    """The command that continues a run, with ``options`` that its recipe does not contain."""
    return shlex.join(["glassformer", "train", "--resume", "--out", str(folder), *options])


def check_finished(folder: str | Path) -> None:
    """Raise an error if ``folder`` is a run without a trained model.

    Raises:
        ConfigError: the training is not finished; the message has its step and the command to continue.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        return
    restore_folder(folder / "model")
    if any((folder / name).exists() for name in FINISHED):
        return
    if (folder / "metrics.json").is_file():
        what = "the run is finished, but its folder model/ is missing"
        fix = f"Copy it back, or train again: {resume_command(folder)}"
        raise IncompleteError(what, where=str(folder), fix=fix)
    what = f"training is not finished ({progress(folder)}), so there is no model yet"
    try:
        check_unlocked(folder)
    except ConfigError:  # another process is training it
        raise RunInUseError(what, where=str(folder), fix="It is being trained: wait until it ends") from None
    raise RunInUseError(what, where=str(folder), fix=f"Continue with: {resume_command(folder)}")


def progress(folder: Path) -> str:
    """The progress of a run, such as "step 400 of 1,000", from its newest checkpoint."""
    states = list_states(folder / "checkpoints")
    if not states:
        return "no checkpoint yet"
    step, path = states[-1]
    total = None
    with suppress(CheckpointError):  # resuming the training reports it
        total = read_json(path / "state.json").get("total_steps")
    return f"step {step:,} of {total:,}" if type(total) is int else f"step {step:,}"
