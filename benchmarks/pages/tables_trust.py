"""The tables of how far a model's answers, explanations and labels can be trusted; see tables.py."""

from __future__ import annotations

import json
import re
from typing import Any

from benchmarks.pages.tables_speed import RESULTS, read

CLEAREST = 3  # counter-examples that a page shows
FAITHFUL = ("deletion", "insertion", "comprehensiveness", "sufficiency")


def verbatim(text: str) -> str:
    """A text of the data in one line of Markdown, in which none of its signs mean anything."""
    return re.sub(r"([\\`*_\[\]<>|$])", r"\\\1", " ".join(text.split()))


def explained() -> str:
    """Methods of explanation beside random orders, a table for each judged run, from explain-*.json."""
    found = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(RESULTS.glob("explain-*.json"))]
    return "\n\n".join(map(_explained, found)) or "Not measured yet: `benchmarks/quality/explain.py RUN`."


def _explained(result: dict[str, Any]) -> str:
    def told(summary: dict[str, Any] | None, form: str = "+.3f") -> str:
        if summary is None:
            return "–"
        low, high = summary["interval"]
        return f"{summary['mean']:{form}} ({low:{form}} to {high:{form}})"

    changes = list(next(iter(result["methods"].values()))["stability"])
    header = ["Method", "Deletion", "Insertion", "Comprehensiveness", "Sufficiency", "Notices noise"]
    header += [f"Stays under: {change}" for change in changes] + ["Seconds", "Verdict"]
    length = result.get("max_length")
    cut = f", cut to {length} tokens" if length else ""
    lines = [
        f"**`{result['run']}`, {result['count']:,} test {result['inputs']} of {result['data']}{cut}**; differences "
        "from random orders of the same input, positive is better:",
        "",
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
    ]
    for method, row in result["methods"].items():
        cells = [f"`{method}`", *(told(row[key]["better"]) for key in FAITHFUL)]
        cells.append("yes" if row["randomisation_passed"] else "no")
        cells += [told(row["stability"][change]["correlation"], ".2f") for change in changes]
        lines.append(
            "| " + " | ".join([*cells, f"{row['seconds']['mean']:.2f}", row["verdict"].split(":")[0]]) + " |"
        )
    error = result["completeness_error"]
    lines += [
        "",
        f"Integrated gradients: relative error of completeness {error['median']:.1e} in the median, {error['max']:.1e} "
        f"at most. Measured on {result['machine']['cpu']}, {result['date'][:10]}; `explain-{result['run']}.json` has "
        "the heads, the agreement of the methods and the rest.",
    ]
    counter = result.get("counter_examples", {})
    if counter.get("searched"):
        lines += [
            "",
            f"Sentences in which the most attended word can go while another one decides: {counter['found']:,} of "
            f"{counter['searched']:,}" + (". The clearest:" if counter["clearest"] else "."),
            "",
        ]
        for one in counter["clearest"][:CLEAREST]:
            lines.append(f"- *{verbatim(one['text'])}* {verbatim(one['in_words'])}")
    return "\n".join(lines)


def before_after() -> str:
    """Where a ViT looks before and after augmentation, from before-after.json."""
    result = read("before-after")
    if result is None:
        return "Not measured yet: `benchmarks/quality/before_after.py`."

    def told(summary: dict[str, Any], form: str) -> str:
        low, high = summary["interval"]
        return f"{summary['mean']:{form}} ({low:{form}} to {high:{form}})"

    lines = [
        "| Method | Maps before and after, rank correlation | Share in the middle quarter, before | after |",
        "|---|---|---|---|",
    ]
    for method, correlation in result["correlation"].items():
        middle = [told(result[turn][method]["middle"], ".1%") for turn in ("before", "after")]
        lines.append(f"| {method} | {told(correlation, '.2f')} | {middle[0]} | {middle[1]} |")
    pair = " and ".join(f"`{run}`" for run in result["runs"])
    where = f"measured on {result['machine']['cpu']}, {result['date'][:10]}"
    return "\n".join([*lines, "", f"{result['pictures']} pictures, {pair}; {where}."])


def label_noise() -> str:
    """Labels flipped on purpose that the review finds, one line a recipe, from label-noise-*.json."""
    found = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(RESULTS.glob("label-noise-*.json"))]
    if not found:
        return "Not measured yet: `benchmarks/quality/label_noise.py ntc-textcnn --folds 3`."
    first = list(found[0]["found_among_first"])
    header = ["Recipe", "Examples", "Labels flipped", "Folds"]
    header += [f"Flipped ones among the first {int(k):,}" for k in first]
    header += ["Looked wrong", "Training time"]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for r in found:
        among = [
            f"{a['flipped']:,} ({a['share_of_flips']:.1%} of all flips)"
            for a in r["found_among_first"].values()
        ]
        cells = [f"`{r['recipe']}`", f"{r['examples']:,}", f"{r['flipped']:,}", str(r["folds"]), *among]
        cells += [f"{r['suspicious']:,}", f"{r['seconds']['train'] / 60:.0f} min"]
        lines.append("| " + " | ".join(cells) + " |")
    told = {
        f"Measured on {r['machine']['cpu']}, {r['machine']['threads']} thread{'s' * (r['machine']['threads'] > 1)}; "
        f"torch {r['versions']['torch']}, {r['date'][:10]}; seed of the flips: {r['seed']}."
        for r in found
    }
    return "\n".join([*lines, "", *sorted(told)])


def calibration() -> str:
    """Calibration error before and after one temperature, from calibration-*.json."""
    found = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(RESULTS.glob("calibration-*.json"))]
    if not found:
        return "Not measured yet: `benchmarks/quality/calibration.py RUN`."

    def told(figures: dict[str, Any]) -> str:
        low, high = figures["ece_interval"]
        return f"{figures['ece']:.2%} ({low:.2%} to {high:.2%})"

    lines = [
        "| Run | Examples | Temperature | Calibration error before | after | Log loss before | after |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in found:
        for name, split in r["splits"].items():
            before, after = split["before"], split["after"]
            lines.append(
                f"| `{r['run']}` | {name}, {before['n']:,} | {r['temperature']:.2f} | {told(before)} | {told(after)} "
                f"| {before['log_loss']:.4f} | {after['log_loss']:.4f} |"
            )
    return "\n".join(lines)
