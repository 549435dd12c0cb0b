"""Output of predictions as lines, tables and JSON.

One class per kind of prediction (labels, numbers, tags, answers) defines the columns, cells, lines and JSON.
``Writer`` prints them or writes them to a file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glassformer.cli.output import NO_ANSWER, excerpt, one_line, print_text, show_table
from glassformer.data.files import ESCAPE, UTF8, encoding_of, text_lines
from glassformer.data.rejected import RejectedRow
from glassformer.data.spreadsheet import csv_safe, is_label_review
from glassformer.data.tables import detect_delimiter, read_records
from glassformer.data.tagged import format_conll
from glassformer.data.text_pairs import SECOND_COLUMN, TextPair, second_text
from glassformer.errors import BadValueError, ConfigError, NotForThisModelError, with_article
from glassformer.evaluate.predictions import HEADER as LABEL_HEADER
from glassformer.evaluate.predictions import NUMBER_HEADER, label_cells, number_cells, row_cells, table_file
from glassformer.finite import json_text
from glassformer.inputs.rows import MAX_COLUMNS, Layout, Row, copied_columns, rejected_message
from glassformer.outputs import check_new_file, write_text
from glassformer.tasks.catalog import TASKS


class Prediction(NamedTuple):
    """One input and its prediction."""

    row: Row
    fields: Mapping[str, Any] | None  # JSON field -> value; None: no prediction, because of ``row.error``


def _display_text(text: Any) -> str:
    """A text as one line; shortened if stdout is a terminal."""
    return excerpt(text) if sys.stdout.isatty() else one_line(text)


# --- kinds of predictions -------------------------------------------------------------------------


class Labels:
    """Labels of texts, pairs of texts or images."""

    # Supported file extensions, and the error message and its fix for other extensions
    EXTENSIONS, FORMATS, FIX = (".csv",), "predictions are written as CSV", "Give --out a name that ends in"
    LINE_END = "\r\n"
    APPENDED: tuple[str, ...] = ("predicted", "probability")  # columns that --keep-table appends
    KEYS: tuple[str, ...] = ("label", "probability", "probabilities")  # JSON fields
    classes: list[Any] | None = None
    num_truncated = num_abstained = 0

    def __init__(self, model: Any, layout: Layout, coverage: float | None = None):
        self.model, self.layout, self.noun = model, layout, model.NOUN
        self.columns = self._prediction_columns(coverage)
        self.second_columns = [SECOND_COLUMN] if layout.pairs else []
        own_columns = (*self.columns[:7], "error", "file", *self.second_columns)
        self.other_columns = copied_columns(layout, own_columns)

    def _prediction_columns(self, coverage: float | None) -> list[str]:
        """Columns of the predictions; raises ConfigError if a coverage is given."""
        if coverage is not None:
            what = f"is for regressors, but the model is a {type(self.model).__name__}"
            raise NotForThisModelError(what, where="--coverage", fix="Leave it out")
        self.classes = classes = self.model.classes_.tolist()
        return [*LABEL_HEADER, *(f"p:{name}" for name in classes)]

    def predict(self, inputs: Sequence[Any], progress: Callable[[int], None]) -> Iterator[dict[str, Any]]:
        """Predict for some inputs; returns the JSON fields of each prediction."""
        outputs = self.model.outputs(inputs, progress=progress)
        answer = TASKS[self.model.RECIPE.task].answer
        assert answer is not None, "checked before"
        labels, confidences = answer(self.model, outputs)
        self.num_abstained += sum(label is None for label in labels)
        if self.model.inputs.can_be_cut:
            self.num_truncated += int(self.model.truncated(inputs).sum())
        return self._fields(labels, confidences, outputs)

    def _fields(self, labels: Any, confidences: Any, outputs: Any) -> Iterator[dict[str, Any]]:
        for label, probability, probabilities in zip(labels, confidences, outputs, strict=True):
            yield {"label": label, "probability": probability, "probabilities": probabilities}

    def header(self) -> list[str]:
        """The columns of the table."""
        errors = ["error"] if self.layout.errors else []
        return [*self.columns, *self.second_columns, *self.other_columns, *errors]

    def records(self, prediction: Prediction, number: int) -> Iterator[list[Any]]:
        """Yield the table rows of a prediction; ``number`` counts the predictions from 1."""
        row = prediction.row
        predicted, cells = self._cells(prediction.fields)
        other_cells = [*(cell(row) for cell in self.other_columns.values()), *self.error(row)]
        if self.second_columns:
            other_cells.insert(0, second_text(row.text) if isinstance(row.text, TextPair) else "")
        yield [*row_cells(row.text, predicted, cells, row=row.row), *map(csv_safe, other_cells)]

    def error(self, row: Row) -> list[str]:
        """The cell of the column ``error``: why a row has no prediction. Empty list without that column."""
        return [row.error or ""] if self.layout.errors else []

    def _cells(self, fields: Mapping[str, Any] | None) -> tuple[Any, list[str]]:
        """The prediction, and the cells after it."""
        if fields is None:
            return None, [""] * (1 + len(self.classes or ()))
        return fields["label"], label_cells(fields["probability"], fields["probabilities"])

    def appended_cells(self, prediction: Prediction) -> list[Any]:
        """The cells that --keep-table appends."""
        if prediction.fields is None:
            return [""] * len(self.APPENDED)
        predicted, cells = self._cells(prediction.fields)
        return ["" if predicted is None else predicted, *cells[: len(self.APPENDED) - 1]]

    def line(self, prediction: Prediction) -> str:
        """A prediction as a printed line."""
        cells = ("", "") if prediction.fields is None else self._line_cells(prediction.fields)
        return "\t".join([*cells, _display_text(prediction.row.text)])

    def _line_cells(self, fields: Mapping[str, Any]) -> tuple[str, str]:
        label = fields["label"]
        return "" if label is None else one_line(label), f"{fields['probability']:.4f}"

    def json(self, prediction: Prediction) -> dict[str, Any]:
        """The JSON object of a prediction."""
        row, fields = prediction.row, dict(prediction.fields or {})
        position = {"text": row.text, "file": row.file or None, "row": row.row}
        return position | dict.fromkeys(self.KEYS) | fields | {"error": row.error}

    def as_dict(self, writer: Writer) -> Any:
        """The JSON output: the predictions or the output file, and their number."""
        classes = {} if self.classes is None else {"classes": self.classes}
        out = {"out": writer.out} if writer.out else {**classes, "answers": writer.collected}
        out |= {
            "examples": writer.count,
            "without_answer": len(writer.rejected),
            "truncated": self.num_truncated,
        }
        out |= {"abstained": self.num_abstained} if self.num_abstained else {}
        least = writer.least_confident
        return out | ({} if least is None else {"least_sure": least.predictions()})

    def summary(self, writer: Writer) -> str:
        """A phrase with the number of predictions."""
        return f"{writer.count:,} {self.noun}"

    def notes(self, writer: Writer) -> Iterator[str]:
        """Yield notes about the predictions."""
        if self.num_abstained:
            what = f"{self.num_abstained:,} of {writer.num_usable:,} {self.noun} got no label"
            yield f"{what}: the model abstains below a probability of {self.model.abstain_below_:g}"
        if self.num_truncated:
            what = f"{self.num_truncated:,} of {writer.num_usable:,} texts"
            yield f"{what} are longer than {self.model.max_length} tokens and were cut there"


class Numbers(Labels):
    """Numbers, with prediction intervals unless the model had too few held-out examples."""

    APPENDED, KEYS = ("predicted", "low", "high"), ("number", "interval")
    DEFAULT_COVERAGE = 0.9  # of the prediction intervals

    def _prediction_columns(self, coverage: float | None) -> list[str]:
        """Columns of the predictions; raises ConfigError if ``coverage`` needs more held-out examples."""
        from glassformer.targets.regression import examples_needed

        self.coverage = self.DEFAULT_COVERAGE if coverage is None else coverage
        if coverage is not None:
            self.model.interval([1.0], coverage)  # raises an error if there are too few examples
        self.has_intervals = len(self.model.errors_) >= examples_needed(self.coverage)
        return [*NUMBER_HEADER]

    def _fields(self, labels: Any, confidences: Any, outputs: Any) -> Iterator[dict[str, Any]]:
        intervals = [None] * len(labels)
        if self.has_intervals:
            intervals = self.model.interval(labels, self.coverage).tolist()
        for number, interval in zip(labels, intervals, strict=True):
            yield {"number": number, "interval": interval}

    def _cells(self, fields: Mapping[str, Any] | None) -> tuple[Any, list[str]]:
        if fields is None:
            return None, ["", ""]
        return repr(float(fields["number"])), number_cells(fields["interval"])

    def _line_cells(self, fields: Mapping[str, Any]) -> tuple[str, str]:
        format_number, bounds = self.model.kind_.format_number, fields["interval"]
        return format_number(fields["number"]), " to ".join(map(format_number, bounds or ()))

    def as_dict(self, writer: Writer) -> Any:
        return super().as_dict(writer) | {"coverage": self.coverage if self.has_intervals else None}

    def notes(self, writer: Writer) -> Iterator[str]:
        from glassformer.targets.regression import examples_needed

        yield from super().notes(writer)
        if not self.has_intervals:
            count, needed = len(self.model.errors_), examples_needed(self.coverage)
            yield f"no intervals: {self.coverage:.0%} intervals need {needed} held-out examples, not {count}"


class _RecordPredictions:
    """Base class of ``Tags`` and ``Answers``: predictions that the task returns as dicts."""

    EXTENSIONS: tuple[str, ...]
    HEADER: tuple[str, ...]
    RESERVED: tuple[str, ...] = ()  # the user's columns with these names are left out; empty: use HEADER
    FIX, LINE_END, classes = "End --out with", "\n", None

    def __init__(self, model: Any, layout: Layout, coverage: float | None = None):
        self.model, self.layout, self.noun = model, layout, model.NOUN
        self.other_columns = copied_columns(layout, self.RESERVED or self.HEADER)

    def predict(self, inputs: Sequence[Any], progress: Callable[[int], None]) -> Iterator[dict[str, Any]]:
        predict_records = TASKS[self.model.RECIPE.task].predict_records
        assert predict_records is not None, "checked before"
        yield from predict_records(self.model, inputs)
        progress(len(inputs))

    def header(self) -> list[str]:
        return [*self.HEADER, *self.other_columns]

    def json(self, prediction: Prediction) -> dict[str, Any]:
        position = {"row": prediction.row.row, "error": prediction.row.error}
        return position | self._other_cells(prediction) | dict(prediction.fields or {})

    def _other_cells(self, prediction: Prediction) -> dict[str, str]:
        return {name: cell(prediction.row) for name, cell in self.other_columns.items()}

    def notes(self, writer: Writer) -> Iterator[str]:
        """Yield nothing, because there are no notes about records."""
        yield from ()


class Tags(_RecordPredictions):
    """Tagged spans of sentences. A CSV file has one row per span; other formats have one per sentence."""

    EXTENSIONS, FORMATS = (".jsonl", ".csv", ".conll"), "spans are written as JSON Lines, CSV or CoNLL"
    HEADER = ("row", "text", "kind", "start", "end", "first", "last", "probability", "sentence", "error")
    RESERVED = (*HEADER, "words", "tags", "spans")
    num_spans = 0

    def predict(self, inputs: Sequence[Any], progress: Callable[[int], None]) -> Iterator[dict[str, Any]]:
        for record in super().predict(inputs, progress):
            self.num_spans += len(record["spans"])
            yield record

    def records(self, prediction: Prediction, number: int) -> Iterator[list[Any]]:
        """Yield the table rows of a sentence, one per span."""
        row, other_cells = prediction.row.row or number, self._other_cells(prediction).values()
        keys = self.HEADER[1:-2]
        if prediction.fields is None:
            cells = [row, *[""] * len(keys), "", prediction.row.error, *other_cells]
            yield list(map(csv_safe, cells))
            return
        for span in prediction.fields["spans"]:
            cells = [row, *(span[key] for key in keys), prediction.fields["text"], "", *other_cells]
            yield list(map(csv_safe, cells))

    def line(self, prediction: Prediction) -> str:
        if prediction.fields is None:
            return "\t"
        spans = [
            f"{one_line(span['text'])} ({span['kind']} {span['probability']:.4f})"
            for span in prediction.fields["spans"]
        ]
        return f"{', '.join(spans)}\t{_display_text(prediction.fields['text'])}"

    def as_dict(self, writer: Writer) -> Any:
        if writer.out is None:
            return writer.collected
        return {self.noun: writer.num_usable, "spans": self.num_spans, "out": writer.out}

    def summary(self, writer: Writer) -> str:
        return f"{writer.num_usable:,} {self.noun}, {self.num_spans:,} spans"


class Answers(_RecordPredictions):
    """Answers to questions, as spans of contexts."""

    EXTENSIONS, FORMATS = (".jsonl", ".csv"), "answers are written as JSON Lines or CSV"
    HEADER = ("row", "question", "answer", "start", "end", "probability", "context", "error")

    def json(self, prediction: Prediction) -> dict[str, Any]:
        """The JSON fields of a prediction, the user's columns last."""
        fields = {k: v for k, v in super().json(prediction).items() if k not in self.other_columns}
        return fields | self._other_cells(prediction)

    def records(self, prediction: Prediction, number: int) -> Iterator[list[Any]]:
        fields = self.json(prediction)
        yield [csv_safe(fields.get(name, "")) for name in self.header()]

    def line(self, prediction: Prediction) -> str:
        if prediction.fields is None:
            return "\t\t"
        answer = one_line(prediction.fields["answer"]) or NO_ANSWER
        question, probability = prediction.fields["question"], prediction.fields["probability"]
        return f"{answer}\t{probability:.4f}\t{_display_text(question)}"

    def as_dict(self, writer: Writer) -> Any:
        return writer.collected if writer.out is None else {"questions": writer.count, "out": writer.out}

    def summary(self, writer: Writer) -> str:
        return f"{writer.count:,} questions"


