"""What ``glassformer predict`` does with answers: lines, a table or JSON, all at once or piece by piece."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from glassformer.cli.kept_table import KeptTable
from glassformer.cli.least_sure import LeastSure
from glassformer.cli.output import emit, excerpt, one_line
from glassformer.cli.rows import (
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
from glassformer.errors import DataError
from glassformer.reading import Unchanged

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
