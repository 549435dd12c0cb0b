"""HTML representations for notebooks.

All texts are escaped. Tables have the colors and fonts of the notebook, so they also work in dark mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from markupsafe import Markup

from glassformer.report.metrics import numbers_in, study_rows
from glassformer.report.wording import EMPTY_CELL, bounds, count, cut, digits_for, duration, percent
from glassformer.targets.multiclass import Classes

MAX_ROWS = 12  # maximum number of evaluations; of more, the first and the last are shown
MAX_LABELS = 12  # maximum number of listed labels
MAX_NUMBERS = 40  # maximum number of metrics
METRIC_PARTS = ("scores", "masked", "tests", "test", "validation")  # keys of metrics.json that have metrics
MAX_TEXT = 200  # maximum number of characters of a cell
COLORS = {"training": "#7f7f7f", "held out": "#d6821e"}  # visible on white and on black


def table(rows: Iterable[Sequence[Any]], column_names: Sequence[str] = (), caption: str = "") -> Markup:
    """An HTML table; all cells are escaped."""

    def join(tag: str, values: Iterable[Any]) -> Markup:
        return Markup("").join(Markup(tag).format(value) for value in values)

    cells = (join("<td>{}</td>", (cut(str(cell), MAX_TEXT) for cell in row)) for row in rows)
    header = join("<th scope='col'>{}</th>", column_names)
    return Markup("<table>{}{}<tbody>{}</tbody></table>").format(
        Markup("<caption>{}</caption>").format(caption) if caption else "",
        Markup("<thead><tr>{}</tr></thead>").format(header) if column_names else "",
        join("<tr>{}</tr>", cells),
    )


# --- histories --------------------------------------------------------------------------------------


class Records(list[dict[str, Any]]):
    """A training history: records of steps and evaluations, with a table and a plot for notebooks."""

    def plot(self, title: str = "") -> Any:
        """Plot the loss and, with validation data, the validation metric over optimizer steps.

        Returns:
            A matplotlib figure, which a notebook shows; ``savefig`` writes it to a file.
        """
        return plot_history(self, title)

    def _repr_html_(self) -> str:
        return str(history_html(self))


def _evaluations(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [r for r in records if r.get("kind") == "evaluation"]


def history_html(records: Sequence[Mapping[str, Any]]) -> Markup:
    """A history as HTML: the number of steps, and a table with one row per evaluation."""
    steps = [r for r in records if r.get("kind") == "step"]
    evaluations = _evaluations(records)
    keys = [k for k in ("train_loss", "loss", *Classes.main_metrics) if any(k in r for r in evaluations)]
    visible = evaluations
    if len(evaluations) > MAX_ROWS:
        visible = [*evaluations[: MAX_ROWS // 2], *evaluations[-MAX_ROWS // 2 :]]
    num_hidden = len(evaluations) - len(visible)
    note = f", {num_hidden} of them are not shown" if num_hidden else ""
    summary = f"{len(steps):,} steps, {len(evaluations):,} evaluations{note}"
    if not visible:
        return Markup("<p>{}</p>").format(summary)
    rows = []
    for r in visible:
        position = [r.get("epoch", -1) + 1, r.get("step", "")]
        rows.append([*position, *(_number(r.get(k)) for k in keys), "best" * bool(r.get("best"))])
    return table(rows, ["epoch", "step", *(key.replace("_", " ") for key in keys), ""], summary)


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else EMPTY_CELL


def plot_history(records: Sequence[Mapping[str, Any]], title: str = "") -> Any:
    """See ``Records.plot``."""
    from matplotlib import rc_context
    from matplotlib.ticker import MaxNLocator

    steps, evaluations = [r for r in records if r.get("kind") == "step"], _evaluations(records)
    key = next((k for k in ("accuracy", "score", "macro_f1") if any(k in r for r in evaluations)), None)
    with rc_context({"text.parse_math": False, "font.size": 10}):
        figure = _figure((8.4 if key else 4.4, 3.2))
        axes = figure.subplots(1, 2 if key else 1, squeeze=False)[0]
        x, y = [r["step"] for r in steps], [r["loss"] for r in steps]
        axes[0].plot(x, y, color=COLORS["training"], linewidth=0.8)
        _plot_points(axes[0], evaluations, "train_loss", "training")
        _plot_points(axes[0], evaluations, "loss", "held out")
        axes[0].set_ylabel("loss")
        if key:
            _plot_points(axes[1], evaluations, f"train_{key}", "training")
            _plot_points(axes[1], evaluations, key, "held out")
            axes[1].set_ylabel(Classes.metrics[key].name if key in Classes.main_metrics else key)
        for axis in axes:
            axis.set_xlabel("step")
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            axis.spines[["top", "right"]].set_visible(False)
            if axis.get_legend_handles_labels()[0]:
                axis.legend(frameon=False)
        if title:
            figure.suptitle(cut(title, MAX_TEXT))
    return figure


def _plot_points(axes: Any, evaluations: Sequence[Mapping[str, Any]], key: str, name: str) -> None:
    points = [(r["step"], r[key]) for r in evaluations if isinstance(r.get(key), int | float)]
    if points:
        style: dict[str, Any] = {"color": COLORS[name], "markersize": 3.5, "linewidth": 1.4}
        axes.plot(*zip(*points, strict=True), "o-", label=name, **style)


def _figure(size: tuple[float, float]) -> Any:
    """A figure that a notebook can show. It is not made with pyplot, which would keep it in memory."""
    from io import StringIO

    from matplotlib.figure import Figure

    class Plot(Figure):
        def _repr_svg_(self) -> str:
            file = StringIO()
            self.savefig(file, format="svg", metadata={"Date": None})
            return file.getvalue()

    return Plot(figsize=size, layout="constrained")


# --- estimators -------------------------------------------------------------------------------------


class NotebookRepr:
    """Mixin that gives estimators an HTML representation for notebooks."""

    def _repr_html_(self) -> str:
        return str(estimator_html(self))

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def estimator_html(estimator: Any) -> Markup:
    """An estimator as HTML: class, fitted attributes, and settings that differ from the defaults."""
    model, source = getattr(estimator, "model_", None), getattr(estimator, "weights_source_", "")
    rows: list[list[Any]] = []
    if model is not None and hasattr(model, "parameters"):
        rows.append(["parameters", count(sum(p.numel() for p in model.parameters()))])
    if source:
        rows.append(["weights", source])
    if hasattr(estimator, "classes_"):
        labels = list(map(str, estimator.classes_.tolist()))
        rest = f" and {len(labels) - MAX_LABELS:,} more" if len(labels) > MAX_LABELS else ""
        rows.append([f"{len(labels)} classes", ", ".join(labels[:MAX_LABELS]) + rest])
    rows += [[split, f"{n:,} examples"] for split, n in getattr(estimator, "examples_", {}).items()]
    if chosen := dict(getattr(estimator, "chosen_", {})):
        values = ", ".join(f"{key} = {value:g}" for key, value in chosen.items())
        rows.append(["settings chosen automatically", values])
    if seconds := getattr(estimator, "train_seconds_", 0.0):
        rows.append(["training took", duration(seconds)])
    defaults = estimator.defaults()
    changed = {
        k: v for k, v in estimator.get_params(deep=False).items() if k in defaults and v != defaults[k]
    }
    if changed:
        rows.append(["settings", ", ".join(f"{key}={value!r}" for key, value in changed.items())])
    is_fitted = any(hasattr(estimator, name) for name in ("model_", "vectors_"))
    caption = f"{type(estimator).__name__}, {'fitted' if is_fitted else 'not fitted'}"
    history: Any = ""
    if records := getattr(estimator, "history_", None):
        history = Markup("<details><summary>history</summary>{}</details>").format(history_html(records))
    return Markup("<div>{}{}</div>").format(table(rows, caption=caption), history)


# --- runs and comparisons ---------------------------------------------------------------------------


def run_html(folder: Path, metrics: Mapping[str, Any]) -> Markup:
    """A finished run as HTML: its metrics on the evaluated split, compared with the baselines."""
    scores = metrics.get("test") or metrics.get("validation")
    report_line = Markup("<p>{}</p>").format(f"report: {folder / 'report.html'}")
    if not isinstance(scores, Mapping) or "accuracy" not in scores or "n" not in scores:
        parts = {k: v for k, v in metrics.items() if k in METRIC_PARTS and isinstance(v, Mapping)}
        rows = [[key, _number(value)] for key, value in islice(numbers_in(parts), MAX_NUMBERS)]
        return table(rows, caption=folder.name) + report_line
    # The key ``judged`` has the name of the evaluated split; older files lack it.
    split = metrics.get("judged", "test") if metrics.get("test") else "validation"
    digits = digits_for(scores["n"])
    models: dict[str, Any] = {"this model": scores} | dict(metrics.get("baselines") or {})
    rows = []
    for name, model_scores in models.items():
        accuracy, macro_f1 = model_scores["accuracy"], model_scores.get("macro_f1")
        interval = bounds(model_scores, "accuracy")
        rows.append([name, percent(accuracy, digits), interval, percent(macro_f1, digits)])
    caption = f"{folder.name}: {scores['n']:,} {split} examples"
    return table(rows, ["", "accuracy", "95 % interval", "macro-F1"], caption) + report_line


class Comparison(dict[str, Any]):
    """Results of a comparison, which a notebook shows as a table with sentences."""

    def _repr_html_(self) -> str:
        return str(comparison_html(self))


def comparison_html(results: Mapping[str, Any]) -> Markup:
    """A comparison as HTML: a table of variants and baselines, the conclusion, and a sentence per variant."""
    column_names, rows = study_rows(results)
    caption = f"{results['name']}: {results['n']:,} {results.get('judged', '')} examples"
    sentences = results.get("sentences") or {}
    lines = filter(None, [results.get("verdict"), *(f"{name}: {text}" for name, text in sentences.items())])
    paragraphs = Markup("").join(Markup("<p>{}</p>").format(line) for line in lines)
    return table(rows, ["", *column_names], caption) + paragraphs
