"""Rows that cannot be used, left out and listed instead of ending the run: ``on_bad_row = "skip"``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glassformer.data.checks import check_labels, check_texts
from glassformer.data.tables import Table
from glassformer.errors import DataError
from glassformer.outputs import write_text_whole


@dataclass(frozen=True)
class RejectedRow:
    """Where it stands and what is wrong with it."""

    file: str
    row: int
    reason: str


def without_bad_rows(table: Table, text: str, label: str | None, rejected: list[RejectedRow]) -> Table:
    """The rows of a table whose text and label can be used; the others are added to ``rejected``.

    Raises:
        DataError: none is left.
    """
    columns = {text: table.read(text)} | ({label: table.read(label)} if label else {})
    checks: dict[str, Callable] = {text: check_texts} | ({label: check_labels} if label else {})
    good = []
    for i, row in enumerate(table.rows):
        try:
            for name, check in checks.items():
                check([columns[name][i]])
        except DataError as error:
            rejected.append(RejectedRow(table.origin, row, error.what))
        else:
            good.append(i)
    if not good:
        raise DataError(
            "no row can be used", where=table.origin, fix=f"The first: {rejected[-len(table.rows)].reason}"
        )
    chosen = {name: [values[i] for i in good] for name, values in columns.items()}
    return replace(table, rows=[table.rows[i] for i in good], read=chosen.__getitem__)


def write_rejected(path: Path, rejected: Sequence[RejectedRow]) -> None:
    """One JSON object a row: ``file``, ``row``, ``reason``."""
    lines = [json.dumps(vars(row), ensure_ascii=False) + "\n" for row in rejected]
    write_text_whole(path, "".join(lines))


def summary(rejected: Sequence[Any], listed: bool = True) -> str:
    """The rejected rows in one line: how many, and the first; ``listed``: a run's rejected.jsonl has them."""
    first = rejected[0]
    rows = "1 row" if len(rejected) == 1 else f"{len(rejected):,} rows"
    return (
        f"{rows} left out{', listed in rejected.jsonl' if listed else ''}; "
        f"the first: {first.file}, row {first.row}: {first.reason}"
    )
