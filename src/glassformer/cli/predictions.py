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
from glassformer.data.tables import delimiter_of, whole_records
from glassformer.data.tagged import conll
from glassformer.data.text_pairs import SECOND_CELL, TextPair, second_of
from glassformer.errors import BadValueError, ConfigError, NotForThisModelError, with_article
from glassformer.evaluate.predictions import HEADER as LABEL_HEADER
from glassformer.evaluate.predictions import NUMBER_HEADER, cells_of, label_cells, number_cells, table_file
from glassformer.finite import json_text
from glassformer.inputs.rows import MOST_COLUMNS, Layout, Row, copied_columns, rejected_message
from glassformer.outputs import check_new_file, write_text
from glassformer.tasks.catalog import TASKS


class Prediction(NamedTuple):
    """One input and its prediction."""

    row: Row
    found: Mapping[str, Any] | None  # JSON field -> value; None: see ``row.error``


def _shown(text: Any) -> str:
    """A text in a line: shortened on a terminal, complete in a pipe."""
    return excerpt(text) if sys.stdout.isatty() else one_line(text)


# --- kinds of predictions -------------------------------------------------------------------------


class Labels:
    """The label (for multi-label: the labels) of each text, pair of texts or image."""

    ENDS, WRITTEN_AS, FIX = (".csv",), "predictions are written as CSV", "Give --out a name that ends in"
    LINE_END = "\r\n"
    BEHIND: tuple[str, ...] = ("predicted", "probability")  # columns that --keep-table appends
    KEYS: tuple[str, ...] = ("label", "probability", "probabilities")  # JSON fields
    classes: list[Any] | None = None

    def __init__(self, model: Any, layout: Layout, coverage: float | None = None):
        self.model, self.layout, self.noun = model, layout, model.NOUN
        self.truncated = self.abstained = 0
        self.own = self._own(coverage)
        self.second = [SECOND_CELL] if layout.pairs else []
        self.beside = copied_columns(layout, (*self.own[:7], "error", "file", *self.second))

    def _own(self, coverage: float | None) -> list[str]:
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
        assert answer is not None, "other models were refused before"
        labels, shares = answer(self.model, outputs)
        self.abstained += sum(label is None for label in labels)
        if self.model.inputs.can_be_cut:
            self.truncated += int(self.model.truncated(inputs).sum())
        return self._found(labels, shares, outputs)

    def _found(self, labels: Any, shares: Any, outputs: Any) -> Iterator[dict[str, Any]]:
        for label, share, each in zip(labels, shares, outputs, strict=True):
            yield {"label": label, "probability": share, "probabilities": each}

    def header(self) -> list[str]:
        """The columns of the table."""
        return [*self.own, *self.second, *self.beside, *(["error"] if self.layout.errors else [])]

    def records(self, one: Prediction, number: int) -> Iterator[list[Any]]:
        """The rows of the table for prediction number ``number``."""
        row = one.row
        predicted, cells = self._cells(one.found)
        second = [second_of(row.text) if isinstance(row.text, TextPair) else ""] if self.second else []
        others = [*second, *(cell(row) for cell in self.beside.values()), *self.error(row)]
        yield [*cells_of(row.text, predicted, cells, row=row.row), *map(csv_safe, others)]

    def error(self, row: Row) -> list[str]:
        """The reason why a row has no prediction, if the table has a column for it."""
        return [row.error or ""] if self.layout.errors else []

    def _cells(self, found: Mapping[str, Any] | None) -> tuple[Any, list[str]]:
        """The prediction, and the cells after it."""
        if found is None:
            return None, [""] * (1 + len(self.classes or ()))
        return found["label"], label_cells(found["probability"], found["probabilities"])

    def behind(self, one: Prediction) -> list[Any]:
        """The cells that --keep-table appends."""
        if one.found is None:
            return [""] * len(self.BEHIND)
        predicted, cells = self._cells(one.found)
        return ["" if predicted is None else predicted, *cells[: len(self.BEHIND) - 1]]

    def line(self, one: Prediction) -> str:
        """The line of a prediction on a terminal."""
        if one.found is None:
            return f"\t\t{_shown(one.row.text)}"
        label, share = one.found["label"], one.found["probability"]
        return f"{'' if label is None else one_line(label)}\t{share:.4f}\t{_shown(one.row.text)}"

    def json(self, one: Prediction) -> dict[str, Any]:
        """The JSON object of a prediction."""
        place = {"text": one.row.text, "file": one.row.file or None, "row": one.row.row}
        return place | dict.fromkeys(self.KEYS) | dict(one.found or {}) | {"error": one.row.error}

    def as_dict(self, written: Writer) -> Any:
        """The JSON output: the predictions, or the file they were written to; and their number."""
        counts = {
            "examples": written.count,
            "without_answer": len(written.rejected),
            "truncated": self.truncated,
            **({"abstained": self.abstained} if self.abstained else {}),
            **({} if written.least is None else {"least_sure": written.least.found()}),
        }
        if written.out is not None:
            return {"out": written.out, **counts}
        known = {} if self.classes is None else {"classes": self.classes}
        return {**known, "answers": written.kept_back, **counts}

    def said(self, written: Writer) -> str:
        """A summary of what was written."""
        return f"{written.count:,} {self.noun}"

    def notes(self, written: Writer) -> Iterator[str]:
        """Notes about the predictions."""
        if abstained := self.abstained:
            what = f"{abstained:,} of {written.good:,} {self.noun} got no label"
            yield f"{what}: the model abstains below a probability of {self.model.abstain_below_:g}"
        if cut := self.truncated:
            length = self.model.max_length
            yield f"{cut:,} of {written.good:,} texts are longer than {length} tokens and were cut there"


