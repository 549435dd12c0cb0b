"""What is wrong with questions and answers before a model learns them: places, repeats, leaks, lengths."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from glassformer.data.answered import AnsweredDataset, AnsweredSplit
from glassformer.data.checks import place
from glassformer.data.copies import alike
from glassformer.data.doctor_checks import bad_rows
from glassformer.data.findings import DoctorReport, Finding, excerpt, percent
from glassformer.data.question_windows import NOWHERE, QuestionRows

LONG_ANSWER = 20  # words: more is seldom an answer


def examine_answered(dataset: AnsweredDataset, rows: dict[str, QuestionRows] | None = None) -> DoctorReport:
    """Every check on questions with answers.

    Args:
        rows: of each split its windows as a model reads them: how much is windowed, and what of the answers
            is lost by it; None: not looked at.
    """
    figures: dict[str, Any] = {"splits": {k: _figures(split) for k, split in dataset.splits.items()}}
    findings = [*bad_rows(dataset.rejected), *_repeats(dataset.splits), *_leaks(dataset.splits, figures)]
    findings += [*_balance(dataset.splits), *_borders(dataset.splits), *_long(dataset.splits)]
    for name, own in (rows or {}).items():
        findings += _windowed(name, dataset.splits[name], own, figures)
    return DoctorReport(dataset.name, findings, figures)


def _figures(split: AnsweredSplit) -> dict[str, Any]:
    contexts = [len(text.split()) for text in dict.fromkeys(split.texts)]
    answers = [len(own.texts[0].split()) for own in split.answers or () if own.texts]
    return {
        "rows": len(split),
        "contexts": len(contexts),
        "unanswerable": sum(not own.texts for own in split.answers or ()),
        "words": {
            "question": float(np.median([len(q.question.split()) for q in split.questions])),
            "context": float(np.median(contexts)),
            "longest_context": max(contexts),
            "answer": float(np.median(answers)) if answers else 0.0,
        },
    }


def _repeats(splits: dict[str, AnsweredSplit]) -> Iterable[Finding]:
    """Questions that are asked of one context more than once, and such that have different answers."""
    for name, split in splits.items():
        seen: dict[tuple[str, str], list[int]] = defaultdict(list)
        for i, question in enumerate(split.questions):
            seen[alike(question.question), question.context].append(i)
        again = [own for own in seen.values() if len(own) > 1]
        if not again:
            yield Finding("ok", "duplicates", f"{name}: no question is asked twice of one context")
            continue
        count = sum(len(own) - 1 for own in again)
        shown = tuple(excerpt(split.questions[own[0]].question) for own in again[:3])
        message = f"{name}: questions that are asked of their context before: {count:,} of {len(split):,}"
        yield Finding("warning", "duplicates", message, count, shown, "leave repeats out")
        if split.answers is None:
            continue
        apart = [own for own in again if len({split.answers[i].texts[:1] for i in own}) > 1]
        if apart:
            shown = tuple(_differs(split, own) for own in apart[:3])
            message = f"{name}: repeated questions with different answers: {len(apart):,}"
            yield Finding("warning", "contradictions", message, len(apart), shown, "give each one answer")


def _differs(split: AnsweredSplit, own: list[int]) -> str:
    given = dict.fromkeys((split.answers or [])[i].texts[:1] or ("none",) for i in own)
    return f"{excerpt(split.questions[own[0]].question, 80)}: {' / '.join(texts[0] for texts in given)}"


def _leaks(splits: dict[str, AnsweredSplit], figures: dict[str, Any]) -> Iterable[Finding]:
    """Contexts in two splits: their questions are judged on a text that was learned."""
    keys = {name: {alike(text): text for text in set(split.texts)} for name, split in splits.items()}
    figures["leaks"] = {}
    for a, b in itertools.combinations(splits, 2):
        shared = sorted(keys[a].keys() & keys[b].keys())
        figures["leaks"][f"{a}/{b}"] = len(shared)
        if not shared:
            yield Finding("ok", "leaks", f"no context stands in both {a} and {b}")
            continue
        rows = sum(alike(text) in keys[a] for text in splits[b].texts)
        message = f"contexts in both {a} and {b}: {len(shared):,} ({rows:,} questions of {b})"
        shown = tuple(excerpt(keys[b][key]) for key in shared[:3])
        yield Finding("warning", "leaks", message, len(shared), shown, f"leave them out of {a}")


def _balance(splits: dict[str, AnsweredSplit]) -> Iterable[Finding]:
    train = splits.get("train")
    for name, split in splits.items():
        if split.answers is None:
            continue
        none = sum(not own.texts for own in split.answers)
        message = f"{name}: {percent(none, len(split))} of {len(split):,} questions have no answer"
        known = name == "train" or train is None or any(not own.texts for own in train.answers or ())
        if none and not known:
            fix = "a model that has seen none of them always answers"
            yield Finding("warning", "no-answer", f"{message}, and train has no such question", none, (), fix)
        elif none:
            yield Finding("note", "no-answer", message, none)
        else:
            yield Finding("ok", "no-answer", f"{name}: every question has an answer")


def _borders(splits: dict[str, AnsweredSplit]) -> Iterable[Finding]:
    """Answers that begin or end inside a word: places that are off, or text that was joined."""
    for name, split in splits.items():
        if split.answers is None:
            continue
        off = []
        for i, (question, own) in enumerate(zip(split.questions, split.answers, strict=True)):
            if any(
                _inside(question.context, a, a + len(t)) for t, a in zip(own.texts, own.starts, strict=True)
            ):
                off.append(i)
        if not off:
            yield Finding("ok", "answer-borders", f"{name}: every answer begins and ends with whole words")
            continue
        shown = tuple(f"{place(split.origin, i, split.rows)}: {_around(split, i)}" for i in off[:3])
        message = f"{name}: answers that begin or end inside a word: {len(off):,}"
        fix = "look at their places: a model gives whole words or pieces of them"
        yield Finding("warning", "answer-borders", message, len(off), shown, fix)


def _inside(context: str, start: int, end: int) -> bool:
    before, behind = context[start - 1 : start] if start else "", context[end : end + 1]
    return (before.isalnum() and context[start].isalnum()) or (
        behind.isalnum() and context[end - 1].isalnum()
    )


def _around(split: AnsweredSplit, i: int) -> str:
    own, context = (split.answers or [])[i], split.questions[i].context
    start, end = own.starts[0], own.starts[0] + len(own.texts[0])
    return excerpt(f"{context[max(0, start - 20) : start]}[{own.texts[0]}]{context[end : end + 20]}", 90)


def _long(splits: dict[str, AnsweredSplit]) -> Iterable[Finding]:
    for name, split in splits.items():
        counts = Counter(len(own.texts[0].split()) > LONG_ANSWER for own in split.answers or () if own.texts)
        if counts[True]:
            what = f"answers of more than {LONG_ANSWER} words: {counts[True]:,} of {counts.total():,}"
            fix = "raise max_answer_length, or shorten them"
            yield Finding("note", "long-answers", f"{name}: {what}", counts[True], (), fix)


def _windowed(
    name: str, split: AnsweredSplit, rows: QuestionRows, figures: dict[str, Any]
) -> Iterable[Finding]:
    """How many contexts are read in several windows, and which answers stand in none of them as a whole."""
    each = np.bincount(rows.owners, minlength=len(split))
    several, cut = (
        int((each > 1).sum()),
        int(rows.table.truncated[np.diff(rows.owners, prepend=-1) > 0].sum()),
    )
    figures["splits"][name]["windows"] = {"all": len(rows.table), "several": several, "most": int(each.max())}
    share = percent(several, len(split))
    message = f"{name}: {share} of questions have a context that is read in windows, {each.max()} at most"
    yield Finding("note" if several else "ok", "windows", message, several)
    if cut:
        message = f"{name}: questions that are longer than max_question and are cut: {cut:,}"
        yield Finding("warning", "long-questions", message, cut, (), "raise max_question")
    if split.answers is None:
        return
    found = np.zeros(len(split), bool)
    np.logical_or.at(found, rows.owners, (rows.targets(split.answers) != NOWHERE).any(1))
    lost = [i for i, own in enumerate(split.answers) if own.texts and not found[i]]
    if lost:
        shown = tuple(f"{place(split.origin, i, split.rows)}: {_around(split, i)}" for i in lost[:3])
        message = f"{name}: answers that stand whole in no window: {len(lost):,}"
        yield Finding("warning", "lost-answers", message, len(lost), shown, "raise doc_stride or max_length")
