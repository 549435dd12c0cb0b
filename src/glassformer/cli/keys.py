"""Every key of a recipe with its default and meaning, as the recipes' classes say them."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

import typer

from glassformer.cli.output import say, show_table
from glassformer.config import meaning_of, takes_none
from glassformer.finite import json_text
from glassformer.tasks.recipe import DEFAULT_TASK


class Key(NamedTuple):
    """One key: ``name`` goes before the ``=`` of ``--set``."""

    section: str  # "" for the keys at the top of a recipe
    name: str
    default: str  # as TOML writes it; "none", or "" where none is one of the choices, for None
    meaning: str


def recipe_keys(task: str = DEFAULT_TASK) -> Iterator[Key]:
    """The keys of every section of a task's recipes, in the order of the file."""
    from glassformer.tasks.catalog import TASKS

    kind = TASKS.recipe(task)
    sections: dict[str, Any] = {"": kind}
    hints = typing.get_type_hints(kind)
    sections |= {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    for section, cls in sections.items():
        hints = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            if dataclasses.is_dataclass(hints[field.name]):
                continue
            default = json_text(field.default, ascii=True)
            if field.default is None:
                default = "none" if takes_none(kind, field.name) else ""
            choices = _choices(hints[field.name])
            parts = [meaning_of(field), f"({' | '.join(choices)})" if choices else ""]
            yield Key(section, field.name, default, " ".join(filter(None, parts)))


def all_keys() -> dict[str, Key]:
    """The keys of all tasks by their names."""
    from glassformer.tasks.catalog import TASKS

    return {key.name: key for task in TASKS for key in recipe_keys(task)}


def _choices(hint: Any) -> list[str]:
    literals = [hint] if typing.get_origin(hint) is typing.Literal else typing.get_args(hint)
    return [
        str(c) for lit in literals if typing.get_origin(lit) is typing.Literal for c in typing.get_args(lit)
    ]


def show_keys(wanted: bool) -> None:
    """Every key of every task on the terminal; then the command leaves."""
    if not wanted:
        return
    from glassformer.tasks.catalog import TASKS

    for task in TASKS:
        sections: dict[str, list[tuple[str, str, str]]] = {}
        for key in recipe_keys(task):
            sections.setdefault(key.section, []).append((key.name, key.default, key.meaning))
        say(f"{task}:")
        for section, rows in sections.items():
            show_table(f"[{section}]" if section else "at the top", ("key", "default", "meaning"), rows)
    say("--set KEY=none empties a key whose default is none.")
    raise typer.Exit
