"""``predictions.csv``: one row an example, safe to open in a spreadsheet, and read back unchanged."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from glassformer.errors import DataError, GlassformerError, ShapeError
from glassformer.reading import open_regular

HEADER = ("split", "row", "text", "label", "predicted", "probability")
MAX_CELL = 16 * 2**20  # characters; the csv module's own limit of 131,072 is below a long document

# A spreadsheet runs a cell that begins like this (the wide forms too, in East Asian locales). The
# leading apostrophes are part of the pattern so that the guard can be taken off unambiguously.
_SIGNS = r"[=+\-@\uff1d\uff0b\uff0d\uff20]"
_FORMULA = re.compile(rf"'*(?:{_SIGNS}|[\t\r\n])")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
# One that splits at semicolons or tabs, as many do, finds cells inside ours: after a run of separators,
# blanks and quotes. Each run is looked at once, from its start, so a text of a million blanks takes no time.
_INSIDE = re.compile(rf"(?<![\s\"\u201c\u201d;])([\s\"\u201c\u201d;]++)('*+)(?={_SIGNS})")
_SEPARATORS = re.compile(r"[;\t\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")


def csv_safe(cell: Any) -> str:
    """A cell's text, with an apostrophe wherever a spreadsheet would take what follows for a formula.

    That is at the start of the cell and, for programs that split there, after a semicolon, tab or line break.
    """
    text = "" if cell is None else str(cell)
    text = _INSIDE.sub(lambda m: f"{m[1]}'{m[2]}" if _opens_cell(m) else m[0], text)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def csv_plain(cell: str) -> str:
    """What ``csv_safe`` was given."""
    cell = cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
    return _INSIDE.sub(lambda m: f"{m[1]}{m[2][1:]}" if _opens_cell(m) else m[0], cell)


def _opens_cell(match: re.Match[str]) -> bool:
    return match.start() == 0 or _SEPARATORS.search(match[1]) is not None


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
    rows: Sequence[int] | None = None,
    split: str = "",
) -> None:
    """Write the file in one move: whatever stood at ``path`` stays until the new one is complete.

    Args:
        path: the file, UTF-8.
        texts: [n].
        probabilities: [n, K], one column a class.
        classes: [K] labels.
        labels: [n] true labels, if known.
        predicted: [n] labels, where they are not simply the most probable class.
        rows: [n] row numbers in the source file.
        split: name of the split, the same for every row.

    Raises:
        ShapeError: the lengths differ.
    """
    path, p = Path(path), np.asarray(probabilities, np.float64)
    if p.shape != (len(texts), len(classes)):
        raise ShapeError(f"probabilities {p.shape} do not fit {len(texts)} texts of {len(classes)} classes")
    for name, column in (("labels", labels), ("predicted", predicted), ("rows", rows)):
        if column is not None and len(column) != len(texts):
            raise ShapeError(f"{len(column)} {name} do not fit {len(texts)} texts")
    chosen = p.argmax(1) if predicted is None else [list(classes).index(label) for label in predicted]
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*HEADER, *(csv_safe(f"p:{c}") for c in classes)])
            for i, text in enumerate(texts):
                row = "" if rows is None else int(rows[i])
                label = None if labels is None else labels[i]
                writer.writerow(
                    [csv_safe(split), row, csv_safe(text), csv_safe(label), csv_safe(classes[chosen[i]])]
                    + [f"{x:.6g}" for x in (p[i, chosen[i]], *p[i])]
                )
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise GlassformerError(f"{path}: could not be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def read_predictions(path: str | Path) -> Iterator[Prediction]:
    """The rows of a ``predictions.csv``, one at a time.

    Raises:
        DataError: no such file, another header, not UTF-8, or a damaged row, which is named.
    """
    path, line = Path(path), 2
    csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL))  # one for the process: raised, never lowered
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8", newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            names = [csv_plain(column)[2:] for column in header[len(HEADER) :]]
            if tuple(header[: len(HEADER)]) != HEADER:
                raise DataError(
                    f"the header is not {','.join(HEADER)}", where=str(path), fix="Is it a predictions.csv?"
                )
            for cells in reader:
                if len(cells) != len(header):
                    raise ValueError(f"{len(cells)} cells under {len(header)} columns")
                split, number, text, label, predicted = (csv_plain(cell) for cell in cells[:5])
                top, *each = map(float, cells[5:])
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
