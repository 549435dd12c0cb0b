"""``report.html``: one file without links to anything, from a run folder.

Text, labels and file names are data: Jinja escapes all of them, and the page's policy lets the
browser run and style only what is shipped here, so that a review cannot bring a script along.
"""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from glassformer.recipe import Recipe
from glassformer.report import figures, maps, wording
from glassformer.report.run import Run, read_run

TEMPLATES = Path(__file__).parent / "templates"
MAX_CLASSES = 12  # a larger confusion matrix is told as its most frequent confusions
MAX_ROWS = 200  # of one table
FILTERS = {
    f.__name__: f
    for f in (
        wording.percent, wording.interval, wording.count, wording.decimal, wording.duration,
        wording.plain, wording.cut, wording.faint_tags,
    )
}  # fmt: skip


def write_report(run_folder: str | Path) -> Path:
    """Write ``report.html`` into a run folder and return its path; an old one is replaced in one move.

    Raises:
        DataError: no metrics.json, or a damaged file, which is named.
        ConfigError: config.toml is not TOML.
    """
    run = read_run(run_folder)
    path = run.folder / "report.html"
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(render(run), encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def render(run: Run) -> str:
    """The page's HTML."""
    css, script = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("report.css", "attention.js"))
    scores, metrics = run.scores, run.metrics
    examples, left_out = maps.prepare(run.maps)
    return _environment().get_template("report.html.j2").render(
        css=Markup(css), script=Markup(script), policy=_policy(css, script),
        run=run, metrics=metrics, scores=scores, digits=wording.digits_for(scores["n"]),
        title=run.config.get("name") or metrics.get("weights_source") or run.folder.resolve().name,
        verdict=wording.verdict(scores, run.judged),
        against=wording.against(scores, metrics.get("baselines") or {}),
        guess_loss=wording.guess_loss(len(scores["labels"])),
        comparison=_comparison(run), figures=_figures(run),
        confusion=_confusion(scores), confusions=_confusions(scores), max_rows=MAX_ROWS,
        examples=examples, left_out=left_out, settings=_settings(run.config),
        times=_times(metrics.get("seconds") or {}), facts=_facts(metrics),
    )  # fmt: skip


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(FILTERS)
    return environment


def _policy(css: str, script: str) -> str:
    """A content security policy that admits this style sheet and this script and nothing else."""
    style, code = (
        "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
        for text in (css, script)
    )
    return f"default-src 'none'; style-src {style}; script-src {code}; base-uri 'none'; form-action 'none'"


def _comparison(run: Run) -> dict[str, Any]:
    """The accuracy table's rows, ours first, each with places on a common scale of 0 to 100."""
    scores = run.scores
    supports = [(row["support"], row["label"]) for row in scores["per_class"]]
    most, label = max(supports, key=lambda pair: pair[0])
    seconds = (run.metrics.get("seconds") or {}).get("train")
    ours = {k: scores.get(k) for k in ("accuracy", "accuracy_interval", "macro_f1")}
    rows = [{"name": "This model", "seconds": seconds, "kind": "ours"} | ours]
    others = sorted(
        (run.metrics.get("baselines") or {}).items(), key=lambda item: -(item[1].get("accuracy") or 0)
    )
    rows += [{"seconds": None, "kind": "other"} | dict(figures) | {"name": name} for name, figures in others]
    ends = [x for r in rows for x in (r.get("accuracy_interval") or [r["accuracy"]]) if x is not None]
    low, high = min(ends), max(ends)
    room = max((high - low) * 0.15, 0.005)
    low, high = max(low - room, 0.0), min(high + room, 1.0)

    def place(x: float) -> float:
        return round(100 * (x - low) / (high - low), 2)

    for row in rows:
        bounds = row.get("accuracy_interval")
        row["at"] = None if row["accuracy"] is None else place(row["accuracy"])
        row["from_to"] = [place(x) for x in bounds] if bounds else None
    guess = {"label": label, "accuracy": most / scores["n"]}
    return {"rows": rows, "low": low, "high": high, "guess": guess}


def _figures(run: Run) -> dict[str, Markup]:
    """SVG text of the figures that the run has data for."""
    drawn = {}
    if run.steps or run.evaluations:
        drawn["loss"] = Markup(figures.loss_curves(run.steps, run.evaluations))
    if any(e.get("accuracy") is not None for e in run.evaluations):
        drawn["accuracy"] = Markup(figures.accuracy_curves(run.steps, run.evaluations))
    if sum(run.certainty.total):
        drawn["certainty"] = Markup(figures.certainty_chart(run.certainty.total, run.certainty.right))
    return drawn


