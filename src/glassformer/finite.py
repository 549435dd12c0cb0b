"""Numbers that leave the program: model outputs that must be finite, and JSON without NaN.

Every door that answers (Python, command line, server, exports) checks a model's outputs with ``finite``, and
every JSON text, in a file, on standard output or over HTTP, is written by ``json_text``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from glassformer.errors import NotFiniteError
from glassformer.outputs import LONE, escape

Outputs = TypeVar("Outputs")
UNDEFINED = "undefined"  # the key that says why metrics of the same object are null
REASONS = "not_finite"  # the key that says, in an object of JSON, what its numbers were that are null


def finite(outputs: Outputs, what: str = "outputs") -> Outputs:
    """A model's outputs (array or tensor), unchanged.

    Args:
        what: what they are called in the message.

    Raises:
        NotFiniteError: one of them is NaN or infinite.
    """
    values: Any = outputs
    found = values.isfinite() if hasattr(values, "isfinite") else np.isfinite(values)  # a tensor has its own
    if not bool(found.all()):
        raise NotFiniteError(what)
    return outputs


def undefined(metrics: dict[str, Any], reasons: dict[str, str]) -> dict[str, Any]:
    """The metrics, and under ``undefined`` why those of them are null that ``reasons`` explains.

    Args:
        reasons: metric -> why it is not defined, where it is None.
    """
    said = {key: why for key, why in reasons.items() if key in metrics and metrics[key] is None}
    return metrics | ({UNDEFINED: metrics.get(UNDEFINED, {}) | said} if said else {})


def json_text(
    value: Any,
    *,
    indent: int | None = None,
    sort_keys: bool = False,
    ascii: bool = False,
    default: Callable[[Any], Any] | None = None,
) -> str:
    """A value as JSON (RFC 8259), which has no NaN and no infinity.

    A number that is not finite becomes null; its object then has a key ``not_finite`` that says what it was,
    as ``{"loss": null, "not_finite": {"loss": "nan"}}``.

    Args:
        ascii: write every other character as its number.
        default: what makes a plain value of one that JSON has no word for.
    """
    options: dict[str, Any] = {"indent": indent, "sort_keys": sort_keys, "ensure_ascii": ascii}
    try:
        text = json.dumps(value, allow_nan=False, default=default, **options)
    except ValueError:
        text = json.dumps(_without(value, default), allow_nan=False, **options)
    return text if text.isascii() else LONE(lambda found: json.dumps(escape(found[0]))[1:-1], text)


def restored(value: Any) -> Any:
    """What ``json_text`` has written, its numbers that are not finite put back."""
    if isinstance(value, list):
        return [restored(one) for one in value]
    if not isinstance(value, dict):
        return value
    reasons = value.get(REASONS) or {}
    found = {key: restored(one) for key, one in value.items() if key != REASONS}
    return found | {key: float(why) for key, why in reasons.items() if found.get(key, 0) is None}


def _without(value: Any, default: Callable[[Any], Any] | None) -> Any:
    """The value with null for numbers that are not finite."""
    if isinstance(value, dict):
        found = {key: _without(one, default) for key, one in value.items()}
        reasons = {str(key): why for key, one in value.items() if (why := _reason(one, default))}
        return found | ({REASONS: reasons} if reasons else {})
    if isinstance(value, list | tuple):
        return [_without(one, default) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int) or default is None:
        return value
    return _without(default(value), default)


def _reason(value: Any, default: Callable[[Any], Any] | None) -> str:
    """What a number, or numbers in a list, are that JSON cannot hold; empty: nothing."""
    if isinstance(value, float):
        return "" if math.isfinite(value) else str(float(value))
    if isinstance(value, list | tuple):
        return next((why for one in value if (why := _reason(one, default))), "")
    if value is None or isinstance(value, str | int | dict) or default is None:
        return ""
    return _reason(default(value), default)
