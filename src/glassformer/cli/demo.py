"""``glassformer demo``: train, judge and look into two small Transformers, for text and for pictures."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from glassformer.cli.finished import as_dict, show_run
from glassformer.cli.options import flag
from glassformer.cli.output import AsJson, say, say_json
from glassformer.cli.train import train
from glassformer.config import read_toml
from glassformer.errors import ConfigError
from glassformer.tasks.text_classification.recipe import Recipe

if TYPE_CHECKING:
    from glassformer.tasks.run_folder import Run

RECIPE = "europe"
# Recipe -> where its run goes, and what is said first.
DEMOS = {
    RECIPE: (
        Path("demo-run"),
        "A Transformer learns from nothing whether a sentence names France, Germany, Italy, Spain or "
        "the UK.\n"
        "The 20,000 sentences are made here. It is then judged on sentences it has not seen, beside two "
        "simple models.",
    ),
    "digits": (
        Path("demo-digits"),
        "\nThe same encoder reads pictures: 1,150 handwritten digits of 8 x 8 pixels, cut into 16 "
        "patches each.",
    ),
}
QUICK = {  # what --quick lays over a recipe
    RECIPE: ("limit=4000", "epochs=1", "bootstrap=200"),
    "digits": ("epochs=3", "bootstrap=200"),
}
# What a run folder may hold; anything else is somebody's own and keeps the folder from being replaced.
OURS = {
    "config.toml",
    "history.jsonl",
    "checkpoints",
    "model",
    "doctor.json",
    "metrics.json",
    "predictions.csv",
    "baselines.csv",
    "maps.json",
    "grid.png",
    "pictures.json",
    "report.html",
    ".lock",
}


def demo(folder: Path, settings: Sequence[str] = (), name: str = RECIPE) -> tuple[Run, Recipe]:
    """Run a demo's recipe in ``folder`` in place of an earlier demo.

    Args:
        settings: ``KEY=VALUE`` laid over the recipe.
        name: the recipe.

    Raises:
        ConfigError: something that is not an earlier demo stands there.
    """
    from glassformer.tasks.catalog import load_recipe

    recipe = load_recipe(name, settings)
    clear(folder, name)
    for line in DEMOS[name][1].split("\n"):
        say(line)
    return train(recipe, folder), recipe


def clear(folder: Path, name: str = RECIPE) -> None:
    """Remove an earlier demo of that name.

    Raises:
        ConfigError: there is something else, or a demo that is still running; nothing is removed.
    """
    from glassformer.checkpoints.locks import refuse_held

    if not folder.exists() and not folder.is_symlink():
        return
    config = folder / "config.toml"
    ours = not folder.is_symlink() and config.is_file() and all(map(_is_ours, folder.iterdir()))
    if not ours or read_toml(config).get("name") != name:
        fix = "Move it away, or call the demo in another folder"
        raise ConfigError(
            "stands where the demo writes and is not an earlier demo", where=str(folder), fix=fix
        )
    refuse_held(folder)
    shutil.rmtree(folder)


def _is_ours(path: Path) -> bool:
    """Whether a run makes a file or folder of that name, or leaves one when it is killed while it writes."""
    return path.name in OURS or re.sub(r"^\.|\.(\d+(-[0-9a-f]{8})?\.tmp|old)$", "", path.name) in OURS


def demo_command(
    quick: Annotated[
        bool, flag("--quick", "Use less data and fewer epochs, to check the installation.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Train, evaluate and explain two Transformers: sentences into ./demo-run, digits into ./demo-digits."""
    for name, (folder, _) in DEMOS.items():  # a folder in the way is found before anything is computed
        clear(folder, name)
    runs = {}
    for name, (folder, _) in DEMOS.items():
        run, recipe = demo(folder, QUICK[name] if quick else (), name)
        show_run(run, recipe)
        if json:
            runs[name] = as_dict(run)
    say("open the reports in a browser: they show the curves, the mistakes, and where a model looks")
    if json:
        say_json({"runs": runs})
