"""``glassformer recipes``, which lists the shipped recipes, and ``new``, which writes a recipe file."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.cli import options as cli
from glassformer.cli.options import argument, option, recipe_argument
from glassformer.cli.output import AS_JSON, print_json, print_message, print_note, print_text
from glassformer.cli.own_data import choose_recipe
from glassformer.config import join_names, suggest, to_dict, toml_literal
from glassformer.data.image_sources import NAMED_IMAGES
from glassformer.data.sources import NAMED_SOURCES
from glassformer.errors import BadValueError, ConfigError, ConflictError, NoSuchRecipeError
from glassformer.outputs import check_new_file, write_text
from glassformer.tasks.catalog import DEFAULT_TASK, TARGETS, TASKS, load_recipe, recipe_names, recipe_values

KEYS = ("name", "task", "summary")


def find_recipes(word: str = "") -> list[dict[str, str]]:
    """Name, task and summary of the shipped recipes that have ``word`` in one of these, sorted by task."""
    recipes = ({key: str(recipe_values(name)[0].get(key, "")) for key in KEYS} for name in recipe_names())
    word = word.lower()
    matches = [recipe for recipe in recipes if any(word in value.lower() for value in recipe.values())]
    return sorted(matches, key=lambda recipe: (recipe["task"], recipe["name"]))


def recipes_command(
    word: str | None = argument("WORD", "Show recipes with this word in their name, task or description."),
    json: bool = AS_JSON,
) -> None:
    """List the recipes accepted by `train`, `cross-validate` and `new`: name, task and description."""
    recipes = find_recipes(word or "")
    if not recipes:
        fix = "'glassformer recipes' lists all of them"
        what = f"no recipe has {word!r} in its name, task or description"
        raise NoSuchRecipeError(what, where="recipes", fix=fix)
    if json:
        print_json(recipes)
        return
    widths = [max(len(recipe[key]) for recipe in recipes) for key in KEYS[:2]]
    for recipe in recipes:
        print_text(f"{recipe['name']:<{widths[0]}}  {recipe['task']:<{widths[1]}}  {recipe['summary']}")


# --- new --------------------------------------------------------------------------------------------

WIDTH = 100  # maximum number of characters of a comment line in a recipe file


def commented_toml(recipe: Any, file: str) -> str:
    """A recipe as TOML; keys with default values are commented out."""
    values = to_dict(recipe)
    lines = [
        f"# glassformer train {file}",
        "#",
        "# A line that begins with '# key =' shows a default: take the '#' away to change it.",
    ]
    section = ""
    for key in cli.recipe_keys(recipe.task):
        if key.section != section:
            section = key.section
            lines += ["", f"[{section}]"]
        value = (values.get(section, {}) if section else values).get(key.name)
        comment = textwrap.wrap(key.meaning, WIDTH - 2, break_on_hyphens=False)
        lines += ["", *(f"# {line}" for line in comment)]
        if value is None:
            lines.append(f"# {key.name} =")
        else:
            default = getattr(type(getattr(recipe, section))(), key.name) if section else None
            is_default = default is not None and toml_literal(value) == toml_literal(default)
            lines.append(f"{'# ' if is_default else ''}{key.name} = {toml_literal(value)}")
    return "\n".join(lines) + "\n"


def default_recipe(task: str) -> str:
    """The name of a shipped recipe for a task, with built-in data if there is one."""
    if task not in TASKS:
        raise BadValueError(f"no task {task!r}", where="--task", fix=suggest(task, list(TASKS)))
    loaded = ((name, load_recipe(name)) for name in recipe_names())
    recipes = [(needs_files(recipe), len(name), name) for name, recipe in loaded if recipe.task == task]
    if not recipes:
        option = "--images FILE" if task.startswith("image") else "--text FILE"
        target = next((kind for (_, kind), other_task in TARGETS.items() if other_task == task), "")
        fix = f"Give {option}{f' --set target={target}' if target else ''}, or a recipe"
        raise ConfigError(f"there is no shipped recipe for {task}", where="--task", fix=fix)
    return min(recipes)[-1]


def needs_files(recipe: Any) -> bool:
    """Whether a recipe needs data that are not part of the package."""
    source = NAMED_SOURCES.get(recipe.data.source) or NAMED_IMAGES.get(recipe.data.source)
    return source is None or bool(source.folder)


def new_command(
    file: Path = argument("FILE.toml", "File to write.", default=...),
    recipe: str | None = recipe_argument("Recipe to start from (see: glassformer recipes)."),
    task: str | None = option("TASK", "Start from the default recipe of a task."),
    text: str | None = option("FILE", "Write a recipe for these labeled texts."),
    images: str | None = option("FOLDER", "Write a recipe for these labeled images."),
    model: str | None = cli.MODEL_NAME,
    data: str | None = cli.SOURCE,
    settings: list[str] | None = cli.SETTINGS,
    json: bool = AS_JSON,
) -> None:
    """Write a new recipe file: every key with its meaning, ready to train."""
    settings = settings or []
    if file.suffix != ".toml":
        what = "a recipe is written as a .toml file"
        raise BadValueError(what, where=str(file), fix=f"Name it {file.name}.toml")
    check_new_file(file, "FILE")
    sources = [name for name, value in (("RECIPE", recipe), ("--text", text), ("--images", images)) if value]
    if task is not None and sources:
        what = f"--task and {join_names(sources)} are given"
        raise ConflictError(what, where="new", fix="Give one of them")
    if not sources:
        recipe = default_recipe(task or DEFAULT_TASK)
    options = {"images": images, "model": model, "data": data, "settings": settings}
    config = replace(choose_recipe(recipe, text, command="new", **options), name=file.stem)
    set_keys = {word.partition("=")[0].rpartition(".")[2] for word in settings}
    if (set_keys or model) and "expect" not in set_keys:  # the expected result was for other settings
        config = replace(config, expect="")
    write_text(file, commented_toml(config, str(file)))
    saved = load_recipe(str(file))
    print_message(f"{saved.task} on {saved.data.source}: {file}")
    if not Path(saved.data.source).exists() and needs_files(saved):
        print_note(f"the data set {saved.data.source} is not part of the package: give --data PATH")
    print_message(f"next: glassformer train {file}")
    if json:
        print_json({"file": file, "task": saved.task, "data": saved.data.source})
