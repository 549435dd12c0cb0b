"""Checks that model outputs are finite, and JSON without NaN.

Python, command line, server and exports all check a model's outputs with ``finite`` before they return them.
All JSON, in a file, on standard output or over HTTP, is written by ``json_text``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from glassformer.errors import NotFiniteError
from glassformer.outputs import escape, sub_lone

Outputs = TypeVar("Outputs")
UNDEFINED = "undefined"  # key of a JSON object: metric -> the reason why it is null
REASONS = "not_finite"  # key of a JSON object: name of a null number -> "nan", "inf" or "-inf"


def finite(outputs: Outputs, what: str = "outputs") -> Outputs:
    """Return a model's outputs (array or tensor) unchanged if all are finite.

    Args:
        what: name of the outputs in the error message.

    Raises:
        NotFiniteError: an output is NaN or infinite.
    """
    values: Any = outputs
    is_finite = values.isfinite() if hasattr(values, "isfinite") else np.isfinite(values)
    if not bool(is_finite.all()):
        raise NotFiniteError(what)
    return outputs


def undefined(metrics: dict[str, Any], reasons: dict[str, str]) -> dict[str, Any]:
    """The metrics with an additional key ``undefined``: metric -> the reason why it is None.

    Args:
        reasons: metric -> the reason if it is not defined; ignored for metrics that are not None.
    """
    why_null = {key: why for key, why in reasons.items() if key in metrics and metrics[key] is None}
    return metrics | ({UNDEFINED: metrics.get(UNDEFINED, {}) | why_null} if why_null else {})


def json_text(
    value: Any,
    *,
    indent: int | None = None,
    sort_keys: bool = False,
    ascii: bool = False,
    default: Callable[[Any], Any] | None = None,
) -> str:
    """Serialize a value as JSON (RFC 8259), which has neither NaN nor infinity.

    A number that is not finite becomes null, and the object that contains it gets a key ``not_finite``:
    ``{"loss": null, "not_finite": {"loss": "nan"}}``.

    Args:
        ascii: write characters outside ASCII as ``\\uXXXX``.
        default: converts a value that JSON cannot represent, as in ``json.dumps``.
    """
    options: dict[str, Any] = {"indent": indent, "sort_keys": sort_keys, "ensure_ascii": ascii}
    try:
        text = json.dumps(value, allow_nan=False, default=default, **options)
    except ValueError:
        text = json.dumps(_replace_nonfinite(value, default), allow_nan=False, **options)
    return text if text.isascii() else sub_lone(lambda match: json.dumps(escape(match[0]))[1:-1], text)


def restored(value: Any) -> Any:
    """Undo ``json_text``: put back the numbers that are not finite."""
    if isinstance(value, list):
        return [restored(item) for item in value]
    if not isinstance(value, dict):
        return value
    reasons = value.get(REASONS) or {}
    result = {key: restored(item) for key, item in value.items() if key != REASONS}
    return result | {key: float(why) for key, why in reasons.items() if result.get(key, 0) is None}


def _replace_nonfinite(value: Any, default: Callable[[Any], Any] | None) -> Any:
    """Replace numbers that are not finite by None, and record them under ``not_finite``."""
    if isinstance(value, dict):
        result = {key: _replace_nonfinite(item, default) for key, item in value.items()}
        reasons = {str(key): why for key, item in value.items() if (why := _reason(item, default))}
        return result | ({REASONS: reasons} if reasons else {})
    if isinstance(value, list | tuple):
        return [_replace_nonfinite(item, default) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int) or default is None:
        return value
    return _replace_nonfinite(default(value), default)


def _reason(value: Any, default: Callable[[Any], Any] | None) -> str:
    """Which non-finite number ``value`` is or contains: "nan", "inf" or "-inf"; empty if there is none."""
    if isinstance(value, float):
        return "" if math.isfinite(value) else str(float(value))
    if isinstance(value, list | tuple):
        return next((why for item in value if (why := _reason(item, default))), "")
    if value is None or isinstance(value, str | int | dict) or default is None:
        return ""
    return _reason(default(value), default)
