"""Every key of a recipe with its default and meaning, read from the comments in the recipes' classes."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import json
import tokenize
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

from glassformer.config import takes_none
from glassformer.tasks.catalog import recipe_classes


class Key(NamedTuple):
    """One key: ``name`` goes before the ``=`` of ``--set``."""

    section: str  # "" for the keys at the top of a recipe
    name: str
    default: str  # as TOML writes it; "none", or "" where none is one of the choices, for None
    meaning: str


def recipe_keys(task: str = "text-classification") -> Iterator[Key]:
    """The keys of every section of a task's recipes, in the order of the file."""
    kind = recipe_classes()[task]
    sections: dict[str, Any] = {"": kind}
    hints = typing.get_type_hints(kind)
    sections |= {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    for section, cls in sections.items():
        hints = typing.get_type_hints(cls)
        comments = _comments(cls)
        for field in dataclasses.fields(cls):
            if dataclasses.is_dataclass(hints[field.name]):
                continue
            default = json.dumps(field.default)
            if field.default is None:
                default = "none" if takes_none(kind, field.name) else ""
            meaning = comments.get(field.name, "")
            choices = _choices(hints[field.name])
            parts = [meaning, f"({' | '.join(choices)})" if choices else ""]
            yield Key(section, field.name, default, " ".join(filter(None, parts)))


def _choices(hint: Any) -> list[str]:
    literals = [hint] if typing.get_origin(hint) is typing.Literal else typing.get_args(hint)
    return [
        str(c) for lit in literals if typing.get_origin(lit) is typing.Literal for c in typing.get_args(lit)
    ]


def _comments(cls: type) -> dict[str, str]:
    """Field -> the comment behind it, in the class and those that it builds on."""
    found: dict[str, str] = {}
    for owner in reversed(cls.__mro__[:-1]):
        source = inspect.getsource(owner)
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        at_line = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                if told := " ".join(at_line[line] for line in lines if line in at_line):
                    found[node.target.id] = told
    return found
