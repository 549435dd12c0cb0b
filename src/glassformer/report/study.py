"""HTML reports of studies and label reviews."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from glassformer.errors import DataError, NoSuchFileError
from glassformer.evaluate.metrics import Plain
from glassformer.report import tables
from glassformer.report.figures import INK, MUTED, RULE, STYLE, TRAIN, VALIDATION, as_svg
from glassformer.report.metrics import COMPARED, compared_metric, difference_text, leading_metrics
from glassformer.report.page import render_page, write_page
from glassformer.report.run import read_json
from glassformer.report.wording import capitalized, cut, digits_for, how_tested

MAX_NAME = 42  # maximum number of characters of a variant's name
CHARTS_PER_ROW = 3
MAX_CURVES = 12  # maximum number of variants with learning curves; more cannot be told apart


def write_study_report(folder: str | Path) -> Path:
    """Write ``report.html`` into a study's folder and return its path.

    Raises:
        DataError: no results.json, or it is damaged.
    """
    folder = Path(folder)
    results = read_results(folder / "results.json", "study")
    return write_page(folder / "report.html", render_study(results, run_pages(results, folder)))


def run_pages(results: dict[str, Any], folder: Path) -> dict[str, list[tuple[Any, str]]]:
    """Links to the reports of the runs: name of the variant -> [(seed, relative link)]."""
    home, pages = folder.resolve(), {}
    for arm in results["arms"]:
        links = pages[arm["name"]] = []
        for seed, run in zip(arm.get("seeds") or [], arm.get("runs") or [], strict=False):
            path = (home / str(run) / "report.html").resolve()
            if path.is_file() and path.is_relative_to(home):
                links.append((seed, quote(path.relative_to(home).as_posix())))
    return pages


def read_results(path: Path, kind: str) -> dict[str, Any]:
    """Read a JSON file with the entry ``"kind": kind``; strings are safe to show in HTML.

    Raises:
        DataError: the file is missing, too large, damaged or of another kind.
    """
    if not path.is_file():
        fix = f"Name the folder of a finished {kind}"
        raise NoSuchFileError(f"no {path.name}", where=str(path.parent), fix=fix)
    results = read_json(path, dict)
    if results.get("kind") != kind:
        raise DataError(f"does not contain a {kind}", where=str(path))
    return results


def confusions(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The confusion matrix of each variant over all seeds, and its most frequent confusions."""
    out = []
    for arm in results["arms"]:
        if arm.get("confusion"):
            scores = {"labels": results["classes"], "confusion": arm["confusion"]}
            matrix, pairs = tables.confusion(scores), tables.confusions(scores)
            out.append({"name": arm["name"], "matrix": matrix, "pairs": pairs})
    return out


def render_study(results: dict[str, Any], pages: Mapping[str, list[tuple[Any, str]]] | None = None) -> str:
    """The HTML of a study's report; ``pages`` is the result of ``run_pages``."""
    arms, baseline = results["arms"], results["baseline"]
    measure = results["measure"] if results.get("measure") in COMPARED else "accuracy"
    figures = {"bars": bars(arms, baseline, measure)}
    if len(arms) > 1:
        figures["differences"] = differences(arms, baseline, measure)
    with_curves = [arm for arm in arms if len(arm["curve"]) > 1][:MAX_CURVES]
    for key in (measure, "loss"):
        drawable = [a for a in with_curves if all(point.get(key) is not None for point in a["curve"])]
        if len(drawable) > 1:
            figures[key] = curves(drawable, key)
    first, second = leading_metrics(measure, arms[0])
    return render_page(
        "study.html.j2",
        results=results,
        figures=figures,
        digits=digits_for(results["n"]),
        spread=seed_spread_sentence(arms, measure),
        pages=pages or {},
        confusions=confusions(results),
        first=first,
        second=second,
        metric=compared_metric(measure),
        second_metric=compared_metric(second[0]),
        difference_text=difference_text,
        test=capitalized(how_tested(results)),
    )


# --- a review of labels ----------------------------------------------------------------------------------


def write_review_page(folder: str | Path) -> Path:
    """Write ``review.html`` next to review.json and return its path.

    Raises:
        DataError: no review.json, or it is damaged.
    """
    folder = Path(folder)
    review = read_results(folder / "review.json", "review")
    return write_page(folder / "review.html", render_page("review.html.j2", review=review))


# --- charts -------------------------------------------------------------------------------------------


