"""``report.html`` of an embedder's run: correlations beside baselines, cosines against scores, pair maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from glassformer.checkpoints.files import replace_text
from glassformer.config import NOTHING_KNOWN, KnownRecipe, read_toml
from glassformer.data.spreadsheet import csv_dicts
from glassformer.errors import DataError
from glassformer.explain.pair_map import picture
from glassformer.explain.render import asset, policy
from glassformer.report import figures, tables
from glassformer.report.html import architecture, templates
from glassformer.report.run import read_history, read_json, shown

MAX_POINTS = 2_000  # of the picture of cosines: more cannot be seen
MEASURES = {
    "spearman": "Spearman",
    "pearson": "Pearson",
    "found": "Partner is the nearest",
    "reciprocal_rank": "Mean of 1 / its rank",
}


def write_similarity_report(folder: str | Path, known: KnownRecipe = NOTHING_KNOWN) -> Path:
    """Write ``report.html`` into a run folder and return its path; an old one is replaced in one move.

    Raises:
        DataError: no metrics.json, or a damaged file, which is named.
    """
    folder = Path(folder)
    path = folder / "report.html"
    replace_text(path, render(folder, known))
    return path


def render(folder: Path, known: KnownRecipe = NOTHING_KNOWN) -> str:
    """The page's HTML."""
    if not (folder / "metrics.json").is_file():
        raise DataError("no metrics.json", where=str(folder), fix="Is it a run folder, and did the run end?")
    metrics = read_json(folder / "metrics.json", dict)
    config = shown(read_toml(folder / "config.toml")) if (folder / "config.toml").is_file() else {}
    history = list(read_history(folder / "history.jsonl"))
    steps = [h for h in history if h.get("kind") == "step"]
    evaluations = [h for h in history if h.get("kind") == "evaluation"]
    doctor = read_json(folder / "doctor.json", dict)
    examples = read_json(folder / "similarities.json", dict).get("examples", [])
    pairs, css = read_pairs(folder / "pairs.csv"), asset("page.css")
    return (
        templates()
        .get_template("similarity.html.j2")
        .render(
            css=Markup(css),
            policy=policy(css, ""),
            title=config.get("name") or folder.resolve().name,
            metrics=metrics,
            config=config,
            rows=rows_of(metrics),
            columns=[key for key in MEASURES if any(key in row["figures"] for row in rows_of(metrics))],
            names=MEASURES,
            scatter=Markup(scatter(*pairs)) if pairs[0] else None,
            loss=Markup(figures.loss_curves(steps, [])) if steps else None,
            evaluations=[e for e in evaluations if e.get("score") is not None],
            examples=[e | {"picture": Markup(drawn(e))} for e in examples],
            findings=tables.findings(doctor),
            settings=tables.settings(config, known.defaults),
            expectation=tables.expectation(config, known.shipped, known.defaults),
            facts=tables.facts(metrics),
            times=tables.times(metrics.get("seconds") or {}),
            architecture=architecture(metrics, "tokens [N]"),
        )
    )


def rows_of(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """The table of figures: this model on each split, then the others on the judged one."""
    judged = metrics.get("judged")
    found = metrics.get("similarity") or {}
    rows = [
        {"name": "This model", "split": split, "figures": values, "ours": split == judged}
        for split, values in found.items()
    ]
    others = metrics.get("others") or {}
    return rows + [{"name": n, "split": judged, "figures": v, "ours": False} for n, v in others.items()]


def read_pairs(path: Path) -> tuple[list[float], list[float]]:
    """Scores and cosines of ``pairs.csv``; none of pairs without scores, or where there is no such file.

    Raises:
        DataError: a cell that is no number.
    """
    if not path.is_file():
        return [], []
    scores, cosines = [], []
    with path.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv_dicts(file), 2):
            if not row.get("score"):
                continue
            try:
                pair = float(row["score"]), float(row["cosine"])
            except (TypeError, ValueError):
                pair = (math.nan, math.nan)
            if not all(map(math.isfinite, pair)):
                fix = "Write it anew with glassformer evaluate, or remove the file"
                raise DataError("a score or cosine is no number", where=f"{path}, row {number}", fix=fix)
            scores.append(pair[0])
            cosines.append(pair[1])
    return scores, cosines


def scatter(scores: Sequence[float], cosines: Sequence[float]) -> str:
    """Cosine against score, a point a pair."""
    step = max(1, len(scores) // MAX_POINTS)
    with rc_context(figures.STYLE):
        figure = Figure((5.2, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.plot(scores[::step], cosines[::step], "o", color=figures.HELD, markersize=2.6, alpha=0.35)
        axes.set(xlabel="score", ylabel="cosine")
        return figures.as_svg(figure, "cosines", "Cosine of each judged pair against its score")


def drawn(example: dict[str, Any]) -> str:
    """The map of one example of ``similarities.json``."""
    rows, columns = example["tokens"]
    return picture(rows, columns, example["table"], "similarities.json")
