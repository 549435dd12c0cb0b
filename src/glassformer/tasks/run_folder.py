"""The folder of a run: who may write there, what is a run and what is none, and what it says of itself."""

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
from glassformer.checkpoints.locks import LOCK, holds_nothing, refuse_held, writing
from glassformer.checkpoints.native import list_states
from glassformer.checkpoints.settings import about_in
from glassformer.config import listed, read_toml, to_dict, to_toml
from glassformer.data.columns import AUTO, NONE
from glassformer.data.tags import EXACT
from glassformer.errors import ExistsError, NotARunError, OtherRunError, UnknownKeyError
from glassformer.outputs import check_folder_path
from glassformer.report.notebook import Records, run_html
from glassformer.report.run import read_history
from glassformer.runtime import the_others_ended, world
from glassformer.tasks.catalog import build_recipe
from glassformer.tasks.same_data import is_named


@dataclass
class Run:
    """A finished run: its folder, its figures and its report."""

    folder: Path
    metrics: dict[str, Any]
    report: Path

    @classmethod
    def of(cls, folder: str | Path) -> Run:
        """A run that has ended, from its folder.

        Raises:
            CheckpointError: it has no figures.
        """
        folder = Path(folder)
        return cls(folder, read_json(folder / "metrics.json"), folder / "report.html")

    @property
    def history(self) -> Records:
        """The records of its training, from ``history.jsonl``."""
        return Records(read_history(self.folder / "history.jsonl"))

    def plot(self) -> Any:
        """Loss, and what was held out, over the steps: a figure of matplotlib, which a notebook shows."""
        return self.history.plot(self.folder.name)

    def _repr_html_(self) -> str:
        return str(run_html(self.folder, self.metrics))


class Helped(Exception):
    """This process has helped to train, and another one writes what came of it."""


@contextmanager
def one_writer() -> Iterator[None]:
    """Entered once training is over: of several processes, one goes on alone, to judge and to write.

    Raises:
        Helped: in all the others.
    """
    if world()[0]:
        raise Helped
    with the_others_ended():
        yield


def read_run_recipe(folder: Path) -> Any:
    """The resolved recipe of a run folder."""
    config = folder / "config.toml"
    recipe = build_recipe(read_toml(config), str(config))
    said = read_toml(config)
    if hasattr(recipe.data, "pair_column") and "pair_column" not in said.get("data", {}):  # before pairs
        return replace(recipe, data=replace(recipe.data, pair_column=NONE))
    if hasattr(getattr(recipe, "text", None), "scheme") and "scheme" not in said.get("text", {}):
        return replace(recipe, text=replace(recipe.text, scheme=EXACT))  # a run before tags were looked at
    return recipe


def trained_columns(folder: str | Path) -> tuple[str | None, ...]:
    """The columns of texts that a run or a saved model was trained on, of pairs both: as the model keeps
    their names, else as the run's recipe names them; empty: neither does."""
    folder = Path(folder)
    names = about_in(folder)[1].get("columns")
    if isinstance(names, list) and names:  # ``load`` says what is wrong with others
        return tuple(map(str, names))
    if not (folder / "config.toml").is_file():  # a saved model alone
        return ()
    data = read_run_recipe(folder).data
    text = getattr(data, "text_column", None) or getattr(data, "source_column", None)
    pair = getattr(data, "pair_column", NONE)
    return (text, pair) if pair not in (AUTO, NONE) else (text,) if text else ()


def trained_column(folder: str | Path) -> str | None:
    """The first of ``trained_columns``, or a translation's source; None: it is not known."""
    return next(iter(trained_columns(folder)), None)


def with_columns(recipe: Any, columns: Mapping[str, str]) -> Any:
    """A recipe that reads other columns: of data that are not its own.

    Args:
        columns: key of the recipe's data -> the column's name.

    Raises:
        ConfigError: a recipe of this task has no such column.
    """
    for key in columns:
        if not hasattr(recipe.data, key):
            known = [k for k in vars(recipe.data) if k.endswith("_column")]
            what = f"a recipe of {recipe.task} has no {key}"
            raise UnknownKeyError(what, where=key, fix=f"It has {' and '.join(known) or 'no columns'}")
    return replace(recipe, data=replace(recipe.data, **columns))


FOLDERS = {"checkpoints", "tensorboard"}
UNBEGUN = {"config.toml", "doctor.json", "rejected.jsonl", "history.jsonl", LOCK, *FOLDERS}


def alone(run: Callable[..., Run]) -> Callable[..., Run]:
    """A runner of recipes that holds the lock of its folder from its start to its end, and that leaves
    nothing where it is stopped, or fails, before there is anything to go on from.
    """

    @wraps(run)
    def guarded(recipe: Any, folder: str | Path, *, resume: bool = False, **options: Any) -> Run:
        folder = check_folder_path(Path(folder))
        refuse_held(folder)
        # The lock of a process that was killed: what it left is no run as long as nothing was begun.
        killed = (folder / LOCK).is_file()
        check_folder(folder, recipe, resume, killed)
        with writing(folder):
            check_folder(folder, recipe, resume, killed)  # whoever held the lock before may have left a run
            if killed and not resume:
                clear_unbegun(folder)
            new = not (folder / "config.toml").exists()
            try:
                return run(recipe, folder, resume=resume, **options)
            except Helped:
                raise
            except BaseException:
                if new:
                    clear_unbegun(folder)
                raise

    return guarded


