"""Load question-answering data from files or by name.

The source is the built-in data set ``facts``, one file (the split ``train``), or a folder with one file per
split (``train.json``, ``dev.json``). These formats are supported:

    .json            SQuAD 1.1 and 2.0: ``data``, ``paragraphs``, ``qas``; or an array of the rows below
    .jsonl .parquet  columns question, context, answers: ``{"text": [...], "answer_start": [...]}``
    .csv .tsv        columns question, context, answer, and optionally answer_start; without answer_start,
                     the context must contain the answer exactly once

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
from glassformer.data.findings import excerpt
from glassformer.data.folders import find_split_files
from glassformer.data.questions import Answers, Question, check_answers, check_questions
from glassformer.data.rejected import (
    Row,
    check_filled,
    check_source,
    find_named_column,
    lenient_table,
    read_examples,
)
from glassformer.data.splits import limit_examples
from glassformer.data.tables import READERS, Table
from glassformer.errors import DataError, MalformedFileError

QUESTION_COLUMNS = ("question", "questions")
CONTEXT_COLUMNS = ("context", "passage", "paragraph", "text", "document")
ANSWER_COLUMNS = ("answers", "answer")
START_COLUMNS = ("answer_start", "start")
FIX_NAMES = "Name them train.json, validation.json, test.json, or end them with .jsonl, .parquet or .csv"
SHARD_ENDING = re.compile(r"(-\d+-of-\d+|-v\d+(\.\d+)*)$")  # train-00000-of-00001, dev-v2.0
SQUAD_KEY = re.compile(r'"paragraphs"\s*:')
LENGTH_TO_DETECT = 1 << 16  # characters at the beginning of a file in which SQuAD's format is detected


@dataclass(frozen=True)
class QASplit(Split):
    """Questions with their contexts and answers, in file order."""

    questions: list[Question]
    answers: list[Answers] | None  # None: unknown
    origin: str  # file, for messages
    rows: Sequence[int] | None = None  # row of each question in the file; for SQuAD, its number from 1
    ids: Sequence[str] = ()  # ids of the questions in the file; empty if the file has none

    @property
    def labels(self) -> list[Answers] | None:
        """The targets: the answers."""
        return self.answers

    @property
    def texts(self) -> list[str]:
        """The contexts; no context should be in two splits."""
        return [q.context for q in self.questions]

    def names(self) -> list[str]:
        """A name for each example, for tables."""
        return [q.question for q in self.questions]


QA_SOURCES = {
    "facts": NamedSource(
        description="about 2,800 questions on 580 short generated biographies; one in six has no answer",
        licence="as this package",
        notes=(
            "six kinds of sentence, eleven of questions: scores on it say nothing about real English",
            "no person is in two splits",
        ),
    )
}


def load_qa(
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
        limit: maximum number of questions per split: a random sample with ``seed``, in file order.
        on_bad_row: ``skip`` leaves out and lists unusable questions; ``refuse`` raises an error.
        need_answers: whether to read the answers.

    Raises:
        DataError: the file, the column or the data set does not exist, or a question or answer is unusable.
    """
    check_source(source, limit, "Give the path of a file or folder, or facts", "questions")
    if (named := QA_SOURCES.get(str(source))) is not None:
        splits = {name: QASplit(*fact_questions(name), str(source)) for name in TEXTS_PER_SPLIT}
        return limit_examples(named.describe(Dataset(str(source), splits)), limit, seed)
    path = Path(source).expanduser()
    columns = question_column, context_column, answer_column
    rejected = [] if on_bad_row == "skip" else None

    def read(file: Path) -> Iterator[Row]:
        squad = _read_squad(file) if is_squad(file) else None
        examples = squad or _read_table(lenient_table(file, rejected), columns, need_answers)
        for pair, answer, row, id_ in examples:
            checked = answer if need_answers else None
            yield partial(_parse_example, pair, checked, str(file), row, id_, squad is None), row

    files_by_split = find_split_files(path, [*QA_SOURCES], READERS, FIX_NAMES, SHARD_ENDING)
    splits = {}
    for name, files in choose_splits(files_by_split, None, str(source)).items():
        examples, origin, rows = read_examples(files, read, rejected, "question")
        questions, answers, ids = map(list, zip(*examples, strict=True))
        known_answers = answers if need_answers else None
        splits[name] = QASplit(questions, known_answers, origin, rows, ids if all(ids) else ())
    return limit_examples(Dataset(path.stem, splits, rejected=tuple(rejected or ())), limit, seed)


