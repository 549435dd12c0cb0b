"""The report page of a run: one self-contained HTML file.

This module writes the parts that all pages have (title, summary, verdict, contents, findings of the data
doctor, model, settings, times, machine). A kind of prediction adds functions from a run to a ``Section``.

Text, labels and file names are data: Jinja escapes all of them, and the content security policy only allows
our own scripts and styles, so that a text cannot inject a script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from glassformer.checkpoints.files import replace_text
from glassformer.config import NOTHING_KNOWN, KnownRecipe
from glassformer.data.findings import num_warnings
from glassformer.errors import DataError
from glassformer.explain.architecture import Block, draw
from glassformer.explain.render import TEMPLATES as EXPLAIN_TEMPLATES
from glassformer.explain.render import asset, environment, policy
from glassformer.report import figures, tables, wording
from glassformer.report.metrics import Table, fold_table, metric_table
from glassformer.report.run import Run, read_folder

TEMPLATES = Path(__file__).parent / "templates"
MAX_ROWS = 200  # of one table or list
FEATURES = "n-grams of a text [N]"  # input of a model of n-gram features
TRAIN, VALIDATION = ("train", "training"), ("held", "validation")  # lines of a chart: color, name
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
        tables.worst_first,
    )
}


@dataclass(frozen=True)
class Section:
    """A section of a page; without a title, only its body is shown."""

    id: str
    title: str
    note: str
    body: str | Markup = ""
    needs: Sequence[str] = ()  # style sheets and scripts; "pictures": it contains images


@dataclass(frozen=True)
class Kind:
    """The parts of the page for one kind of prediction."""

    sections: Sequence[Callable[[Any], Section | None]]
    verdict: Callable[[Any], str] = lambda run: ""
    about: Callable[[Any], dict[str, Any]] = lambda run: {}  # additional facts for the head of the page
    source: Callable[[Any], str] = lambda run: run.known.shape  # input of the model, with its shape
    letters: Callable[[Any], str] = lambda run: "N tokens in all"  # meaning of the letters in shapes
    read: Callable[[Path], Run] = read_folder


def write_kind(folder: str | Path, kind: Kind, known: KnownRecipe = NOTHING_KNOWN) -> Path:
    """Write ``report.html`` into a run folder, atomically, and return its path."""
    run = replace(kind.read(Path(folder)), known=known)
    return write_page(run.folder / "report.html", render(run, kind))


def write_page(path: Path, html: str) -> Path:
    """Write a page atomically."""
    replace_text(path, html)
    return path


def render(run: Run, kind: Kind) -> str:
    """The page's HTML."""
    metrics, config = run.metrics, run.config
    source = FEATURES if reads_features(metrics) else kind.source(run)
    machine = metrics.get("machine") or {}
    meta = {
        "task": metrics.get("task"),
        "model": wording.model_name(metrics, (config.get("model") or {}).get("model")),
        "weights": metrics.get("weights_source"),
        "data": (config.get("data") or {}).get("source"),
        **kind.about(run),
        "parameters": metrics.get("parameters") and wording.count(metrics["parameters"]),
        "seed": metrics.get("seed"),
        "date": (metrics.get("date") or "")[:10],
        "machine": machine.get("gpu") or machine.get("cpu"),
    }
    sections = [
        *(make(run) for make in kind.sections),
        data_section(run),
        model_section(architecture(metrics, source), kind.letters(run)),
        settings_section(run),
        cost_section(metrics),
    ]
    return render_page(
        "run.html.j2",
        title=config.get("name") or metrics.get("weights_source") or run.folder.resolve().name,
        summary=config.get("summary"),
        verdict=kind.verdict(run),
        warned=num_warnings(run.doctor.get("findings") or []),
        meta={name: value for name, value in meta.items() if value not in (None, "")},
        sections=[section for section in sections if section is not None],
    )


def render_page(template: str, sections: Sequence[Section] = (), **values: object) -> str:
    """The HTML of a template, with the style sheets, scripts and policy that its sections need."""
    needs = list(dict.fromkeys(need for section in sections for need in section.needs))
    css = asset("page.css") + "".join(asset(name) for name in needs if name.endswith(".css"))
    script = "".join(asset(name) for name in needs if name.endswith(".js"))
    page = templates().get_template(template)
    allowed = policy(css, script, pictures="pictures" in needs)
    return page.render(css=Markup(css), script=Markup(script), policy=allowed, sections=sections, **values)


@cache
def templates() -> Environment:
    """The environment of all pages; it escapes every value."""
    jinja = environment(TEMPLATES, EXPLAIN_TEMPLATES)
    jinja.filters.update(FILTERS)
    return jinja


def part(template: str, name: str, *values: Any, **keywords: Any) -> Markup:
    """The output of the macro ``name`` of a template for these values."""
    return Markup(getattr(templates().get_template(f"{template}.html.j2").module, name)(*values, **keywords))


def table(data: Table) -> Markup:
    """A table as HTML; empty if it has no rows."""
    return part("parts", "table", data) if data.rows else Markup()


# --- sections of all pages --------------------------------------------------------------------------------


