"""Questions on texts with their answers: SQuAD's JSON, JSON Lines, Parquet and CSV, or by name (``facts``).

A path is one file (it becomes ``train``), or a folder with a file a split: ``train.json``, ``dev.json`` ...

    .json            SQuAD 1.1 and 2.0: ``data``, ``paragraphs``, ``qas``; or an array of the rows below
    .jsonl .parquet  columns question, context, answers: ``{"text": [...], "answer_start": [...]}``
    .csv .tsv        columns question, context, answer; the place is found in the context, or is the number
                     in a column answer_start

No answer is an empty list or an empty cell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.config import listed, nearest
from glassformer.data import facts
from glassformer.data.checks import is_missing
from glassformer.data.dataset import SPLIT_OF, Split, choose_splits
from glassformer.data.files import text_lines
from glassformer.data.folders import one_or_parts, refuse_tables
from glassformer.data.questions import Answers, Question, check_answers, check_questions
from glassformer.data.rejected import RejectedRow, lenient_table, summary, way_out
from glassformer.data.splits import limited
from glassformer.data.spreadsheet import other_kind
from glassformer.data.tables import READERS, Table
from glassformer.errors import DataError

QUESTION_COLUMNS = ("question", "questions")
CONTEXT_COLUMNS = ("context", "passage", "paragraph", "text", "document")
ANSWER_COLUMNS = ("answers", "answer")
START_COLUMNS = ("answer_start", "start")
NESTED = re.compile(r'"paragraphs"\s*:')
HEAD = 1 << 16  # characters in which a file of SQuAD shows what it is, but for one very long paragraph


@dataclass(frozen=True)
class AnsweredSplit(Split):
    """Questions in file order, and the answers of each."""

    questions: list[Question]
    answers: list[Answers] | None  # None: not known
    origin: str  # file, for messages
    rows: Sequence[int] | None = None  # row of each in the file; of SQuAD's JSON its number
    ids: Sequence[str] = ()  # what the file calls each question; may be empty

    @property
    def examples(self) -> list[Question]:
        """What is asked."""
        return self.questions

    @property
    def labels(self) -> list[Answers] | None:
        """What is learned of each."""
        return self.answers

    @property
    def texts(self) -> list[str]:
        """The contexts: what must not stand in two splits."""
        return [q.context for q in self.questions]

    def names(self) -> list[str]:
        """What to call each question in a table."""
        return [q.question for q in self.questions]


@dataclass(frozen=True)
class AnsweredDataset:
    """The splits of one data set, among ``train``, ``validation`` and ``test``."""

    name: str
    splits: dict[str, AnsweredSplit]
    description: str = ""
    licence: str = ""
    notes: tuple[str, ...] = ()
    rejected: tuple[RejectedRow, ...] = ()  # rows left out
    said: tuple[str, ...] = ()


class NamedQuestions(NamedTuple):
    """A data set that needs no file."""

    description: str
    licence: str
    notes: tuple[str, ...]
    make: Callable[[str], tuple[list[Question], list[Answers]]]


ANSWERED_SOURCES = {
    "facts": NamedQuestions(
        "about 2,800 questions on 580 short generated biographies; a sixth has no answer",
        "as this package",
        (
            "six kinds of sentence, eleven of questions: figures on it say nothing of English",
            "nobody stands in two splits",
        ),
        facts.facts,
    )
}


def load_answered(
    source: str | Path,
    *,
    question_column: str | None = None,
    context_column: str | None = None,
    answer_column: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    on_bad_row: str = "refuse",
    need_answers: bool = True,
) -> AnsweredDataset:
    """Questions and answers by name or path (see the top of this file).

    Args:
        question_column, context_column, answer_column: of tables; None finds them by their usual names.
        limit: at most this many questions of every split, drawn with ``seed``, file order kept.
        on_bad_row: ``skip`` leaves out and lists questions that cannot be used; ``refuse`` ends at the first.
        need_answers: False: answers are not read.

    Raises:
        DataError: no such file, column or name; a question or answer that cannot be used (its row is named).
    """
    if limit is not None and limit < 1:
        raise DataError(f"{limit} questions a split", where="limit", fix="Give 1 or more")
    if not str(source):
        fix = "Give the path of a file or folder, or facts"
        raise DataError("no data set is named", where="source", fix=fix)
    if (known := ANSWERED_SOURCES.get(str(source))) is not None:
        splits = {name: AnsweredSplit(*known.make(name), str(source)) for name in facts.SIZES}
        out = AnsweredDataset(str(source), splits, known.description, known.licence, known.notes)
    else:
        path = Path(source).expanduser()
        columns = question_column, context_column, answer_column
        reader = _Reader(columns, need_answers, [] if on_bad_row == "skip" else None)
        files = choose_splits(_files(path), None, str(source))
        splits = {split: reader.split(own) for split, own in files.items()}
        out = AnsweredDataset(path.stem, splits, rejected=tuple(reader.rejected or ()))
    if limit is None:
        return out
    return replace(out, splits={name: limited(split, limit, seed) for name, split in out.splits.items()})


def _files(path: Path) -> dict[str, list[Path]]:
    """Split -> its files.

    Raises:
        DataError: no such path, a file of another kind, or a folder without a split.
    """
    if path.is_dir():
        found: dict[str, list[Path]] = {}
        for file in sorted(path.iterdir()):
            split = _split_of(file.stem)
            if split in ("train", "validation", "test") and file.suffix.lower() in READERS:
                found.setdefault(split, []).append(file)
        if not found:
            refuse_tables(path)
            fix = (
                "Name them train.json, validation.json, test.json, or end them with .jsonl, .parquet or .csv"
            )
            raise DataError("no file named train, validation or test", where=str(path), fix=fix)
        return one_or_parts(found, path)
    if not path.exists():
        hint = nearest(str(path), list(ANSWERED_SOURCES))
        raise DataError(f"no file, folder or named data set {str(path)!r}", fix=f"Check the path. {hint}")
    if path.suffix.lower() not in READERS:
        what = f"files of kind {path.suffix!r} are not read"
        raise DataError(what, where=str(path), fix=other_kind(path.suffix, READERS))
    return {"train": [path]}


def _split_of(stem: str) -> str | None:
    """The split that a file is called after: ``train``, ``dev-v2.0``, ``train-00000-of-00001``."""
    bare = re.sub(r"(-\d+-of-\d+|-v\d+(\.\d+)*)$", "", stem).lower()
    return SPLIT_OF.get(bare)


def is_nested(path: Path) -> bool:
    """Whether a ``.json`` file has SQuAD's form."""
    if path.suffix.lower() != ".json":
        return False
    begin, size = "", 0
    for line in text_lines(path, errors="replace"):
        begin += line[:HEAD]
        size += len(line)
        if size >= HEAD:
            break
    return begin.lstrip().startswith("{") and bool(NESTED.search(begin))


