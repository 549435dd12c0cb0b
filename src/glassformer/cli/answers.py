"""What ``glassformer predict`` does with answers: lines, a table or JSON, all at once or piece by piece."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.cli.output import emit, excerpt, one_line, show_table
from glassformer.cli.rows import (
    MOST_COLUMNS,
    Layout,
    Row,
    carried,
    others_of,
    refusal,
    row_of,
    said_of,
    unreadable_row,
    usable,
)
from glassformer.errors import ConfigError, DataError
from glassformer.reading import Unchanged

# --- --keep-table ---------------------------------------------------------------------------------
#
# One's own table with the answers behind.


KEEP_TABLE = "--keep-table"
ENDS = (".csv", ".tsv")


@dataclass(frozen=True)
class KeptTable:
    """How a table of delimited text is written, so that it can be written again."""

    names: tuple[str, ...]  # of its columns, in their order
    delimiter: str
    mark: bool  # whether it begins with a byte order mark
    encoding: str = "utf-8"
    line_end: str = "\n"
    pair: tuple[str, str] | None = None  # the columns of the first and second texts, of pairs

    @contextmanager
    def written(self, out: Path, texts: Sequence[str], ours: Sequence[str]) -> Iterator[Callable[..., None]]:
        """What takes rows and a value for each of ``ours``; the file appears whole at the end.

        The table's own names and cells are written as they are, with no apostrophe before ``=`` or ``@``;
        those of ``ours`` are guarded as in every CSV file of ours.

        Args:
            texts: the columns of the texts, of pairs both.
            ours: the columns behind; one whose name is taken is called ``model:NAME``.
        """
        from glassformer.data.spreadsheet import csv_safe, guard_under
        from glassformer.evaluate.predictions import table_file

        heads = list(ours)
        while any(taken := [head in self.names for head in heads]):
            heads = [f"model:{head}" if own else head for head, own in zip(heads, taken, strict=True)]
        guard = guard_under(self.names)
        how: dict[str, Any] = {"encoding": self.encoding, "line_end": self.line_end, "mark": self.mark}
        with table_file(out, delimiter=self.delimiter, **how) as writer:
            writer.writerow([*self.names, *map(csv_safe, heads)])

            def write(rows: Sequence[Row], values: Sequence[Sequence[Any]]) -> None:
                for row, found in zip(rows, values, strict=True):
                    own = row.given | dict(zip(texts, _sides(row.text), strict=False))
                    cells = [guard(own.get(name, "")) for name in self.names]
                    writer.writerow([*cells, *map(csv_safe, found)])

            yield write

    def texts(self, layout: Layout) -> list[str]:
        """The columns of the texts: those of the pair, else what is none of the user's other columns."""
        return list(self.pair or (name for name in self.names if name not in layout.columns))


def kept_table(given: Sequence[str], out: Path | None) -> KeptTable:
    """The one table that is given.

    Raises:
        ConfigError: it is no single CSV or TSV file, has too many columns, or there is no ``--out``.
        DataError: it cannot be read.
    """
    path = Path(given[0])
    if out is None or len(given) != 1 or path.suffix.lower() not in ENDS or not path.is_file():
        what, fix = "is about one CSV or TSV file", f"Give --data FILE.csv --out FILE.csv {KEEP_TABLE}"
        raise ConfigError(what, where=KEEP_TABLE, fix=fix)
    from glassformer.data.csv_format import delimiter_of
    from glassformer.data.files import ESCAPE, UTF8, encoding_of, text_lines
    from glassformer.data.tables import whole_records

    delimiter = delimiter_of(path, ESCAPE)
    _, names = next(whole_records(path, delimiter, lambda error, row: None, ESCAPE), (0, []))
    if len(names) > MOST_COLUMNS:
        what = f"{len(names)} columns, at most {MOST_COLUMNS} are kept"
        raise ConfigError(
            what, where=KEEP_TABLE, fix="Leave it out, or cut the table to the columns you need"
        )
    with path.open("rb") as file:
        marked = file.read(3) == b"\xef\xbb\xbf"
    first = next(text_lines(path, newline="", errors=ESCAPE), "\n")
    line_end = first[len(first.rstrip("\r\n")) :] or "\n"
    encoding = encoding_of(path)
    return KeptTable(tuple(names), delimiter, marked, "utf-8" if encoding == UTF8 else encoding, line_end)


