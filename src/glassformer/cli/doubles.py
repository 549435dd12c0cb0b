"""Rows of one table that mean the same, on the terminal and as a CSV file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glassformer.cli.output import emit, one_line

Pair = tuple[int, int, float]  # places of two rows, and their cosine
Beside = Sequence[Mapping[str, Any]]  # of each row its other columns
SHORT = 40  # characters of a column beside that the terminal shows


def show_doubles(found: Sequence[Pair], texts: Sequence[str], rows: Sequence[int], beside: Beside) -> None:
    """A line a pair: cosine, both rows, with their values of an id column where there is one, both texts."""
    name = _name_of_rows(beside)
    for i, j, cosine in found:
        places = [f"{rows[k]}" if name is None else f"{rows[k]} ({_short(beside[k][name])})" for k in (i, j)]
        emit("\t".join([f"{cosine:.4f}", *places, one_line(texts[i]), one_line(texts[j])]))


def _name_of_rows(beside: Beside) -> str | None:
    """The first other column, where each of its values stands once: an id."""
    name = next(iter(beside[0]), None) if beside else None
    if name is None:
        return None
    values = [str(own.get(name)) for own in beside]
    return name if len({*values}) == len(values) else None


def _short(value: Any) -> str:
    return one_line(value)[:SHORT]


def write_doubles(
    out: Path, found: Sequence[Pair], texts: Sequence[str], rows: Sequence[int], beside: Beside
) -> None:
    """A row a pair with both rows' own columns behind, safe to open in a spreadsheet."""
    from glassformer.evaluate.predictions import csv_safe, table_file

    names = list(beside[0]) if beside else []
    own = [f"{side}_{name}" for name in names for side in ("first", "second")]
    with table_file(out) as writer:
        writer.writerow(map(csv_safe, ["cosine", "first_row", "second_row", "first", "second", *own]))
        for i, j, cosine in found:
            cells = [beside[k][name] for name in names for k in (i, j)]
            shown = ["" if cell is None else str(cell) for cell in cells]
            line = [f"{cosine:.6f}", str(rows[i]), str(rows[j]), texts[i], texts[j], *shown]
            writer.writerow([line[0], *map(csv_safe, line[1:])])