@dataclass
class _Reader:
    """How files are read; ``rejected`` lists what is left out, None: the first such row ends the reading."""

    columns: tuple[str | None, str | None, str | None]
    need_answers: bool
    rejected: list[RejectedRow] | None

    def split(self, files: Sequence[Path]) -> AnsweredSplit:
        questions: list[Question] = []
        answers: list[Answers] = []
        rows: list[int] = []
        ids: list[str] = []
        before = len(self.rejected or ())
        for file in files:
            read = self._nested if is_nested(file) else self._table
            with way_out(self.rejected):
                for question, given, row, name in read(file):
                    try:
                        (asked,) = check_questions([question], str(file), [row])
                        found = check_answers([given], [asked], str(file), [row])[0]
                    except DataError as error:
                        if self.rejected is None:
                            raise
                        self.rejected.append(RejectedRow(str(file), row, error.what))
                        continue
                    questions.append(asked)
                    answers.append(found)
                    rows.append(row)
                    ids.append(name)
        origin = " + ".join(map(str, files))
        if not questions:
            what, mine = "no question can be used", self.rejected[before:] if self.rejected else ()
            if mine:
                what += f"; {summary(mine, listed=False)}"
            raise DataError(what, where=origin, fix="Correct the file")
        numbers = rows if len(files) == 1 else range(1, len(rows) + 1)
        named = ids if all(ids) else ()
        return AnsweredSplit(questions, answers if self.need_answers else None, origin, numbers, named)

    # --- SQuAD ------------------------------------------------------------------------------------

    def _nested(self, file: Path) -> Iterator[tuple[Any, Any, int, str]]:
        try:
            articles = json.loads("".join(text_lines(file)))["data"]
            row = 0
            for article in articles:
                for paragraph in article["paragraphs"]:
                    context = paragraph["context"]
                    for qa in paragraph["qas"]:
                        row += 1
                        given = [] if qa.get("is_impossible") else qa.get("answers") or []
                        given = given if self.need_answers else None
                        yield (qa["question"], context), given, row, str(qa.get("id") or "")
        except (ValueError, RecursionError) as error:
            raise DataError(f"not JSON ({error})", where=str(file), fix="Fetch it anew") from None
        except (KeyError, TypeError, AttributeError) as error:
            what = f"not as SQuAD's files are: {type(error).__name__} {error}"
            fix = "Give data, each with paragraphs of a context and qas; or one object a line with "
            raise DataError(what, where=str(file), fix=f"{fix}question, context, answers (.jsonl)") from None

    # --- tables -----------------------------------------------------------------------------------

    def _table(self, file: Path) -> Iterator[tuple[Any, Any, int, str]]:
        table = lenient_table(file, self.rejected)
        asked, texts = columns_of(table, *self.columns[:2])
        sides = zip(table.read(asked), table.read(texts), strict=True)
        given: list[Any] = [None] * len(table.rows)
        if self.need_answers:
            column = _column(table, self.columns[2], ANSWER_COLUMNS, "answers", "answer_column")
            given = table.read(column)
            if start := next((name for name in table.names if name.lower() in START_COLUMNS), None):
                given = [_at(*pair) for pair in zip(given, table.read(start), strict=True)]
        names = table.read("id") if "id" in table.names else [""] * len(table.rows)
        for pair, own, row, name in zip(sides, given, table.rows, names, strict=True):
            yield pair, own, row, str(name or "")


