"""Plots as inline SVG for report pages.

matplotlib draws with the placeholder colors below. ``as_svg`` replaces them by CSS variables, which have
other values in dark mode. It also removes style attributes, which the content security policy forbids.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from glassformer.evaluate.intervals import wilson
from glassformer.report.wording import capitalized, cut
from glassformer.targets.multiclass import Classes

INK, MUTED, RULE, TRAIN, VALIDATION = "#010101", "#020202", "#030303", "#040404", "#050505"
# Placeholder color -> CSS variable
VARIABLES = {INK: "ink", MUTED: "muted", RULE: "rule", TRAIN: "train", VALIDATION: "held"}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "glassformer", "font.size": 10.5, "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "axes.grid.axis": "y", "axes.axisbelow": True, "grid.color": RULE, "grid.linewidth": 0.7,
    "xtick.color": RULE, "ytick.color": RULE, "xtick.labelcolor": MUTED, "ytick.labelcolor": MUTED,
    "xtick.major.size": 3, "ytick.major.size": 0, "lines.solid_capstyle": "round", "text.parse_math": False,
}  # fmt: skip
MAX_POINTS = 400  # maximum number of points of a line; more points are not visible

ET.register_namespace("", "http://www.w3.org/2000/svg")


def loss_curves(steps: Sequence[dict[str, Any]], evaluations: Sequence[dict[str, Any]]) -> Markup:
    """Training loss of each step, its trend, and the validation loss, over optimizer steps."""
    with rc_context(STYLE):
        figure, axes = _axes(steps)
        x, y = _series(steps, "loss")
        if len(x):
            x, y = _downsample(x), _downsample(y)
            axes.plot(x, y, color=TRAIN, linewidth=0.8, alpha=0.35)
            axes.plot(x, _trend(y), color=TRAIN, linewidth=1.8)
        _points(axes, evaluations, "loss", VALIDATION)
        _points(axes, [e for e in evaluations if e.get("best")][-1:], "loss", VALIDATION, ring=True)
        _, validation_losses = _series(evaluations, "loss")
        losses = np.concatenate([y, validation_losses])
        top = float(np.quantile(losses, 0.99)) if len(losses) else 1.0
        axes.set_ylim(0, top * 1.12 or 1.0)
        return as_svg(figure, "loss", "Loss over optimizer steps")


def accuracy_curves(
    steps: Sequence[dict[str, Any]],
    evaluations: Sequence[dict[str, Any]],
    measure: str = "accuracy",
    test_records: Sequence[dict[str, Any]] = (),
) -> Markup:
    """Accuracy on training and validation data at each evaluation, over optimizer steps.

    Args:
        measure: metric of the validation data, which replaces the accuracy if the records have it.
        test_records: test accuracy of the weights of each epoch, measured after training.
    """
    key = measure if any(e.get(measure) is not None for e in evaluations) else "accuracy"
    with rc_context(STYLE):
        figure, axes = _axes(steps)
        _points(axes, evaluations, "train_accuracy", TRAIN)
        _points(axes, evaluations, key, VALIDATION)
        _points(axes, [e for e in evaluations if e.get("best")][-1:], key, VALIDATION, ring=True)
        if test_records:
            x, y = _series(test_records, "accuracy")
            axes.plot(x, y, "s--", color=MUTED, linewidth=1.2, markersize=4)
        low, high = axes.get_ylim()
        margin = max(high - low, 0.02) * 0.15
        axes.set_ylim(max(low - margin, 0.0), min(high + margin, 1.0 + margin / 3))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        return as_svg(figure, "accuracy", f"{capitalized(Classes.metrics[key].name)} over optimizer steps")


def calibration_chart(total: Sequence[int], correct: Sequence[int], noun: str = "texts") -> Markup:
    """Accuracy against the predicted probability, with the number of predictions.

    Args:
        total, correct: numbers of all and of correct predictions, in equal bins of the probability.
        noun: plural noun for the examples.
    """
    n, num_correct = np.asarray(total, float), np.asarray(correct, float)
    nonempty = np.flatnonzero(n)
    width = 1 / len(n)
    lowest = min(0.5, width * nonempty[0]) if len(nonempty) else 0.0
    confidence, accuracy = (nonempty + 0.5) * width, num_correct[nonempty] / n[nonempty]
    with rc_context(STYLE):
        figure = Figure((5.2, 3.3), layout="constrained")
        axes, counts = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        axes.plot([lowest, 1], [lowest, 1], color=MUTED, linewidth=0.9, dashes=(4, 3))
        low, high = wilson(num_correct[nonempty], n[nonempty])
        axes.vlines(confidence, low, high, color=VALIDATION, linewidth=1.4, alpha=0.55)
        axes.plot(confidence, accuracy, "o", color=VALIDATION, markersize=4.6)
        axes.set(ylim=(min(lowest, low.min(initial=1.0)) - 0.03, 1.03), xlim=(lowest, 1), ylabel="accuracy")
        axes.tick_params(axis="x", length=0)
        counts.bar(confidence, n[nonempty], width=width * 0.82, color=VALIDATION, alpha=0.55)
        counts.set(xlabel="confidence", ylabel=noun)
        counts.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        for axis in (axes.yaxis, counts.xaxis):
            axis.set_major_formatter(PercentFormatter(1.0, symbol=" %", decimals=0))
        return as_svg(figure, "certainty", "Accuracy by confidence")


def reliability(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]], name: str) -> Markup:
    """Accuracy against predicted probability, before and after calibration.

    The size of a dot shows the number of examples in its bin.
    """
    total = max(sum(b["n"] for b in before), 1)
    with rc_context(STYLE):
        figure = Figure((5.2, 3.4), layout="constrained")
        axes = figure.subplots()
        lowest = min([b["low"] for b in [*before, *after]], default=0.5)
        axes.plot([lowest, 1], [lowest, 1], color=MUTED, linewidth=0.9, dashes=(4, 3))
        for curve, color in ((before, TRAIN), (after, VALIDATION)):
            x, y = [b["confidence"] for b in curve], [b["accuracy"] for b in curve]
            axes.plot(x, y, color=color, linewidth=1.4)
            axes.scatter(x, y, s=[12 + 90 * b["n"] / total for b in curve], color=color, linewidths=0)
        axes.set(xlabel="confidence", ylabel="accuracy", xlim=(lowest, 1.01), ylim=(None, 1.03))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1.0, symbol=" %", decimals=0))
        return as_svg(figure, "reliability", f"Accuracy on {cut(name, 20)} examples by confidence")


def _axes(steps: Sequence[dict[str, Any]]) -> tuple[Figure, Axes]:
    figure = Figure((5.2, 3.1), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel("optimizer step")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    epoch_starts = [b["step"] for a, b in pairwise(steps) if int(a.get("epoch", 0)) != int(b.get("epoch", 0))]
    if len(epoch_starts) <= 30:
        for step in epoch_starts:
            axes.axvline(step, color=RULE, linewidth=0.7, dashes=(2, 3))
    if steps:
        axes.set_xlim(0, max(s["step"] for s in steps) * 1.02)
    return figure, axes


def _series(records: Sequence[dict[str, Any]], key: str) -> tuple[np.ndarray, np.ndarray]:
    pairs = [(r["step"], r[key]) for r in records if r.get(key) is not None]
    return np.array([a for a, _ in pairs], float), np.array([b for _, b in pairs], float)


def _points(
    axes: Axes, records: Sequence[dict[str, Any]], key: str, color: str, *, ring: bool = False
) -> None:
    x, y = _series(records, key)
    size = 10.0 if ring else 4.6 if len(x) <= 20 else 0.0
    face = "none" if ring else color
    axes.plot(x, y, color=color, linewidth=1.8, marker="o", markersize=size, markerfacecolor=face)


def _downsample(values: np.ndarray) -> np.ndarray:
    """The means of groups of consecutive values; there are at most ``MAX_POINTS`` groups."""
    return np.array([part.mean() for part in np.array_split(values, min(len(values), MAX_POINTS))])


def _trend(values: np.ndarray) -> np.ndarray:
    """The centered running mean over a twelfth of the values; the window shrinks at both ends."""
    half = len(values) // 24
    return np.array([values[max(i - half, 0) : i + half + 1].mean() for i in range(len(values))])


def as_svg(figure: Figure, name: str, title: str) -> Markup:
    """The plot as an ``<svg>`` element with unique ids, and without style attributes.

    Args:
        name: prefix of the ids.
        title: description for screen readers.
    """
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    root = ET.fromstring(file.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.rpartition("}")[2] in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        for key, value in list(element.attrib.items()):
            del element.attrib[key]
            for attribute, content in _page_attributes(key.rpartition("}")[2], value, name):
                element.set(attribute, content)
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("role", "img")
    root.set("aria-label", title)
    text = ET.tostring(root, encoding="unicode")
    return Markup(re.sub(r'\s*xmlns(:\w+)?="[^"]*"|\n\s*(?=<)', "", text))


def _page_attributes(key: str, value: str, name: str) -> list[tuple[str, str]]:
    """The attributes that replace an attribute.

    A style becomes several attributes, ids get the plot's name as a prefix, and colors become CSS variables.
    """
    if key == "id":
        return [(key, f"{name}-{value}")]
    if key == "style":
        pairs = [part.partition(":") for part in value.split(";") if part.strip()]
        return [a for k, _, v in pairs for a in _page_attributes(k.strip(), v.strip(), name)]
    if key == "font":  # "9.5px 'DejaVu Sans', ...": the page has its own family
        return [("font-size", value.split("px")[0].split()[-1])]
    if key == "font-family":
        return []
    # "url(#p1a)" becomes "url(#NAME-p1a)"; "#040404" is a color.
    value = re.sub(r"#(?=[\w-]+\)?$)(?![0-9a-f]{6}$)", f"#{name}-", value)
    return [(key, f"var(--{VARIABLES[value]})" if value in VARIABLES else value)]
