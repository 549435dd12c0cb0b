"""report.html of runs that learn numbers: figures, predicted against true, residuals, what intervals cover,
and the examples that are furthest off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from glassformer.checkpoints.files import replace_text
from glassformer.config import NOTHING_KNOWN, KnownRecipe, read_toml
from glassformer.data.numbers import Scale, off_scale, on_scale
from glassformer.errors import DataError
from glassformer.evaluate.numbers import FIGURES, bounds_around
from glassformer.explain.render import asset, policy
from glassformer.report import figures, tables
from glassformer.report.html import architecture, templates
from glassformer.report.run import read_history, read_json, shown
from glassformer.report.wording import model_name

BINS = 31  # of the residuals
RATIOS = (1e-4, 1e-3, 0.01, 0.1, 0.2, 0.5, 0.8, 1, 1.25, 2, 5, 10, 100, 1e3, 1e4)  # that are marked
GAP = "predicted − true"
SOURCES = {"texts": "tokens [N]", "pictures": "pixels [B, channels, height, width]"}


def write_number_report(folder: str | Path, known: KnownRecipe = NOTHING_KNOWN) -> Path:
    """Write ``report.html`` into a run folder and return its path; an old one is replaced in one move.

    Raises:
        DataError: no metrics.json, or a damaged file, which is named.
    """
    path = Path(folder) / "report.html"
    replace_text(path, render(Path(folder), known))
    return path


def render(folder: Path, known: KnownRecipe = NOTHING_KNOWN) -> str:
    """The page's HTML."""
    if not (folder / "metrics.json").is_file():
        raise DataError("no metrics.json", where=str(folder), fix="Is it a run folder, and did the run end?")
    metrics = read_json(folder / "metrics.json", dict)
    config = shown(read_toml(folder / "config.toml")) if (folder / "config.toml").is_file() else {}
    history = list(read_history(folder / "history.jsonl"))
    steps = [h for h in history if h.get("kind") == "step"]
    evaluations = [h for h in history if h.get("kind") == "evaluation"]
    examples = read_json(folder / "numbers.json", dict)
    doctor = read_json(folder / "doctor.json", dict)
    scores = metrics.get("test") or metrics.get("validation") or {}
    css = asset("page.css")
    points = examples.get("points") or {}
    both = np.asarray(points.get("true") or (), float), np.asarray(points.get("predicted") or (), float)
    scale: Scale = "log" if points.get("scale") == "log" else "linear"
    factor = examples.get("factor")
    reach = examples.get("half_width") if scale == "linear" else factor and math.log(factor)
    noun = "pictures" if "image" in config else "texts"
    return (
        templates()
        .get_template("numbers.html.j2")
        .render(
            css=Markup(css),
            policy=policy(css, ""),
            metrics=metrics,
            scores=scores,
            noun=noun,
            judged=metrics.get("judged") if metrics.get("test") else "validation",
            rows=rows_of(metrics, config),
            columns=FIGURES,
            config=config,
            title=config.get("name") or folder.resolve().name,
            folds=metrics.get("over_folds") or {},
            points=Markup(scatter(*both, reach, scale)) if len(both[0]) > 1 else None,
            residuals=Markup(residual_chart(*both, scale)) if len(both[0]) > 1 else None,
            ratios=scores.get("ratios") or {},
            furthest=examples.get("furthest") or [],
            intervals=metrics.get("intervals") or [],
            loss=Markup(figures.loss_curves(steps, evaluations)) if len(steps) > 1 else None,
            findings=[f for f in doctor.get("findings", []) if f.get("severity") != "ok"],
            settings=tables.settings(config, known.defaults),
            expectation=tables.expectation(config, known.shipped),
            facts=tables.facts(metrics),
            times=tables.times(metrics.get("seconds") or {}),
            architecture=architecture(metrics, SOURCES[noun]),
        )
    )


