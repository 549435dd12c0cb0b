"""Reader of the predictions of runs and baselines."""

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


def read_run_predictions(folder: Path) -> RunPredictions:
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


def read_evaluated_split(folder: Path) -> str:
    """The split that a run was evaluated on, from its predictions or metrics; empty if unknown."""
    if not (folder / "predictions.csv").is_file():
        return str(read_object(folder / "metrics.json").get("judged") or "")
    splits = {row.split for row in _rows(folder)}
    return splits.pop() if len(splits) == 1 else ""


def describe_difference(folders: tuple[Path, Path], runs: tuple[RunPredictions, RunPredictions]) -> str:
    """How the evaluated examples of two runs differ, in words; empty if they are the same."""
    a, b = runs
    if (a.examples, a.classes) == (b.examples, b.classes):
        return ""
    if a.examples == b.examples:
        labels = sorted(set(a.classes) ^ set(b.classes))
        suffix = f": {', '.join(labels[:3])} in only one of them" if labels else " in another order"
        return f"have different labels{suffix}"
    message = "were evaluated on different examples: "
    split_a, split_b = map(read_evaluated_split, folders)
    if split_a != split_b and split_a and split_b:
        return message + f"{a.n:,} of {split_a}, {b.n:,} of {split_b}"
    message += f"{a.n:,} and {b.n:,}"
    rows_a, rows_b = ({(row.text, row.label) for row in _rows(folder)} for folder in folders)
    return message + (f", {len(rows_a & rows_b):,} of them the same" if rows_a and rows_b else "")


def read_baseline_predictions(
    folder: Path, run: RunPredictions, names: Sequence[str]
) -> dict[str, RunPredictions]:
    """Read the saved predictions of the baselines ``names`` of a run."""
    out = {}
    for name, cells in read_baselines(folder / BASELINES_FILE).items():
        if name not in names or len(cells) != run.n:
            continue
        try:
            predicted = run.target.parse_cells(cells, run.classes)
        except (KeyError, ValueError):  # labels that the run does not have
            continue
        if predicted is not None:
            out[name] = replace(run, predicted=predicted, log_loss=None)
    return out
