"""The table of padding in the windows of benchmarks of training, from padding.json."""

from __future__ import annotations

from benchmarks.pages.tables_speed import read

WAYS = {
    "grouped": "Trainer's own grouping, reviews as they come",
    "sorted": "sorted by length, reviews as they come",
    "whole batches": "whole batches of an epoch, as windows are now",
}


def padding() -> str:
    """Shares of padding, a line a way to draw a window, a column a size of it."""
    result = read("padding")
    if result is None:
        return "Not measured yet: `benchmarks/speed/padding.py`.\n"
    rows, epoch = result["windows"], result["epoch"]
    lines = ["| Padding in a window of | " + " | ".join(f"{row['reviews']} reviews" for row in rows) + " |"]
    lines.append("|---|" + "---|" * len(rows))
    for way, said in WAYS.items():
        shares = [row[way] for row in rows]
        cells = [f"{one['median']:.1%} ({one['min']:.1%} to {one['max']:.1%})" for one in shares]
        lines.append(f"| {said} | " + " | ".join(cells) + " |")
    told = (
        f"In an epoch of {epoch['reviews']:,} reviews the Trainer's own grouping pads {epoch['grouped']['median']:.1%}. "
        f"Counted, not timed: median and range over {result['seeds']} draws of reviews, batches of {result['batch']}, "
        f"at most {result['max_length']} tokens; transformers {result['versions']['transformers']}, {result['date'][:10]}."
    )
    return "\n".join([*lines, "", told])
