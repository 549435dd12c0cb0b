"""Tables of metrics, and formatting of differences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from glassformer.evaluate.metrics import EMPTY_CELL, Plain, Share
from glassformer.report.wording import count, digits_for, duration, p_value
from glassformer.targets import TARGETS, target_of
from glassformer.targets.target import Target

# Metrics for comparisons of runs, with the default number formats
COMPARED: dict[str, Share] = {
    key: replace(metric, form="", bounds="") if isinstance(metric, Plain) else metric
    for target in TARGETS
    for key, metric in target.metrics.items()
    if key in target.compared
}


@dataclass(frozen=True)
class Table:
    """A table for a page or a terminal."""

    columns: Sequence[str]  # their titles
    rows: Sequence[Sequence[Any]]  # formatted cells; the first is the name of the row
    highlighted: Collection[int] = (0,)  # indices of highlighted rows
    text_columns: Collection[str] = ()  # columns with text, in addition to the first; the others have numbers
    style: str = "compare"  # CSS class


def column_names(columns: Sequence[str], target: Target, noun: str = "", short: bool = False) -> list[str]:
    """The titles of columns such as ``f1`` and ``f1_interval``; see ``cells``.

    Args:
        noun: title of column ``n``, such as "texts"; empty: the noun of the target.
        short: use short titles.
    """
    out: list[str] = []
    for column in columns:
        key = column.removesuffix("_interval").removesuffix("_within")
        if key in ("n", "seconds"):
            out.append("time" if key == "seconds" else noun or target.examples)
            continue
        metric = target.metrics[key]
        title = (short and metric.short) or metric.name
        if column.endswith("_interval"):
            follows_metric = out[-1:] == [title] and "95 % interval" not in out
            title = "95 % interval" if follows_metric else f"95 % interval of {title.removeprefix('entity ')}"
        out.append(title)
    return out


def cells(scores: Mapping[str, Any], columns: Sequence[str], target: Target, digits: int) -> list[str]:
    """The formatted cells of one table row, for the scores of one model.

    Args:
        columns: ``f1`` for the value of a metric, ``f1_interval`` for its interval, ``f1_within`` for both,
            ``n`` for the number of examples, and ``seconds`` for the time.
        digits: number of decimals of a percentage.
    """
    out = []
    for column in columns:
        key = column.removesuffix("_interval").removesuffix("_within")
        if key in ("n", "seconds"):
            n = scores.get("n", scores.get("pairs"))
            out.append(duration(scores.get("seconds")) if key == "seconds" else count(n))
            continue
        metric, value, bounds = target.metrics[key], scores.get(key), scores.get(f"{key}_interval")
        n = scores.get(target.resampled_key, scores.get("n", 0))
        text, interval = metric.value(value, digits), metric.interval(bounds, digits, value, n)
        if column.endswith("_interval"):
            text = interval
        elif column.endswith("_within") and bounds:
            text += f" ({interval})"
        out.append(text)
    return out


def metric_table(
    rows: Sequence[tuple[str, Mapping[str, Any]]],
    columns: Sequence[str],
    digits: int,
    first_column: str = "model",
    noun: str = "",
    short: bool = False,
    **table_options: Any,
) -> Table:
    """A table with one row per (name, scores).

    The other arguments are those of ``cells``, ``column_names`` and ``Table``.
    """
    target = target_of(rows[0][1])
    formatted_rows = [[name, *cells(scores, columns, target, digits)] for name, scores in rows]
    return Table([first_column, *column_names(columns, target, noun, short)], formatted_rows, **table_options)


def value_table(scores: Mapping[str, Any], keys: Sequence[str], digits: int) -> Table:
    """A table with one row per metric of a model: value and interval."""
    target, rows = target_of(scores), []
    for key in keys:
        value, interval = cells(scores, [key, f"{key}_interval"], target, digits)
        rows.append([target.metrics[key].name, value, interval if scores.get(f"{key}_interval") else ""])
    return Table(["", "value", "95 % interval"], rows, text_columns=("95 % interval",))


def fold_table(metrics: Mapping[str, Any], short: bool = False) -> Table:
    """A table with one row per fold, and the mean and standard deviation over the folds."""
    scores, statistics, folds = metrics["test"], metrics["over_folds"], metrics["folds"]
    target = target_of(scores)
    is_narrow = short and target.is_wide
    candidates = target.main_metrics if is_narrow else target.fold_table_columns(metrics.get("measure") or "")
    keys = [key for key in candidates if key in statistics]
    columns = ["n", *keys, *([] if is_narrow else ["seconds"])]
    size_column = [] if short else ["trained on"]
    digits = target.digits(scores.get("n", 0))
    rows = [
        [
            str(fold["fold"] + 1),
            *(count(fold.get("trained_on")) for _ in size_column),
            *cells(fold, columns, target, digits),
        ]
        for fold in folds
    ]
    summary = [target.metrics[key].value(statistics[key]["mean"], 2) for key in keys]
    for i, key in enumerate(keys):
        if key != "log_loss" or not short:
            summary[i] += f" ({target.metrics[key].deviation(statistics[key]['sd'])})"
    rows.append(["mean (SD)", *("" for _ in size_column), "", *summary, *("" if is_narrow else [""])])
    titles = ["fold", *size_column, *column_names(columns, target, short=is_narrow)]
    return Table(titles, rows, highlighted=(len(folds),))


def numbers_in(metrics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the name and value of each number in nested metrics; ``{"test": {"f1": 1}}`` yields "test f1"."""
    for name, value in metrics.items():
        path = f"{prefix} {name.replace('_', ' ')}".strip()
        if isinstance(value, Mapping):
            yield from numbers_in(value, path)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield path, value


