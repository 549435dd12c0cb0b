"""Read and check values of ``config.json`` and ``glassformer.json``, which may be damaged or hostile."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from glassformer.checkpoints.files import UPDATE, read_json
from glassformer.errors import CheckpointError, ConfigError, NewerFormatError
from glassformer.runtime import with_device_here

METADATA_FILE = "glassformer.json"
MAX_CHOSEN = 64  # maximum number of values under "chosen"


def find_metadata(folder: str | Path) -> tuple[Path, dict[str, Any]]:
    """The model folder (for a run, the folder ``model`` in it), and the content of its ``glassformer.json``.

    Without this file, the result is ``folder`` and an empty dict.

    Raises:
        CheckpointError: the file is not a JSON object.
    """
    folder = Path(folder)
    inner = next((path for path in (folder, folder / "model") if (path / METADATA_FILE).is_file()), None)
    return (folder, {}) if inner is None else (inner, read_json(inner / METADATA_FILE))


def get_size(settings: dict[str, Any], key: str, where: str, default: int | None = None) -> int:
    """The setting ``key``, an integer from 1 to 10 million."""
    if key not in settings and default is None:
        raise CheckpointError(f"missing key {key!r}", where=where)
    value = settings.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 10_000_000:
        raise CheckpointError(f"{key} = {shorten(value)} is not a size", where=where)
    return value


def get_number(
    settings: dict[str, Any], key: str, where: str, default: float, below: float = math.inf
) -> float:
    """The setting ``key``, a number from 0 to ``below`` (exclusive), such as a rate."""
    value = settings.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < below:
        bounds = "0 or more" if below == math.inf else f"from 0 to {below:g}"
        raise CheckpointError(f"{key} = {shorten(value)} is not a number {bounds}", where=where)
    return value


def get_section(settings: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    """The setting ``key``, a JSON object; raise CheckpointError if it is missing or not an object."""
    value = settings.get(key)
    if not isinstance(value, dict):
        raise CheckpointError(f"{key!r} is missing or not an object", where=where)
    return value


def shorten(value: Any) -> str:
    """A value for an error message, with at most 80 characters."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
        return "a number of more than 30 digits"  # Python raises an error for numbers with many digits
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def get_count(settings: dict[str, Any], key: str, where: str, default: int = 0) -> int:
    """The setting ``key``, a non-negative integer."""
    value = settings.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise CheckpointError(f"{key} = {shorten(value)} is not a whole number of 0 or more", where=where)
    return value


def get_text(settings: dict[str, Any], key: str, where: str, default: str) -> str:
    """The setting ``key``, a string."""
    value = settings.get(key, default)
    if not isinstance(value, str):
        raise CheckpointError(f"{key} = {shorten(value)} is not a text", where=where)
    return value


def read_metadata(folder: Path, newest: int) -> dict[str, Any]:
    """Read ``glassformer.json``, check the values that all estimators have, and add missing values.

    Args:
        newest: the format that this version writes.

    Raises:
        CheckpointError: the file is missing or damaged, or a value is invalid.
        NewerFormatError: a later version wrote it.
    """
    where = str(folder / METADATA_FILE)
    metadata = read_json(where)
    version = get_count(metadata, "format", where)
    if version > newest:
        raise NewerFormatError(
            f"has format {version}; this version reads up to {newest}", where=where, fix=UPDATE
        )
    return metadata | {
        "parameters": with_device_here(get_section(metadata, "parameters", where), folder),
        "kind": get_text(metadata, "kind", where, "TextClassifier"),
        "weights_source": get_text(metadata, "weights_source", where, "unknown"),
        "chosen": resolved_settings(metadata, where),
        "best_step": get_count(metadata, "best_step", where),
        "train_seconds": get_number(metadata, "train_seconds", where, 0.0),
        "truncated": get_count(metadata, "truncated", where),
        "chunks": get_count(metadata, "chunks", where),
    }


def resolved_settings(metadata: dict[str, Any], where: str) -> dict[str, Any]:
    """The values that ``fit`` chose for unset settings; empty in folders of earlier versions.

    Raises:
        CheckpointError: a value is not a number from 0 to 10 million, or there are too many values.
    """
    chosen = get_section({"chosen": {}} | metadata, "chosen", where)
    values = list(chosen.values())
    are_valid = all(isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v <= 1e7 for v in values)
    if len(values) > MAX_CHOSEN or not are_valid:
        raise CheckpointError("'chosen' has values that are not settings", where=where)
    return chosen


def check_parameters(configs: Callable[[], Any], folder: Path) -> None:
    """Call ``configs``, which checks the parameters, and convert its ConfigError to a CheckpointError."""
    try:
        configs()
    except ConfigError as error:
        raise CheckpointError(f"invalid parameter: {error}", where=str(folder / METADATA_FILE)) from None
