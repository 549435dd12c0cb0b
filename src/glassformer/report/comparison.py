"""Figures that compare: a study's arms, differences and curves; a model before and after calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from glassformer.evaluate.metrics import CALLED
from glassformer.evaluate.number_compare import MEASURES
from glassformer.report.figures import HELD, INK, MUTED, RULE, STYLE, TRAIN, as_svg
from glassformer.report.units import Plain, unit_of
from glassformer.report.wording import cut, headed

NAME = 42  # characters of an arm's name
ACROSS = 3  # small charts in a row


def bars(arms: Sequence[dict[str, Any]], baseline: str, measure: str = "accuracy") -> str:
    """A measure of each arm as a bar from 0, with its 95 % interval and a dot for each seed."""
    with rc_context({**STYLE, "axes.grid.axis": "x"}):
        figure, axes = _rows(arms)
        for y, arm in enumerate(arms):
            found = arm[measure]
            color = TRAIN if arm["name"] == baseline else HELD
            axes.barh(y, found["mean"], height=0.6, color=color, alpha=0.35)
            axes.hlines(y, *found["interval"], color=color, linewidth=2.2)
            axes.plot(found["values"], [y] * len(found["values"]), "o", color=INK, markersize=2.6, alpha=0.7)
        unit = unit_of(measure)
        axes.set(xlabel=unit.called)
        if isinstance(unit, Plain):
            axes.axvline(0, color=MUTED, linewidth=0.9)
        else:
            axes.set(xlim=(0, 1.0))
            axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %", decimals=0))
        return as_svg(figure, "bars", f"{headed(unit.called)} of each arm with its 95 % interval")


def differences(arms: Sequence[dict[str, Any]], baseline: str, measure: str = "accuracy") -> str:
    """Difference from the baseline, of shares in points, with its 95 % interval; filled: significant."""
    others = [arm for arm in arms if arm["name"] != baseline]
    unit = unit_of(measure)
    scale = 1 if isinstance(unit, Plain) else 100
    with rc_context({**STYLE, "axes.grid.axis": "x"}):
        figure, axes = _rows(others)
        axes.axvline(0, color=MUTED, linewidth=1.1)
        for y, arm in enumerate(others):
            low, high = (scale * x for x in arm[measure]["difference_interval"])
            axes.hlines(y, low, high, color=HELD, linewidth=2.2)
            face = HELD if arm["significant"] else "none"
            at = scale * arm[measure]["difference"]
            axes.plot([at], [y], "o", color=HELD, markersize=6.5, markerfacecolor=face)
        axes.set(xlabel=f"difference in {unit.called}{unit.of_difference}")
        axes.xaxis.set_major_locator(MaxNLocator(7))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:+g}" if x else "0"))
        return as_svg(
            figure, "differences", f"Difference of each arm from {cut(baseline, NAME)}, with 95 % intervals"
        )


def curves(arms: Sequence[dict[str, Any]], key: str) -> str:
    """A small chart for each arm: its curve over the epochs in colour, the others' behind it."""
    rows, called = -(-len(arms) // ACROSS), MEASURES.get(key, CALLED.get(key, key))
    values = [point[key] for arm in arms for point in arm["curve"]]
    low, high = min(values), max(values)
    room = max(high - low, 1e-3) * 0.08
    with rc_context(STYLE):
        figure = Figure((8.4, 0.5 + 1.75 * rows), layout="constrained")
        grid = figure.subplots(rows, ACROSS, sharex=True, sharey=True, squeeze=False).ravel()
        for axes, arm in zip(grid, arms):
            for other in arms:
                if other is not arm:
                    axes.plot(*_line(other, key), color=RULE, linewidth=1.1)
            x, y = _line(arm, key)
            axes.plot(x, y, color=HELD, linewidth=1.9, marker="o", markersize=3.2 if len(x) <= 20 else 0)
            axes.set_title(cut(arm["name"], 30), fontsize=9.5, color=INK, loc="left")
            axes.set_ylim(low - room, high + room)
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            if key in CALLED:
                axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        for axes in grid[len(arms) :]:
            axes.set_visible(False)
        for axes in grid[max(len(arms) - ACROSS, 0) : len(arms)]:
            axes.set_xlabel("evaluation")
        return as_svg(
            figure,
            f"curves-{key}",
            f"Validation {called} of each arm over the evaluations, mean over seeds",
        )


def reliability(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]], name: str) -> str:
    """Accuracy against stated probability, before and after the temperature; a dot's size is its share."""
    total = max(sum(b["n"] for b in before), 1)
    with rc_context(STYLE):
        figure = Figure((5.2, 3.4), layout="constrained")
        axes = figure.subplots()
        left = min([b["low"] for b in [*before, *after]], default=0.5)
        axes.plot([left, 1], [left, 1], color=MUTED, linewidth=0.9, dashes=(4, 3))
        for curve, color in ((before, TRAIN), (after, HELD)):
            x, y = [b["confidence"] for b in curve], [b["accuracy"] for b in curve]
            axes.plot(x, y, color=color, linewidth=1.4)
            axes.scatter(x, y, s=[12 + 90 * b["n"] / total for b in curve], color=color, linewidths=0)
        axes.set(xlabel="probability the model states", ylabel="right", xlim=(left, 1.01), ylim=(None, 1.03))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1.0, symbol=" %", decimals=0))
        return as_svg(figure, "reliability", f"Share of right {cut(name, 20)} answers by stated probability")


def spread_in_words(arms: Sequence[dict[str, Any]], measure: str = "accuracy") -> str:
    """How far seeds scatter beside how far arms lie apart."""
    known = [arm[measure]["sd"] for arm in arms if arm[measure]["sd"] is not None]
    if not known:
        return ""
    means, unit = [arm[measure]["mean"] for arm in arms], unit_of(measure)
    return (
        f"The best and the worst arm lie {unit.apart(max(means) - min(means), 2)} apart; seeds of one arm "
        f"scatter by up to {unit.scatter(max(known))} (standard deviation)."
    )


def _rows(arms: Sequence[dict[str, Any]]) -> tuple[Figure, Any]:
    """Axes with a row for each arm, the first on top."""
    figure = Figure((7.2, 0.9 + 0.36 * len(arms)), layout="constrained")
    axes = figure.subplots()
    axes.set_yticks(range(len(arms)), [cut(arm["name"], NAME) for arm in arms])
    axes.set_ylim(len(arms) - 0.4, -0.6)
    axes.tick_params(axis="y", labelcolor=INK)
    return figure, axes


def _line(arm: dict[str, Any], key: str) -> tuple[list[int], list[float]]:
    return list(range(1, len(arm["curve"]) + 1)), [point[key] for point in arm["curve"]]
