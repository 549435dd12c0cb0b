"""Run folders: locking, checks before a run starts or resumes, and reading their recipe."""

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
from glassformer.checkpoints.locks import LOCK, check_unlocked, is_empty_folder, writing
from glassformer.checkpoints.native import list_states
from glassformer.checkpoints.settings import metadata_in
from glassformer.config import listed, read_toml, to_dict, to_toml
from glassformer.data.columns import AUTO, NONE
from glassformer.data.tags import EXACT_SCHEME
from glassformer.errors import ExistsError, NotARunError, OtherRunError, UnknownKeyError
from glassformer.outputs import check_folder_path
from glassformer.report.notebook import Records, run_html
from glassformer.report.run import read_history
from glassformer.runtime import as_single_process, world
from glassformer.tasks.catalog import build_recipe
from glassformer.tasks.judging import is_named


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
        """A matplotlib figure of training loss and validation metrics over the steps."""
        return self.history.plot(self.folder.name)

    def _repr_html_(self) -> str:
        return str(run_html(self.folder, self.metrics))


class NotMainProcess(Exception):
    """Raised after training in processes that do not write the results."""


@contextmanager
def main_process_only() -> Iterator[None]:
    """Context after training: only the first of several processes evaluates and writes the results."""
    if world()[0]:
        raise NotMainProcess
    with as_single_process():
        yield


def read_run_recipe(folder: Path) -> Any:
    """The resolved recipe of a run folder."""
    config = folder / "config.toml"
    values = read_toml(config)
    recipe = build_recipe(values, str(config))
    if hasattr(recipe.data, "pair_column") and "pair_column" not in values.get("data", {}):  # an old run
        return replace(recipe, data=replace(recipe.data, pair_column=NONE))
    if hasattr(getattr(recipe, "text", None), "scheme") and "scheme" not in values.get("text", {}):
        return replace(recipe, text=replace(recipe.text, scheme=EXACT_SCHEME))  # an old run, without this key
    return recipe


def trained_columns(folder: str | Path) -> tuple[str | None, ...]:
    """The names of the text columns (two for pairs) that a run or a saved model was trained on: from the
    model, or else from the run's recipe; empty if both lack them."""
    folder = Path(folder)
    names = metadata_in(folder)[1].get("columns")
    if isinstance(names, list) and names:  # ``load`` reports invalid ones
        return tuple(map(str, names))
    if not (folder / "config.toml").is_file():  # a saved model alone
        return ()
    data = read_run_recipe(folder).data
    text = getattr(data, "text_column", None) or getattr(data, "source_column", None)
    pair = getattr(data, "pair_column", NONE)
    return (text, pair) if pair not in (AUTO, NONE) else (text,) if text else ()


def trained_column(folder: str | Path) -> str | None:
    """The first of ``trained_columns``, or the source column of a translation; None: unknown."""
    return next(iter(trained_columns(folder)), None)


def with_columns(recipe: Any, columns: Mapping[str, str]) -> Any:
    """The recipe with other columns (key of its section ``data`` -> name), for evaluation on other data."""
    for key in columns:
        if not hasattr(recipe.data, key):
            column_keys = [k for k in vars(recipe.data) if k.endswith("_column")]
            what = f"a recipe of {recipe.task} has no {key}"
            raise UnknownKeyError(what, where=key, fix=f"It has {' and '.join(column_keys) or 'no columns'}")
    return replace(recipe, data=replace(recipe.data, **columns))


FOLDERS = {"checkpoints", "tensorboard"}
# Everything that a run writes before its first step or checkpoint.
FIRST_FILES = {"config.toml", "doctor.json", "rejected.jsonl", "history.jsonl", LOCK, *FOLDERS}


def with_lock(run: Callable[..., Run]) -> Callable[..., Run]:
    """Decorator: lock the run folder while ``run`` works. If it fails or is stopped before there is anything
    to resume, its files are removed."""

    @wraps(run)
    def guarded(recipe: Any, folder: str | Path, *, resume: bool = False, **options: Any) -> Run:
        folder = check_folder_path(Path(folder))
        check_unlocked(folder)
        # A lock that nobody holds is of a killed process. Its files count as a run only if it had started.
        killed = (folder / LOCK).is_file()
        check_folder(folder, recipe, resume, killed)
        with writing(folder):
            check_folder(folder, recipe, resume, killed)  # again: another process may have written meanwhile
            if killed and not resume:
                remove_first_files(folder)
            new = not (folder / "config.toml").exists()
            try:
                return run(recipe, folder, resume=resume, **options)
            except NotMainProcess:
                raise
            except BaseException:
                if new:
                    remove_first_files(folder)
                raise

    return guarded


def is_begun(folder: Path) -> bool:
    """Whether a folder has more than the first files of a run: a step, a checkpoint, or any other file."""
    names = {name for name in os.listdir(folder) if not is_temporary(name)}
    history = folder / "history.jsonl"
    stepped = history.is_file() and history.stat().st_size > 0
    return not names <= FIRST_FILES or stepped or bool(list_states(folder / "checkpoints"))


