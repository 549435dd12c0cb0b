"""Check questions, contexts and answers.

An answer is a span of the context. If an answer is given only as text, its position is searched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from glassformer.data.checks import check_not_numbers, is_missing, location
from glassformer.data.findings import excerpt
from glassformer.data.in_memory import read_rows, table_of
from glassformer.data.label_kinds import is_number
from glassformer.data.text_pairs import TextPair, check_side
from glassformer.errors import BadAnswerError, DataError, MissingValueError, UnequalLengthsError, counted

QUESTION, CONTEXT = "question", "context"


class Question(NamedTuple):
    """A question, and the text that may contain its answer."""

    question: str
    context: str


class Answers(NamedTuple):
    """The answers to one question, and the characters at which they start; empty: no answer."""

    texts: tuple[str, ...] = ()
    starts: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, list]:
        """The answers in the format of data sets on the Hugging Face Hub."""
        return {"text": list(self.texts), "answer_start": list(self.starts)}


def check_questions(X: Any, origin: str = "questions", rows: Sequence[int] | None = None) -> list[Question]:
    """Parse questions: pairs (question, context), dicts with these keys, or a table with these columns.

    Raises:
        DataError: another type, or an unusable text (see ``check_texts``).
    """
    if isinstance(X, str | bytes) or (isinstance(X, Mapping) and table_of(X) is None):
        what = f"a {type(X).__name__} is not a list of questions"
        raise DataError(what, where=origin, fix="Give a list of (question, context)")
    check_not_numbers(X, origin, "Give a list of (question, context)")
    X = read_rows(X, origin, "questions", max_columns=2, names=(QUESTION, CONTEXT), is_example=is_example)
    pairs = [_question_and_context(x, location(origin, i, rows)) for i, x in enumerate(X)]
    if not pairs:
        raise MissingValueError("there are no questions", where=origin, fix="Give at least one")
    columns = zip((QUESTION, CONTEXT), zip(*pairs, strict=True), strict=True)
    return list(map(Question, *(check_side(texts, name, origin, rows) for name, texts in columns)))


def is_example(row: Any) -> bool:
    """Whether an element of a list is an example (question and context), not a row of a table."""
    is_named_tuple = {QUESTION, CONTEXT} <= set(getattr(row, "_fields", ()))
    return isinstance(row, Mapping) or (isinstance(row, tuple) and not is_named_tuple)


def _question_and_context(x: Any, where: str) -> Sequence[Any]:
    fix = "Give (question, context), or a dict with these keys"
    if isinstance(x, TextPair):
        return x.sides
    if isinstance(x, Mapping):
        if missing := [key for key in (QUESTION, CONTEXT) if key not in x]:
            raise DataError(f"no {missing[0]!r}", where=where, fix=fix)
        return x[QUESTION], x[CONTEXT]
    if isinstance(x, str | bytes) or not hasattr(x, "__len__") or len(x) != 2:
        raise DataError("not a question with its context", where=where, fix=fix)
    return tuple(x)


def check_answers(
    y: Any, questions: Sequence[Question], origin: str = "answers", rows: Sequence[int] | None = None
) -> list[Answers]:
    """Parse the answers to questions.

    Args:
        y: for each question ``{"text": [...], "answer_start": [...]}``, a list of such dicts with one answer
            each, or a text (its position is searched). None, ``""`` and an empty list: no answer.

    Raises:
        DataError: an answer is not at its position, or a text without a position does not occur exactly once.
    """
    if y is None:
        raise MissingValueError("the answers are missing", where=origin, fix="Give one for each question")
    if isinstance(y, str | bytes) or (isinstance(y, Mapping) and (table_of(y) is None or "text" in y)):
        values = [y]
    else:
        values = read_rows(y, origin, "answers", is_example=lambda row: True)
    if len(values) != len(questions):
        what = f"{counted(len(questions), 'question')} and {counted(len(values), 'answer')}"
        fix = "Give one answer for each question, None if it has no answer"
        raise UnequalLengthsError(what, where=origin, fix=fix)
    pairs = enumerate(zip(values, questions, strict=True))
    return [
        _parse_answers(value, question.context, location(origin, i, rows)) for i, (value, question) in pairs
    ]


def _parse_answers(value: Any, context: str, where: str) -> Answers:
    if isinstance(value, Answers):
        value = value.to_dict()
    if value is None or (isinstance(value, float) and is_missing(value)):
        return Answers()
    if isinstance(value, str):
        # "nan" is a missing value of a table, unless it is a word of the context.
        if not value.strip() or (is_missing(value) and len(_find_words(value.strip(), context)) != 1):
            return Answers()
        return Answers((value.strip(),), (find_answer(value.strip(), context, where),))
    dicts = [value] if isinstance(value, Mapping) else value
    if not isinstance(dicts, list | tuple) or not all(isinstance(answer, Mapping) for answer in dicts):
        fix = "Give {'text': [...], 'answer_start': [...]}, or None for no answer"
        raise BadAnswerError(f"a {type(value).__name__} is not an answer", where=where, fix=fix)
    pairs = [pair for answer in dicts for pair in _texts_with_starts(answer, where)]
    answers = [_locate_answer(text, start, context, where) for text, start in pairs]
    return Answers(tuple(text for text, _ in answers), tuple(start for _, start in answers))


def _texts_with_starts(answer: Mapping[str, Any], where: str) -> list[tuple[Any, Any]]:
    fix = "Give {'text': [...], 'answer_start': [...]}"
    if "text" not in answer:
        raise BadAnswerError("an answer without 'text'", where=where, fix=fix)
    texts, starts = answer["text"], answer.get("answer_start")
    texts = [texts] if isinstance(texts, str) else [] if texts is None else list(texts)
    starts = [None] * len(texts) if starts is None else starts
    starts = [starts] if isinstance(starts, str) or not hasattr(starts, "__iter__") else list(starts)
    if len(texts) != len(starts):
        what = f"{counted(len(texts), 'answer')} and {counted(len(starts), 'position')}"
        raise UnequalLengthsError(what, where=where, fix=fix)
    return list(zip(texts, starts, strict=True))


def _locate_answer(text: Any, start: Any, context: str, where: str) -> tuple[str, int]:
    """An answer without surrounding white space, and its start in the context."""
    if not isinstance(text, str) or not text.strip():
        raise BadAnswerError("an answer without words", where=where, fix="Give None where there is no answer")
    answer = text.strip()
    if is_missing(start):
        return answer, find_answer(answer, context, where)
    if isinstance(start, bool) or not is_number(start) or not float(start).is_integer():
        what = f"answer_start = {start!r} is not a whole number"
        raise BadAnswerError(what, where=where, fix="Count from 0")
    start = int(float(start))
    if start < 0 or context[start : start + len(text)] != text:
        position = context.find(answer)
        if position < 0:
            what = f"the answer {excerpt(answer, 40)!r} is not in the context"
            raise BadAnswerError(what, where=where, fix="Correct the answer or the context")
        what = f"the answer {excerpt(answer, 40)!r} is not at character {start} of the context"
        fix = f"Correct answer_start: the answer first occurs at {position}"
        raise BadAnswerError(what, where=where, fix=fix)
    return answer, start + len(text) - len(text.lstrip())


def find_answer(text: str, context: str, where: str) -> int:
    """The start of a text in its context: its only occurrence as whole words, or its only occurrence."""
    starts = _find_words(text, context) or _find_all(text, context)
    if len(starts) == 1:
        return starts[0]
    shown = excerpt(text, 40)
    if not starts:
        what = f"the answer {shown!r} is not in the context"
        raise BadAnswerError(what, where=where, fix="Copy it from the context, or leave it empty")
    what = f"the answer {shown!r} occurs {len(starts)} times in the context"
    raise BadAnswerError(what, where=where, fix="Give the position of the correct one in answer_start")


def _find_all(text: str, context: str) -> list[int]:
    return [match.start() for match in re.finditer(f"(?={re.escape(text)})", context)]


def _find_words(text: str, context: str) -> list[int]:
    """The starts of a text in its context as whole words."""
    starts = _find_all(text, context)
    return [start for start in starts if has_word_boundaries(context, start, start + len(text))]


def has_word_boundaries(context: str, start: int, end: int) -> bool:
    """Whether ``context[start:end]`` begins and ends at word boundaries."""
    borders = context[start - 1 : start], context[start], context[end - 1], context[end : end + 1]
    before, first, last, after = map(str.isalnum, borders)
    return not (before and first) and not (last and after)
