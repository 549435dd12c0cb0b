"""Where a verb puts what it makes, unless it is told, and whether what it is to read is there."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from contextlib import suppress
from pathlib import Path

from glassformer.checkpoints.files import models_below
from glassformer.checkpoints.locks import refuse_held
from glassformer.errors import ConfigError

RUNS = Path("runs")
MOST = 1_000  # folders that are looked at for a name like the one given


def check_folder(run: str | Path) -> Path:
    """The folder of a run or a saved model. Verbs ask this first: a mistake is told before torch is imported.

    Raises:
        ConfigError: there is none, or an export that this program does not open.
    """
    folder = Path(run)
    if not folder.is_dir():
        raise no_run(folder)
    if (folder / "onnx.json").is_file() and (folder / "run.py").is_file():
        what, program = "is an ONNX export, which answers without this program", str(folder / "run.py")
        fix = f"Ask it with: python {shlex.quote(program)} A TEXT; or name the run that it was made of"
        raise ConfigError(what, where=str(folder), fix=fix)
    return folder


def no_run(folder: Path) -> ConfigError:
    """What is said of a run that is not there: the nearest folder beside where it would be."""
    fix = "Name the --out of 'glassformer train'"
    if folder.is_dir():
        if found := models_below(folder, "config.toml"):
            fix = f"Give one below it: {found}"
        return ConfigError("is not a run folder: it has no config.toml", where=str(folder), fix=fix)
    with suppress(OSError):
        beside = [
            path.name for _, path in zip(range(MOST), folder.parent.iterdir(), strict=False) if path.is_dir()
        ]
        if close := difflib.get_close_matches(folder.name, beside, n=1):
            fix = f"Did you mean {str(folder.parent / close[0])!r}?"
    return ConfigError("no such run folder", where=str(folder), fix=fix)


def refuse_finished(folder: Path | None) -> None:
    """Raises ConfigError where a run that has ended stands in the way of another, before anything is read."""
    if folder is None:
        return
    with suppress(OSError):  # a name that cannot be is told where the folder is made
        if not ((folder / "metrics.json").is_file() and (folder / "config.toml").is_file()):
            return
        refuse_held(folder)  # a process that writes there matters more than the run that stands there
        fix = f"Choose another: --out {free_beside(folder)}. (--resume goes on with what was stopped)"
        raise ConfigError("the output folder exists, its run has ended", where=str(folder), fix=fix)


def free_folder(source: str) -> list[str]:
    """``--out DIR`` where the folder that a training of some data would take is there already."""
    folder = default_folder(Path(source).stem)
    return ["--out", str(free_beside(folder))] if folder.exists() else []


def free_beside(folder: Path) -> Path:
    """The folder, or where it is taken one with a number behind its name."""
    number, free = 2, folder
    while free.exists():
        free, number = folder.with_name(f"{folder.name}-{number}"), number + 1
    return free


def default_folder(name: str, suffix: str = "") -> Path:
    """``runs/NAME``.

    Raises:
        ConfigError: a name that would lead elsewhere.
    """
    if re.search(r"[/\\\0]", name) or name in (".", ".."):
        raise ConfigError(
            f"{name!r} cannot be a folder's name", where="name", fix="Use letters, or give --out"
        )
    return RUNS / f"{name or 'run'}{suffix}"


# --- what a shell offers behind a verb ------------------------------------------------------------
#
# Names of recipes, and folders that hold a run or a saved model.


MOST_FOLDERS = 200  # folders that are offered, or looked into
MARKS = ("config.toml", "glassformer.json", "config.json")  # of a run, a saved model, a checkpoint


def recipes(incomplete: str) -> list[str]:
    """The shipped recipes that begin so."""
    from glassformer.tasks.recipe import recipe_names

    return [name for name in recipe_names() if name.startswith(incomplete)]


def studies(incomplete: str) -> list[str]:
    """The shipped studies that begin so, and runs."""
    from glassformer.tasks.recipe import study_names

    return [name for name in study_names() if name.startswith(incomplete)] + run_folders(incomplete)


def run_folders(incomplete: str) -> list[str]:
    """Folders whose path begins so: runs and models whole, others with a slash, to go on from there."""
    parent, start = os.path.split(incomplete)
    out = []
    try:
        with os.scandir(parent or ".") as entries:
            for _, entry in zip(range(50 * MOST_FOLDERS), entries, strict=False):
                hidden = entry.name.startswith(".") and not start.startswith(".")
                if entry.name.startswith(start) and not hidden and entry.is_dir():
                    path = os.path.join(parent, entry.name)
                    holds = any((Path(path) / name).is_file() for name in MARKS)
                    out.append(path if holds else path + os.sep)
    except OSError:
        return []
    return sorted(out)[:MOST_FOLDERS]
