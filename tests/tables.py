"""CSV files that tests write and read."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.evaluate.predictions import write_table
from glassformer.targets.multiclass import Classes


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """A table with its header; the path again."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def read_csv(path: str | Path) -> list[dict[str, str]]:
    """The rows of a table, by its header."""
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_predictions(
    path: Path, texts: Sequence[str], p: Any, classes: Sequence[Any], predicted: Any = None, **known: Any
) -> None:
    """The ``predictions.csv`` of labels; without ``predicted``, the most probable class of each row."""
    p = np.asarray(p)
    indices = p.argmax(1) if predicted is None else [classes.index(label) for label in predicted]
    header, cells = Classes().table_columns(p, classes, p[np.arange(len(p)), indices].tolist(), None)
    write_table(path, header, texts, [classes[k] for k in indices], cells, **known)
