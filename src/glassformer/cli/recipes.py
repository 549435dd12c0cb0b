"""``glassformer recipes``: the recipes that ship with the package, a line for each."""

from __future__ import annotations

from typing import Annotated

from glassformer.cli.options import argument
from glassformer.cli.output import AsJson, emit, say_json
from glassformer.errors import ConfigError
from glassformer.tasks.recipe import recipe_names, recipe_values

KEYS = ("name", "task", "summary")


def shipped(word: str = "") -> list[dict[str, str]]:
    """Name, task and summary of each recipe that has the word in one of them, by task and name."""
    found = ({key: str(recipe_values(name)[0].get(key, "")) for key in KEYS} for name in recipe_names())
    fitting = [one for one in found if any(word.lower() in value.lower() for value in one.values())]
    return sorted(fitting, key=lambda one: (one["task"], one["name"]))


def recipes_command(
    word: Annotated[
        str | None, argument("WORD", "Show recipes with this word in their name, task or description.")
    ] = None,
    json: AsJson = False,
) -> None:
    """List the recipes that train, cross-validate and new take: name, task and description."""
    found = shipped(word or "")
    if not found:
        fix = "'glassformer recipes' lists all of them"
        raise ConfigError(f"no recipe has {word!r} in its name, task or description", where="WORD", fix=fix)
    if json:
        say_json(found)
        return
    widths = [max(len(one[key]) for one in found) for key in KEYS[:2]]
    for one in found:
        emit(f"{one['name']:<{widths[0]}}  {one['task']:<{widths[1]}}  {one['summary']}")
