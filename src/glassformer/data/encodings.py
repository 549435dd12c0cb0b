"""What tables do not say of themselves: their encoding, what quotes mean, whether there is a header.

It is said once, for a command and all processes that it starts, or by a recipe for its own data.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from glassformer.config import nearest
from glassformer.errors import ConfigError
from glassformer.process import READING

NOT_ASCII = ("\xe9", "\u0416", "\u3042")  # letters, of which most encodings have one
CHOICES = {"quoting": ("csv", "none"), "header": ("yes", "no")}  # what the others may be
# Of the recipe whose data are read.
_RECIPE: ContextVar[dict[str, str]] = ContextVar("reading", default={})  # noqa: B039  # it is never changed


def _option(key: str) -> str:
    return READING[key][0]


def check_encoding(name: str) -> str:
    """The same name, if it is an encoding of texts; ConfigError where it is none."""
    where = _option("encoding")
    try:
        "a,;\t\n".encode(name).decode(name)
        plain = all(letter.encode(name).isascii() for letter in NOT_ASCII if _has(name, letter))
    except (LookupError, ValueError):  # none, no text (rot13, base64), or a name with a NUL
        known = "cp1252, latin-1, cp1250, cp1251, utf-16, shift_jis, gb18030, big5"
        raise ConfigError(f"no encoding {name!r}", where=where, fix=f"Such as {known}") from None
    if plain:
        what = f"{name} writes every letter in bytes of ASCII, and is not told from UTF-8"
        raise ConfigError(what, where=where, fix="Save the file as UTF-8")
    return name


def _has(name: str, letter: str) -> bool:
    try:
        letter.encode(name)
    except UnicodeError:
        return False
    return True


def _checked(key: str, value: str) -> str:
    if key == "encoding":
        return check_encoding(value)
    if value not in CHOICES[key]:
        fix = nearest(value, CHOICES[key])
        raise ConfigError(f"{value!r} is not a choice", where=_option(key), fix=fix)
    return value


def _said(key: str) -> str:
    """A setting as the environment variable says, or else the recipe whose data are read; empty: neither."""
    given = os.environ.get(READING[key][1], "") or _RECIPE.get().get(key, "")
    return _checked(key, given) if given else ""


def other_encoding() -> str:
    """The encoding of files that are not UTF-8; empty: they are refused."""
    return _said("encoding")


def quoting() -> str:
    """``csv``: a quoted cell may have line breaks; ``none``: quotes are characters; empty: not said."""
    return _said("quoting")


def header() -> str:
    """Whether tables have a header, ``yes`` or ``no``; empty: not said."""
    return _said("header")


def said_of_tables() -> dict[str, str]:
    """Everything that is said of tables, by the keys of recipes."""
    return {key: value for key in READING if (value := _said(key))}


def reading_flags() -> list[str]:
    """The options that tell another command the same."""
    return [f"{_option(key)}={value}" for key, value in said_of_tables().items()]


@contextmanager
def reading(encoding: str | None = None, **others: str | None) -> Iterator[None]:
    """Files are read so, unless the command says otherwise; None: nothing changes.

    Args:
        encoding: of files that are not UTF-8.
        others: ``quoting`` and ``header``, as the keys of recipes have them.

    Raises:
        ConfigError: no encoding of that name, or another value.
    """
    given = {"encoding": encoding, **others}
    known = {key: _checked(key, value) for key, value in given.items() if value}
    before = _RECIPE.set(_RECIPE.get() | known)
    try:
        yield
    finally:
        _RECIPE.reset(before)


def reading_as(data: Any, *, other: bool = False) -> Any:
    """``reading`` as the data section of a recipe says.

    Args:
        other: other data are read than the recipe's own, of which it knows the encoding at most.
    """
    keys = ("encoding",) if other else tuple(READING)
    return reading(**{key: getattr(data, key, None) for key in keys})


def as_recipes_say(load: Callable[..., Any]) -> Callable[..., Any]:
    """What loads a recipe's data, reading them as the recipe says."""

    @wraps(load)
    def loaded(recipe: Any, *more: Any, **options: Any) -> Any:
        with reading_as(recipe.data, other=bool(more and more[0] is not None)):
            return load(recipe, *more, **options)

    return loaded
