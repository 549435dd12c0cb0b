"""Markdown pages that compare our results with published ones: an overview table, one page per published
system, and a page of dry runs (on random weights)."""

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
    Measured,
    Row,
    duration,
    headline,
    machine_name,
    published_rows,
    shared_gpu_note,
)

TEMPLATES = Path(__file__).parent / "templates"
MIN_SEEDS = 3  # below this, the table shows the number of seeds
SCORES = {"macro_f1": "Macro-F1", "log_loss": "Log loss"}  # other metrics of the evaluated split

Measure = Callable[[str], Measured | None]
Study = Callable[[str], str | None]
MeasureFinding = Callable[[str], dict[str, Any] | None]


def pages(
    measure: Measure,
    measure_study: Study = lambda name: None,
    dry_runs: Mapping[str, Any] | None = None,
    settings: Callable[[str], str] = lambda name: "",
    stem: str = "results",
    measure_finding: MeasureFinding = lambda name: None,
) -> dict[str, str]:
    """Path -> content of every page and chart; the table is ``STEM.md``, all others are in ``STEM/``.

    Args:
        measure, measure_study, measure_finding: name -> result, or None if it was not measured.
        dry_runs: recipe -> its run on random weights, if there is one.
        settings: recipe -> text of its file.
    """
    dry_runs, template = dry_runs or {}, _templates()
    rendered = {f"{stem}.md": page(measure, measure_study, dry_runs, stem)}
    for row in published_rows():
        results = {name: m for name in row.recipes if (m := measure(name)) is not None}
        findings = {name: measure_finding(name) for name in row.findings}
        charts = {name: curve for name, m in results.items() if (curve := curve_of(m))}
        charts |= {name: finding_curve(f) for name, f in findings.items() if f is not None and f.get("curve")}
        texts = {name: settings(name) for name in row.recipes}
        rendered[f"{stem}/row-{row.number:02d}.md"] = template.get_template("published_row.md.j2").render(
            row=row,
            results=results,
            dry_runs=dry_runs,
            charts=charts,
            ranged=any("(" in m.score for m in results.values()),
            settings=texts,
            sources=sources_of(texts),
            studies={name: measure_study(name) for name in row.studies},
            findings=findings,
            script=script_of,
            machine=machine_name,
            seeds=seeds_of,
            epochs=epochs_of,
            baselines=baselines_of,
            part=role_of,
            stem=stem,
        )
        rendered |= {f"{stem}/{name}.svg": curve for name, curve in charts.items()}
    if dry_runs:
        runs = [(row, dry_runs[name]) for row in published_rows() for name in row.recipes if name in dry_runs]
        rendered[f"{stem}/in-form.md"] = template.get_template("published_form.md.j2").render(
            runs=runs,
            duration=duration,
            machine=machine_name,
            unlike=substituted_architectures(dry_runs, settings),
        )
    return rendered