def _sides(text: Any) -> tuple[str, ...]:
    return getattr(text, "sides", None) or (text,)


# --- --least-sure N -------------------------------------------------------------------------------
#
# The answers that a person should look at first.


LEAST_SURE = "--least-sure"
MOST = 10_000  # rows that one look can hold


@dataclass
class LeastSure:
    """The ``count`` answers whose label is least probable; of equal ones the earlier rows.

    Raises:
        ConfigError: a count that cannot be.
    """

    count: int
    classes: Sequence[Any]
    _heap: list[tuple[float, int, dict[str, Any]]] = field(default_factory=list)
    _seen: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST:
            raise ConfigError(f"{self.count} rows", where=LEAST_SURE, fix=f"Use 1 to {MOST:,}")

    def add(self, rows: Sequence[Row], labels: Sequence[Any], shares: Sequence[float], p: Any) -> None:
        """Answered rows ``[m]``, their labels (None: it abstains), how sure each is, and ``[m, K]``."""
        chances = np.asarray(p)
        for row, label, share, own in zip(rows, labels, shares, chances, strict=True):
            self._seen += 1
            key = (-float(share), -self._seen)  # of the kept, the smallest is the surest
            if len(self._heap) == self.count and key <= self._heap[0][:2]:
                continue
            first, second = np.argsort(-own, kind="stable")[:2].tolist()
            found = {
                "file": row.file or None,
                "row": row.row if row.row is not None else self._seen,
                "text": row.text,
                "label": label,
                "probability": float(share),
                "likeliest": [[self.classes[k], float(own[k])] for k in (first, second)],
            }
            push = heapq.heappush if len(self._heap) < self.count else heapq.heapreplace
            push(self._heap, (*key, found))

    def found(self) -> list[dict[str, Any]]:
        """The least sure first."""
        return [found for _, _, found in sorted(self._heap, key=lambda kept: (-kept[0], -kept[1]))]

    def show(self, noun: str) -> None:
        """A table: the row, its two likeliest labels, and its text."""
        rows = [
            [
                str(f["row"]),
                *(f"{label} {share:.3f}" for label, share in f["likeliest"]),
                excerpt(str(f["text"]), 60),
            ]
            for f in self.found()
        ]
        title = f"the {len(rows):,} least sure of {self._seen:,} {noun}"
        show_table(title, ("row", "likeliest", "then", "text"), rows, right=("row",))

    def notes(self, run: str) -> Iterator[str]:
        """How such answers are left out."""
        yield (
            f"to give no label to the doubtful: glassformer calibrate {run} shows what each limit leaves, "
            "and --abstain-below P sets one"
        )


# --- answers --------------------------------------------------------------------------------------


LARGE = 4 << 20  # bytes; a file from here on is read piece by piece
PIECE = 4096  # rows


def answered(clf: Any, probabilities: Any) -> tuple[list[Any], list[float]]:
    """The label of each row of probabilities ``[n, K]``, and that label's own probability."""
    from glassformer.tasks.catalog import TASKS

    answer = TASKS[clf.RECIPE.task].answer
    assert answer is not None, "what gives no labels is refused before"
    return answer(clf, probabilities)