def is_squad(path: Path) -> bool:
    """Whether a ``.json`` file has the nested format of SQuAD."""
    if path.suffix.lower() != ".json":
        return False
    beginning, size = "", 0
    for line in text_lines(path, errors="replace"):
        beginning += line[:LENGTH_TO_DETECT]
        size += len(line)
        if size >= LENGTH_TO_DETECT:
            break
    return beginning.lstrip().startswith("{") and bool(SQUAD_KEY.search(beginning))


def _parse_example(
    pair: Any, answer: Any, origin: str, row: int, id_: str, has_rows: bool
) -> tuple[Question, Answers, str]:
    """A question, its answers and its id; if ``has_rows`` is False (SQuAD), errors quote the question."""
    try:
        (question,) = check_questions([pair], origin, [row])
        return question, check_answers([answer], [question], origin, [row])[0], id_
    except DataError as error:
        if has_rows:
            raise
        details = ([f"id {id_!r}"] if id_ else []) + [repr(excerpt(str(pair[0]), 60))]
        raise error.replace(where=f"{origin}, question {row} ({', '.join(details)})") from None


def _read_squad(file: Path) -> Iterator[tuple[Any, Any, int, str]]:
    """Yield ((question, context), answers, number from 1, id) for each question of a SQuAD file."""
    try:
        articles = json.loads("".join(text_lines(file)))["data"]
        row = 0
        for article in articles:
            for paragraph in article["paragraphs"]:
                context = paragraph["context"]
                for qa in paragraph["qas"]:
                    row += 1
                    answers = [] if qa.get("is_impossible") else qa.get("answers") or []
                    yield (qa["question"], context), answers, row, str(qa.get("id") or "")
    except (ValueError, RecursionError) as error:
        raise MalformedFileError(f"not JSON ({error})", where=str(file), fix="Download it again") from None
    except (KeyError, TypeError, AttributeError) as error:
        what = f"not in the format of SQuAD: {type(error).__name__} {error}"
        fix = "Give a list 'data' of articles with 'paragraphs', each with 'context' and 'qas'; or write one "
        fix += "object per line with question, context, answers (.jsonl)"
        raise MalformedFileError(what, where=str(file), fix=fix) from None


def _read_table(
    table: Table, columns: tuple[str | None, str | None, str | None], need_answers: bool
) -> Iterator[tuple[Any, Any, int, str]]:
    pair_columns = find_question_columns(table, *columns[:2])
    check_filled(table, dict(zip(("question_column", "context_column"), pair_columns, strict=True)))
    answers: list[Any] = [None] * len(table.rows)
    if need_answers:
        answers = table.read(find_named_column(table, columns[2], ANSWER_COLUMNS, "answers", "answer_column"))
        if start := next((name for name in table.names if name.lower() in START_COLUMNS), None):
            answers = [_with_start(*pair) for pair in zip(answers, table.read(start), strict=True)]
    ids = table.read("id") if "id" in table.names else [""] * len(table.rows)
    pairs = zip(*map(table.read, pair_columns), strict=True)
    for pair, answer, row, id_ in zip(pairs, answers, table.rows, ids, strict=True):
        yield pair, answer, row, str(id_ or "")


def has_answers(table: Table) -> bool:
    """Whether a table has columns with unambiguous names for questions, contexts and answers."""
    names = {name.lower() for name in table.names}
    return bool(names & {*QUESTION_COLUMNS} and names & {*CONTEXT_COLUMNS[:3]} and names & {*ANSWER_COLUMNS})