def rows_of(metrics: dict[str, Any], config: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The rows of the table of figures: what was judged, the baselines on it, the other splits."""
    judged = metrics.get("judged", "test")
    own = model_name(metrics, (config.get("model") or {}).get("model") or "this model")
    out = [(f"{own}, {judged}", metrics["test"])] if metrics.get("test") else []
    out += list((metrics.get("baselines") or {}).items())
    if metrics.get("validation") and (judged != "validation" or not out):
        out.append((f"{own}, validation", metrics["validation"]))
    if metrics.get("train"):
        out.append((f"{own}, {metrics['train']['n']} of training", metrics["train"]))
    return out


def scatter(
    true: np.ndarray, predicted: np.ndarray, half: float | None = None, scale: Scale = "linear"
) -> str:
    """Predicted against true numbers ``[n]``; the line where both are equal, and the interval around it,
    which reaches ``half`` on that scale."""
    with rc_context(figures.STYLE):
        figure = Figure((5.2, 4.2), layout="constrained")
        axes = figure.subplots()
        low, high = off_scale(_ends(on_scale(true, scale), on_scale(predicted, scale)), scale)
        line = np.array([low, high])
        if half is not None:
            bounds = bounds_around(line, half, scale)
            axes.fill_between(line, *bounds.T, color=figures.RULE, alpha=0.6, linewidth=0)
        axes.plot(line, line, color=figures.MUTED, linewidth=0.9, dashes=(4, 3))
        size = 9 if len(true) > 300 else 18
        axes.scatter(true, predicted, s=size, color=figures.HELD, alpha=0.45, linewidths=0)
        for axis in (axes.xaxis, axes.yaxis) if scale == "log" else ():
            _logarithmic(axes, axis)
        axes.set(xlim=(low, high), ylim=(low, high), xlabel="true", ylabel="predicted")
        axes.grid(True, axis="both")
        return figures.as_svg(figure, "points", "Predicted numbers against true ones")


def _logarithmic(axes: Any, axis: Any) -> None:
    """Ticks at round numbers, written out."""
    (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
    axis.set_major_locator(LogLocator(numticks=6))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def residual_chart(true: np.ndarray, predicted: np.ndarray, scale: Scale = "linear") -> str:
    """Residuals (predicted less true) ``[n]``: how often each size occurs, and over the predicted number. Of
    logarithms the ratio of both, on a scale where twice and half are equally far from one."""
    log = scale == "log"
    gaps, what = (np.log10(predicted / true), "predicted / true") if log else (predicted - true, GAP)
    with rc_context(figures.STYLE):
        figure = Figure((5.2, 4.2), layout="constrained")
        above, below = figure.subplots(2, 1, height_ratios=(2, 3))
        above.hist(gaps, bins=BINS, color=figures.HELD, alpha=0.55)
        above.axvline(0, color=figures.MUTED, linewidth=0.9, dashes=(4, 3))
        above.set(xlabel=what, ylabel="examples")
        below.scatter(predicted, gaps, s=9, color=figures.HELD, alpha=0.45, linewidths=0)
        below.axhline(0, color=figures.MUTED, linewidth=0.9, dashes=(4, 3))
        if log:
            _logarithmic(below, below.xaxis)
            for axis in (above.xaxis, below.yaxis):
                axis.set_major_locator(FixedLocator(np.log10(RATIOS).tolist()))
                axis.set_major_formatter(FuncFormatter(lambda x, _: f"{10**x:.3g}"))
            reach = 1.05 * max(float(np.abs(gaps).max()), 0.02)
            above.set_xlim(-reach, reach)
            below.set_ylim(-reach, reach)
        below.set(xlabel="predicted", ylabel=what)
        return figures.as_svg(figure, "residuals", "Residuals, and residuals over predicted numbers")


def _ends(*parts: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """The smallest and the largest of all numbers, with a little room."""
    every = np.concatenate([np.asarray(part, float) for part in parts])
    room = 0.04 * float(np.ptp(every)) or 1.0
    return float(every.min()) - room, float(every.max()) + room