def is_begun(folder: Path) -> bool:
    """Whether a folder holds more than the first files of a run: a step, a checkpoint, or anything else."""
    names = {name for name in os.listdir(folder) if not is_temporary(name)}
    history = folder / "history.jsonl"
    stepped = history.is_file() and history.stat().st_size > 0
    return not names <= UNBEGUN or stepped or bool(list_states(folder / "checkpoints"))


def clear_unbegun(folder: Path) -> None:
    """Remove the first files of a run not begun; else the corrected command would meet a folder in use."""
    if is_begun(folder):
        return
    for name in os.listdir(folder):
        with suppress(OSError):
            if name in FOLDERS:
                shutil.rmtree(folder / name)
            elif name != LOCK:
                (folder / name).unlink()


def check_folder(folder: Path, recipe: Any, resume: bool, killed: bool = False) -> None:
    """Raises ConfigError where a run cannot be begun, or gone on with, in ``folder``.

    Args:
        killed: a process was killed there; what it has not begun does not count.
    """
    config = folder / "config.toml"
    check_folder_path(folder)
    if killed and not resume and not is_begun(folder):
        return
    if folder.is_dir() and not holds_nothing(folder):
        if not resume:
            raise ExistsError(
                "the output folder exists",
                where=str(folder),
                fix="Continue with --resume, or choose another --out",
            )
        if not config.is_file():
            raise NotARunError("is not a run folder: it has no config.toml", where=str(folder))
    if config.is_file() and (
        other := _differing(what_decides(read_run_recipe(folder)), what_decides(recipe))
    ):
        raise OtherRunError(
            f"holds a run of another recipe ({listed(other)})",
            where=str(config),
            fix="Resume with the same recipe and --set values, or choose another --out",
        )


UNCOMPARED = {
    "train": ("verbose",),
    "text": ("scheme",),  # tags that are read otherwise are other data
    "data": ("broken", "on_bad_row", "copies", "pair_column", "encoding"),  # see ``as_begun``
}


def what_decides(recipe: Any) -> dict[str, Any]:
    """A recipe's settings without those that change nothing in a run: what is said of it, and how loudly; nor
    those that a run that goes on has from its beginning."""
    values = {key: value for key, value in to_dict(recipe).items() if key not in ("summary", "expect")}
    for section, keys in UNCOMPARED.items():
        if section in values:
            values[section] = {key: value for key, value in values[section].items() if key not in keys}
    return values


def _differing(there: dict[str, Any], here: dict[str, Any], above: str = "") -> list[str]:
    """The settings in which two recipes differ, with both values."""
    out = []
    for key in dict.fromkeys((*there, *here)):
        one, other = there.get(key), here.get(key)
        if isinstance(one, dict) and isinstance(other, dict) and key != "merge_labels":
            out += _differing(one, other, f"{key}.")
        elif one != other:
            out.append(f"{above}{key} is {one!r} there and {other!r} here")
    return out


def as_begun(recipe: Any, folder: Path) -> tuple[Any, bool]:
    """A recipe whose data are split as the run in the folder has begun, or as new runs do; and whether
    images that cannot be read are to be left out after that, so that all others keep their places.

    Copies of an example stay on one side in new runs on data of one's own; a run that was begun before there
    was such a setting goes on as it was split.

    Raises:
        ConfigError: the run was begun with copies treated in another way than is asked for.
    """
    data, config, changes = recipe.data, folder / "config.toml", {}
    begun_as: Any = read_run_recipe(folder) if config.is_file() else None
    before = begun_as and begun_as.data
    if getattr(getattr(begun_as, "text", None), "scheme", None) == EXACT:
        recipe = replace(recipe, text=replace(recipe.text, scheme=EXACT))
    if hasattr(data, "copies"):
        if before is not None:
            begun = getattr(before, "copies", None)
            if data.copies is not None and data.copies != (begun or "apart"):
                what = f"was begun with copies = {begun or 'apart'}"
                raise OtherRunError(what, where=str(config), fix="Leave copies out, or choose another --out")
            changes["copies"] = begun
        elif data.copies is None and not is_named(data.source):
            changes["copies"] = "together"
    if before is not None and getattr(data, "pair_column", None) == AUTO:
        changes["pair_column"] = before.pair_column
    late = False
    if before is not None and hasattr(data, "broken"):
        late = data.broken == "skip" != getattr(before, "broken", "skip")
        changes["broken"] = getattr(before, "broken", data.broken)
    return (replace(recipe, data=replace(data, **changes)) if changes else recipe), late


def with_bad_rows(recipe: Any, on_bad_row: str | None, other: bool) -> Any:
    """A recipe by which rows that cannot be used are treated in another way; images of other data too."""
    if on_bad_row is None:
        return recipe
    keys = [
        key for key in ("on_bad_row", "broken") if hasattr(recipe.data, key) and (key != "broken" or other)
    ]
    return replace(recipe, data=replace(recipe.data, **dict.fromkeys(keys, on_bad_row)))


def begin(folder: Path, recipe: Any) -> None:
    """The run's folder with its recipe in it; one that is there already stays as it is."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "config.toml").exists():
        replace_text(folder / "config.toml", to_toml(recipe))
