"""The report of a run as one HTML file.

This module renders the parts of all reports: title, summary, verdict, contents, findings of the data doctor,
model, settings, times and machine. Each kind of prediction has a ``PageKind`` with further sections.

Jinja escapes all texts, labels and file names. The content security policy only allows scripts and styles of
this package, so a text cannot inject a script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import getmembers, isfunction
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from glassformer.checkpoints.files import replace_text
from glassformer.data.findings import num_warnings
from glassformer.errors import DataError
from glassformer.explain.architecture import Block, draw
from glassformer.explain.render import TEMPLATES as EXPLAIN_TEMPLATES
from glassformer.explain.render import asset, environment, policy
from glassformer.report import figures, tables, wording
from glassformer.report.metrics import Table, fold_table, metric_table
from glassformer.report.run import Run, read_folder

TEMPLATES = Path(__file__).parent / "templates"
MAX_ROWS = 200  # maximum number of rows of a table or list
FEATURES = "n-grams of a text [N]"  # input of a model for n-gram features
TRAIN, VALIDATION = ("train", "training"), ("held", "validation")  # CSS class and name of a line in a chart


@dataclass(frozen=True)
class Section:
    """A section of a report; without a title, only its body is shown."""

    id: str
    title: str
    note: str
    body: str | Markup = ""
    assets: Sequence[str] = ()  # style sheets and scripts; "images": the section contains images


@dataclass(frozen=True)
class PageKind:
    """The parts of a report for one kind of prediction."""

    sections: Sequence[Callable[[Any], Section | None]]
    verdict: Callable[[Any], str] = lambda run: ""
    extra_facts: Callable[[Any], dict[str, Any]] = lambda run: {}  # for the top of the page
    model_input: Callable[[Any], str] = lambda run: run.known.shape  # such as "tokens [N]"
    shape_letters: Callable[[Any], str] = lambda run: "N tokens in all"  # meaning of the letters in shapes
    read: Callable[[Path], Run] = read_folder


def write_page(path: Path, html: str) -> Path:
    replace_text(path, html)
    return path


def render(run: Run, kind: PageKind) -> str:
    metrics, config = run.metrics, run.config
    model_input = FEATURES if reads_features(metrics) else kind.model_input(run)
    machine = metrics.get("machine") or {}
    facts = {
        "task": metrics.get("task"),
        "model": wording.model_name(metrics, (config.get("model") or {}).get("model")),
        "weights": metrics.get("weights_source"),
        "data": (config.get("data") or {}).get("source"),
        **kind.extra_facts(run),
        "parameters": metrics.get("parameters") and wording.count(metrics["parameters"]),
        "seed": metrics.get("seed"),
        "date": (metrics.get("date") or "")[:10],
        "machine": machine.get("gpu") or machine.get("cpu"),
    }
    sections = [
        *(section(run) for section in kind.sections),
        data_section(run),
        model_section(architecture(metrics, model_input), kind.shape_letters(run)),
        settings_section(run),
        cost_section(metrics),
    ]
    return render_page(
        "run.html.j2",
        title=config.get("name") or metrics.get("weights_source") or run.folder.resolve().name,
        summary=config.get("summary"),
        verdict=kind.verdict(run),
        num_warnings=num_warnings(run.doctor.get("findings") or []),
        facts={name: value for name, value in facts.items() if value not in (None, "")},
        sections=[section for section in sections if section is not None],
    )


def render_page(template: str, sections: Sequence[Section] = (), **values: object) -> str:
    """The HTML of a template, with the style sheets, scripts and policy that its sections need."""
    assets = list(dict.fromkeys(name for section in sections for name in section.assets))
    css = asset("page.css") + "".join(asset(name) for name in assets if name.endswith(".css"))
    script = "".join(asset(name) for name in assets if name.endswith(".js"))
    page = templates().get_template(template)
    header = policy(css, script, pictures="images" in assets)
    return page.render(css=Markup(css), script=Markup(script), policy=header, sections=sections, **values)


@cache
def templates() -> Environment:
    """The Jinja environment of all pages; it escapes every value."""
    jinja = environment(TEMPLATES, EXPLAIN_TEMPLATES)
    jinja.filters |= dict(getmembers(wording, isfunction))
    jinja.filters["worst_first"] = tables.worst_first
    return jinja


def render_macro(template: str, name: str, *values: Any, **keywords: Any) -> Markup:
    """The output of the macro ``name`` of a template for these values."""
    macro = getattr(templates().get_template(f"{template}.html.j2").module, name)
    return Markup(macro(*values, **keywords))


def table(data: Table) -> Markup:
    """A table as HTML; empty if it has no rows."""
    return render_macro("parts", "table", data) if data.rows else Markup()


# --- sections of all pages --------------------------------------------------------------------------------


def curves(*charts: tuple[Markup | None, str, Iterable[tuple[str, str]]]) -> Markup:
    """Charts next to each other: (SVG or None, caption, CSS class and name of each line)."""
    return render_macro("parts", "curves", [chart for chart in charts if chart[0]])


def learning_curves(
    run: Run, note: str, accuracy_title: str, keys: Sequence[tuple[str, str]] = (TRAIN, VALIDATION)
) -> Section | None:
    loss = figures.loss_curves(run.steps, run.evaluations) if run.steps else None
    accuracy = figures.accuracy_curves(run.steps, run.evaluations) if run.evaluations else None
    if not (loss or accuracy):
        return None
    charts = (loss, "Loss", keys), (accuracy, accuracy_title, keys)
    return Section("learned", "Learning curves", note, curves(*charts))


def folds(run: Run) -> Section | None:
    if not run.metrics.get("folds"):
        return None
    note = (
        "The model of a fold was trained on the other folds and evaluated on this one. The models share most "
        "of their training examples, so the scatter shows how stable the recipe is. It is not a standard "
        "error."
    )
    return tabular("folds", "Cross-validation folds", note, fold_table(run.metrics))


def listing(
    id: str, title: str, note: str, macro: str, rows: Sequence[Any], *values: Any, assets: Sequence[str] = ()
) -> Section | None:
    """A section with the output of the macro ``"TEMPLATE.NAME"`` for some rows; None without rows."""
    body = render_macro(*macro.split("."), rows, *values) if rows else ""
    return Section(id, title, note, body, assets) if rows else None


def user_inputs(
    macro: str, rows: Sequence[Any], *values: Any, name: str = "sentences", **options: Any
) -> Section | None:
    """Predictions for the user's own inputs; see ``listing``."""
    note = "Given in the recipe or on the command line, without a true label."
    return listing(name, f"Your {name}", note, macro, rows[:MAX_ROWS], *values, **options)


