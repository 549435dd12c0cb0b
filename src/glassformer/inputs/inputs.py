"""Base classes of inputs, for runs, the command line, the server and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from glassformer.data.findings import DoctorReport, Severity
from glassformer.errors import DataError
from glassformer.inputs.rows import InputRequest, Layout, Row, detect_layout, usable_inputs

CHARS_PER_TOKEN = 3  # an estimate before tokenization


class RequestTooLargeError(DataError):
    """The request is over a limit of the server (status 413 or 431).

    Cause: too many inputs, characters, pixels, bytes or headers.
    Fix: send several smaller requests; the limits are options of ``glassformer serve``.
    """

    code = "request-too-large"


@dataclass(frozen=True)
class Item:
    """One encoded input of a request."""

    encoded: Any  # tokens or pixels, in the form that ``ServedInputs.join`` takes
    tokens: int  # number of tokens
    truncated: bool = False  # whether the input was truncated to the maximum length
    original: Any = None  # the input before encoding, if the response needs it


class ServedInputs:
    """How the server reads one kind of input. This base class is for one text per example."""

    kind: ClassVar[str] = "text"  # value of ``kind`` in ``Model`` of the server
    field: ClassVar[str] = "text"  # JSON field of one input; the field of several inputs has an "s" appended
    element: ClassVar[Any] = str  # type of one input in JSON
    element_description: ClassVar[str | None] = None  # description of ``element``, if ``field`` is not enough
    noun: ClassVar[str] = "texts"  # name of several inputs in messages
    length_field: ClassVar[str] = "text"  # JSON field that the error names if an input is too long to explain
    pair: Callable[..., Any] = staticmethod(lambda *texts: texts)  # combines two texts to one input
    pairs = False  # whether an input consists of two texts
    decodes_inputs: ClassVar[bool] = False  # whether each input is decoded separately, which can take seconds
    examples: ClassVar[Sequence[str]] = ()  # names of files in a run folder with an example for the web page
    # The example on the web page if the recipe has none.
    default_example: Any = "This is an example. Write a text of your own here."
    too_long = "Explain a part of the text"  # fix in the error for an input that is too long to explain

    def __init__(self, clf: Any, limits: Any, name: str):
        self.clf, self.limits = clf, limits
        self.max_length: int | None = clf.length_  # maximum number of tokens; longer texts are truncated
        self.max_tokens = limits.characters  # maximum number of tokens of one input

    # Called before an input enters the batcher's queue:

    def estimate_tokens(self, x: Any) -> int:
        """A cheap estimate of the number of tokens of an input."""
        return min(len(x) // CHARS_PER_TOKEN + 2, self.max_tokens)  # 2 special tokens

    def min_tokens(self, size: int) -> int:
        """A lower bound for the tokens in a request body of ``size`` bytes, if its text is ASCII."""
        return min(size // (2 * CHARS_PER_TOKEN), self.max_tokens)

    def length(self, x: Any) -> int:
        """Number of characters of an input."""
        return len(x)

    def encode(self, inputs: Sequence[Any], what: str = "inputs") -> list[Item]:
        """Encode inputs; raise InputError with the position of an unusable input in the list ``what``."""
        raise NotImplementedError

    def dummy_input(self, text: str) -> Item:
        """An encoded input with this text, for the first test of a loaded model."""
        return self.encode([self.pair(text, text) if self.pairs else text])[0]

    def to_explain(self, x: Any) -> tuple[Any, int]:
        """An input for the estimator's ``explain``, and its number of tokens."""
        return x, self.encode([x], self.field)[0].tokens

    # Called when the batcher forms a batch:

    def join(self, items: Sequence[Item]) -> Any:
        """Combine encoded inputs into a batch for the model."""
        raise NotImplementedError

    def model_fields(self) -> dict[str, Any]:
        """Additional fields of ``Model``."""
        return {}


class RowChunks:
    """The rows of a command's inputs in chunks. In this base class all rows are in memory, as one chunk."""

    num_usable: int  # number of usable rows
    layout: Layout
    all_at_once: ClassVar[bool] = True  # whether there is only one chunk

    def __init__(self, rows: Sequence[Row], noun: str = "texts"):
        self.rows, self.num_usable, self.layout = rows, len(usable_inputs(rows, noun)), detect_layout(rows)

    def __iter__(self) -> Iterator[Sequence[Row]]:
        yield self.rows


