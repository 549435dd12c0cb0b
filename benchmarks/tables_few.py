"""The table of few examples a class, from few-shot-imdb.json and few-shot-goemotions.json."""

from __future__ import annotations

from tables_speed import measured, read

METHODS = ("glassformer", "SetFit", "fine-tuning", "linear probe")
NAMES = {"imdb": "IMDb", "goemotions": "GoEmotions, five emotions"}


def few_shot() -> str:
    """Accuracies over draws, the paired difference from SetFit with its interval, and the share of its time."""
    files = [found for name in NAMES if (found := read(f"few-shot-{name}")) is not None]
    if not files:
        return "Not measured yet: `benchmarks/few_shot.py`.\n"
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
                f"{beside['time']['median']:.0%} |"
            )
    told = (
        "Mean test accuracy over draws; differences in points, paired by draw, 95 % interval of the bootstrap "
        "over draws; time is that of the processor."
    )
    where = measured({"threads": 1, **files[-1]})
    return "\n".join(lines) + f"\n\n{told} {where}\n"
