"""``baselines.csv``: what a run's simple models answered, a column each, in the rows of predictions.csv."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glassformer.data.spreadsheet import csv_plain, csv_rows, csv_safe
from glassformer.errors import DataError
from glassformer.evaluate.table_file import table_file

SIMPLE = "baselines.csv"


def write_simple(path: str | Path, answers: Mapping[str, Sequence[Any]]) -> None:
    """The table in one move; none where there is no simple model.

    Args:
        answers: name of a simple model -> [n] labels or numbers.
    """
    if not answers:
        return
    with table_file(path) as writer:
        writer.writerow([csv_safe(name) for name in answers])
        for row in zip(*answers.values(), strict=True):
            writer.writerow([repr(float(x)) if isinstance(x, float) else csv_safe(x) for x in row])


def read_simple(path: str | Path) -> dict[str, list[str]]:
    """Name -> the cells of its column; nothing where there is no such file, as in older runs.

    Raises:
        DataError: it cannot be read.
    """
    path = Path(path)
    if not path.is_file():
        return {}
    try:
        with open(path, encoding="utf-8", newline="") as file:
            names, *rows = csv_rows(file, strict=True)
            columns = [[csv_plain(cell) for cell in column] for column in zip(*rows, strict=True)]
        return dict(zip(map(csv_plain, names), columns, strict=True))
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"cannot be read ({error})", where=str(path), fix="Remove it") from None
