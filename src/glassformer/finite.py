"""Check that model outputs are finite, and write JSON without NaN.

Python, the command line, the server and exports check a model's outputs with ``finite``. ``json_text`` writes
all JSON: in files, on standard output and over HTTP.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from glassformer.errors import NotFiniteError
from glassformer.outputs import escape, sub_lone_surrogates

Outputs = TypeVar("Outputs")
UNDEFINED = "undefined"  # JSON key; its value maps the name of a null metric to the reason
NOT_FINITE = "not_finite"  # JSON key; its value maps the key of a null number to "nan", "inf" or "-inf"


def finite(outputs: Outputs, what: str = "outputs") -> Outputs:
    """Return a model's outputs (an array or tensor) after checking that all are finite.

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


def with_undefined(metrics: dict[str, Any], reasons: dict[str, str]) -> dict[str, Any]:
    """Add the key ``undefined`` to the metrics, with the reason for each metric that is None.

    Args:
        reasons: metric -> reason; ignored for metrics that are not None.
    """
    used = {key: reason for key, reason in reasons.items() if key in metrics and metrics[key] is None}
    return metrics | ({UNDEFINED: metrics.get(UNDEFINED, {}) | used} if used else {})


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
    if text.isascii():
        return text
    return sub_lone_surrogates(lambda match: json.dumps(escape(match[0]))[1:-1], text)


def restore_nonfinite(value: Any) -> Any:
    """Restore the numbers that ``json_text`` replaced by null."""
    if isinstance(value, list):
        return [restore_nonfinite(item) for item in value]
    if not isinstance(value, dict):
        return value
    reasons = value.get(NOT_FINITE) or {}
    result = {key: restore_nonfinite(item) for key, item in value.items() if key != NOT_FINITE}
    return result | {key: float(reason) for key, reason in reasons.items() if result.get(key, 0) is None}


def _replace_nonfinite(value: Any, default: Callable[[Any], Any] | None) -> Any:
    """Replace numbers that are not finite by None, and record them under ``not_finite``."""
    if isinstance(value, dict):
        result = {key: _replace_nonfinite(item, default) for key, item in value.items()}
        reasons = {str(key): reason for key, item in value.items() if (reason := _reason(item, default))}
        return result | ({NOT_FINITE: reasons} if reasons else {})
    if isinstance(value, list | tuple):
        return [_replace_nonfinite(item, default) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int) or default is None:
        return value
    return _replace_nonfinite(default(value), default)


def _reason(value: Any, default: Callable[[Any], Any] | None) -> str:
    """The first number in ``value`` that is not finite, as "nan", "inf" or "-inf"; empty if there is none."""
    if isinstance(value, float):
        return "" if math.isfinite(value) else str(float(value))
    if isinstance(value, list | tuple):
        return next((reason for item in value if (reason := _reason(item, default))), "")
    if value is None or isinstance(value, str | int | dict) or default is None:
        return ""
    return _reason(default(value), default)
