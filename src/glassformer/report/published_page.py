"""The published systems as Markdown pages: one table of all, a page a row, one of the runs in form."""

from __future__ import annotations

import re
import statistics
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from glassformer.report.charts import curves, learning_curves
from glassformer.report.published import (
    Found,
    InForm,
    Measured,
    Row,
    company,
    duration,
    headline,
    published_rows,
)

TEMPLATES = Path(__file__).parent / "templates"
FEW = 3  # seeds, below which the table says how many there are
SCORES = {"macro_f1": "Macro-F1", "log_loss": "Log loss"}  # of a judged split

Measure = Callable[[str], Measured | None]
Study = Callable[[str], str | None]
Finding = Callable[[str], Found | None]


def pages(
    measure: Measure,
    measure_study: Study = lambda name: None,
    form: Mapping[str, InForm] | None = None,
    settings: Callable[[str], str] = lambda name: "",
    stem: str = "results",
    measure_finding: Finding = lambda name: None,
) -> dict[str, str]:
    """Path -> text of every page and curve; the table is ``STEM.md``, all else lies in ``STEM/``.

    Args:
        measure: recipe -> what it reached, or None.
        measure_study: study -> what it found, in words, or None.
        form: recipe -> its run on random weights, where there is one.
        settings: recipe -> its file's text.
        measure_finding: result file of a row's question -> what it says, or None.
    """
    form, template = form or {}, _templates()
    made = {f"{stem}.md": page(measure, measure_study, form, stem)}
    for row in published_rows():
        found = {name: m for name in row.recipes if (m := measure(name)) is not None}
        told = {name: measure_finding(name) for name in row.findings}
        drawn = {name: curve for name, m in found.items() if (curve := curve_of(m))}
        drawn |= {name: finding_curve(f) for name, f in told.items() if f is not None and f.curve}
        texts = {name: settings(name) for name in row.recipes}
        made[f"{stem}/row-{row.number:02d}.md"] = template.get_template("published_row.md.j2").render(
            row=row,
            found=found,
            form=form,
            drawn=drawn,
            ranged=any("(" in m.score for m in found.values()),
            settings=texts,
            sources=sources_of(texts),
            studies={name: measure_study(name) for name in row.studies},
            findings=told,
            measures=measures,
            duration=duration,
            seeds=seeds_of,
            epochs=epochs_of,
            baselines=baselines_of,
            part=part_of,
            stem=stem,
        )
        made |= {f"{stem}/{name}.svg": curve for name, curve in drawn.items()}
    if form:
        runs = [(row, form[name]) for row in published_rows() for name in row.recipes if name in form]
        made[f"{stem}/in-form.md"] = template.get_template("published_form.md.j2").render(
            runs=runs, duration=duration, unlike=unlike_layouts(form, settings)
        )
    return made


def page(
    measure: Measure,
    measure_study: Study = lambda name: None,
    form: Mapping[str, InForm] | None = None,
    stem: str = "results",
) -> str:
    """The table of all rows; see ``pages``."""
    rows = published_rows()
    found = {name: measure(name) for row in rows for name in row.recipes}
    return (
        _templates()
        .get_template("published.md.j2")
        .render(
            rows=rows,
            found=found,
            form=form or {},
            given=lambda row: _cell(row.given, found) if row.recipes else "–",
            ours=lambda row: _ours(row, found, measure_study),
            plain=lambda row: _plain(found[row.best]) if row.best else "",
            stem=stem,
        )
    )


def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _cell(names: Sequence[str], found: Mapping[str, Measured | None]) -> str:
    """The figures of some recipes for the table: several are named by what tells them apart."""
    reached = {name: m for name in names if (m := found[name]) is not None}
    if not reached:
        return "not measured"
    if len(names) == 1:
        (m,) = reached.values()
        return _figure(m)
    return "<br>".join(
        f"{short}: {_figure(reached[name]) if name in reached else 'not measured'}"
        for name, short in zip(names, _short(names), strict=True)
    )


def _figure(m: Measured) -> str:
    """A recipe's mean, with the number of its seeds where these are few."""
    return m.mean + (f" ({m.seeds} seed{'s' * (m.seeds > 1)})" if m.seeds < FEW else "")


def _plain(m: Measured | None) -> str:
    """The best plain model beside a recipe, as the end of a note; empty where none was judged."""
    judged = [(b["accuracy"], name) for name, b in (_baselines(m) if m else {}).items() if "accuracy" in b]
    return "; plain: {1} {0:.2%}".format(*max(judged)) if judged else ""


def _ours(row: Row, found: Mapping[str, Measured | None], measure_study: Study) -> str:
    if row.best:
        return _cell([row.best], found)
    told = [
        match[1] for name in row.studies if (match := re.match(r"\*\*(.*?)\*\*", measure_study(name) or ""))
    ]
    if told:
        return f"{'study' if len(told) == 1 else 'studies'}: " + ", ".join(told)
    return "not measured" if row.recipes else "–"


