"""Report sections for taggers: scores, errors by entity type, and sentences with colored spans."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from glassformer.report import page
from glassformer.report.metrics import Table
from glassformer.report.page import (
    MAX_ROWS,
    PageKind,
    Section,
    folds,
    render_macro,
    scores_section,
    table,
    user_inputs,
)
from glassformer.report.run import Run
from glassformer.report.wording import count, decimal, percent
from glassformer.targets.token_tags import ERRORS

HUES, LINES = 8, 4  # colors, and styles of underlines; with more than 32 kinds they repeat
METRIC_COLUMNS = ("precision", "recall", "entity_f1", "macro_f1", "accuracy", "entity_f1_interval")


def verdict(run: Run) -> str:
    s = run.scores
    if not s:
        return ""
    if not s["entities"]:
        return (
            f"The {s['n']:,} {run.split} sentences have no spans, so there is no F1; "
            f"{s['errors']['invented']:,} spans were predicted. {percent(s['accuracy'])} of the words have "
            "the right tag."
        )
    return (
        f"Of {s['entities']:,} spans in {s['n']:,} {run.split} sentences, {percent(s['recall'])} are "
        f"found; of the predicted spans, {percent(s['precision'])} are right. Entity F1 "
        f"{percent(s['entity_f1'])}."
    )


def scores(run: Run) -> Section | None:
    note = (
        "A span is right if its kind, its first and its last word are right, as in seqeval. The 95 % "
        "interval comes from resampled sentences."
    )
    footnote, repaired = "", run.metrics.get("repaired")
    if repaired:
        footnote = f"{repaired:,} training tags were malformed and were repaired."
    return (
        scores_section(run, note, METRIC_COLUMNS, footnote=render_macro("parts", "small", footnote))
        if run.scores
        else None
    )


def kinds(run: Run) -> Section | None:
    """The metrics and errors of each kind."""
    run_scores = run.scores
    if not run_scores:
        return None
    note = (
        "Metrics of each kind, and its errors: missed (no predicted span overlaps it), wrong kind, wrong "
        "border (the kind is right), invented (there is no true span)."
    )
    rows = [{"kind": kind, **values} for kind, values in (run_scores.get("by_kind") or {}).items()]
    body = render_macro("tags", "kinds", run_scores, rows, ERRORS, hues(run))
    if confused := run_scores.get("confusions"):
        words = [[true, guess, count(n)] for true, guess, n in confused]
        body += render_macro("parts", "heading", "Most frequent confusions")
        body += table(
            Table(
                ["true", "predicted", "spans"], words, highlighted=(), text_columns=("predicted",), style=""
            )
        )
    return Section("kinds", "Metrics per entity type", note, body, ("spans.css", "sort.js"))


def calibration(run: Run) -> Section | None:
    result = run.calibration
    if not result.get("splits"):
        return None
    note = (
        "The expected calibration error over words: the mean difference of predicted probability and "
        "accuracy. One temperature divides all logits; no tag changes. The 95 % interval comes from "
        "resampled sentences."
    )
    after_title = f"after, temperature {result['temperature']:.3f}"
    rows = []
    for name, split in result["splits"].items():
        for side, title in (("before", "before"), ("after", after_title)):
            values = split[side]
            low, high = map(percent, values["ece_interval"])
            rows.append(
                [name, title, percent(values["ece"]), f"{low} to {high}", decimal(values["log_loss"], 4)]
            )
    heads = ["words of", "", "error", "interval", "log loss"]
    return Section("calibration", "Calibration", note, table(Table(heads, rows, (), ("",), "")))


def sentences(run: Run) -> Section | None:
    user_sentences = run.metrics.get("sentences") or []
    if not user_sentences:
        return None
    looks = hues(run)
    marked = [s | {"parts": parts(s, looks)} for s in user_sentences[:MAX_ROWS]]
    return user_inputs(render_macro("tags", "sentences", marked, looks), "sentences", "spans.css")


def spans(run: Run) -> Section | None:
    """Evaluated sentences with true and predicted spans."""
    examples = run.json("spans.json").get("examples")
    if not examples:
        return None
    looks = hues(run)
    note = (
        "Evaluated sentences, most confident errors first. Filled: found. Not filled: missed. "
        "Framed: wrong kind or border, or no true span."
    )
    marked = [e | {"pieces": pieces(e, looks)} for e in examples]
    return Section("spans", "Sentences", note, render_macro("tags", "spans", marked, looks), ("spans.css",))


def learning_curves(run: Run) -> Section | None:
    measured_on = ", on training and validation data." if run.evaluations else "."
    note = "Training loss of each step with its trend, in nats per word, and the share of words with the "
    return page.learning_curves(run, f"{note}right tag{measured_on}", "Words right")


def hues(run: Run) -> dict[str, str]:
    """The CSS classes of every kind on the page."""
    examples = run.json("spans.json").get("examples") or ()
    return looks_of(
        [
            *(run.scores.get("by_kind") or ()),
            *(span[0] for e in examples for span in (*e["true"], *e["predicted"])),
            *(span["kind"] for s in run.metrics.get("sentences") or [] for span in s["spans"]),
        ]
    )


def looks_of(kinds: Iterable[str]) -> dict[str, str]:
    """CSS classes for the color and the underline of each kind; up to 32 kinds differ."""
    return {kind: f"k{i % HUES} l{i // HUES % LINES}" for i, kind in enumerate(sorted(set(kinds)))}


def pieces(example: dict[str, Any], hues: dict[str, str]) -> list[dict[str, Any]]:
    """Split a sentence into pieces with ``text``, true and predicted kind (with CSS class) and probability.

    A piece ends where a true or a predicted span begins or ends, because both can overlap.
    """
    words = example["words"]
    true = {i: (n, kind) for n, (kind, a, b) in enumerate(example["true"]) for i in range(a, b)}
    predicted = {
        i: (n, kind, p) for n, (kind, a, b, p) in enumerate(example["predicted"]) for i in range(a, b)
    }
    out: list[dict[str, Any]] = []
    previous: Any = None
    for i, word in enumerate(words):
        kinds_here = (true.get(i), predicted.get(i))
        if out and kinds_here == previous:
            out[-1]["text"] += f" {word}"
            continue
        (_, true_kind), (_, predicted_kind, p) = kinds_here[0] or (0, ""), kinds_here[1] or (0, "", None)
        out.append(
            {
                "text": word,
                "true": true_kind,
                "guess": predicted_kind,
                "hue": hues.get(predicted_kind or true_kind, ""),
                "probability": p,
                "right": true_kind == predicted_kind,
            }
        )
        previous = kinds_here
    return out


def parts(sentence: dict[str, Any], hues: dict[str, str]) -> list[dict[str, Any]]:
    """Split a text into its spans and the pieces between them."""
    out, end = [], 0
    for span in sentence["spans"]:
        if span["start"] > end:
            out.append({"text": sentence["text"][end : span["start"]], "kind": ""})
        out.append({**span, "hue": hues[span["kind"]]})
        end = span["end"]
    return [*out, {"text": sentence["text"][end:], "kind": ""}] if end < len(sentence["text"]) else out


PAGE = PageKind(
    sections=(scores, kinds, folds, calibration, sentences, spans, learning_curves),
    verdict=verdict,
    extra_facts=lambda run: {"tags": run.metrics.get("scheme")},
    shape_letters=lambda run: "N tokens in all; the first token of each word gets a tag",
)
