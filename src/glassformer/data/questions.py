"""Check questions with contexts and their answers (spans of the context); locate answers given as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from glassformer.data.checks import is_missing, place
from glassformer.data.findings import excerpt
from glassformer.data.in_memory import read_rows, table_of
from glassformer.data.label_kinds import is_number
from glassformer.data.text_pairs import TextPair, check_side
from glassformer.errors import BadAnswerError, DataError, MissingValueError, UnequalLengthsError

QUESTION, CONTEXT = "question", "context"


class Question(NamedTuple):
    """A question, and the text that may contain its answer."""

    question: str
    context: str


class Answers(NamedTuple):
    """The answers to one question, as in the context, and their start characters; empty: unanswerable."""

    texts: tuple[str, ...] = ()
    starts: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, list]:
        """The format of data sets on the Hub."""
        return {"text": list(self.texts), "answer_start": list(self.starts)}


def check_questions(X: Any, origin: str = "questions", rows: Sequence[int] | None = None) -> list[Question]:
    """Parse questions: pairs (question, context), dicts with these keys, or a table with these columns.

    Raises:
        DataError: another type, or an unusable text (see ``check_texts``).
    """
    if isinstance(X, str | bytes) or (isinstance(X, Mapping) and table_of(X) is None):
        what = f"a {type(X).__name__} is not a list of questions"
        raise DataError(what, where=origin, fix="Give a list of (question, context)")
    X = read_rows(X, origin, "questions", max_columns=2, names=(QUESTION, CONTEXT), is_example=is_example)
    sides: tuple[list[Any], list[Any]] = [], []
    for i, x in enumerate(X):
        for side, text in zip(sides, _pair(x, place(origin, i, rows)), strict=True):
            side.append(text)
    if not sides[0]:
        raise MissingValueError("there are no questions", where=origin, fix="Give at least one")
    named = zip((QUESTION, CONTEXT), sides, strict=True)
    return list(map(Question, *(check_side(side, name, origin, rows) for name, side in named)))


def is_example(row: Any) -> bool:
    """Whether a row of a list is one example (question and context), not a row of a table."""
    named = {QUESTION, CONTEXT} <= set(getattr(row, "_fields", ()))
    return isinstance(row, Mapping) or (isinstance(row, tuple) and not named)


def _pair(x: Any, where: str) -> Sequence[Any]:
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
        y: per question ``{"text": [...], "answer_start": [...]}``, a list of such dicts with one answer each,
            a text (which is searched in the context), or None, ``""`` or an empty list for no answer.

    Raises:
        DataError: an answer is not at its position; or has no position and does not occur exactly once.
    """
    if y is None:
        raise MissingValueError("the answers are missing", where=origin, fix="Give one for each question")
    if isinstance(y, str | bytes) or (isinstance(y, Mapping) and (table_of(y) is None or "text" in y)):
        given = [y]
    else:
        given = read_rows(y, origin, "answers", is_example=lambda row: True)
    if len(given) != len(questions):
        what = f"{len(questions)} questions and {len(given)} answers"
        raise UnequalLengthsError(
            what, where=origin, fix="Give one for each question, None where there is none"
        )
    both = enumerate(zip(given, questions, strict=True))
    return [_answers(own, question.context, place(origin, i, rows)) for i, (own, question) in both]


def _answers(given: Any, context: str, where: str) -> Answers:
    if isinstance(given, Answers):
        given = given.to_dict()
    if given is None or (isinstance(given, float) and is_missing(given)):
        return Answers()
    if isinstance(given, str):
        if not given.strip() or (is_missing(given) and not _is_word(given.strip(), context)):
            return Answers()
        return Answers((given.strip(),), (found_in(given.strip(), context, where),))
    if isinstance(given, Mapping):
        texts, starts = _lists(given, where)
    elif isinstance(given, list | tuple) and all(isinstance(one, Mapping) for one in given):
        texts, starts = [], []
        for found in (_lists(one, where) for one in given):
            texts += found[0]
            starts += found[1]
    else:
        fix = "Give {'text': [...], 'answer_start': [...]}, or None for no answer"
        raise BadAnswerError(f"a {type(given).__name__} is not an answer", where=where, fix=fix)
    placed = [_placed(text, start, context, where) for text, start in zip(texts, starts, strict=True)]
    return Answers(tuple(text for text, _ in placed), tuple(start for _, start in placed))


def _lists(given: Mapping[str, Any], where: str) -> tuple[list[Any], list[Any]]:
    fix = "Give {'text': [...], 'answer_start': [...]}"
    if "text" not in given:
        raise BadAnswerError("an answer without 'text'", where=where, fix=fix)
    texts, starts = given["text"], given.get("answer_start")
    texts = [texts] if isinstance(texts, str) else [] if texts is None else list(texts)
    starts = [None] * len(texts) if starts is None else starts
    starts = [starts] if isinstance(starts, str) or not hasattr(starts, "__iter__") else list(starts)
    if len(texts) != len(starts):
        what = f"{len(texts)} texts of answers and {len(starts)} places"
        raise UnequalLengthsError(what, where=where, fix=fix)
    return texts, starts


def _placed(text: Any, start: Any, context: str, where: str) -> tuple[str, int]:
    """An answer without surrounding blanks, and its start."""
    if not isinstance(text, str) or not text.strip():
        raise BadAnswerError("an answer without words", where=where, fix="Give None where there is no answer")
    bare = text.strip()
    if is_missing(start):
        return bare, found_in(bare, context, where)
    if isinstance(start, bool) or not is_number(start) or not float(start).is_integer():
        raise BadAnswerError(
            f"answer_start = {start!r} is not a whole number", where=where, fix="Count from 0"
        )
    start = int(float(start))
    if start < 0 or context[start : start + len(text)] != text:
        there = context.find(bare)
        what = f"the answer {excerpt(bare, 40)!r} is not at character {start} of the context"
        fix = f"It is at {there}" if there >= 0 else "It is nowhere in the context: correct the answer"
        raise BadAnswerError(what, where=where, fix=fix)
    return bare, start + len(text) - len(text.lstrip())


def found_in(text: str, context: str, where: str) -> int:
    """The start of a text in its context: its only occurrence as whole words, or its only occurrence."""
    places = _places(text, context)
    whole = [at for at in places if is_whole(context, at, at + len(text))]
    if len(whole or places) == 1:
        return (whole or places)[0]
    shown = excerpt(text, 40)
    if not places:
        what = f"the answer {shown!r} is not in the context"
        raise BadAnswerError(what, where=where, fix="Give it as it is written there, or leave it empty")
    what = f"the answer {shown!r} occurs {len(whole or places)} times in the context"
    raise BadAnswerError(what, where=where, fix="Give the position of the right one in answer_start")


def _is_word(text: str, context: str) -> bool:
    """Whether "nan" is a word of the context, exactly once, and not a missing value of a table."""
    return sum(is_whole(context, at, at + len(text)) for at in _places(text, context)) == 1


def _places(text: str, context: str) -> list[int]:
    return [found.start() for found in re.finditer(f"(?={re.escape(text)})", context)]


def is_whole(context: str, start: int, end: int) -> bool:
    """Whether a part of a text begins and ends at word boundaries."""
    borders = context[start - 1 : start], context[start], context[end - 1], context[end : end + 1]
    before, first, last, behind = map(str.isalnum, borders)
    return not (before and first) and not (last and behind)
