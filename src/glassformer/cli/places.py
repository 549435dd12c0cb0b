"""Where a verb puts what it makes, unless it is told."""

from __future__ import annotations

import re
from pathlib import Path

from glassformer.errors import ConfigError

RUNS = Path("runs")


def default_folder(name: str, suffix: str = "") -> Path:
    """``runs/NAME``.

    Raises:
        ConfigError: a name that would lead elsewhere.
    """
    if re.search(r"[/\\\0]", name) or name in (".", ".."):
        raise ConfigError(
            f"{name!r} cannot be a folder's name", where="name", fix="Use letters, or give --out"
        )
    return RUNS / f"{name or 'run'}{suffix}"
