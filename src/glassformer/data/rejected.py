"""Unusable rows of tables, which raise an error or, with ``on_bad_row = "skip"``, are left out and listed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from glassformer.config import join_names
from glassformer.data.checks import CONLL_EXTENSIONS, NO_TEXT, is_missing, row_location
from glassformer.data.column_contents import looks_like_labels, mean_text_length
from glassformer.data.files import decoding_error_message, encoding_fix
from glassformer.data.label_kinds import LOOKS_LIKE_AMOUNT, find_label_problem
from glassformer.data.tables import NO_ROWS, Table, read_table
from glassformer.errors import DataError, MissingValueError, UnclearColumnError
from glassformer.finite import json_text
from glassformer.outputs import write_text

SKIP = "on_bad_row=skip"
NAMES_ROW = re.compile(r", (row|line|question) \d")  # location of an error in a table


@dataclass(frozen=True)
class RejectedRow:
    """A skipped row: its file and row number, and the reason."""

    file: str
    row: int
    reason: str


def join_fixes(fix: str | None, other: str) -> str:
    """Combine two alternative fixes: "Correct it, or leave such rows out ..."."""
    fix = fix or "Correct it"
    if fix.startswith("Known: "):
        fix = f"Correct it ({fix[0].lower()}{fix[1:]})"
    return f"{fix} Or {other}" if fix.endswith("?") else f"{fix}, or {other}"


def lenient_table(path: Path, rejected: list[RejectedRow] | None) -> Table:
    """Read a table, and skip the rows that cannot be parsed.

    Args:
        rejected: list to which these rows are added; None: they raise an error.
    """
    if rejected is None:
        with hint_to_skip(None, partial(lenient_table, path)):
            return read_table(path)
    errors: list[DataError] = []

    def on_error(error: DataError, row: int) -> None:
        errors.append(error)
        rejected.append(RejectedRow(str(path), row, error.what))

    try:
        return read_table(path, on_error)
    except DataError as error:
        if not errors or error.what != NO_ROWS:
            raise
        what = f"no row can be used; the first: {errors[0].what}"
        raise errors[0].replace(what=what, where=str(path)) from None


@contextmanager
def hint_to_skip(
    rejected: list[RejectedRow] | None, list_unusable: Callable[[list[RejectedRow]], Any] | None = None
) -> Iterator[None]:
    """Add to the error for an unusable row that such rows can be skipped.

    Args:
        rejected: list of skipped rows; if it is not None, errors are not changed.
        list_unusable: function that adds all unusable rows of the table to a list, to state their number.
    """
    try:
        yield
    except DataError as error:
        if rejected is not None or not error.where or not NAMES_ROW.search(error.where):
            raise
        fix = error.fix or "Correct it"
        fix = fix if SKIP in fix else join_fixes(fix, f"leave such rows out with {SKIP}")
        unusable: list[RejectedRow] = []
        if list_unusable is not None:
            with suppress(DataError):  # raised if no row can be used
                list_unusable(unusable)
        raise error.replace(what=with_num_unusable(error.what, len(unusable)), fix=fix) from None


def with_num_unusable(what: str, num_unusable: int) -> str:
    """The problem of the first unusable row, and the number of further unusable rows.

    Args:
        num_unusable: number of unusable rows, including the first; 0: unknown.
    """
    more = f"{num_unusable - 1:,} more {'row' if num_unusable == 2 else 'rows'}"
    return what if num_unusable < 2 else f"{what} ({more} cannot be used)"


def check_filled(table: Table, columns: Mapping[str, str | None]) -> None:
    """Raise MissingValueError if every cell of a column is empty.

    Args:
        columns: setting -> the column that it names. None, columns that the table lacks, and tables of one
            row are ignored.
    """
    for setting, name in columns.items():
        if name in table.names and len(table.rows) > 1 and all(map(is_missing, table.read(name))):
            raise empty_column_error(table, name, setting, columns.values())


def empty_column_error(
    table: Table, name: str, setting: str, used: Iterable[str | None] = ()
) -> MissingValueError:
    """The error for an empty column; the fix names suitable columns that are not in ``used``."""
    is_suitable = looks_like_labels if setting == "label_column" else mean_text_length
    others = [x for x in table.names if x not in (name, *used) and is_suitable(table.read(x))]
    alternative = (
        f"name another column with {setting}: {join_names(others)}" if others else "give another table"
    )
    fix = f"Fill it in, or {alternative}"
    where = f"{table.origin}, column {name!r}"
    return MissingValueError(f"empty in all {len(table.rows):,} rows", where=where, fix=fix)


def keep_usable_rows(
    table: Table, text: str, label: str | None, rejected: list[RejectedRow], checks: dict[str, Callable]
) -> Table:
    """The usable rows of a table; unusable rows are added to ``rejected``.

    Args:
        checks: column -> function that raises DataError for an unusable value.
    """
    columns = {name: table.read(name) for name in {text, label or text, *checks}}
    usable, first = [], None
    for i, row in enumerate(table.rows):
        try:
            for name, check in checks.items():
                check([columns[name][i]])
        except DataError as error:
            rejected.append(RejectedRow(table.origin, row, error.what))
            first = first or error
        else:
            usable.append(i)
    if not usable:
        what, fix = f"no row can be used; the first: {rejected[-len(table.rows)].reason}", "Correct the table"
        if first and (LOOKS_LIKE_AMOUNT in first.what or NO_TEXT in first.what):
            fix = first.fix
        if problem := find_label_problem(columns[label]) if label else None:
            what, fix = f"{what}; {problem[0]}", problem[1]
        raise DataError(what, where=table.origin, fix=fix)
    usable_values = {name: [values[i] for i in usable] for name, values in columns.items()}
    return replace(table, rows=[table.rows[i] for i in usable], read=usable_values.__getitem__)


def group_reasons(rejected: Sequence[RejectedRow], limit: int = 5) -> str:
    """Skipped rows grouped by reason: ``the text is empty (4: rows 3, 8, 9 ...), ...``."""
    groups: dict[str, list[RejectedRow]] = {}
    for row in rejected:  # reasons that begin with a number and differ only in their numbers are grouped
        key = re.sub(r"\d[\d,.]*", "n", row.reason) if row.reason[:1].isdigit() else row.reason
        groups.setdefault(key, []).append(row)
    ranked = sorted(groups.values(), key=lambda rows: -len(rows))
    clauses = []
    for rows in ranked[:limit]:
        and_similar = " and the like" * (len({row.reason for row in rows}) > 1)
        shown = ", ".join(str(row.row) for row in rows[:3]) + (" ..." if len(rows) > 3 else "")
        unit = "line" if rows[0].file.lower().endswith(CONLL_EXTENSIONS) else "row"
        count = f"{len(rows):,}: {unit}s" if len(rows) > 1 else unit
        clauses.append(f"{rows[0].reason}{and_similar} ({count} {shown})")
    return ", ".join(clauses) + (f" and {len(ranked) - limit} more reasons" if len(ranked) > limit else "")


def write_rejected(path: Path, rejected: Sequence[RejectedRow]) -> None:
    """Write one JSON object with ``file``, ``row`` and ``reason`` for each skipped row."""
    write_text(path, "".join([json_text(vars(row)) + "\n" for row in rejected]))


def skip_message(rejected: Sequence[Any], is_listed: bool = True) -> str:
    """One line about the skipped rows: their number, and the first row.

    Args:
        is_listed: whether rejected.jsonl lists the rows.
    """
    first = rejected[0]
    rows = "1 row" if len(rejected) == 1 else f"{len(rejected):,} rows"
    where = row_location(first.file, first.row)
    what = f"{rows} left out{', listed in rejected.jsonl' * is_listed}"
    return f"{what}; the first: {where}: {first.reason}{encoding_note(rejected)}"


def encoding_note(rejected: Sequence[Any]) -> str:
    """A clause about the rows that are not UTF-8, with the option that reads them; otherwise empty."""
    count = sum(row.reason == decoding_error_message() for row in rejected)
    subject = f"{count:,} of them {'is' if count == 1 else 'are'} {decoding_error_message()}"
    return f"; {subject}: {encoding_hint(rejected)}" if count else ""


def encoding_hint(rejected: Sequence[Any]) -> str:
    """The option that reads the first file with rows in another encoding; empty if there is none."""
    file = next((row.file for row in rejected if row.reason == decoding_error_message()), None)
    if file is None:
        return ""
    fix = encoding_fix(Path(file)) if Path(file).is_file() else "Save it as UTF-8"
    return fix[0].lower() + fix[1:]


# --- reading the examples of a split --------------------------------------------------------------

# A function that returns the example of a row or raises DataError, and the row number.
Row = tuple[Callable[[], Any], int]
RowReader = Callable[[Path], Iterable[Row]]


def check_source(source: str | Path, limit: int | None, fix: str = "", noun: str = "examples") -> None:
    """Raise DataError if ``source`` is empty (with ``fix``) or ``limit`` is below 1."""
    if limit is not None and limit < 1:
        raise DataError(f"limit = {limit} {noun} per split", where="limit", fix="Use 1 or more")
    if not str(source):
        raise DataError("no data set is named", where="source", fix=fix)


def find_named_column(
    table: Table,
    requested: str | None,
    usual_names: Sequence[str],
    noun: str,
    key: str,
    *,
    lists: Sequence[str] | None = None,
) -> str:
    """The column ``requested`` with the setting ``key``, or the first column with a usual name.

    Args:
        noun: what the column contains, for an error message.
        lists: columns to choose from; if none has a usual name, the only one with lists is used. None: all
            columns, by name only.
    """
    table.check_columns(requested)
    if requested is not None:
        return requested
    candidates = table.names if lists is None else lists
    matches = [name for usual in usual_names for name in candidates if name.lower() == usual][:1]
    matches = matches or [x for x in lists or () if isinstance(next(iter(table.read(x)), None), list)]
    if len(matches) == 1:
        return matches[0]
    fix = f"Name it with {key}: {join_names(table.names)}"
    raise UnclearColumnError(f"there is no column of {noun}", where=table.origin, fix=fix)


def read_examples(
    files: Sequence[Path], read: RowReader, rejected: list[RejectedRow] | None, noun: str
) -> tuple[list[Any], str, Sequence[int]]:
    """The examples of a split, their origin for messages, and the row number of each example.

    Args:
        rejected: list to which skipped rows are added; None: unusable rows raise an error.
    """
    examples: list[Any] = []
    rows: list[int] = []
    start, fix = len(rejected or ()), ""
    for file in files:
        with hint_to_skip(rejected):
            for make_example, row in read(file):
                try:
                    examples.append(make_example())
                except DataError as error:
                    if rejected is None:
                        raise
                    if len(rejected) == start:  # if no row can be used, the error is about the first row
                        fix = error.fix or ""
                    rejected.append(RejectedRow(str(file), row, error.what))
                else:
                    rows.append(row)
    origin = " + ".join(map(str, files))
    if not examples:
        skipped = rejected[start:] if rejected else []
        what = f"no {noun} can be used"
        what += f"; {skip_message(skipped, is_listed=False)}" if skipped else ""
        raise DataError(what, where=origin, fix=fix or "Correct the file")
    return examples, origin, rows if len(files) == 1 else range(1, len(rows) + 1)