def tabular(id: str, title: str, note: str, data: Table) -> Section | None:
    """A section with a table; None if the table has no rows."""
    return Section(id, title, note, table(data)) if data.rows else None


def scores_section(
    run: Run,
    note: str,
    columns: Sequence[str],
    digits: int = 1,
    subsets: Sequence[tuple[str, dict[str, Any]]] = (),
    footnote: str | Markup = "",
) -> Section | None:
    """A table of metrics: the evaluated split, the baselines on it, and the other splits.

    Args:
        columns: as in ``metrics.cells``.
        subsets: name and scores of subsets of the evaluated examples, for rows after the first.
        footnote: text below the table.
    """
    metrics = run.metrics
    name = wording.model_name(metrics, (run.config.get("model") or {}).get("model") or "this model")
    rows = [(f"{name}, {run.split}", run.scores)] if run.scores else []
    rows += list((metrics.get("baselines") or {}).items())
    if metrics.get("validation") and run.scores is not metrics["validation"] and run.split != "validation":
        rows.append((f"{name}, validation", metrics["validation"]))
    if metrics.get("train"):
        rows.append((f"{name}, {metrics['train']['n']} of training", metrics["train"]))
    if not rows:
        return None
    rows[1:1] = subsets
    return Section("scores", "Scores", note, table(metric_table(rows, columns, digits)) + footnote)


def data_section(run: Run) -> Section | None:
    """A section with the data doctor's findings and statistics."""
    if not run.doctor:
        return None
    note = "Findings of the data doctor before training, the most serious first."
    statistics = tables.statistic_tables(run.doctor.get("figures") or {})
    statistics.sort(key=lambda table: table[1] == [""])  # single values last
    body = render_macro("parts", "doctor", tables.findings(run.doctor), statistics)
    return Section("data", "The data", note, body)


def model_section(diagrams: Sequence[Markup], shape_letters: str) -> Section | None:
    if not diagrams:
        return None
    note = "Drawn from the model itself: each block with the shape of its output "
    note += f"({shape_letters}) and its parameters; the parameters of a stack are those of all its layers."
    return Section("model", "The model", note, render_macro("parts", "model", diagrams))


def settings_section(run: Run) -> Section | None:
    all_settings = tables.settings(run.config, run.known.defaults)
    if not all_settings:
        return None
    note = "Settings that differ from their default. config.toml has all of them."
    expectation = tables.expectation(run.config, run.known.shipped, run.known.defaults)
    body = render_macro("parts", "settings", tables.changed_settings(all_settings), all_settings, expectation)
    return Section("settings", "Settings", note, body)


def cost_section(metrics: dict[str, Any]) -> Section | None:
    seconds = metrics.get("seconds") or {}
    times, facts = tables.times(seconds), tables.facts(metrics)
    if not (times or facts):
        return None
    note = "Times are comparable on the same machine only."
    body = render_macro("parts", "cost", times, facts, seconds.get("total"))
    return Section("cost", "Time and machine", note, body)


def architecture(metrics: dict[str, Any], model_input: str) -> list[Markup]:
    """Diagrams of the model at two levels of detail; empty if the run has not saved its blocks."""
    try:
        blocks = [Block.from_dict(block) for block in metrics.get("architecture") or []]
        details = ("blocks", "layers") if blocks else ()
        return [Markup(draw(blocks, detail, source=model_input)) for detail in details]
    except (TypeError, ValueError, AttributeError) as error:
        raise DataError(f"the architecture cannot be drawn ({error})", where="metrics.json") from None


def reads_features(metrics: dict[str, Any]) -> bool:
    """Whether the model of a run reads n-grams instead of tokens."""
    blocks = metrics.get("architecture") or [{}]
    return isinstance(blocks, list) and isinstance(blocks[0], dict) and blocks[0].get("name") == "features"
