"""Output of predictions as lines, tables and JSON: one writer, and one class per kind of prediction.

A kind defines the columns, cells, lines and JSON of its predictions; ``Writer`` writes them.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glassformer.cli.output import NO_ANSWER, emit, excerpt, one_line, show_table
from glassformer.data.files import ESCAPE, UTF8, encoding_of, text_lines
from glassformer.data.rejected import RejectedRow
from glassformer.data.spreadsheet import cell_writer, csv_safe
from glassformer.data.tables import detect_delimiter, read_records
from glassformer.data.tagged import format_conll
from glassformer.data.text_pairs import SECOND_COLUMN, TextPair, second_text
from glassformer.errors import BadValueError, ConfigError, NotForThisModelError, with_article
from glassformer.evaluate.predictions import HEADER as LABEL_HEADER
from glassformer.evaluate.predictions import NUMBER_HEADER, label_cells, number_cells, row_cells, table_file
from glassformer.finite import json_text
from glassformer.inputs.rows import MOST_COLUMNS, Layout, Row, copied_columns, rejected_message
from glassformer.outputs import check_new_file, write_text
from glassformer.tasks.catalog import TASKS


class Prediction(NamedTuple):
    """One input and its prediction."""

    row: Row
    fields: Mapping[str, Any] | None  # JSON field -> value; None: see ``row.error``


def _shown(text: Any) -> str:
    """A text in a line: shortened on a terminal, complete in a pipe."""
    return excerpt(text) if sys.stdout.isatty() else one_line(text)


# --- kinds of predictions -------------------------------------------------------------------------


class Labels:
    """The label (for multi-label: the labels) of each text, pair of texts or image."""

    ENDS, WRITTEN_AS, FIX = (".csv",), "predictions are written as CSV", "Give --out a name that ends in"
    LINE_END = "\r\n"
    APPENDED: tuple[str, ...] = ("predicted", "probability")  # columns that --keep-table appends
    KEYS: tuple[str, ...] = ("label", "probability", "probabilities")  # JSON fields
    classes: list[Any] | None = None

    def __init__(self, model: Any, layout: Layout, coverage: float | None = None):
        self.model, self.layout, self.noun = model, layout, model.NOUN
        self.truncated = self.abstained = 0
        self.columns = self._own_columns(coverage)
        self.second_heads = [SECOND_COLUMN] if layout.pairs else []
        self.other_columns = copied_columns(layout, (*self.columns[:7], "error", "file", *self.second_heads))

    def _own_columns(self, coverage: float | None) -> list[str]:
        """Our columns; raises ConfigError if a coverage is given."""
        if coverage is not None:
            what = f"belongs to regressors, and this is a {type(self.model).__name__}"
            raise NotForThisModelError(what, where="--coverage", fix="Leave it out")
        self.classes = classes = self.model.classes_.tolist()
        return [*LABEL_HEADER, *(f"p:{name}" for name in classes)]

    def predict(self, inputs: Sequence[Any], progress: Callable[[int], None]) -> Iterator[dict[str, Any]]:
        """The JSON fields of each prediction."""
        outputs = self.model.outputs(inputs, progress=progress)
        answer = TASKS[self.model.RECIPE.task].answer
        assert answer is not None, "checked before"
        labels, shares = answer(self.model, outputs)
        self.abstained += sum(label is None for label in labels)
        if self.model.inputs.can_be_cut:
            self.truncated += int(self.model.truncated(inputs).sum())
        return self._fields(labels, shares, outputs)

    def _fields(self, labels: Any, shares: Any, outputs: Any) -> Iterator[dict[str, Any]]:
        for label, probability, probabilities in zip(labels, shares, outputs, strict=True):
            yield {"label": label, "probability": probability, "probabilities": probabilities}

    def header(self) -> list[str]:
        """The columns of the table."""
        return [
            *self.columns,
            *self.second_heads,
            *self.other_columns,
            *(["error"] if self.layout.errors else []),
        ]

    def records(self, prediction: Prediction, number: int) -> Iterator[list[Any]]:
        """The rows of the table for prediction number ``number``."""
        row = prediction.row
        predicted, cells = self._cells(prediction.fields)
        second_cells = (
            [second_text(row.text) if isinstance(row.text, TextPair) else ""] if self.second_heads else []
        )
        other_cells = [*second_cells, *(cell(row) for cell in self.other_columns.values()), *self.error(row)]
        yield [*row_cells(row.text, predicted, cells, row=row.row), *map(csv_safe, other_cells)]

    def error(self, row: Row) -> list[str]:
        """The reason why a row has no prediction, if the table has a column for it."""
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
        """The line of a prediction on a terminal."""
        if prediction.fields is None:
            return f"\t\t{_shown(prediction.row.text)}"
        label, probability = prediction.fields["label"], prediction.fields["probability"]
        return f"{'' if label is None else one_line(label)}\t{probability:.4f}\t{_shown(prediction.row.text)}"

    def json(self, prediction: Prediction) -> dict[str, Any]:
        """The JSON object of a prediction."""
        place = {"text": prediction.row.text, "file": prediction.row.file or None, "row": prediction.row.row}
        return (
            place | dict.fromkeys(self.KEYS) | dict(prediction.fields or {}) | {"error": prediction.row.error}
        )

    def as_dict(self, writer: Writer) -> Any:
        """The JSON output: the predictions, or the file they were written to; and their number."""
        counts = {
            "examples": writer.count,
            "without_answer": len(writer.rejected),
            "truncated": self.truncated,
            **({"abstained": self.abstained} if self.abstained else {}),
            **({} if writer.least_sure is None else {"least_sure": writer.least_sure.predictions()}),
        }
        if writer.out is not None:
            return {"out": writer.out, **counts}
        classes = {} if self.classes is None else {"classes": self.classes}
        return {**classes, "answers": writer.collected, **counts}

    def summary(self, writer: Writer) -> str:
        """The number of predictions, in words."""
        return f"{writer.count:,} {self.noun}"

    def notes(self, writer: Writer) -> Iterator[str]:
        """Notes about the predictions."""
        if abstained := self.abstained:
            what = f"{abstained:,} of {writer.good:,} {self.noun} got no label"
            yield f"{what}: the model abstains below a probability of {self.model.abstain_below_:g}"
        if count := self.truncated:
            length = self.model.max_length
            yield f"{count:,} of {writer.good:,} texts are longer than {length} tokens and were cut there"


class Numbers(Labels):
    """One number per input, with an interval unless too few examples were held out."""

    APPENDED, KEYS = ("predicted", "low", "high"), ("number", "interval")
    DEFAULT_COVERAGE = 0.9  # default coverage of the intervals

    def _own_columns(self, coverage: float | None) -> list[str]:
        """Our columns; raises ConfigError if there are too few held-out examples for the coverage."""
        from glassformer.targets.regression import examples_needed

        self.coverage = self.DEFAULT_COVERAGE if coverage is None else coverage
        if coverage is not None:
            self.model.interval([1.0], coverage)  # raises if examples are missing
        self.has_intervals = len(self.model.errors_) >= examples_needed(self.coverage)
        return [*NUMBER_HEADER]

    def _fields(self, labels: Any, shares: Any, outputs: Any) -> Iterator[dict[str, Any]]:
        bounds = (
            self.model.interval(labels, self.coverage).tolist()
            if self.has_intervals
            else [None] * len(labels)
        )
        for number, inside in zip(labels, bounds, strict=True):
            yield {"number": number, "interval": inside}

    def _cells(self, fields: Mapping[str, Any] | None) -> tuple[Any, list[str]]:
        if fields is None:
            return None, ["", ""]
        return repr(float(fields["number"])), number_cells(fields["interval"])

    def line(self, prediction: Prediction) -> str:
        if prediction.fields is None:
            return f"\t\t{_shown(prediction.row.text)}"
        format_number, bounds = self.model.kind_.shown, prediction.fields["interval"]
        inside = "" if bounds is None else f"{format_number(bounds[0])} to {format_number(bounds[1])}"
        return f"{format_number(prediction.fields['number'])}\t{inside}\t{_shown(prediction.row.text)}"

    def as_dict(self, writer: Writer) -> Any:
        return super().as_dict(writer) | {"coverage": self.coverage if self.has_intervals else None}

    def notes(self, writer: Writer) -> Iterator[str]:
        from glassformer.targets.regression import examples_needed

        yield from super().notes(writer)
        if not self.has_intervals:
            count, needed = len(self.model.errors_), examples_needed(self.coverage)
            yield f"no intervals: {count} examples were held out, {self.coverage:.0%} intervals need {needed}"


class _RecordKind:
    """Base for tags and answers to questions: predictions that the task returns as records."""

    ENDS: tuple[str, ...]
    HEADER: tuple[str, ...]
    RESERVED: tuple[str, ...] = ()  # names that the user's columns may not have; empty: those of HEADER
    FIX, LINE_END, classes = "End --out with", "\n", None

    def __init__(self, model: Any, layout: Layout, coverage: float | None = None):
        self.model, self.layout, self.noun = model, layout, model.NOUN
        self.other_columns = copied_columns(layout, self.RESERVED or self.HEADER)

    def predict(self, inputs: Sequence[Any], progress: Callable[[int], None]) -> Iterator[dict[str, Any]]:
        records_of = TASKS[self.model.RECIPE.task].predict_records
        assert records_of is not None, "checked before"
        yield from records_of(self.model, inputs)
        progress(len(inputs))

    def header(self) -> list[str]:
        return [*self.HEADER, *self.other_columns]

    def json(self, prediction: Prediction) -> dict[str, Any]:
        return (
            {"row": prediction.row.row, "error": prediction.row.error}
            | self._other_cells(prediction)
            | dict(prediction.fields or {})
        )

    def _other_cells(self, prediction: Prediction) -> dict[str, str]:
        return {name: cell(prediction.row) for name, cell in self.other_columns.items()}

    def notes(self, writer: Writer) -> Iterator[str]:
        """No notes."""
        yield from ()


class Tags(_RecordKind):
    """The spans in each sentence: one row per span in a table, otherwise one line per sentence."""

    ENDS, WRITTEN_AS = (".jsonl", ".csv", ".conll"), "spans are written as JSON Lines, CSV or CoNLL"
    HEADER = ("row", "text", "kind", "start", "end", "first", "last", "probability", "sentence", "error")

    RESERVED = (*HEADER, "words", "tags", "spans")

    def __init__(self, model: Any, layout: Layout, coverage: float | None = None):
        super().__init__(model, layout)
        self.spans = 0

    def predict(self, inputs: Sequence[Any], progress: Callable[[int], None]) -> Iterator[dict[str, Any]]:
        for record in super().predict(inputs, progress):
            self.spans += len(record["spans"])
            yield record

    def records(self, prediction: Prediction, number: int) -> Iterator[list[Any]]:
        """The rows of the table for sentence number ``number``: one per span."""
        row, other_cells = prediction.row.row or number, self._other_cells(prediction).values()
        keys = self.HEADER[1:-2]
        if prediction.fields is None:
            yield [
                csv_safe(cell) for cell in (row, *[""] * len(keys), "", prediction.row.error, *other_cells)
            ]
            return
        for span in prediction.fields["spans"]:
            cells = [row, *(span[key] for key in keys), prediction.fields["text"], "", *other_cells]
            yield [csv_safe(cell) for cell in cells]

    def line(self, prediction: Prediction) -> str:
        if prediction.fields is None:
            return "\t"
        spans = (
            f"{one_line(s['text'])} ({s['kind']} {s['probability']:.4f})" for s in prediction.fields["spans"]
        )
        return f"{', '.join(spans)}\t{_shown(prediction.fields['text'])}"

    def as_dict(self, writer: Writer) -> Any:
        if writer.out is None:
            return writer.collected
        return {self.noun: writer.good, "spans": self.spans, "out": writer.out}

    def summary(self, writer: Writer) -> str:
        return f"{writer.good:,} {self.noun}, {self.spans:,} spans"


class Answers(_RecordKind):
    """The answer to each question, a span of its context."""

    ENDS, WRITTEN_AS = (".jsonl", ".csv"), "answers are written as JSON Lines or CSV"
    HEADER = ("row", "question", "answer", "start", "end", "probability", "context", "error")

    def json(self, prediction: Prediction) -> dict[str, Any]:
        """The JSON fields of a prediction, the user's columns last."""
        fields = super().json(prediction)
        return {name: fields[name] for name in fields if name not in self.other_columns} | self._other_cells(
            prediction
        )

    def records(self, prediction: Prediction, number: int) -> Iterator[list[Any]]:
        fields = self.json(prediction)
        yield [csv_safe(fields.get(name, "")) for name in self.header()]

    def line(self, prediction: Prediction) -> str:
        if prediction.fields is None:
            return "\t\t"
        answer = one_line(prediction.fields["answer"]) or NO_ANSWER
        return f"{answer}\t{prediction.fields['probability']:.4f}\t{_shown(prediction.fields['question'])}"

    def as_dict(self, writer: Writer) -> Any:
        return writer.collected if writer.out is None else {"questions": writer.count, "out": writer.out}

    def summary(self, writer: Writer) -> str:
        return f"{writer.count:,} questions"


