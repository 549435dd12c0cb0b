"""Predicted numbers as a table: one row an example, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.spreadsheet import csv_dicts, csv_plain, csv_rows, csv_safe
from glassformer.data.text_pairs import SECOND_CELL, TextPair, are_pairs, first_of, second_of
from glassformer.errors import DataError
from glassformer.evaluate.table_file import table_file

NUMBER_HEADER = ("split", "row", "text", "label", "predicted", "low", "high")


@contextmanager
def numbers_file(path: str | Path, others: Sequence[str] = ()) -> Iterator[Callable[..., None]]:
    """A table that appears whole, or not at all: call what it gives with the arguments of ``_write``.

    Args:
        others: names of further columns, behind ours.
    """
    with table_file(path) as writer:
        writer.writerow([*NUMBER_HEADER, *map(csv_safe, others)])

        def write(texts: Sequence[str], predicted: Sequence[float | None], **columns: Any) -> None:
            _write(writer, texts, predicted, **columns)

        yield write


def _write(
    writer: Any,
    texts: Sequence[str],
    predicted: Sequence[float | None],
    *,
    bounds: np.ndarray | None = None,
    labels: Sequence[Any] | None = None,
    rows: Sequence[int | None] | None = None,
    split: str = "",
    others: Mapping[str, Sequence[Any]] | None = None,
) -> None:
    """Some rows; every number reads back as the same.

    Args:
        predicted: [n]; None: a row without an answer.
        bounds: [n, 2] of the intervals; None: nothing is known of them.
        labels: [n] true numbers, where they are known.
    """
    for i, text in enumerate(texts):
        answer = predicted[i]
        inside = answer is not None and bounds is not None
        low, high = (repr(float(x)) for x in bounds[i]) if inside and bounds is not None else ("", "")
        row = "" if rows is None or rows[i] is None else rows[i]
        label = "" if labels is None else repr(float(labels[i]))
        told = "" if answer is None else repr(float(answer))
        cells = [csv_safe(split), row, csv_safe(first_of(text)), label, told, low, high]
        writer.writerow(cells + [csv_safe(column[i]) for column in (others or {}).values()])


@dataclass(frozen=True)
class NumberRow:
    """One row of such a table."""

    split: str
    row: str
    text: str  # of a pair a ``TextPair``
    label: float | None
    predicted: float | None  # None: a row without an answer


def holds_numbers(path: str | Path) -> bool:
    """Whether a table of answers is one of numbers, by its header."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return tuple(next(csv_rows(file), [])[: len(NUMBER_HEADER)]) == NUMBER_HEADER
    except (OSError, ValueError, csv.Error):
        return False


def read_numbers(path: str | Path) -> Iterator[NumberRow]:
    """The rows of such a table.

    Raises:
        DataError: the file is none of ours, or damaged.
    """
    path = Path(path)
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for cells, text in zip(csv_dicts(file, strict=True), texts_in(path), strict=True):
                label, predicted = (
                    float(cells[key]) if cells[key] else None for key in ("label", "predicted")
                )
                yield NumberRow(csv_plain(cells["split"]), cells["row"], text, label, predicted)
    except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
        fix = "Judge the run again, or remove the file"
        raise DataError(f"cannot be read ({error})", where=str(path), fix=fix) from None


def texts_in(path: Path) -> Iterator[str]:
    """The texts of such a table, pairs as ``TextPair``.

    Raises:
        DataError: the file is none of ours.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for row in csv_dicts(file, strict=True):
                text, second = csv_plain(row["text"]), row.get(SECOND_CELL)
                yield text if second is None else TextPair(text, csv_plain(second))
    except (OSError, KeyError, ValueError, csv.Error) as error:
        fix = "Judge the run again, or remove the file"
        raise DataError(f"cannot be read ({error})", where=str(path), fix=fix) from None


def write_numbers(path: str | Path, texts: Sequence[str], predicted: Sequence[float], **columns: Any) -> None:
    """The whole table at once; of pairs the second texts get a column of their own."""
    others = {SECOND_CELL: [second_of(text) for text in texts]} if are_pairs(texts) else {}
    with numbers_file(path, [*others]) as write:
        write(texts, predicted, others=others, **columns)
