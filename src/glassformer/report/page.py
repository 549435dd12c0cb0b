"""The page of a run: one file without links to anything, from a run folder.

What every page has (title, summary, headline, contents, data doctor's findings, the model, settings, times,
machine) is written here, once. A kind of prediction adds its sections, each from a run to a ``Section``.

Text, labels and file names are data: Jinja escapes all of them, and the page's policy lets the
browser run and style only what is shipped here, so that a review cannot bring a script along.
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
from glassformer.data.findings import warnings_said
from glassformer.errors import DataError
from glassformer.explain.architecture import Block, draw
from glassformer.explain.render import TEMPLATES as EXPLAIN_TEMPLATES
from glassformer.explain.render import asset, environment, policy
from glassformer.report import figures, tables, wording
from glassformer.report.metrics import Table, fold_table, metric_table
from glassformer.report.run import Run, read_folder

TEMPLATES = Path(__file__).parent / "templates"
MAX_ROWS = 200  # of one table or list
FEATURES = "n-grams of a text [N]"  # what goes into a model whose first box is of features
TRAIN, HELD = ("train", "training"), ("held", "validation")  # the lines of a chart: color, name
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
    """A part of a page under its own heading; without a title it is its body alone."""

    id: str
    title: str
    note: str
    body: str | Markup = ""
    needs: Sequence[str] = ()  # style sheets and scripts; "pictures": it holds some


@dataclass(frozen=True)
class Kind:
    """What a kind of prediction adds to the page."""

    sections: Sequence[Callable[[Any], Section | None]]
    verdict: Callable[[Any], str] = lambda run: ""
    about: Callable[[Any], dict[str, Any]] = lambda run: {}  # facts of the head, beside those of every run
    source: Callable[[Any], str] = lambda run: run.known.shape  # what goes into the model, with its shape
    letters: Callable[[Any], str] = lambda run: "N tokens in all"  # of the shapes, explained
    read: Callable[[Path], Run] = read_folder


def write_kind(folder: str | Path, kind: Kind, known: KnownRecipe = NOTHING_KNOWN) -> Path:
    """Write ``report.html`` into a run folder and return its path; an old one is replaced in one move.

    Args:
        known: of the run's recipe; nothing: every setting counts as changed.

    Raises:
        DataError: no metrics.json, or a damaged file, which is named.
        ConfigError: config.toml is not TOML.
    """
    run = replace(kind.read(Path(folder)), known=known)
    return write_page(run.folder / "report.html", render(run, kind))


def write_page(path: Path, html: str) -> Path:
    """Write a page; an old one is replaced in one move."""
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
        warned=warnings_said(run.doctor.get("findings") or []),
        meta={name: value for name, value in meta.items() if value not in (None, "")},
        sections=[section for section in sections if section is not None],
    )


def render_page(template: str, sections: Sequence[Section] = (), **values: object) -> str:
    """Any page: its style sheets, its scripts, its policy, and what the template prints."""
    needs = list(dict.fromkeys(need for section in sections for need in section.needs))
    css = asset("page.css") + "".join(asset(name) for name in needs if name.endswith(".css"))
    script = "".join(asset(name) for name in needs if name.endswith(".js"))
    page = templates().get_template(template)
    allowed = policy(css, script, pictures="pictures" in needs)
    return page.render(css=Markup(css), script=Markup(script), policy=allowed, sections=sections, **values)


@cache
def templates() -> Environment:
    """Those of all pages, in which every value is escaped."""
    made = environment(TEMPLATES, EXPLAIN_TEMPLATES)
    made.filters.update(FILTERS)
    return made


def part(template: str, name: str, *values: Any, **named: Any) -> Markup:
    """What a macro of a template makes of these values."""
    return Markup(getattr(templates().get_template(f"{template}.html.j2").module, name)(*values, **named))


def table(found: Table) -> Markup:
    """A table; nothing without rows."""
    return part("parts", "table", found) if found.rows else Markup()


# --- what every page has --------------------------------------------------------------------------------


def curves(*drawn: tuple[Markup | None, str, Iterable[tuple[str, str]]]) -> Markup:
    """Charts beside each other: SVG (None is left out), caption, and the lines by color and name."""
    return part("parts", "curves", [one for one in drawn if one[0]])


def learned(
    run: Run, note: str, second: str, keys: Sequence[tuple[str, str]] = (TRAIN, HELD)
) -> Section | None:
    """The curves of the loss and of what else was measured along the way.

    Args:
        second: what the accuracy is called here.
        keys: the lines that are there.
    """
    loss = figures.loss_curves(run.steps, run.evaluations) if run.steps else None
    accuracy = figures.accuracy_curves(run.steps, run.evaluations) if run.evaluations else None
    if not (loss or accuracy):
        return None
    return Section("learned", "Learning curves", note, curves((loss, "Loss", keys), (accuracy, second, keys)))


def folds(run: Run) -> Section | None:
    """Cross-validation, fold by fold; of every kind of prediction."""
    if not run.metrics.get("folds"):
        return None
    note = (
        "Each model was trained on the other folds and evaluated on its own. The folds share most of their "
        "training examples, so their scatter shows how stable the recipe is; it is not a standard error."
    )
    return Section("folds", "Cross-validation folds", note, table(fold_table(run.metrics)))


def own_inputs(body: Markup | str, name: str = "sentences", *needs: str) -> Section:
    """The predictions for inputs of the user's own."""
    note = "Given in the recipe or on the command line, without a true label."
    return Section(name, f"Your {name}", note, body, needs)


