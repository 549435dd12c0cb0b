"""Where a verb puts what it makes, unless it is told, and whether what it is to read is there."""

from __future__ import annotations

import re
from pathlib import Path

from glassformer.errors import ConfigError

RUNS = Path("runs")


def check_folder(run: str | Path) -> Path:
    """The folder of a run or a saved model. Verbs ask this first: a mistake is told before torch is imported.

    Raises:
        ConfigError: there is none.
    """
    folder = Path(run)
    if not folder.is_dir():
        raise ConfigError("no such run folder", where=str(run), fix="Name the --out of 'glassformer train'")
    return folder


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
