"""Cross-validation of a recipe: k trainings, each judged on its unseen part, every example once.

    FOLDER/config.toml  folds.json  fold-0/fold.json, probabilities.npy ...  and then, as a run has them,
    metrics.json (the out-of-fold figures)  predictions.csv (out-of-fold)  report.html

Answers from texts are in given.json and predictions.jsonl, tags in predictions.conll, cosines in cosines.npy
and pairs.csv. The recipe's test split is not touched. A fold that is finished is kept; a broken one goes on.
"""

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

from glassformer.checkpoints.files import disk_errors, replace_text, replacing
from glassformer.checkpoints.locks import holds_nothing, writing
from glassformer.config import read_toml, to_toml
from glassformer.data.copies import content_of
from glassformer.data.rejected import summary
from glassformer.errors import (
    BadValueError,
    DataChangedError,
    ExistsError,
    OtherRunError,
)
from glassformer.finite import json_text
from glassformer.outputs import check_folder_path
from glassformer.runtime import machine_facts, peak_memory_mb, versions
from glassformer.tasks.catalog import TASKS, build_recipe, check_classifies, known_recipe
from glassformer.tasks.folds import NAME, OutOfFold
from glassformer.tasks.run_folder import as_begun, what_decides
from glassformer.tasks.task import RunContext
from glassformer.train.callbacks import Callback, HistoryFile, StopOnSignal, time_left

MARKER = "fold.json"  # of a fold, written last
PLAN = "folds.json"  # which example is in which fold
CHECKPOINTS = "checkpoints"  # of a fold that is being trained
Say = Callable[[str], None]


@dataclass(frozen=True)
class Fold:
    """One training: what it learns from and what it is judged on, as indices of the examples."""

    number: int
    train: np.ndarray
    held: np.ndarray
    folder: Path


def cross_validate(
    recipe: Any,
    folder: str | Path,
    folds: int = 5,
    *,
    say: Say = lambda line: None,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Train and judge a recipe ``folds`` times on its training examples; what is finished is kept.

    Copies of one example share a fold, so that none is judged by a model that has seen it. The recipe's
    validation split, where it has one, chooses the best epoch in every fold.

    Returns:
        What metrics.json holds: figures of all out-of-fold answers under ``test``, of each fold under
        ``folds``, and their mean, standard deviation and range under ``over_folds``.

    Raises:
        ConfigError: fewer than two folds, another recipe's folder, or another process writes there.
        DataError: a class with fewer examples than folds, or unusable data.
    """
    folder, started = Path(folder), time.perf_counter()
    check_classifies(recipe, folds=True)
    if folds < 2:
        raise BadValueError(f"{folds} folds", where="folds", fix="Use 2 or more")
    _check_folder(folder, recipe, folds)
    with writing(folder):
        _check_folder(folder, recipe, folds)  # another process may have begun one meanwhile
        recipe, _ = as_begun(recipe, folder)
        task = TASKS[recipe.task]
        splits = task.load(recipe)
        task.preview_data(RunContext(task, recipe, folder, say, data=splits))  # refuses bad images
        assert task.folds is not None
        out: OutOfFold = task.folds(recipe, splits, task.estimator)
        begun = begun_plan(folder, len(splits.train))
        numbers = out.assign(folds) if begun is None else begun
        begin(folder, recipe, numbers, folds, splits)
        for line in getattr(splits.dataset, "said", ()):
            say(line)
        if rejected := getattr(splits.dataset, "rejected", ()):
            say(summary(rejected, listed=False))
        say(f"{len(splits.train):,} {out.NOUN} in {folds} folds")
        answers, found = [], []
        for fold, told in each_fold(folder, numbers, folds, say, started):
            found.append(run_fold(fold, out, callbacks))
            answers.append((fold.held, answers_of(out, fold.folder, fold.held)))
            told(out.figure(found[-1]))
        metrics = out.together(folder, answers, found)
        metrics |= facts(found, out.FIGURES, recipe, started, *out.PACKAGES)
        replace_text(folder / "metrics.json", json_text(metrics, indent=1) + "\n")
        task.render_report(folder, known_recipe(folder))
        return metrics


def run_fold(fold: Fold, out: OutOfFold, callbacks: Sequence[Callback] = ()) -> dict[str, Any]:
    """Train and judge one fold from wherever it stands; a finished one is left as it is. Its figures."""
    if (before := kept(fold)) is not None:
        return before
    own, held = out.train.select(fold.train.tolist()), out.train.select(fold.held.tolist())
    checkpoints = fold.folder / CHECKPOINTS
    model = out.estimator.from_recipe(out.recipe).fit(
        *out.given(own),
        validation=out.validation,
        checkpoints=checkpoints,
        resume=True,
        callbacks=[HistoryFile(fold.folder / "history.jsonl"), *callbacks, StopOnSignal(checkpoints)],
    )
    judged, figures, answers = out.evaluate(model, held)
    if out.ANSWERS.endswith(".json"):
        replace_text(fold.folder / out.ANSWERS, json_text(answers) + "\n")
    else:
        with replacing(fold.folder / out.ANSWERS) as fresh, open(fresh, "wb") as file:
            np.save(file, answers, allow_pickle=False)
    return end(fold, model, judged, figures)


def answers_of(out: OutOfFold, folder: Path, held: np.ndarray) -> Any:
    """What a finished fold gave to each of its examples.

    Raises:
        DataError: its examples are others than the data hold now.
    """
    path = folder / out.ANSWERS
    text = path.suffix == ".json"
    found = json.loads(path.read_text(encoding="utf-8")) if text else np.load(path, allow_pickle=False)
    if (each := out.of_each(found, held)) is None:
        what = f"has answers for other {out.NOUN} than the data hold now"
        raise DataChangedError(what, where=str(folder), fix="Choose another --out")
    return each


def _check_folder(folder: Path, recipe: Any, folds: int) -> None:
    check_folder_path(folder)
    if not folder.is_dir() or holds_nothing(folder):
        return
    config, plan = folder / "config.toml", folder / PLAN
    if not (config.is_file() and plan.is_file()):
        raise ExistsError(
            "exists and is not a cross-validation of ours", where=str(folder), fix="Choose another --out"
        )
    theirs = json.loads(plan.read_text(encoding="utf-8"))["folds"]
    same = what_decides(build_recipe(read_toml(config), str(config))) == what_decides(recipe)
    if theirs != folds or not same:
        what = f"holds {theirs} folds, not {folds}" if same else "holds a cross-validation of another recipe"
        raise OtherRunError(what, where=str(folder), fix="Choose another --out, or the same recipe and folds")


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
            raise DataChangedError(what, where=str(folder), fix="Choose another --out, or remove this folder")
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


def kept(fold: Fold) -> dict[str, Any] | None:
    """The figures of a finished fold; None: its folder is there to be trained in."""
    marker = fold.folder / MARKER
    if marker.is_file():
        return json.loads(marker.read_text(encoding="utf-8"))
    with disk_errors(fold.folder):
        fold.folder.mkdir(parents=True, exist_ok=True)
    return None


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
