"""Rows of tables: how examples are made of them; those that cannot be used end the run or, with
``on_bad_row = "skip"``, are left out and listed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from glassformer.config import listed
from glassformer.data.checks import NO_TEXT
from glassformer.data.files import encoding_fix, not_text
from glassformer.data.label_kinds import LOOKS, what_labels_are
from glassformer.data.tables import NO_ROWS, Table, read_table
from glassformer.errors import DataError, UnclearColumnError
from glassformer.finite import json_text
from glassformer.outputs import write_text_whole

SKIP = "on_bad_row=skip"


@dataclass(frozen=True)
class RejectedRow:
    """Where it stands and what is wrong with it."""

    file: str
    row: int
    reason: str


def or_else(fix: str | None, other: str) -> str:
    """A fix, and another way out behind it, in one sentence or two."""
    fix = fix or "Correct it"
    if fix.startswith("Known: "):
        fix = f"Correct it ({fix[0].lower()}{fix[1:]})"
    return f"{fix} Or {other}" if fix.endswith("?") else f"{fix}, or {other}"


def lenient_table(path: Path, rejected: list[RejectedRow] | None) -> Table:
    """A file's table, its ragged rows left out and listed; None: the first of them ends the reading."""
    if rejected is None:
        with way_out(None, partial(lenient_table, path)):
            return read_table(path)
    errors: list[DataError] = []

    def refuse(error: DataError, row: int) -> None:
        errors.append(error)
        rejected.append(RejectedRow(str(path), row, error.what))

    try:
        return read_table(path, refuse)
    except DataError as error:
        if not errors or error.what != NO_ROWS:
            raise
        what = f"no row can be used; the first: {errors[0].what}"
        raise errors[0].but(what=what, where=str(path)) from None


@contextmanager
def way_out(
    rejected: list[RejectedRow] | None, others: Callable[[list[RejectedRow]], Any] | None = None
) -> Iterator[None]:
    """A row that is refused, where rows are not listed, says how to go on without such rows.

    Args:
        others: lists all rows of the same table that cannot be used, this one among them; they are counted.
    """
    try:
        yield
    except DataError as error:
        if rejected is not None or not error.where or ", row " not in error.where:
            raise
        fix = error.fix or "Correct it"
        fix = fix if SKIP in fix else or_else(fix, f"leave such rows out with {SKIP}")
        bad: list[RejectedRow] = []
        if others is not None:
            with suppress(DataError):  # none is left
                others(bad)
        raise error.but(what=with_others(error.what, len(bad)), fix=fix) from None


def with_others(what: str, bad: int) -> str:
    """What is wrong with the first row that cannot be used, and how many there are besides.

    Args:
        bad: how many there are, the first among them; 0: that is not known.
    """
    return what if bad < 2 else f"{what} ({bad - 1:,} more {'row' if bad == 2 else 'rows'} cannot be used)"


def without_bad_rows(
    table: Table,
    text: str,
    label: str | None,
    rejected: list[RejectedRow],
    checks: dict[str, Callable],
) -> Table:
    """The rows of a table whose text and label can be used; the others are added to ``rejected``.

    Args:
        checks: column (others too) -> what raises for a value of it.

    Raises:
        DataError: none is left.
    """
    columns = {name: table.read(name) for name in {text, label or text, *checks}}
    good, first = [], None
    for i, row in enumerate(table.rows):
        try:
            for name, check in checks.items():
                check([columns[name][i]])
        except DataError as error:
            rejected.append(RejectedRow(table.origin, row, error.what))
            first = first or error
        else:
            good.append(i)
    if not good:
        kind = what_labels_are(columns[label]) if label else None
        what = f"no row can be used; the first: {rejected[-len(table.rows)].reason}"
        fix = first.fix if first and (LOOKS in first.what or NO_TEXT in first.what) else "Correct the table"
        what, fix = (f"{what}; {kind[0]}", kind[1]) if kind else (what, fix)
        raise DataError(what, where=table.origin, fix=fix)
    chosen = {name: [values[i] for i in good] for name, values in columns.items()}
    return replace(table, rows=[table.rows[i] for i in good], read=chosen.__getitem__)


def by_kind(rejected: Sequence[RejectedRow], most: int = 5) -> str:
    """How many rows for each reason, and the first: ``the text is empty (4: rows 3, 8, 9 ...), ...``."""
    kinds: dict[str, list[RejectedRow]] = {}
    for row in rejected:  # of one kind are reasons that differ in the figures of a row
        kind = re.sub(r"\d[\d,.]*", "n", row.reason) if row.reason[:1].isdigit() else row.reason
        kinds.setdefault(kind, []).append(row)
    ranked = sorted(kinds.values(), key=lambda rows: -len(rows))
    told = []
    for rows in ranked[:most]:
        like = " and the like" * (len({row.reason for row in rows}) > 1)
        shown = ", ".join(str(row.row) for row in rows[:3]) + (" ..." if len(rows) > 3 else "")
        many = f"{len(rows):,}: rows" if len(rows) > 1 else "row"
        told.append(f"{rows[0].reason}{like} ({many} {shown})")
    return ", ".join(told) + (f" and {len(ranked) - most} more kinds" if len(ranked) > most else "")


