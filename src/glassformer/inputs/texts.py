"""Texts and pairs of texts as inputs of runs, commands and the server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from glassformer.data.columns import (
    TEXT_COLUMNS,
    columns_for_pair_model,
    find_text_column,
    parquet_text_columns,
)
from glassformer.data.dataset import TextDataset, TextSplit
from glassformer.data.doctor import DoctorReport, examine
from glassformer.data.files import check_utf8, text_lines
from glassformer.data.image import is_image_name
from glassformer.data.pairs import SCORED_SOURCES, load_scored_pairs
from glassformer.data.rejected import with_num_unusable
from glassformer.data.sources import load_text_dataset
from glassformer.data.tables import STREAMABLE, TXT, StreamedTable
from glassformer.data.text import TokenTable, Windows
from glassformer.data.text_pairs import TextPair, check_inputs, join_sides
from glassformer.errors import (
    ConfigError,
    DataError,
    MissingValueError,
    NotForThisModelError,
    WrongInputError,
)
from glassformer.inputs.inputs import Inputs, Item, RowChunks, ServedInputs, section_values
from glassformer.inputs.rows import (
    SKIP_HINT,
    STDIN,
    InputRequest,
    Layout,
    Row,
    check_arguments,
    columns_to_copy,
    gather_rows,
    handle_ragged_row,
    is_file_name,
    read_columns,
    read_counting_errors,
    read_stdin,
    table_row,
    unreadable_row,
    usable_inputs,
)
from glassformer.reading import ChangeDetector

COLUMNS = ("text_column", "label_column", "label_separator", "pair_column", "number_format")
MAX_OVERLAP = 32  # maximum number of windows with the same token of a long text


class ServedTexts(ServedInputs):
    """How the server reads texts or pairs of texts: truncated, or in overlapping windows."""

    pair = staticmethod(TextPair)

    def __init__(self, clf: Any, limits: Any, name: str):
        self.clf, self.limits, self.pairs = clf, limits, bool(getattr(clf, "reads_pairs", False))
        self.counts_tokens = clf.reads_tokens  # False: tokens are estimated from the length of the text
        # Long texts are truncated to the maximum length, or divided into overlapping windows.
        truncates, stride = clf.long_texts == "cut", getattr(clf, "window_stride", None)
        self.max_length = clf.max_length if self.counts_tokens else None
        self.max_tokens = clf.max_length if self.counts_tokens and truncates else limits.characters
        if self.pairs:
            self.default_example = ["A man plays a guitar.", "Somebody makes music."]
        if not truncates and stride and stride * MAX_OVERLAP < clf.max_length:
            windows = f"windows of {clf.max_length} tokens with a stride of {stride}"
            what = f"{windows}: every token would be read more than {MAX_OVERLAP} times"
            raise ConfigError(what, where=name, fix="Use a larger window_stride")

    def table(self, texts: list[str]) -> Windows:
        return self.clf.evaluation_table(texts)

    def encode(self, inputs: Sequence[str], what: str = "inputs") -> list[Item]:
        windows = self.table(self.clf.check(inputs, what))
        table, text_of_window, items = windows.table, windows.text_of_window, []
        for i, text in enumerate(inputs):
            rows = table.select([i] if text_of_window is None else text_of_window == i)
            # For a linear model an estimate is enough, since n-grams are cheap.
            tokens = len(rows.ids) if self.counts_tokens else self.estimate_tokens(text)
            has_one_window = text_of_window is None
            is_truncated = self.counts_tokens and has_one_window and bool(rows.truncated[0])
            items.append(Item(rows, tokens, is_truncated))
        return items

    def to_explain(self, x: str) -> tuple[str, int]:
        x, tokens = super().to_explain(x)
        return x, tokens if self.counts_tokens else 0

    def join(self, items: Sequence[Item]) -> Windows:
        tables = [item.encoded for item in items]
        table = TokenTable.concatenate(tables)
        table = replace(table, truncated=np.zeros(len(table), bool))
        truncates = getattr(self.clf, "long_texts", "cut") == "cut"
        text_of_window = None if truncates else np.repeat(np.arange(len(items)), list(map(len, tables)))
        return Windows(table, len(items), text_of_window)


class ServedTextsToEmbed(ServedTexts):
    """How the server reads texts for an embedding model: truncated to the model's maximum length."""

    counts_tokens = True

    def __init__(self, clf: Any, limits: Any, name: str):
        self.clf, self.limits = clf, limits
        self.max_length = self.max_tokens = clf.max_tokens()  # loads the checkpoint
        clf._sentences.check_cosine(name)

    def table(self, texts: list[str]) -> Windows:
        return Windows(self.clf.table(texts), len(texts))


