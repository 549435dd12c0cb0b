"""Contents of the tables in reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from glassformer.report import wording
from glassformer.report.run import LabeledRun
from glassformer.targets import target_of

MAX_COLUMNS = 4  # maximum number of columns, besides the row names
MAX_CLASSES = 12  # maximum number of classes in a confusion matrix


def comparison(run: LabeledRun) -> dict[str, Any]:
    """The table that compares the model with its baselines, and the scale of its plot.

    The model comes first, then the baselines, starting with the best one. In a row, ``position`` and
    ``interval_positions`` are positions of the metric and its interval on the plot, from 0 to 100.
    """
    scores, key = run.scores, run.measure
    supports = [(row["support"], row["label"]) for row in scores["per_class"]]
    largest, majority_label = max(supports, key=lambda pair: pair[0])
    seconds = run.metrics.get("seconds") or {}
    times = [seconds[part] for part in ("train", "inference") if seconds.get(part) is not None]
    metrics = target_of(scores).main_metrics
    model_scores = {k: scores.get(k) for metric in metrics for k in (metric, f"{metric}_interval")}
    rows = [{"name": "This model", "seconds": sum(times) if times else None, "kind": "ours"} | model_scores]
    empty = dict.fromkeys((*metrics, "seconds"))
    baselines = list((run.metrics.get("baselines") or {}).items())
    baselines.sort(key=lambda item: -(item[1].get(key) or 0))
    rows += [empty | baseline | {"name": name, "kind": "other"} for name, baseline in baselines]
    values = [x for row in rows for x in (row.get(f"{key}_interval") or [row[key]]) if x is not None]
    low, high = min(values), max(values)
    margin = max((high - low) * 0.15, 0.005)
    low, high = max(low - margin, 0.0), min(high + margin, 1.0)

    def position(x: float) -> float:
        return round(100 * (x - low) / (high - low), 2)

    for row in rows:
        bounds = row.get(f"{key}_interval")
        value: Any = row[key]
        row["position"] = None if value is None else position(value)
        row["interval_positions"] = [position(x) for x in bounds] if bounds else None
    frequency = largest / scores["n"]  # of the most frequent label
    num_labels = max(sum(support > 0 for support, _ in supports), 1)
    if not target_of(scores).is_single_label:
        num_labels = len(supports)
    # Always predicting the most frequent label has precision ``frequency`` and recall 1 for it, and F1 0 for
    # the other labels.
    macro_f1 = 2 * frequency / (1 + frequency) / num_labels
    majority = {"label": majority_label, "accuracy": frequency, "macro_f1": macro_f1}
    is_weighted = any(row.get("class_weight") is not None for row in rows)
    return {"rows": rows, "low": low, "high": high, "majority": majority, "is_weighted": is_weighted}


def confusion(scores: dict[str, Any]) -> dict[str, Any]:
    """The confusion matrix for a page; empty if there is nothing to show.

    With more than ``MAX_CLASSES`` classes, the matrix has only the classes of the most frequent confusions,
    and a last column for predictions of the other classes.

    Returns:
        ``rows`` of cells, and ``others``, the number of classes that are left out. A cell has its share of
        the true class, and a shade of its color from 0 to 10.
    """
    labels, counts = scores["labels"], scores["confusion"]
    classes = list(range(len(labels)))
    if len(labels) > MAX_CLASSES:
        classes = _most_confused(counts)
    if not counts or not classes:
        return {}
    rows = []
    for i in classes:
        total, row_counts = max(sum(counts[i]), 1), [counts[i][j] for j in classes]
        if len(classes) < len(labels):
            row_counts.append(sum(counts[i]) - sum(row_counts))
        cells = [
            {"count": c, "share": c / total, "shade": round(10 * (c / total) ** 0.5), "right": i == j}
            for c, j in zip(row_counts, [*classes, None], strict=False)
        ]
        rows.append({"label": labels[i], "cells": cells})
    return {"rows": rows, "others": len(labels) - len(classes)}


def _most_confused(counts: list[list[int]]) -> list[int]:
    """The classes of the most frequent confusions, at most ``MAX_CLASSES``, in the order of the labels."""
    pairs = [(-c, i, j) for i, row in enumerate(counts) for j, c in enumerate(row) if i != j and c]
    classes: set[int] = set()
    for _, i, j in sorted(pairs):
        if len(classes | {i, j}) <= MAX_CLASSES:
            classes |= {i, j}
    return sorted(classes)


def worst_first(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of classes sorted by F1, the lowest first; classes without examples come last."""
    return sorted(rows, key=lambda row: (not row["support"], row["f1"]))


