"""One fold of a cross-validation, and what all folds together say."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import disk_errors, replace_text
from glassformer.config import to_toml
from glassformer.data.copies import content_of, groups_of
from glassformer.data.splits import stratified_folds
from glassformer.errors import DataError
from glassformer.finite import json_text
from glassformer.runtime import machine_facts, peak_memory_mb, versions
from glassformer.train.callbacks import Callback, HistoryFile, StopOnSignal, time_left

MARKER = "fold.json"  # of a fold, written last
PLAN = "folds.json"  # which example is in which fold
NAME = "out-of-fold"  # of the split that the figures are of
CHECKPOINTS = "checkpoints"  # of a fold that is being trained


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


def begin(folder: Path, recipe: Any, numbers: np.ndarray, folds: int, splits: Any) -> None:
    """Make the folder, with the recipe and the plan.

    Raises:
        DataError: folds are finished there that were trained and judged on other data.
    """
    data = data_digest(splits)
    plan = {"folds": folds, "assignment": numbers.tolist(), "data_sha256": data}
    if any(folder.glob(f"fold-*/{MARKER}")):
        theirs = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        if theirs.get("data_sha256", data) != data or len(theirs["assignment"]) != len(numbers):
            what = "has finished folds of other data: since then examples or labels have changed"
            raise DataError(what, where=str(folder), fix="Choose another --out, or remove this folder")
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / "config.toml", to_toml(recipe))
    replace_text(folder / PLAN, json_text(plan, ascii=True) + "\n")


def data_digest(splits: Any) -> str:
    """SHA-256 of what decides a fold: the examples of training and validation and what is learned of each."""
    out = hashlib.sha256()
    for split in (splits.train, splits.validation):
        if split is None:
            continue
        for line in content_of(split):
            out.update(line)
    return out.hexdigest()


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


def in_groups(recipe: Any, train: Any, folder: Path, folds: int, kind: str, group: str) -> np.ndarray:
    """The fold of each example that has no class: those of one group in one fold.

    Args:
        kind, group: what an example is, and what the groups are, in words.

    Raises:
        DataError: fewer groups than folds.
    """
    if (begun := begun_plan(folder, len(train))) is not None:
        return begun
    groups = groups_of(train)
    if (count := len(set(groups))) < folds:
        what = f"{count} different {group} for {folds} folds"
        raise DataError(what, where=train.origin, fix="Use fewer folds, or give more texts")
    return stratified_folds([kind] * len(train), folds, recipe.data.split_seed, groups)


def kept(fold: Fold) -> dict[str, Any] | None:
    """The figures of a finished fold; None: its folder is there to be trained in."""
    marker = fold.folder / MARKER
    if marker.is_file():
        return json.loads(marker.read_text(encoding="utf-8"))
    with disk_errors(fold.folder):
        fold.folder.mkdir(parents=True, exist_ok=True)
    return None


def fit(
    fold: Fold, estimator: Any, *given: Any, validation: Any = None, callbacks: Sequence[Callback] = ()
) -> Any:
    """The estimator, trained on what is given from wherever the fold stands."""
    checkpoints = fold.folder / CHECKPOINTS
    return estimator.fit(
        *given,
        validation=validation,
        checkpoints=checkpoints,
        resume=True,
        callbacks=[HistoryFile(fold.folder / "history.jsonl"), *callbacks, StopOnSignal(checkpoints)],
    )


def end(fold: Fold, estimator: Any, judged: int, figures: dict[str, Any]) -> dict[str, Any]:
    """Write the fold's figures, with what every fold tells, and drop its checkpoints."""
    figures = {
        "fold": fold.number,
        "n": judged,
        "trained_on": len(fold.train),
        **figures,
        "seconds": estimator.train_seconds_,
        "weights_source": estimator.weights_source_,
        "parameters": sum(p.numel() for p in estimator.model_.parameters()),
    }
    replace_text(fold.folder / MARKER, json_text(figures, ascii=True) + "\n")
    shutil.rmtree(fold.folder / CHECKPOINTS, ignore_errors=True)
    return figures


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
