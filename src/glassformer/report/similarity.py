"""Report sections for embedders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from glassformer.data.spreadsheet import csv_dicts
from glassformer.errors import DataError
from glassformer.explain.similarity import picture
from glassformer.report import figures
from glassformer.report.metrics import Table, metric_table
from glassformer.report.page import PageKind, Section, curves, folds, listing, table
from glassformer.report.run import Run
from glassformer.report.wording import count, decimal
from glassformer.targets.similarity import Similarity

MAX_POINTS = 2_000  # maximum number of points in the scatter plot; more points are not visible


def evaluation(run: Run) -> Section:
    """The metrics of the model and the baselines, and a plot of cosines against scores."""
    metrics, splits = run.metrics, run.metrics.get("similarity") or {}
    evaluated_split = metrics.get("judged")
    rows = [("This model", split, values) for split, values in splits.items()]
    rows += [(name, evaluated_split, values) for name, values in (metrics.get("others") or {}).items()]
    if not rows:
        return Section("scores", "Evaluation", "No pairs were held out, so this model is not evaluated.")
    note = (
        "Correlation of cosines with human scores, with its 95 % interval over pairs; for pairs without "
        "scores, how often the paired text is the nearest of all. The untouched model is the same "
        "checkpoint before this training."
    )
    keys = [f"{key}_within" for key in Similarity.metrics if any(key in values for *_, values in rows)]
    scores = metric_table([(name, values) for name, _, values in rows], ["n", *keys], 2)
    lines = [[name, split, *line[1:]] for (name, split, _), line in zip(rows, scores.rows, strict=True)]
    highlighted = [i for i, row in enumerate(rows) if row[:2] == ("This model", evaluated_split)]
    columns = ["model", "split", *scores.columns[1:]]
    body = table(Table(columns, lines, highlighted, ("split",), "compare few"))
    pairs = read_pairs(run.folder / "pairs.csv")
    if pairs[0]:
        keys = [("small", "each point is an evaluated pair")]
        body += curves((scatter(*pairs), "Cosine against score", keys))
    return Section("scores", "Evaluation", note, body)


def explained_pairs(run: Run) -> Section | None:
    """The cosines of some pairs as sums over pairs of tokens."""
    examples = run.json("similarities.json").get("examples") or []
    note = (
        "One row per token of the first text, one column per token of the second: blue-green squares add to "
        "the cosine, red ones subtract from it, and the sum of all squares is the cosine. The first half of "
        "these pairs disagree most with their scores."
    )
    rows = [
        e | {"diagram": Markup(picture(e["tokens"][0], e["tokens"][1], e["table"], "similarities.json"))}
        for e in examples
    ]
    return listing("made", "Similarity token by token", note, "similarity.token_pairs", rows)


def learning_curves(run: Run) -> Section | None:
    if not run.steps:
        return None
    evaluations = [e for e in run.evaluations if e.get("score") is not None]
    note = "The loss of each step and its trend."
    note += " The validation pairs were evaluated after each epoch." * bool(evaluations)
    rows = [[count(e["step"]), decimal(e.get("train_loss"), 4), decimal(e["score"], 4)] for e in evaluations]
    best_rows = [i for i, e in enumerate(evaluations) if e.get("best")]
    columns = ["step", "training loss", "on validation pairs"]
    body = curves((figures.loss_curves(run.steps, []), "Loss", ()))
    body += table(Table(columns, rows, best_rows, style=""))
    return Section("learned", "Learning curves", note, body)


def read_pairs(path: Path) -> tuple[list[float], list[float]]:
    """Scores and cosines of the pairs in ``pairs.csv`` that have a score; empty without the file."""
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
                fix = "Write it again with glassformer evaluate, or remove the file"
                raise DataError("a score or cosine is not a number", where=f"{path}, row {number}", fix=fix)
            scores.append(pair[0])
            cosines.append(pair[1])
    return scores, cosines


def scatter(scores: Sequence[float], cosines: Sequence[float]) -> Markup:
    """Scatter plot of cosine against score, one point per pair."""
    step = max(1, len(scores) // MAX_POINTS)
    with rc_context(figures.STYLE):
        figure = Figure((5.2, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.plot(scores[::step], cosines[::step], "o", color=figures.VALIDATION, markersize=2.6, alpha=0.35)
        axes.set(xlabel="score", ylabel="cosine")
        return figures.as_svg(figure, "cosines", "Cosine of each evaluated pair against its score")


PAGE = PageKind(
    sections=(evaluation, folds, explained_pairs, learning_curves),
    extra_facts=lambda run: {"loss": run.metrics.get("loss")},
)
