"""report.html of runs that give text: translation (scores, alignments) and masked words (loss, fills)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from markupsafe import Markup

from glassformer.checkpoints.files import replace_text
from glassformer.config import read_toml
from glassformer.errors import DataError
from glassformer.explain.render import asset, policy
from glassformer.report import figures, tables
from glassformer.report.html import _environment
from glassformer.report.run import read_history, read_json, shown

CELL, CHARACTER = 22, 7.2  # pixels of a weight's square, and of a letter beside it


def write_sequence_report(folder: str | Path) -> Path:
    """Write ``report.html`` into a run folder and return its path; an old one is replaced in one move.

    Raises:
        DataError: no metrics.json, or a damaged file, which is named.
    """
    folder = Path(folder)
    path = folder / "report.html"
    replace_text(path, render(folder))
    return path


def render(folder: Path) -> str:
    """The page's HTML."""
    if not (folder / "metrics.json").is_file():
        raise DataError("no metrics.json", where=str(folder), fix="Is it a run folder, and did the run end?")
    metrics = read_json(folder / "metrics.json", dict)
    config = shown(read_toml(folder / "config.toml")) if (folder / "config.toml").is_file() else {}
    history = list(read_history(folder / "history.jsonl"))
    steps = [h for h in history if h.get("kind") == "step"]
    evaluations = [h for h in history if h.get("kind") == "evaluation"]
    examples = read_json(folder / "alignments.json", dict).get("examples", [])
    css = asset("page.css")
    settings = tables.settings(config)
    return _environment().get_template("sequences.html.j2").render(
        css=Markup(css), policy=policy(css, ""), metrics=metrics, config=config,
        title=config.get("name") or folder.resolve().name,
        loss=Markup(figures.loss_curves(steps, evaluations)) if steps else None,
        accuracy=Markup(figures.accuracy_curves(steps, evaluations)) if evaluations else None,
        examples=[e | {"picture": Markup(alignment(e["source"], e["target"], e["weights"]))} for e in examples],
        settings=settings, expectation=tables.expectation(config), facts=tables.facts(metrics),
        times=tables.times(metrics.get("seconds") or {}),
    )  # fmt: skip


def alignment(source: Sequence[str], target: Sequence[str], weights: Sequence[Sequence[float]]) -> str:
    """A picture as SVG: a row for each target token, a column for each source token, the darker the more attention.

    Args:
        weights: ``[T, S]`` from 0 to 1.

    Raises:
        DataError: the weights have another shape than the tokens.
    """
    if len(weights) != len(target) or any(len(row) != len(source) for row in weights):
        raise DataError(
            f"weights are not {len(target)} by {len(source)}", where="alignments.json", fix="Train again"
        )
    left = CHARACTER * max(map(len, target), default=1) + 8
    top = CHARACTER * max(map(len, source), default=1) + 8
    width, height = left + CELL * len(source) + 8, top + CELL * len(target) + 4
    parts: list[str] = []
    for s, token in enumerate(source):
        x = left + CELL * (s + 0.5)
        parts.append(
            f'<text transform="translate({x + 4:.1f} {top - 6:.1f}) rotate(-90)" fill="var(--ink)">'
            f"{_text(token)}</text>"
        )
    for t, (token, row) in enumerate(zip(target, weights, strict=True)):
        y = top + CELL * t
        parts.append(
            f'<text x="{left - 6:.1f}" y="{y + 15:.1f}" text-anchor="end" fill="var(--ink)">{_text(token)}</text>'
        )
        parts += [
            f'<rect x="{left + CELL * s + 1:.1f}" y="{y + 1:.1f}" width="{CELL - 2}" height="{CELL - 2}" rx="2" '
            f'fill="var(--train)" fill-opacity="{_share(weight):.3f}"><title>{_text(source[s])} → {_text(token)}: '
            f"{_share(weight):.1%}</title></rect>"
            for s, weight in enumerate(row)
        ]
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="Alignment of {len(target)} target tokens with {len(source)} source tokens" '
        f'font-size="12">{"".join(parts)}</svg>'
    )


def _text(token: Any) -> str:
    return escape(str(shown(str(token))))


def _share(weight: Any) -> float:
    return min(max(float(weight or 0.0), 0.0), 1.0)
