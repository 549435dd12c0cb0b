"""Metrics per value of a column, such as shop, language or month."""

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
from glassformer.tasks.labelled import metrics_from
from glassformer.tasks.task import RunContext

MOST = 30  # number of values that are shown separately; the rest form one group
FEW = 5  # up to this number of values, rare ones are allowed too
OPTION = "--by"
REPEAT = "Name a column whose values repeat; put numbers and dates into classes in the table first"


def check_column(context: RunContext, source: str | None, column: str) -> None:
    """Check ``--by`` before the evaluation."""
    if not hasattr(getattr(context.estimator, "kind_", None), "meter"):
        what = f"{context.recipe.task} is not evaluated by a column"
        raise NotForThisModelError(what, where=OPTION, fix="Leave it out; classifiers and regressors have it")
    path = Path(source or str(getattr(context.recipe.data, "source", "")))
    if path.suffix.lower() in READERS and path.is_file():
        _check_repeats(column, list(_column(path, column).values()))


def slices(context: RunContext, column: str) -> dict[str, Any]:
    """Metrics for the rows of each value of another column of the evaluated table.

    Args:
        context: after ``evaluate_saved``, with the evaluated split and its predictions.
        column: a column of that table. Texts are stripped; numbers are written as in JSON.

    Returns:
        ``column``, and ``groups``, the most frequent first: ``value`` (``""`` for an empty cell) and the same
        metrics as for the whole split. Values beyond the 30 most frequent form a last group, whose ``value``
        is None and whose ``values`` is their number.
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
        part, outputs = split.select(np.flatnonzero(here).tolist()), answers[here]
        return about | metrics_from(clf, part, outputs, context.recipe, clf.chosen(outputs))

    groups = [group({"value": value}, np.array([v == value for v in values])) for value in own]
    if rest > 0:
        groups.append(group({"value": None, "values": rest}, np.array([v not in own for v in values])))
    return {"column": column, "groups": groups}


def _column(path: Path, column: str) -> dict[int, str]:
    """Row number -> the column's value as text."""
    table = read_table(path, pass_over)
    if column not in table.names:
        what = f"{path} has no column {column!r}"
        raise ConfigError(what, where=OPTION, fix=nearest(column, table.names))
    return column_as_text(table, column)


def column_as_text(table: Table, column: str) -> dict[int, str]:
    """Row number -> the column's value as text; empty for missing values."""
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
    """Raise ConfigError if most values occur only once, or most rows have a rare value."""
    counts = Counter(values)
    single = sum(n == 1 for n in counts.values())
    covered = sum(n for _, n in counts.most_common(MOST))
    if len(counts) > FEW and (2 * single > len(counts) or 2 * covered < len(values)):
        what = (
            f"{column} has {len(counts):,} values in {len(values):,} rows: too few rows per value to evaluate"
        )
        raise ConfigError(what, where=OPTION, fix=REPEAT)