Kind = Labels | Tags | Answers
KINDS: dict[str, type[Kind]] = {"labels": Labels, "numbers": Numbers, "tags": Tags, "answers": Answers}


def kind_in(folder: Path) -> type[Kind]:
    """The kind of prediction of the model in a folder; labels if the folder does not state it."""
    from glassformer.tasks.load import describe

    task = describe(folder).task
    if task is None:
        return Labels
    if task.gives not in KINDS:
        problem = f"holds {with_article(task.estimator.__name__)}, which gives no labels"
        raise NotForThisModelError(problem, where=str(folder), fix=usage_hint(task))
    return KINDS[task.gives]


def usage_hint(task: Any) -> str:
    """A hint on how to use a model that does not predict labels."""
    if task.verb == "predict":
        return "Open it in Python with glassformer.load"
    return f"Use glassformer {task.verb}"


def check_output(path: Path, kind: type[Kind] = Labels) -> None:
    """Raise ConfigError if ``path`` exists, its folder does not exist, or its extension is not supported."""
    check_new_file(path)
    if path.suffix.lower() not in kind.ENDS:
        between = " or " if len(kind.ENDS) == 2 else ", "
        raise BadValueError(kind.WRITTEN_AS, where=str(path), fix=f"{kind.FIX} {between.join(kind.ENDS)}")


