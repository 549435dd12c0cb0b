"""CSV files that tests write and read."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """A table with its header; the path again."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def read_csv(path: str | Path) -> list[dict[str, str]]:
    """The rows of a table, by its header."""
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
