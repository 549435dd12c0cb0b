"""Read examples in memory: lists, arrays and tables.

A table is a data frame (pandas, polars), an Arrow table, a ``datasets.Dataset``, a record array, a list of
dicts or named tuples, or a dict of columns. Named columns may be in any order. Sets, and dicts of single
texts, raise an error, since their order does not show which label belongs to which text.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.config import join_names, suggest
from glassformer.errors import DataError, NoSuchColumnError, WrongInputError, with_article

FIRST_ROWS = 100  # number of rows from which the content of a column is detected


@dataclass(frozen=True)
class MemoryTable:
    """The columns of a table in memory; a column is read when it is requested."""

    keys: tuple[Any, ...]  # names of the columns; for an array, their numbers
    read: Callable[[int], Any]  # reads the column with this index
    one_column_code: str = "X[{0!r}]"  # Python code that selects one column by its key
    two_columns_code: str = "X[[{0!r}, {1!r}]]"

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns; None if a name is not a string, as in scikit-learn."""
        return self.keys if all(isinstance(name, str) for name in self.keys) else None

    def column(self, i: int) -> list[Any]:
        """The values of column ``i``."""
        return as_list(self.read(i))

    def first_values(self, i: int) -> list[Any]:
        """The first values of column ``i``, for detecting its content."""
        return as_list(self.read(i)[:FIRST_ROWS])

    def code(self, *keys: Any) -> str:
        """The Python code that selects one or two columns, for messages."""
        return (self.one_column_code if len(keys) == 1 else self.two_columns_code).format(*keys)


def table_of(X: Any) -> MemoryTable | None:
    """The columns of a table in memory, or of an array ``[n, k]`` of texts or objects; otherwise None."""
    table = _table_of(X)
    if table is not None and len(set(map(repr, table.keys))) < len(table):
        repeated = next(name for name in table.keys if list(table.keys).count(name) > 1)
        raise DataError(f"two columns are called {repeated!r}", where="X", fix="Rename one")
    return table


def _table_of(X: Any) -> MemoryTable | None:
    """``table_of`` without the check for duplicate names."""
    if isinstance(X, list | tuple | str | bytes):
        return None
    if isinstance(X, Mapping):
        columns = list(X.values())  # lists of equal length are columns (as in a batch of ``datasets``)
        are_columns = all(map(_is_column, columns)) and len(set(map(len, columns))) == 1
        if not are_columns or not all(isinstance(name, str) for name in X):
            return None
        code = "list(zip(X[{0!r}], X[{1!r}]))"
        return MemoryTable(tuple(X), lambda i: columns[i], two_columns_code=code)
    if isinstance(X, np.ndarray):
        if X.dtype.names:
            return MemoryTable(X.dtype.names, lambda i: X[X.dtype.names[i]])
        if X.ndim != 2 or X.dtype.kind not in "OUST":
            return None
        return MemoryTable(tuple(range(X.shape[1])), lambda i: X[:, i], "X[:, {0}]", "X[:, [{0}, {1}]]")
    if not hasattr(X, "__len__") or not hasattr(X, "__getitem__"):  # an iterator of rows
        return None
    if isinstance(names := getattr(X, "column_names", None), list | tuple):
        if hasattr(X, "column"):  # Arrow
            return MemoryTable(tuple(names), X.column, two_columns_code="X.select([{0!r}, {1!r}])")
        code = "X.select_columns([{0!r}, {1!r}])"
        return MemoryTable(tuple(names), lambda i: X[names[i]], two_columns_code=code)
    if (names := getattr(X, "columns", None)) is None:
        return None
    keys = tuple(names)
    return MemoryTable(keys, lambda i: X.iloc[:, i] if hasattr(X, "iloc") else X[keys[i]])


def _is_column(values: Any) -> bool:
    is_sequence = hasattr(values, "__len__") and hasattr(values, "__getitem__")
    is_flat = getattr(values, "ndim", 1) == 1 and not isinstance(values, str | bytes | Mapping)
    return is_sequence and is_flat and _table_of(values) is None