class Answers:
    """Answers on their way to the terminal, into ``out`` or into JSON.

    Args:
        out: a CSV file that is not there; None: a line each on the terminal, or JSON.
        layout: of all rows together.
        json: for ``to_dict``; nothing is printed.

    ``kept`` may be set to the table that is given: then ``out`` is that table, and the answers stand behind.
    """

    kept: KeptTable | None = None
    least: LeastSure | None = None  # where set, its table takes the place of lines on the terminal
    BEHIND = ("predicted", "probability")  # what ``_behind`` gives for a row

    def __init__(self, clf: Any, out: Path | None, layout: Layout, json: bool = False):
        self.clf, self.out, self.layout, self.json = clf, out, layout, json
        self.count = self.good = self.truncated = self.abstained = 0
        self.rejected: list[Any] = []
        self.found: list[dict[str, Any]] = []
        self._write: Callable[..., None] | None = None

    @contextmanager
    def written(self) -> Iterator[None]:
        """Around all ``add``: the file appears whole at its end, or not at all."""
        from glassformer.data.text_pairs import SECOND_CELL
        from glassformer.evaluate.predictions import HEADER, predictions_file

        if self.out is None:
            yield
            return
        if self.kept is not None:
            with self._own_table() as self._write:
                yield
            return
        second = (SECOND_CELL,) if self.layout.pairs else ()
        self._taken = (*HEADER, "error", "file", *second)
        names = [
            *second,
            *others_of([], self._taken, self.layout),
            *(["error"] if self.layout.errors else []),
        ]
        with predictions_file(self.out, self.clf.classes_.tolist(), names) as self._write:
            yield

    def add(self, rows: Sequence[Row], probabilities: Any) -> None:
        """Some rows, and the probabilities ``[m, K]`` of those without an error."""
        from glassformer.data.rejected import RejectedRow

        texts = [row.text for row in rows if row.error is None]
        labels, shares = answered(self.clf, probabilities) if texts else ([], [])
        self.abstained += sum(label is None for label in labels)
        if self.least is not None and texts:
            good = [row for row in rows if row.error is None]
            self.least.add(good, labels, shares, probabilities)
        for i, row in enumerate(rows, self.count + 1):
            if row.error is not None:
                self.rejected.append(RejectedRow(row.file, row.row or i, row.error))
        self.count, self.good = self.count + len(rows), self.good + len(texts)
        if self.clf.NOUN == "texts" and texts:
            self.truncated += int(self.clf.truncated(texts).sum())
        if self._write is not None and self.kept is not None:
            behind = iter(self._behind(labels, shares))
            missing = [""] * len(self.BEHIND)
            cells = [[*(next(behind) if row.error is None else missing)] for row in rows]
            errors = [[row.error or ""] if self.layout.errors else [] for row in rows]
            self._write(rows, [[*own, *why] for own, why in zip(cells, errors, strict=True)])
        elif self._write is not None:
            self._to_file(self._write, rows, labels, shares, probabilities)
        elif self.json:
            self._keep(rows, labels, shares, probabilities)
        elif self.least is None:
            self._show(rows, labels, shares)

    def _own_table(self) -> Any:
        assert self.kept is not None
        assert self.out is not None
        texts = self.kept.texts(self.layout)
        return self.kept.written(self.out, texts, [*self.BEHIND, *(["error"] if self.layout.errors else [])])

    def _behind(self, labels: Sequence[Any], shares: Sequence[float]) -> Iterator[Sequence[Any]]:
        """The cells of ``BEHIND`` for each answer."""
        for label, share in zip(labels, shares, strict=True):
            yield "" if label is None else label, f"{share:.6g}"

    def _to_file(
        self, write: Callable[..., None], rows: Sequence[Row], labels: Any, shares: Sequence[float], p: Any
    ) -> None:
        """Row for row, the user's own columns behind ours, and why a row has no answer."""
        import numpy as np

        from glassformer.data.text_pairs import SECOND_CELL, TextPair, second_of

        answerable = [i for i, row in enumerate(rows) if row.error is None]
        whole = np.full((len(rows), len(self.clf.classes_)), np.nan)
        predicted: list[Any] = [None] * len(rows)
        sure: list[float | None] = [None] * len(rows)
        if answerable:
            whole[answerable] = p
        for i, label, share in zip(answerable, labels, shares, strict=True):
            predicted[i], sure[i] = label, share
        others = others_of(rows, self._taken, self.layout)
        if self.layout.pairs:
            second = [second_of(row.text) if isinstance(row.text, TextPair) else "" for row in rows]
            others = {SECOND_CELL: second} | others
        if self.layout.errors:
            others["error"] = [row.error or "" for row in rows]
        texts, numbers = [row.text for row in rows], [row.row for row in rows]
        write(texts, whole, predicted=predicted, rows=numbers, others=others, shares=sure)

    def _show(self, rows: Sequence[Row], labels: Sequence[Any], shares: Sequence[float]) -> None:
        answers = iter(zip(labels, shares, strict=True))
        for row in rows:
            shown = excerpt(row.text) if sys.stdout.isatty() else one_line(row.text)
            label, share = next(answers) if row.error is None else (None, None)
            said = "" if label is None else one_line(label)
            emit("\t\t" + shown if share is None else f"{said}\t{share:.4f}\t{shown}")

    def _keep(self, rows: Sequence[Row], labels: Sequence[Any], shares: Sequence[float], p: Any) -> None:
        answers = iter(zip(labels, shares, p, strict=True))
        for row in rows:
            label, share, each = next(answers) if row.error is None else (None, None, None)
            place = {"file": row.file or None, "row": row.row}
            found = {"label": label, "probability": share, "probabilities": each, "error": row.error}
            self.found.append({"text": row.text, **place, **found})

    def to_dict(self) -> dict[str, Any]:
        """For other programs: the answers, or where they were written; and how many there are."""
        counts = {
            "examples": self.count,
            "without_answer": len(self.rejected),
            "truncated": self.truncated,
            **({"abstained": self.abstained} if self.abstained else {}),
            **({} if self.least is None else {"least_sure": self.least.found()}),
        }
        if self.out is not None:
            return {"out": self.out, **counts}
        return {"classes": self.clf.classes_.tolist(), "answers": self.found, **counts}

    def notes(self) -> Iterator[str]:
        """What is worth knowing of them."""
        if missing := said_of(self.rejected):
            yield missing
        if unsure := self.abstained:
            what = f"{unsure:,} of {self.good:,} {self.clf.NOUN} got no label"
            yield f"{what}: its probability is below {self.clf.abstain_below_:g}, where the model abstains"
        if cut := self.truncated:
            length = self.clf.max_length
            yield f"{cut:,} of {self.good:,} texts are longer than {length} tokens and were cut there"