# --- tables that may be larger than memory --------------------------------------------------------


LARGE_FILE_BYTES = 4 << 20  # bytes; larger files are read in chunks
CHUNK_ROWS = 4096  # rows per chunk


def find_large_file(arguments: Sequence[str]) -> Path | None:
    """The path of the input if it is one large file of a type that can be streamed; otherwise None."""
    path = Path(arguments[0])
    is_streamable = len(arguments) == 1 and len(arguments[0]) < 4096 and path.suffix.lower() in STREAMABLE
    return path if is_streamable and path.is_file() and path.stat().st_size >= LARGE_FILE_BYTES else None


class LargeFile(RowChunks):
    """The rows of a large table, in chunks of ``CHUNK_ROWS``, with constant memory.

    They equal those of ``read_rows``. All rows are checked before the first prediction. An unusable row or a
    later change of the file raises an error.
    """

    all_at_once = False

    def __init__(self, path: Path, request: InputRequest):
        self._unchanged = ChangeDetector(path)
        try:
            self._scan(path, request)
        except DataError as error:
            if request.skip or not error.where or ", row " not in error.where:
                raise
            with suppress(DataError):  # no row can be used
                self._scan(path, replace(request, skip=True))
            raise error.replace(what=with_num_unusable(error.what, self.num_unusable)) from None
        self._unchanged.check()

    def _scan(self, path: Path, request: InputRequest) -> None:
        """Read the file once: detect its columns, and count usable and unusable rows."""
        self.path, self.skip, self.num_unusable = path, request.skip, 0
        self._ragged: dict[int, DataError] = {}
        self._table = StreamedTable(path, handle_ragged_row(request.skip, self._ragged))
        self._column = find_text_column(self._table.sample(), request.text_column, request.training_columns)
        other_names = [name for name in self._table.names if name != self._column]
        columns = tuple(columns_to_copy(other_names, request.log))
        self.layout = Layout(columns, files=False, errors=False)
        self.num_usable, self.num_unusable, first_unusable = 0, 0, None
        for row in self._rows():
            if row.error is None:
                self.num_usable += 1
            else:
                self.num_unusable += 1
                first_unusable = first_unusable or row
        if first_unusable is not None and not self.num_usable:
            usable_inputs([first_unusable])  # raises the error
        self.layout = Layout(columns, files=False, errors=first_unusable is not None)

    def _rows(self) -> Iterator[Row]:
        ragged = (
            unreadable_row(self.path, number, error, (self._column,), self._table.names)
            for number, error in sorted(self._ragged.items())
        )
        return merge(ragged, map(self._row, self._table.rows()), key=lambda row: row.row or 0)

    def _row(self, numbered: tuple[int, Mapping[str, Any]]) -> Row:
        number, values = numbered
        other_columns = {name: values[name] for name in self.layout.columns}
        return table_row(self.path, number, values[self._column], other_columns, self.skip)

    def __iter__(self) -> Iterator[list[Row]]:
        rows = self._rows()
        while chunk := list(islice(rows, CHUNK_ROWS)):
            self._unchanged.check()
            yield chunk
        self._unchanged.check()


# --- kinds of inputs -------------------------------------------------------------------------------


