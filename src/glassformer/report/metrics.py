"""Tables of metrics, and formatting of differences."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from glassformer.evaluate.metrics import NONE, Plain, Share
from glassformer.report.wording import count, digits_for, duration, p_value
from glassformer.targets import TARGETS, target_of
from glassformer.targets.target import Target

# Metrics that runs are compared by, with the format of a difference
COMPARED: dict[str, Share] = {
    key: replace(metric, form="", bounds="") if isinstance(metric, Plain) else metric
    for target in TARGETS
    for key, metric in target.metrics.items()
    if key in target.compared
}


@dataclass(frozen=True)
class Table:
    """A table for a page or a terminal."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]  # formatted cells; the first is the name of the row
    highlighted: Collection[int] = (0,)  # rows
    text_columns: Collection[str] = ()  # in addition to the first; the other columns hold numbers
    style: str = "compare"


def heads(columns: Sequence[str], target: Target, noun: str = "", short: bool = False) -> list[str]:
    """Titles of columns, for keys such as ``f1`` and ``f1_interval``.

    Args:
        noun: plural noun for the examples, the title of column ``n``; empty: the noun of the target.
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
    """The cells of one model: value (``f1``), interval (``f1_interval``) or both (``f1_within``) of a metric,
    number of examples (``n``), time (``seconds``).

    Args:
        digits: decimals of a percentage.
    """
    out = []
    for column in columns:
        key = column.removesuffix("_interval").removesuffix("_within")
        if key in ("n", "seconds"):
            n = scores.get("n", scores.get("pairs"))
            out.append(duration(scores.get("seconds")) if key == "seconds" else count(n))
            continue
        metric, value, bounds = target.metrics[key], scores.get(key), scores.get(f"{key}_interval")
        n = scores.get(target.resampled, scores.get("n", 0))
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
    first_head: str = "model",
    noun: str = "",
    short: bool = False,
    **table_options: Any,
) -> Table:
    """A table with one row per (name, scores); arguments as in ``cells``, ``heads`` and ``Table``."""
    target = target_of(rows[0][1])
    lines = [[name, *cells(scores, columns, target, digits)] for name, scores in rows]
    return Table([first_head, *heads(columns, target, noun, short)], lines, **table_options)


def value_table(scores: Mapping[str, Any], keys: Sequence[str], digits: int) -> Table:
    """A table with one row per metric of a model: value and interval."""
    target, rows = target_of(scores), []
    for key in keys:
        value, between = cells(scores, [key, f"{key}_interval"], target, digits)
        rows.append([target.metrics[key].name, value, between if scores.get(f"{key}_interval") else ""])
    return Table(["", "value", "95 % interval"], rows, text_columns=("95 % interval",))


def fold_table(metrics: Mapping[str, Any], short: bool = False) -> Table:
    """A table with one row per fold, and their mean and standard deviation."""
    scores, over, folds = metrics["test"], metrics["over_folds"], metrics["folds"]
    target = target_of(scores)
    narrow = short and target.wide
    candidates = target.main_metrics if narrow else target.of_folds(metrics.get("measure") or "")
    keys = [key for key in candidates if key in over]
    time_column = [] if narrow else ["seconds"]
    digits = target.digits(scores.get("n", 0))
    size_column = [] if short else ["trained on"]
    lines = [
        [
            str(f["fold"] + 1),
            *(count(f.get("trained_on")) for _ in size_column),
            *cells(f, ["n", *keys, *time_column], target, digits),
        ]
        for f in folds
    ]
    summary = [target.metrics[key].value(over[key]["mean"], 2) for key in keys]
    for i, key in enumerate(keys):
        if key != "log_loss" or not short:
            summary[i] += f" ({target.metrics[key].deviation(over[key]['sd'])})"
    lines.append(["mean (SD)", *("" for _ in size_column), "", *summary, *("" for _ in time_column)])
    columns = ["fold", *size_column, *heads(["n", *keys, *time_column], target, short=narrow)]
    return Table(columns, lines, highlighted=(len(folds),))


# --- comparisons ------------------------------------------------------------------------------------------


def unit_of(measure: str) -> Share:
    """The format of a metric that models are compared by; that of accuracy for unknown ones."""
    return COMPARED.get(measure, COMPARED["accuracy"])


def signed(scores: dict[str, Any], digits: int, unit: Share) -> str:
    """The difference from the baseline with its interval, such as "+1.2 (+0.3 to +2.1)"."""
    bounds = scores.get("difference_interval")
    if bounds is None:
        return NONE
    low, high = (unit.with_sign(x, digits) for x in bounds)
    return f"{unit.with_sign(scores['difference'], digits)} ({low} to {high})"


def is_better(scores: dict[str, Any], unit: Share) -> bool:
    """Whether a variant is better than the baseline."""
    return scores["difference"] < 0 if unit.lower else scores["difference"] > 0


def leading(measure: str, scores: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Key and name of the two main metrics of such scores, ``measure`` first."""
    target = target_of(scores)
    return [(key, target.metrics.get(key, unit_of(key)).name) for key in target.leading(measure, scores)]


def study_rows(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Titles and rows of a table of a study's variants, then its simple models; names come first."""
    measure = results.get("measure") or "accuracy"
    unit, digits, rows = unit_of(measure), digits_for(results["n"]), []
    for arm in results["arms"]:
        metric = arm[measure]
        value, difference = unit.value(metric["mean"], digits), signed(metric, digits, unit)
        rows.append(
            [arm["name"], value, unit.deviation(metric.get("sd")), difference, p_value(arm.get("p_holm"))]
        )
    for name, scores in (results.get("baselines") or {}).items():
        rows.append([name, unit.value(scores[measure], digits), NONE, signed(scores, digits, unit), NONE])
    return [unit.name, "SD", unit.from_baseline, "p (Holm)"], rows