Kind = Labels | Tags | Answers
KINDS: dict[str, type[Kind]] = {"labels": Labels, "numbers": Numbers, "tags": Tags, "answers": Answers}


def prediction_kind(folder: Path) -> type[Kind]:
    """The class for the predictions of the model in a folder; ``Labels`` if its task is unknown."""
    from glassformer.tasks.load import describe

    task = describe(folder).task
    if task is None:
        return Labels
    if task.output_kind not in KINDS:
        what = f"contains {with_article(task.estimator.__name__)}, which predicts no labels"
        raise NotForThisModelError(what, where=str(folder), fix=usage_hint(task))
    return KINDS[task.output_kind]


def usage_hint(task: Any) -> str:
    """A sentence on how to use a model that does not predict labels."""
    if task.verb == "predict":
        return "Open it in Python with glassformer.load"
    return f"Use glassformer {task.verb}"


def check_output(path: Path, kind: type[Kind] = Labels) -> None:
    """Raise ConfigError if ``path`` exists, its folder is missing, or its extension is not supported."""
    check_new_file(path)
    if path.suffix.lower() not in kind.EXTENSIONS:
        separator = " or " if len(kind.EXTENSIONS) == 2 else ", "
        fix = f"{kind.FIX} {separator.join(kind.EXTENSIONS)}"
        raise BadValueError(kind.FORMATS, where=str(path), fix=fix)


