"""The sections of a page of questions and answers: errors by kind, and texts with the answers in color."""

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
        "As SQuAD's script counts: case, punctuation and articles do not count; F1 is of words, beside "
        "the nearest of several true answers; where there is no answer, only none is right. Intervals are "
        "of 95 %, from resampled texts with all their questions."
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
        "Missed: none is given where there is an answer. Invented: one is given where there is none. Too "
        "long, too short: the true one with more around it, or a part of it. Overlapping: other words "
        "that share some with it. Elsewhere: words that share none."
    )
    rows = [[error.replace("_", " "), count(found[error])] for error in ERRORS]
    return Section("errors", "Errors by type", note, table(Table(["error", "questions"], rows, (), (), "")))


def questions(run: Run) -> Section | None:
    given = run.metrics.get("questions") or []
    told = [q | {"pieces": pieces(_own(q))} for q in given[:MAX_ROWS]]
    return own_inputs(part("answers", "own", told), "questions", "spans.css") if told else None


def answers(run: Run) -> Section | None:
    """Judged questions, their texts, and true and given answers in these."""
    examples = run.json("answers.json").get("examples")
    if not examples:
        return None
    note = (
        "Evaluated questions, most confident errors first. Filled: predicted and true. Not filled: true "
        "and not given. Framed: given and not true."
    )
    told = [e | {"pieces": pieces(e)} for e in examples]
    return Section("answers", "Questions", note, part("answers", "judged", told), ("spans.css",))


def learned(run: Run) -> Section | None:
    more = ", on training and validation data." if run.evaluations else "."
    note = (
        "Training loss of each step with its trend, in nats a window, and the share of windows whose begin "
    )
    return page.learned(run, f"{note}and end are both right{more}", "Windows right")


def about(run: Run) -> dict[str, Any]:
    threshold = run.metrics.get("threshold")
    return {"threshold of no answer": "always answers" if threshold is None else decimal(threshold)}


def _own(question: dict[str, Any]) -> dict[str, Any]:
    spans = [(question["start"], question["end"])] if question["answer"] else []
    return {"context": question["context"], "true_spans": spans, "spans": spans}


def pieces(example: dict[str, Any]) -> list[dict[str, Any]]:
    """A context in runs of characters, each with ``true`` and ``given``: whether such an answer covers it.

    A run ends where an answer begins or ends, so that a true and a given one can overlap.
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
    letters=lambda run: "N tokens in all, each with two logits: an answer begins here, an answer ends here",
)
