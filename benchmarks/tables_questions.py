"""The labs' questions with power as tables, from their result file; see tables.py."""

from __future__ import annotations

from statistics import fmean

from tables_speed import read


def questions() -> str:
    """A section a question: its differences with intervals and corrected p, and what each arm reaches."""
    result = read("lab-questions")
    if result is None:
        return "Not measured yet: `benchmarks/lab_questions.py`."
    parts = []
    for one in result["questions"].values():
        lines = ["| Difference | Points (95 % interval) | p (Holm) | Shows |", "|---|---|---|---|"]
        for name, found in one["differences"].items():
            low, high = found["interval"]
            points = f"{found['points']:+.1f} ({low:+.1f} to {high:+.1f})"
            lines.append(f"| {name} | {points} | {found['p_holm']:.3f} | {found['says']} |")
        arms = "; ".join(f"{name} {fmean(arm['accuracy']):.1%}" for name, arm in one["arms"].items())
        counts = sorted({found["n"] for found in one["differences"].values()})
        judges = " or ".join(f"{n:,}" for n in counts)
        about = f"Accuracy: {arms}. {len(one['seeds'])} seeds, {judges} judged examples."
        parts.append("\n".join([f"## {one['asked']}", "", *lines, "", about]))
    machine = result["machine"]
    parts.append(f"Measured on {machine['cpu']}, threads: {machine['threads']}, {result['date'][:10]}.")
    return "\n\n".join(parts)
