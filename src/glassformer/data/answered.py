"""Load question-answering data: SQuAD's JSON, JSON Lines, Parquet, CSV, or the built-in data set ``facts``.

A path is one file (it becomes ``train``), or a folder with one file per split: ``train.json``, ``dev.json``.

    .json            SQuAD 1.1 and 2.0: ``data``, ``paragraphs``, ``qas``; or an array of the rows below
    .jsonl .parquet  columns question, context, answers: ``{"text": [...], "answer_start": [...]}``
    .csv .tsv        columns question, context, answer; the answer is searched in the context, unless a column
                     answer_start has its position

An empty list or an empty cell means that the question has no answer.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from glassformer.data.checks import is_missing
from glassformer.data.dataset import Dataset, NamedSource, Split, choose_splits
from glassformer.data.files import text_lines
from glassformer.data.folders import find_split_files
from glassformer.data.questions import Answers, Question, check_answers, check_questions
from glassformer.data.rejected import (
    RejectedRow,
    Row,
    check_source,
    find_named_column,
    lenient_table,
    read_examples,
)
from glassformer.data.splits import limit_examples
from glassformer.data.tables import READERS, Table
from glassformer.errors import MalformedFileError

QUESTION_COLUMNS = ("question", "questions")
CONTEXT_COLUMNS = ("context", "passage", "paragraph", "text", "document")
ANSWER_COLUMNS = ("answers", "answer")
START_COLUMNS = ("answer_start", "start")
NAMES = "Name them train.json, validation.json, test.json, or end them with .jsonl, .parquet or .csv"
BESIDES = re.compile(r"(-\d+-of-\d+|-v\d+(\.\d+)*)$")  # train-00000-of-00001, dev-v2.0
NESTED = re.compile(r'"paragraphs"\s*:')
HEAD = 1 << 16  # first characters of a file, by which the format of SQuAD is detected


@dataclass(frozen=True)
class AnsweredSplit(Split):
    """Questions with their contexts and answers, in file order."""

    questions: list[Question]
    answers: list[Answers] | None  # None: unknown
    origin: str  # file, for messages
    rows: Sequence[int] | None = None  # row of each question in the file; its number in SQuAD's JSON
    ids: Sequence[str] = ()  # the file's ids of the questions; may be empty

    @property
    def labels(self) -> list[Answers] | None:
        """The targets: the answers."""
        return self.answers

    @property
    def texts(self) -> list[str]:
        """The contexts, which must not be in two splits."""
        return [q.context for q in self.questions]

    def names(self) -> list[str]:
        """A name for each example, for tables."""
        return [q.question for q in self.questions]


ANSWERED_SOURCES = {
    "facts": NamedSource(
        description="about 2,800 questions on 580 short generated biographies; one in six has no answer",
        licence="as this package",
        notes=(
            "six kinds of sentence, eleven of questions: scores on it say nothing about real English",
            "no person is in two splits",
        ),
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
) -> Dataset:
    """Load questions and answers by name or path (see the top of this file).

    Args:
        question_column, context_column, answer_column: columns of tables; None: find them by usual names.
        limit: use at most this many questions of every split, drawn with ``seed``, in file order.
        on_bad_row: ``skip`` leaves out and lists unusable questions; ``refuse`` raises an error.
        need_answers: False: do not read the answers.

    Raises:
        DataError: no such file, column or name; an unusable question or answer (the message has its row).
    """
    check_source(source, limit, "Give the path of a file or folder, or facts", "questions")
    if (known := ANSWERED_SOURCES.get(str(source))) is not None:
        splits = {name: AnsweredSplit(*facts(name), str(source)) for name in SIZES}
        return limit_examples(known.described(Dataset(str(source), splits)), limit, seed)
    path = Path(source).expanduser()
    columns = question_column, context_column, answer_column
    rejected: list[RejectedRow] | None = [] if on_bad_row == "skip" else None
    splits = {}
    for name, files in choose_splits(
        find_split_files(path, [*ANSWERED_SOURCES], READERS, NAMES, BESIDES), None, str(source)
    ).items():
        read = partial(_rows, columns=columns, need_answers=need_answers, rejected=rejected)
        found, origin, rows = read_examples(files, read, rejected, "question")
        questions, answers, ids = map(list, zip(*found, strict=True))
        known_answers = answers if need_answers else None
        splits[name] = AnsweredSplit(questions, known_answers, origin, rows, ids if all(ids) else ())
    return limit_examples(Dataset(path.stem, splits, rejected=tuple(rejected or ())), limit, seed)


def is_squad(path: Path) -> bool:
    """Whether a ``.json`` file has the nested format of SQuAD."""
    if path.suffix.lower() != ".json":
        return False
    begin, size = "", 0
    for line in text_lines(path, errors="replace"):
        begin += line[:HEAD]
        size += len(line)
        if size >= HEAD:
            break
    return begin.lstrip().startswith("{") and bool(NESTED.search(begin))


def _rows(
    file: Path,
    columns: tuple[str | None, str | None, str | None],
    need_answers: bool,
    rejected: list[RejectedRow] | None,
) -> Iterator[Row]:
    """The questions of a file with their answers and ids."""
    found = _nested(file) if is_squad(file) else _table(lenient_table(file, rejected), columns, need_answers)
    for pair, given, row, name in found:
        yield partial(_example, pair, given if need_answers else None, str(file), row, name), row


def _example(pair: Any, given: Any, origin: str, row: int, name: str) -> tuple[Question, Answers, str]:
    (question,) = check_questions([pair], origin, [row])
    return question, check_answers([given], [question], origin, [row])[0], name


def _nested(file: Path) -> Iterator[tuple[Any, Any, int, str]]:
    """The questions of SQuAD's JSON."""
    try:
        articles = json.loads("".join(text_lines(file)))["data"]
        row = 0
        for article in articles:
            for paragraph in article["paragraphs"]:
                context = paragraph["context"]
                for qa in paragraph["qas"]:
                    row += 1
                    given = [] if qa.get("is_impossible") else qa.get("answers") or []
                    yield (qa["question"], context), given, row, str(qa.get("id") or "")
    except (ValueError, RecursionError) as error:
        raise MalformedFileError(f"not JSON ({error})", where=str(file), fix="Download it again") from None
    except (KeyError, TypeError, AttributeError) as error:
        what = f"not in the format of SQuAD: {type(error).__name__} {error}"
        fix = "Give data, each with paragraphs of a context and qas; or one object per line with "
        raise MalformedFileError(
            what, where=str(file), fix=f"{fix}question, context, answers (.jsonl)"
        ) from None