def large_file(given: Sequence[str]) -> Path | None:
    """The one file that is given, where it is large and of a kind that can be read piece by piece."""
    from glassformer.data.tables import STREAMED

    path = Path(given[0])
    one = len(given) == 1 and len(given[0]) < 4096 and path.suffix.lower() in STREAMED
    return path if one and path.is_file() and path.stat().st_size >= LARGE else None


class LargeFile:
    """The rows of a table in pieces of ``PIECE``, as ``read_rows`` gives them; memory does not grow with it.

    Every row is looked at before the first is answered, so that a bad one ends the work before it begins. A
    file that changes meanwhile ends it too: no answers of two tables come together.

    Args:
        text_column, usual, skip: as ``read_rows`` takes them.

    Raises:
        DataError: as ``read_rows``, no row can be used, or the file has changed since this was made.
    """

    def __init__(self, path: Path, text_column: str | None, usual: Sequence[str | None], skip: bool):
        self._unchanged = Unchanged(path)
        try:
            self._look(path, text_column, usual, skip)
        except DataError as error:
            if skip or not error.where or ", row " not in error.where:
                raise
            from glassformer.data.rejected import with_others

            with suppress(DataError):  # no row can be used
                self._look(path, text_column, usual, True)
            raise DataError(with_others(error.what, self.bad), where=error.where, fix=error.fix) from None
        self._unchanged.check()

    def _look(self, path: Path, text_column: str | None, usual: Sequence[str | None], skip: bool) -> None:
        """Go through the file once: its columns, and how many rows are good and bad."""
        from glassformer.data.columns import find_text
        from glassformer.data.tables import StreamedTable

        self.path, self.skip, self.bad = path, skip, 0
        self._ragged: dict[int, DataError] = {}
        self._table = StreamedTable(path, refusal(skip, self._ragged))
        self._text = find_text(self._table.sample(), text_column, usual)
        columns = tuple(carried([name for name in self._table.names if name != self._text]))
        self.layout = Layout(columns, False, False)
        self.good, self.bad, first = 0, 0, None
        for row in self._rows():
            self.good, self.bad = self.good + (row.error is None), self.bad + (row.error is not None)
            first = first or (row if row.error is not None else None)
        if first is not None and not self.good:
            usable([first])  # says so
        self.layout = Layout(columns, False, first is not None)

    def _rows(self) -> Iterator[Row]:
        ragged = iter(sorted(self._ragged.items()))
        waiting = next(ragged, None)
        for number, values in self._table.rows():
            while waiting is not None and waiting[0] < number:
                yield unreadable_row(self.path, *waiting, (self._text,), self._table.names)
                waiting = next(ragged, None)
            given = {name: values[name] for name in self.layout.columns}
            yield row_of(self.path, number, values[self._text], given, self.skip)
        while waiting is not None:
            yield unreadable_row(self.path, *waiting, (self._text,), self._table.names)
            waiting = next(ragged, None)

    def __iter__(self) -> Iterator[list[Row]]:
        piece: list[Row] = []
        for row in self._rows():
            piece.append(row)
            if len(piece) == PIECE:
                self._unchanged.check()
                yield piece
                piece = []
        self._unchanged.check()
        if piece:
            yield piece