def _short(names: Sequence[str]) -> list[str]:
    """Names without the words that all of them begin with, and without the mark of those as given."""
    parts = [name.removesuffix("-given").split("-") for name in names]
    same = 0
    while all(len(p) > same + 1 for p in parts) and len({p[same] for p in parts}) == 1:
        same += 1
    return ["-".join(p[same:]) for p in parts]


def part_of(row: Row, name: str) -> str:
    """What a recipe is in its row."""
    if name in row.given:
        return "as given, our best" if name == row.best else "as given"
    return "our best" if name == row.best else "ours"


def sources_of(settings: Mapping[str, str]) -> dict[str, str]:
    """The data source of each recipe by its file's text, where a row's recipes have several; else none.

    Figures on unlike data are not to be compared, so a page then says which stands where.
    """
    found = {name: tomllib.loads(text).get("data", {}).get("source", "") for name, text in settings.items()}
    return found if len(set(found.values())) > 1 else {}


def unlike_layouts(form: Mapping[str, InForm], settings: Callable[[str], str]) -> dict[str, str]:
    """Recipe -> the weights that it names, where a run in form has imitated others."""
    found = {name: tomllib.loads(settings(name)).get("model", {}).get("model", "") for name in form}
    return {name: named for name, named in found.items() if named and named != form[name].layout}


def seeds_of(m: Measured) -> list[dict[str, str]]:
    """A line a seed: its figure, other scores of the same split, seconds, memory."""
    lines = []
    for record in m.runs:
        score = headline(record, m.recipe)
        line = {"Seed": str(record.get("seed", "–")), "Figure": score[1].format(score[0]) if score else "–"}
        judged = record.get("test") or record.get("validation") or {}
        line |= {title: f"{judged[key]:.4f}" for key, title in SCORES.items() if key in judged}
        line |= _searches((record.get("scores") or {}).get(record.get("judged", "")) or {})
        if asked := (record.get("masked") or {}).get("masked_tokens"):
            line["Words asked"] = f"{asked:,}"
        if seconds := record.get("seconds", {}).get("train"):
            line["Training"] = duration(seconds) + company([record])
        if memory := record.get("peak_memory_mb"):
            line["Memory"] = f"{memory / 1000:.1f} GB"
        if (pairs := (record.get("masked") or {}).get("next_sentence_accuracy")) is not None:
            line["Next sentence"] = f"{pairs:.1%} of held-out pairs (chance 50%)"
        lines.append(line)
    return lines


def baselines_of(m: Measured) -> dict[str, str]:
    """The plain models beside the first run, with the figure of each."""
    return {name: f"{b['accuracy']:.2%}" for name, b in _baselines(m).items() if "accuracy" in b}


def _baselines(m: Measured) -> dict[str, Any]:
    found: dict[str, Any] = (m.runs[0].get("baselines") or {}) if m.runs else {}
    return {name: b for name, b in found.items() if b}


def _searches(translated: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """A translator's figure by each search, and of lower-cased words set apart, as many papers count."""
    out = {}
    for search, found in translated.items():
        title = "Greedy" if search == "greedy" else f"Beam of {found.get('width', 5)}"
        apart = found.get("bleu_tokenised")
        out[title] = f"{found['bleu']:.1f} BLEU" + (f", tokenized {apart:.1f}" if apart is not None else "")
    return out


def epochs_of(m: Measured) -> list[dict[str, str]]:
    """A line an epoch whose weights were judged, over the seeds: mean batch loss, accuracy and its spread."""
    runs = [run["epochs"] for run in m.runs if run.get("epochs")]
    lines = []
    for records in zip(*runs, strict=True) if runs else ():
        accuracy = [r["accuracy"] for r in records]
        low, high = min(accuracy), max(accuracy)
        spread = f" ({low:.2%} to {high:.2%})" if low != high else ""
        losses = [r["batch_loss"] for r in records if r.get("batch_loss") is not None]
        lines.append(
            {
                "Epoch": str(records[0]["epoch"]),
                "Mean batch loss": f"{statistics.fmean(losses):.4f}" if losses else "–",
                "Test accuracy": f"{statistics.fmean(accuracy):.2%}{spread}",
            }
        )
    return lines


def measures(finding: str) -> str:
    """The command that measures a finding: a recipe in another precision is named behind the script."""
    kind, _, recipe = finding.partition("-")
    return f"precision.py {recipe}" if kind == "precision" else finding.replace("-", "_") + ".py"


def finding_curve(found: Found) -> str:
    """The curve that a measurement has, empty where it has none."""
    if not found.curve:
        return ""
    first, last = found.curve["ends"]
    return curves(found.curve["panels"], ends=(first, last))


def curve_of(m: Measured) -> str:
    """Loss and accuracy over the epochs of the first seed; empty: fewer than two were judged.

    Where each epoch's weights were judged, the test part stands beside the training.
    """
    first: dict[str, Any] = m.runs[0] if m.runs else {}
    return learning_curves(first.get("evaluations") or (), first.get("epochs") or ())