class Numbers(Labels):
    """One number per input, with an interval unless too few examples were held out."""

    BEHIND, KEYS = ("predicted", "low", "high"), ("number", "interval")
    USUAL = 0.9  # default coverage of the intervals

    def _own(self, coverage: float | None) -> list[str]:
        """Our columns; raises ConfigError if there are too few held-out examples for the coverage."""
        from glassformer.targets.regression import examples_needed

        self.coverage = self.USUAL if coverage is None else coverage
        if coverage is not None:
            self.model.interval([1.0], coverage)  # raises if examples are missing
        self.able = len(self.model.errors_) >= examples_needed(self.coverage)
        return [*NUMBER_HEADER]

    def _found(self, labels: Any, shares: Any, outputs: Any) -> Iterator[dict[str, Any]]:
        bounds = self.model.interval(labels, self.coverage).tolist() if self.able else [None] * len(labels)
        for number, inside in zip(labels, bounds, strict=True):
            yield {"number": number, "interval": inside}

    def _cells(self, found: Mapping[str, Any] | None) -> tuple[Any, list[str]]:
        if found is None:
            return None, ["", ""]
        return repr(float(found["number"])), number_cells(found["interval"])

    def line(self, one: Prediction) -> str:
        if one.found is None:
            return f"\t\t{_shown(one.row.text)}"
        shown, ends = self.model.kind_.shown, one.found["interval"]
        inside = "" if ends is None else f"{shown(ends[0])} to {shown(ends[1])}"
        return f"{shown(one.found['number'])}\t{inside}\t{_shown(one.row.text)}"

    def as_dict(self, written: Writer) -> Any:
        return super().as_dict(written) | {"coverage": self.coverage if self.able else None}

    def notes(self, written: Writer) -> Iterator[str]:
        from glassformer.targets.regression import examples_needed

        yield from super().notes(written)
        if not self.able:
            held, needed = len(self.model.errors_), examples_needed(self.coverage)
            yield f"no intervals: {held} examples were held out, {self.coverage:.0%} intervals need {needed}"