# --- comparisons ------------------------------------------------------------------------------------------


def compared_metric(measure: str) -> Share:
    """The metric with the key ``measure``, for comparisons of models; accuracy for unknown keys."""
    return COMPARED.get(measure, COMPARED["accuracy"])


def difference_text(scores: dict[str, Any], digits: int, metric: Share) -> str:
    """The difference from the baseline with its interval, such as "+1.2 (+0.3 to +2.1)"."""
    bounds = scores.get("difference_interval")
    if bounds is None:
        return EMPTY_CELL
    low, high = (metric.with_sign(x, digits) for x in bounds)
    return f"{metric.with_sign(scores['difference'], digits)} ({low} to {high})"


def is_better(scores: dict[str, Any], metric: Share) -> bool:
    """Whether a variant is better than the baseline, by the sign of its difference."""
    return scores["difference"] < 0 if metric.lower else scores["difference"] > 0


def leading_metrics(measure: str, scores: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Key and name of the two main metrics of these scores, ``measure`` first."""
    target = target_of(scores)
    keys = target.leading_metrics(measure, scores)
    return [(key, target.metrics.get(key, compared_metric(key)).name) for key in keys]


def study_rows(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The columns and rows of a study's table: its variants, then its baselines.

    The first cell of a row is the name; the columns do not include it.
    """
    measure = results.get("measure") or "accuracy"
    metric, digits, rows = compared_metric(measure), digits_for(results["n"]), []
    for arm in results["arms"]:
        scores = arm[measure]
        value, difference = metric.value(scores["mean"], digits), difference_text(scores, digits, metric)
        deviation, p = metric.deviation(scores.get("sd")), p_value(arm.get("p_holm"))
        rows.append([arm["name"], value, deviation, difference, p])
    for name, scores in (results.get("baselines") or {}).items():
        difference = difference_text(scores, digits, metric)
        rows.append([name, metric.value(scores[measure], digits), EMPTY_CELL, difference, EMPTY_CELL])
    return [metric.name, "SD", metric.difference_heading, "p (Holm)"], rows
