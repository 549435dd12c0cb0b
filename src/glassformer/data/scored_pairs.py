"""Pairs of texts and how alike they are: by name (``stsb``), or tables of two columns of texts and a score.

A path is a table (CSV, TSV, JSONL, Parquet), which becomes the split ``train``, or a folder with one table a
split. A score is a number, on any scale; tables without one hold pairs that belong together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import listed, nearest
from glassformer.data.checks import check_cells, check_texts, is_missing, place
from glassformer.data.column_contents import text_size
from glassformer.data.columns import COMPARED
from glassformer.data.dataset import Split, choose_splits
from glassformer.data.folders import data_folders, refuse_tables, split_files
from glassformer.data.label_kinds import is_number
from glassformer.data.rejected import RejectedRow, lenient_table, way_out, without_bad_rows
from glassformer.data.splits import limited
from glassformer.data.spreadsheet import other_kind
from glassformer.data.tables import READERS, Table
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


@dataclass(frozen=True)
class ScoredDataset:
    """The splits of one data set, among ``train``, ``validation`` and ``test``."""

    name: str
    splits: dict[str, ScoredSplit]
    columns: tuple[str, str, str | None]  # first, second, score
    description: str = ""
    licence: str = ""
    rejected: tuple[RejectedRow, ...] = ()  # rows left out


@dataclass(frozen=True)
class ScoredSource:
    """A named data set of pairs with scores."""

    description: str
    licence: str
    folder: str  # below a data folder
    notes: tuple[str, ...] = ()


SCORED_SOURCES = {
    "stsb": ScoredSource(
        "STS Benchmark (Cer et al., 2017): 5,749 + 1,500 + 1,379 pairs of English sentences, how alike they "
        "are from 0 to 5",
        "CC BY-SA 4.0 and others, see its page",
        "stsb",
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
) -> ScoredDataset:
    """A data set of compared texts by name or path (see the top of this file).

    Args:
        first, second: columns of a table; None finds them by their names, or takes the two that hold texts.
        score: its column; ``"auto"`` finds it, None or ``"none"``: all pairs belong together.
        limit: at most this many pairs of every split, drawn with ``seed``, file order kept.
        on_bad_row: ``skip`` leaves out and lists rows that cannot be used; ``refuse`` ends at the first.

    Raises:
        DataError: no such data set, file or column, or a row that cannot be used (file and row are named).
    """
    if limit is not None and limit < 1:
        raise DataError(f"{limit} pairs a split", where="limit", fix="Give 1 or more")
    if not str(source):
        known = ", ".join(SCORED_SOURCES)
        raise DataError("no data set is named", where="source", fix=f"Give a path or: {known}")
    score = None if score == NO_SCORE else score
    named = SCORED_SOURCES.get(str(source))
    path = _named_folder(named) if named else Path(source).expanduser()
    rejected: list[RejectedRow] = []
    skipped = rejected if on_bad_row == "skip" else None
    splits: dict[str, ScoredSplit] = {}
    columns: tuple[str, str, str | None] | None = None
    for name, files in choose_splits(_files(path), None, str(path)).items():
        tables = [lenient_table(file, skipped) for file in files]
        columns = columns or find_columns(tables[0], first, second, score)
        splits[name] = _split(tables, columns, skipped)
    assert columns is not None, "choose_splits gives one at least"
    if limit is not None:
        splits = {name: limited(split, limit, seed) for name, split in splits.items()}
    about = (named.description, named.licence) if named else ("", "")
    return ScoredDataset(path.stem, splits, columns, *about, tuple(rejected))


def _named_folder(known: ScoredSource) -> Path:
    for root in data_folders():
        if (root / known.folder).is_dir():
            return root / known.folder
    raise DataError(
        f"the data set {known.folder!r} is not on this machine",
        where=known.folder,
        fix=f"Put train.parquet, validation.parquet and test.parquet into a folder {known.folder!r} and set "
        "GLASSFORMER_DATA to the folder around it",
    )


def _files(path: Path) -> dict[str, list[Path]]:
    if path.is_dir():
        if files := split_files(path):
            return files
        refuse_tables(path)
        raise DataError("no table named train, validation or test", where=str(path))
    if path.suffix.lower() in READERS:
        return {"train": [path]}
    if path.exists():
        raise DataError("is no table", where=str(path), fix=other_kind(path.suffix, READERS))
    hint = nearest(str(path), list(SCORED_SOURCES))
    raise DataError(
        f"no file, folder or named data set of pairs {str(path)!r}", fix=f"Check the path. {hint}"
    )


def find_columns(
    table: Table, first: str | None, second: str | None, score: str | None
) -> tuple[str, str, str | None]:
    """The columns of both texts and of the score.

    Raises:
        DataError: a column that is not there, or that cannot be told.
    """
    for wanted in (first, second, None if score == AUTO else score):
        if wanted is not None and wanted not in table.names:
            raise DataError(f"no column {wanted!r}", where=table.origin, fix=nearest(wanted, table.names))
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
        raise DataError(
            f"two columns of texts are wanted, and {found}",
            where=table.origin,
            fix=f"Name them with --set first=NAME --set second=NAME: {listed(table.names)}",
        )
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


def _split(
    tables: Sequence[Table],
    columns: tuple[str, str, str | None],
    rejected: list[RejectedRow] | None,
) -> ScoredSplit:
    first, second, score = columns
    sides: tuple[list[str], list[str], list[float]] = ([], [], [])
    origin, rows = " + ".join(table.origin for table in tables), None
    for table in tables:
        if missing := [name for name in columns if name is not None and name not in table.names]:
            what = f"no column {missing[0]!r}, which the first table has"
            raise DataError(what, where=table.origin, fix=nearest(missing[0], table.names))
        if rejected is not None:
            checks: dict[str, Any] = {first: check_cells, second: check_cells}
            checks |= {score: check_scores} if score is not None else {}
            table = without_bad_rows(table, first, None, rejected, checks)
        with way_out(rejected):
            for side, name in zip(sides, (first, second), strict=False):
                side += check_texts(table.read(name), table.origin, table.rows)
            if score is not None:
                sides[2].extend(check_scores(table.read(score), table.origin, table.rows))
        rows = table.rows if len(tables) == 1 else None
    return ScoredSplit(sides[0], sides[1], sides[2] if score is not None else None, origin, rows)


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