class _Told:
    """Base for tags and answers to questions: predictions that the task returns as records."""

    ENDS: tuple[str, ...]
    HEADER: tuple[str, ...]
    TAKEN: tuple[str, ...] = ()  # names that the user's columns may not have; empty: those of HEADER
    FIX, LINE_END, classes = "End --out with", "\n", None

    def __init__(self, model: Any, layout: Layout, coverage: float | None = None):
        self.model, self.layout, self.noun = model, layout, model.NOUN
        self.beside = copied_columns(layout, self.TAKEN or self.HEADER)

    def predict(self, inputs: Sequence[Any], progress: Callable[[int], None]) -> Iterator[dict[str, Any]]:
        records_of = TASKS[self.model.RECIPE.task].predict_records
        assert records_of is not None, "other models were refused before"
        yield from records_of(self.model, inputs)
        progress(len(inputs))

    def header(self) -> list[str]:
        return [*self.HEADER, *self.beside]

    def json(self, one: Prediction) -> dict[str, Any]:
        return {"row": one.row.row, "error": one.row.error} | self._beside(one) | dict(one.found or {})

    def _beside(self, one: Prediction) -> dict[str, str]:
        return {name: cell(one.row) for name, cell in self.beside.items()}

    def notes(self, written: Writer) -> Iterator[str]:
        """No notes."""
        yield from ()


class Tags(_Told):
    """The spans in each sentence: one row per span in a table, otherwise one line per sentence."""

    ENDS, WRITTEN_AS = (".jsonl", ".csv", ".conll"), "spans are written as JSON Lines, CSV or CoNLL"
    HEADER = ("row", "text", "kind", "start", "end", "first", "last", "probability", "sentence", "error")

    TAKEN = (*HEADER, "words", "tags", "spans")

    def __init__(self, model: Any, layout: Layout, coverage: float | None = None):
        super().__init__(model, layout)
        self.spans = 0

    def predict(self, inputs: Sequence[Any], progress: Callable[[int], None]) -> Iterator[dict[str, Any]]:
        for found in super().predict(inputs, progress):
            self.spans += len(found["spans"])
            yield found

    def records(self, one: Prediction, number: int) -> Iterator[list[Any]]:
        """The rows of the table for sentence number ``number``: one per span."""
        row, others = one.row.row or number, self._beside(one).values()
        keys = self.HEADER[1:-2]
        if one.found is None:
            yield [csv_safe(cell) for cell in (row, *[""] * len(keys), "", one.row.error, *others)]
            return
        for span in one.found["spans"]:
            cells = [row, *(span[key] for key in keys), one.found["text"], "", *others]
            yield [csv_safe(cell) for cell in cells]

    def line(self, one: Prediction) -> str:
        if one.found is None:
            return "\t"
        spans = (f"{one_line(s['text'])} ({s['kind']} {s['probability']:.4f})" for s in one.found["spans"])
        return f"{', '.join(spans)}\t{_shown(one.found['text'])}"

    def as_dict(self, written: Writer) -> Any:
        if written.out is None:
            return written.kept_back
        return {self.noun: written.good, "spans": self.spans, "out": written.out}

    def said(self, written: Writer) -> str:
        return f"{written.good:,} {self.noun}, {self.spans:,} spans"


class Answers(_Told):
    """The answer to each question, a span of its context."""

    ENDS, WRITTEN_AS = (".jsonl", ".csv"), "answers are written as JSON Lines or CSV"
    HEADER = ("row", "question", "answer", "start", "end", "probability", "context", "error")

    def json(self, one: Prediction) -> dict[str, Any]:
        """The JSON fields of a prediction, the user's columns last."""
        found = super().json(one)
        return {name: found[name] for name in found if name not in self.beside} | self._beside(one)

    def records(self, one: Prediction, number: int) -> Iterator[list[Any]]:
        found = self.json(one)
        yield [csv_safe(found.get(name, "")) for name in self.header()]

    def line(self, one: Prediction) -> str:
        if one.found is None:
            return "\t\t"
        answer = one_line(one.found["answer"]) or NO_ANSWER
        return f"{answer}\t{one.found['probability']:.4f}\t{_shown(one.found['question'])}"

    def as_dict(self, written: Writer) -> Any:
        return written.kept_back if written.out is None else {"questions": written.count, "out": written.out}

    def said(self, written: Writer) -> str:
        return f"{written.count:,} questions"


Kind = Labels | Tags | Answers
KINDS: dict[str, type[Kind]] = {"labels": Labels, "numbers": Numbers, "tags": Tags, "answers": Answers}