def find_question_columns(
    table: Table, question: str | None = None, context: str | None = None
) -> tuple[str, str]:
    """The columns of questions and of contexts.

    Raises:
        DataError: a column does not exist, or cannot be detected.
    """
    questions = find_named_column(table, question, QUESTION_COLUMNS, "questions", "question_column")
    return questions, find_named_column(table, context, CONTEXT_COLUMNS, "contexts", "context_column")


def _with_start(text: Any, start: Any) -> Any:
    """An answer with its position; only the text if it has no position, or if it is not a text."""
    if not isinstance(text, str) or is_missing(text) or is_missing(start):
        return text
    return {"text": [text], "answer_start": [start]}


# --- generated biographies with questions and answers ------------------------------------------------
# A small data set for experiments without a download. The people are invented. A model that is trained on
# this data set learns these sentence patterns, not English.
#
#    Ada Novak was born in Hanoi in 1923. Later Ada Novak moved to Turin and worked there as a baker. ...
#    Where was Ada Novak born?  Hanoi        Whom did Ada Novak marry?  (not in the text: no answer)

TEXTS_PER_SPLIT = {"train": 400, "validation": 80, "test": 100}  # each text has four or five questions

FIRST_NAMES = "Ada Ben Carla Dmitri Elif Farid Greta Hugo Ines Jonas Kavya Leo Mira Nils Olga Pavel".split()
LAST_NAMES = "Novak Ivers Lindt Moreau Okafor Petrov Quist Rossi Silva Tanaka Uddin Vogel Weiss".split()
LAST_NAMES += ["Yilmaz"]
CITIES = "Hanoi Turin Lagos Quito Oslo Perth Kyoto Cairo Lima Tunis Ghent Porto Riga Accra Dakar".split()
CITIES += ["Split", "New York", "Buenos Aires", "Cape Town", "The Hague", "Sao Paulo", "San Juan"]
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


def fact_questions(split: str) -> tuple[list[Question], list[Answers]]:
    """The questions of a split and their answers (deterministic); one question in six has no answer."""
    rng = random.Random(f"facts {split}")
    people = [f"{a} {b}" for a in FIRST_NAMES for b in LAST_NAMES]
    random.Random(0).shuffle(people)  # no person is in two splits
    start = {"train": 0, "validation": 150, "test": 180}[split]
    stop = {"train": 150, "validation": 180, "test": len(people)}[split]
    texts = [_write_examples(rng, people[start:stop]) for _ in range(TEXTS_PER_SPLIT[split])]
    examples = [example for text in texts for example in text]
    return [question for question, _ in examples], [answers for _, answers in examples]


def _write_examples(rng: random.Random, people: list[str]) -> list[tuple[Question, Answers]]:
    """Write one text about two people, and four or five questions about the text."""
    sentences_used: list[str] = []
    answerable: list[tuple[str, str, str]] = []  # sentence, question, answer
    unanswerable: list[str] = []
    for person in rng.sample(people, 2):
        details = _sample_details(rng, person)
        sentences = sorted({pattern for pattern, _, _ in FACTS})
        chosen = set(rng.sample(sentences, 3))
        for pattern, question_pattern, key in FACTS:
            sentence, question = pattern.format(**details), question_pattern.format(**details)
            if pattern in chosen:
                answerable.append((sentence, question, details[key]))
            elif "{pet}" not in question_pattern:
                unanswerable.append(question)
        sentences_used += [pattern.format(**details) for pattern in sentences if pattern in chosen]
    rng.shuffle(sentences_used)
    context = " ".join(sentences_used)
    examples = []
    for sentence, question, answer in rng.sample(answerable, 4):
        start = context.index(sentence) + sentence.index(f" {answer}") + 1
        examples.append((Question(question, context), Answers((answer,), (start,))))
    if rng.random() < 0.8:
        examples.append((Question(rng.choice(unanswerable), context), Answers()))
    return examples


def _sample_details(rng: random.Random, person: str) -> dict[str, str]:
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
        "spouse": f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}",
        "pet": rng.choice(PETS),
        "name": rng.choice(PET_NAMES),
        "prize": f"{rng.randint(2, 90)},000",
        "work": rng.choice(WORKS),
    }
