"""Several labels an example: sets of labels, or a 0/1 matrix with one column a label, as in scikit-learn."""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from glassformer.data.checks import check_label, check_labels, is_missing, place
from glassformer.data.in_memory import table_of
from glassformer.errors import DataError, IdleSettingWarning

JOIN = " | "  # between the labels of a set that is shown
NONE = "(none)"  # how a set without labels is shown


class LabelSet(tuple[Any, ...]):
    """The labels of one example, each once, in their order; there may be none."""

    __slots__ = ()

    def __str__(self) -> str:
        return JOIN.join(map(str, self)) or NONE


def labels_in(cell: str, known: Collection[str]) -> list[str]:
    """The labels of a set that was shown, those that are ``known``; one may hold ``JOIN`` itself."""
    parts, out, at = [] if cell == NONE else cell.split(JOIN), [], 0
    while at < len(parts):
        ends = range(len(parts), at, -1)  # the longest first
        end = next((end for end in ends if JOIN.join(parts[at:end]) in known), None)
        if end is not None:
            out.append(JOIN.join(parts[at:end]))
        at = end or at + 1
    return out


class Unusable(NamedTuple):
    """What stands in the place of the labels of a row that cannot be used."""

    reason: str


def is_matrix(y: Any) -> bool:
    """Whether targets are an array, a sparse matrix or a table with several columns."""
    if (table := table_of(y)) is not None:
        return len(table) > 1
    shape = getattr(y, "shape", None)
    return isinstance(shape, tuple) and len(shape) == 2 and shape[1] > 1


def holds_sets(y: Any) -> bool:
    """Whether targets are several labels an example: a matrix, or the first of them a list, tuple or set."""
    if is_matrix(y):
        return True
    if y is None or len(getattr(y, "shape", ())) > 1 or isinstance(y, str | bytes):
        return False
    first = next((label for label in y if not (label is None or isinstance(label, float))), None)
    return _is_set(first)  # of an Unusable, too, which is a tuple


def _is_set(label: Any) -> bool:
    flat = isinstance(label, np.ndarray) and label.ndim == 1
    return flat or isinstance(label, list | tuple | set | frozenset)


def refuse_indicators(y: Iterable[Any], origin: str = "labels") -> None:
    """Nothing, unless every row is a list of 0 and 1 of one length: a matrix, which as sets of labels would
    say "both" of every row.

    Raises:
        DataError: it can be both; the message says how to give either.
    """
    rows = [row for row in y if not (row is None or isinstance(row, float))]
    if any(isinstance(row, LabelSet) or not isinstance(row, list | tuple | np.ndarray) for row in rows):
        return
    if len({len(row) for row in rows}) == 1 < len(rows[0]) and all(
        isinstance(value, int | np.integer | np.bool_) and value in (0, 1) for row in rows for value in row
    ):
        what = (
            "every row is a list of 0 and 1 of one length, which can be an indicator matrix or sets of labels"
        )
        fix = (
            "Give an indicator matrix as np.array(y), or the names of each row's labels: [['a'], ['a', 'b']]"
        )
        raise DataError(what, where=origin, fix=fix)


def check_sets(y: Iterable[Any], origin: str = "labels", rows: Sequence[int] | None = None) -> list[LabelSet]:
    """Sets of labels, each checked as a label is (``check_labels``): text or whole numbers, all of one kind.

    Raises:
        DataError: a set that is missing or none, or a label in it that cannot be one; the example is named.
    """
    sets, flat, owner = [], [], []
    for index, given in enumerate(y):
        what = ""
        if isinstance(given, Unusable):
            what, fix = given.reason, "Correct it or remove the row"
        elif not _is_set(given):
            kind = "missing" if is_missing(given) else f"no list but {type(given).__name__}"
            fix = "Give a list of labels for every example; an empty one where it has none"
            what = f"the labels are {kind}"
        elif NONE in map(str, given):
            what = f"a label is called {NONE!r}, as no label is shown"
            fix = "Give it another name, or an empty list where an example has none"
        if what:
            raise DataError(what, where=place(origin, index, rows), fix=fix)
        sets.append(list(given))
        flat += sets[-1]
        owner += [index] * len(sets[-1])
    try:
        checked = check_labels(flat, "")
    except DataError as error:
        wrong = int((error.where or "[0]").strip("[]"))  # as ``place`` writes it without an origin
        raise error.but(where=place(origin, owner[wrong], rows)) from None
    each_one = iter(checked)
    return [LabelSet(sorted(set(islice(each_one, len(labels))))) for labels in sets]


