"""Find and read the recipes that ship with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glassformer.config import nearest, read_toml
from glassformer.errors import NoSuchRecipeError

DEFAULT_TASK = "text-classification"  # for a recipe without the key ``task``
RECIPES = Path(__file__).parents[1] / "recipes"
STUDIES = "study"  # subfolder with comparisons of recipes, read by study/grid.py


def recipe_names() -> dict[str, Path]:
    """Name -> file of every recipe that ships with the package."""
    return {path.stem: path for path in sorted(RECIPES.rglob("*.toml")) if path.parent.name != STUDIES}


def recipe_values(name_or_path: str | Path) -> tuple[dict[str, Any], str]:
    """The contents of a recipe's file, with name and task filled in, and the file's name for messages."""
    known = recipe_names()
    path = Path(name_or_path)
    if str(name_or_path) in known:
        path = known[str(name_or_path)]
    elif path.suffix != ".toml":
        near = nearest(str(name_or_path), list(known))
        fix = near if near.startswith("Did") else "'glassformer recipes' lists them"
        raise NoSuchRecipeError(f"no recipe {str(name_or_path)!r}", fix=fix)
    return {"name": path.stem, "task": DEFAULT_TASK} | read_toml(path), path.name


def study_names() -> dict[str, Path]:
    """Name -> file of every study that ships with the package."""
    return {path.stem: path for path in sorted((RECIPES / STUDIES).glob("*.toml"))}
