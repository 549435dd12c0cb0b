"""Data doctor for question-answering data."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from glassformer.data.answered import QASplit
from glassformer.data.dataset import Dataset
from glassformer.data.doctor_checks import each_split, run_checks
from glassformer.data.duplicates import comparison_key, positions_by_key
from glassformer.data.findings import DoctorReport, Finding, Findings, Stats, excerpt, percent, row_examples
from glassformer.data.questions import has_word_boundaries
from glassformer.data.windows import NO_ANSWER, QuestionWindows

MAX_ANSWER_WORDS = 20  # a note reports longer answers


def examine_qa(dataset: Dataset, windows: dict[str, QuestionWindows] | None = None) -> DoctorReport:
    """Run every check on question-answering data.

    Args:
        windows: the windows of each split as a model reads them, to count contexts that need several windows
            and answers that no window contains; None: skip this check.
    """
    stats: Stats = {"splits": {k: _split_stats(split) for k, split in dataset.splits.items()}}
    checks = [each_split(_duplicates), _leakage, _unanswerable, each_split(_word_borders, _long_answers)]
    checks += [partial(_windows, windows_of_split=windows)] if windows else []
    return run_checks(dataset, checks, stats)


def _split_stats(split: QASplit) -> dict[str, Any]:
    context_words = [len(text.split()) for text in dict.fromkeys(split.texts)]
    answer_words = [len(answer.texts[0].split()) for answer in split.answers or () if answer.texts]
    words = {
        "question": float(np.median([len(q.question.split()) for q in split.questions])),
        "context": float(np.median(context_words)),
        "longest_context": max(context_words),
        "answer": float(np.median(answer_words)) if answer_words else 0.0,
    }
    unanswerable = sum(not answer.texts for answer in split.answers or ())
    return {"rows": len(split), "contexts": len(context_words), "unanswerable": unanswerable, "words": words}


def _duplicates(name: str, split: QASplit) -> Findings:
    """Duplicate questions on the same context, and duplicates with different answers."""
    keys = [(comparison_key(question.question), question.context) for question in split.questions]
    repeated = [rows for rows in positions_by_key(keys).values() if len(rows) > 1]
    if not repeated:
        yield Finding("ok", "duplicates", f"{name}: no question occurs twice on the same context")
        return
    count = sum(len(rows) - 1 for rows in repeated)
    shown = tuple(excerpt(split.questions[rows[0]].question) for rows in repeated[:3])
    message = f"{name}: duplicate questions on the same context: {count:,} of {len(split):,}"
    yield Finding("warning", "duplicates", message, count, shown, "remove the duplicates")
    answers = split.answers or []
    conflicting = [rows for rows in repeated if answers and len({answers[i].texts[:1] for i in rows}) > 1]
    examples = []
    for rows in conflicting[:3]:
        distinct = " / ".join(dict.fromkeys((answers[i].texts[:1] or ("none",))[0] for i in rows))
        examples.append(f"{excerpt(split.questions[rows[0]].question, 80)}: {distinct}")
    message = f"{name}: repeated questions with different answers: {len(conflicting):,}"
    fix = "give every question one answer"
    yield from Finding.if_any("warning", "contradictions", conflicting, message, fix, shown=examples)


def _leakage(splits: Mapping[str, QASplit], stats: Stats) -> Findings:
    """Contexts in two splits; the model would be evaluated on contexts that it has seen in training."""
    keys = {name: {comparison_key(text): text for text in set(split.texts)} for name, split in splits.items()}
    stats["leaks"] = {}
    for a, b in itertools.combinations(splits, 2):
        shared = sorted(keys[a].keys() & keys[b].keys())
        stats["leaks"][f"{a}/{b}"] = len(shared)
        rows = sum(comparison_key(text) in keys[a] for text in splits[b].texts) if shared else 0
        message = f"contexts in both {a} and {b}: {len(shared):,} ({rows:,} questions of {b})"
        shown, ok = [excerpt(keys[b][key]) for key in shared[:3]], f"no context is in both {a} and {b}"
        fix = f"drop them from {a}"
        yield from Finding.if_any("warning", "leaks", shared, message, fix, shown=shown, ok=ok)


def _unanswerable(splits: Mapping[str, QASplit], stats: Stats) -> Findings:
    train = splits.get("train")
    for name, split in splits.items():
        if split.answers is None:
            continue
        count = sum(not answer.texts for answer in split.answers)
        message = f"{name}: {percent(count, len(split))} of {len(split):,} questions have no answer"
        is_seen = name == "train" or train is None or any(not answer.texts for answer in train.answers or ())
        if count and not is_seen:
            message += ", and train has no such question"
            fix = "add such questions to train: a model trained only on answerable questions never abstains"
            yield Finding("warning", "no-answer", message, count, (), fix)
        elif count:
            yield Finding("note", "no-answer", message, count)
        else:
            yield Finding("ok", "no-answer", f"{name}: every question has an answer")


def _word_borders(name: str, split: QASplit) -> Findings:
    """Answers that begin or end inside a word: wrong character offsets, or words joined without a space."""
    if split.answers is None:
        return
    inside_word = []
    for i, (question, answer) in enumerate(zip(split.questions, split.answers, strict=True)):
        for text, start in zip(answer.texts, answer.starts, strict=True):
            if not has_word_boundaries(question.context, start, start + len(text)):
                inside_word.append(i)
                break
    message = f"{name}: answers that begin or end inside a word: {len(inside_word):,}"
    fix = "check answer_start: models predict whole words or word pieces"
    shown, ok = _answers_at(split, inside_word), f"{name}: every answer begins and ends with whole words"
    yield from Finding.if_any("warning", "answer-borders", inside_word, message, fix, shown=shown, ok=ok)


def _answers_at(split: QASplit, rows: list[int]) -> list[str]:
    """File and row of the first few answers, each with its surrounding text."""

    def in_context(i: int) -> str:
        answer, context = (split.answers or [])[i], split.questions[i].context
        text, start = answer.texts[0], answer.starts[0]
        end = start + len(text)
        return excerpt(f"{context[max(0, start - 20) : start]}[{text}]{context[end : end + 20]}", 90)

    return row_examples(split, rows, in_context)


def _long_answers(name: str, split: QASplit) -> Findings:
    is_long = [len(a.texts[0].split()) > MAX_ANSWER_WORDS for a in split.answers or () if a.texts]
    if any(is_long):
        what = f"answers of more than {MAX_ANSWER_WORDS} words: {sum(is_long):,} of {len(is_long):,}"
        fix = "raise max_answer_length, or shorten the answers"
        yield Finding("note", "long-answers", f"{name}: {what}", sum(is_long), (), fix)


def _windows(
    splits: Mapping[str, QASplit], stats: Stats, windows_of_split: Mapping[str, QuestionWindows]
) -> Findings:
    """Contexts that are read in several windows, and answers that no window contains completely."""
    for name, windows in windows_of_split.items():
        split, counts = splits[name], np.bincount(windows.question_of_window, minlength=len(splits[name]))
        num_multi_window, is_first = (
            int((counts > 1).sum()),
            np.diff(windows.question_of_window, prepend=-1) > 0,
        )
        num_cut = int(windows.table.truncated[is_first].sum())
        sizes = {"all": len(windows.table), "several": num_multi_window, "most": int(counts.max())}
        stats["splits"][name]["windows"] = sizes
        share = percent(num_multi_window, len(split))
        message = f"{name}: {share} of questions have contexts of several windows, at most {counts.max()}"
        yield Finding("note" if num_multi_window else "ok", "windows", message, num_multi_window)
        if num_cut:
            message = f"{name}: questions that are longer than max_question and are cut: {num_cut:,}"
            yield Finding("warning", "long-questions", message, num_cut, (), "raise max_question")
        if split.answers is None:
            continue
        is_covered = np.zeros(len(split), bool)
        np.logical_or.at(
            is_covered, windows.question_of_window, (windows.targets(split.answers) != NO_ANSWER).any(1)
        )
        uncovered = [i for i, answer in enumerate(split.answers) if answer.texts and not is_covered[i]]
        message = f"{name}: answers that no window contains completely: {len(uncovered):,}"
        fix = "raise doc_stride or max_length"
        shown = _answers_at(split, uncovered)
        yield from Finding.if_any("warning", "lost-answers", uncovered, message, fix, shown=shown)