def confusions(scores: dict[str, Any], limit: int = 12) -> list[dict[str, Any]]:
    """The most frequent confusions of a true with a predicted class; empty for fewer than three classes."""
    labels = scores["labels"]
    if len(labels) < 3:
        return []
    pairs = [
        {"label": labels[i], "predicted": labels[j], "count": c, "share": c / sum(counts)}
        for i, counts in enumerate(scores["confusion"])
        for j, c in enumerate(counts)
        if i != j and c
    ]
    return sorted(pairs, key=lambda pair: -pair["count"])[:limit]


# Sections of a recipe: (name, [(key, value, whether the value differs from the default)])
Settings = list[tuple[str, list[tuple[str, Any, bool]]]]


def settings(config: dict[str, Any], defaults: Mapping[str, Mapping[str, Any]]) -> Settings:
    """The settings of a recipe except ``expect``, by section."""
    top_level = {k: v for k, v in config.items() if not isinstance(v, dict) and k != "expect"}
    sections = {"recipe": top_level} | {k: v for k, v in config.items() if isinstance(v, dict)}
    return [
        (name, [(k, v, v != defaults.get(name, {}).get(k)) for k, v in values.items()])
        for name, values in sections.items()
        if values
    ]


def changed_settings(sections: Settings) -> Settings:
    """The sections and keys that differ from the defaults."""
    changed = [(name, [value for value in values if value[2]]) for name, values in sections]
    return [(name, values) for name, values in changed if values]


IRRELEVANT = set(  # keys that do not change the expected result of a recipe
    "name summary expect seed device threads strategy verbose checkpoint_every baselines bootstrap maps "
    "sentences".split()
)