def kind_in(folder: Path) -> type[Kind]:
    """The kind of prediction of the model in a folder; labels if the folder does not state it."""
    from glassformer.tasks.load import describe

    task = describe(folder).task
    if task is None:
        return Labels
    if task.gives not in KINDS:
        what = f"holds {with_article(task.estimator.__name__)}, which gives no labels"
        raise NotForThisModelError(what, where=str(folder), fix=asked_by(task))
    return KINDS[task.gives]


def asked_by(task: Any) -> str:
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

    With ``kept``, ``out`` is that table with the predictions appended; ``least`` shows only its table.
    """

    def __init__(
        self,
        kind: Kind,
        out: Path | None = None,
        json: bool = False,
        kept: TableFormat | None = None,
        least: LeastSure | None = None,
    ):
        self.kind, self.out, self.json, self.kept, self.least = kind, out, json, kept, least
        self.count = self.good = 0
        self.rejected: list[Any] = []
        self.kept_back: list[dict[str, Any]] = []  # predictions for JSON
        self._put: Callable[[Prediction], None] = self._on_terminal

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Context for all calls of ``add``: the file is written completely at its end, or not at all."""
        kind, out = self.kind, self.out
        ending = "" if out is None else out.suffix.lower()
        if out is None:
            yield
        elif self.kept is not None:
            assert isinstance(kind, Labels), "other kinds were refused before"
            errors = ["error"] if kind.layout.errors else []
            with self.kept.written(out, self.kept.texts(kind.layout), [*kind.BEHIND, *errors]) as write:
                self._put = lambda one: write(one.row, [*kind.behind(one), *kind.error(one.row)])
                yield
        elif ending == ".csv":
            with table_file(out, line_end=kind.LINE_END) as table:
                table.writerow(map(csv_safe, kind.header()))
                self._put = lambda one: table.writerows(kind.records(one, self.count))
                yield
        else:
            self._put = self._keep
            yield
            write_text(out, self._conll() if ending == ".conll" else self._json_lines())

    def add(self, rows: Sequence[Row], progress: Callable[[int], None]) -> None:
        """Predict for some rows, and write what was predicted."""
        inputs = [row.words or row.text for row in rows if row.error is None]
        found = iter(self.kind.predict(inputs, progress) if inputs else ())
        self.good += len(inputs)
        for row in rows:
            self.count += 1
            one = Prediction(row, next(found) if row.error is None else None)
            if row.error is not None:
                self.rejected.append(RejectedRow(row.file, row.row or self.count, row.error))
            if self.least is not None:
                self.least.add(one, self.kind.classes or ())
            self._put(one)

    def _on_terminal(self, one: Prediction) -> None:
        if self.json:
            self._keep(one)
        elif self.least is None:
            emit(self.kind.line(one))

    def _keep(self, one: Prediction) -> None:
        self.kept_back.append(self.kind.json(one))

    def _json_lines(self) -> str:
        return "".join(json_text(found) + "\n" for found in self.kept_back)

    def _conll(self) -> str:
        good = [found for found in self.kept_back if found["error"] is None]
        return conll([found["words"] for found in good], [found["tags"] for found in good])

    def as_dict(self) -> Any:
        """The JSON output."""
        return self.kind.as_dict(self)

    def said(self) -> str:
        """A line on what was written, and where."""
        return f"{self.kind.said(self)}: {self.out}"

    def notes(self) -> Iterator[str]:
        """Notes about the predictions."""
        if missing := rejected_message(self.rejected):
            yield missing
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
    def written(self, out: Path, texts: Sequence[str], ours: Sequence[str]) -> Iterator[Callable[..., None]]:
        """Context that yields a function to write a row and a value for each of ``ours``; atomic.

        The table's own names and cells are written unchanged, with no apostrophe before ``=`` or ``@``;
        those of ``ours`` get one, as in every CSV file that glassformer writes.
        """
        heads = list(ours)
        while any(taken := [head in self.names for head in heads]):
            heads = [f"model:{head}" if own else head for head, own in zip(heads, taken, strict=True)]
        guard = cell_writer(self.names)
        how: dict[str, Any] = {"encoding": self.encoding, "line_end": self.line_end, "mark": self.mark}
        with table_file(out, delimiter=self.delimiter, **how) as writer:
            writer.writerow([*self.names, *map(csv_safe, heads)])

            def write(row: Row, values: Sequence[Any]) -> None:
                own = row.other_columns | dict(zip(texts, _sides(row.text), strict=False))
                cells = [guard(own.get(name, "")) for name in self.names]
                writer.writerow([*cells, *map(csv_safe, values)])

            yield write

    def with_pairs(self, sides: Any) -> TableFormat:
        """A copy for pairs of texts in the given columns."""
        return replace(self, pair=(sides.first, sides.second))

    def texts(self, layout: Layout) -> list[str]:
        """The text columns: those of the pair, or all that are not the user's other columns."""
        return list(self.pair or (name for name in self.names if name not in layout.columns))


