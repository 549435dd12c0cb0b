"""The tables of memory and of how long it takes to begin, from files of a level."""

from __future__ import annotations

from typing import Any

from benchmarks.pages.tables_speed import measured, read


def memory(part: str, unit: str, ending: str = "") -> str:
    """Megabytes at the peak, a line a contender: ``training`` by length, ``prediction`` by documents."""
    result = read("memory" + ending)
    if result is None:
        return "Not measured yet: `benchmarks/speed/memory.py`.\n"
    by = {"training": "length", "prediction": "documents"}[part]
    sizes = sorted({row[by] for row in result[part]})
    names = dict.fromkeys(row["name"] for row in result[part])
    lines = ["| Peak, MB | " + " | ".join(f"{size:,} {unit}" for size in sizes) + " |"]
    lines.append("|---|" + "---|" * len(sizes))
    peaks = {(row["name"], row[by]): row["peak_mb"] for row in result[part]}
    lines += [
        f"| {name} | " + " | ".join(f"{peaks[name, size]:,.0f}" for size in sizes) + " |" for name in names
    ]
    return "\n".join([*lines, "", *attention(result[part], by, unit), measured(result)])


def attention(rows: list[dict[str, Any]], by: str, unit: str) -> list[str]:
    """Which of transformers' attentions each contender had, for memory hangs on it: eager holds all weights."""
    taken: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        if said := row["setting"].get("attention"):
            taken.setdefault(row["name"], {}).setdefault(said.split()[0], []).append(f"{row[by]:,}")
    if not taken:
        return []
    told = []
    for name, kinds in taken.items():
        each = [f"{kind} at {' and '.join(sizes)}" for kind, sizes in kinds.items()]
        told.append(f"{name}: {', '.join(each if len(kinds) > 1 else kinds)}")
    return [f"Attention taken ({unit}): {'; '.join(told)}.", ""]


def startup(ending: str = "") -> str:
    """Seconds and memory of processes that only begin, from startup.json of a level."""
    result = read("startup" + ending)
    if result is None:
        return "Not measured yet: `benchmarks/speed/startup.py`.\n"
    lines = ["| Process | Seconds (median, range) | Peak, MB |", "|---|---|---|"]
    for row in result["rows"]:
        took, peak = row["seconds"], row["peak_mb"]
        lines.append(
            f"| `{row['name']}` | {took['median']:.2f} ({took['min']:.2f} to {took['max']:.2f}) | {peak['median']:,.0f} |"
        )
    return "\n".join([*lines, "", f"{result['rounds']} rounds in turn. {measured(result)}"])
