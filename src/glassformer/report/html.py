"""``report.html``: one file without links to anything, from a run folder.

Text, labels and file names are data: Jinja escapes all of them, and the page's policy lets the
browser run and style only what is shipped here, so that a review cannot bring a script along.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from glassformer.checkpoints.files import replace_text
from glassformer.config import NOTHING_KNOWN, KnownRecipe
from glassformer.data.findings import warnings_said
from glassformer.errors import DataError
from glassformer.explain.architecture import Block, draw
from glassformer.explain.render import TEMPLATES as EXPLAIN_TEMPLATES
from glassformer.explain.render import asset, environment, policy
from glassformer.report import comparison, figures, maps, pictures, tables, wording
from glassformer.report.run import Run, read_run

TEMPLATES = Path(__file__).parent / "templates"
MAX_ROWS = 200  # of one table
SOURCES = {"texts": "tokens [N]", "pictures": "pixels [B, channels, height, width]"}
FEATURES = "n-grams of a text [N]"  # what goes into a model whose first box is of features
FILTERS = {
    f.__name__: f
    for f in (
        wording.percent,
        wording.interval,
        wording.share_interval,
        wording.count,
        wording.decimal,
        wording.duration,
        wording.p_value,
        wording.plain,
        wording.cut,
        wording.breakable,
        wording.faint_tags,
        wording.bounds,
        wording.headed,
        wording.model_name,
        warnings_said,
        tables.worst_first,
    )
}


def write_report(run_folder: str | Path, known: KnownRecipe = NOTHING_KNOWN) -> Path:
    """Write ``report.html`` into a run folder and return its path; an old one is replaced in one move.

    Args:
        known: of the run's recipe; nothing: every setting counts as changed.

    Raises:
        DataError: no metrics.json, or a damaged file, which is named.
        ConfigError: config.toml is not TOML.
    """
    run = read_run(run_folder)
    return write_page(run.folder / "report.html", render(run, known))


def write_page(path: Path, html: str) -> Path:
    """Write a page; an old one is replaced in one move."""
    replace_text(path, html)
    return path


def render(run: Run, known: KnownRecipe = NOTHING_KNOWN) -> str:
    """The page's HTML."""
    scores, metrics = run.scores, run.metrics
    examples, left_out = maps.prepare(run.maps)
    css, script = asset("page.css"), asset("sort.js") + (asset("attention.js") if examples else "")
    still = metrics.get("still_learning")
    against = wording.against(scores, metrics.get("baselines") or {}, run.measure, still)
    shows = bool(run.pictures or any(view.picture for view in examples))
    settings = tables.settings(run.config, known.defaults)
    return (
        templates()
        .get_template("report.html.j2")
        .render(
            css=Markup(css),
            script=Markup(script),
            policy=policy(css, script, pictures=shows),
            run=run,
            metrics=metrics,
            scores=scores,
            digits=wording.digits_for(scores["n"]),
            title=run.config.get("name") or metrics.get("weights_source") or run.folder.resolve().name,
            verdict=wording.verdict(scores, run.judged, run.noun, run.measure),
            noun=run.noun,
            against=" ".join(filter(None, (against, wording.unfinished(against, still)))),
            leading=tables.leading(run.measure, scores),
            several=scores.get("kind") == "labels",
            guess_loss=wording.guess_loss(2 if scores.get("kind") == "labels" else len(scores["labels"])),
            features=reads_features(metrics),
            solved=solved_at_once(run.steps, run.evaluations),
            held=any(e.get("accuracy") is not None for e in run.evaluations),
            splits={s: metrics[s] for s in ("train", "validation") if metrics.get(s)} | {run.judged: scores},
            comparison=tables.comparison(run),
            figures=_figures(run),
            max_rows=MAX_ROWS,
            confusion=tables.confusion(scores),
            confusions=tables.confusions(scores),
            examples=examples,
            left_out=left_out,
            settings=settings,
            changed=tables.changed(settings),
            expectation=tables.expectation(run.config, known.shipped, known.defaults),
            findings=tables.findings(run.doctor),
            doctor_tables=tables.figure_tables(run.doctor.get("figures") or {}),
            pictures=pictures.prepare(run.pictures),
            robustness=tables.robustness(metrics.get("robustness") or {}),
            architecture=architecture(metrics, SOURCES[run.noun]),
            times=tables.times(metrics.get("seconds") or {}),
            facts=tables.facts(metrics),
        )
    )


def render_page(template: str, **values: object) -> str:
    """Any page that needs no script: its style sheet, its policy, and what the template prints."""
    css = asset("page.css")
    page = templates().get_template(template)
    return page.render(css=Markup(css), policy=policy(css, ""), **values)


@cache
def templates() -> Environment:
    """Those of all pages, in which every value is escaped."""
    made = environment(TEMPLATES, EXPLAIN_TEMPLATES)
    made.filters.update(FILTERS)
    return made


def architecture(metrics: dict[str, Any], source: str) -> list[Markup]:
    """The picture of the model at two levels of detail; empty for a run that has not noted its blocks.

    Args:
        source: what goes in, with its shape.

    Raises:
        DataError: the blocks are damaged.
    """
    noted = metrics.get("architecture") or []
    source = FEATURES if reads_features(metrics) else source
    try:
        found = [Block.from_dict(block) for block in noted]
        return (
            [Markup(draw(found, detail, source=source)) for detail in ("blocks", "layers")] if found else []
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise DataError(f"the architecture cannot be drawn ({error})", where="metrics.json") from None


def reads_features(metrics: dict[str, Any]) -> bool:
    """Whether the model of a run reads n-grams, and no tokens."""
    noted = metrics.get("architecture") or [{}]
    return isinstance(noted, list) and isinstance(noted[0], dict) and noted[0].get("name") == "features"


def solved_at_once(steps: Sequence[Any], evaluations: Sequence[Any]) -> bool:
    """Whether a run's history is the one record of weights that were solved, not trained in steps."""
    return len(steps) == 1 == len(evaluations) and steps[0].get("lr") == 0.0 and not steps[0].get("tokens")


def _figures(run: Run) -> dict[str, Markup]:
    """SVG text of the figures that the run has data for."""
    drawn = {}
    solved = solved_at_once(run.steps, run.evaluations)  # there is no curve
    if (run.steps or run.evaluations) and not solved:
        drawn["loss"] = Markup(figures.loss_curves(run.steps, run.evaluations))
    shares = ("train_accuracy", "accuracy")
    if not solved and any(e.get(key) is not None for e in run.evaluations for key in shares):
        judged = run.metrics.get("epochs") or ()
        drawn["accuracy"] = Markup(figures.accuracy_curves(run.steps, run.evaluations, run.measure, judged))
    if sum(n > 0 for n in run.certainty.total) > 2:  # fewer say nothing that the figures above do not
        drawn["certainty"] = Markup(
            figures.certainty_chart(run.certainty.total, run.certainty.right, run.noun)
        )
    for name, split in (run.calibration.get("splits") or {}).items():  # the last one is the judged one
        drawn["reliability"] = Markup(
            comparison.reliability(split["before"]["curve"], split["after"]["curve"], name)
        )
    return drawn
