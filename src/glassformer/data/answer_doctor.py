"""Checks of question-answering data: offsets, duplicates, leakage, lengths, windows."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from glassformer.data.answered import AnsweredSplit
from glassformer.data.copies import comparison_key
from glassformer.data.dataset import Dataset
from glassformer.data.doctor_checks import each_split, run_checks
from glassformer.data.findings import DoctorReport, Finding, at_rows, excerpt, finding_of, percent
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
    checks = [each_split(_duplicates), _leakage, _balance, each_split(_word_borders), each_split(_long)]
    checks += [partial(_windows, rows=rows)] if rows else []
    return run_checks(dataset.name, dataset.splits, checks, dataset.rejected, figures)


def _figures(split: AnsweredSplit) -> dict[str, Any]:
    contexts = [len(text.split()) for text in dict.fromkeys(split.texts)]
    answers = [len(answer.texts[0].split()) for answer in split.answers or () if answer.texts]
    words = {
        "question": float(np.median([len(q.question.split()) for q in split.questions])),
        "context": float(np.median(contexts)),
        "longest_context": max(contexts),
        "answer": float(np.median(answers)) if answers else 0.0,
    }
    none = sum(not answer.texts for answer in split.answers or ())
    return {"rows": len(split), "contexts": len(contexts), "unanswerable": none, "words": words}


def _duplicates(name: str, split: AnsweredSplit) -> Iterable[Finding]:
    """Duplicate questions on the same context, and duplicates with different answers."""
    seen: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, question in enumerate(split.questions):
        seen[comparison_key(question.question), question.context].append(i)
    repeated = [group for group in seen.values() if len(group) > 1]
    if not repeated:
        yield Finding("ok", "duplicates", f"{name}: no question occurs twice on the same context")
        return
    count = sum(len(group) - 1 for group in repeated)
    shown = tuple(excerpt(split.questions[group[0]].question) for group in repeated[:3])
    message = f"{name}: duplicate questions on the same context: {count:,} of {len(split):,}"
    yield Finding("warning", "duplicates", message, count, shown, "remove the duplicates")
    answers = split.answers or []
    conflicting = [group for group in repeated if answers and len({answers[i].texts[:1] for i in group}) > 1]
    differing = []
    for group in conflicting[:3]:
        answers_given = " / ".join(dict.fromkeys((answers[i].texts[:1] or ("none",))[0] for i in group))
        differing.append(f"{excerpt(split.questions[group[0]].question, 80)}: {answers_given}")
    message = f"{name}: repeated questions with different answers: {len(conflicting):,}"
    fix = "give every question one answer"
    yield from finding_of("warning", "contradictions", conflicting, message, fix, shown=differing)


def _leakage(splits: Mapping[str, AnsweredSplit], figures: dict[str, Any]) -> Iterable[Finding]:
    """Contexts in two splits: their questions are evaluated on a context seen in training."""
    keys = {name: {comparison_key(text): text for text in set(split.texts)} for name, split in splits.items()}
    figures["leaks"] = {}
    for a, b in itertools.combinations(splits, 2):
        shared = sorted(keys[a].keys() & keys[b].keys())
        figures["leaks"][f"{a}/{b}"] = len(shared)
        rows = sum(comparison_key(text) in keys[a] for text in splits[b].texts) if shared else 0
        message = f"contexts in both {a} and {b}: {len(shared):,} ({rows:,} questions of {b})"
        shown, ok = [excerpt(keys[b][key]) for key in shared[:3]], f"no context is in both {a} and {b}"
        yield from finding_of("warning", "leaks", shared, message, f"drop them from {a}", shown=shown, ok=ok)


def _balance(splits: Mapping[str, AnsweredSplit], figures: dict[str, Any]) -> Iterable[Finding]:
    train = splits.get("train")
    for name, split in splits.items():
        if split.answers is None:
            continue
        count = sum(not answer.texts for answer in split.answers)
        message = f"{name}: {percent(count, len(split))} of {len(split):,} questions have no answer"
        seen = name == "train" or train is None or any(not answer.texts for answer in train.answers or ())
        if count and not seen:
            fix = "add such questions to train: a model trained only on answerable questions never abstains"
            yield Finding(
                "warning", "no-answer", f"{message}, and train has no such question", count, (), fix
            )
        elif count:
            yield Finding("note", "no-answer", message, count)
        else:
            yield Finding("ok", "no-answer", f"{name}: every question has an answer")


def _word_borders(name: str, split: AnsweredSplit) -> Iterable[Finding]:
    """Answers that begin or end inside a word: wrong character offsets, or words joined without a space."""
    if split.answers is None:
        return
    misplaced = []
    for i, (question, answer) in enumerate(zip(split.questions, split.answers, strict=True)):
        places = zip(answer.texts, answer.starts, strict=True)
        misplaced += [i] * (not all(is_whole(question.context, at, at + len(text)) for text, at in places))
    message = f"{name}: answers that begin or end inside a word: {len(misplaced):,}"
    fix = "check answer_start: models predict whole words or word pieces"
    shown, ok = _answers_at(split, misplaced), f"{name}: every answer begins and ends with whole words"
    yield from finding_of("warning", "answer-borders", misplaced, message, fix, shown=shown, ok=ok)


def _answers_at(split: AnsweredSplit, rows: list[int]) -> list[str]:
    """File and row of the first few answers, each with the text around it."""

    def around(i: int) -> str:
        a, context = (split.answers or [])[i], split.questions[i].context
        start, end = a.starts[0], a.starts[0] + len(a.texts[0])
        return excerpt(f"{context[max(0, start - 20) : start]}[{a.texts[0]}]{context[end : end + 20]}", 90)

    return at_rows(split, rows, around)


def _long(name: str, split: AnsweredSplit) -> Iterable[Finding]:
    counts = Counter(len(a.texts[0].split()) > LONG_ANSWER for a in split.answers or () if a.texts)
    if counts[True]:
        what = f"answers of more than {LONG_ANSWER} words: {counts[True]:,} of {counts.total():,}"
        fix = "raise max_answer_length, or shorten the answers"
        yield Finding("note", "long-answers", f"{name}: {what}", counts[True], (), fix)


def _windows(
    splits: Mapping[str, AnsweredSplit], figures: dict[str, Any], rows: Mapping[str, QuestionRows]
) -> Iterable[Finding]:
    """The contexts that are read in several windows, and the answers that no window contains completely."""
    for name, windows_read in rows.items():
        split, counts = splits[name], np.bincount(windows_read.owners, minlength=len(splits[name]))
        several, new = int((counts > 1).sum()), np.diff(windows_read.owners, prepend=-1) > 0
        cut = int(windows_read.table.truncated[new].sum())
        windows = {"all": len(windows_read.table), "several": several, "most": int(counts.max())}
        figures["splits"][name]["windows"] = windows
        share = percent(several, len(split))
        message = f"{name}: {share} of questions have contexts of several windows, at most {counts.max()}"
        yield Finding("note" if several else "ok", "windows", message, several)
        if cut:
            message = f"{name}: questions that are longer than max_question and are cut: {cut:,}"
            yield Finding("warning", "long-questions", message, cut, (), "raise max_question")
        if split.answers is None:
            continue
        covered = np.zeros(len(split), bool)
        np.logical_or.at(
            covered, windows_read.owners, (windows_read.targets(split.answers) != NOWHERE).any(1)
        )
        lost = [i for i, answer in enumerate(split.answers) if answer.texts and not covered[i]]
        message = f"{name}: answers that no window contains completely: {len(lost):,}"
        fix = "raise doc_stride or max_length"
        yield from finding_of("warning", "lost-answers", lost, message, fix, shown=_answers_at(split, lost))