class Texts(Inputs):
    """Inputs with one text per example."""

    noun, example_is_one_text, can_be_cut, in_tables, may_be_pairs = "texts", True, True, True, True
    columns, served = TEXT_COLUMNS, ServedTexts
    packages = ("tokenizers", "safetensors", "scikit-learn")
    fixture_settings: ClassVar = {"model": "encoder-mini", "max_length": 16, "min_count": 1}

    def read(self, recipe: Any, source: str, targets_are_numbers: bool, **options: Any) -> TextDataset:
        on_bad_row = recipe.data.on_bad_row
        if targets_are_numbers and source in SCORED_SOURCES:
            options.pop("trained", None)
            return _scored_dataset(load_scored_pairs(source, on_bad_row=on_bad_row, **options))
        options |= section_values(recipe.data, *COLUMNS)
        return load_text_dataset(
            source, need_labels=True, on_bad_row=on_bad_row, numbers=targets_are_numbers, **options
        )

    def skips_unusable(self, data: Any) -> bool:
        return data.on_bad_row == "skip"

    def examine(self, dataset: Any, est: Any, recipe: Any, held_out: Any) -> DoctorReport:
        tokenizer = est.tokenizer_ if est.reads_tokens else None
        options = {"max_length": est.max_length, "clean": recipe.text.clean, "held_out": held_out}
        return examine(dataset, tokenizer=tokenizer, **options)

    def run_metadata(self, est: Any, splits: Any, recipe: Any) -> dict[str, Any]:
        """The number of truncated texts and of all texts, per split."""
        if not est.reads_tokens:
            return {}
        other_splits = {"validation": splits.validation, splits.evaluated_split: splits.evaluated}
        truncated = {"train": [est.truncated_, len(splits.train)]} | {
            name: [int(est.truncated(split.texts).sum()), len(split)]
            for name, split in other_splits.items()
            if split is not None
        }
        reduced_length = {"max_length": est.max_length} if est.max_length != recipe.text.max_length else {}
        return {"truncated": truncated, **reduced_length}

    def example_fixture(self) -> Sequence[Any]:
        return TINY_TEXTS

    def rows(self, request: InputRequest) -> list[Row]:
        return gather_rows(request)

    def gather(self, request: InputRequest) -> RowChunks:
        large = find_large_file(request.arguments)
        return super().gather(request) if large is None else LargeFile(large, request)

    def likely_columns(self, source: str | Path, schema: Any) -> list[str]:
        return parquet_text_columns(source, schema)

    def check_cell(self, x: Any, clf: Any) -> None:
        check_inputs([x])

    def check_arguments(self, arguments: Sequence[str]) -> None:
        check_arguments(arguments)

    def of_saved_model(self, metadata: Mapping[str, Any]) -> Inputs:
        return TextPairs() if metadata.get("pairs") is True else self

    def as_pairs(self, clf: Any) -> Inputs:
        return as_text_pairs(clf)


class TextPairs(Texts):
    """Inputs with two texts per example."""

    example_is_one_text, placeholder = False, '"A TEXT OF YOUR OWN" "ITS SECOND TEXT"'

    def rows(self, request: InputRequest) -> list[Row]:
        return gather_pairs(request)

    def gather(self, request: InputRequest) -> RowChunks:
        return RowChunks(self.rows(request))


def as_text_pairs(clf: Any) -> TextPairs:
    """The kind of input for two columns; raise ConfigError for a model of single texts."""
    if getattr(clf, "pairs_", False) is False:
        what = "this model reads one text, not pairs"
        raise NotForThisModelError(what, where="--pair-column", fix="Leave it out")
    return TextPairs()


class TextsToEmbed(Texts):
    """Inputs with one text per example, for embedding models."""

    served = ServedTextsToEmbed


def _scored_dataset(pairs: Any) -> TextDataset:
    """Pairs of a built-in data set, with their scores as labels."""
    splits = {
        name: TextSplit(
            [TextPair(a, b) for a, b in zip(split.first, split.second, strict=True)],
            split.scores,
            split.origin,
            split.rows,
        )
        for name, split in pairs.splits.items()
    }
    return TextDataset(pairs.name, splits, rejected=tuple(pairs.rejected))


TINY_TEXTS = ("the dog runs", "a small cat", "the cat sees a dog", "a dog", "the small dog runs")
TINY_TEXTS += ("a cat runs", "the cat")

TAB_FIX = "Write both texts of a pair in one line, separated by a tab"
PAIR_NAMES = ("first text", "second text")


