"""The recipes that ship with the package."""

from __future__ import annotations

from pathlib import Path

RECIPES = Path(__file__).parents[1] / "recipes"
STUDIES = "study"  # the folder in it that holds comparisons of recipes, read by study/grid.py


def recipe_names() -> dict[str, Path]:
    """Name -> file of every recipe that ships with the package."""
    return {path.stem: path for path in sorted(RECIPES.rglob("*.toml")) if path.parent.name != STUDIES}


def study_names() -> dict[str, Path]:
    """Name -> file of every study that ships with the package."""
    return {path.stem: path for path in sorted((RECIPES / STUDIES).glob("*.toml"))}
