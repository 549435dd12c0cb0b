"""Checkpoints of a running training: a folder a step, of which the newest complete one counts.

    checkpoints/step-00000400/   state.safetensors   every tensor (weights, optimizer, RNG states)
                                 state.json          every other value
                                 manifest.json       sizes and SHA-256 sums, written last

A damaged one is passed over for the one before it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Mapping
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
from glassformer.checkpoints.locks import refuse_held
from glassformer.checkpoints.settings import count
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.errors import CheckpointError, ConfigError, IncompleteError, NewerFormatError, RunInUseError
from glassformer.finite import json_text, restored

# 1: the records of all steps in state.json. 2: their numbers among the tensors. Every one is read for ever.
STATE_FORMAT = 2
_STEP = re.compile(r"step-(\d{8,})")
_ASIDE = re.compile(r"\.(step-\d{8,})\.(?:.*\.)?old")  # see ``restore_folder``


class LoadedState(NamedTuple):
    """What :func:`load_state` found; ``skipped`` lists newer checkpoints that were damaged."""

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
    protect: Collection[int] = (),
) -> Path:
    """Save one checkpoint and remove old ones; a kill at any instant leaves a complete one.

    Checkpoints of later steps are removed too: the run was resumed before them, so they belong to
    a past that did not happen.

    Args:
        folder: the run's ``checkpoints`` folder; made if missing.
        step: optimizer steps done, ≥ 0; an older checkpoint of the same step is replaced.
        tensors: any device and dtype.
        state: values for JSON with text keys (tuples come back as lists).
        keep_last: how many complete checkpoints to keep, this one included, ≥ 1.
        protect: steps that are never removed.

    Returns:
        The new checkpoint's folder.

    Raises:
        GlassformerError: the disk refused; older checkpoints are untouched.
        ValueError: ``step`` or ``keep_last`` out of range, or ``state`` is not for JSON.
    """
    if step < 0 or keep_last < 1:
        raise ValueError(f"step must be >= 0 and keep_last >= 1, got {step} and {keep_last}")
    folder = Path(folder)
    try:
        text = json_text(state, indent=1, sort_keys=True, ascii=True)
    except TypeError as error:
        raise ValueError(f"the state is not for JSON: {error}") from error

    def write(fresh: Path) -> None:
        write_tensors(fresh, tensors, name="state")
        (fresh / "state.json").write_text(text + "\n", encoding="utf-8")

    path = folder / f"step-{step:08d}"
    with disk_errors(path):
        if path.is_dir() and not _looks_complete(path):
            os.rename(path, temporary_name(path))  # write_folder would not take it for one of ours
        write_folder(path, write, extra={"step": step, "format": STATE_FORMAT}, overwrite=True)
        _remove_old(folder, step, keep_last, set(protect))
    return path


def list_states(folder: str | Path) -> list[tuple[int, Path]]:
    """Steps and folders of all checkpoints, damaged ones included, oldest first."""
    folder = Path(folder)
    if not folder.is_dir():
        return []
    for name in os.listdir(folder):
        if aside := _ASIDE.fullmatch(name):
            restore_folder(folder / aside[1])
    found = [(match, folder / name) for name in os.listdir(folder) if (match := _STEP.fullmatch(name))]
    return sorted((int(match[1]), path) for match, path in found if path.is_dir())


def newest_state(folder: str | Path) -> str:
    """The path of the newest checkpoint, damaged or not; empty where there is none."""
    states = list_states(folder)
    return str(states[-1][1]) if states else ""


def load_state(folder: str | Path) -> LoadedState:
    """The newest complete checkpoint; damaged ones are passed over and listed in ``skipped``.

    Raises:
        CheckpointError: no complete checkpoint; the message says what is wrong with the newest one.
        NewerFormatError: a later version wrote the newest one. An older one is not taken instead: the next
            save would remove what came after it.
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
                newer = f"has format {version}; this version reads up to {STATE_FORMAT}"
                raise NewerFormatError(newer, where=str(path), fix=UPDATE)
            missing = {"state.json", "state.safetensors"} - manifest["files"].keys()
            if missing:
                raise CheckpointError(f"has no {min(missing)}", where=str(path))
            return LoadedState(
                step, read_tensors(path, "state"), restored(read_json(path / "state.json")), path, skipped
            )
        except NewerFormatError:
            raise
        except CheckpointError as error:
            skipped.append((path, str(error)))
    if skipped:
        what = f"none of {len(skipped)} checkpoints is complete; the newest: {skipped[0][1]}"
        raise IncompleteError(what, where=str(folder), fix="Start the run again")
    raise IncompleteError("holds no checkpoint to resume from", where=str(folder), fix="Start the run again")


def newest_fingerprint(folder: str | Path) -> Mapping[str, Any] | None:
    """What the newest checkpoint says of its data and settings; None where there is none that can be read."""
    if not newest_state(folder):
        return None
    try:
        return load_state(folder).state.get("fingerprint", {})
    except CheckpointError:  # said where the training is gone on with
        return None


OTHER_DATA = "was made with other training data: they have changed since"


def check_fingerprint(found: LoadedState, ours: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Raises CheckpointError, naming the first difference, where a checkpoint is of other data or settings.

    Args:
        before: what a setting counts as where the checkpoint was made before there was such a setting.
    """
    theirs = {key: before[key] for key in ours if key in before} | found.state.get("fingerprint", {})
    # Settings first: many change what is made of the data, too.
    for key in sorted(ours.keys() | theirs.keys(), key=lambda key: (key == "data_sha256", key)):
        if key == "data_sha256" and ours.get(key) != theirs.get(key):
            raise CheckpointError(
                OTHER_DATA,
                where=str(found.path),
                fix="Put the data back as they were, or start a new run",
            )
        if ours.get(key) != theirs.get(key):
            made = f"with {key} = {theirs[key]!r}" if key in theirs else f"without {key}"
            now = f"now it is {ours[key]!r}" if key in ours else "which is not so now"
            raise CheckpointError(
                f"was made {made}, {now}",
                where=str(found.path),
                fix="Resume with the settings of the first run, or start a new run",
            )


def _remove_old(folder: Path, newest: int, keep_last: int, protect: set[int]) -> None:
    kept = 1
    for step, path in reversed(list_states(folder)):
        if step == newest or step in protect:
            continue
        if step < newest and kept < keep_last and _looks_complete(path):
            kept += 1
            continue
        # Renamed first, so that a kill while files go never leaves half a checkpoint on the list.
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
    if (folder / "metrics.json").is_file():
        what, fix = (
            "the run has ended, but its folder model/ is gone",
            f"Copy it back, or train again: {go_on(folder)}",
        )
        raise IncompleteError(what, where=str(folder), fix=fix)
    what = f"training is not finished ({reached(folder)}), so there is no model yet"
    try:
        refuse_held(folder)
    except ConfigError:  # by the process that trains it
        raise RunInUseError(what, where=str(folder), fix="It is being trained: wait until it ends") from None
    raise RunInUseError(what, where=str(folder), fix=f"Continue with: {go_on(folder)}")


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