def _confusion(scores: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of the confusion matrix, each cell with its share of the true class and a shade 0..10."""
    if len(scores["labels"]) > MAX_CLASSES:
        return []
    rows = []
    for i, (label, counts) in enumerate(zip(scores["labels"], scores["confusion"], strict=True)):
        shares = [c / max(sum(counts), 1) for c in counts]
        cells = [
            {"count": c, "share": s, "shade": round(10 * s**0.5), "right": i == j}
            for j, (c, s) in enumerate(zip(counts, shares, strict=True))
        ]
        rows.append({"label": label, "cells": cells})
    return rows


def _confusions(scores: dict[str, Any], most: int = 12) -> list[dict[str, Any]]:
    """With more than two classes, the pairs most often taken for each other."""
    labels = scores["labels"]
    if len(labels) < 3:
        return []
    pairs = [
        {"label": labels[i], "predicted": labels[j], "count": c, "share": c / sum(counts)}
        for i, counts in enumerate(scores["confusion"])
        for j, c in enumerate(counts)
        if i != j and c
    ]
    return sorted(pairs, key=lambda pair: -pair["count"])[:most]


def _settings(config: dict[str, Any]) -> list[tuple[str, list[tuple[str, Any, bool]]]]:
    """Sections of the recipe: key, value and whether it differs from the default."""
    defaults = _defaults(Recipe())
    plain = {k: v for k, v in config.items() if not isinstance(v, dict)}
    sections = {"recipe": plain} | {k: v for k, v in config.items() if isinstance(v, dict)}
    return [
        (name, [(k, v, v != defaults.get(name, {}).get(k)) for k, v in values.items()])
        for name, values in sections.items()
        if values
    ]


def _defaults(recipe: Recipe) -> dict[str, dict[str, Any]]:
    def value(owner: Any, name: str) -> Any:
        found = getattr(owner, name)
        return list(found) if isinstance(found, tuple) else found

    names = [f.name for f in fields(recipe)]
    sections = {n: getattr(recipe, n) for n in names if is_dataclass(getattr(recipe, n))}
    table = {n: {f.name: value(s, f.name) for f in fields(s)} for n, s in sections.items()}  # type: ignore[arg-type]
    return table | {"recipe": {n: value(recipe, n) for n in names if n not in sections}}


def _times(seconds: dict[str, Any]) -> list[dict[str, Any]]:
    """Parts of the run's time, placed one after the other on a scale of 0 to 100."""
    parts = {k: v for k, v in seconds.items() if k != "total" and v}
    whole = max(sum(parts.values()), seconds.get("total") or 0.0)
    if not whole:
        return []
    placed, at = [], 0.0
    for name, value in parts.items():
        width = 100 * value / whole
        placed.append({"name": name, "seconds": value, "x": round(at, 2), "width": round(width, 2)})
        at += width
    return placed


def _facts(metrics: dict[str, Any]) -> list[tuple[str, str]]:
    """What a figure must be read beside: cost, padding, truncation, machine, versions."""
    padding, machine = metrics.get("padding") or {}, metrics.get("machine") or {}
    memory, speed = metrics.get("peak_memory_mb"), metrics.get("tokens_per_second")
    pairs = [
        ("Weights", metrics.get("weights_source")),
        ("Parameters", metrics.get("parameters") and wording.count(metrics["parameters"])),
        ("Training speed", speed and f"{wording.count(speed)} tokens a second"),
        ("Peak memory", memory and f"{wording.count(memory)}{wording.THIN}MB"),
        *((f"Padding in {k} layers" if k == "linear" else f"Padding in {k}", wording.percent(v))
          for k, v in padding.items()),
        *((f"Cut texts, {k}", f"{wording.count(c)} of {wording.count(n)} ({wording.percent(c / max(n, 1))})")
          for k, (c, n) in (metrics.get("truncated") or {}).items()),
        *((f"Machine: {k.replace('_', ' ')}", v if v is None else wording.plain(v)) for k, v in machine.items()),
        *((k, wording.plain(v)) for k, v in (metrics.get("versions") or {}).items()),
        ("Seed", metrics.get("seed")),
        ("Date", metrics.get("date")),
    ]  # fmt: skip
    return [(name, str(value)) for name, value in pairs if value not in (None, "", wording.NONE)]