def _table_of_records(rows: Sequence[Any], origin: str) -> MemoryTable:
    """A table of dicts or named tuples; reading a column raises an error if a row lacks it."""
    records: list[Mapping[Any, Any]] = []
    for index, row in enumerate(rows):
        if (record := as_record(row)) is None:
            what = f"a {type(row).__name__} where the first row is a {type(rows[0]).__name__}"
            raise DataError(what, where=f"{origin}[{index}]", fix="Give all rows the same type")
        records.append(record)
    names = tuple(dict.fromkeys(name for record in records for name in record))

    def read(i: int) -> list[Any]:
        for index, record in enumerate(records):
            if names[i] not in record:
                raise DataError(f"no {names[i]!r}", where=f"{origin}[{index}]", fix="Give it in every row")
        return [record[names[i]] for record in records]

    value = "row.{}" if isinstance(rows[0], tuple) else "row[{!r}]"  # code for a column, as a format string
    first, second = value.replace("{", "{0"), value.replace("{", "{1")
    return MemoryTable(names, read, f"[{first} for row in X]", f"[({first}, {second}) for row in X]")


def as_record(row: Any) -> Mapping[Any, Any] | None:
    """A row with named values as a mapping; None if its values have no names."""
    if isinstance(row, Mapping):
        return row
    if isinstance(row, tuple):
        return getattr(row, "_asdict", lambda: None)()
    if hasattr(row, "iloc") and all(isinstance(name, str) for name in row.index):  # a row of a data frame
        return dict(zip(row.index, row, strict=True))
    return None


def as_list(values: Any) -> list[Any]:
    """Values as a list; Arrow values are converted to Python objects."""
    return values.to_pylist() if hasattr(values, "to_pylist") else list(values)


def check_ordered(X: Any, origin: str, noun: str) -> None:
    """Raise DataError if ``X`` is a single value, a set or a dict instead of a list of ``noun``."""
    kind = type(X).__name__
    has_rows = isinstance(X, Iterable) or (hasattr(X, "__len__") and hasattr(X, "__getitem__"))
    if isinstance(X, str | bytes | bytearray | memoryview):
        what, fix = "one string", "Put it into a list"
    elif isinstance(X, Mapping) and X and all(hasattr(value, "column_names") for value in X.values()):
        what, fix = f"a {kind}", f"Give one of its splits: X[{next(iter(X))!r}]"
    elif isinstance(X, Mapping):
        lengths = {key: len(value) for key, value in X.items() if isinstance(key, str) and _is_column(value)}
        longest = max(lengths, key=lambda key: lengths[key], default=None)
        what, fix = f"a {kind}", "Give a list of its values, or of its keys"
        fix = fix if longest is None else f"Give one entry of it, such as X[{longest!r}]"
    elif isinstance(X, ItemsView):
        what, fix = f"{kind}", "Give a list of the values alone"
    elif isinstance(X, Set) and not isinstance(X, KeysView | Sequence):
        what, fix = f"a {kind}, which has no order,", "Give a list"
    elif getattr(X, "shape", None) == () or not has_rows:
        what, fix = "nothing" if X is None else with_article(kind), "Give a list"
    else:
        return
    raise WrongInputError(f"{what} where a list of {noun} is expected", where=origin, fix=fix)


def open_table(
    X: Any, origin: str, is_example: Callable[[Any], bool] = lambda row: False
) -> MemoryTable | None:
    """``X`` as a table, including a list of dicts or named tuples; None if it is not a table.

    Args:
        is_example: returns True if a dict, named tuple or array is one example, not a row of columns.
    """
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[0] and X.shape[1] > 1 and is_example(X[0]):
        return None  # each row is one sentence: an array of words
    table = table_of(X)
    is_not_row_list = isinstance(X, str | bytes | Mapping | Set | Iterator) or not isinstance(X, Iterable)
    if table is not None or is_not_row_list or getattr(X, "shape", None) == ():
        return table
    first = next(iter(X), None)
    return None if is_example(first) or as_record(first) is None else _table_of_records(list(X), origin)


def take_columns(
    table: MemoryTable, origin: str, noun: str, max_columns: int = 1, names: Sequence[str] | None = None
) -> list[Any]:
    """The values of one column of a table, or tuples of the values of several columns.

    Args:
        max_columns: maximum number of columns of an example.
        names: columns to use, in this order, if the columns have names; other columns are ignored.
    """
    if names is not None and table.names is not None:
        indices = [_column_index(table.names, name, origin, names) for name in names]
    elif len(table) > max_columns or not len(table):
        raise column_count_error(table, origin, noun, max_columns)
    else:
        indices = list(range(len(table)))
    columns = [table.column(i) for i in indices]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def read_rows(
    X: Any,
    origin: str,
    noun: str,
    *,
    max_columns: int = 1,
    names: Sequence[str] | None = None,
    is_example: Callable[[Any], bool] = lambda row: False,
) -> list[Any]:
    """The examples as a list: the rows of a list, or columns of a table (see ``take_columns``).

    Args:
        origin, noun: name of the argument and of its elements, for messages.
        is_example: returns True if a dict, or a list of one element, is one example, not a row of columns.

    Raises:
        DataError: ``X`` has no order or is not a list, or its columns are unclear.
    """
    if type(X) is list and X and isinstance(X[0], str):  # a fast path for the most frequent input
        return X
    X = list(X) if isinstance(X, Iterator) else X
    if (table := open_table(X, origin, is_example)) is not None:
        return take_columns(table, origin, noun, max_columns, names)
    check_ordered(X, origin, noun)
    rows = as_list(X)
    are_single = all(isinstance(row, list | tuple) and len(row) == 1 for row in rows)
    if rows and are_single and not is_example(rows[0]):
        return [row[0] for row in rows]  # ``[["a text"], ["another"]]`` is a column
    return rows


