"""Read and write ``predictions.csv`` and ``baselines.csv``, with one row per example.

The cells are escaped, so that spreadsheets run no formulas.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from glassformer.data.spreadsheet import csv_plain, csv_rows, csv_safe
from glassformer.data.text_pairs import SECOND_COLUMN, TextPair, are_pairs, first_text, second_text
from glassformer.errors import CannotReadError, DataError, NotUtf8Error, ShapeError
from glassformer.outputs import atomic_write, escape_surrogates
from glassformer.reading import open_regular

# --- atomic table writer --------------------------------------------------------------------------


@contextmanager
def table_file(
    path: str | Path,
    *,
    delimiter: str = ",",
    bom: bool = False,
    encoding: str = "utf-8",
    line_end: str = "\r\n",
) -> Iterator[Any]:
    """Yield a ``csv`` writer; at the end ``path`` is replaced atomically, after an error the old file stays.

    Args:
        bom: whether to write a byte order mark in UTF-8 files, for spreadsheets.
    """
    encoding = "utf-8-sig" if bom and encoding == "utf-8" else encoding
    try:
        with (
            atomic_write(Path(path)) as draft,
            open(draft, "w", encoding=encoding, newline="") as file,
        ):
            # File names may not be UTF-8, see ``escape_surrogates``.
            lines: Any = SimpleNamespace(write=lambda text: file.write(escape_surrogates(text)))
            yield csv.writer(lines, delimiter=delimiter, lineterminator=line_end)
    except UnicodeEncodeError as error:
        what = f"{error.object[error.start]!r} cannot be written in {error.encoding}"
        raise NotUtf8Error(what, where=str(path), fix="Save the table as UTF-8 first") from None


# --- rows of predictions.csv ----------------------------------------------------------------------
#
# A row has the example, its prediction, and the probabilities of labels or the interval of a number.


COMMON_HEADER = ("split", "row", "text", "label", "predicted")
HEADER = (*COMMON_HEADER, "probability")
NUMBER_HEADER = (*COMMON_HEADER, "low", "high")


def row_cells(
    text: Any, predicted: Any, cells: Sequence[str], *, row: Any = None, label: Any = None, split: str = ""
) -> list[Any]:
    """The cells of one row.

    Args:
        predicted: the prediction; None: there is none.
        cells: additional cells, see ``label_cells`` and ``number_cells``.
        row: row number in the source file.
        label: the true label, if known.
    """
    first_cells = (csv_safe(first_text(text)), csv_safe(label), csv_safe(predicted))
    return [csv_safe(split), "" if row is None else row, *first_cells, *cells]


def label_cells(confidence: float | None, probabilities: Sequence[float]) -> list[str]:
    """Cells with the probabilities of the predicted label (None: no prediction) and of each class."""
    if confidence is None:
        return [""] * (1 + len(probabilities))
    return [f"{x:.6g}" for x in (confidence, *probabilities)]


def number_cells(bounds: Sequence[float] | None) -> list[str]:
    """Cells with the interval of a number; None: there is no interval."""
    return ["", ""] if bounds is None else [repr(float(x)) for x in bounds]


def write_table(
    path: str | Path,
    header: Sequence[str],
    texts: Sequence[Any],
    predicted: Sequence[Any],
    cells: Iterable[Sequence[str]],
    *,
    labels: Sequence[Any] | None = None,
    rows: Sequence[int | None] | None = None,
    split: str = "",
) -> None:
    """Write a table of predictions atomically.

    Args:
        path: the file, UTF-8.
        texts: [n]; the second texts of pairs are in an additional column ``text_pair``.
        predicted: [n] predictions; None for rows without a prediction.
        cells: [n] additional cells of each row, see ``label_cells`` and ``number_cells``.
        labels: [n] true labels, if known.
        rows: [n] row numbers in the source file.
        split: name of the split, the same for every row.
    """
    for name, column in (("labels", labels), ("predicted", predicted), ("rows", rows)):
        if column is not None and len(column) != len(texts):
            raise ShapeError(f"{len(column)} {name} for {len(texts)} texts")
    has_pairs, missing = are_pairs(texts), [None] * len(texts)
    with table_file(path) as writer:
        writer.writerow(map(csv_safe, [*header, *([SECOND_COLUMN] if has_pairs else ())]))
        known = zip(missing if labels is None else labels, missing if rows is None else rows, strict=True)
        for text, prediction, more_cells, (label, row) in zip(texts, predicted, cells, known, strict=True):
            second = [csv_safe(second_text(text))] if has_pairs else []
            columns = row_cells(text, prediction, more_cells, row=row, label=label, split=split)
            writer.writerow([*columns, *second])


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prediction:
    """One row of ``predictions.csv``."""

    split: str
    row: str  # row number in the source file, or ""
    text: str  # for pairs a ``TextPair``
    label: Any  # true label, or ""; for regression a float or None
    predicted: Any  # predicted label; for regression a float or None
    probability: float = math.nan  # of the predicted class
    probabilities: dict[str, float] = field(default_factory=dict)

    @property
    def is_wrong(self) -> bool:
        return self.label != "" and self.label != self.predicted


def has_numbers(path: str | Path) -> bool:
    """Whether a ``predictions.csv`` has predicted numbers, judged by its header."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return tuple(next(csv_rows(file), [])[: len(NUMBER_HEADER)]) == NUMBER_HEADER
    except (OSError, ValueError, csv.Error):
        return False


