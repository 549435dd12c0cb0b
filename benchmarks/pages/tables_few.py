"""The table of few examples a class, from few-shot-imdb.json and few-shot-goemotions.json."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.pages.tables_speed import read

METHODS = ("glassformer", "SetFit", "fine-tuning", "linear probe")
NAMES = {"imdb": "IMDb", "goemotions": "GoEmotions, five emotions"}


def few_shot() -> str:
    """Accuracies over draws, the paired difference from SetFit with its interval, and the share of its time."""
    files = [found for name in NAMES if (found := read(f"few-shot-{name}")) is not None]
    if not files:
        return "Not measured yet: `benchmarks/quality/few_shot.py`.\n"
    lines = [
        "| Data, examples a class | Draws | Ours | SetFit | Fine-tuning | Head alone | Ours less SetFit | Of its time |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in files:
        for one in result["summary"]:
            found, beside = one["methods"], one["ours_less"]["SetFit"]
            shares = " | ".join(f"{found[name]['accuracy']:.1%}" if name in found else "" for name in METHODS)
            low, high = (100 * end for end in beside["interval"])
            less = f"{100 * beside['accuracy']:+.1f} ({low:+.1f} to {high:+.1f})"
            draws = min(found[name]["draws"] for name in METHODS if name in found)
            lines.append(
                f"| {NAMES[one['data']]}, {one['examples']} | {draws} | {shares} | {less} | "
                f"{of_the_time(result, one['data'], one['examples'])} |"
            )
    told = (
        "Mean test accuracy over draws; differences in points, paired by draw, 95 % interval of the bootstrap "
        "over draws; time is that of the processor, a median over draws on each kind of machine."
    )
    kinds = sorted({r["processor"] for result in files for r in result["records"]})
    where = f"Measured on {' and '.join(kinds)}, 1 thread; torch {files[-1]['versions']['torch']}, " + (
        f"until {max(result['date'] for result in files)[:10]}."
    )
    return "\n".join(lines) + f"\n\n{told} {where}\n"


def of_the_time(result: dict[str, Any], data: str, each: int) -> str:
    """The median share of SetFit's processor time that ours takes, on each kind of processor that ran draws."""
    there = [r for r in result["records"] if (r["data"], r["examples"]) == (data, each)]
    took = {(r["processor"], r["method"], r["draw"]): r["cpu_seconds"] for r in there}
    shares: dict[str, list[float]] = {}
    for (processor, method, draw), seconds in took.items():
        if method == "glassformer" and (processor, "SetFit", draw) in took:
            shares.setdefault(processor, []).append(seconds / took[processor, "SetFit", draw])
    return ", ".join(
        f"{median(found):.0%}" + (f" ({processor.split('(')[0].split()[0]})" if len(shares) > 1 else "")
        for processor, found in sorted(shares.items())
    )
