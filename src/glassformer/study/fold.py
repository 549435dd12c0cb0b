"""One fold of a cross-validation, and what all folds together say."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import disk_errors, replace_text
from glassformer.config import to_toml
from glassformer.runtime import machine_facts, peak_memory_mb, versions
from glassformer.train.callbacks import time_left

MARKER = "fold.json"  # of a fold, written last
PLAN = "folds.json"  # which example is in which fold
NAME = "out-of-fold"  # of the split that the figures are of


@dataclass(frozen=True)
class Fold:
    """One training: what it learns from and what it is judged on, as indices of the examples."""

    number: int
    train: np.ndarray
    held: np.ndarray
    folder: Path


def begun_plan(folder: Path, examples: int) -> np.ndarray | None:
    """The fold of each example as a cross-validation began with; None: there is no such plan."""
    plan = folder / PLAN
    if not plan.is_file():
        return None
    begun = np.array(json.loads(plan.read_text(encoding="utf-8"))["assignment"], np.int64)
    return begun if len(begun) == examples else None


def begin(folder: Path, recipe: Any, numbers: np.ndarray, folds: int) -> None:
    """Make the folder, with the recipe and the plan."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / "config.toml", to_toml(recipe))
    replace_text(folder / PLAN, json.dumps({"folds": folds, "assignment": numbers.tolist()}) + "\n")


def each_fold(
    folder: Path, numbers: np.ndarray, folds: int, say: Callable[[str], None], started: float
) -> Iterator[tuple[Fold, Callable[[str], None]]]:
    """The folds in turn, each with what says its figure: kept from before, or how much time is left."""
    for k in range(folds):
        fold = Fold(k, np.flatnonzero(numbers != k), np.flatnonzero(numbers == k), folder / f"fold-{k}")
        known = (fold.folder / MARKER).is_file()

        def told(figure: str, k: int = k, known: bool = known) -> None:
            rest = (time.perf_counter() - started) / (k + 1) * (folds - k - 1)
            when = " (kept)" if known else f" (about {time_left(rest)} left)" if rest else ""
            say(f"fold {k + 1} of {folds}: {figure}{when}")

        yield fold, told


def facts(
    found: Sequence[dict[str, Any]], figures: Sequence[str], recipe: Any, started: float, *packages: str
) -> dict[str, Any]:
    """What metrics.json says of every cross-validation: of its folds, of the machine, and of the time."""
    return {
        "train": None,
        "validation": None,
        "judged": NAME,
        "folds": list(found),
        "over_folds": over_folds(found, figures),
        "baselines": {},
        "weights_source": found[0]["weights_source"],
        "parameters": found[0]["parameters"],
        "seconds": {"train": sum(f["seconds"] for f in found), "total": time.perf_counter() - started},
        "peak_memory_mb": peak_memory_mb(),
        "machine": machine_facts(),
        "versions": versions(*packages),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": recipe.train.seed,
    }


def over_folds(found: Sequence[dict[str, Any]], figures: Sequence[str]) -> dict[str, dict[str, float]]:
    """Mean, standard deviation and range of each figure. The folds share most of their training examples, so
    the deviation divided by the root of k is no standard error."""
    out = {}
    for key in (key for key in figures if all(fold.get(key) is not None for fold in found)):
        values = np.array([fold[key] for fold in found])
        spread = {"mean": values.mean(), "sd": values.std(ddof=1), "min": values.min(), "max": values.max()}
        out[key] = {name: float(value) for name, value in spread.items()}
    return out
