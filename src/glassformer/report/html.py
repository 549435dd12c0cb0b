"""``report.html``: one file without links to anything, from a run folder.

Text, labels and file names are data: Jinja escapes all of them, and the page's policy lets the
browser run and style only what is shipped here, so that a review cannot bring a script along.
"""

from __future__ import annotations

import base64
import hashlib
import os
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from glassformer.report import comparison, figures, maps, pictures, tables, wording
from glassformer.report.run import Run, read_run

TEMPLATES = Path(__file__).parent / "templates"
MAX_ROWS = 200  # of one table
FILTERS = {
    f.__name__: f
    for f in (
        wording.percent, wording.interval, wording.count, wording.decimal, wording.duration, wording.p_value,
        wording.plain, wording.cut, wording.faint_tags, wording.bounds,
    )
}  # fmt: skip


def write_report(run_folder: str | Path) -> Path:
    """Write ``report.html`` into a run folder and return its path; an old one is replaced in one move.

    Raises:
        DataError: no metrics.json, or a damaged file, which is named.
        ConfigError: config.toml is not TOML.
    """
    run = read_run(run_folder)
    return write_page(run.folder / "report.html", render(run))


def write_page(path: Path, html: str) -> Path:
    """Write a page; an old one is replaced in one move."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(html, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def render(run: Run) -> str:
    """The page's HTML."""
    css, script = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("report.css", "attention.js"))
    scores, metrics = run.scores, run.metrics
    examples, left_out = maps.prepare(run.maps)
    settings = tables.settings(run.config)
    return _environment().get_template("report.html.j2").render(
        css=Markup(css), script=Markup(script), policy=_policy(css, script),
        run=run, metrics=metrics, scores=scores, digits=wording.digits_for(scores["n"]),
        title=run.config.get("name") or metrics.get("weights_source") or run.folder.resolve().name,
        verdict=wording.verdict(scores, run.judged, run.noun), noun=run.noun,
        against=wording.against(scores, metrics.get("baselines") or {}),
        guess_loss=wording.guess_loss(len(scores["labels"])),
        splits={s: metrics[s] for s in ("train", "validation") if metrics.get(s)} | {run.judged: scores},
        comparison=tables.comparison(run), figures=_figures(run), max_rows=MAX_ROWS,
        confusion=tables.confusion(scores), confusions=tables.confusions(scores),
        examples=examples, left_out=left_out, settings=settings, changed=tables.changed(settings),
        findings=tables.findings(run.doctor),
        doctor_tables=tables.figure_tables(run.doctor.get("figures") or {}),
        pictures=pictures.prepare(run.pictures), robustness=tables.robustness(metrics.get("robustness") or {}),
        times=tables.times(metrics.get("seconds") or {}), facts=tables.facts(metrics),
    )  # fmt: skip


def render_page(template: str, **values: object) -> str:
    """Any page that needs no script: its style sheet, its policy, and what the template prints."""
    css = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    page = _environment().get_template(template)
    return page.render(css=Markup(css), policy=_policy(css, ""), **values)


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
    sources = f"style-src {style}; img-src data:; script-src {code}"
    return f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"


def _figures(run: Run) -> dict[str, Markup]:
    """SVG text of the figures that the run has data for."""
    drawn = {}
    if run.steps or run.evaluations:
        drawn["loss"] = Markup(figures.loss_curves(run.steps, run.evaluations))
    if any(e.get("accuracy") is not None for e in run.evaluations):
        drawn["accuracy"] = Markup(figures.accuracy_curves(run.steps, run.evaluations))
    if sum(n > 0 for n in run.certainty.total) > 2:  # fewer say nothing that the figures above do not
        drawn["certainty"] = Markup(figures.certainty_chart(run.certainty.total, run.certainty.right))
    for name, split in (run.calibration.get("splits") or {}).items():  # the last one is the judged one
        drawn["reliability"] = Markup(
            comparison.reliability(split["before"]["curve"], split["after"]["curve"], name)
        )
    return drawn
