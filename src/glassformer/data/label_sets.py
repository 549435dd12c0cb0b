"""Multi-label targets: label sets and indicator matrices."""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate, islice
from typing import Any, NamedTuple

import numpy as np

from glassformer.data.checks import check_label, check_labels, is_missing, location
from glassformer.data.in_memory import table_of
from glassformer.errors import DataError, IdleSettingWarning

SEPARATOR = " | "  # between the labels of a set in output
NONE = "(none)"  # an empty set in output


class LabelSet(tuple[Any, ...]):
    """The sorted distinct labels of one example; may be empty."""

    __slots__ = ()

    def __str__(self) -> str:
        return SEPARATOR.join(map(str, self)) or NONE


def parse_labels(cell: str, known: Collection[str]) -> list[str]:
    """Parse ``str(LabelSet)``: return its labels that are ``known``. A label may contain ``SEPARATOR``."""
    parts, labels, start = [] if cell == NONE else cell.split(SEPARATOR), [], 0
    while start < len(parts):
        ends = range(len(parts), start, -1)  # the longest label first
        end = next((end for end in ends if SEPARATOR.join(parts[start:end]) in known), None)
        if end is not None:
            labels.append(SEPARATOR.join(parts[start:end]))
        start = end or start + 1
    return labels


class UnusableRow(NamedTuple):
    """The reason why a row has no usable labels, in place of the labels."""

    reason: str


def is_matrix(y: Any) -> bool:
    """Whether targets are an array, a sparse matrix or a table with several columns."""
    if (table := table_of(y)) is not None:
        return len(table) > 1
    shape = getattr(y, "shape", None)
    return isinstance(shape, tuple) and len(shape) == 2 and shape[1] > 1


def is_multilabel(y: Any) -> bool:
    """Whether targets are multi-label: a matrix, or a list whose first target is a list, tuple or set."""
    if is_matrix(y):
        return True
    if y is None or len(getattr(y, "shape", ())) > 1 or isinstance(y, str | bytes):
        return False
    first = next((label for label in y if not (label is None or isinstance(label, float))), None)
    return _is_set(first)  # also true for UnusableRow, which is a tuple


def _is_set(label: Any) -> bool:
    is_vector = isinstance(label, np.ndarray) and label.ndim == 1
    return is_vector or isinstance(label, list | tuple | set | frozenset)


def check_not_indicators(y: Iterable[Any], origin: str = "labels") -> None:
    """Raise DataError if ``y`` is a list of lists of 0s and 1s, which is probably an indicator matrix.

    Read as label sets, nearly every row would have the labels 0 and 1. The message says how to pass a matrix
    and how to pass label sets.
    """
    rows = [row for row in y if not (row is None or isinstance(row, float))]
    if any(isinstance(row, LabelSet) or not isinstance(row, list | tuple | np.ndarray) for row in rows):
        return
    values = (value for row in rows for value in row)
    are_zero_or_one = all(isinstance(x, int | np.integer | np.bool_) and x in (0, 1) for x in values)
    if len({len(row) for row in rows}) == 1 < len(rows[0]) and are_zero_or_one:
        what = "all rows are lists of 0s and 1s of the same length: this may be an indicator matrix or "
        what += "label sets"
        fix = "Give an indicator matrix as np.array(y), or the names of each row's labels: "
        raise DataError(what, where=origin, fix=f"{fix}[['a'], ['a', 'b']]")


