"""What a shell offers behind a verb: names of recipes, and folders that hold a run or a saved model."""

from __future__ import annotations

import os
from pathlib import Path

RECIPE_HELP = "None with --text FILE; else a TOML file, or one that ships with the package:"
MOST = 200  # folders that are offered, or looked into
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
            for _, entry in zip(range(50 * MOST), entries, strict=False):
                hidden = entry.name.startswith(".") and not start.startswith(".")
                if entry.name.startswith(start) and not hidden and entry.is_dir():
                    path = os.path.join(parent, entry.name)
                    holds = any((Path(path) / name).is_file() for name in MARKS)
                    out.append(path if holds else path + os.sep)
    except OSError:
        return []
    return sorted(out)[:MOST]
