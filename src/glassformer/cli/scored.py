"""What ``data show`` and ``cross-validate`` say of pairs of texts and their scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glassformer.cli.output import excerpt, say, say_json, show_table
from glassformer.cli.tagged import left_out

SHOWN = 3  # pairs


def show_scored(name: str, json: bool) -> None:
    """Sizes, the range of the scores and the first pairs of a data set.

    Raises:
        DataError: it cannot be read.
    """
    from glassformer.data.scored_pairs import load_scored_pairs

    dataset = load_scored_pairs(name, on_bad_row="skip")
    splits = {
        split: {
            "pairs": len(s),
            "lowest": min(s.scores) if s.scores else None,
            "highest": max(s.scores) if s.scores else None,
            "origin": s.origin,
            "examples": list(zip(s.first, s.second, s.scores or [None] * len(s), strict=True))[:SHOWN],
        }
        for split, s in dataset.splits.items()
    }
    known: dict[str, Any] = {
        "name": dataset.name,
        "description": dataset.description,
        "licence": dataset.licence,
    }
    if json:
        known["notes"] = left_out(dataset)
        say_json(known | {"columns": list(dataset.columns), "splits": splits})
        return
    for line in (dataset.description, dataset.licence and f"licence: {dataset.licence}", *left_out(dataset)):
        if line:
            say(line)
    rows = []
    for split, s in splits.items():
        scores = "none" if s["lowest"] is None else f"{s['lowest']:g} to {s['highest']:g}"
        rows.append([split, f"{s['pairs']:,}", scores, s["origin"]])
    show_table(dataset.name, ("split", "pairs", "scores", "from"), rows, right=["pairs"])
    split, first = next(iter(splits.items()))
    examples = [
        [excerpt(a), excerpt(b), "" if score is None else f"{score:g}"] for a, b, score in first["examples"]
    ]
    show_table(f"first pairs of {split}", (*dataset.columns[:2], dataset.columns[2] or ""), examples)


def show_pair_folds(metrics: dict[str, Any], folder: Path) -> None:
    """A row a fold, their mean and scatter, and the figures of all cosines together."""
    from glassformer.report.similarity import MEASURES

    keys, over = [key for key in MEASURES if key in metrics["over_folds"]], metrics["over_folds"]
    rows = [
        [str(f["fold"] + 1), f"{f['n']:,}", *(f"{f[key]:.4f}" for key in keys), f"{f['seconds']:.0f} s"]
        for f in metrics["folds"]
    ]
    spread = [f"{over[key]['mean']:.4f} ({over[key]['sd']:.4f})" for key in keys]
    heads = ("fold", "pairs", *(MEASURES[key] for key in keys), "time")
    show_table("out-of-fold", heads, [*rows, ["mean (SD)", "", *spread, ""]], right=heads[1:])
    scores, first = metrics["test"], metrics["measure"]
    said = f"all {scores['pairs']:,} pairs: {MEASURES[first]} {scores[first]:.4f}"
    between = scores.get(f"{first}_interval")
    say(f"{said}, 95 % interval {between[0]:.3f} to {between[1]:.3f}" if between else said)
    say(f"cosines: {folder / 'pairs.csv'}")
    say(f"report: {folder / 'report.html'}")