def bars(arms: Sequence[dict[str, Any]], baseline: str, measure: str = "accuracy") -> Markup:
    """Bar chart of a metric of each variant, with its 95 % interval and a dot per seed."""
    with rc_context({**STYLE, "axes.grid.axis": "x"}):
        figure, axes = _rows(arms)
        for y, arm in enumerate(arms):
            scores = arm[measure]
            color = TRAIN if arm["name"] == baseline else VALIDATION
            axes.barh(y, scores["mean"], height=0.6, color=color, alpha=0.35)
            axes.hlines(y, *scores["interval"], color=color, linewidth=2.2)
            seeds = scores["values"]
            axes.plot(seeds, [y] * len(seeds), "o", color=INK, markersize=2.6, alpha=0.7)
        metric = compared_metric(measure)
        axes.set(xlabel=metric.name)
        if isinstance(metric, Plain):
            axes.axvline(0, color=MUTED, linewidth=0.9)
        else:
            axes.set(xlim=(0, 1.0))
            axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %", decimals=0))
        return as_svg(figure, "bars", f"{capitalized(metric.name)} of each variant with its 95 % interval")


def differences(arms: Sequence[dict[str, Any]], baseline: str, measure: str = "accuracy") -> Markup:
    """Chart of differences from the baseline with 95 % intervals; filled dots are significant."""
    compared = [arm for arm in arms if arm["name"] != baseline]
    metric = compared_metric(measure)
    scale = 1 if isinstance(metric, Plain) else 100
    with rc_context({**STYLE, "axes.grid.axis": "x"}):
        figure, axes = _rows(compared)
        axes.axvline(0, color=MUTED, linewidth=1.1)
        for y, arm in enumerate(compared):
            low, high = (scale * x for x in arm[measure]["difference_interval"])
            axes.hlines(y, low, high, color=VALIDATION, linewidth=2.2)
            face = VALIDATION if arm["significant"] else "none"
            position = scale * arm[measure]["difference"]
            axes.plot([position], [y], "o", color=VALIDATION, markersize=6.5, markerfacecolor=face)
        axes.set(xlabel=f"difference in {metric.name}{metric.unit_suffix}")
        axes.xaxis.set_major_locator(MaxNLocator(7))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:+g}" if x else "0"))
        title = f"Difference of each variant from {cut(baseline, MAX_NAME)}, with 95 % intervals"
        return as_svg(figure, "differences", title)


def curves(arms: Sequence[dict[str, Any]], key: str) -> Markup:
    """One small chart per variant: its curve in color, and those of the other variants in gray."""
    rows, name = -(-len(arms) // CHARTS_PER_ROW), COMPARED[key].name if key in COMPARED else key
    values = [point[key] for arm in arms for point in arm["curve"]]
    low, high = min(values), max(values)
    margin = max(high - low, 1e-3) * 0.08
    with rc_context(STYLE):
        figure = Figure((8.4, 0.5 + 1.75 * rows), layout="constrained")
        grid = figure.subplots(rows, CHARTS_PER_ROW, sharex=True, sharey=True, squeeze=False).ravel()
        for axes, arm in zip(grid, arms):
            for other in arms:
                if other is not arm:
                    axes.plot(*_line(other, key), color=RULE, linewidth=1.1)
            x, y = _line(arm, key)
            size = 3.2 if len(x) <= 20 else 0
            axes.plot(x, y, color=VALIDATION, linewidth=1.9, marker="o", markersize=size)
            axes.set_title(cut(arm["name"], 30), fontsize=9.5, color=INK, loc="left")
            axes.set_ylim(low - margin, high + margin)
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            if key in COMPARED and not isinstance(COMPARED[key], Plain):
                axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        for axes in grid[len(arms) :]:
            axes.set_visible(False)
        for axes in grid[max(len(arms) - CHARTS_PER_ROW, 0) : len(arms)]:
            axes.set_xlabel("evaluation")
        title = f"Validation {name} of each variant over the evaluations, mean over seeds"
        return as_svg(figure, f"curves-{key}", title)


def seed_spread_sentence(arms: Sequence[dict[str, Any]], measure: str = "accuracy") -> str:
    """A sentence that compares the variation between seeds with the differences between variants."""
    deviations = [arm[measure]["sd"] for arm in arms if arm[measure]["sd"] is not None]
    if not deviations:
        return ""
    means, metric = [arm[measure]["mean"] for arm in arms], compared_metric(measure)
    return (
        f"The best and the worst variant differ by {metric.difference(max(means) - min(means), 2)}; the "
        f"standard deviation over the seeds of one variant is up to {metric.deviation(max(deviations))}."
    )


def _rows(arms: Sequence[dict[str, Any]]) -> tuple[Figure, Any]:
    """Axes with one row per variant, the first at the top."""
    figure = Figure((7.2, 0.9 + 0.36 * len(arms)), layout="constrained")
    axes = figure.subplots()
    axes.set_yticks(range(len(arms)), [cut(arm["name"], MAX_NAME) for arm in arms])
    axes.set_ylim(len(arms) - 0.4, -0.6)
    axes.tick_params(axis="y", labelcolor=INK)
    return figure, axes


def _line(arm: dict[str, Any], key: str) -> tuple[list[int], list[float]]:
    return list(range(1, len(arm["curve"]) + 1)), [point[key] for point in arm["curve"]]
