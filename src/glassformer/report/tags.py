"""Report sections for taggers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from glassformer.report import page
from glassformer.report.metrics import Table
from glassformer.report.page import PageKind, Section, render_macro, table
from glassformer.report.run import Run
from glassformer.report.wording import count, decimal, percent
from glassformer.targets.token_tags import ERRORS

COLORS, UNDERLINES = 8, 4  # numbers of CSS classes; 8 * 4 kinds of entities can be told apart
METRIC_COLUMNS = ("precision", "recall", "entity_f1", "macro_f1", "accuracy", "entity_f1_interval")


def verdict(run: Run) -> str:
    scores = run.scores
    if not scores:
        return ""
    if not scores["entities"]:
        return (
            f"The {scores['n']:,} {run.split} sentences have no spans, so there is no F1; "
            f"{scores['errors']['invented']:,} spans were predicted. {percent(scores['accuracy'])} of the "
            "words have the right tag."
        )
    return (
        f"Of {scores['entities']:,} spans in {scores['n']:,} {run.split} sentences, "
        f"{percent(scores['recall'])} are found; of the predicted spans, {percent(scores['precision'])} are "
        f"right. Entity F1 {percent(scores['entity_f1'])}."
    )


def scores(run: Run) -> Section | None:
    note = (
        "A span is right if its kind, its first and its last word are right, as in seqeval. The 95 % "
        "interval comes from resampled sentences."
    )
    if not run.scores:
        return None
    repaired = run.metrics.get("repaired")
    footnote = f"{repaired:,} training tags were malformed and were repaired." if repaired else ""
    return page.scores_section(run, note, METRIC_COLUMNS, footnote=render_macro("parts", "small", footnote))


def kinds(run: Run) -> Section | None:
    run_scores = run.scores
    if not run_scores:
        return None
    note = (
        "Metrics of each kind, and its errors: missed (no predicted span overlaps it), wrong kind, wrong "
        "boundary (the kind is right), invented (there is no true span)."
    )
    rows = [{"kind": kind, **values} for kind, values in (run_scores.get("by_kind") or {}).items()]
    body = render_macro("tags", "kinds", run_scores, rows, ERRORS, run_css_classes(run))
    if confusions := run_scores.get("confusions"):
        lines = [[true, predicted, count(n)] for true, predicted, n in confusions]
        body += render_macro("parts", "heading", "Most frequent confusions")
        body += table(Table(["true", "predicted", "spans"], lines, (), ("predicted",), ""))
    return Section("kinds", "Metrics per entity type", note, body, ("spans.css", "sort.js"))


def calibration(run: Run) -> Section | None:
    result = run.calibration
    note = (
        "The expected calibration error over words: the mean difference of predicted probability and "
        "accuracy. One temperature divides all logits; no tag changes. The 95 % interval comes from "
        "resampled sentences."
    )
    rows = []
    for name, split in (result.get("splits") or {}).items():
        titles = {"before": "before", "after": f"after, temperature {result['temperature']:.3f}"}
        for stage, title in titles.items():
            values = split[stage]
            low, high = map(percent, values["ece_interval"])
            interval = f"{low} to {high}"
            rows.append([name, title, percent(values["ece"]), interval, decimal(values["log_loss"], 4)])
    columns = ["words of", "", "error", "interval", "log loss"]
    return page.tabular("calibration", "Calibration", note, Table(columns, rows, (), ("",), ""))


def sentences(run: Run) -> Section | None:
    classes = run_css_classes(run)
    rows = [s | {"parts": split_at_spans(s, classes)} for s in run.metrics.get("sentences") or []]
    return page.user_inputs("tags.sentences", rows, classes, assets=("spans.css",))


def spans(run: Run) -> Section | None:
    examples = run.json("spans.json").get("examples") or []
    classes = run_css_classes(run)
    note = (
        "Evaluated sentences, most confident errors first. Filled: found. Not filled: missed. "
        "Framed: wrong kind or boundary, or no true span."
    )
    rows = [e | {"pieces": pieces(e, classes)} for e in examples]
    return page.listing("spans", "Sentences", note, "tags.spans", rows, classes, assets=("spans.css",))


def learning_curves(run: Run) -> Section | None:
    measured_on = ", on training and validation data." if run.evaluations else "."
    note = "Training loss of each step with its trend, in nats per word, and the share of words with the "
    return page.learning_curves(run, f"{note}right tag{measured_on}", "Words right")


def run_css_classes(run: Run) -> dict[str, str]:
    """The CSS classes of each kind of entity on the page."""
    examples = run.json("spans.json").get("examples") or ()
    kinds = {*(run.scores.get("by_kind") or ())}
    kinds |= {span[0] for e in examples for span in (*e["true"], *e["predicted"])}
    kinds |= {span["kind"] for s in run.metrics.get("sentences") or [] for span in s["spans"]}
    return css_classes(kinds)


def css_classes(kinds: Iterable[str]) -> dict[str, str]:
    """CSS classes for the color and the underline of each kind of entity; up to 32 kinds differ."""
    return {kind: f"k{i % COLORS} l{i // COLORS % UNDERLINES}" for i, kind in enumerate(sorted(set(kinds)))}


def pieces(example: dict[str, Any], classes: dict[str, str]) -> list[dict[str, Any]]:
    """Split a sentence where a true or a predicted span begins or ends, because spans can overlap.

    Each piece has its text, the true and the predicted kind, a CSS class, and a probability.
    """
    # Index of a word -> number and kind of its span; for predicted spans, also the probability
    true = {i: (n, kind) for n, (kind, start, end) in enumerate(example["true"]) for i in range(start, end)}
    spans = enumerate(example["predicted"])
    predicted = {i: (n, kind, p) for n, (kind, start, end, p) in spans for i in range(start, end)}
    out: list[dict[str, Any]] = []
    previous: Any = None
    for i, word in enumerate(example["words"]):
        spans_here = (true.get(i), predicted.get(i))
        if out and spans_here == previous:
            out[-1]["text"] += f" {word}"
            continue
        (_, true_kind), (_, predicted_kind, p) = spans_here[0] or (0, ""), spans_here[1] or (0, "", None)
        css_class = classes.get(predicted_kind or true_kind, "")
        piece = {"text": word, "true": true_kind, "predicted": predicted_kind, "css_class": css_class}
        out.append(piece | {"probability": p})
        previous = spans_here
    return out


def split_at_spans(sentence: dict[str, Any], classes: dict[str, str]) -> list[dict[str, Any]]:
    """Split a text into its spans and the texts between them."""
    out, end = [], 0
    for span in sentence["spans"]:
        if span["start"] > end:
            out.append({"text": sentence["text"][end : span["start"]], "kind": ""})
        out.append({**span, "css_class": classes[span["kind"]]})
        end = span["end"]
    return [*out, {"text": sentence["text"][end:], "kind": ""}] if end < len(sentence["text"]) else out


PAGE = PageKind(
    sections=(scores, kinds, page.folds, calibration, sentences, spans, learning_curves),
    verdict=verdict,
    extra_facts=lambda run: {"tags": run.metrics.get("scheme")},
    shape_letters=lambda run: "N tokens in all; the first token of each word gets a tag",
)
