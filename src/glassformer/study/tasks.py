"""Task -> the functions that run its recipes and judge its runs. A recipe of any task goes through here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from glassformer.study.experiment import Run, evaluate_run, read_run_recipe, run_recipe
from glassformer.study.image_experiment import evaluate_image_run, run_image_recipe

RUNNERS: dict[str, Callable[..., Run]] = {
    "text-classification": run_recipe,
    "image-classification": run_image_recipe,
}
EVALUATORS: dict[str, Callable[..., dict[str, Any]]] = {
    "text-classification": evaluate_run,
    "image-classification": evaluate_image_run,
}


def run_task(recipe: Any, folder: str | Path, **options: Any) -> Run:
    """Run a recipe of any task in ``folder``; options and errors as in ``experiment.run_recipe``."""
    return RUNNERS[recipe.task](recipe, folder, **options)


def evaluate_task(folder: str | Path, *arguments: Any) -> dict[str, Any]:
    """Judge a run of any task again; arguments as in ``experiment.evaluate_run``."""
    return EVALUATORS[read_run_recipe(Path(folder)).task](folder, *arguments)