def _read_rows(
    path: Path, expected: tuple[str, ...], parse: Callable[[dict[str, str]], Any]
) -> Iterator[Any]:
    """Yield ``parse(row)`` for each row of a table whose header begins with ``expected``."""
    line = 2  # the line in which the next row begins
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8", newline="") as file:
            reader = csv_rows(file)
            header = next(reader, [])
            if tuple(header[: len(expected)]) != expected:
                what, fix = f"the header is not {','.join(expected)}", "Name a predictions.csv"
                if tuple(header[: len(NUMBER_HEADER)]) == NUMBER_HEADER:
                    what, fix = "contains predicted numbers, not labels", "Name a run of a classifier"
                raise DataError(what, where=str(path), fix=fix)
            names = list(map(csv_plain, header))
            for cells in reader:
                if len(cells) != len(header):
                    raise ValueError(f"{len(cells)} cells in a table of {len(header)} columns")
                yield parse(dict(zip(names, map(csv_plain, cells), strict=True)))
                line = reader.line_num + 1
    except OSError as error:
        raise CannotReadError(error.strerror or "cannot be read", where=str(path)) from None
    except DataError:
        raise
    except UnicodeDecodeError as error:
        raise NotUtf8Error(f"not UTF-8 ({error.reason})", where=f"{path}: after line {line}") from None
    except (csv.Error, ValueError) as error:
        raise DataError(str(error), where=f"{path}: line {line}") from None


def _parse_text(row: Mapping[str, str]) -> str:
    return TextPair(row["text"], row[SECOND_COLUMN]) if SECOND_COLUMN in row else row["text"]


def read_numbers(path: str | Path) -> Iterator[Prediction]:
    """Read the rows of a ``predictions.csv`` with numbers; errors as in ``read_predictions``."""

    def parse(row: dict[str, str]) -> Prediction:
        label, predicted = (float(row[key]) if row[key] else None for key in ("label", "predicted"))
        return Prediction(row["split"], row["row"], _parse_text(row), label, predicted)

    return _read_rows(Path(path), NUMBER_HEADER, parse)


def read_texts(path: Path) -> Iterator[str]:
    """Read the texts of a ``predictions.csv``, pairs as ``TextPair``; errors as in ``read_predictions``."""
    return _read_rows(path, COMMON_HEADER, _parse_text)


def read_predictions(path: str | Path) -> Iterator[Prediction]:
    """Read the rows of a ``predictions.csv``, one at a time.

    Raises:
        DataError: the file does not exist, has another header, is not UTF-8, or has a damaged row.
    """

    def parse(row: dict[str, str]) -> Prediction:
        names = takewhile(lambda column: column.startswith("p:"), list(row)[len(HEADER) :])
        probabilities = {name[2:]: float(row[name] or "nan") for name in names}
        values = (row["label"], row["predicted"], float(row["probability"] or "nan"))
        return Prediction(row["split"], row["row"], _parse_text(row), *values, probabilities)

    return _read_rows(Path(path), HEADER, parse)


# --- baselines.csv --------------------------------------------------------------------------------
#
# One column per baseline, with its predictions in the row order of predictions.csv.


BASELINES_FILE = "baselines.csv"


def write_baselines(path: str | Path, predictions: Mapping[str, Sequence[Any]]) -> None:
    """Write ``baselines.csv`` atomically; if there are no baselines, no file is written.

    Args:
        predictions: name of a baseline -> [n] labels or numbers.
    """
    if not predictions:
        return
    with table_file(path) as writer:
        writer.writerow([csv_safe(name) for name in predictions])
        for row in zip(*predictions.values(), strict=True):
            writer.writerow([repr(float(x)) if isinstance(x, float) else csv_safe(x) for x in row])


def read_baselines(path: str | Path) -> dict[str, list[str]]:
    """Baseline -> its column of ``baselines.csv``; empty if the file does not exist, as in older runs."""
    path = Path(path)
    if not path.is_file():
        return {}
    try:
        with open(path, encoding="utf-8", newline="") as file:
            names, *rows = csv_rows(file, strict=True)
            columns = [[csv_plain(cell) for cell in column] for column in zip(*rows, strict=True)]
        return dict(zip(map(csv_plain, names), columns, strict=True))
    except (OSError, ValueError, csv.Error) as error:
        raise CannotReadError(f"cannot be read ({error})", where=str(path), fix="Remove it") from None
