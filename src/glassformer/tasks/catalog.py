"""The tasks by name, and how their recipes are built.

Reading a recipe imports no task, so that the command line stays fast.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.checkpoints.files import read_json
from glassformer.config import (
    KnownRecipe,
    apply_overrides,
    build,
    join_names,
    parse_settings,
    read_toml,
    suggest,
    to_dict,
    with_values_in_files,
)
from glassformer.errors import BadValueError, NoSuchRecipeError, NotForThisModelError
from glassformer.reading import find_escaped
from glassformer.tasks.sections import RecipeKeys

DEFAULT_TASK = "text-classification"  # for a recipe without the key ``task``
RECIPES = Path(__file__).parents[1] / "recipes"
STUDIES = "study"  # subfolder with comparisons of recipes, which study/grid.py reads


def recipe_names() -> dict[str, Path]:
    """Map the name of each recipe in the package to its file."""
    return {path.stem: path for path in sorted(RECIPES.rglob("*.toml")) if path.parent.name != STUDIES}


def recipe_values(name_or_path: str | Path) -> tuple[dict[str, Any], str]:
    """The contents of a recipe's file, with its name and task; also the name of the file, for messages."""
    recipes = recipe_names()
    path = Path(name_or_path)
    if str(name_or_path) in recipes:
        path = recipes[str(name_or_path)]
    elif path.suffix != ".toml":
        suggestion = suggest(str(name_or_path), list(recipes))
        fix = suggestion if suggestion.startswith("Did") else "'glassformer recipes' lists them"
        raise NoSuchRecipeError(f"no recipe {str(name_or_path)!r}", fix=fix)
    return {"name": path.stem, "task": DEFAULT_TASK} | read_toml(path), path.name


def study_names() -> dict[str, Path]:
    """Map the name of each study in the package to its file."""
    return {path.stem: path for path in sorted((RECIPES / STUDIES).glob("*.toml"))}


if TYPE_CHECKING:
    from glassformer.tasks.task import Task


class Tasks(UserDict[str, "Task"]):
    """Maps task names to tasks; a ``Task`` is imported on first use."""

    def __init__(self, names: Iterable[str]):
        self.data = dict.fromkeys(names)  # type: ignore[assignment]  # the value None means: import on first use

    def __getitem__(self, name: str) -> Task:
        if (task := self.data[name]) is not None:
            return task
        module = _task_module(name, "estimator")
        return module.TASK if module.TASK.name == name else module.REGRESSION

    def recipe(self, name: str) -> type:
        """The class of a task's recipes."""
        task = self.data[name]
        return task.recipe if task else _recipe_in(_task_module(name, "recipe"), name)


def _task_module(name: str, file: str) -> Any:
    # The regression tasks are in the folders of the classification tasks.
    folder = next((task for (task, _), other in TARGETS.items() if other == name), name)
    return import_module(f"glassformer.tasks.{folder.replace('-', '_')}.{file}")


def _recipe_in(module: Any, name: str) -> type:
    classes = [c for c in vars(module).values() if getattr(c, "__module__", "") == module.__name__]
    return next(c for c in classes if isinstance(c, type) and issubclass(c, RecipeKeys) and c.task == name)


TASKS = Tasks(
    (
        "text-classification",
        "image-classification",
        "word2vec",
        "translation",
        "masked-lm",
        "similarity",
        "masked-patches",
        "token-tagging",
        "text-regression",
        "image-regression",
        "question-answering",
    )
)


# (task, data.target) of a recipe -> the task that it is for.
TARGETS = {
    ("text-classification", "number"): "text-regression",
    ("image-classification", "number"): "image-regression",
}


def task_with_target(task: Any, values: Mapping[str, Any], overrides: Sequence[str]) -> Any:
    """The task of a recipe, which ``data.target`` in the recipe or in ``overrides`` may change."""
    data = values.get("data")
    target = data.get("target") if isinstance(data, Mapping) else None
    settings = {key.removeprefix("data."): value for key, value in parse_settings(overrides).items()}
    target = settings.get("target", target)
    if not isinstance(task, str) or target is None or task not in {name for name, _ in TARGETS}:
        return task
    if isinstance(target, str) and (task, target) in TARGETS:
        return TARGETS[task, target]
    fix = f"Use {' or '.join(sorted({kind for _, kind in TARGETS}))}, or leave target out for classes"
    raise BadValueError(f"unknown target {target!r}", where="data.target", fix=fix)


def recipe_classes() -> dict[str, type]:
    """Map each task name to the class of its recipes."""
    return {name: TASKS.recipe(name) for name in TASKS}