def scores_section(
    run: Run,
    note: str,
    columns: Sequence[str],
    digits: int = 1,
    parts: Sequence[tuple[str, dict[str, Any]]] = (),
    below: str | Markup = "",
) -> Section | None:
    """The metrics of the judged split, of the baselines on it and of the other splits.

    Args:
        columns: as in ``metrics.cells``.
        parts: rows behind the first: of some of the judged examples.
        below: what stands below the table.
    """
    rows = score_rows(run)
    if not rows:
        return None
    rows[1:1] = parts
    return Section("scores", "Scores", note, table(metric_table(rows, columns, digits)) + below)


def score_rows(run: Run) -> list[tuple[str, dict[str, Any]]]:
    """Name and scores: of the judged split, of the baselines on it, of the other splits."""
    metrics = run.metrics
    own = wording.model_name(metrics, (run.config.get("model") or {}).get("model") or "this model")
    out = [(f"{own}, {run.judged}", run.scores)] if run.scores else []
    out += list((metrics.get("baselines") or {}).items())
    if metrics.get("validation") and run.scores is not metrics["validation"] and run.judged != "validation":
        out.append((f"{own}, validation", metrics["validation"]))
    if metrics.get("train"):
        out.append((f"{own}, {metrics['train']['n']} of training", metrics["train"]))
    return out


def data_section(run: Run) -> Section | None:
    """The data doctor's findings, the most serious first, and its figures."""
    if not run.doctor:
        return None
    note = "What the data doctor found before the first step, worst first."
    more = tables.figure_tables(run.doctor.get("figures") or {})
    more.sort(key=lambda one: one[1] == [""])  # single values last
    return Section("data", "The data", note, part("parts", "doctor", tables.findings(run.doctor), more))


def model_section(drawn: Sequence[Markup], letters: str) -> Section | None:
    """The model at two levels of detail."""
    note = "Drawn from the model itself: what each block is, the shape that leaves it "
    note += f"({letters}) and its parameters, of all repeats for a pile of layers."
    if not drawn:
        return None
    return Section("model", "The model", note, part("parts", "model", drawn))


def settings_section(run: Run) -> Section | None:
    """What the recipe sets, and what it expects."""
    every = tables.settings(run.config, run.known.defaults)
    if not every:
        return None
    note = "Settings that differ from their default. config.toml has all of them."
    expectation = tables.expectation(run.config, run.known.shipped, run.known.defaults)
    body = part("parts", "settings", tables.changed(every), every, expectation)
    return Section("settings", "Settings", note, body)


def cost_section(metrics: dict[str, Any]) -> Section | None:
    """Times, machine and versions."""
    seconds = metrics.get("seconds") or {}
    times, facts = tables.times(seconds), tables.facts(metrics)
    if not (times or facts):
        return None
    note = "Times on other machines cannot be compared with these."
    body = part("parts", "cost", times, facts, seconds.get("total"))
    return Section("cost", "Time and machine", note, body)


def architecture(metrics: dict[str, Any], source: str) -> list[Markup]:
    """The image of the model at two levels of detail; empty for a run that has not noted its blocks.

    Args:
        source: what goes in, with its shape.

    Raises:
        DataError: the blocks are damaged.
    """
    noted = metrics.get("architecture") or []
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