def page(
    measure: Measure,
    measure_study: Study = lambda name: None,
    dry_runs: Mapping[str, Any] | None = None,
    stem: str = "results",
) -> str:
    """The table of all rows; see ``pages``."""
    rows = published_rows()
    results = {name: measure(name) for row in rows for name in row.recipes}
    return (
        _templates()
        .get_template("published.md.j2")
        .render(
            rows=rows,
            results=results,
            dry_runs=dry_runs or {},
            given=lambda row: _cell(row.given, results) if row.recipes else "–",
            ours=lambda row: _ours(row, results, measure_study),
            plain=lambda row: _best_baseline(results[row.best]) if row.best else "",
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


def _cell(names: Sequence[str], results: Mapping[str, Measured | None]) -> str:
    """The results of some recipes for the table, labeled by the differing parts of their names."""
    measured = {name: m for name in names if (m := results[name]) is not None}
    if not measured:
        return "not measured"
    if len(names) == 1:
        (m,) = measured.values()
        return _mean(m)
    return "<br>".join(
        f"{short}: {_mean(measured[name]) if name in measured else 'not measured'}"
        for name, short in zip(names, _short(names), strict=True)
    )


def _mean(m: Measured) -> str:
    """A recipe's mean, with the number of seeds if there are few."""
    return m.mean + (f" ({m.seeds} seed{'s' * (m.seeds > 1)})" if m.seeds < MIN_SEEDS else "")


def _best_baseline(m: Measured | None) -> str:
    """The best baseline of a recipe, as the end of a note; empty if none was evaluated."""
    scored = [(b["accuracy"], name) for name, b in (_baselines(m) if m else {}).items() if "accuracy" in b]
    return "; plain: {1} {0:.2%}".format(*max(scored)) if scored else ""


def _ours(row: Row, results: Mapping[str, Measured | None], measure_study: Study) -> str:
    if row.best:
        return _cell([row.best], results)
    findings = [
        match[1] for name in row.studies if (match := re.match(r"\*\*(.*?)\*\*", measure_study(name) or ""))
    ]
    if findings:
        return f"{'study' if len(findings) == 1 else 'studies'}: " + ", ".join(findings)
    return "not measured" if row.recipes else "–"


def _short(names: Sequence[str]) -> list[str]:
    """Names without their common prefix and without the suffix ``-given``."""
    parts = [name.removesuffix("-given").split("-") for name in names]
    n_common = 0
    while all(len(p) > n_common + 1 for p in parts) and len({p[n_common] for p in parts}) == 1:
        n_common += 1
    return ["-".join(p[n_common:]) for p in parts]


def role_of(row: Row, name: str) -> str:
    """The role of a recipe in its row."""
    if name in row.given:
        return "as given, our best" if name == row.best else "as given"
    return "our best" if name == row.best else "ours"


def sources_of(settings: Mapping[str, str]) -> dict[str, str]:
    """The data source of each recipe, if the recipes of a row have different ones; else empty.

    Metrics on different data are not comparable, so the page then names the data.
    """
    sources = {name: tomllib.loads(text).get("data", {}).get("source", "") for name, text in settings.items()}
    return sources if len(set(sources.values())) > 1 else {}


def substituted_architectures(dry_runs: Mapping[str, Any], settings: Callable[[str], str]) -> dict[str, str]:
    """Recipe -> its checkpoint, for dry runs that used another architecture."""
    models = {name: tomllib.loads(settings(name)).get("model", {}).get("model", "") for name in dry_runs}
    return {
        name: checkpoint
        for name, checkpoint in models.items()
        if checkpoint and checkpoint != dry_runs[name]["layout"]
    }


def seeds_of(m: Measured) -> list[dict[str, str]]:
    """One line per seed: main metric, other metrics of the same split, time, memory."""
    lines = []
    for record in m.runs:
        score = headline(record, m.recipe)
        line = {"Seed": str(record.get("seed", "–")), "Score": score[1].format(score[0]) if score else "–"}
        metrics = record.get("test") or record.get("validation") or {}
        line |= {title: f"{metrics[key]:.4f}" for key, title in SCORES.items() if key in metrics}
        line |= _searches((record.get("scores") or {}).get(record.get("judged", "")) or {})
        if tokens := (record.get("masked") or {}).get("masked_tokens"):
            line["Words asked"] = f"{tokens:,}"
        if seconds := record.get("seconds", {}).get("train"):
            line["Training"] = duration(seconds) + shared_gpu_note([record])
        if memory := record.get("peak_memory_mb"):
            line["Memory"] = f"{memory / 1000:.1f} GB"
        if (pairs := (record.get("masked") or {}).get("next_sentence_accuracy")) is not None:
            line["Next sentence"] = f"{pairs:.1%} of held-out pairs (chance 50%)"
        lines.append(line)
    return lines


def baselines_of(m: Measured) -> dict[str, str]:
    """The baselines of the first run, with their accuracy."""
    return {name: f"{b['accuracy']:.2%}" for name, b in _baselines(m).items() if "accuracy" in b}


def _baselines(m: Measured) -> dict[str, Any]:
    baselines: dict[str, Any] = (m.runs[0].get("baselines") or {}) if m.runs else {}
    return {name: b for name, b in baselines.items() if b}


def _searches(translated: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """BLEU for each decoding method (greedy, beam), and for lower-cased, tokenized text as in many papers."""
    out = {}
    for search, scores in translated.items():
        title = "Greedy" if search == "greedy" else f"Beam of {scores.get('width', 5)}"
        tokenized = scores.get("bleu_tokenised")
        out[title] = f"{scores['bleu']:.1f} BLEU" + (
            f", tokenized {tokenized:.1f}" if tokenized is not None else ""
        )
    return out


def epochs_of(m: Measured) -> list[dict[str, str]]:
    """One line per evaluated epoch, over the seeds: mean batch loss, accuracy and its range."""
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


def script_of(finding: str) -> str:
    """The script (and argument) below benchmarks/ that reproduces a finding."""
    kind, _, recipe = finding.partition("-")
    return f"precision.py {recipe}" if kind == "precision" else finding.replace("-", "_") + ".py"


def finding_curve(finding: dict[str, Any]) -> str:
    """The chart of a finding that has one."""
    first_label, last_label = finding["curve"]["ends"]
    return curves(finding["curve"]["panels"], end_labels=(first_label, last_label))


def curve_of(m: Measured) -> str:
    """Loss and accuracy over the epochs of the first seed; empty if fewer than two were evaluated.

    The test curve is drawn only if every epoch was evaluated on the test split.
    """
    first_run: dict[str, Any] = m.runs[0] if m.runs else {}
    return learning_curves(first_run.get("evaluations") or (), first_run.get("epochs") or ())