def expectation(
    config: dict[str, Any],
    shipped: dict[str, Any] | None,
    defaults: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """A sentence with the expected result of a recipe, or with the changed settings if it does not apply.

    Args:
        config: the settings of the run.
        shipped: the settings of the recipe in the package; None: the recipe is not in the package.
        defaults: section -> key -> default.
    """
    name, expect = config.get("name"), config.get("expect")
    if not expect:
        return ""
    if shipped is None:
        return f"Its recipe file expects: {expect}"
    recipe, run, default_values = _flat(shipped), _flat(config), _flat(dict(defaults or {}))
    # A key that an older run lacks is not a change if the recipe has its default value.
    missing_keys = [k for k in recipe if k not in run and k in default_values]
    new_keys = {k for k in missing_keys if recipe[k] == default_values[k]}
    changes = [
        f"{key} = {wording.plain(run.get(key))} (recipe: {wording.plain(recipe.get(key))})"
        for key in dict.fromkeys([*recipe, *run])
        if key.rpartition(".")[2] not in IRRELEVANT
        and key not in new_keys
        and run.get(key) != recipe.get(key)
    ]
    if not changes:
        return f"The recipe expects: {expect}"
    return f"Settings of the recipe {name} were changed, so its result does not apply: {', '.join(changes)}"


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """Flatten ``{"train": {"lr": 0.1}}`` to ``{"train.lr": 0.1}``."""
    out: dict[str, Any] = {}
    for key, value in config.items():
        out |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
    return out


def findings(doctor: dict[str, Any]) -> list[dict[str, Any]]:
    """The doctor's findings, the most serious first."""
    order = ("warning", "note", "ok")
    return sorted(doctor.get("findings", []), key=lambda f: order.index(f["severity"]))


RENAMED = {"pictures": "images"}  # key in doctor.json -> its name on the page


def statistic_tables(statistics: dict[str, Any]) -> list[tuple[str, list[str], list[tuple[str, list[Any]]]]]:
    """The data doctor's nested statistics as tables, each with a name, columns and rows.

    The first level becomes tables, the second rows, and deeper levels columns. A table that is too wide for
    the page is transposed.
    """
    tables = []
    for name, value in statistics.items():
        rows = {
            row: {k: _format_cell(f"{row} {k}", v) for k, v in _flatten(cells)}
            for row, cells in (value if isinstance(value, dict) else {name: value}).items()
        }
        columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
        if len(columns) > max(MAX_COLUMNS, len(rows)):
            transposed = [(column, [cells.get(column) for cells in rows.values()]) for column in columns]
            tables.append((name, list(rows), transposed))
            continue
        tables.append((name, columns, [(r, [cells.get(c) for c in columns]) for r, cells in rows.items()]))
    return [table for table in tables if table[2]]


def _flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value in nested dictionaries, with its path such as "train words"."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flatten(inner, f"{path} {name}".strip())
    else:
        yield RENAMED.get(path, path), value


def _format_cell(name: str, value: Any) -> Any:
    if isinstance(value, float) and name.strip().endswith("share"):
        return wording.percent(value)
    return wording.count(value) if type(value) is int else value


def robustness(corruptions: dict[str, Any]) -> list[dict[str, Any]]:
    """A row per kind of corruption: accuracy at each severity (``each``), mean accuracy and mean macro-F1."""
    return [
        {
            "kind": kind,
            "each": [row["accuracy"] for row in rows],
            "n": rows[0].get("n"),
            **{key: sum(row[key] for row in rows) / len(rows) for key in ("accuracy", "macro_f1")},
        }
        for kind, rows in corruptions.items()
        if rows
    ]


def times(seconds: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of the run's time as bars on a scale from 0 to 100."""
    # Inference is part of ``evaluate``.
    parts = {k: v for k, v in seconds.items() if k not in ("total", "inference") and v}
    total = max(sum(parts.values()), seconds.get("total") or 0.0)
    if not total:
        return []
    bars, x = [], 0.0
    for name, value in parts.items():
        width = 100 * value / total
        bars.append({"name": name, "seconds": value, "x": round(x, 2), "width": round(width, 2)})
        x += width
    return bars


def facts(metrics: dict[str, Any]) -> list[tuple[str, list[tuple[str, Any]]]]:
    """Facts about a run, its machine and its versions: (title of the group, [(name, value)])."""
    padding, truncated = metrics.get("padding") or {}, metrics.get("truncated") or {}
    memory, speed = metrics.get("peak_memory_mb"), metrics.get("tokens_per_second")
    inference = (metrics.get("seconds") or {}).get("inference")
    cost = [
        ("weights", metrics.get("weights_source")),
        ("chosen by the fit", ", ".join(f"{k} = {v:g}" for k, v in (metrics.get("chosen") or {}).items())),
        ("parameters", metrics.get("parameters") and wording.count(metrics["parameters"])),
        ("tokens per image", metrics.get("tokens_per_picture")),
        ("training", speed and f"{wording.count(speed)} tokens per second"),
        ("inference", inference and wording.duration(inference)),
        ("peak memory", memory and f"{wording.count(memory)}{wording.NARROW_SPACE}MB"),
        *((f"padding, {where}", wording.percent(share)) for where, share in padding.items()),
        *((f"truncated texts, {split}", _count_and_share(*counts)) for split, counts in truncated.items()),
        ("seed", metrics.get("seed")),
        ("date", metrics.get("date")),
    ]
    groups = {
        "Run": cost,
        "Machine": list((metrics.get("machine") or {}).items()),
        "Versions": list((metrics.get("versions") or {}).items()),
    }
    filled = {name: [(k, v) for k, v in pairs if v not in (None, "", [])] for name, pairs in groups.items()}
    return [(name, pairs) for name, pairs in filled.items() if pairs]


def _count_and_share(n: int, total: int) -> str:
    return f"{wording.count(n)} of {wording.count(total)} ({wording.percent(n / max(total, 1))})"
