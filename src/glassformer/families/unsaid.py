"""What the Hub's ``config.json`` has no key for, such as stochastic depth: kept in it under one of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from glassformer.checkpoints.settings import section
from glassformer.config import build, to_dict

KEY = "glassformer_settings"
SAID_BY_TENSORS = ("pooling", "head", "num_labels", "head_type")


def unsaid(config: Any, said: Any) -> dict[str, Any]:
    """``{KEY: values}`` of a config that reading its ``config.json`` back does not give; may be empty."""
    values = _differences(config, said)
    values = {key: value for key, value in values.items() if key not in SAID_BY_TENSORS}
    return {KEY: values} if values else {}


def _differences(config: Any, said: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in fields(config):
        ours, theirs = getattr(config, field.name), getattr(said, field.name)
        if ours == theirs:
            continue
        if is_dataclass(ours) and type(ours) is type(theirs):
            out[field.name] = _differences(ours, theirs)
        else:
            out[field.name] = to_dict(ours) if is_dataclass(ours) else ours
    return out


def with_unsaid(config: Any, settings: dict[str, Any], where: str) -> Any:
    """The config with the values that ``unsaid`` kept in ``config.json`` laid over it.

    Raises:
        CheckpointError: what stands there is no object.
        ConfigError: an unknown key, or a value of the wrong type.
    """
    if KEY not in settings:
        return config
    return build(type(config), _laid_over(to_dict(config), section(settings, KEY, where)), where)


def _laid_over(values: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(values)
    for key, value in changes.items():
        below = out.get(key)
        if isinstance(below, dict) and isinstance(value, Mapping):
            value = _laid_over(below, value)
        out[key] = value
    return out