def has_answers(table: Table) -> bool:
    """Whether a table has questions, contexts and answers under names that hardly mean anything else."""
    names = {name.lower() for name in table.names}
    return bool(names & {*QUESTION_COLUMNS} and names & {*CONTEXT_COLUMNS[:3]} and names & {*ANSWER_COLUMNS})


def columns_of(table: Table, question: str | None = None, context: str | None = None) -> tuple[str, str]:
    """The columns of questions and of contexts.

    Raises:
        DataError: one that is not there, or none is found.
    """
    return (
        _column(table, question, QUESTION_COLUMNS, "questions", "question_column"),
        _column(table, context, CONTEXT_COLUMNS, "contexts", "context_column"),
    )


def _at(text: Any, start: Any) -> Any:
    """An answer and where it starts (a number, or a number as text); without a number it is looked for."""
    if not isinstance(text, str) or is_missing(text) or is_missing(start):
        return text
    return {"text": [text], "answer_start": [start]}


def _column(table: Table, given: str | None, usual: Sequence[str], what: str, key: str) -> str:
    if given is not None:
        if given not in table.names:
            raise DataError(f"no column {given!r}", where=table.origin, fix=nearest(given, table.names))
        return given
    for name in usual:
        if match := next((n for n in table.names if n.lower() == name), None):
            return match
    fix = f"Name it with {key}: {listed(table.names)}"
    raise DataError(f"no column of {what} is found", where=table.origin, fix=fix)