def table_format(given: Sequence[str], out: Path | None) -> TableFormat:
    """The format of the given table."""
    path = Path(given[0])
    if out is None:
        raise BadValueError("needs an output file", where=KEEP_TABLE, fix="Add --out FILE.csv")
    if len(given) != 1 or path.suffix.lower() not in TABLES or not path.is_file():
        what, fix = "needs one CSV or TSV file", f"Give --data FILE.csv --out FILE.csv {KEEP_TABLE}"
        raise BadValueError(what, where=KEEP_TABLE, fix=fix)
    delimiter = delimiter_of(path, ESCAPE)
    _, names = next(whole_records(path, delimiter, lambda error, row: None, ESCAPE), (0, []))
    if len(names) > MOST_COLUMNS:
        what = f"{len(names)} columns, at most {MOST_COLUMNS} are kept"
        fix = "Leave it out, or cut the table to the columns you need"
        raise ConfigError(what, where=KEEP_TABLE, fix=fix)
    with path.open("rb") as file:
        marked = file.read(3) == b"\xef\xbb\xbf"
    first = next(text_lines(path, newline="", errors=ESCAPE), "\n")
    line_end = first[len(first.rstrip("\r\n")) :] or "\n"
    encoding = encoding_of(path)
    return TableFormat(tuple(names), delimiter, marked, "utf-8" if encoding == UTF8 else encoding, line_end)


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
    _seen: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_LISTED:
            raise ConfigError(f"{self.count} rows", where=LEAST_SURE, fix=f"Use 1 to {MAX_LISTED:,}")

    def add(self, one: Prediction, classes: Sequence[Any]) -> None:
        """Add a prediction of a model with these classes; rows without a prediction are ignored."""
        if one.found is None:
            return
        self._seen += 1
        row, share = one.row, one.found["probability"]
        key = (-float(share), -self._seen)  # the smallest key is the most confident of the kept
        if len(self._heap) == self.count and key <= self._heap[0][:2]:
            return
        own = np.asarray(one.found["probabilities"])
        first, second = np.argsort(-own, kind="stable")[:2].tolist()
        found = {
            "file": row.file or None,
            "row": row.row if row.row is not None else self._seen,
            "text": row.text,
            "label": one.found["label"],
            "probability": float(share),
            "likeliest": [[classes[k], float(own[k])] for k in (first, second)],
        }
        push = heapq.heappush if len(self._heap) < self.count else heapq.heapreplace
        push(self._heap, (*key, found))

    def found(self) -> list[dict[str, Any]]:
        """The collected predictions, the least confident first."""
        return [found for _, _, found in sorted(self._heap, key=lambda kept: (-kept[0], -kept[1]))]

    def show(self, noun: str) -> None:
        """Print a table: the row, its two most probable labels, and its text."""
        rows = [
            [
                str(f["row"]),
                *(f"{label} {share:.3f}" for label, share in f["likeliest"]),
                excerpt(str(f["text"]), 60),
            ]
            for f in self.found()
        ]
        title = f"the {len(rows):,} least confident of {self._seen:,} {noun}"
        show_table(title, ("row", "most likely", "second", "text"), rows, right=("row",))

    def notes(self, run: str) -> Iterator[str]:
        """A hint on how to abstain on such predictions."""
        yield (
            f"to predict no label at low confidence: glassformer calibrate {run} shows the effect of each "
            "threshold, and --abstain-below P sets one"
        )