def write_rejected(path: Path, rejected: Sequence[RejectedRow]) -> None:
    """One JSON object a row: ``file``, ``row``, ``reason``."""
    lines = [json_text(vars(row)) + "\n" for row in rejected]
    write_text_whole(path, "".join(lines))


def summary(rejected: Sequence[Any], listed: bool = True) -> str:
    """The rejected rows in one line: how many, and the first; ``listed``: a run's rejected.jsonl has them."""
    first = rejected[0]
    rows = "1 row" if len(rejected) == 1 else f"{len(rejected):,} rows"
    where = f"{first.file}, row {first.row}"
    out = f"{rows} left out{', listed in rejected.jsonl' * listed}"
    return f"{out}; the first: {where}: {first.reason}{in_other_encoding(rejected)}"


def in_other_encoding(rejected: Sequence[Any]) -> str:
    """How rows are read after all that are no UTF-8, behind a sentence on them; empty: there are none.

    Such rows are good ones, and need not be lost as empty ones are.
    """
    count = sum(row.reason == not_text() for row in rejected)
    many = f"{count:,} of them {'is' if count == 1 else 'are'} {not_text()}"
    return f"; {many}: {other_reading(rejected)}" if count else ""


def other_reading(rejected: Sequence[Any]) -> str:
    """What reads the first file with rows in another encoding; empty: there is none."""
    file = next((row.file for row in rejected if row.reason == not_text()), None)
    if file is None:
        return ""
    read = encoding_fix(Path(file)) if Path(file).is_file() else "Save it as UTF-8"
    return read[0].lower() + read[1:]


# --- examples of rows ---------------------------------------------------------------------------

# How an example is made of a row, which raises DataError where it cannot be used, and the row's number.
Row = tuple[Callable[[], Any], int]


def check_request(source: str | Path, limit: int | None, fix: str = "", noun: str = "examples") -> None:
    """Raises DataError for a data set without a name (``fix`` says what can be named), or a limit below 1."""
    if limit is not None and limit < 1:
        raise DataError(f"{limit} {noun} a split", where="limit", fix="Give 1 or more")
    if not str(source):
        raise DataError("no data set is named", where="source", fix=fix)


def column_of(
    table: Table,
    given: str | None,
    usual: Sequence[str],
    what: str,
    key: str,
    *,
    lists: Sequence[str] | None = None,
) -> str:
    """The column of ``what``: the one that is named with ``key``, else the first with a usual name.

    Args:
        lists: columns of which the only one with lists is taken, where none has a usual name.

    Raises:
        DataError: no such column, or none or several that could be it.
    """
    table.check_columns(given)
    if given is not None:
        return given
    free = table.names if lists is None else lists
    for name in usual:
        if match := next((n for n in free if n.lower() == name), None):
            return match
    found = [name for name in lists or () if isinstance(next(iter(table.read(name)), None), list)]
    if len(found) == 1:
        return found[0]
    fix = f"Name it with {key}: {listed(table.names)}"
    raise UnclearColumnError(f"no column of {what} is found", where=table.origin, fix=fix)


def read_rows(
    files: Sequence[Path],
    read: Callable[[Path], Iterable[Row]],
    rejected: list[RejectedRow] | None,
    noun: str,
) -> tuple[list[Any], str, Sequence[int]]:
    """The examples of a split, the origin that messages name, and the row of each example.

    Args:
        rejected: rows that cannot be used are left out and listed here; None: the first ends the reading.

    Raises:
        DataError: a row that cannot be used, or none is left.
    """
    examples: list[Any] = []
    rows: list[int] = []
    before, fix = len(rejected or ()), ""
    for file in files:
        with way_out(rejected):
            for make, row in read(file):
                try:
                    examples.append(make())
                except DataError as error:
                    if rejected is None:
                        raise
                    if len(rejected) == before:  # the row that the error names, if none can be used
                        fix = error.fix or ""
                    rejected.append(RejectedRow(str(file), row, error.what))
                else:
                    rows.append(row)
    origin = " + ".join(map(str, files))
    if not examples:
        mine = rejected[before:] if rejected else []
        what = f"no {noun} can be used" + (f"; {summary(mine, listed=False)}" if mine else "")
        raise DataError(what, where=origin, fix=fix or "Correct the file")
    return examples, origin, rows if len(files) == 1 else range(1, len(rows) + 1)