def curves(*charts: tuple[Markup | None, str, Iterable[tuple[str, str]]]) -> Markup:
    """Charts next to each other: SVG (None is skipped), caption, and color and name of the lines."""
    return part("parts", "curves", [chart for chart in charts if chart[0]])


def learning_curves(
    run: Run, note: str, accuracy_title: str, keys: Sequence[tuple[str, str]] = (TRAIN, VALIDATION)
) -> Section | None:
    """The learning curves of loss and accuracy."""
    loss = figures.loss_curves(run.steps, run.evaluations) if run.steps else None
    accuracy = figures.accuracy_curves(run.steps, run.evaluations) if run.evaluations else None
    if not (loss or accuracy):
        return None
    return Section(
        "learned", "Learning curves", note, curves((loss, "Loss", keys), (accuracy, accuracy_title, keys))
    )


def folds(run: Run) -> Section | None:
    """The folds of a cross-validation."""
    if not run.metrics.get("folds"):
        return None
    note = (
        "The model of a fold was trained on the other folds and evaluated on this one. The models share most "
        "of their training examples, so the scatter shows how stable the recipe is; it is no standard error."
    )
    return Section("folds", "Cross-validation folds", note, table(fold_table(run.metrics)))


def own_inputs(body: Markup | str, name: str = "sentences", *needs: str) -> Section:
    """Predictions for the user's own inputs."""
    note = "Given in the recipe or on the command line, without a true label."
    return Section(name, f"Your {name}", note, body, needs)


def scores_section(
    run: Run,
    note: str,
    columns: Sequence[str],
    digits: int = 1,
    parts: Sequence[tuple[str, dict[str, Any]]] = (),
    footnote: str | Markup = "",
) -> Section | None:
    """A table of metrics: the evaluated split, the baselines on it, and the other splits.

    Args:
        columns: as in ``metrics.cells``.
        parts: rows to insert after the first, for subsets of the evaluated examples.
        footnote: text below the table.
    """
    rows = score_rows(run)
    if not rows:
        return None
    rows[1:1] = parts
    return Section("scores", "Scores", note, table(metric_table(rows, columns, digits)) + footnote)


def score_rows(run: Run) -> list[tuple[str, dict[str, Any]]]:
    """Name and scores for the evaluated split, the baselines on it, and the other splits."""
    metrics = run.metrics
    name = wording.model_name(metrics, (run.config.get("model") or {}).get("model") or "this model")
    out = [(f"{name}, {run.split}", run.scores)] if run.scores else []
    out += list((metrics.get("baselines") or {}).items())
    if metrics.get("validation") and run.scores is not metrics["validation"] and run.split != "validation":
        out.append((f"{name}, validation", metrics["validation"]))
    if metrics.get("train"):
        out.append((f"{name}, {metrics['train']['n']} of training", metrics["train"]))
    return out


def data_section(run: Run) -> Section | None:
    """The data doctor's findings, the most serious first, and its statistics."""
    if not run.doctor:
        return None
    note = "Findings of the data doctor before training, the most serious first."
    statistics = tables.statistic_tables(run.doctor.get("figures") or {})
    statistics.sort(key=lambda table: table[1] == [""])  # single values last
    return Section("data", "The data", note, part("parts", "doctor", tables.findings(run.doctor), statistics))


def model_section(diagrams: Sequence[Markup], shape_letters: str) -> Section | None:
    """Diagrams of the model at two levels of detail."""
    note = "Drawn from the model itself: each block with the shape of its output "
    note += f"({shape_letters}) and its parameters; the parameters of a stack are those of all its layers."
    if not diagrams:
        return None
    return Section("model", "The model", note, part("parts", "model", diagrams))


def settings_section(run: Run) -> Section | None:
    """The settings of the recipe, and its expected result."""
    all_settings = tables.settings(run.config, run.known.defaults)
    if not all_settings:
        return None
    note = "Settings that differ from their default. config.toml has all of them."
    expectation = tables.expectation(run.config, run.known.shipped, run.known.defaults)
    body = part("parts", "settings", tables.changed_settings(all_settings), all_settings, expectation)
    return Section("settings", "Settings", note, body)


def cost_section(metrics: dict[str, Any]) -> Section | None:
    """Times, machine and versions."""
    seconds = metrics.get("seconds") or {}
    times, facts = tables.times(seconds), tables.facts(metrics)
    if not (times or facts):
        return None
    note = "Times are comparable on the same machine only."
    body = part("parts", "cost", times, facts, seconds.get("total"))
    return Section("cost", "Time and machine", note, body)


def architecture(metrics: dict[str, Any], source: str) -> list[Markup]:
    """Diagrams of the model at two levels of detail; empty if the run has not saved its blocks."""
    saved = metrics.get("architecture") or []
    try:
        blocks = [Block.from_dict(block) for block in saved]
        return (
            [Markup(draw(blocks, detail, source=source)) for detail in ("blocks", "layers")] if blocks else []
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise DataError(f"the architecture cannot be drawn ({error})", where="metrics.json") from None


def reads_features(metrics: dict[str, Any]) -> bool:
    """Whether the model of a run reads n-grams instead of tokens."""
    saved = metrics.get("architecture") or [{}]
    return isinstance(saved, list) and isinstance(saved[0], dict) and saved[0].get("name") == "features"