def _table(
    table: Table, columns: tuple[str | None, str | None, str | None], need_answers: bool
) -> Iterator[tuple[Any, Any, int, str]]:
    sides = zip(*map(table.read, columns_of(table, *columns[:2])), strict=True)
    given: list[Any] = [None] * len(table.rows)
    if need_answers:
        given = table.read(find_named_column(table, columns[2], ANSWER_COLUMNS, "answers", "answer_column"))
        if start := next((name for name in table.names if name.lower() in START_COLUMNS), None):
            given = [_at(*pair) for pair in zip(given, table.read(start), strict=True)]
    names = table.read("id") if "id" in table.names else [""] * len(table.rows)
    for pair, own, row, name in zip(sides, given, table.rows, names, strict=True):
        yield pair, own, row, str(name or "")


def has_answers(table: Table) -> bool:
    """Whether a table has columns with unambiguous names for questions, contexts and answers."""
    names = {name.lower() for name in table.names}
    return bool(names & {*QUESTION_COLUMNS} and names & {*CONTEXT_COLUMNS[:3]} and names & {*ANSWER_COLUMNS})


def columns_of(table: Table, question: str | None = None, context: str | None = None) -> tuple[str, str]:
    """The columns of questions and of contexts.

    Raises:
        DataError: a column does not exist, or cannot be detected.
    """
    questions = find_named_column(table, question, QUESTION_COLUMNS, "questions", "question_column")
    return questions, find_named_column(table, context, CONTEXT_COLUMNS, "contexts", "context_column")


def _at(text: Any, start: Any) -> Any:
    """An answer with its position; without a position (or text that is one), only its text."""
    if not isinstance(text, str) or is_missing(text) or is_missing(start):
        return text
    return {"text": [text], "answer_start": [start]}


# --- generated biographies with questions and answers ------------------------------------------------
# A small data set for trials that needs no download. The persons are invented; a model trained on them knows
# these sentence patterns, not English.
#
#    Ada Novak was born in Hanoi in 1923. She became a baker and lived in Turin. ...
#    Where was Ada Novak born?  Hanoi        When did she move to Turin? (not said: no answer)

SIZES = {"train": 400, "validation": 80, "test": 100}  # texts; about four questions on each


