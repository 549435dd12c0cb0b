"""Mixin for estimators that read tables."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from glassformer.checkpoints.settings import shorten
from glassformer.data.columns import check_no_target_column, guess_input_columns
from glassformer.data.in_memory import (
    MemoryTable,
    as_record,
    as_targets,
    column_count_error,
    open_table,
    take_columns,
)
from glassformer.errors import CheckpointError, DataError, OtherOrderWarning, UnnamedColumnsWarning
from glassformer.inputs.inputs import Inputs
from glassformer.train.config import user_stacklevel


class NamedColumns:
    """Mixin that reads lists of examples, and tables by the names of their columns.

    Fitted attributes: ``n_features_in_``, the number of inputs per example (2 for pairs), and
    ``feature_names_in_`` if ``fit`` got a table with column names. Prediction then selects columns by name
    and ignores other columns. A model that was fitted without names selects columns by position.
    """

    INPUTS: ClassVar[Inputs] = Inputs()  # the kind of inputs
    NOUN: ClassVar[str] = Inputs.noun  # name of the examples in messages
    TARGETS: ClassVar[str] = "labels"  # name of the targets in messages
    MAX_COLUMNS: ClassVar[int] = 1  # maximum number of columns of an example

    feature_names_in_: np.ndarray
    n_features_in_: int

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if isinstance(inputs := getattr(cls, "INPUTS", None), Inputs):
            cls.NOUN = inputs.noun

    @property
    def inputs(self) -> Inputs:
        """The kind of inputs that this model reads."""
        return self.INPUTS

    @staticmethod
    def is_example(row: Any) -> bool:
        """Whether a dict, or a list with a dict, is an example and not a row of a table."""
        return False

    def training_rows(self, X: Any, y: Any = None, names: Sequence[str] | None = None) -> Any:
        """The examples of ``X`` for ``fit``. A table must not have ``y`` as a column and becomes a list.

        Its column names are stored, or only the columns ``names`` are used.
        """
        warn_of_order(X, y)
        vars(self).pop("feature_names_in_", None)
        self.n_features_in_, self._warned_positions = 1, False
        X = list(X) if isinstance(X, Iterator) and not hasattr(X, "read") else X
        table, y = open_table(X, self.NOUN, self.is_example), as_targets(y)
        if table is None:
            return X
        if names is None and (y is not None or self.MAX_COLUMNS > 1) and len(getattr(y, "shape", ())) < 2:
            check_no_target_column(table, y, self.MAX_COLUMNS, self.NOUN, self.TARGETS)
        if names is None and len(table) > self.MAX_COLUMNS:
            raise column_count_error(
                table, self.NOUN, self.NOUN, self.MAX_COLUMNS, guess_input_columns(table, self.MAX_COLUMNS)
            )
        out = take_columns(table, self.NOUN, self.NOUN, self.MAX_COLUMNS, names)
        if table.names is not None:
            self.feature_names_in_ = np.asarray(names or table.names, object)
        self.n_features_in_ = len(names or table)
        return out

    def prediction_rows(self, X: Any, origin: str | None = None, width: int | None = None) -> Any:
        """The examples of ``X`` for prediction.

        A table becomes a list of the columns that ``fit`` used, or of ``width`` columns.
        """
        X = list(X) if isinstance(X, Iterator) and not hasattr(X, "read") else X
        origin, num_columns = origin or self.NOUN, width or self.columns_per_example()
        names = getattr(self, "feature_names_in_", None)
        if (table := open_table(X, origin, self.is_example)) is None:
            if names is not None and {*names} <= {*(as_record(X) or ())}:
                what = f"one row where a list of {self.NOUN} is expected"
                raise DataError(what, where=origin, fix="Put it into a list")
            return X
        if names is not None and len(names) != num_columns:
            names = None
        if names is None and num_columns > 1 and len(table) == num_columns:
            self._warn_of_positions(table)
        return take_columns(table, origin, self.NOUN, num_columns, None if names is None else names.tolist())

    def name_columns(self, *names: str | None) -> None:
        """Store the names of the columns that the arguments of ``fit`` came from; None is ignored."""
        known = [name for name in names if name is not None]
        if len(known) == self.n_features_in_:
            self.feature_names_in_ = np.asarray(known, object)

    def columns_per_example(self) -> int:
        """Number of columns per example in prediction."""
        return getattr(self, "n_features_in_", self.MAX_COLUMNS)

    def _warn_of_positions(self, table: MemoryTable) -> None:
        """Warn once that columns are selected by position although they have names."""
        if table.names is None or getattr(self, "_warned_positions", False):
            return
        self._warned_positions = True
        names = " and ".join(map(repr, table.names))
        what = f"this model was fitted without column names: {names} are taken in this order"
        fix = "Fit it on a DataFrame to keep its column names, or pass a list of tuples"
        warnings.warn(f"{what}. {fix}", UnnamedColumnsWarning, stacklevel=5)

    def columns_metadata(self) -> dict[str, Any]:
        """The entry ``columns`` of ``glassformer.json``; empty if the model was fitted without names."""
        names = getattr(self, "feature_names_in_", None)
        return {} if names is None else {"columns": names.tolist()}

    def read_columns(self, about: Mapping[str, Any], where: str) -> None:
        """Read the column names from ``glassformer.json``; folders of earlier versions have none."""
        names = about.get("columns")
        if names is not None:
            is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
            if not is_list or not 1 <= len(names) <= self.MAX_COLUMNS or len(set(names)) < len(names):
                what = f"columns = {shorten(names)} is not a list of up to {self.MAX_COLUMNS} names"
                raise CheckpointError(what, where=where, fix="Save it again")
            self.feature_names_in_ = np.asarray(names, object)
        if (width := len(names or ()) or self.saved_num_inputs(about)) is not None:
            self.n_features_in_ = width

    def saved_num_inputs(self, about: Mapping[str, Any]) -> int | None:
        """The number of inputs per example, by ``glassformer.json``; None: unknown."""
        return 1


def warn_of_order(X: Any, y: Any) -> None:
    """Warn if X and y are pandas objects with the same index in different orders."""
    a, b = getattr(X, "index", None), getattr(y, "index", None)
    if a is None or b is None or callable(a) or callable(b) or len(a) != len(b) or a.equals(b):
        return
    if {*a} == {*b}:
        what = "X and y have the same index in a different order; rows are matched by position"
        fix = "to match rows by index, pass y.loc[X.index]"
        warnings.warn(f"{what}; {fix}", OtherOrderWarning, stacklevel=user_stacklevel())
