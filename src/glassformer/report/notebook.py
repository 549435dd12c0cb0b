"""How estimators, histories, runs and comparisons show themselves in a notebook: as HTML, all of it escaped.

The tables take colors and fonts from the notebook around them, and so are at home in a dark one too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from glassformer.report.metrics import signed, unit_of
from glassformer.report.wording import NONE, bounds, count, cut, digits_for, duration, p_value, percent
from glassformer.targets.multiclass import Classes

MOST_ROWS = 12  # of evaluations; the first and last are shown
MOST_LABELS = 12
FIGURES = ("scores", "masked", "tests", "test", "validation")  # parts of metrics.json that hold some
MOST_TEXT = 200  # characters of a cell
LINES = {"train": "#7f7f7f", "held": "#d6821e"}  # seen on white and on black


def table(rows: Iterable[Sequence[Any]], head: Sequence[str] = (), caption: str = "") -> Markup:
    """A table of texts and numbers; nothing in a cell is markup unless it is ``Markup`` already."""
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(
            Markup("").join(Markup("<td>{}</td>").format(_cell(cell)) for cell in row)
        )
        for row in rows
    )
    top = Markup("").join(Markup("<th scope='col'>{}</th>").format(cell) for cell in head)
    return Markup("<table>{}{}<tbody>{}</tbody></table>").format(
        Markup("<caption>{}</caption>").format(caption) if caption else "",
        Markup("<thead><tr>{}</tr></thead>").format(top) if head else "",
        body,
    )


def _cell(value: Any) -> Markup:
    return value if isinstance(value, Markup) else escape(cut(str(value), MOST_TEXT))


# --- histories --------------------------------------------------------------------------------------


class Records(list[dict[str, Any]]):
    """A history: the records of steps and evaluations, which shows and draws itself."""

    def plot(self, title: str = "") -> Any:
        """The loss, and where something was held out what it was judged by, over optimizer steps.

        Returns:
            A figure of matplotlib, which a notebook shows; ``savefig`` writes it.
        """
        return plot_history(self, title)

    def _repr_html_(self) -> str:
        return str(history_html(self))


def _evaluations(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [r for r in records if r.get("kind") == "evaluation"]


def history_html(records: Sequence[Mapping[str, Any]]) -> Markup:
    """How long it was, and a row an evaluation."""
    steps = [r for r in records if r.get("kind") == "step"]
    judged = _evaluations(records)
    keys = [k for k in ("train_loss", "loss", *Classes.leads) if any(k in r for r in judged)]
    shown = judged if len(judged) <= MOST_ROWS else [*judged[: MOST_ROWS // 2], *judged[-MOST_ROWS // 2 :]]
    rows = []
    for r in shown:
        place = [r.get("epoch", -1) + 1, r.get("step", "")]
        rows.append([*place, *(_number(r.get(k)) for k in keys), "best" * bool(r.get("best"))])
    between = len(judged) - len(shown)
    left_out = f", {between} of them are not shown" if between else ""
    said = f"{len(steps):,} steps, {len(judged):,} evaluations{left_out}"
    names = [key.replace("_", " ") for key in keys]
    return table(rows, ["epoch", "step", *names, ""], said) if rows else Markup("<p>{}</p>").format(said)


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else NONE


def plot_history(records: Sequence[Mapping[str, Any]], title: str = "") -> Any:
    """See ``Records.plot``."""
    from matplotlib import rc_context
    from matplotlib.ticker import MaxNLocator

    steps, judged = [r for r in records if r.get("kind") == "step"], _evaluations(records)
    key = next((k for k in ("accuracy", "score", "macro_f1") if any(k in r for r in judged)), None)
    with rc_context({"text.parse_math": False, "font.size": 10}):
        figure = _figure((8.4 if key else 4.4, 3.2))
        axes = figure.subplots(1, 2 if key else 1, squeeze=False)[0]
        x, y = [r["step"] for r in steps], [r["loss"] for r in steps]
        axes[0].plot(x, y, color=LINES["train"], linewidth=0.8)
        _points(axes[0], judged, "train_loss", "train")
        _points(axes[0], judged, "loss", "held")
        axes[0].set_ylabel("loss")
        if key:
            _points(axes[1], judged, f"train_{key}", "train")
            _points(axes[1], judged, key, "held")
            axes[1].set_ylabel(Classes.metrics[key].called if key in Classes.leads else key)
        for one in axes:
            one.set_xlabel("step")
            one.xaxis.set_major_locator(MaxNLocator(integer=True))
            one.spines[["top", "right"]].set_visible(False)
            if one.get_legend_handles_labels()[0]:
                one.legend(frameon=False)
        if title:
            figure.suptitle(cut(title, MOST_TEXT))
    return figure


def _points(axes: Any, judged: Sequence[Mapping[str, Any]], key: str, who: str) -> None:
    found = [(r["step"], r[key]) for r in judged if isinstance(r.get(key), int | float)]
    if found:
        name = "training" if who == "train" else "held out"
        pen: dict[str, Any] = {"color": LINES[who], "markersize": 3.5, "linewidth": 1.4}
        axes.plot(*zip(*found, strict=True), "o-", label=name, **pen)


def _figure(size: tuple[float, float]) -> Any:
    """A figure that a notebook shows without pyplot, which would keep it in memory."""
    from io import StringIO

    from matplotlib.figure import Figure

    class Plot(Figure):
        def _repr_svg_(self) -> str:
            file = StringIO()
            self.savefig(file, format="svg", metadata={"Date": None})
            return file.getvalue()

    return Plot(figsize=size, layout="constrained")


# --- estimators -------------------------------------------------------------------------------------


class Shown:
    """Mixed into estimators: what a notebook shows of one."""

    def _repr_html_(self) -> str:
        return str(estimator_html(self))

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def estimator_html(estimator: Any) -> Markup:
    """Its kind, what was fitted, and the settings that are not at their defaults."""
    model, source = getattr(estimator, "model_", None), getattr(estimator, "weights_source_", "")
    rows: list[list[Any]] = []
    if model is not None and hasattr(model, "parameters"):
        rows.append(["parameters", count(sum(p.numel() for p in model.parameters()))])
    if source:
        rows.append(["weights", source])
    if hasattr(estimator, "classes_"):
        labels = list(map(str, estimator.classes_.tolist()))
        more = f" and {len(labels) - MOST_LABELS:,} more" if len(labels) > MOST_LABELS else ""
        rows.append([f"{len(labels)} classes", ", ".join(labels[:MOST_LABELS]) + more])
    rows += [[split, f"{n:,} examples"] for split, n in getattr(estimator, "examples_", {}).items()]
    if chosen := dict(getattr(estimator, "chosen_", {})):
        rows.append(["chosen", ", ".join(f"{key} = {value:g}" for key, value in chosen.items())])
    if seconds := getattr(estimator, "train_seconds_", 0.0):
        rows.append(["training took", duration(seconds)])
    defaults = estimator.defaults()
    given = {k: v for k, v in estimator.get_params(deep=False).items() if k in defaults and v != defaults[k]}
    if given:
        rows.append(["settings", ", ".join(f"{key}={value!r}" for key, value in given.items())])
    fitted = any(hasattr(estimator, name) for name in ("model_", "vectors_"))
    caption = f"{type(estimator).__name__}, {'fitted' if fitted else 'not fitted'}"
    history = getattr(estimator, "history_", None)
    below = ""
    if history:
        below = Markup("<details><summary>history</summary>{}</details>").format(history_html(history))
    return Markup("<div>{}{}</div>").format(table(rows, caption=caption), below)


# --- runs and comparisons ---------------------------------------------------------------------------


def run_html(folder: Path, metrics: Mapping[str, Any]) -> Markup:
    """A finished run: its judged figures beside the simple models."""
    scores = metrics.get("test") or metrics.get("validation")
    where = Markup("<p>{}</p>").format(f"report: {folder / 'report.html'}")
    if not isinstance(scores, Mapping) or "accuracy" not in scores or "n" not in scores:
        return table([[key, _number(value)] for key, value in _numbers(metrics)], caption=folder.name) + where
    split = metrics.get("judged", "test") if metrics.get("test") else "validation"
    digits = digits_for(scores["n"])
    every: dict[str, Any] = {"this model": scores} | dict(metrics.get("baselines") or {})
    rows = []
    for name, s in every.items():
        shares = percent(s["accuracy"], digits), bounds(s, "accuracy"), percent(s.get("macro_f1"), digits)
        rows.append([name, *shares])
    caption = f"{folder.name}: {scores['n']:,} {split} examples"
    return table(rows, ["", "accuracy", "95 % interval", "macro-F1"], caption) + where


def _numbers(metrics: Mapping[str, Any], above: str = "") -> list[tuple[str, float]]:
    """Numbers of the parts that hold figures, with the names on the way to them."""
    out: list[tuple[str, float]] = []
    for key, value in metrics.items():
        name = f"{above} {key}".strip().replace("_", " ")
        if isinstance(value, Mapping) and (above or key in FIGURES):
            out += _numbers(value, name)
        elif above and isinstance(value, int | float) and not isinstance(value, bool):
            out.append((name, value))
    return out[:40]


class Comparison(dict[str, Any]):
    """The results of a comparison, which show themselves: a row an arm, and what can be said of them."""

    def _repr_html_(self) -> str:
        return str(comparison_html(self))


def comparison_html(results: Mapping[str, Any]) -> Markup:
    """A row an arm and a simple model, and the sentences."""
    measure = results.get("measure") or "accuracy"
    digits, unit = digits_for(results["n"]), unit_of(measure)
    rows = []
    for arm in results["arms"]:
        found = arm[measure]
        figure, apart = unit.value(found["mean"], digits), signed(found, digits, unit)
        rows.append([arm["name"], figure, unit.scatter(found.get("sd")), apart, p_value(arm.get("p_holm"))])
    for name, scores in (results.get("baselines") or {}).items():
        rows.append([name, unit.value(scores[measure], digits), NONE, signed(scores, digits, unit), NONE])
    head = ["", unit.called, "SD", unit.from_baseline, "p (Holm)"]
    caption = f"{results['name']}: {results['n']:,} {results.get('judged', '')} examples"
    said = [results.get("verdict"), *(f"{name}: {s}" for name, s in (results.get("sentences") or {}).items())]
    below = Markup("").join(Markup("<p>{}</p>").format(line) for line in said if line)
    return table(rows, head, caption) + below