FIRST = "Ada Ben Carla Dmitri Elif Farid Greta Hugo Ines Jonas Kavya Leo Mira Nils Olga Pavel".split()
LAST = "Novak Ivers Lindt Moreau Okafor Petrov Quist Rossi Silva Tanaka Uddin Vogel Weiss Yilmaz".split()
CITIES = (
    "Hanoi Turin Lagos Quito Oslo Perth Kyoto Cairo Lima Tunis Ghent Porto Riga Accra Dakar Split".split()
)
CITIES += ["New York", "Buenos Aires", "Cape Town", "The Hague", "Sao Paulo", "San Juan"]
JOBS = "baker surgeon pilot lawyer painter farmer dentist violinist carpenter chemist".split()
JOBS += ["school teacher", "bridge engineer", "ship captain"]
PETS = "cat dog parrot horse tortoise goat".split()
PET_NAMES = "Luna Momo Pepper Rex Ziggy Biscuit Coco Tofu".split()
SCHOOLS = ["the University of {}", "{} College", "the {} Institute"]
# (sentence, question, key of the answer)
FACTS = (
    ("{p} was born in {city} in {year}.", "Where was {p} born?", "city"),
    ("{p} was born in {city} in {year}.", "When was {p} born?", "year"),
    ("Later {p} moved to {home} and worked there as a {job}.", "Where did {p} move?", "home"),
    ("Later {p} moved to {home} and worked there as a {job}.", "What did {p} work as?", "job"),
    ("{p} studied at {school} for {count} years.", "Where did {p} study?", "school"),
    ("{p} studied at {school} for {count} years.", "How many years did {p} study?", "count"),
    ("In {wed} {p} married {spouse}.", "Whom did {p} marry?", "spouse"),
    ("In {wed} {p} married {spouse}.", "When did {p} marry?", "wed"),
    ("At home {p} had a {pet} called {name}.", "What was the {pet} of {p} called?", "name"),
    ("{p} won a prize of {prize} dollars for {work}.", "What did {p} win a prize for?", "work"),
    ("{p} won a prize of {prize} dollars for {work}.", "How many dollars did {p} win?", "prize"),
)
WORKS = ["a small bridge", "a novel on salt", "the study of tides", "a cheap lamp", "a map of the moon"]


def facts(split: str) -> tuple[list[Question], list[Answers]]:
    """The questions of a split and their answers, always the same; one question in six has no answer."""
    rng = random.Random(f"facts {split}")
    people = [f"{a} {b}" for a in FIRST for b in LAST]
    random.Random(0).shuffle(people)  # no person is in two splits
    begin = {"train": 0, "validation": 150, "test": 180}[split]
    end = {"train": 150, "validation": 180, "test": len(people)}[split]
    questions, answers = [], []
    for _ in range(SIZES[split]):
        for question, answer in _questions_on(rng, people[begin:end]):
            questions.append(question)
            answers.append(answer)
    return questions, answers


def _questions_on(rng: random.Random, people: list[str]) -> list[tuple[Question, Answers]]:
    two = rng.sample(people, 2)  # the persons of one text
    stated: list[str] = []
    known: list[tuple[str, str, str]] = []  # sentence, question, answer
    unanswerable: list[str] = []
    for person in two:
        words = _words_of(rng, person)
        sentences = sorted({form for form, _, _ in FACTS})
        kept = set(rng.sample(sentences, 3))
        for form, question_form, key in FACTS:
            sentence, question = form.format(**words), question_form.format(**words)
            if form in kept:
                known.append((sentence, question, words[key]))
            elif "{pet}" not in question_form:
                unanswerable.append(question)
        stated += [form.format(**words) for form in sentences if form in kept]
    rng.shuffle(stated)
    context = " ".join(stated)
    examples = []
    for sentence, question, answer in rng.sample(known, 4):
        inside = sentence.index(f" {answer}") + 1
        start = context.index(sentence) + inside
        examples.append((Question(question, context), Answers((answer,), (start,))))
    if rng.random() < 0.8:
        examples.append((Question(rng.choice(unanswerable), context), Answers()))
    return examples


def _words_of(rng: random.Random, person: str) -> dict[str, str]:
    city, home, school = rng.sample(CITIES, 3)
    return {
        "p": person,
        "city": city,
        "home": home,
        "year": str(rng.randint(1890, 1949)),
        "wed": str(rng.randint(1950, 1999)),
        "job": rng.choice(JOBS),
        "school": rng.choice(SCHOOLS).format(school),
        "count": str(rng.randint(2, 9)),
        "spouse": f"{rng.choice(FIRST)} {rng.choice(LAST)}",
        "pet": rng.choice(PETS),
        "name": rng.choice(PET_NAMES),
        "prize": f"{rng.randint(2, 90)},000",
        "work": rng.choice(WORKS),
    }
