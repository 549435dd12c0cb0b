"""Checks of question-answering data: offsets, duplicates, leakage, lengths, windows."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from glassformer.data.answered import AnsweredSplit
from glassformer.data.copies import alike
from glassformer.data.dataset import Dataset
from glassformer.data.doctor_checks import each_split, run_checks
from glassformer.data.findings import DoctorReport, Finding, at_rows, excerpt, found, percent
from glassformer.data.questions import is_whole
from glassformer.data.windows import NOWHERE, QuestionRows

LONG_ANSWER = 20  # in words; longer ones are rarely answers


def examine_answered(dataset: Dataset, rows: dict[str, QuestionRows] | None = None) -> DoctorReport:
    """Run every check on questions with answers.

    Args:
        rows: the windows of each split as a model reads them, to count contexts that need several windows
            and answers that no window contains; None: not checked.
    """
    figures: dict[str, Any] = {"splits": {k: _figures(split) for k, split in dataset.splits.items()}}
    checks = [each_split(_repeats), _leaks, _balance, each_split(_borders), each_split(_long)]
    checks += [partial(_windowed, rows=rows)] if rows else []
    return run_checks(dataset.name, dataset.splits, checks, dataset.rejected, figures)


def _figures(split: AnsweredSplit) -> dict[str, Any]:
    contexts = [len(text.split()) for text in dict.fromkeys(split.texts)]
    answers = [len(own.texts[0].split()) for own in split.answers or () if own.texts]
    words = {
        "question": float(np.median([len(q.question.split()) for q in split.questions])),
        "context": float(np.median(contexts)),
        "longest_context": max(contexts),
        "answer": float(np.median(answers)) if answers else 0.0,
    }
    none = sum(not own.texts for own in split.answers or ())
    return {"rows": len(split), "contexts": len(contexts), "unanswerable": none, "words": words}


def _repeats(name: str, split: AnsweredSplit) -> Iterable[Finding]:
    """Duplicate questions on the same context, and those of them with different answers."""
    seen: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, question in enumerate(split.questions):
        seen[alike(question.question), question.context].append(i)
    again = [own for own in seen.values() if len(own) > 1]
    if not again:
        yield Finding("ok", "duplicates", f"{name}: no question occurs twice on the same context")
        return
    count = sum(len(own) - 1 for own in again)
    shown = tuple(excerpt(split.questions[own[0]].question) for own in again[:3])
    message = f"{name}: duplicate questions on the same context: {count:,} of {len(split):,}"
    yield Finding("warning", "duplicates", message, count, shown, "leave repeats out")
    answers = split.answers or []
    conflicting = [own for own in again if answers and len({answers[i].texts[:1] for i in own}) > 1]
    differing = []
    for own in conflicting[:3]:
        given = " / ".join(dict.fromkeys((answers[i].texts[:1] or ("none",))[0] for i in own))
        differing.append(f"{excerpt(split.questions[own[0]].question, 80)}: {given}")
    message = f"{name}: repeated questions with different answers: {len(conflicting):,}"
    fix = "give each one answer"
    yield from found("warning", "contradictions", conflicting, message, fix, shown=differing)


def _leaks(splits: Mapping[str, AnsweredSplit], figures: dict[str, Any]) -> Iterable[Finding]:
    """Contexts in two splits: their questions are evaluated on a context seen in training."""
    keys = {name: {alike(text): text for text in set(split.texts)} for name, split in splits.items()}
    figures["leaks"] = {}
    for a, b in itertools.combinations(splits, 2):
        shared = sorted(keys[a].keys() & keys[b].keys())
        figures["leaks"][f"{a}/{b}"] = len(shared)
        rows = sum(alike(text) in keys[a] for text in splits[b].texts) if shared else 0
        message = f"contexts in both {a} and {b}: {len(shared):,} ({rows:,} questions of {b})"
        shown, ok = [excerpt(keys[b][key]) for key in shared[:3]], f"no context is in both {a} and {b}"
        yield from found("warning", "leaks", shared, message, f"leave them out of {a}", shown=shown, ok=ok)


def _balance(splits: Mapping[str, AnsweredSplit], figures: dict[str, Any]) -> Iterable[Finding]:
    train = splits.get("train")
    for name, split in splits.items():
        if split.answers is None:
            continue
        none = sum(not own.texts for own in split.answers)
        message = f"{name}: {percent(none, len(split))} of {len(split):,} questions have no answer"
        known = name == "train" or train is None or any(not own.texts for own in train.answers or ())
        if none and not known:
            fix = "a model trained on answerable questions only always answers"
            yield Finding("warning", "no-answer", f"{message}, and train has no such question", none, (), fix)
        elif none:
            yield Finding("note", "no-answer", message, none)
        else:
            yield Finding("ok", "no-answer", f"{name}: every question has an answer")


def _borders(name: str, split: AnsweredSplit) -> Iterable[Finding]:
    """Answers that begin or end inside a word: wrong character offsets, or words joined without a space."""
    if split.answers is None:
        return
    off = []
    for i, (question, own) in enumerate(zip(split.questions, split.answers, strict=True)):
        places = zip(own.texts, own.starts, strict=True)
        off += [i] * (not all(is_whole(question.context, at, at + len(text)) for text, at in places))
    message = f"{name}: answers that begin or end inside a word: {len(off):,}"
    fix = "check answer_start: models predict whole words or word pieces"
    shown, ok = _answers_at(split, off), f"{name}: every answer begins and ends with whole words"
    yield from found("warning", "answer-borders", off, message, fix, shown=shown, ok=ok)


def _answers_at(split: AnsweredSplit, rows: list[int]) -> list[str]:
    """File and row of the first few answers, each with the text around it."""

    def around(i: int) -> str:
        own, context = (split.answers or [])[i], split.questions[i].context
        start, end = own.starts[0], own.starts[0] + len(own.texts[0])
        return excerpt(f"{context[max(0, start - 20) : start]}[{own.texts[0]}]{context[end : end + 20]}", 90)

    return at_rows(split, rows, around)


def _long(name: str, split: AnsweredSplit) -> Iterable[Finding]:
    counts = Counter(len(own.texts[0].split()) > LONG_ANSWER for own in split.answers or () if own.texts)
    if counts[True]:
        what = f"answers of more than {LONG_ANSWER} words: {counts[True]:,} of {counts.total():,}"
        fix = "raise max_answer_length, or shorten them"
        yield Finding("note", "long-answers", f"{name}: {what}", counts[True], (), fix)


def _windowed(
    splits: Mapping[str, AnsweredSplit], figures: dict[str, Any], rows: Mapping[str, QuestionRows]
) -> Iterable[Finding]:
    """How many contexts are read in several windows, and which answers no window contains completely."""
    for name, own in rows.items():
        split, each = splits[name], np.bincount(own.owners, minlength=len(splits[name]))
        several, new = int((each > 1).sum()), np.diff(own.owners, prepend=-1) > 0
        cut = int(own.table.truncated[new].sum())
        windows = {"all": len(own.table), "several": several, "most": int(each.max())}
        figures["splits"][name]["windows"] = windows
        share = percent(several, len(split))
        message = f"{name}: {share} of questions have a context of several windows, {each.max()} at most"
        yield Finding("note" if several else "ok", "windows", message, several)
        if cut:
            message = f"{name}: questions that are longer than max_question and are cut: {cut:,}"
            yield Finding("warning", "long-questions", message, cut, (), "raise max_question")
        if split.answers is None:
            continue
        there = np.zeros(len(split), bool)
        np.logical_or.at(there, own.owners, (own.targets(split.answers) != NOWHERE).any(1))
        lost = [i for i, answer in enumerate(split.answers) if answer.texts and not there[i]]
        message = f"{name}: answers that no window contains completely: {len(lost):,}"
        fix = "raise doc_stride or max_length"
        yield from found("warning", "lost-answers", lost, message, fix, shown=_answers_at(split, lost))
