"""Every key of a recipe with its default and meaning, read from the comments behind the fields."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import json
import sys
import tokenize
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from glassformer.recipe import Recipe


class Key(NamedTuple):
    """One key: ``name`` goes before the ``=`` of ``--set``."""

    section: str  # "" for the keys at the top of a recipe
    name: str
    default: str  # as TOML writes it; "" for None
    meaning: str


def recipe_keys(kind: type = Recipe) -> Iterator[Key]:
    """The keys of every section of a task's recipes, in the order of the file."""
    sections: dict[str, Any] = {"": kind}
    hints = typing.get_type_hints(kind)
    sections |= {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    for section, cls in sections.items():
        hints = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            if dataclasses.is_dataclass(hints[field.name]):
                continue
            default = "" if field.default is None else json.dumps(field.default)
            meaning = next(filter(None, (_comments(base).get(field.name) for base in cls.__mro__)), "")
            choices = _choices(hints[field.name])
            parts = [meaning, f"({' | '.join(choices)})" if choices else ""]
            yield Key(section, field.name, default, " ".join(filter(None, parts)))


def _choices(hint: Any) -> list[str]:
    literals = [hint] if typing.get_origin(hint) is typing.Literal else typing.get_args(hint)
    return [
        str(c) for lit in literals if typing.get_origin(lit) is typing.Literal for c in typing.get_args(lit)
    ]


@cache
def _comments(cls: type) -> dict[str, str]:
    """Field -> the comment behind it, of the fields that stand in the class itself."""
    if not dataclasses.is_dataclass(cls):
        return {}
    source = inspect.getsource(sys.modules[cls.__module__])
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    at_line = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
    return {
        node.target.id: at_line[node.end_lineno]
        for found in ast.parse(source).body
        if isinstance(found, ast.ClassDef) and found.name == cls.__name__
        for node in found.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.end_lineno in at_line
    }
