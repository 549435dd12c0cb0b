"""Report sections for question answering."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from glassformer.report import page
from glassformer.report.metrics import Table
from glassformer.report.page import PageKind, Section
from glassformer.report.run import Run
from glassformer.report.wording import count, decimal, percent
from glassformer.targets.answer_span import ERRORS

COLUMNS = ("n", "exact_match", "exact_match_interval", "f1", "f1_interval")


def verdict(run: Run) -> str:
    s = run.scores
    if not s:
        return ""
    unanswerable = f"; {s['unanswerable']['n']:,} of them have no answer" if s.get("unanswerable") else ""
    return (
        f"Of {s['n']:,} {run.split} questions on {s['contexts']:,} texts, {percent(s['exact_match'])} are "
        f"answered exactly{unanswerable}. F1 of words {percent(s['f1'])}."
    )


def scores(run: Run) -> Section | None:
    s = run.scores
    if not s:
        return None
    note = (
        "Computed as in SQuAD's script: case, punctuation and articles are ignored; F1 compares words with "
        "the most similar true answer; for unanswerable questions only 'no answer' is right. The 95 % "
        "intervals come from resampled texts with all their questions."
    )
    subsets = []
    if s.get("unanswerable") and s.get("answerable"):
        subsets = [("of these with an answer", s["answerable"]), ("of these without one", s["unanswerable"])]
    return page.scores_section(run, note, COLUMNS, subsets=subsets)


def errors(run: Run) -> Section | None:
    counts = run.scores.get("errors") or {}
    note = (
        "Missed: the question has an answer, but none is predicted. Invented: an answer is predicted, but "
        "the question has none. Too long, too short: the prediction contains the true answer, or is a part "
        "of it. Overlapping: both share some words. Elsewhere: both share no words."
    )
    rows = [[error.replace("_", " "), count(counts[error])] for error in ERRORS if counts]
    return page.tabular("errors", "Errors by type", note, Table(["error", "questions"], rows, (), (), ""))


def questions(run: Run) -> Section | None:
    rows = []
    for q in run.metrics.get("questions") or []:
        spans = [(q["start"], q["end"])] if q["answer"] else []
        rows.append(q | {"pieces": pieces(q["context"], spans, spans)})
    return page.user_inputs("answers.user_questions", rows, name="questions", assets=("spans.css",))


def answers(run: Run) -> Section | None:
    """Evaluated questions and their contexts, with true and predicted answers highlighted."""
    examples = run.json("answers.json").get("examples") or []
    note = (
        "Evaluated questions, most confident errors first. Filled: predicted and true. Not filled: true "
        "but not predicted. Framed: predicted but not true."
    )
    rows = [e | {"pieces": pieces(e["context"], e["true_spans"], e["spans"])} for e in examples]
    return page.listing("answers", "Questions", note, "answers.evaluated", rows, assets=("spans.css",))


def learning_curves(run: Run) -> Section | None:
    measured_on = ", on training and validation data." if run.evaluations else "."
    note = "Training loss of each step with its trend, in nats per window, and the share of windows "
    note += f"whose start and end are both right{measured_on}"
    return page.learning_curves(run, note, "Window accuracy")


def extra_facts(run: Run) -> dict[str, Any]:
    threshold = run.metrics.get("threshold")
    return {"threshold of no answer": "always answers" if threshold is None else decimal(threshold)}


def pieces(
    context: str, true: Sequence[tuple[int, int]], predicted: Sequence[tuple[int, int]]
) -> list[dict[str, Any]]:
    """Split a context where true or predicted answers begin or end, because answers can overlap.

    Each piece has its ``text``, and ``true`` and ``predicted``: whether such an answer covers it.
    """
    ends = sorted({0, len(context), *(end for span in (*true, *predicted) for end in span)})

    def is_covered(spans: Sequence[tuple[int, int]], start: int, end: int) -> bool:
        return any(a <= start and end <= b for a, b in spans)

    return [
        {
            "text": context[start:end],
            "true": is_covered(true, start, end),
            "predicted": is_covered(predicted, start, end),
        }
        for start, end in pairwise(ends)
    ]


PAGE = PageKind(
    sections=(scores, errors, page.folds, questions, answers, learning_curves),
    verdict=verdict,
    extra_facts=extra_facts,
    shape_letters=lambda run: "N tokens in all, each with two logits: start and end of an answer",
)
