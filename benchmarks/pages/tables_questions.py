"""The labs' questions with power, studies by cross-validation and the price of attention as tables; see tables.py."""

from __future__ import annotations

import json
from statistics import fmean
from typing import Any

from benchmarks.pages.tables_speed import RESULTS, measured, read


def p_value(p: float) -> str:
    """Three digits, and more where they would hide on which side of 0.05 it lies."""
    if p < 0.001:
        return "< 0.001"
    return f"{p:.5f}" if f"{p:.3f}" == "0.050" else f"{p:.3f}"


def questions() -> str:
    """A section a question: its differences with intervals and corrected p, and what each arm reaches."""
    result = read("lab-questions")
    if result is None:
        return "Not measured yet: `benchmarks/quality/lab_questions.py`."
    parts = []
    for one in result["questions"].values():
        lines = ["| Difference | Points (95 % interval) | p (Holm) | Shows |", "|---|---|---|---|"]
        for name, found in one["differences"].items():
            low, high = found["interval"]
            points = f"{found['points']:+.1f} ({low:+.1f} to {high:+.1f})"
            lines.append(f"| {name} | {points} | {p_value(found['p_holm'])} | {found['says']} |")
        arms = "; ".join(f"{name} {fmean(arm['accuracy']):.1%}" for name, arm in one["arms"].items())
        counts = sorted({found["n"] for found in one["differences"].values()})
        judges = " or ".join(f"{n:,}" for n in counts)
        about = f"Accuracy: {arms}. {len(one['seeds'])} seeds, {judges} judged examples."
        of = one["measured"]
        precision = "bf16" if of["machine"]["bf16"] else "fp32"
        about += f" Transformers in {precision}, on {of['machine']['cpu']}, {of['date'][:10]}."
        note = [one["note"], ""] if one.get("note") else []
        parts.append("\n".join([f"## {one['asked']}", "", *lines, "", *note, about]))
    return "\n\n".join(parts)


def folds() -> str:
    """A section a study by cross-validation: what each arm reaches, and how it differs from the baseline."""
    parts = []
    for path in sorted(RESULTS.glob("folds-*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        lines = [
            "| Arm | Accuracy | Macro-F1 | Difference (95 % interval) | p (Holm) |",
            "|---|---|---|---|---|",
        ]
        for name, arm in found["arms"].items():
            reached = f"| {name} | {fmean(arm['accuracy']):.1%} | {fmean(arm['macro_f1']):.1%} |"
            if one := found["differences"].get(name):
                low, high = one["interval"]
                lines.append(
                    f"{reached} {one['points']:+.1f} ({low:+.1f} to {high:+.1f}) | {p_value(one['p_holm'])} |"
                )
            else:
                lines.append(f"{reached} baseline | – |")
        mean = fmean(found["arms"][found["baseline"]]["accuracy"])
        half = 196 * (mean * (1 - mean) / found["n"]) ** 0.5
        about = (
            f"{found['n']:,} pictures, each judged once a seed by {found['folds']}-fold cross-validation; seeds "
            f"{', '.join(map(str, found['seeds']))}. The accuracy of one arm alone is known to ± {half:.0f} points. Read from "
            f"`{path.name}`, measured on {found['machine']['cpu']}, {found['date'][:10]}{_weights(found)}."
        )
        parts.append("\n".join([f"## {found['name']}", "", found["summary"], "", *lines, "", about]))
    return "\n\n".join(parts) or "Not measured yet: `benchmarks/quality/folds.py NAME`."


def _weights(found: dict[str, Any]) -> str:
    """The weights that a study was run with in place of those that it names, in words."""
    models = [text.removeprefix("model=") for text in found.get("overrides", ()) if text.startswith("model=")]
    return f", with the weights of `{models[-1].rsplit('/')[-1]}`" if models else ""


def cost_encoder() -> str:
    """A training step of an encoder by the kind of its attention and the length, from cost-encoder.json."""
    result = read("cost-encoder")
    if result is None:
        return "Not measured yet: `benchmarks/speed/cost.py encoder`."
    kinds = list(result["forward_backward"]["1024"])
    lines = [
        "| Tokens a text | " + " | ".join(f"{kind} (ms)" for kind in kinds) + " |",
        "|---|" + "---|" * len(kinds),
    ]
    for length, found in result["forward_backward"].items():
        cells = [f"{found[kind]['median_ms']:,.0f}" for kind in kinds]
        lines.append(f"| {int(length):,} | " + " | ".join(cells) + " |")
    about = f"{result['num_layers']} layers of {result['d_model']}, {result['tokens']:,} tokens, {result['dtype']}, {result['clock']}; local: places on either side."
    return "\n".join([*lines, "", about, measured(result)])
