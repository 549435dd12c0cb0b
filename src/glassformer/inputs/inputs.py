"""What is asked of every kind of input, by runs, the command line, the server, reports and messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from glassformer.data.doctor import Severity
from glassformer.data.findings import DoctorReport
from glassformer.errors import DataError
from glassformer.inputs.rows import Given, Layout, Row, layout_of, usable
from glassformer.inputs.served import Served


class Gathered:
    """Rows in pieces; those that are in memory are one piece."""

    good: int  # those with an answer
    layout: Layout
    all_at_once: ClassVar[bool] = True

    def __init__(self, rows: Sequence[Row], noun: str = "texts"):
        self.rows, self.good, self.layout = rows, len(usable(rows, noun)), layout_of(rows)

    def __iter__(self) -> Iterator[Sequence[Row]]:
        yield self.rows


class Inputs:
    """A kind of input: an estimator names its own as ``INPUTS``, and nobody knows a kind by name."""

    noun: ClassVar[str] = "examples"  # what they are called in messages, reports and JSON
    shape: ClassVar[str] = "tokens [N]"  # what goes into the model, in a report
    placeholder: ClassVar[str] = '"A TEXT OF YOUR OWN"'  # an example, in a proposed command
    single_text: ClassVar[bool] = False  # whether an example is one text, as the sentences of a recipe are
    has_images: ClassVar[bool] = False  # whether an example is seen, not read
    can_be_cut: ClassVar[bool] = False  # whether an example may be longer than a model reads
    in_tables: ClassVar[bool] = False  # whether examples are the cells of a table
    may_be_pairs: ClassVar[bool] = False  # whether ``--pair-column`` makes pairs of them
    columns: ClassVar[Sequence[str]] = ()  # usual names of their column in a Parquet file
    served: ClassVar[type[Served]]  # what the server asks; none: no model of such inputs is served

    packages: ClassVar[Sequence[str]]  # that metrics.json states the versions of
    severities: ClassVar[Sequence[Severity]] = ("warning",)  # which of the doctor's findings are said
    notes: ClassVar[str] = "said"  # the field of a ``Dataset`` that takes what a run has to say of it
    fixture_settings: ClassVar[Mapping[str, Any]]  # of a model that is fitted in a blink

    # --- a run of labels or numbers -----------------------------------------------------------------

    def read(self, recipe: Any, source: str, numbers: bool, **part: Any) -> Any:
        """The ``Dataset`` of a source, in the columns that the recipe names.

        Args:
            numbers: whether targets are numbers.
            part: ``limit`` and ``seed`` of a choice; ``trained``: columns of the training, for other data.

        Raises:
            DataError: no such source, or data that cannot be read.
        """
        raise NotImplementedError

    def skips(self, d: Any) -> bool:
        """Whether the section ``data`` leaves out what cannot be used."""
        raise NotImplementedError

    def check(self, recipe: Any, splits: Mapping[str, Any], folder: Path) -> None:
        """Raises DataError for what a training in ``folder`` could not use."""

    def examine(self, dataset: Any, est: Any, recipe: Any, held_out: Any) -> DoctorReport:
        """The data doctor's report on the splits as they are trained on by a fitted ``est``."""
        raise NotImplementedError

    def drop_unreadable(self, splits: Any, est: Any, recipe: Any) -> tuple[Any, list[str]]:
        """Without what cannot be read, and a sentence on each split that has lost some.

        Raises:
            DataError: a split of which nothing is left.
        """
        return splits, []

    def facts(self, est: Any, splits: Any, recipe: Any) -> dict[str, Any]:
        """What metrics.json says of how the model reads them."""
        return {}

    def example_fixture(self) -> Sequence[Any]:
        """Seven examples."""
        raise NotImplementedError

    # --- the command line ---------------------------------------------------------------------------

    def rows(self, given: Given) -> list[Row]:
        """What is given, row for row, in its order; those of a file keep their places and other columns.

        Raises:
            DataError: a file that cannot be read, or without ``given.skip`` an input that cannot be used.
        """
        raise NotImplementedError

    def gather(self, given: Given) -> Gathered:
        """The same for predictions: in pieces where there are many."""
        return Gathered(self.rows(given), self.noun)

    def explained(self, given: Given, numbers: Sequence[int]) -> list[Any]:
        """The examples that are to be explained: of files the rows with these numbers, if any are named.

        Raises:
            DataError: there is no such row, or it cannot be used.
        """
        return chosen(self.rows(given), numbers)

    def likely_columns(self, source: str | Path, schema: Any) -> list[str]:
        """The columns of a Parquet file that may hold them, where none has a usual name."""
        return []

    def check_cell(self, x: Any, clf: Any) -> None:
        """Raises InputError for a value of a Parquet file that a model cannot use."""
        raise NotImplementedError

    def refuse(self, words: Sequence[str]) -> None:
        """Raises DataError for words that cannot be such inputs; the model need not be opened for that."""

    def of(self, about: Mapping[str, Any]) -> Inputs:
        """The kind that a saved model reads, by what ``glassformer.json`` says of it."""
        return self

    def in_two_columns(self, clf: Any) -> Inputs:
        """The kind that a model reads where ``--pair-column`` is given.

        Raises:
            ConfigError: it reads one column.
        """
        return self

    def title(self, x: Any) -> str:
        """What an explained example is called on a page; empty: it is shown whole."""
        return ""


def chosen(found: Sequence[Row], numbers: Sequence[int]) -> list[Any]:
    """The inputs of the rows with these numbers, in this order; of all where none is named.

    Raises:
        DataError: there is no such row, or it cannot be used.
    """
    if not numbers:
        return [row.text for row in found if row.error is None]
    places = {row.row: row for row in found if row.row is not None}
    if missing := [n for n in numbers if n not in places]:
        known = f"Rows {min(places)} to {max(places)} have texts" if places else "Name a file, as --data FILE"
        raise DataError(f"no row {missing[0]}", where="--row", fix=known)
    rows = [places[n] for n in numbers]
    for row in rows:
        if row.error is not None:
            raise DataError(row.error, where=f"{row.file}, row {row.row}", fix="Choose another --row")
    return [row.text for row in rows]


def options(section: Any, *keys: str) -> dict[str, Any]:
    """Those keys that a section of a recipe has."""
    return {key: getattr(section, key) for key in keys if hasattr(section, key)}