def read_matrix(y: Any, origin: str = "labels") -> tuple[list[LabelSet], list[Any]]:
    """A matrix of 0 and 1 ``[n, K]`` as sets, and its labels: a table's columns, else 0 to K - 1.

    Raises:
        DataError: something else than 0 and 1 in it; row and column are named.
    """
    names, dense = None, _dense(y)
    if (table := names_of_matrix(y)) is not None:
        names = [check_label(name, f"{origin} column") for name in table]
    dense = dense.astype(object) if dense.dtype.kind not in "biuf" else dense
    wrong = np.argwhere(~((dense == 0) | (dense == 1)))
    if len(wrong):
        i, k = wrong[0].tolist()
        what, where = f"{dense[i, k]!r} where a matrix of several labels has 0 or 1", place(origin, i, None)
        fix = "Give 1 where an example has a label and 0 where not"
        raise DataError(what, where=f"{where}[{k}]", fix=fix)
    labels = list(range(dense.shape[1])) if names is None else names
    if len(set(labels)) < len(labels):
        raise DataError("two columns have one name", where=origin, fix="Rename one")
    if NONE in map(str, labels):
        raise DataError(f"a label is called {NONE!r}, as no label is shown", where=origin, fix="Rename it")
    return as_sets(dense.astype(bool), labels).tolist(), labels


def names_of_matrix(y: Any) -> tuple[Any, ...] | None:
    """What a matrix calls its labels: a table's columns; None: an array has none."""
    table = None if isinstance(y, np.ndarray) and not y.dtype.names else table_of(y)
    return None if table is None else table.labels


def are_truths(y: Any) -> bool:
    """Whether targets, or all entries of a matrix, are truth values."""
    if is_matrix(y):
        dense = _dense(y)
        return dense.dtype == bool or (dense.dtype == object and all(map(_is_truth, dense.flat)))
    first = next((label for label in y if not is_missing(label)), None)
    return _is_truth(first)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _dense(y: Any) -> np.ndarray:
    """The entries of a matrix ``[n, K]``."""
    if hasattr(y, "toarray"):
        return y.toarray()
    if hasattr(y, "iloc") or names_of_matrix(y) is None:
        return np.asarray(y)
    table = table_of(y)
    columns = [table.column(k) for k in range(len(table))]  # type: ignore[arg-type,union-attr]  # it has names
    kinds = {type(value) for column in columns for value in column}
    return np.array(columns, None if len(kinds) == 1 else object).T


def split_cell(cell: Any, separator: str) -> list[str]:
    """The labels in one cell of a table: ``joy|anger``, or a list as programs write it, ``['joy']``.

    Round brackets are those of a list where the separator stands between them, else of a name: ``(other)``.
    """
    if is_missing(cell) or (text := str(cell).strip()) == NONE:
        return []
    if text[:1] == "[":
        try:
            return [str(label) for label in json.loads(text)]
        except ValueError:
            pass
    if _in_brackets(text) and (text[0] != "(" or separator in text):
        text = text[1:-1]
    return [part for raw in text.split(separator) if (part := raw.strip().strip("'\""))]


def _in_brackets(text: str) -> bool:
    """Whether the bracket that a text begins with is closed by its last character, not as in "(a)(b)"."""
    pairs, depth = {"[": "]", "(": ")", "{": "}"}, 0
    if text[:1] not in pairs or text[-1:] != pairs[text[0]]:
        return False
    for i, sign in enumerate(text):
        depth += (sign == text[0]) - (sign == text[-1])
        if not depth:
            return i == len(text) - 1
    return False