def write_table(out: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file atomically, safe to open in a spreadsheet; None becomes an empty cell."""
    with table_file(out) as table:
        table.writerow(map(csv_safe, header))
        table.writerows(map(csv_safe, row) for row in rows)


# --- the writer -----------------------------------------------------------------------------------


class Writer:
    """Writes predictions to the terminal, to ``out``, or collects them for JSON.

    With ``kept_table``, ``out`` is that table with the predictions appended; with ``least_sure``, only those
    predictions are printed.
    """

    def __init__(
        self,
        kind: Kind,
        out: Path | None = None,
        json: bool = False,
        kept_table: TableFormat | None = None,
        least_sure: LeastSure | None = None,
    ):
        self.kind, self.out, self.json, self.kept_table, self.least_sure = (
            kind,
            out,
            json,
            kept_table,
            least_sure,
        )
        self.count = self.good = 0
        self.rejected: list[Any] = []
        self.collected: list[dict[str, Any]] = []  # predictions for JSON
        self._write_one: Callable[[Prediction], None] = self._on_terminal

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Context for all calls of ``add``: the file is written completely at its end, or not at all."""
        kind, out = self.kind, self.out
        ending = "" if out is None else out.suffix.lower()
        if out is None:
            yield
        elif self.kept_table is not None:
            assert isinstance(kind, Labels), "checked before"
            errors = ["error"] if kind.layout.errors else []
            with self.kept_table.writing(
                out, self.kept_table.texts(kind.layout), [*kind.APPENDED, *errors]
            ) as write:
                self._write_one = lambda p: write(p.row, [*kind.appended_cells(p), *kind.error(p.row)])
                yield
        elif ending == ".csv":
            with table_file(out, line_end=kind.LINE_END) as table:
                table.writerow(map(csv_safe, kind.header()))
                self._write_one = lambda p: table.writerows(kind.records(p, self.count))
                yield
        else:
            self._write_one = self._keep
            yield
            write_text(out, self._conll() if ending == ".conll" else self._json_lines())

    def add(self, rows: Sequence[Row], progress: Callable[[int], None]) -> None:
        """Predict for some rows, and write what was predicted."""
        inputs = [row.words or row.text for row in rows if row.error is None]
        predicted = iter(self.kind.predict(inputs, progress) if inputs else ())
        self.good += len(inputs)
        for row in rows:
            self.count += 1
            prediction = Prediction(row, next(predicted) if row.error is None else None)
            if row.error is not None:
                self.rejected.append(RejectedRow(row.file, row.row or self.count, row.error))
            if self.least_sure is not None:
                self.least_sure.add(prediction, self.kind.classes or ())
            self._write_one(prediction)

    def _on_terminal(self, prediction: Prediction) -> None:
        if self.json:
            self._keep(prediction)
        elif self.least_sure is None:
            emit(self.kind.line(prediction))

    def _keep(self, prediction: Prediction) -> None:
        self.collected.append(self.kind.json(prediction))

    def _json_lines(self) -> str:
        return "".join(json_text(fields) + "\n" for fields in self.collected)

    def _conll(self) -> str:
        usable = [fields for fields in self.collected if fields["error"] is None]
        return format_conll([fields["words"] for fields in usable], [fields["tags"] for fields in usable])

    def as_dict(self) -> Any:
        """The JSON output."""
        return self.kind.as_dict(self)

    def summary(self) -> str:
        """The number of predictions, and the file they were written to."""
        return f"{self.kind.summary(self)}: {self.out}"

    def notes(self) -> Iterator[str]:
        """Notes about the predictions."""
        if message := rejected_message(self.rejected):
            yield message
        yield from self.kind.notes(self)


# --- --keep-table: the user's table with the predictions appended ---------------------------------


KEEP_TABLE = "--keep-table"
TABLES = (".csv", ".tsv")


@dataclass(frozen=True)
class TableFormat:
    """The format of a CSV or TSV file, to write it again in the same format."""

    names: tuple[str, ...]  # of the columns, in order
    delimiter: str
    mark: bool  # whether it begins with a byte order mark
    encoding: str = "utf-8"
    line_end: str = "\n"
    pair: tuple[str, str] | None = None  # for pairs: the columns of the first and second texts

    @contextmanager
    def writing(
        self, out: Path, texts: Sequence[str], new_columns: Sequence[str]
    ) -> Iterator[Callable[..., None]]:
        """Context that yields a function to write a row and a value for each of ``new_columns``; atomic.

        The table's own names and cells are written unchanged, with no apostrophe before ``=`` or ``@``;
        those of ``new_columns`` get one, as in every CSV file that glassformer writes.
        """
        heads = list(new_columns)
        while any(taken := [head in self.names for head in heads]):
            heads = [f"model:{head}" if clash else head for head, clash in zip(heads, taken, strict=True)]
        guard = cell_writer(self.names)
        options: dict[str, Any] = {"encoding": self.encoding, "line_end": self.line_end, "mark": self.mark}
        with table_file(out, delimiter=self.delimiter, **options) as writer:
            writer.writerow([*self.names, *map(csv_safe, heads)])

            def write(row: Row, values: Sequence[Any]) -> None:
                row_cells = row.other_columns | dict(zip(texts, _sides(row.text), strict=False))
                cells = [guard(row_cells.get(name, "")) for name in self.names]
                writer.writerow([*cells, *map(csv_safe, values)])

            yield write

    def with_pairs(self, sides: Any) -> TableFormat:
        """A copy for pairs of texts in the given columns."""
        return replace(self, pair=(sides.first, sides.second))

    def texts(self, layout: Layout) -> list[str]:
        """The text columns: those of the pair, or all that are not the user's other columns."""
        return list(self.pair or (name for name in self.names if name not in layout.columns))


def table_format(files: Sequence[str], out: Path | None) -> TableFormat:
    """The format of the given table."""
    path = Path(files[0])
    if out is None:
        raise BadValueError("needs an output file", where=KEEP_TABLE, fix="Add --out FILE.csv")
    if len(files) != 1 or path.suffix.lower() not in TABLES or not path.is_file():
        problem, fix = "needs one CSV or TSV file", f"Give --data FILE.csv --out FILE.csv {KEEP_TABLE}"
        raise BadValueError(problem, where=KEEP_TABLE, fix=fix)
    delimiter = detect_delimiter(path, ESCAPE)
    _, names = next(read_records(path, delimiter, lambda error, row: None, ESCAPE), (0, []))
    if len(names) > MOST_COLUMNS:
        problem = f"{len(names)} columns, at most {MOST_COLUMNS} are kept"
        fix = "Leave it out, or cut the table to the columns you need"
        raise ConfigError(problem, where=KEEP_TABLE, fix=fix)
    with path.open("rb") as file:
        has_mark = file.read(3) == b"\xef\xbb\xbf"
    first_line = next(text_lines(path, newline="", errors=ESCAPE), "\n")
    line_end = first_line[len(first_line.rstrip("\r\n")) :] or "\n"
    encoding = encoding_of(path)
    return TableFormat(tuple(names), delimiter, has_mark, "utf-8" if encoding == UTF8 else encoding, line_end)


def _sides(text: Any) -> tuple[str, ...]:
    return getattr(text, "sides", None) or (text,)


# --- --least-sure N: the predictions that a person should check first ------------------------------


LEAST_SURE = "--least-sure"
MAX_LISTED = 10_000


@dataclass
class LeastSure:
    """Collects the ``count`` predictions with the lowest probability; earlier rows win ties."""

    count: int
    _heap: list[tuple[float, int, dict[str, Any]]] = field(default_factory=list)
    _count_seen: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_LISTED:
            raise ConfigError(f"{self.count} rows", where=LEAST_SURE, fix=f"Use 1 to {MAX_LISTED:,}")

    def add(self, prediction: Prediction, classes: Sequence[Any]) -> None:
        """Add a prediction of a model with these classes; rows without a prediction are ignored."""
        if prediction.fields is None:
            return
        self._count_seen += 1
        row, probability = prediction.row, prediction.fields["probability"]
        key = (
            -float(probability),
            -self._count_seen,
        )  # the smallest key belongs to the most confident entry of the heap
        if len(self._heap) == self.count and key <= self._heap[0][:2]:
            return
        probabilities = np.asarray(prediction.fields["probabilities"])
        first, second = np.argsort(-probabilities, kind="stable")[:2].tolist()
        entry = {
            "file": row.file or None,
            "row": row.row if row.row is not None else self._count_seen,
            "text": row.text,
            "label": prediction.fields["label"],
            "probability": float(probability),
            "likeliest": [[classes[k], float(probabilities[k])] for k in (first, second)],
        }
        push = heapq.heappush if len(self._heap) < self.count else heapq.heapreplace
        push(self._heap, (*key, entry))

    def predictions(self) -> list[dict[str, Any]]:
        """The collected predictions, the least confident first."""
        return [entry for _, _, entry in sorted(self._heap, key=lambda item: (-item[0], -item[1]))]

    def show(self, noun: str) -> None:
        """Print a table: the row, its two most probable labels, and its text."""
        rows = [
            [
                str(f["row"]),
                *(f"{label} {share:.3f}" for label, share in f["likeliest"]),
                excerpt(str(f["text"]), 60),
            ]
            for f in self.predictions()
        ]
        title = f"the {len(rows):,} least confident of {self._count_seen:,} {noun}"
        show_table(title, ("row", "most likely", "second", "text"), rows, right=("row",))

    def notes(self, run: str) -> Iterator[str]:
        """A hint on how to abstain on such predictions."""
        yield (
            f"to predict no label at low confidence: glassformer calibrate {run} shows the effect of each "
            "threshold, and --abstain-below P sets one"
        )
