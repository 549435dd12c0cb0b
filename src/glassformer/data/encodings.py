"""The encoding of tables that are not UTF-8: said once, for a command and all processes that it starts, or
by a recipe for its own data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from glassformer.errors import ConfigError
from glassformer.process import ENCODING, OPTION

_RECIPE: ContextVar[str] = ContextVar("encoding", default="")  # that of the recipe whose data are read
NOT_ASCII = ("\xe9", "\u0416", "\u3042")  # letters, of which most encodings have one


def check_encoding(name: str) -> str:
    """The same name, if it is an encoding of texts; ConfigError where it is none."""
    try:
        "a,;\t\n".encode(name).decode(name)
        plain = all(letter.encode(name).isascii() for letter in NOT_ASCII if _has(name, letter))
    except (LookupError, ValueError):  # none, no text (rot13, base64), or a name with a NUL
        known = "cp1252, latin-1, cp1250, cp1251, utf-16, shift_jis, gb18030, big5"
        raise ConfigError(f"no encoding {name!r}", where=OPTION, fix=f"Such as {known}") from None
    if plain:
        what = f"{name} writes every letter in bytes of ASCII, and is not told from UTF-8"
        raise ConfigError(what, where=OPTION, fix="Save the file as UTF-8")
    return name


def _has(name: str, letter: str) -> bool:
    try:
        letter.encode(name)
    except UnicodeError:
        return False
    return True


def other_encoding() -> str:
    """The encoding of files that are not UTF-8, as the environment variable says, or else the recipe whose
    data are read; empty: they are refused."""
    given = os.environ.get(ENCODING, "") or _RECIPE.get()
    return check_encoding(given) if given else ""


def encoding_flags() -> list[str]:
    """The option that gives another command the same encoding."""
    return [f"{OPTION}={other}"] if (other := other_encoding()) else []


@contextmanager
def reading(encoding: str | None) -> Iterator[None]:
    """Files that are not UTF-8 are of this encoding, unless the command names another; None: nothing changes.

    Raises:
        ConfigError: no encoding of that name.
    """
    before = _RECIPE.set(check_encoding(encoding) if encoding else _RECIPE.get())
    try:
        yield
    finally:
        _RECIPE.reset(before)


def as_recipes_say(load: Callable[..., Any]) -> Callable[..., Any]:
    """What loads a recipe's data, reading them in the encoding that the recipe names."""

    @wraps(load)
    def loaded(recipe: Any, *more: Any, **options: Any) -> Any:
        with reading(getattr(recipe.data, "encoding", None)):
            return load(recipe, *more, **options)

    return loaded