def _warn_of_separator(values: Sequence[Any], column: str, separator: str) -> None:
    """Warn where no cell has the separator, and some have another usual one."""
    if any(not isinstance(v, str) or separator in v for v in values):
        return
    others = Counter(mark for value in values for mark in "|;," if mark in value)
    if others:
        other = others.most_common(1)[0][0]
        what = f"no cell of {column!r} has {separator!r}, and some have {other!r}: is that label_separator?"
        warnings.warn(what, IdleSettingWarning, stacklevel=2)


def of_column(values: Sequence[Any], separator: str | None, column: str | None = None) -> Sequence[Any]:
    """A column's labels as lists where its cells are joined names; as they are without a separator.

    Args:
        column: its name, for a warning where no cell has the separator; None: no warning.
    """
    if separator is None or any(map(_is_set, values)):
        return values
    if column is not None:
        _warn_of_separator(values, column, separator)
    return [split_cell(cell, separator) for cell in values]


def are_sets(labels: Sequence[Any] | None) -> bool:
    """Whether checked labels are sets."""
    return bool(labels) and isinstance(next(iter(labels or ()), None), LabelSet)


def each(labels: Iterable[Any] | None) -> list[Any]:
    """Every label of examples, one a time that it stands there, of sets and of single labels alike."""
    given = [] if labels is None else labels
    return [label for own in given for label in (own if isinstance(own, LabelSet) else (own,))]


def strata(labels: Sequence[Any], held: int) -> Sequence[Any]:
    """What to stratify a choice of ``held`` examples by: single labels as they are, of a set its rarest.

    Labels too rare to stand on both sides share one stratum with examples that have none.
    """
    if not are_sets(labels):
        return labels
    n, counts = len(labels), Counter(each(labels))
    least = max(2, math.ceil(n / max(min(held, n - held), 1)))
    names = {label: str(i) for i, label in enumerate(sorted(counts))}

    def rarest(given: LabelSet) -> str:
        able = [label for label in given if counts[label] >= least]
        return names[min(able, key=lambda label: (counts[label], names[label]))] if able else ""

    out = list(map(rarest, labels))
    sizes = Counter(out)
    (most, _), *_ = sizes.most_common(1)
    return [name if sizes[name] >= least else most for name in out]


def indicator(sets: Sequence[Iterable[Any]], classes: Sequence[Any]) -> np.ndarray:
    """``[n, K]`` fp32: 1 where an example has a label. Every label must be among ``classes``."""
    numbers = {label: k for k, label in enumerate(classes)}
    out = np.zeros((len(sets), len(classes)), np.float32)
    for i, labels in enumerate(sets):
        out[i, [numbers[label] for label in labels]] = 1.0
    return out


def as_sets(chosen: np.ndarray, classes: Sequence[Any]) -> np.ndarray:
    """``[n, K]`` bool as ``[n]`` label sets."""
    out = np.empty(len(chosen), object)
    for i, row in enumerate(chosen):
        out[i] = LabelSet(classes[k] for k in np.flatnonzero(row).tolist())
    return out


def together(sets: Sequence[Any], most: int = 10) -> list[dict[str, Any]]:
    """Pairs of labels that stand at one example, the most frequent first.

    Returns:
        Of each ``labels`` (both), ``count``, ``of_first`` and ``of_second`` (its share of each one's
        examples) and ``lift``: how many times as often as if the two were independent.
    """
    single, pairs = Counter(each(sets)), Counter[tuple[Any, Any]]()
    for labels in sets:
        pairs.update((a, b) for i, a in enumerate(labels) for b in labels[i + 1 :])
    n = len(sets)
    return [
        {
            "labels": [str(a), str(b)],
            "count": count,
            "of_first": count / single[a],
            "of_second": count / single[b],
            "lift": count * n / (single[a] * single[b]),
        }
        for (a, b), count in pairs.most_common(most)
    ]
