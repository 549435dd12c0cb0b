"""Run folders: locks, checks and their recipe."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

from glassformer.checkpoints.files import disk_errors, is_temporary, read_json, replace_text
from glassformer.checkpoints.locks import LOCK, check_unlocked, is_empty_folder, write_lock
from glassformer.checkpoints.native import list_states
from glassformer.checkpoints.settings import find_metadata
from glassformer.config import listed, read_toml, to_dict, to_toml
from glassformer.data.columns import AUTO, NONE
from glassformer.data.tags import EXACT_SCHEME
from glassformer.errors import ExistsError, NotARunError, OtherRunError, UnknownKeyError
from glassformer.outputs import check_folder_path
from glassformer.report.notebook import Records, run_html
from glassformer.report.run import read_history
from glassformer.runtime import as_single_process, world
from glassformer.tasks.catalog import build_recipe
from glassformer.tasks.run_steps import is_named


@dataclass
class Run:
    """A finished run: its folder, its metrics and the path of its report."""

    folder: Path
    metrics: dict[str, Any]
    report: Path

    @classmethod
    def of(cls, folder: str | Path) -> Run:
        """Open a finished run."""
        folder = Path(folder)
        return cls(folder, read_json(folder / "metrics.json"), folder / "report.html")

    @property
    def history(self) -> Records:
        """The training history, from ``history.jsonl``."""
        return Records(read_history(self.folder / "history.jsonl"))

    def plot(self) -> Any:
        """A matplotlib figure with training loss and validation metrics over the steps."""
        return self.history.plot(self.folder.name)

    def _repr_html_(self) -> str:
        return str(run_html(self.folder, self.metrics))


class NotMainProcess(Exception):
    """Raised after training in all processes but the main one, which writes the results."""


@contextmanager
def main_process_only() -> Iterator[None]:
    """Context for work after training, which only the main process does; the others raise an error."""
    if world()[0]:
        raise NotMainProcess
    with as_single_process():
        yield


def read_run_recipe(folder: Path) -> Any:
    """Read the recipe of a run folder."""
    config = folder / "config.toml"
    values = read_toml(config)
    recipe = build_recipe(values, str(config))
    if hasattr(recipe.data, "pair_column") and "pair_column" not in values.get("data", {}):  # an old run
        return replace(recipe, data=replace(recipe.data, pair_column=NONE))
    if hasattr(getattr(recipe, "text", None), "scheme") and "scheme" not in values.get("text", {}):
        return replace(recipe, text=replace(recipe.text, scheme=EXACT_SCHEME))  # an old run, without this key
    return recipe


def trained_columns(folder: str | Path) -> tuple[str | None, ...]:
    """The text columns (two for pairs) that a run or a saved model was trained on; empty if unknown.

    They are stored in the model, or else in the recipe of the run.
    """
    folder = Path(folder)
    names = find_metadata(folder)[1].get("columns")
    if isinstance(names, list) and names:  # ``load`` reports invalid names
        return tuple(map(str, names))
    if not (folder / "config.toml").is_file():  # a saved model without a run
        return ()
    data = read_run_recipe(folder).data
    text = getattr(data, "text_column", None) or getattr(data, "source_column", None)
    pair = getattr(data, "pair_column", NONE)
    return (text, pair) if pair not in (AUTO, NONE) else (text,) if text else ()


def trained_column(folder: str | Path) -> str | None:
    """The first of ``trained_columns``; None: unknown."""
    return next(iter(trained_columns(folder)), None)


def with_columns(recipe: Any, columns: Mapping[str, str]) -> Any:
    """The recipe with other columns (key of the section ``data`` -> name), for evaluation on other data."""
    for key in columns:
        if not hasattr(recipe.data, key):
            column_keys = [k for k in vars(recipe.data) if k.endswith("_column")]
            what = f"a recipe of {recipe.task} has no {key}"
            raise UnknownKeyError(what, where=key, fix=f"It has {' and '.join(column_keys) or 'no columns'}")
    return replace(recipe, data=replace(recipe.data, **columns))


FOLDERS = {"checkpoints", "tensorboard"}
# All that a run writes before its first step or checkpoint.
FIRST_FILES = {"config.toml", "doctor.json", "rejected.jsonl", "history.jsonl", LOCK, *FOLDERS}


def with_lock(run: Callable[..., Run]) -> Callable[..., Run]:
    """Decorator: lock the run folder while ``run`` works.

    If the run fails or is stopped before its first step, its files are removed.
    """

    @wraps(run)
    def guarded(recipe: Any, folder: str | Path, *, resume: bool = False, **options: Any) -> Run:
        folder = check_folder_path(Path(folder))
        check_unlocked(folder)
        # A lock file without a lock is of a killed process, which may have started a run or not.
        was_killed = (folder / LOCK).is_file()
        check_folder(folder, recipe, resume, was_killed)
        with write_lock(folder):
            # Check again, because another process may have written to the folder.
            check_folder(folder, recipe, resume, was_killed)
            if was_killed and not resume:
                remove_first_files(folder)
            is_new = not (folder / "config.toml").exists()
            try:
                return run(recipe, folder, resume=resume, **options)
            except NotMainProcess:
                raise
            except BaseException:
                if is_new:
                    remove_first_files(folder)
                raise

    return guarded


def has_started(folder: Path) -> bool:
    """Whether a folder has a step, a checkpoint, or any file besides the first files of a run."""
    names = {name for name in os.listdir(folder) if not is_temporary(name)}
    history = folder / "history.jsonl"
    has_step = history.is_file() and history.stat().st_size > 0
    return not names <= FIRST_FILES or has_step or bool(list_states(folder / "checkpoints"))


def remove_first_files(folder: Path) -> None:
    """Remove the files of a run without a step, so that a corrected command can use the same folder."""
    if has_started(folder):
        return
    for name in os.listdir(folder):
        with suppress(OSError):
            if name in FOLDERS:
                shutil.rmtree(folder / name)
            elif name != LOCK:
                (folder / name).unlink()


def check_folder(folder: Path, recipe: Any, resume: bool, was_killed: bool = False) -> None:
    """Raise ConfigError if a run cannot be started or resumed in ``folder``.

    If its process ``was_killed`` before the first step, the folder can be used again.
    """
    config = folder / "config.toml"
    check_folder_path(folder)
    if was_killed and not resume and not has_started(folder):
        return
    if folder.is_dir() and not is_empty_folder(folder):
        if not resume:
            what = "the output folder exists"
            raise ExistsError(what, where=str(folder), fix="Continue with --resume, or choose another --out")
        if not config.is_file():
            raise NotARunError("is not a run folder: it has no config.toml", where=str(folder))
    if not config.is_file():
        return
    if changes := _differences(relevant_settings(read_run_recipe(folder)), relevant_settings(recipe)):
        what = f"holds a run of another recipe ({listed(changes)})"
        fix = "Resume with the same recipe and --set values, or choose another --out"
        raise OtherRunError(what, where=str(config), fix=fix)


IGNORED = {  # section -> settings that may differ when a run is resumed
    "train": ("verbose",),
    "text": ("scheme",),  # another scheme changes the tags, whose digest is checked
    "data": ("broken", "on_bad_row", "copies", "pair_column", "encoding"),  # see ``with_run_settings``
}


def relevant_settings(recipe: Any) -> dict[str, Any]:
    """The settings of a recipe that must be equal to resume a run."""
    values = {key: value for key, value in to_dict(recipe).items() if key not in ("summary", "expect")}
    for section, keys in IGNORED.items():
        if section in values:
            values[section] = {key: value for key, value in values[section].items() if key not in keys}
    return values


def _differences(old: dict[str, Any], new: dict[str, Any], section: str = "") -> list[str]:
    """The settings that differ between two recipes, with both values."""
    out = []
    for key in dict.fromkeys((*old, *new)):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict) and key != "merge_labels":
            out += _differences(before, after, f"{key}.")
        elif before != after:
            out.append(f"{section}{key} is {before!r} there and {after!r} here")
    return out


def with_run_settings(recipe: Any, folder: Path) -> tuple[Any, bool]:
    """The recipe with the settings that determine the splits of the run in the folder.

    A new run gets the defaults: duplicates are in the same split. The second value is whether to leave out
    unreadable images after splitting, so that the splits stay the same.
    """
    data, config, changes = recipe.data, folder / "config.toml", {}
    run_recipe: Any = read_run_recipe(folder) if config.is_file() else None
    old_values = run_recipe and run_recipe.data
    if getattr(getattr(run_recipe, "text", None), "scheme", None) == EXACT_SCHEME:
        recipe = replace(recipe, text=replace(recipe.text, scheme=EXACT_SCHEME))
    if hasattr(data, "copies"):
        if old_values is not None:
            old_copies = getattr(old_values, "copies", None)
            if data.copies is not None and data.copies != (old_copies or "apart"):
                what = f"was started with copies = {old_copies or 'apart'}"
                raise OtherRunError(what, where=str(config), fix="Leave copies out, or choose another --out")
            changes["copies"] = old_copies
        elif data.copies is None and not is_named(data.source):
            changes["copies"] = "together"
    if old_values is not None and getattr(data, "pair_column", None) == AUTO:
        changes["pair_column"] = old_values.pair_column
    drop_after_split = False
    if old_values is not None and hasattr(data, "broken"):
        drop_after_split = data.broken == "skip" != getattr(old_values, "broken", "skip")
        changes["broken"] = getattr(old_values, "broken", data.broken)
    return (replace(recipe, data=replace(data, **changes)) if changes else recipe), drop_after_split


def with_bad_rows(recipe: Any, on_bad_row: str | None, other: bool) -> Any:
    """The recipe with another ``on_bad_row``; ``other``: also set ``broken``, for images of other data."""
    keys = ("on_bad_row", "broken") if other else ("on_bad_row",)
    changes = {key: on_bad_row for key in keys if on_bad_row is not None and hasattr(recipe.data, key)}
    return replace(recipe, data=replace(recipe.data, **changes)) if changes else recipe


def begin(folder: Path, recipe: Any) -> None:
    """Create the folder of a run and write its recipe, unless it exists."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "config.toml").exists():
        replace_text(folder / "config.toml", to_toml(recipe))
