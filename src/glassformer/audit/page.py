"""Output files of audits, and of comparisons of two models."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from glassformer.audit.predictions import Predictions
from glassformer.checkpoints.files import disk_errors
from glassformer.data.spreadsheet import csv_safe
from glassformer.evaluate.metrics import percent
from glassformer.finite import json_text
from glassformer.outputs import write_text
from glassformer.report.metrics import Table
from glassformer.report.page import Section, render_macro, render_page, table
from glassformer.report.wording import p_value


def format_metric(metric: str, value: float | None) -> str:
    """A value of a metric as text: a share in percent, an error as a number."""
    if value is None:
        return "–"
    return f"{value:.4g}" if metric == "mean absolute error" else percent(value)


def format_difference(metric: str, value: float) -> str:
    """A difference of two values of a metric as text."""
    return f"{value:+.4g}" if metric == "mean absolute error" else f"{100 * value:+.1f} points"


def diff_sentences(comparison: Mapping[str, Any]) -> list[str]:
    """A summary of a comparison in three sentences."""
    metric, (a, b) = comparison["metric"], comparison["models"]
    low, high = (format_difference(metric, x).removesuffix(" points") for x in comparison["interval"])
    change = f"{format_difference(metric, comparison['difference'])} (95 % interval {low} to {high})"
    sentences = [
        f"{b} has {metric} {format_metric(metric, comparison['b'])} on {comparison['n']:,} examples, "
        f"{a} {format_metric(metric, comparison['a'])}: {change}",
        f"{comparison['changed']:,} predictions change: {comparison['worse']:,} get worse, "
        f"{comparison['better']:,} better",
    ]
    if not comparison["slices"]:
        tested = comparison["slices_tested"]
        return [
            *sentences,
            f"no slice gets worse beyond chance ({tested:,} slices tested, alpha = {comparison['alpha']:g})",
        ]
    worst = comparison["slices"][0]
    n_more = len(comparison["slices"]) - 1
    more_slices = f", and on {n_more} other slice{'s' * (n_more > 1)}" if n_more else ""
    return [*sentences, f"{b} is worse on {worst['slice']}: {format_slice(metric, worst)}{more_slices}"]


def format_slice(metric: str, slice_: Mapping[str, Any]) -> str:
    """The metric of two models on a slice, and its p-value, as text."""
    values = f"{format_metric(metric, slice_['a'])} → {format_metric(metric, slice_['b'])}"
    p = p_value(slice_["p"])
    return f"{values} on {slice_['n']:,} examples (corrected p {p if p.startswith('<') else f'= {p}'})"


def slice_table(metric: str, slices: Sequence[Mapping[str, Any]]) -> Table:
    """A table of the slices of a comparison."""
    columns = ["slice", "examples", "before", "now", "worse", "better", "corrected p"]
    rows = []
    for s in slices:
        before, now = format_metric(metric, s["a"]), format_metric(metric, s["b"])
        rows.append([s["slice"], f"{s['n']:,}", before, now, s["worse"], s["better"], p_value(s["p"])])
    return Table(columns, rows, highlighted=())


def diff_page(comparison: Mapping[str, Any]) -> str:
    """The HTML report of a comparison."""
    metric, models = comparison["metric"], comparison["models"]
    corrected = "Slices that got significantly worse; p is corrected for all tested slices."
    slice_sections = {
        "slices": ("Slices that got worse", f"{corrected} Slices that an earlier one explains are left out."),
        "improved": ("Slices that got better", "The same test in the other direction."),
    }
    sections = []
    for key, (title, note) in slice_sections.items():
        if comparison[key]:
            sections.append(Section(key, title, note, table(slice_table(metric, comparison[key]))))
    if comparison["flips"]:
        note = "Each line has the label, and the predictions of the first → the second model. The most "
        note += "confident predictions come first."
        sections.append(Section("flips", "Predictions that got worse", note, _flips(comparison)))
    first_sentence, *more_sentences = diff_sentences(comparison)
    return render_page(
        "run.html.j2",
        title=f"{models[0]} → {models[1]}",
        summary=f"{first_sentence}. {more_sentences[0]}.",
        verdict=f"{more_sentences[1]}.",
        num_warnings=0,
        facts={
            "data": comparison["data"],
            "examples": f"{comparison['n']:,}",
            "slices tested": comparison["slices_tested"],
        },
        sections=sections,
    )


def _flips(comparison: Mapping[str, Any]) -> Markup:
    records = []
    for flip in comparison["flips"]:
        parts = ", ".join(
            f"{part['part']} {part['a']:+.2f} → {part['b']:+.2f}" for part in flip.get("why") or ()
        )
        message = f"{flip['label']}: {flip['a']} → {flip['b']}{f' ({parts})' if parts else ''}"
        examples = [f"{flip['where']}: {flip['example']}"]
        records.append({"severity": "note", "message": message, "examples": examples})
    note = "In parentheses: words or patches whose share of the explanation for the second model's "
    note += "prediction differs most between the two models."
    return render_macro("parts", "doctor", records, []) + render_macro("parts", "small", note)


# --- an audit -----------------------------------------------------------------------------------------

# Points of the technical documentation (EU AI Act, Annex IV), and the sections of the report about them
ANNEX = (
    ("1 (a), (b): the system, its version and provider", "The model"),
    ("2 (b): design, architecture, objective", "The model; metrics.json of the run"),
    ("2 (d): training data, their origin and cleaning", "Data; Leaks from training"),
    (
        "2 (g): validation, metrics, accuracy, robustness, discriminatory effects",
        "Performance; Slices; Robustness; Calibration",
    ),
    ("3: limits, foreseeable errors, accuracy for groups of persons", "Slices; Shortcuts"),
    ("2 (e), 3: human oversight, interpretation of outputs", "Explanations; the rest is for you to write"),
    ("9: monitoring after placing on the market", "for you to write; glassformer diff compares versions"),
)


def audit_page(result: Mapping[str, Any]) -> str:
    """The HTML report of an audit: five sentences, then the result of each check."""
    sections = [
        Section(check["name"], check["title"], NOTES[check["name"]], _check_html(check))
        for check in result["checks"]
    ]
    facts = [[key.replace("_", " "), _format_value(value)] for key, value in result["about"].items()]
    facts_note = "Known facts about the model, for a model card or documentation."
    sections.append(Section("model", "The model", facts_note, table(_two_columns("fact", "value", facts))))
    annex_note = "Where this page helps to write the technical documentation of a high-risk system. It is "
    annex_note += "not legal advice, and not the documentation itself."
    points = table(_two_columns("point", "section", list(map(list, ANNEX))))
    sections.append(Section("annex", "EU AI Act, Annex IV", annex_note, points))
    first_sentence, *more_sentences = result["sentences"]
    return render_page(
        "run.html.j2",
        title=f"Audit of {result['model']}",
        summary=first_sentence,
        verdict=" ".join(more_sentences),
        num_warnings=0,
        facts={
            "data": result["data"],
            "examples": f"{result['n']:,}",
            "warnings": result["warnings"] or "none",
            "date": result["date"][:10],
            "version": result["versions"].get("glassformer"),
        },
        sections=sections,
    )


NOTES = {
    "performance": "The metric compared with a constant prediction, and whether label names match.",
    "data": "Copies, contradictions, balance, and labels that look wrong by the model's own probabilities.",
    "leaks": "Examples of these data that the model was trained on.",
    "calibration": "Whether predictions with a probability of 80 % are correct in 80 % of cases.",
    "slices": "Groups with more errors than all other examples, by label, length, word, punctuation or any "
    "column of the table; p is corrected for all of them.",
    "robustness": "The metric after changes that preserve the meaning.",
    "shortcuts": "Single words or image regions that flip other examples to a class when inserted.",
    "faithfulness": "Whether predictions depend on the parts that explanations rank first: each explanation "
    "is compared with 19 random orders of the same parts, for several ways of masking them.",
}


# Measurements that are shares: key -> name in the report
SHARE_NAMES = {
    "calibration_error": "calibration error",
    "interval": "95 % interval",
    "confidence_minus_accuracy": "confidence minus accuracy",
    "wrong_labels": "labels that look wrong",
    "with_accents": "texts with accents",
}


def _two_columns(name: str, value: str, rows: Sequence[Sequence[str]]) -> Table:
    return Table([name, value], rows, highlighted=(), text_columns=[value])


def _check_html(check: Mapping[str, Any]) -> Markup:
    if not check["measured"]:
        return render_macro("parts", "small", f"Not measured: {check['not_measured']}.")
    if check["findings"]:
        body = render_macro("parts", "doctor", check["findings"], [])
    else:
        body = render_macro("parts", "small", "No warnings.")
    return body + _measurements(check["name"], check["values"])


def _measurements(name: str, values: Mapping[str, Any]) -> Markup:
    """A table of the measurements of a check."""
    if name == "robustness":
        rows = [
            [change["change"], f"{change['changed']:,}", f"{change['before']:.4g}", f"{change['value']:.4g}"]
            for change in values["changes"]
        ]
        not_measured = "; ".join(f"{key}: {why}" for key, why in values.get("not_measured", {}).items())
        body = table(Table(["change", "examples changed", "before", "after"], rows, highlighted=()))
        return body + render_macro("parts", "small", f"Not measured: {not_measured}." if not_measured else "")
    if name == "slices":
        rows = []
        for s in values["found"]:
            errors, elsewhere = percent(s["errors"]), percent(s["errors_elsewhere"])
            rows.append([s["slice"], f"{s['n']:,}", errors, elsewhere, p_value(s["p"])])
        columns = ["slice", "examples", "errors", "errors elsewhere", "corrected p"]
        note = render_macro("parts", "small", f"{values['tested']:,} slices were tested.")
        return table(Table(columns, rows, highlighted=())) + note
    if name == "shortcuts":
        rows = [[s["part"], s["label"], percent(s["turned"], 0), s["n"]] for s in values["strongest"]]
        columns = ["word or region", "flips to", "share", "of examples"]
        return table(Table(columns, rows, highlighted=(), text_columns=["flips to"]))
    if name == "faithfulness":
        rows = [[key, counts["n"], counts["passes"]] for key, counts in values["operators"].items()]
        return table(Table(["masked by", "inputs tested", "pass"], rows, highlighted=()))
    if name == "performance":
        metric = values["metric"]
        rows = [
            [metric, format_metric(metric, values["value"])],
            ["95 % interval", " to ".join(format_metric(metric, bound) for bound in values["interval"])],
            ["always the same prediction", format_metric(metric, values["constant"])],
        ]
    else:
        rows = [
            [SHARE_NAMES.get(key, key.replace("_", " ")), _format_value(value, key in SHARE_NAMES)]
            for key, value in values.items()
        ]
    return table(_two_columns("measured", "value", rows))


def _format_value(value: Any, is_share: bool = False) -> str:
    """A measurement or a fact as text; ``is_share``: print numbers in percent."""
    if value is None:
        return "unknown"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_format_value(item, is_share)}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_format_value(item, is_share) for item in value)
    if isinstance(value, float):
        return percent(value) if is_share else f"{value:.4g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


# --- the folder of an audit ---------------------------------------------------------------------------


def write_audit(folder: Path, result: Mapping[str, Any], predicted: Predictions) -> None:
    """Write ``audit.html``, ``audit.json`` and ``predictions.csv`` into a new folder."""
    with disk_errors(folder):
        folder.mkdir(parents=True)
    write_text(folder / "predictions.csv", _predictions_csv(predicted))
    write_text(folder / "audit.json", json_text(result, indent=2) + "\n")
    write_text(folder / "audit.html", audit_page(result))


def _predictions_csv(p: Predictions) -> str:
    """The text of predictions.csv, with one row per example."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["where", "label", "predicted", "confidence", "wrong"])
    kind = p.clf.kind_
    confidence = (
        np.abs(p.scores) if p.predicts_numbers else np.asarray(kind.confidence(p.outputs, p.predicted))
    )
    predicted = p.label_names(p.predicted)
    for i in range(len(p)):
        cells = [p.where(i), str(p.split.labels[i]), predicted[i]]
        writer.writerow([*map(csv_safe, cells), f"{confidence[i]:.6f}", int(p.wrong[i])])
    return out.getvalue()
