"""The tables of untuned.py: defaults beside TF-IDF on data that nobody tuned on, and what to change; see tables.py."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from benchmarks.pages.tables_speed import read

SHORT = 0.01  # below TF-IDF by so much of macro-F1: something is to be changed
MISSING = "Not measured yet: `benchmarks/quality/untuned.py`."


def untuned() -> str:
    """Macro-F1 of each model at its defaults, of TF-IDF on the same split, and the mean difference."""
    result = read("untuned")
    if result is None:
        return MISSING
    lines = [
        "| Data | Model | Macro-F1 | TF-IDF, same weights | Difference | Processor |",
        "|---|---|---|---|---|---|",
    ]
    for rows in _groups(result["rows"]):
        if rows[0]["change"]:
            continue
        seconds = fmean(r["cpu_seconds"] for r in rows)
        lines.append(
            f"| {rows[0]['data']} | {rows[0]['model']} | {_range([r['macro_f1'] for r in rows])} "
            f"| {_range([r['tfidf']['macro_f1'] for r in rows])} | {_gap(rows):+.1f} points "
            f"| {f'{seconds / 60:.0f} min' if seconds >= 90 else f'{seconds:.0f} s'} |"
        )
    counts = {r["data"]: r["classes"] for r in result["rows"]}
    judged = "; ".join(
        f"{data}: {', '.join(f'{n:,} {label}' for label, n in found.items())}"
        for data, found in counts.items()
    )
    machine, seeds = result["machine"], ", ".join(map(str, result["seeds"]))
    limit = f" A try with {result['limit']:,} texts of each split." if result.get("limit") else ""
    about = (
        f"Judged on each data set's validation split ({judged}). Seeds {seeds}; the range is over them. The last column is the "
        f"processor's time of a training. {machine['cpu']}, one thread, {result['date'][:10]}.{limit}"
    )
    return "\n".join([*lines, "", about])


def untuned_changes() -> str:
    """For each default that falls short of TF-IDF, what was tried and what to take instead."""
    result = read("untuned")
    if result is None:
        return MISSING
    groups, lines = list(_groups(result["rows"])), []
    for rows in groups:
        if rows[0]["change"] or _gap(rows) >= -100 * SHORT:
            continue
        data, model = rows[0]["data"], rows[0]["model"]
        lines.append(
            f"- **{model}** on {data} is {-_gap(rows):.1f} points below TF-IDF. {_advice(groups, data, model)}"
        )
    if not lines:
        return "No default of these is more than one point of macro-F1 below TF-IDF."
    return "\n".join(lines)


def _advice(groups: list[list[dict[str, Any]]], data: str, model: str) -> str:
    """The change that brings most, if one brings something, and the model that is best there."""
    here = [rows for rows in groups if rows[0]["data"] == data]
    defaults = {rows[0]["model"]: rows for rows in here if not rows[0]["change"]}
    said = []
    changes = [rows[0] for rows in here if rows[0]["model"] == model and rows[0]["change"]]
    if changes:
        own = {r["seed"]: r["macro_f1"] for r in defaults[model]}
        best = max(changes, key=lambda r: r["macro_f1"])
        gain = 100 * (best["macro_f1"] - own[best["seed"]])
        asked = " ".join(f"--set {value}" for value in best["settings"][2:])
        if gain > 0:
            left = 100 * (best["macro_f1"] - best["tfidf"]["macro_f1"])
            said.append(
                f"`{asked}` ({best['change']}) adds {gain:.1f} (one seed), {left:+.1f} beside TF-IDF."
            )
        else:
            tried = ", ".join(r["change"] for r in changes)
            said.append(f"Tried without a gain, one seed: {tried}.")
    first = max(defaults, key=lambda name: fmean(r["macro_f1"] for r in defaults[name]))
    if _gap(defaults[first]) >= -100 * SHORT:
        said.append(f"Take `{first}` there ({_gap(defaults[first]):+.1f} points).")
    else:
        said.append(
            f"Of {', '.join(f'`{name}`' for name in sorted(defaults))} none reaches TF-IDF there: take TF-IDF, or "
            "a checkpoint that was trained on this language."
        )
    return " ".join(said)


def _groups(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The seeds of each model on each table, with each change."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for r in rows:
        found.setdefault((r["data"], r["model"], r["change"]), []).append(r)
    return [found[key] for key in sorted(found)]


def _gap(rows: list[dict[str, Any]]) -> float:
    """Points of macro-F1 above TF-IDF on the same split, mean over the seeds."""
    return 100 * fmean(r["macro_f1"] - r["tfidf"]["macro_f1"] for r in rows)


def _range(scores: list[float]) -> str:
    low_high = f"{min(scores):.1%} to {max(scores):.1%}" if len(scores) > 1 else "one seed"
    return f"{fmean(scores):.1%} ({low_high})"
