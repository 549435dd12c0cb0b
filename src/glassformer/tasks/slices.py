"""Figures by the values of a column: is the model as good for every shop, language or month?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import nearest
from glassformer.data.files import pass_over
from glassformer.data.tables import READERS, Table, read_table
from glassformer.errors import ConfigError, NotForThisModelError
from glassformer.finite import json_text
from glassformer.tasks.labelled import measured
from glassformer.tasks.task import RunContext

MOST = 30  # values of their own; what is rarer is judged together
FEW = 5  # so many values are shown whatever their counts
OPTION = "--by"
REPEAT = "Name a column whose values repeat; put numbers and dates into classes in the table first"


def check_column(context: RunContext, source: str | None, column: str) -> None:
    """What can be known of ``--by`` before anything is judged.

    Raises:
        ConfigError: a task without answers by row, no such column of the table that is named, or one whose
            values hardly repeat.
    """
    if not hasattr(getattr(context.estimator, "kind_", None), "meter"):
        what = f"{context.recipe.task} is not evaluated by a column"
        raise NotForThisModelError(what, where=OPTION, fix="Leave it out; classifiers and regressors have it")
    path = Path(source or str(getattr(context.recipe.data, "source", "")))
    if path.suffix.lower() in READERS and path.is_file():
        _check_repeats(column, list(_column(path, column).values()))


def slices(context: RunContext, column: str) -> dict[str, Any]:
    """What ``judge_again`` found, for the rows of each value of another column of the judged table.

    Args:
        work: behind ``judge_again``: with the judged split and its answers.
        column: of that table. Values are texts without the spaces at their ends, numbers as JSON has them.

    Returns:
        ``column``, and ``groups``, the most frequent first: ``value`` (``""``: an empty cell) and the figures
        of its rows as of the whole. Values rarer than the 30 most frequent stand together in a last group,
        whose ``value`` is None and which counts them as ``values``.

    Raises:
        ConfigError: data that are no single table, or no such column.
    """
    split, answers, clf = context.data.judged, context.answers, context.estimator
    path = Path(str(split.origin))
    if split.rows is None or path.suffix.lower() not in READERS or not path.is_file():
        what, fix = f"{split.origin} is not a single table with other columns", "Give one table by --data"
        raise ConfigError(what, where=OPTION, fix=fix)
    known = _column(path, column)
    values = [known.get(row, "") for row in split.rows]
    counts = sorted(Counter(values).items(), key=lambda item: (-item[1], item[0]))
    own, rest = dict(counts[:MOST]), len(counts) - MOST

    def group(about: dict[str, Any], here: np.ndarray) -> dict[str, Any]:
        part, found = split.select(np.flatnonzero(here).tolist()), answers[here]
        return about | measured(clf, part, found, context.recipe, clf.chosen(found))

    groups = [group({"value": value}, np.array([v == value for v in values])) for value in own]
    if rest > 0:
        groups.append(group({"value": None, "values": rest}, np.array([v not in own for v in values])))
    return {"column": column, "groups": groups}


def _column(path: Path, column: str) -> dict[int, str]:
    """Row of the table -> its value as text."""
    table = read_table(path, pass_over)
    if column not in table.names:
        what = f"{path} has no column {column!r}"
        raise ConfigError(what, where=OPTION, fix=nearest(column, table.names))
    return column_as_text(table, column)


def column_as_text(table: Table, column: str) -> dict[int, str]:
    """Row of the table -> the column's value as text; empty where there is none."""
    names = table.class_names.get(column)
    return {row: _text(value, names) for row, value in zip(table.rows, table.read(column), strict=True)}


def _text(value: Any, names: Sequence[str] | None) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return value.strip()
    if names and isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json_text(value, default=str)


def _check_repeats(column: str, values: Sequence[str]) -> None:
    """ConfigError where most values are of one row, or most rows of a rare value."""
    counts = Counter(values)
    single = sum(n == 1 for n in counts.values())
    covered = sum(n for _, n in counts.most_common(MOST))
    if len(counts) > FEW and (2 * single > len(counts) or 2 * covered < len(values)):
        what = (
            f"{column} has {len(counts):,} values in {len(values):,} rows: too few rows a value to evaluate"
        )
        raise ConfigError(what, where=OPTION, fix=REPEAT)