def _lone_text_error(text: str, names: tuple[str, str]) -> DataError:
    shown = text if len(text) <= 40 else f"{text[:40]}..."
    if names == PAIR_NAMES:
        fix = "Give two texts for each pair, or a table with two columns"
        what = f"this model reads pairs, and {shown!r} has no second text"
        return WrongInputError(what, where="TEXT", fix=fix)
    first, second = names
    what = f"this model reads a {first} with a {second}, and the {first} {shown!r} has no {second}"
    fix = f'Give both, "{first.upper()}" "{second.upper()}", or a table with columns {first} and context'
    return DataError(what, where="TEXT", fix=fix)


def _pair_row(first: Any, second: Any, row: int | None, file: str, skip: bool, where: str = "") -> Row:
    """A row with one pair; an unusable pair raises an error or, with ``skip``, gets an ``error``."""
    try:
        (pair,) = join_sides([first], [second])
    except DataError as error:
        if not skip:
            fix = "Give another text" if where else error.fix or "Correct it"
            where = where or f"{file}, row {row}"
            raise DataError(error.what, where=where, fix=f"{fix}, {SKIP_HINT}") from None
        texts = (text if isinstance(text, str) else "" for text in (first, second))
        return Row(TextPair(*texts), row, file, error=error.what)
    return Row(pair, row, file)


def _pairs_of_lines(lines: Iterable[tuple[int, str]], file: str, skip: bool) -> list[Row]:
    rows = []
    for number, line in lines:
        first, tab, second = line.rstrip("\r\n").partition("\t")
        if not tab and not skip:
            raise DataError("the line has no tab", where=f"{file}, row {number}", fix=TAB_FIX)
        rows.append(_pair_row(first, second, number, file, skip))
    return rows


def _pairs_of_text_file(path: Path, request: InputRequest) -> list[Row]:
    check_utf8(path)
    lines = [(i, line) for i, line in enumerate(text_lines(path), 1) if line.strip()]
    if not lines:
        raise MissingValueError("the file has no texts", where=str(path), fix=TAB_FIX)
    return _pairs_of_lines(lines, str(path), request.skip)


def _pairs_of_table(path: Path, request: InputRequest) -> list[Row]:
    def choose(table: Any) -> tuple[str, str]:
        first, second, message = columns_for_pair_model(
            table.names, request.text_column, request.pair_column, str(path), request.training_columns
        )
        if message:
            request.log(message)
        return first, second

    return read_pairs(path, choose, request)


def read_pairs(path: Path, choose: Callable[[Any], tuple[str, ...]], request: InputRequest) -> list[Row]:
    """One row per pair of texts in the two columns of a table that ``choose`` selects."""
    rows = []
    for values, row in read_columns(path, choose, request):
        if row.error is None:
            first, second = values
            pair = _pair_row(first, second, row.row, row.file, request.skip)
            row = replace(pair, other_columns=row.other_columns)
        rows.append(row)
    return rows


def gather_pairs(
    request: InputRequest,
    names: tuple[str, str] = PAIR_NAMES,
    read_table: Callable[[Path, InputRequest], list[Row]] = _pairs_of_table,
) -> list[Row]:
    """One row per pair, in order.

    A pair is two arguments, a row of a table, or a line of a ``.txt`` file or of standard input. In a line, a
    tab separates the two texts.

    Args:
        names: names of the two texts in messages.
        read_table: function that reads a file other than ``.txt``.
    """
    rows: list[Row] = []
    first: str | None = None
    for number, argument in enumerate(request.arguments, 1):
        is_file = argument == STDIN or (is_file_name(argument) and not is_image_name(argument))
        if first is not None and is_file:
            raise _lone_text_error(first, names)
        if argument == STDIN:
            lines, line_numbers = read_stdin()
            numbered = zip(line_numbers, lines, strict=True)
            rows += _pairs_of_lines(numbered, "standard input", request.skip)
        elif is_file:
            path = Path(argument)
            read = _pairs_of_text_file if path.suffix.lower() == TXT else read_table
            rows += read_counting_errors(partial(read, path), request)
        elif first is None:
            first = argument
        else:
            rows.append(_pair_row(first, argument, None, "", request.skip, f"TEXT {number - 1} and {number}"))
            first = None
    if first is not None:
        raise _lone_text_error(first, names)
    return rows