class Inputs:
    """Base class of a kind of input, such as texts or images.

    ``INPUTS`` of an estimator is an instance of its kind. Other code does not depend on the kind.
    """

    noun: ClassVar[str] = "examples"  # name of the examples in messages, reports and JSON
    shape: ClassVar[str] = "tokens [N]"  # shape of the model's input, for reports
    placeholder: ClassVar[str] = '"A TEXT OF YOUR OWN"'  # an example in a proposed command
    example_is_one_text: ClassVar[bool] = False  # texts or sentences, but not pairs of texts
    has_images: ClassVar[bool] = False  # whether examples are images
    can_be_cut: ClassVar[bool] = False  # whether examples may be truncated
    in_tables: ClassVar[bool] = False  # whether examples are cells of a table
    may_be_pairs: ClassVar[bool] = False  # whether ``--pair-column`` is supported
    columns: ClassVar[Sequence[str]] = ()  # usual names of the column with the examples in a Parquet file
    served: ClassVar[type[ServedInputs]]  # how the server reads these inputs; missing: they cannot be served

    packages: ClassVar[Sequence[str]]  # a run records the versions of these packages in metrics.json
    # Severities of the data doctor's findings that a run prints.
    doctor_severities: ClassVar[Sequence[Severity]] = ("warning",)
    messages_field: ClassVar[str] = "messages"  # field of ``Dataset`` for messages of a run
    fixture_settings: ClassVar[Mapping[str, Any]]  # settings of a tiny model, for tests

    # --- runs of classification and regression ------------------------------------------------------

    def read(self, recipe: Any, source: str, targets_are_numbers: bool, **options: Any) -> Any:
        """Load the ``Dataset`` of a source, with the columns that the recipe names.

        Args:
            options: ``limit`` and ``seed`` of a random subset, and ``trained``, the text columns that were
                used in training if these are other data.

        Raises:
            DataError: the source does not exist or cannot be read.
        """
        raise NotImplementedError

    def skips_unusable(self, data: Any) -> bool:
        """Whether the section ``data`` of a recipe skips unusable examples."""
        raise NotImplementedError

    def check(self, recipe: Any, splits: Mapping[str, Any], folder: Path) -> None:
        """Raise DataError for examples that a training run in ``folder`` could not use."""

    def examine(self, dataset: Any, est: Any, recipe: Any, held_out: Any) -> DoctorReport:
        """The data doctor's report on the splits, for the fitted estimator ``est``."""
        raise NotImplementedError

    def drop_unreadable(self, splits: Any, est: Any, recipe: Any) -> tuple[Any, list[str]]:
        """The splits without unreadable examples, and messages about them.

        Raises:
            DataError: no example of a split is readable.
        """
        return splits, []

    def run_metadata(self, est: Any, splits: Any, recipe: Any) -> dict[str, Any]:
        """Entries of metrics.json about how the model reads the examples."""
        return {}

    def example_fixture(self) -> Sequence[Any]:
        """Seven examples for tests."""
        raise NotImplementedError

    # --- the command line ---------------------------------------------------------------------------

    def rows(self, request: InputRequest) -> list[Row]:
        """One row per input, in order; rows of a file have their row numbers and other columns.

        Raises:
            DataError: a file is unreadable, or (without ``request.skip``) an input is unusable.
        """
        raise NotImplementedError

    def gather(self, request: InputRequest) -> RowChunks:
        """The rows for prediction, in chunks if there are many."""
        return RowChunks(self.rows(request), self.noun)

    def examples_of_arguments(self, request: InputRequest, numbers: Sequence[int]) -> list[Any]:
        """The examples to explain or to embed; ``numbers`` are the rows to choose from a file (empty: all).

        Raises:
            DataError: there is no such row, or it cannot be used.
        """
        return select_inputs(self.rows(request), numbers)

    def likely_columns(self, source: str | Path, schema: Any) -> list[str]:
        """Candidates for the column of examples in a Parquet file, if no column has a usual name."""
        return []

    def check_cell(self, x: Any, clf: Any) -> None:
        """Raise InputError for a value of a Parquet file that the model cannot use."""
        raise NotImplementedError

    def check_arguments(self, arguments: Sequence[str]) -> None:
        """Raise DataError for arguments that cannot be such inputs, before the model is loaded."""

    def of_saved_model(self, metadata: Mapping[str, Any]) -> Inputs:
        """The kind of input of a saved model, according to the contents of its ``glassformer.json``."""
        return self

    def as_pairs(self, clf: Any) -> Inputs:
        """The kind of input if ``--pair-column`` is given.

        Raises:
            ConfigError: the model reads one column.
        """
        return self

    def title(self, x: Any) -> str:
        """The title of an explained example on a page; empty if the page shows the example itself."""
        return ""


def select_inputs(all_rows: Sequence[Row], numbers: Sequence[int]) -> list[Any]:
    """The inputs of the rows with these numbers, in this order; without numbers, of all usable rows."""
    if not numbers:
        return [row.text for row in all_rows if row.error is None]
    rows_by_number = {row.row: row for row in all_rows if row.row is not None}
    if missing := [n for n in numbers if n not in rows_by_number]:
        fix = "Name a file: --data FILE"
        if rows_by_number:
            fix = f"Rows {min(rows_by_number)} to {max(rows_by_number)} have texts"
        raise DataError(f"there is no row {missing[0]}", where="--row", fix=fix)
    rows = [rows_by_number[n] for n in numbers]
    for row in rows:
        if row.error is not None:
            raise DataError(row.error, where=f"{row.file}, row {row.row}", fix="Choose another --row")
    return [row.text for row in rows]


def section_values(section: Any, *keys: str) -> dict[str, Any]:
    """Map those keys that the section of a recipe has to their values."""
    return {key: getattr(section, key) for key in keys if hasattr(section, key)}