def _column_index(available: Sequence[str], name: str, origin: str, requested: Sequence[str]) -> int:
    if name in available:
        return list(available).index(name)
    hint = suggest(name, [other for other in available if other not in requested])
    fix = hint if hint.endswith("?") else f"The columns are: {join_names(list(available))}"
    what = f"no column {name!r}; expected: {' and '.join(map(repr, requested))}"
    raise NoSuchColumnError(what, where=origin, fix=fix)


def column_count_error(
    table: MemoryTable, origin: str, noun: str, max_columns: int, proposed: Sequence[Any] | None = None
) -> DataError:
    """The error for a table with no or too many columns; the fix shows how to select ``proposed``."""
    if not len(table):
        return DataError("a table without columns", where=origin, fix=f"Give a column of {noun}")
    shown = join_names([str(key) for key in table.keys])
    kind = "an array" if table.names is None else "a table"
    what = f"{kind} with {len(table)} columns ({shown}), expected one column of {noun}"
    what += ", or two for pairs" if max_columns > 1 else ""
    proposed = proposed or [column_with_longest_values(table)]
    fix = f"Give the {'column' if len(proposed) == 1 else 'columns'} of {noun}: {table.code(*proposed)}"
    return WrongInputError(what, where=origin, fix=fix)


def column_with_longest_values(table: MemoryTable, excluded: Sequence[Any] = ()) -> Any:
    """The key of the column with the longest first values, which most likely has the examples."""

    def length(key: Any) -> float:
        return sum(map(_length_of_value, table.first_values(table.keys.index(key))))

    return max((key for key in table.keys if key not in excluded), key=length)


def _length_of_value(value: Any) -> float:
    """The length of a text; numbers count as 0, and lists and images as longer than any text."""
    if isinstance(value, str):
        return len(value)
    return 0 if isinstance(value, int | float | bool | np.generic | None) else 1e9


def as_targets(y: Any, origin: str = "y", noun: str = "labels") -> Any:
    """Targets as a list or a 1-d array; targets with several columns are returned unchanged.

    Raises:
        DataError: ``y`` has no order, or is a single value.
    """
    if type(y) is list or y is None:
        return y
    if isinstance(y, str):
        what = f"one string, {y[:40]!r}, where a list of {noun} is expected"
        fix = f"Give two lists of equal length, examples and {noun}; for a column of a table, X[{y[:40]!r}]"
        raise WrongInputError(what, where=origin, fix=fix)
    table = table_of(y)
    if table is not None:
        return table.column(0) if len(table) == 1 else y
    check_ordered(y, origin, noun)
    if len(shape := getattr(y, "shape", ())) > 1:
        if shape[1:] != (1,):
            return y
        y = np.asarray(y.toarray() if hasattr(y, "toarray") else y).reshape(-1)
    if hasattr(y, "detach"):  # a tensor
        y = y.detach().cpu().numpy()
    return y if isinstance(y, np.ndarray) else as_list(y)


def one_column(y: Any, origin: str = "y", noun: str = "labels") -> Any:
    """``as_targets`` for one value per example; several columns raise an error."""
    y = as_targets(y, origin, noun)
    if isinstance(y, list):
        return y
    check_ordered(y, origin, noun)  # raises an error if y is None
    if (table := table_of(y)) is not None:
        shown = join_names([str(key) for key in table.keys])
        what = f"a table with {len(table)} columns ({shown}), expected one column of {noun}"
        raise WrongInputError(what, where=origin, fix="Give one column")
    if y.ndim > 1:
        raise WrongInputError(f"{noun} of shape {y.shape}", where=origin, fix="Give one for each example")
    return y
