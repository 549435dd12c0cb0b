"""``report.html`` of a run of word vectors: the loss, the tests, neighbours, analogies, norms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from glassformer.checkpoints.files import replace_text
from glassformer.explain.render import asset, policy
from glassformer.report import figures
from glassformer.report.html import templates


def write_vectors_report(
    folder: Path, name: str, metrics: dict[str, Any], history: Sequence[dict[str, Any]]
) -> Path:
    """Write the page into a run folder and return its path."""
    css = asset("page.css")
    steps = [record for record in history if record["kind"] == "step"]
    page = (
        templates()
        .get_template("vectors.html.j2")
        .render(
            css=Markup(css),
            policy=policy(css, ""),
            title=name or folder.resolve().name,
            metrics=metrics,
            loss=Markup(figures.loss_curves(steps, [])) if steps else None,
            rows=test_rows(metrics["tests"]),
        )
    )
    replace_text(folder / "report.html", page)
    return folder / "report.html"


def test_rows(tests: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(test, figure, what it was measured on) of each test and section, in words."""
    rows = []
    for name, result in tests.items():
        if result is None:
            rows.append((name, "not measured", "its file is not on this machine"))
        elif "spearman" in result:
            value = result["spearman"]
            shown = "none" if value is None else f"{100 * value:.1f}"
            rows.append((name, f"Spearman {shown}", f"{result['known']} of {result['pairs']} pairs known"))
        else:
            parts = {name: result} | (result["sections"] if len(result["sections"]) > 1 else {})
            for part, r in parts.items():
                share = f"{100 * r['correct'] / r['known']:.1f} % correct" if r["known"] else "none known"
                shown = part if part == name else f"  {part}"
                rows.append((shown, share, f"{r['correct']} of {r['known']}; {r['questions']} questions"))
    return rows
