"""Report sections and charts for regressors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from glassformer.data.numbers import Scale, from_scale, to_scale
from glassformer.report import figures, page
from glassformer.report.metrics import Table
from glassformer.report.page import PageKind, Section, render_macro, table
from glassformer.report.run import Run
from glassformer.report.wording import count, percent
from glassformer.targets.regression import Numbers, bounds_around

BINS = 31  # bins in the histogram of residuals
RATIO_TICKS = (1e-4, 1e-3, 0.01, 0.1, 0.2, 0.5, 0.8, 1, 1.25, 2, 5, 10, 100, 1e3, 1e4)  # predicted / true
DIFFERENCE = "predicted − true"


def number(x: float | None) -> str:
    return "" if x is None else f"{x:.4g}"


def verdict(run: Run) -> str:
    scores, ratios = run.scores, run.scores.get("ratios") or {}
    if not scores:
        return ""
    text = f"Of {scores['n']:,} {run.split} {run.noun} the predicted number is off by "
    text += f"{number(scores['mae'])} on average"
    text += f"; R² {scores['r2']:.3f}." if scores["r2"] is not None else "."
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
    footnote = render_macro("parts", "tried_models", run.metrics.get("tried"), run.noun)
    return page.scores_section(run, note, [*Numbers.metrics, "r2_interval"], footnote=footnote)


def predicted_against_true(run: Run) -> Section | None:
    """Predicted against true numbers, and residuals."""
    data = run.json("numbers.json")
    points = data.get("points") or {}
    true, predicted = (np.asarray(points.get(key) or (), float) for key in ("true", "predicted"))
    if len(true) < 2:
        return None
    scale: Scale = "log" if points.get("scale") == "log" else "linear"
    factor = data.get("factor")
    half_width = data.get("half_width") if scale == "linear" else factor and math.log(factor)
    charts = (
        (scatter(true, predicted, half_width, scale), "Predicted against true", ()),
        (residual_chart(true, predicted, scale), "Residuals", ()),
    )
    note = (
        "Each point is one evaluated example. On the dashed line both numbers are equal; the band around it "
        "is the 90 % prediction interval, if enough examples were held out."
    )
    return Section("points", "Predicted against true numbers", note, page.curves(*charts))


def intervals(run: Run) -> Section | None:
    levels, statistics = run.metrics.get("intervals") or [], run.metrics.get("numbers")
    if not (levels or statistics):
        return None
    rows = []
    for level in levels:
        covered = level["covered"]
        coverage = percent(covered) if covered is not None else f"needs {level['needed']} validation examples"
        width = number(level["width"])
        if "factor" in level:
            factor = number(level["factor"])
            width += f" (median); 1/{factor} to {factor} times the prediction"
        rows.append([percent(level["asked"], 0), coverage, width])
    footnote = ""
    if statistics:
        footnote = "No validation examples: predictions have no intervals."
        if num_examples := statistics.get("held_out"):
            footnote = f"The intervals come from {count(num_examples)} validation examples. These also chose "
            footnote += "the best epoch, so the intervals may be a little too narrow."
    note = (
        "How many true numbers are in the interval around their prediction, and how wide it is (split "
        "conformal prediction on the validation examples)."
    )
    body = table(Table(["requested", "covered", "width"], rows, highlighted=(), style=""))
    return Section("intervals", "Prediction intervals", note, body + render_macro("parts", "small", footnote))


def largest_errors(run: Run) -> Section | None:
    examples = run.json("numbers.json").get("furthest") or []
    note = "The evaluated examples whose prediction is furthest from the true number."
    return page.listing("furthest", "Largest errors", note, "numbers.largest_errors", examples)


def learning_curves(run: Run) -> Section | None:
    if len(run.steps) < 2:
        return None
    logarithms = " (their logarithms)" if run.scores.get("ratios") else ""
    note = f"Squared error of each step with its trend, of standardized numbers{logarithms}, and on the "
    note += "validation examples after each epoch."
    loss = figures.loss_curves(run.steps, run.evaluations)
    body = page.curves((loss, "Squared error", (page.TRAIN, page.VALIDATION)))
    return Section("learned", "Learning curves", note, body)


def scatter(
    true: np.ndarray, predicted: np.ndarray, half_width: float | None = None, scale: Scale = "linear"
) -> Markup:
    """Scatter plot of predicted against true numbers ``[n]``, with the prediction interval as a band."""
    with rc_context(figures.STYLE):
        figure = Figure((5.2, 4.2), layout="constrained")
        axes = figure.subplots()
        low, high = from_scale(_range(to_scale(true, scale), to_scale(predicted, scale)), scale)
        line = np.array([low, high])
        if half_width is not None:
            bounds = bounds_around(line, half_width, scale)
            axes.fill_between(line, *bounds.T, color=figures.RULE, alpha=0.6, linewidth=0)
        axes.plot(line, line, color=figures.MUTED, linewidth=0.9, dashes=(4, 3))
        size = 9 if len(true) > 300 else 18
        axes.scatter(true, predicted, s=size, color=figures.VALIDATION, alpha=0.45, linewidths=0)
        for axis in (axes.xaxis, axes.yaxis) if scale == "log" else ():
            _make_logarithmic(axes, axis)
        axes.set(xlim=(low, high), ylim=(low, high), xlabel="true", ylabel="predicted")
        axes.grid(True, axis="both")
        return figures.as_svg(figure, "points", "Predicted numbers against true ones")


def _make_logarithmic(axes: Any, axis: Any) -> None:
    (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
    axis.set_major_locator(LogLocator(numticks=6))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def residual_chart(true: np.ndarray, predicted: np.ndarray, scale: Scale = "linear") -> Markup:
    """Histogram of the residuals (predicted minus true) ``[n]``, and residuals against predictions.

    On a log scale, the residuals are ratios (predicted / true).
    """
    is_log, residuals, label = scale == "log", predicted - true, DIFFERENCE
    if is_log:
        residuals, label = np.log10(predicted / true), "predicted / true"
    with rc_context(figures.STYLE):
        figure = Figure((5.2, 4.2), layout="constrained")
        histogram, points = figure.subplots(2, 1, height_ratios=(2, 3))
        histogram.hist(residuals, bins=BINS, color=figures.VALIDATION, alpha=0.55)
        histogram.axvline(0, color=figures.MUTED, linewidth=0.9, dashes=(4, 3))
        histogram.set(xlabel=label, ylabel="examples")
        points.scatter(predicted, residuals, s=9, color=figures.VALIDATION, alpha=0.45, linewidths=0)
        points.axhline(0, color=figures.MUTED, linewidth=0.9, dashes=(4, 3))
        if is_log:
            _make_logarithmic(points, points.xaxis)
            for axis in (histogram.xaxis, points.yaxis):
                axis.set_major_locator(FixedLocator(np.log10(RATIO_TICKS).tolist()))
                axis.set_major_formatter(FuncFormatter(lambda x, _: f"{10**x:.3g}"))
            limit = 1.05 * max(float(np.abs(residuals).max()), 0.02)
            histogram.set_xlim(-limit, limit)
            points.set_ylim(-limit, limit)
        points.set(xlabel="predicted", ylabel=label)
        return figures.as_svg(figure, "residuals", "Residuals, and residuals over predicted numbers")


def _range(*arrays: np.ndarray) -> tuple[float, float]:
    """The range of all numbers, with a margin at both ends."""
    values = np.concatenate(arrays)
    margin = 0.04 * float(np.ptp(values)) or 1.0
    return float(values.min()) - margin, float(values.max()) + margin


PAGE = PageKind(
    sections=(scores, page.folds, predicted_against_true, intervals, largest_errors, learning_curves),
    verdict=verdict,
    shape_letters=lambda run: "B inputs, N rows in all",
)
