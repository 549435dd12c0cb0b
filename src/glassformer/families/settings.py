"""Tables that map keys of ``config.json`` to fields of our configs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeVar

from glassformer.checkpoints.layout import HUB_ACTIVATIONS, read_activation
from glassformer.checkpoints.settings import get_number, get_size, shorten
from glassformer.errors import CheckpointError

Config = TypeVar("Config")


@dataclass(frozen=True)
class Setting:
    """A key of ``config.json``.

    Args:
        paths: the fields of our config that get the value, such as ``encoder.d_model``. The last is saved.
        read: contents of the file and its path -> the value; raises CheckpointError.
        write: the value of our config -> the value in the file.
    """

    key: str
    paths: Sequence[str]
    read: Callable[[dict[str, Any], str], Any]
    write: Callable[[Any], Any] = lambda value: value


def size(key: str, *paths: str, default: int | None = None) -> Setting:
    """A size; without a default the key is required."""
    return Setting(key, paths, lambda settings, where: get_size(settings, key, where, default))


def rate(key: str, *paths: str, default: float) -> Setting:
    """A rate below 1, such as a dropout rate."""
    return Setting(key, paths, lambda settings, where: get_number(settings, key, where, default, 1))


def nonnegative(key: str, *paths: str, default: float) -> Setting:
    """A number of 0 or more."""
    return Setting(key, paths, lambda settings, where: get_number(settings, key, where, default))


def activation(key: str, *paths: str) -> Setting:
    """The name of an activation; the default is GELU."""
    return Setting(
        key, paths, lambda settings, where: read_activation(settings, where, key), HUB_ACTIVATIONS.__getitem__
    )


def flag(key: str, *paths: str, values: tuple[Any, Any] = (False, True)) -> Setting:
    """A boolean; the default is false. ``values`` are our values for false and true."""

    def read(settings: dict[str, Any], where: str) -> Any:
        value = settings.get(key)
        if value is not None and not isinstance(value, bool):
            raise CheckpointError(f"{key} = {shorten(value)} is neither true nor false", where=where)
        return values[bool(value)]

    return Setting(key, paths, read, lambda value: value == values[1])


def read_settings(
    table: Sequence[Setting],
    base: Config,
    settings: dict[str, Any],
    where: str,
    overrides: Mapping[str, Any] | None = None,
) -> Config:
    """A copy of ``base`` with the values of ``config.json`` and of ``overrides`` (path -> value)."""
    values = {path: value for s in table for value in [s.read(settings, where)] for path in s.paths}
    parts: dict[str, dict[str, Any]] = {"embedding": {}, "encoder": {}, "": {}}
    for path, value in (values | dict(overrides or {})).items():
        part, _, name = path.rpartition(".")
        parts[part][name] = value
    top = parts.pop("")
    changed: dict[str, Any] = {name: replace(getattr(base, name), **new) for name, new in parts.items()}
    return replace(base, **changed, **top)  # type: ignore[type-var]  # a dataclass


def write_settings(table: Sequence[Setting], config: Any) -> dict[str, Any]:
    """The contents of ``config.json`` for ``config``."""
    return {s.key: s.write(attrgetter(s.paths[-1])(config)) for s in table}
