"""Read the predictions of a finished run and of its baselines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.errors import DataError
from glassformer.evaluate.predictions import (
    BASELINES_FILE,
    has_numbers,
    read_baselines,
    read_numbers,
    read_predictions,
)
from glassformer.targets import target_in
from glassformer.targets.target import RunPredictions, read_object


def read_answers(folder: Path) -> RunPredictions:
    """Read a run's predictions."""
    if (target := target_in(folder)) is None:
        what = "has no predictions that can be compared"
        fix = "Name finished runs whose models give labels, tags, numbers or cosines"
        raise DataError(what, where=str(folder), fix=fix)
    return target.read_run(folder)


def _rows(folder: Path) -> Iterator[Any]:
    """The rows of a run's predictions.csv; none if its predictions are in another file."""
    path = folder / "predictions.csv"
    if path.is_file():
        yield from (read_numbers if has_numbers(path) else read_predictions)(path)


def read_answers_split(folder: Path) -> str:
    """The split that a run was evaluated on, from its predictions or metrics; empty if unknown."""
    if not (folder / "predictions.csv").is_file():
        return str(read_object(folder / "metrics.json").get("judged") or "")
    splits = {row.split for row in _rows(folder)}
    return splits.pop() if len(splits) == 1 else ""


def examples_differ(folders: tuple[Path, Path], judged: tuple[RunPredictions, RunPredictions]) -> str:
    """How the evaluated examples of two runs differ, in words; empty if they do not."""
    ours, theirs = judged
    if (ours.examples, ours.classes) == (theirs.examples, theirs.classes):
        return ""
    if ours.examples == theirs.examples:
        labels = sorted(set(ours.classes) ^ set(theirs.classes))
        return "have different labels" + (
            f": {', '.join(labels[:3])} in only one of them" if labels else " in another order"
        )
    splits, counts = [read_answers_split(f) for f in folders], [answers.n for answers in judged]
    message = "were evaluated on different examples: "
    if splits[0] != splits[1] and all(splits):
        return message + f"{counts[0]:,} of {splits[0]}, {counts[1]:,} of {splits[1]}"
    message += f"{counts[0]:,} and {counts[1]:,}"
    rows_a, rows_b = ({(row.text, row.label) for row in _rows(folder)} for folder in folders)
    if not rows_a or not rows_b:
        return message
    return message + f", {len(rows_a & rows_b):,} of them the same"


def baseline_runs(folder: Path, first: RunPredictions, names: Sequence[str]) -> dict[str, RunPredictions]:
    """Read the saved predictions of a run's baselines with these ``names``."""
    out = {}
    for name, cells in read_baselines(folder / BASELINES_FILE).items():
        if name not in names or len(cells) != first.n:
            continue
        try:
            guess = first.target.parse_cells(cells, first.classes)
        except (KeyError, ValueError):  # labels that the run does not have
            continue
        if guess is not None:
            out[name] = replace(first, predicted=guess, log_loss=None)
    return out
