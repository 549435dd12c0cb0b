"""Report sections and charts for regressors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from glassformer.data.numbers import Scale, off_scale, on_scale
from glassformer.report import figures
from glassformer.report.metrics import Table
from glassformer.report.page import HELD, TRAIN, Kind, Section, curves, folds, part, scores_section, table
from glassformer.report.run import Run
from glassformer.report.wording import count, percent
from glassformer.targets.regression import Numbers, bounds_around

BINS = 31  # of the histogram of residuals
RATIOS = (1e-4, 1e-3, 0.01, 0.1, 0.2, 0.5, 0.8, 1, 1.25, 2, 5, 10, 100, 1e3, 1e4)  # ticks of the axis
GAP = "predicted − true"


def number(x: float | None) -> str:
    return "" if x is None else f"{x:.4g}"


def verdict(run: Run) -> str:
    scores, ratios = run.scores, run.scores.get("ratios") or {}
    if not scores:
        return ""
    text = (
        f"Of {scores['n']:,} {run.judged} {run.noun} the predicted number is off by {number(scores['mae'])} "
    )
    text += "on average" + (f"; R² {scores['r2']:.3f}." if scores["r2"] is not None else ".")
    if ratios.get("median_factor"):
        text += f" Half of the predictions are within a factor of {number(ratios['median_factor'])}"
        if ratios["r2"] is not None:
            text += f"; R² of the logarithms, which the model learns, is {ratios['r2']:.3f}"
        text += "."
    return text


def scores(run: Run) -> Section | None:
    note = (
        "R² is 1 if every number is right, and 0 if predictions are no better than the mean. Errors have the "
        "unit of the numbers (squared for the mean squared error). The 95 % intervals come from resampled "
        "examples."
    )
    below = part("parts", "tried_models", run.metrics.get("tried"), run.noun)
    return scores_section(run, note, [*Numbers.metrics, "r2_interval"], below=below)


def points(run: Run) -> Section | None:
    """Predicted against true numbers, and residuals."""
    found = run.json("numbers.json")
    given = found.get("points") or {}
    both = np.asarray(given.get("true") or (), float), np.asarray(given.get("predicted") or (), float)
    if len(both[0]) < 2:
        return None
    scale: Scale = "log" if given.get("scale") == "log" else "linear"
    factor = found.get("factor")
    reach = found.get("half_width") if scale == "linear" else factor and math.log(factor)
    drawn = (
        (scatter(*both, reach, scale), "Predicted against true", ()),
        (residual_chart(*both, scale), "Residuals", ()),
    )
    note = (
        "Each point is one evaluated example. On the dashed line both numbers are equal; the band around it "
        "is the 90 % prediction interval, if enough examples were held out."
    )
    return Section("points", "Predicted against true numbers", note, curves(*drawn))


def intervals(run: Run) -> Section | None:
    levels, about = run.metrics.get("intervals") or [], run.metrics.get("numbers")
    if not (levels or about):
        return None
    rows = []
    for level in levels:
        covered = level["covered"]
        share = percent(covered) if covered is not None else f"needs {level['needed']} validation examples"
        width = number(level["width"])
        if "factor" in level:
            factor = number(level["factor"])
            width += f" (median); 1/{factor} to {factor} times the prediction"
        rows.append([percent(level["asked"], 0), share, width])
    below = ""
    if about:
        below = "No validation examples: predictions have no intervals."
        if held := about.get("held_out"):
            below = f"The intervals come from {count(held)} validation examples. These also chose the best "
            below += "epoch, so the intervals may be a little too narrow."
    note = (
        "How many true numbers lie in the interval around their prediction, and how wide it is (split "
        "conformal prediction on the validation examples)."
    )
    found = table(Table(["asked", "covered", "width"], rows, ours=(), style=""))
    return Section("intervals", "Prediction intervals", note, found + part("parts", "small", below))


def furthest(run: Run) -> Section | None:
    found = run.json("numbers.json").get("furthest")
    note = "The evaluated examples whose prediction is furthest from the true number."
    return Section("furthest", "Largest errors", note, part("numbers", "furthest", found)) if found else None


def learned(run: Run) -> Section | None:
    if len(run.steps) < 2:
        return None
    log = " (their logarithms)" if run.scores.get("ratios") else ""
    note = f"Squared error of each step with its trend, of standardized numbers{log}, and on the validation "
    note += "examples after each epoch."
    loss = figures.loss_curves(run.steps, run.evaluations)
    return Section("learned", "Learning curves", note, curves((loss, "Squared error", (TRAIN, HELD))))


def scatter(
    true: np.ndarray, predicted: np.ndarray, half: float | None = None, scale: Scale = "linear"
) -> Markup:
    """Scatter plot of predicted against true numbers ``[n]``, with the diagonal and an interval of half-width
    ``half`` on ``scale`` around it."""
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
    """Make an axis logarithmic, with ticks at round numbers."""
    (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
    axis.set_major_locator(LogLocator(numticks=6))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def residual_chart(true: np.ndarray, predicted: np.ndarray, scale: Scale = "linear") -> Markup:
    """Histogram of the residuals (predicted minus true) ``[n]``, and residuals against predictions. On a log
    scale, the ratio of both instead of their difference."""
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
    """The smallest and the largest of all numbers, with a margin."""
    every = np.concatenate([np.asarray(part, float) for part in parts])
    room = 0.04 * float(np.ptp(every)) or 1.0
    return float(every.min()) - room, float(every.max()) + room


PAGE = Kind(
    sections=(scores, folds, points, intervals, furthest, learned),
    verdict=verdict,
    letters=lambda run: "B inputs, N rows in all",
)
