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
        f"Of {s['n']:,} {run.judged} questions on {s['contexts']:,} texts, {percent(s['exact_match'])} are "
        f"answered exactly{none}. F1 of words {percent(s['f1'])}."
    )


def scores(run: Run) -> Section | None:
    s = run.scores
    if not s:
        return None
    note = (
        "Computed as in SQuAD's script: case, punctuation and articles are ignored; F1 compares words with "
        "the most similar true answer; if there is no answer, only no answer is right. The 95 % intervals "
        "come from resampled texts with all their questions."
    )
    parts = []
    if s.get("unanswerable") and s.get("answerable"):
        parts = [("of these with an answer", s["answerable"]), ("of these without one", s["unanswerable"])]
    return scores_section(run, note, COLUMNS, parts=parts)


def errors(run: Run) -> Section | None:
    found = run.scores.get("errors")
    if not found:
        return None
    note = (
        "Missed: no answer is given, but there is one. Invented: an answer is given, but there is none. Too "
        "long, too short: the true answer with more around it, or a part of it. Overlapping: shares some "
        "words with it. Elsewhere: shares no words with it."
    )
    rows = [[error.replace("_", " "), count(found[error])] for error in ERRORS]
    return Section("errors", "Errors by type", note, table(Table(["error", "questions"], rows, (), (), "")))


def questions(run: Run) -> Section | None:
    given = run.metrics.get("questions") or []
    rows = [q | {"pieces": pieces(_own(q))} for q in given[:MAX_ROWS]]
    return own_inputs(part("answers", "own", rows), "questions", "spans.css") if rows else None


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
    return Section("answers", "Questions", note, part("answers", "judged", rows), ("spans.css",))


def learned(run: Run) -> Section | None:
    more = ", on training and validation data." if run.evaluations else "."
    note = (
        "Training loss of each step with its trend, in nats per window, and the share of windows whose start "
    )
    return page.learned(run, f"{note}and end are both right{more}", "Windows right")


def about(run: Run) -> dict[str, Any]:
    threshold = run.metrics.get("threshold")
    return {"threshold of no answer": "always answers" if threshold is None else decimal(threshold)}


def _own(question: dict[str, Any]) -> dict[str, Any]:
    spans = [(question["start"], question["end"])] if question["answer"] else []
    return {"context": question["context"], "true_spans": spans, "spans": spans}


def pieces(example: dict[str, Any]) -> list[dict[str, Any]]:
    """Split a context into pieces, each with ``true`` and ``given``: whether a true or a predicted answer
    covers it.

    A piece ends where any answer begins or ends, because true and predicted answers can overlap.
    """
    text = example["context"]
    spans = {"true": example["true_spans"], "given": example["spans"]}
    ends = sorted({0, len(text), *(end for own in spans.values() for span in own for end in span)})
    return [
        {"text": text[a:b], **{kind: any(x <= a and b <= y for x, y in own) for kind, own in spans.items()}}
        for a, b in pairwise(ends)
    ]


PAGE = Kind(
    sections=(scores, errors, folds, questions, answers, learned),
    verdict=verdict,
    about=about,
    letters=lambda run: "N tokens in all, each with two logits: start and end of an answer",
)
