"""``glassformer demo``: train, judge and look into a small Transformer, from nothing, in less than a minute."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.cli.output import say
from glassformer.cli.train import show_run, train
from glassformer.config import read_toml
from glassformer.errors import ConfigError
from glassformer.recipe import Recipe, load_recipe

if TYPE_CHECKING:
    from glassformer.study.run_folder import Run

FOLDER = Path("demo-run")
RECIPE = "europe"
# What a run folder may hold; anything else is somebody's own and keeps the folder from being replaced.
OURS = {
    "config.toml", "history.jsonl", "checkpoints", "model", "doctor.json", "metrics.json", "predictions.csv",
    "maps.json", "report.html",
}  # fmt: skip


def demo(folder: Path = FOLDER, settings: Sequence[str] = ()) -> tuple[Run, Recipe]:
    """Run the demo's recipe in ``folder`` in place of an earlier demo.

    Args:
        settings: ``KEY=VALUE`` laid over the recipe.

    Raises:
        ConfigError: something that is not an earlier demo stands there.
    """
    recipe = load_recipe(RECIPE, settings)
    clear(folder)
    say("A Transformer learns from nothing whether a sentence names France, Germany, Italy, Spain or the UK.")
    say(
        "The 20,000 sentences are made here. It is then judged on sentences it has not seen, beside two simple models."
    )
    return train(recipe, folder), recipe


def clear(folder: Path) -> None:
    """Remove an earlier demo.

    Raises:
        ConfigError: there is something else; nothing is removed.
    """
    if not folder.exists() and not folder.is_symlink():
        return
    config = folder / "config.toml"
    ours = not folder.is_symlink() and config.is_file() and all(map(_is_ours, folder.iterdir()))
    if not ours or read_toml(config).get("name") != RECIPE:
        fix = "Move it away, or call the demo in another folder"
        raise ConfigError(
            "stands where the demo writes and is not an earlier demo", where=str(folder), fix=fix
        )
    shutil.rmtree(folder)


def _is_ours(path: Path) -> bool:
    """Whether a run makes a file or folder of that name, or leaves one when it is killed while it writes."""
    return path.name in OURS or re.sub(r"^\.|\.(\d+(-[0-9a-f]{8})?\.tmp|old)$", "", path.name) in OURS


def demo_command() -> None:
    """Train, judge and explain a small Transformer on an embedded corpus, into ./demo-run. Takes less than a minute."""
    run, recipe = demo()
    show_run(run, recipe)
    say("open the report in a browser: it shows the curves, the mistakes, and where the model looks")
