"""Figures by the values of a column: is the model as good for every shop, language or month?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from glassformer.config import nearest
from glassformer.data.row_errors import pass_over
from glassformer.data.tables import READERS, read_table
from glassformer.errors import ConfigError
from glassformer.tasks.labelled import measured
from glassformer.tasks.task import Work

MOST = 30  # values of their own; what is rarer is judged together
OTHERS = "(all others)"
EMPTY = "(empty)"
OPTION = "--by"


def slices(work: Work, column: str) -> dict[str, Any]:
    """What ``judge_again`` found, for the rows of each value of another column of the judged table.

    Args:
        work: behind ``judge_again``: with the judged split and its answers.
        column: of that table; its values are compared as they are written.

    Returns:
        ``column``, and ``groups``: for each value, the most frequent first, ``value`` and the figures of its
        rows as of the whole; rarer ones than the 30 most frequent stand together as ``(all others)``.

    Raises:
        ConfigError: a task without answers by row, data that are no table, no such column, or one whose
            values hardly repeat.
    """
    split = getattr(work.data, "judged", None)
    answers = getattr(work, "answers", None)
    if split is None or answers is None or not hasattr(getattr(work.estimator, "kind_", None), "meter"):
        what = f"{work.recipe.task} is not judged by a column"
        raise ConfigError(what, where=OPTION, fix="Leave it out; classifiers and regressors have it")
    values = _values(split, column)
    counts = Counter(values)
    if len(counts) > max(MOST, len(values) // 2):
        what = f"{column} has {len(counts):,} values in {len(values):,} rows: too few rows a value to judge"
        fix = "Name a column whose values repeat; put numbers and dates into classes in the table first"
        raise ConfigError(what, where=OPTION, fix=fix)
    own = {value for value, _ in counts.most_common(MOST)}
    named = np.array([value if value in own else OTHERS for value in values], dtype=object)
    groups = []
    for value, _ in Counter(named.tolist()).most_common():
        rows = np.flatnonzero(named == value)
        part, found, chosen = split.select(rows.tolist()), answers[rows], work.estimator.chosen(answers[rows])
        groups.append({"value": value, **measured(work.estimator, part, found, work.recipe, chosen)})
    return {"column": column, "groups": sorted(groups, key=lambda group: group["value"] == OTHERS)}


def _values(split: Any, column: str) -> list[str]:
    """The column's value of each row that is judged, as text."""
    if split.rows is None or not any(str(split.origin).endswith(end) for end in READERS):
        what, fix = f"{split.origin} is no table with other columns", "Give a table by --data"
        raise ConfigError(what, where=OPTION, fix=fix)
    table = read_table(split.origin, pass_over)
    if column not in table.names:
        what = f"{split.origin} has no column {column!r}"
        raise ConfigError(what, where=OPTION, fix=nearest(column, table.names))
    names = table.class_names.get(column)
    known = dict(zip(table.rows, table.read(column), strict=True))
    said = [known.get(row) for row in split.rows]
    texts = [names[value] if names and isinstance(value, int) else value for value in said]
    return [EMPTY if text is None or not str(text).strip() else str(text).strip() for text in texts]