def check_sets(y: Iterable[Any], origin: str = "labels", rows: Sequence[int] | None = None) -> list[LabelSet]:
    """The targets as label sets, whose labels are all text or all integers (see ``check_labels``).

    Raises:
        DataError: the labels of an example are missing, not a set, or include an invalid label.
    """
    sets, flat, example_of_label = [], [], []
    for index, label_set in enumerate(y):
        what = ""
        if isinstance(label_set, UnusableRow):
            what, fix = label_set.reason, "Correct it or remove the row"
        elif not _is_set(label_set):
            kind = "missing" if is_missing(label_set) else f"not a list but {type(label_set).__name__}"
            fix = "Give a list of labels for every example, an empty list if it has none"
            what = f"the labels are {kind}"
        elif NONE in map(str, label_set):
            what = f"a label is called {NONE!r}, the name for examples without labels"
            fix = "Give it another name, or give an empty list for an example without labels"
        if what:
            raise DataError(what, where=location(origin, index, rows), fix=fix)
        sets.append(list(label_set))
        flat += sets[-1]
        example_of_label += [index] * len(sets[-1])
    try:
        checked = check_labels(flat, "")
    except DataError as error:
        index = int((error.where or "[0]").strip("[]"))  # from ``location`` without an origin: "[i]"
        raise error.replace(where=location(origin, example_of_label[index], rows)) from None
    remaining = iter(checked)
    return [LabelSet(sorted(set(islice(remaining, len(labels))))) for labels in sets]


def read_matrix(y: Any, origin: str = "labels") -> tuple[list[LabelSet], list[Any]]:
    """An indicator matrix ``[n, K]`` as label sets, and its labels: column names, or 0 to K - 1."""
    dense, names = _dense(y), matrix_column_names(y)
    labels = list(range(dense.shape[1]))
    if names is not None:
        labels = [check_label(name, f"{origin} column") for name in names]
    dense = dense.astype(object) if dense.dtype.kind not in "biuf" else dense
    wrong = np.argwhere(~((dense == 0) | (dense == 1)))
    if len(wrong):
        i, k = wrong[0].tolist()
        what, where = f"{dense[i, k]!r} where an indicator matrix has 0 or 1", location(origin, i, None)
        raise DataError(what, where=f"{where}[{k}]", fix="Give 1 if the example has the label, otherwise 0")
    if len(set(labels)) < len(labels):
        raise DataError("two columns have the same name", where=origin, fix="Rename one")
    if NONE in map(str, labels):
        what = f"a label is called {NONE!r}, the name for examples without labels"
        raise DataError(what, where=origin, fix="Rename it")
    return as_sets(dense.astype(bool), labels).tolist(), labels


def matrix_column_names(y: Any) -> tuple[Any, ...] | None:
    """The label names of a matrix: the columns of a table; None for an array."""
    table = None if isinstance(y, np.ndarray) and not y.dtype.names else table_of(y)
    return None if table is None else table.keys


def are_booleans(y: Any) -> bool:
    """Whether the targets, or all entries of a matrix, are booleans."""
    if is_matrix(y):
        dense = _dense(y)
        return dense.dtype == bool or (dense.dtype == object and all(map(_is_boolean, dense.flat)))
    return _is_boolean(next((label for label in y if not is_missing(label)), None))


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _dense(y: Any) -> np.ndarray:
    """An indicator matrix ``[n, K]`` (array, sparse matrix or table) as an array."""
    if hasattr(y, "toarray"):
        return y.toarray()
    if hasattr(y, "iloc") or matrix_column_names(y) is None:
        return np.asarray(y)
    table = table_of(y)
    columns = [table.column(k) for k in range(len(table))]  # type: ignore[arg-type,union-attr]  # it has names
    kinds = {type(value) for column in columns for value in column}
    return np.array(columns, None if len(kinds) == 1 else object).T


def split_cell(cell: Any, separator: str) -> list[str]:
    """The labels in one cell of a table: ``joy|anger``, or a printed list such as ``['joy']``.

    Parentheses enclose a list if there is a separator between them. Otherwise they belong to a name:
    ``(other)``.
    """
    if is_missing(cell) or (text := str(cell).strip()) == NONE:
        return []
    if text[:1] == "[":
        try:
            return [str(label) for label in json.loads(text)]
        except ValueError:
            pass
    if _is_bracketed(text) and (text[0] != "(" or separator in text):
        text = text[1:-1]
    return [part for raw in text.split(separator) if (part := raw.strip().strip("'\""))]


