"""``predictions.csv`` and ``baselines.csv``: a row an example, safe in a spreadsheet, read back unchanged."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from glassformer.data.spreadsheet import csv_dicts, csv_plain, csv_rows, csv_safe
from glassformer.data.text_pairs import SECOND_CELL, TextPair, are_pairs, first_of, second_of
from glassformer.errors import (
    CannotReadError,
    CannotWriteError,
    DataError,
    NotUtf8Error,
    ShapeError,
)
from glassformer.outputs import readable
from glassformer.reading import open_regular

# --- a table on its way to the disk ---------------------------------------------------------------
#
# Whatever stood there stays until the new one is complete.


class _Readable:
    """A text file that takes names of files which are not UTF-8; see ``readable``."""

    def __init__(self, file: Any):
        self.file = file

    def write(self, text: str) -> int:
        """Write text."""
        return self.file.write(readable(text))


@contextmanager
def table_file(
    path: str | Path,
    *,
    delimiter: str = ",",
    mark: bool = False,
    encoding: str = "utf-8",
    line_end: str = "\r\n",
) -> Iterator[Any]:
    """A writer of ``csv`` whose rows appear at ``path`` in one move; none where an error ends it.

    Args:
        mark: whether a file in UTF-8 begins with a byte order mark, by which spreadsheets know it.

    Raises:
        DataError: a character that the encoding does not have.
        GlassformerError: the disk refused.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        encoding = "utf-8-sig" if mark and encoding == "utf-8" else encoding
        with open(temporary, "w", encoding=encoding, newline="") as file:
            yield csv.writer(_Readable(file), delimiter=delimiter, lineterminator=line_end)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except UnicodeEncodeError as error:
        what = f"{error.object[error.start]!r} cannot be written in {error.encoding}"
        raise NotUtf8Error(what, where=str(path), fix="Save the table as UTF-8 first") from None
    except OSError as error:
        raise CannotWriteError.of(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


# --- rows of predictions.csv ----------------------------------------------------------------------
#
# For each example what is known of it and what is predicted; what stands behind that depends on the kind: the
# probability of the label and of each class, or the interval of a number.


BEGIN = ("split", "row", "text", "label", "predicted")
HEADER = (*BEGIN, "probability")
NUMBER_HEADER = (*BEGIN, "low", "high")


def cells_of(
    text: Any, predicted: Any, behind: Sequence[str], *, row: Any = None, label: Any = None, split: str = ""
) -> list[Any]:
    """One row.

    Args:
        predicted: None: a row without a prediction.
        behind: the cells of the kind, see ``label_cells`` and ``number_cells``.
        row: its number in the file that the text came from.
        label: the true one, where it is known.
    """
    known = (csv_safe(first_of(text)), csv_safe(label), csv_safe(predicted))
    return [csv_safe(split), "" if row is None else row, *known, *behind]


def label_cells(share: float | None, probabilities: Sequence[float]) -> list[str]:
    """The probability of the predicted label, and of each class ``[K]``; empty where there is none."""
    if share is None:
        return [""] * (1 + len(probabilities))
    return [f"{x:.6g}" for x in (share, *probabilities)]


def number_cells(bounds: Sequence[float] | None) -> list[str]:
    """The interval of a number; None: nothing is known of it."""
    return ["", ""] if bounds is None else [repr(float(x)) for x in bounds]


@contextmanager
def _predictions_file(
    path: str | Path, header: Sequence[str], texts: Sequence[Any], others: Mapping[str, Sequence[Any]] | None
) -> Iterator[Callable[..., None]]:
    """The table in one move: call what it gives with an example's place, prediction and cells.

    Args:
        texts: [n]; of pairs the second texts get a column ``text_pair`` behind ours.
        others: further columns, behind ours: name -> [n] values.
    """
    extra: dict[str, Sequence[Any]] = (
        {SECOND_CELL: [second_of(text) for text in texts]} if are_pairs(texts) else {}
    )
    extra |= others or {}
    _check_lengths(texts, extra)
    with table_file(path) as writer:
        writer.writerow(map(csv_safe, [*header, *extra]))

        def write(i: int, predicted: Any, behind: Sequence[str], **known: Any) -> None:
            more = [csv_safe(column[i]) for column in extra.values()]
            writer.writerow([*cells_of(texts[i], predicted, behind, **known), *more])

        yield write


def _check_lengths(texts: Sequence[Any], columns: Mapping[str, Sequence[Any] | None]) -> None:
    for name, column in columns.items():
        if column is not None and len(column) != len(texts):
            raise ShapeError(f"{len(column)} {name} do not fit {len(texts)} texts")


def _at(column: Any, i: int) -> Any:
    return None if column is None else column[i]


def write_numbers(
    path: str | Path,
    texts: Sequence[Any],
    predicted: Sequence[float],
    *,
    bounds: np.ndarray | None = None,
    labels: Sequence[Any] | None = None,
    rows: Sequence[int | None] | None = None,
    split: str = "",
) -> None:
    """Predicted numbers as a table; every number reads back as the same.

    Args:
        predicted: [n].
        bounds: [n, 2] of the intervals; None: nothing is known of them.
        labels, rows, split: see ``write_predictions``.
    """
    with _predictions_file(path, NUMBER_HEADER, texts, None) as write:
        for i, number in enumerate(predicted):
            label = None if labels is None else repr(float(labels[i]))
            inside = number_cells(_at(bounds, i))
            write(i, repr(float(number)), inside, row=_at(rows, i), label=label, split=split)


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
    p = np.asarray(probabilities, np.float64)
    if p.shape != (len(texts), len(classes)):
        raise ShapeError(f"probabilities {p.shape} do not fit {len(texts)} texts of {len(classes)} classes")
    _check_lengths(texts, {"labels": labels, "predicted": predicted, "rows": rows})
    said = [classes[k] for k in p.argmax(1).tolist()] if predicted is None else list(predicted)
    if shares is None:
        places = {label: k for k, label in enumerate(classes)}
        shares = [None if label is None else p[i, places[label]] for i, label in enumerate(said)]
    with _predictions_file(path, [*HEADER, *(f"p:{c}" for c in classes)], texts, others) as write:
        for i, label in enumerate(said):
            known = {"row": _at(rows, i), "label": _at(labels, i), "split": split}
            write(i, label, label_cells(shares[i], p[i]), **known)


# --- reading them ---------------------------------------------------------------------------------


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


@contextmanager
def _reading(path: Path) -> Iterator[Iterator[dict[str, Any]]]:
    """The rows of a table of ours by its columns; DataError where it is none, or damaged."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            yield csv_dicts(file, strict=True)
    except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
        fix = "Evaluate the run again, or remove the file"
        raise CannotReadError(f"cannot be read ({error})", where=str(path), fix=fix) from None


def _text_of(row: Mapping[str, Any]) -> str:
    text, second = csv_plain(row["text"]), row.get(SECOND_CELL)
    return text if second is None else TextPair(text, csv_plain(second))


def read_numbers(path: str | Path) -> Iterator[NumberRow]:
    """The rows of such a table.

    Raises:
        DataError: the file is none of ours, or damaged.
    """
    with _reading(Path(path)) as rows:
        for row in rows:
            label, predicted = (float(row[key]) if row[key] else None for key in ("label", "predicted"))
            yield NumberRow(csv_plain(row["split"]), row["row"], _text_of(row), label, predicted)


def texts_in(path: Path) -> Iterator[str]:
    """The texts of such a table, pairs as ``TextPair``; DataError: the file is none of ours."""
    with _reading(path) as rows:
        yield from map(_text_of, rows)


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
        raise CannotReadError(error.strerror or "cannot be read", where=str(path)) from None
    except DataError:
        raise
    except UnicodeDecodeError as error:
        raise NotUtf8Error(f"not UTF-8 ({error.reason})", where=f"{path}: after line {line}") from None
    except (csv.Error, ValueError) as error:
        raise DataError(str(error), where=f"{path}: line {line}") from None


# --- baselines.csv --------------------------------------------------------------------------------
#
# What a run's simple models answered, a column each, in the rows of predictions.csv.


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
        raise CannotReadError(f"cannot be read ({error})", where=str(path), fix="Remove it") from None
