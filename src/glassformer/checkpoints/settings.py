"""Reads and checks values of untrusted JSON files: ``config.json`` and ``glassformer.json``."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from glassformer.checkpoints.files import UPDATE, read_json
from glassformer.errors import CheckpointError, ConfigError, NewerFormatError
from glassformer.runtime import with_device_here

ABOUT = "glassformer.json"
MAX_CHOSEN = 64


def metadata_in(folder: str | Path) -> tuple[Path, dict[str, Any]]:
    """The folder of a model saved by glassformer (for a run, the one in it), and its ``glassformer.json``;
    if there is none, the folder itself and an empty dict.

    Raises:
        CheckpointError: the file is not a JSON object.
    """
    folder = Path(folder)
    inner = next((path for path in (folder, folder / "model") if (path / ABOUT).is_file()), None)
    return (folder, {}) if inner is None else (inner, read_json(inner / ABOUT))


def number(settings: dict[str, Any], key: str, where: str, default: int | None = None) -> int:
    """A size, from 1 to 10 million."""
    if key not in settings and default is None:
        raise CheckpointError(f"missing key {key!r}", where=where)
    value = settings.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 10_000_000:
        raise CheckpointError(f"{key} = {shown(value)} is not a size", where=where)
    return value


def real(settings: dict[str, Any], key: str, where: str, default: float, below: float = math.inf) -> float:
    """A number from 0 to ``below`` (exclusive), such as a rate."""
    value = settings.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < below:
        bounds = "0 or more" if below == math.inf else f"from 0 to {below:g}"
        raise CheckpointError(f"{key} = {shown(value)} is not a number {bounds}", where=where)
    return value


def section(settings: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    """A JSON object in the file.

    Raises:
        CheckpointError: it is missing or not an object.
    """
    value = settings.get(key)
    if not isinstance(value, dict):
        raise CheckpointError(f"{key!r} is missing or not an object", where=where)
    return value


def shown(value: Any) -> str:
    """A value for a message, shortened."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
        return "a number of more than 30 digits"  # Python refuses to format very long ones
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def count(settings: dict[str, Any], key: str, where: str, default: int = 0) -> int:
    """A non-negative integer."""
    value = settings.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise CheckpointError(f"{key} = {shown(value)} is not a whole number from 0 on", where=where)
    return value


def text(settings: dict[str, Any], key: str, where: str, default: str) -> str:
    """A string."""
    value = settings.get(key, default)
    if not isinstance(value, str):
        raise CheckpointError(f"{key} = {shown(value)} is not a text", where=where)
    return value


def read_metadata(folder: Path, newest: int) -> dict[str, Any]:
    """Read ``glassformer.json``; values that all estimators have are checked, and missing ones get defaults.

    Args:
        newest: the format that this version writes.

    Raises:
        CheckpointError: the file is missing or damaged, or a value is invalid.
        NewerFormatError: a later version wrote it.
    """
    where = str(folder / ABOUT)
    metadata = read_json(where)
    version = count(metadata, "format", where)
    if version > newest:
        raise NewerFormatError(
            f"format {version} is newer than this version reads ({newest})", where=where, fix=UPDATE
        )
    return metadata | {
        "parameters": with_device_here(section(metadata, "parameters", where), folder),
        "kind": text(metadata, "kind", where, "TextClassifier"),
        "weights_source": text(metadata, "weights_source", where, "unknown"),
        "chosen": resolved_settings(metadata, where),
        "best_step": count(metadata, "best_step", where),
        "train_seconds": real(metadata, "train_seconds", where, 0.0),
        "truncated": count(metadata, "truncated", where),
        "chunks": count(metadata, "chunks", where),
    }


def resolved_settings(metadata: dict[str, Any], where: str) -> dict[str, Any]:
    """Values that ``fit`` chose for unset settings; empty for old folders.

    Raises:
        CheckpointError: not numbers from 0 to 10 million, or too many.
    """
    chosen = section({"chosen": {}} | metadata, "chosen", where)
    values = list(chosen.values())
    valid = all(isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v <= 1e7 for v in values)
    if len(values) > MAX_CHOSEN or not valid:
        raise CheckpointError("'chosen' holds values that are not settings", where=where)
    return chosen


def check_parameters(configs: Callable[[], Any], folder: Path) -> None:
    """Check the ``parameters`` of ``glassformer.json`` like ``fit``, with the estimator's ``configs``."""
    try:
        configs()
    except ConfigError as error:
        raise CheckpointError(f"a wrong parameter: {error}", where=str(folder / ABOUT)) from None