def _is_bracketed(text: str) -> bool:
    """Whether one pair of brackets encloses the whole text: "(a, b)", but not "(a)(b)"."""
    if text[:1] + text[-1:] not in ("[]", "()", "{}"):
        return False
    depths = [*accumulate((sign == text[0]) - (sign == text[-1]) for sign in text)]
    return depths[-1] == 0 and 0 not in depths[:-1]


def split_column(values: Sequence[Any], separator: str | None, column: str | None = None) -> Sequence[Any]:
    """Split each cell of a column into a list of labels; unchanged without a separator.

    Args:
        column: name of the column, for a warning if no cell has the separator; None: no warning.
    """
    if separator is None or any(map(_is_set, values)):
        return values
    if column is not None and all(isinstance(value, str) and separator not in value for value in values):
        counts = Counter(mark for value in values for mark in "|;," if mark in value)
        for other, _ in counts.most_common(1):
            what = f"no cell of {column!r} has {separator!r}, but some have {other!r}. "
            what += f"Is {other!r} the label_separator?"
            warnings.warn(what, IdleSettingWarning, stacklevel=2)
    return [split_cell(cell, separator) for cell in values]


def are_sets(labels: Sequence[Any] | None) -> bool:
    """Whether checked labels are sets."""
    return bool(labels) and isinstance(next(iter(labels or ()), None), LabelSet)


def flat_labels(labels: Iterable[Any] | None) -> list[Any]:
    """All labels of the examples in one list, with repetitions; accepts label sets and single labels."""
    examples = [] if labels is None else labels
    return [label for item in examples for label in (item if isinstance(item, LabelSet) else (item,))]


def set_strata(labels: Sequence[LabelSet], num_held_out: int) -> list[str]:
    """The stratum of each label set for a split with ``num_held_out`` held-out examples: its rarest label.

    Labels that are too rare to occur in both parts of the split share a stratum with examples without labels.
    """
    n, counts = len(labels), Counter(flat_labels(labels))
    min_count = max(2, math.ceil(n / max(min(num_held_out, n - num_held_out), 1)))
    names = {label: str(i) for i, label in enumerate(sorted(counts))}

    def rarest(label_set: LabelSet) -> str:
        frequent = [label for label in label_set if counts[label] >= min_count]
        return names[min(frequent, key=lambda label: (counts[label], names[label]))] if frequent else ""

    strata = list(map(rarest, labels))
    sizes = Counter(strata)
    largest = sizes.most_common(1)[0][0]
    return [name if sizes[name] >= min_count else largest for name in strata]


def indicator(sets: Sequence[Iterable[Any]], classes: Sequence[Any]) -> np.ndarray:
    """The indicator matrix ``[n, K]``, fp32. Every label must be among ``classes``."""
    column_of = {label: k for k, label in enumerate(classes)}
    matrix = np.zeros((len(sets), len(classes)), np.float32)
    for i, labels in enumerate(sets):
        matrix[i, [column_of[label] for label in labels]] = 1.0
    return matrix


def as_sets(matrix: np.ndarray, classes: Sequence[Any]) -> np.ndarray:
    """An indicator matrix ``[n, K]``, bool, as ``[n]`` label sets."""
    sets = np.empty(len(matrix), object)
    for i, row in enumerate(matrix):
        sets[i] = LabelSet(classes[k] for k in np.flatnonzero(row).tolist())
    return sets


def label_pairs(sets: Sequence[Any], max_pairs: int = 10) -> list[dict[str, Any]]:
    """The pairs of labels that occur together most often.

    Returns:
        One dict per pair: ``labels`` and ``count``; ``of_first`` and ``of_second``, the share of the examples
        with the first (second) label that have both; and ``lift``, the count divided by the count expected if
        the labels were independent.
    """
    single, pairs = Counter(flat_labels(sets)), Counter[tuple[Any, Any]]()
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
        for (a, b), count in pairs.most_common(max_pairs)
    ]
