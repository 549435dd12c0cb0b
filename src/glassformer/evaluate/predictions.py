"""``predictions.csv``: one row an example, safe to open in a spreadsheet, and read back unchanged."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from glassformer.data.spreadsheet import MAX_CELL, csv_plain, csv_rows, csv_safe
from glassformer.data.text_pairs import SECOND_CELL, TextPair, are_pairs, first_of, second_of
from glassformer.errors import DataError, ShapeError
from glassformer.evaluate.number_file import NUMBER_HEADER
from glassformer.evaluate.table_file import table_file
from glassformer.reading import open_regular

__all__ = [
    "HEADER",
    "MAX_CELL",
    "Prediction",
    "csv_plain",
    "csv_safe",
    "predictions_file",
    "read_predictions",
    "write_predictions",
]

HEADER = ("split", "row", "text", "label", "predicted", "probability")


@dataclass(frozen=True)
class Prediction:
    """One row of ``predictions.csv``."""

    split: str
    row: str  # row number in the file the text came from; "" where it came from memory
    text: str
    label: str  # "" where there is none
    predicted: str
    probability: float  # of the predicted class
    probabilities: dict[str, float]

    @property
    def wrong(self) -> bool:
        return self.label != "" and self.label != self.predicted


def write_predictions(
    path: str | Path,
    texts: Sequence[str],
    probabilities: ArrayLike,
    classes: Sequence[Any],
    *,
    labels: Sequence[Any] | None = None,
    predicted: Sequence[Any] | None = None,
    rows: Sequence[int | None] | None = None,
    split: str = "",
    others: Mapping[str, Sequence[Any]] | None = None,
    shares: Sequence[float | None] | None = None,
) -> None:
    """Write the file in one move: whatever stood at ``path`` stays until the new one is complete.

    Args:
        path: the file, UTF-8.
        texts: [n]; of pairs the second texts get a column ``text_pair`` behind ours.
        probabilities: [n, K], one column a class.
        classes: [K] labels.
        labels: [n] true labels, if known.
        predicted: [n] labels, where they are not simply the most probable class; None: a row without one, and
            without probabilities unless ``shares`` has some.
        rows: [n] row numbers in the source file.
        split: name of the split, the same for every row.
        others: further columns, behind ours: name -> [n] values.
        shares: [n] how sure each of ``predicted`` is, where that is no single column of ``probabilities``.

    Raises:
        ShapeError: the lengths differ.
    """
    others = dict(others or {})
    if are_pairs(texts):
        others = {SECOND_CELL: [second_of(text) for text in texts]} | others
    with predictions_file(path, classes, list(others)) as write:
        write(
            texts,
            probabilities,
            labels=labels,
            predicted=predicted,
            rows=rows,
            split=split,
            others=others,
            shares=shares,
        )


@contextmanager
def predictions_file(
    path: str | Path, classes: Sequence[Any], others: Sequence[str] = ()
) -> Iterator[Callable[..., None]]:
    """As ``write_predictions``, piece by piece: call what it gives with the arguments of a piece.

    Args:
        others: names of the further columns.
    """
    with table_file(path) as writer:
        writer.writerow([*HEADER, *(csv_safe(f"p:{c}") for c in classes), *map(csv_safe, others)])
        yield partial(_write, writer, classes)


def _write(
    writer: Any,
    classes: Sequence[Any],
    texts: Sequence[str],
    probabilities: ArrayLike,
    *,
    labels: Sequence[Any] | None = None,
    predicted: Sequence[Any] | None = None,
    rows: Sequence[int | None] | None = None,
    split: str = "",
    others: Mapping[str, Sequence[Any]] | None = None,
    shares: Sequence[float | None] | None = None,
) -> None:
    """Rows of the file; see ``write_predictions``."""
    p = np.asarray(probabilities, np.float64)
    if p.shape != (len(texts), len(classes)):
        raise ShapeError(f"probabilities {p.shape} do not fit {len(texts)} texts of {len(classes)} classes")
    extra = dict(others or {})
    for name, column in (("labels", labels), ("predicted", predicted), ("rows", rows), *extra.items()):
        if column is not None and len(column) != len(texts):
            raise ShapeError(f"{len(column)} {name} do not fit {len(texts)} texts")
    said = [classes[k] for k in p.argmax(1).tolist()] if predicted is None else list(predicted)
    if shares is None:
        places = {label: k for k, label in enumerate(classes)}
        sure = [None if label is None else p[i, places[label]] for i, label in enumerate(said)]
    else:
        sure = list(shares)
    for i, text in enumerate(texts):
        row = "" if rows is None or rows[i] is None else rows[i]
        label, answer = None if labels is None else labels[i], said[i]
        cells = [""] * (1 + len(classes)) if sure[i] is None else [f"{x:.6g}" for x in (sure[i], *p[i])]
        writer.writerow(
            [csv_safe(split), row, csv_safe(first_of(text)), csv_safe(label), csv_safe(answer), *cells]
            + [csv_safe(column[i]) for column in extra.values()]
        )


def read_predictions(path: str | Path) -> Iterator[Prediction]:
    """The rows of a ``predictions.csv``, one at a time.

    Raises:
        DataError: no such file, another header, not UTF-8, or a damaged row, which is named.
    """
    path, line = Path(path), 2
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8", newline="") as file:
            reader = csv_rows(file)
            header = next(reader, [])
            behind = [csv_plain(column) for column in header[len(HEADER) :]]
            names = [column[2:] for column in takewhile(lambda column: column.startswith("p:"), behind)]
            pairs = behind[len(names) : len(names) + 1] == [SECOND_CELL]
            if tuple(header[: len(NUMBER_HEADER)]) == NUMBER_HEADER:
                what, fix = "holds predicted numbers, not labels", "Name a run of a classifier"
                raise DataError(what, where=str(path), fix=fix)
            if tuple(header[: len(HEADER)]) != HEADER:
                raise DataError(
                    f"the header is not {','.join(HEADER)}", where=str(path), fix="Is it a predictions.csv?"
                )
            for cells in reader:
                if len(cells) != len(header):
                    raise ValueError(f"{len(cells)} cells under {len(header)} columns")
                split, number, text, label, predicted = (csv_plain(cell) for cell in cells[:5])
                if pairs:
                    text = TextPair(text, csv_plain(cells[6 + len(names)]))
                top, *each = (float(cell or "nan") for cell in cells[5 : 6 + len(names)])
                yield Prediction(
                    split, number, text, label, predicted, top, dict(zip(names, each, strict=True))
                )
                line = reader.line_num + 1  # of the file, where the next row begins
    except OSError as error:
        raise DataError(error.strerror or "cannot be read", where=str(path)) from None
    except DataError:
        raise
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 ({error.reason})", where=f"{path}: after line {line}") from None
    except (csv.Error, ValueError) as error:
        raise DataError(str(error), where=f"{path}: line {line}") from None