def write_table(out: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file atomically. Formulas in cells are escaped, and None becomes an empty cell."""
    with table_file(out) as table:
        table.writerow(map(csv_safe, header))
        table.writerows(map(csv_safe, row) for row in rows)


# --- the writer -----------------------------------------------------------------------------------


class Writer:
    """Prints predictions, writes them to a file, or collects them for JSON.

    Args:
        user_table: format of the user's table, if ``out`` is a copy of it with the predictions appended.
        least_confident: collects the least confident predictions to print; None: print all.
    """

    def __init__(
        self,
        kind: Kind,
        out: Path | None = None,
        json: bool = False,
        user_table: TableFormat | None = None,
        least_confident: LeastConfident | None = None,
    ):
        self.kind, self.out, self.json = kind, out, json
        self.user_table, self.least_confident = user_table, least_confident
        self.count = self.num_usable = 0
        self.rejected: list[Any] = []
        self.collected: list[dict[str, Any]] = []  # predictions for JSON
        self._write_one: Callable[[Prediction], None] = self._print

    @contextmanager
    def open(self) -> Iterator[None]:
        """Open the output for calls of ``add``; the file appears only at the end, when it is complete."""
        kind, out = self.kind, self.out
        if out is None:
            yield
        elif self.user_table is not None:
            assert isinstance(kind, Labels), "checked before"
            columns = [*kind.APPENDED, *(["error"] if kind.layout.errors else [])]
            with self.user_table.open(out, self.user_table.text_columns(kind.layout), columns) as write:
                self._write_one = lambda p: write(p.row, [*kind.appended_cells(p), *kind.error(p.row)])
                yield
        elif out.suffix.lower() == ".csv":
            with table_file(out, line_end=kind.LINE_END) as table:
                table.writerow(map(csv_safe, kind.header()))
                self._write_one = lambda p: table.writerows(kind.records(p, self.count))
                yield
        else:
            self._write_one = self._collect
            yield
            text = "".join(json_text(fields) + "\n" for fields in self.collected)
            if out.suffix.lower() == ".conll":
                usable = [fields for fields in self.collected if fields["error"] is None]
                text = format_conll([f["words"] for f in usable], [f["tags"] for f in usable])
            write_text(out, text)

    def add(self, rows: Sequence[Row], progress: Any) -> None:
        """Predict for some rows, and write the predictions."""
        inputs = [row.words or row.text for row in rows if row.error is None]
        predictions = iter(self.kind.predict(inputs, progress) if inputs else ())
        self.num_usable += len(inputs)
        for row in rows:
            self.count += 1
            prediction = Prediction(row, next(predictions) if row.error is None else None)
            if row.error is not None:
                self.rejected.append(RejectedRow(row.file, row.row or self.count, row.error))
            if self.least_confident is not None:
                self.least_confident.add(prediction, self.kind.classes or ())
            self._write_one(prediction)

    def _print(self, prediction: Prediction) -> None:
        if self.json:
            self._collect(prediction)
        elif self.least_confident is None:
            print_text(self.kind.line(prediction))

    def _collect(self, prediction: Prediction) -> None:
        self.collected.append(self.kind.json(prediction))

    def notes(self) -> Iterator[str]:
        """Yield notes about the predictions."""
        if message := rejected_message(self.rejected):
            yield message
        yield from self.kind.notes(self)


# --- option --keep-table: the user's table with the predictions appended ---------------------------


KEEP_TABLE = "--keep-table"
TABLES = (".csv", ".tsv")


@dataclass(frozen=True)
class TableFormat:
    """The format of a CSV or TSV file, to write another file in the same format."""

    names: tuple[str, ...]  # names of the columns
    delimiter: str
    has_bom: bool  # whether the file begins with a byte order mark
    encoding: str = "utf-8"
    line_end: str = "\n"
    pair: tuple[str, str] | None = None  # for pairs: the columns of the first and second texts

    @contextmanager
    def open(
        self, out: Path, texts: Sequence[str], new_columns: Sequence[str]
    ) -> Iterator[Callable[..., None]]:
        """Open a file for writing; yields a function that writes a row and the values of the new columns.

        The cells of the user are written unchanged. In the new cells, formulas are escaped.

        Args:
            texts: the columns with the text, or the two texts, of a row.
        """
        new_names = list(new_columns)
        while any(name in self.names for name in new_names):
            new_names = [f"model:{name}" if name in self.names else name for name in new_names]
        format_cell = csv_safe if is_label_review(self.names) else str
        options: dict[str, Any] = {"encoding": self.encoding, "line_end": self.line_end, "bom": self.has_bom}
        with table_file(out, delimiter=self.delimiter, **options) as writer:
            writer.writerow([*self.names, *map(csv_safe, new_names)])

            def write(row: Row, values: Sequence[Any]) -> None:
                sides = getattr(row.text, "sides", None) or (row.text,)
                values_by_name = row.other_columns | dict(zip(texts, sides, strict=False))
                cells = [format_cell(values_by_name.get(name, "")) for name in self.names]
                writer.writerow([*cells, *map(csv_safe, values)])

            yield write

    def text_columns(self, layout: Layout) -> list[str]:
        """The columns with texts: those of the pair, or the ones that ``layout`` does not list."""
        return list(self.pair or (name for name in self.names if name not in layout.columns))


def table_format(files: Sequence[str], out: Path | None) -> TableFormat:
    """The format of the user's table; raises ConfigError if ``--keep-table`` does not support it."""
    path = Path(files[0])
    if out is None:
        raise BadValueError("needs an output file", where=KEEP_TABLE, fix="Add --out FILE.csv")
    if len(files) != 1 or path.suffix.lower() not in TABLES or not path.is_file():
        fix = f"Give --data FILE.csv --out FILE.csv {KEEP_TABLE}"
        raise BadValueError("needs one CSV or TSV file", where=KEEP_TABLE, fix=fix)
    delimiter = detect_delimiter(path, ESCAPE)
    _, names = next(read_records(path, delimiter, lambda error, row: None, ESCAPE), (0, []))
    if len(names) > MAX_COLUMNS:
        what = f"{len(names)} columns, at most {MAX_COLUMNS} are kept"
        fix = "Leave it out, or cut the table to the columns you need"
        raise ConfigError(what, where=KEEP_TABLE, fix=fix)
    with path.open("rb") as file:
        has_bom = file.read(3) == b"\xef\xbb\xbf"
    first_line = next(text_lines(path, newline="", errors=ESCAPE), "\n")
    line_end = first_line[len(first_line.rstrip("\r\n")) :] or "\n"
    encoding = encoding_of(path)
    return TableFormat(tuple(names), delimiter, has_bom, "utf-8" if encoding == UTF8 else encoding, line_end)


# --- option --least-sure: the least confident predictions ---------------------------------------------


LEAST_SURE = "--least-sure"
MAX_LISTED = 10_000


@dataclass
class LeastConfident:
    """Collects the ``count`` predictions with the lowest probabilities; the first ones if some are equal."""

    count: int
    _entries: list[dict[str, Any]] = field(default_factory=list)
    _num_predictions: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_LISTED:
            raise ConfigError(f"{self.count} rows", where=LEAST_SURE, fix=f"Use 1 to {MAX_LISTED:,}")

    def add(self, prediction: Prediction, classes: Sequence[Any]) -> None:
        """Add a prediction of a model with these classes; ignores rows without a prediction."""
        if prediction.fields is None:
            return
        self._num_predictions += 1
        row, probabilities = prediction.row, np.asarray(prediction.fields["probabilities"])
        entry = {
            "file": row.file or None,
            "row": row.row if row.row is not None else self._num_predictions,
            "text": row.text,
            "label": prediction.fields["label"],
            "probability": float(prediction.fields["probability"]),
            "likeliest": [
                [classes[k], float(probabilities[k])]
                for k in np.argsort(-probabilities, kind="stable")[:2].tolist()
            ],
        }
        self._entries.append(entry)
        if len(self._entries) >= 2 * self.count:  # limits the memory
            self._entries = self.predictions()

    def predictions(self) -> list[dict[str, Any]]:
        """The collected predictions, the least confident first."""
        return sorted(self._entries, key=lambda entry: entry["probability"])[: self.count]

    def show(self, noun: str) -> None:
        """Print row number, the two most probable labels, and text of each collected prediction."""
        rows = []
        for p in self.predictions():
            labels = [f"{label} {probability:.3f}" for label, probability in p["likeliest"]]
            rows.append([str(p["row"]), *labels, excerpt(str(p["text"]), 60)])
        title = f"the {len(rows):,} least confident of {self._num_predictions:,} {noun}"
        show_table(title, ("row", "most likely", "second", "text"), rows, right=("row",))