def remove_first_files(folder: Path) -> None:
    """Remove the files of a run without a step, so that the corrected command can use the same folder."""
    if is_begun(folder):
        return
    for name in os.listdir(folder):
        with suppress(OSError):
            if name in FOLDERS:
                shutil.rmtree(folder / name)
            elif name != LOCK:
                (folder / name).unlink()


def check_folder(folder: Path, recipe: Any, resume: bool, killed: bool = False) -> None:
    """Raise ConfigError if a run cannot be started, or resumed, in ``folder``. A run without a step whose
    process was ``killed`` does not count."""
    config = folder / "config.toml"
    check_folder_path(folder)
    if killed and not resume and not is_begun(folder):
        return
    if folder.is_dir() and not is_empty_folder(folder):
        if not resume:
            raise ExistsError(
                "the output folder exists",
                where=str(folder),
                fix="Continue with --resume, or choose another --out",
            )
        if not config.is_file():
            raise NotARunError("is not a run folder: it has no config.toml", where=str(folder))
    if config.is_file() and (
        other := _differing(relevant_settings(read_run_recipe(folder)), relevant_settings(recipe))
    ):
        raise OtherRunError(
            f"holds a run of another recipe ({listed(other)})",
            where=str(config),
            fix="Resume with the same recipe and --set values, or choose another --out",
        )


IGNORED = {  # section -> settings that may differ when a run is resumed
    "train": ("verbose",),
    "text": ("scheme",),  # another scheme changes the tags, which the digest of the data covers
    "data": ("broken", "on_bad_row", "copies", "pair_column", "encoding"),  # see ``as_begun``
}


def relevant_settings(recipe: Any) -> dict[str, Any]:
    """A recipe's settings, without those that do not affect the result or that a resumed run keeps."""
    values = {key: value for key, value in to_dict(recipe).items() if key not in ("summary", "expect")}
    for section, keys in IGNORED.items():
        if section in values:
            values[section] = {key: value for key, value in values[section].items() if key not in keys}
    return values


def _differing(old: dict[str, Any], new: dict[str, Any], above: str = "") -> list[str]:
    """The settings in which two recipes differ, with both values."""
    out = []
    for key in dict.fromkeys((*old, *new)):
        one, other = old.get(key), new.get(key)
        if isinstance(one, dict) and isinstance(other, dict) and key != "merge_labels":
            out += _differing(one, other, f"{key}.")
        elif one != other:
            out.append(f"{above}{key} is {one!r} there and {other!r} here")
    return out


def as_begun(recipe: Any, folder: Path) -> tuple[Any, bool]:
    """The recipe with the settings for splitting data that the run in the folder started with, or else the
    defaults of new runs (copies of an example in one split); and whether to leave out unreadable images after
    splitting, so that splits stay the same."""
    data, config, changes = recipe.data, folder / "config.toml", {}
    begun_as: Any = read_run_recipe(folder) if config.is_file() else None
    old_values = begun_as and begun_as.data
    if getattr(getattr(begun_as, "text", None), "scheme", None) == EXACT_SCHEME:
        recipe = replace(recipe, text=replace(recipe.text, scheme=EXACT_SCHEME))
    if hasattr(data, "copies"):
        if old_values is not None:
            recipe_of_run = getattr(old_values, "copies", None)
            if data.copies is not None and data.copies != (recipe_of_run or "apart"):
                what = f"was begun with copies = {recipe_of_run or 'apart'}"
                raise OtherRunError(what, where=str(config), fix="Leave copies out, or choose another --out")
            changes["copies"] = recipe_of_run
        elif data.copies is None and not is_named(data.source):
            changes["copies"] = "together"
    if old_values is not None and getattr(data, "pair_column", None) == AUTO:
        changes["pair_column"] = old_values.pair_column
    late = False
    if old_values is not None and hasattr(data, "broken"):
        late = data.broken == "skip" != getattr(old_values, "broken", "skip")
        changes["broken"] = getattr(old_values, "broken", data.broken)
    return (replace(recipe, data=replace(data, **changes)) if changes else recipe), late


def with_bad_rows(recipe: Any, on_bad_row: str | None, other: bool) -> Any:
    """The recipe with another ``on_bad_row``; ``other``: also set ``broken``, for images of other data."""
    if on_bad_row is None:
        return recipe
    keys = [
        key for key in ("on_bad_row", "broken") if hasattr(recipe.data, key) and (key != "broken" or other)
    ]
    return replace(recipe, data=replace(recipe.data, **dict.fromkeys(keys, on_bad_row)))


def begin(folder: Path, recipe: Any) -> None:
    """Create the run's folder and write its recipe, unless it has one."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "config.toml").exists():
        replace_text(folder / "config.toml", to_toml(recipe))
