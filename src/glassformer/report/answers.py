"""Report sections for question answering: scores, errors by kind, and contexts with highlighted answers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from glassformer.report import page
from glassformer.report.metrics import Table
from glassformer.report.page import MAX_ROWS, Kind, Section, folds, own_inputs, part, scores_section, table
from glassformer.report.run import Run
from glassformer.report.wording import count, decimal, percent
from glassformer.targets.answer_span import ERRORS

COLUMNS = ("n", "exact_match", "exact_match_interval", "f1", "f1_interval")


def verdict(run: Run) -> str:
    s = run.scores
    if not s:
        return ""
    none = f"; {s['unanswerable']['n']:,} of them have no answer" if s.get("unanswerable") else ""
    return (
        f"Of {s['n']:,} {run.split} questions on {s['contexts']:,} texts, {percent(s['exact_match'])} are "
        f"answered exactly{none}. F1 of words {percent(s['f1'])}."
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
    parts = []
    if s.get("unanswerable") and s.get("answerable"):
        parts = [("of these with an answer", s["answerable"]), ("of these without one", s["unanswerable"])]
    return scores_section(run, note, COLUMNS, parts=parts)


def errors(run: Run) -> Section | None:
    counts = run.scores.get("errors")
    if not counts:
        return None
    note = (
        "Missed: the question has an answer, but none is predicted. Invented: an answer is predicted, but "
        "the question has none. Too long, too short: the prediction contains the true answer, or is a part "
        "of it. Overlapping: both share some words. Elsewhere: both share no words."
    )
    rows = [[error.replace("_", " "), count(counts[error])] for error in ERRORS]
    return Section("errors", "Errors by type", note, table(Table(["error", "questions"], rows, (), (), "")))


def questions(run: Run) -> Section | None:
    user_questions = run.metrics.get("questions") or []
    rows = [q | {"pieces": pieces(_as_example(q))} for q in user_questions[:MAX_ROWS]]
    return own_inputs(part("answers", "user_questions", rows), "questions", "spans.css") if rows else None


def answers(run: Run) -> Section | None:
    """Evaluated questions and their contexts, with true and predicted answers highlighted."""
    examples = run.json("answers.json").get("examples")
    if not examples:
        return None
    note = (
        "Evaluated questions, most confident errors first. Filled: predicted and true. Not filled: true "
        "but not predicted. Framed: predicted but not true."
    )
    rows = [e | {"pieces": pieces(e)} for e in examples]
    return Section("answers", "Questions", note, part("answers", "evaluated", rows), ("spans.css",))


def learning_curves(run: Run) -> Section | None:
    measured_on = ", on training and validation data." if run.evaluations else "."
    note = (
        "Training loss of each step with its trend, in nats per window, and the share of windows whose start "
    )
    return page.learning_curves(run, f"{note}and end are both right{measured_on}", "Windows right")


def about(run: Run) -> dict[str, Any]:
    threshold = run.metrics.get("threshold")
    return {"threshold of no answer": "always answers" if threshold is None else decimal(threshold)}


def _as_example(question: dict[str, Any]) -> dict[str, Any]:
    spans = [(question["start"], question["end"])] if question["answer"] else []
    return {"context": question["context"], "true_spans": spans, "spans": spans}


def pieces(example: dict[str, Any]) -> list[dict[str, Any]]:
    """Split a context into pieces, each with ``true`` and ``given``: whether a true or a predicted answer
    covers the piece.

    A piece ends where any answer begins or ends, because true and predicted answers can overlap.
    """
    text = example["context"]
    spans = {"true": example["true_spans"], "given": example["spans"]}
    ends = sorted(
        {0, len(text), *(end for intervals in spans.values() for span in intervals for end in span)}
    )
    return [
        {
            "text": text[a:b],
            **{kind: any(x <= a and b <= y for x, y in intervals) for kind, intervals in spans.items()},
        }
        for a, b in pairwise(ends)
    ]


PAGE = Kind(
    sections=(scores, errors, folds, questions, answers, learning_curves),
    verdict=verdict,
    about=about,
    letters=lambda run: "N tokens in all, each with two logits: start and end of an answer",
)
