"""Pairs of texts and how alike they are: by name (``stsb``), or tables of two columns of texts and a score.

A path is a table (CSV, TSV, JSONL, Parquet), which becomes the split ``train``, or a folder with one table a
split. A score is a number, on any scale; tables without one hold pairs that belong together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import listed, nearest
from glassformer.data.checks import check_texts, is_missing, place
from glassformer.data.column_contents import text_size
from glassformer.data.columns import COMPARED
from glassformer.data.dataset import Dataset, NamedSource, Split, choose_splits
from glassformer.data.folders import files_of, find_folder
from glassformer.data.label_kinds import is_number
from glassformer.data.readers import Row, check_request, read_rows, with_limit
from glassformer.data.rejected import RejectedRow, lenient_table
from glassformer.data.tables import Table
from glassformer.errors import DataError

SCORES = ("score", "similarity", "relatedness", "similarity_score", "is_duplicate", "label")
AUTO = "auto"  # a column of scores that is found by its name, or by its numbers
NO_SCORE = "none"  # as a recipe says it, whose file has no None


@dataclass(frozen=True)
class ScoredSplit(Split):
    """Pairs in file order. ``scores`` is None where all of them belong together."""

    SHUFFLED = True

    first: list[str]
    second: list[str]
    scores: list[float] | None
    origin: str  # file, for messages
    rows: Sequence[int] | None = None

    @property
    def source(self) -> list[str]:
        """What ``groups_of`` keeps on one side of a random split."""
        return self.first


SCORED_SOURCES = {
    "stsb": NamedSource(
        "STS Benchmark (Cer et al., 2017): 5,749 + 1,500 + 1,379 pairs of English sentences, how alike they "
        "are from 0 to 5",
        "CC BY-SA 4.0 and others, see its page",
        folder="stsb",
    ),
}


def load_scored_pairs(
    source: str | Path,
    *,
    first: str | None = None,
    second: str | None = None,
    score: str | None = AUTO,
    limit: int | None = None,
    seed: int = 0,
    on_bad_row: str = "refuse",
) -> Dataset:
    """A data set of compared texts by name or path (see the top of this file).

    Args:
        first, second: columns of a table; None finds them by their names, or takes the two that hold texts.
        score: its column; ``"auto"`` finds it, None or ``"none"``: all pairs belong together.
        limit: at most this many pairs of every split, drawn with ``seed``, file order kept.
        on_bad_row: ``skip`` leaves out and lists rows that cannot be used; ``refuse`` ends at the first.

    Raises:
        DataError: no such data set, file or column, or a row that cannot be used (file and row are named).
    """
    check_request(source, limit, f"Give a path or: {', '.join(SCORED_SOURCES)}", "pairs")
    score = None if score == NO_SCORE else score
    named = SCORED_SOURCES.get(str(source))
    tables = "train.parquet, validation.parquet and test.parquet"
    path = find_folder(named.folder, files=tables) if named else Path(source).expanduser()
    rejected: list[RejectedRow] | None = [] if on_bad_row == "skip" else None
    columns: tuple[str, str, str | None] | None = None

    def read(file: Path) -> Iterator[Row]:
        nonlocal columns
        table = lenient_table(file, rejected)
        columns = columns or find_columns(table, first, second, score)
        return _rows(table, columns)

    splits: dict[str, ScoredSplit] = {}
    for name, files in choose_splits(files_of(path, [*SCORED_SOURCES]), None, str(path)).items():
        pairs, origin, rows = read_rows(files, read, rejected, "pair")
        a, b, scores = map(list, zip(*pairs, strict=True))
        known = columns is not None and columns[2] is not None
        splits[name] = ScoredSplit(a, b, scores if known else None, origin, rows if len(files) == 1 else None)
    dataset = Dataset(path.stem, splits, rejected=tuple(rejected or ()), columns=columns or ())
    return with_limit(named.described(dataset) if named else dataset, limit, seed)


def _rows(table: Table, columns: tuple[str, str, str | None]) -> Iterator[Row]:
    """The pairs of a table and their scores, row by row."""
    if missing := [name for name in columns if name is not None and name not in table.names]:
        what = f"no column {missing[0]!r}, which the first table has"
        raise DataError(what, where=table.origin, fix=nearest(missing[0], table.names))
    values = [[None] * len(table.rows) if name is None else table.read(name) for name in columns]

    def pair(first: Any, second: Any, score: Any, row: int) -> tuple[str, str, float | None]:
        at = table.origin, [row]
        texts = [check_texts([text], *at)[0] for text in (first, second)]
        return texts[0], texts[1], None if columns[2] is None else check_scores([score], *at)[0]

    for *cells, row in zip(*values, table.rows, strict=True):
        yield partial(pair, *cells, row), row


def find_columns(
    table: Table, first: str | None, second: str | None, score: str | None
) -> tuple[str, str, str | None]:
    """The columns of both texts and of the score.

    Raises:
        DataError: a column that is not there, or that cannot be told.
    """
    table.check_columns(first, second, None if score == AUTO else score)
    if first is None or second is None:
        first, second = _sides(table, first, second)
    if first == second or score in (first, second):
        what = f"one column for two of first, second and score: {listed([first, second, str(score)])}"
        raise DataError(what, where=table.origin, fix="Name three columns with first, second and score")
    return first, second, _score(table, first, second) if score == AUTO else score


def _sides(table: Table, first: str | None, second: str | None) -> tuple[str, str]:
    by_name = {name.lower(): name for name in reversed(table.names)}
    for a, b in COMPARED:
        if a in by_name and b in by_name:
            pair = first or by_name[a], second or by_name[b]
            if pair[0] != pair[1]:
                return pair
    free = [name for name in table.names if name not in (first, second)]
    texts = [name for name in free if text_size(table.read(name)) is not None]
    missing = (first is None) + (second is None)
    if len(texts) != missing:
        found = f"{len(texts)} columns hold texts" if len(texts) != 1 else f"only {texts[0]!r} holds texts"
        fix = f"Name them with --set first=NAME --set second=NAME: {listed(table.names)}"
        raise DataError(f"two columns of texts are wanted, and {found}", where=table.origin, fix=fix)
    return first or texts.pop(0), second or texts.pop(0)


def _score(table: Table, first: str, second: str) -> str | None:
    free = [name for name in table.names if name not in (first, second)]
    found = next((name for usual in SCORES for name in free if name.lower() == usual), None)
    if found is not None:
        return found
    there = {name: [v for v in table.read(name) if not is_missing(v)] for name in free}
    numbers = [name for name, values in there.items() if values and all(map(is_number, values))]
    if len(numbers) > 1:
        what = f"several columns could be the score: {listed(numbers)}"
        raise DataError(what, where=table.origin, fix="Name it with --set score=NAME, or use score=none")
    return numbers[0] if numbers else None


def check_scores(
    values: Sequence[Any], origin: str = "scores", rows: Sequence[int] | None = None
) -> list[float]:
    """Numbers, one a pair.

    Raises:
        DataError: one that is missing, infinite or no number (its row is named).
    """
    found = []
    for i, value in enumerate(values):
        try:
            number = float(value) if not isinstance(value, bool) else float(int(value))
        except (TypeError, ValueError):
            number = float("nan")
        if not np.isfinite(number):
            shown = "is missing" if is_missing(value) else f"{str(value)[:40]!r} is no number"
            fix = "Give a number a pair: how alike the two are, on any scale"
            raise DataError(f"the score {shown}", where=place(origin, i, rows), fix=fix)
        found.append(number)
    return found