def check_classifies(recipe: Any, *, words: bool = False, folds: bool = False, where: str = "task") -> None:
    """Raise ConfigError unless the recipe's task predicts labels.

    ``words`` also allows tasks that label words, and ``folds`` tasks with cross-validation.
    """
    allowed = [
        name
        for name, task in TASKS.items()
        if task.answer or (words and task.target.has_word_labels) or (folds and task.folds)
    ]
    if recipe.task not in allowed:
        what = f"{recipe.task} does not predict labels"
        raise NotForThisModelError(
            what, where=where, fix=f"Use a model of one of these tasks: {join_names(sorted(allowed))}"
        )


def task_of_estimator_name(kind: str | None) -> Task | None:
    """The task whose estimator has the name ``kind`` in ``glassformer.json``, or None."""
    return next((task for task in TASKS.values() if task.estimator.saved_as() == kind), None)


def task_of_estimator(estimator: type) -> Task | None:
    """The task of an estimator class, or None."""
    return next((task for task in TASKS.values() if task.estimator is estimator), None)


def task_of(folder: str | Path) -> Task:
    """The task of a run folder, from its recipe or else its metrics; the default if neither has a task."""
    path, metrics = Path(folder) / "config.toml", Path(folder) / "metrics.json"
    if path.is_file():
        return TASKS[_task_in(read_toml(path))]
    return TASKS[_task_in(read_json(metrics) if metrics.is_file() else {})]


def _task_in(config: Mapping[str, Any]) -> str:
    name = config.get("task")
    return name if isinstance(name, str) and name in TASKS else DEFAULT_TASK


def known_recipe(folder: str | Path) -> KnownRecipe:
    """What a report shows about the recipe of a run."""
    path, inputs = Path(folder) / "config.toml", task_of(folder).estimator.INPUTS
    known = known_recipe_of(read_toml(path) if path.is_file() else {})
    return replace(known, noun=inputs.noun, shape=inputs.shape, has_images=inputs.has_images)


def known_recipe_of(config: Mapping[str, Any]) -> KnownRecipe:
    """The result of ``known_recipe`` for the contents of a recipe's TOML file."""
    defaults = _defaults(build_recipe({"task": _task_in(config)}, ""))
    name = str(config.get("name", ""))
    return KnownRecipe(defaults, to_dict(load_recipe(name)) if name in recipe_names() else None)


def _defaults(recipe: Any) -> dict[str, dict[str, Any]]:
    def value(owner: Any, name: str) -> Any:
        setting = getattr(owner, name)
        return list(setting) if isinstance(setting, tuple) else setting

    names = [f.name for f in fields(recipe)]
    sections = {n: getattr(recipe, n) for n in names if is_dataclass(getattr(recipe, n))}
    table = {n: {key: value(s, key) for key in vars(s)} for n, s in sections.items()}
    return table | {"recipe": {n: value(recipe, n) for n in names if n not in sections}}


def build_recipe(values: Mapping[str, Any], where: str, overrides: Sequence[str] = ()) -> Any:
    """Build a recipe from the contents of a TOML file."""
    task = task_with_target(values.get("task", DEFAULT_TASK), values, overrides)
    if not isinstance(task, str) or task not in TASKS:
        raise BadValueError(f"no task {task!r}", where=f"{where}, task", fix=suggest(str(task), list(TASKS)))
    cls = TASKS.recipe(task)
    values = with_values_in_files(cls, values) | {"task": task}
    return _with_paths(build(cls, apply_overrides(values, overrides, cls), where))


def _with_paths(recipe: Any) -> Any:
    """The recipe with decoded paths, because TOML files store names that are not UTF-8 in an escaped form."""
    changes: dict[str, Any] = {}
    for section, key in (("data", "source"), ("data", "also"), ("model", "model")):
        if (values := getattr(recipe, section, None)) is None:
            continue
        value = getattr(values, key, None)
        decoded = tuple(map(find_escaped, value)) if isinstance(value, tuple) else value
        decoded = find_escaped(value) if isinstance(value, str) else decoded
        if decoded != value:
            changes[section] = replace(changes.get(section, values), **{key: decoded})
    return replace(recipe, **changes) if changes else recipe


def load_recipe(name_or_path: str | Path, overrides: Sequence[str] = ()) -> Any:
    """Load a recipe by name or from a TOML file, and apply ``KEY=VALUE`` overrides.

    Raises:
        ConfigError: there is no such recipe (the message suggests another), a key is unknown, or a value has
            the wrong type.
    """
    values, where = recipe_values(name_or_path)
    return build_recipe(values, where, overrides)
