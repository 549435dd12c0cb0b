"""Every task by its name, and a recipe of whichever task a file names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from glassformer.config import KnownRecipe, apply_overrides, build, nearest, read_toml, to_dict
from glassformer.errors import ConfigError
from glassformer.tasks.image_classification import run as image_classification
from glassformer.tasks.masked_lm import run as masked_lm
from glassformer.tasks.recipe import DEFAULT_TASK, recipe_names, recipe_values
from glassformer.tasks.task import Task
from glassformer.tasks.text_classification import run as text_classification
from glassformer.tasks.translation import run as translation
from glassformer.tasks.word2vec import run as word2vec

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        text_classification.TASK,
        image_classification.TASK,
        word2vec.TASK,
        translation.TASK,
        masked_lm.TASK,
    )
}


def recipe_classes() -> dict[str, type]:
    """Task -> the dataclass that holds its recipes. Each task has sections of its own."""
    return {name: task.recipe for name, task in TASKS.items()}


def check_classifies(recipe: Any) -> None:
    """Raises ConfigError where the recipe's task does not predict labels."""
    able = [name for name, task in TASKS.items() if task.answer]
    if recipe.task not in able:
        what = f"{recipe.task} does not predict labels"
        raise ConfigError(what, where="task", fix=nearest(recipe.task, able))


def task_of(folder: str | Path) -> Task:
    """The task of a run folder; where its recipe says nothing, the usual one.

    Raises:
        ConfigError: config.toml is not TOML.
    """
    path = Path(folder) / "config.toml"
    return _task_of(read_toml(path) if path.is_file() else {})


def _task_of(config: Mapping[str, Any]) -> Task:
    return TASKS.get(str(config.get("task")), TASKS[DEFAULT_TASK])


def known_recipe(folder: str | Path) -> KnownRecipe:
    """What a run's page must know of recipes.

    Raises:
        ConfigError: config.toml is not TOML.
    """
    path = Path(folder) / "config.toml"
    return known_recipe_of(read_toml(path) if path.is_file() else {})


def known_recipe_of(config: Mapping[str, Any]) -> KnownRecipe:
    """The same of a recipe's TOML."""
    defaults = _defaults(_task_of(config).recipe())
    name = str(config.get("name", ""))
    return KnownRecipe(defaults, to_dict(load_recipe(name)) if name in recipe_names() else None)


def _defaults(recipe: Any) -> dict[str, dict[str, Any]]:
    def value(owner: Any, name: str) -> Any:
        found = getattr(owner, name)
        return list(found) if isinstance(found, tuple) else found

    names = [f.name for f in fields(recipe)]
    sections = {n: getattr(recipe, n) for n in names if is_dataclass(getattr(recipe, n))}
    table = {n: {key: value(s, key) for key in vars(s)} for n, s in sections.items()}
    return table | {"recipe": {n: value(recipe, n) for n in names if n not in sections}}


def build_recipe(values: Mapping[str, Any], where: str, overrides: Sequence[str] = ()) -> Any:
    """A recipe from what a TOML file holds, of the class that its ``task`` names.

    Raises:
        ConfigError: an unknown task or key (the nearest is named), or a value of the wrong type.
    """
    task = values.get("task", DEFAULT_TASK)
    if not isinstance(task, str) or task not in TASKS:
        raise ConfigError(f"no task {task!r}", where=f"{where}.task", fix=nearest(str(task), list(TASKS)))
    cls = TASKS[task].recipe
    return build(cls, apply_overrides(dict(values), overrides, cls), where)


def load_recipe(name_or_path: str | Path, overrides: Sequence[str] = ()) -> Any:
    """A recipe by its name or from a TOML file, with ``KEY=VALUE`` overrides laid over it.

    Raises:
        ConfigError: no such recipe (the nearest is named), unknown key, wrong type.
    """
    values, where = recipe_values(name_or_path)
    return build_recipe(values, where, overrides)
