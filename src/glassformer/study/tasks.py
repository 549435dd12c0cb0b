"""Task -> the function that runs its recipes. A recipe of any task becomes a run folder through here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from glassformer.study.experiment import Run, run_recipe
from glassformer.study.vectors import run_vectors

RUNNERS: dict[str, Callable[..., Run]] = {"text-classification": run_recipe, "word2vec": run_vectors}


def run_task(recipe: Any, folder: str | Path, **options: Any) -> Run:
    """Run a recipe of any task in ``folder``; options and errors as in ``experiment.run_recipe``."""
    return RUNNERS[recipe.task](recipe, folder, **options)
