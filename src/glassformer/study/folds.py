"""Cross-validation of a recipe.

    FOLDER/config.toml  folds.json  fold-0/fold.json, probabilities.npy ...  and then, as in a run,
    metrics.json (out-of-fold metrics)  predictions.csv (out-of-fold)  report.html

Question answering writes given.json and predictions.jsonl, taggers predictions.conll, embedders cosines.npy
and pairs.csv. The recipe's test split is not used. Finished folds are kept; an interrupted one resumes.
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
from glassformer.checkpoints.locks import is_empty_folder, writing
from glassformer.config import read_toml, to_toml
from glassformer.data.duplicates import content_lines
from glassformer.data.rejected import summary
from glassformer.errors import BadValueError, DataChangedError, ExistsError, OtherRunError
from glassformer.finite import json_text
from glassformer.outputs import check_folder_path
from glassformer.runtime import machine_facts, peak_memory_mb, versions
from glassformer.tasks.catalog import TASKS, build_recipe, check_classifies, known_recipe
from glassformer.tasks.folds import NAME, OutOfFold
from glassformer.tasks.run_folder import relevant_settings, with_run_settings
from glassformer.tasks.task import RunContext
from glassformer.train.callbacks import Callback, HistoryFile, StopOnSignal, time_left

MARKER = "fold.json"  # written when a fold is finished
PLAN = "folds.json"  # the fold of each example
CHECKPOINTS = "checkpoints"  # folder in a fold's folder, while it is trained
Say = Callable[[str], None]


@dataclass(frozen=True)
class Fold:
    """One fold: indices of its training and of its held-out examples."""

    number: int
    train: np.ndarray
    held_out: np.ndarray
    folder: Path


def cross_validate(
    recipe: Any,
    folder: str | Path,
    folds: int = 5,
    *,
    say: Say = lambda line: None,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Cross-validate a recipe on its training examples. Finished folds are kept.

    Copies of an example are in one fold, so that no model is evaluated on an example it was trained on. The
    recipe's validation split, if any, selects the best epoch in every fold.

    Returns:
        The contents of metrics.json: metrics of all out-of-fold predictions (``test``), of each fold
        (``folds``), and their mean, standard deviation and range (``over_folds``).

    Raises:
        ConfigError: fewer than two folds, the folder of another recipe, or another process writes to it.
        DataError: a class with fewer examples than folds, or unusable data.
    """
    folder, started = Path(folder), time.perf_counter()
    check_classifies(recipe, folds=True)
    if folds < 2:
        raise BadValueError(f"{folds} folds", where="folds", fix="Use 2 or more")
    _check_folder(folder, recipe, folds)
    with writing(folder):
        _check_folder(folder, recipe, folds)  # again: another process may have written meanwhile
        recipe, _ = with_run_settings(recipe, folder)
        task = TASKS[recipe.task]
        splits = task.load(recipe)
        task.preview_data(RunContext(task, recipe, folder, say, data=splits))  # raises errors for bad data
        assert task.folds is not None
        out: OutOfFold = task.folds(recipe, splits, task.estimator)
        old_plan = read_plan(folder, len(splits.train))
        fold_numbers = out.assign(folds) if old_plan is None else old_plan
        write_plan(folder, recipe, fold_numbers, folds, splits)
        for line in getattr(splits.dataset, "messages", ()):
            say(line)
        if rejected := getattr(splits.dataset, "rejected", ()):
            say(summary(rejected, is_listed=False))
        say(f"{len(splits.train):,} {out.NOUN} in {folds} folds")
        answers, per_fold = [], []
        for fold, log_fold in each_fold(folder, fold_numbers, folds, say, started):
            per_fold.append(run_fold(fold, out, callbacks))
            answers.append((fold.held_out, answers_of(out, fold.folder, fold.held_out)))
            log_fold(out.summary(per_fold[-1]))
        metrics = out.pooled_metrics(folder, answers, per_fold)
        metrics |= facts(per_fold, out.METRICS, recipe, started, *out.PACKAGES)
        replace_text(folder / "metrics.json", json_text(metrics, indent=1) + "\n")
        task.render_report(folder, known_recipe(folder))
        return metrics


def run_fold(fold: Fold, out: OutOfFold, callbacks: Sequence[Callback] = ()) -> dict[str, Any]:
    """Train and evaluate one fold, or resume it; a finished one is only read. Returns its metrics."""
    if (saved := saved_metrics(fold)) is not None:
        return saved
    training, held_out = out.train.select(fold.train.tolist()), out.train.select(fold.held_out.tolist())
    checkpoints = fold.folder / CHECKPOINTS
    model = out.estimator.from_recipe(out.recipe).fit(
        *out.fit_arguments(training),
        validation=out.validation,
        checkpoints=checkpoints,
        resume=True,
        callbacks=[HistoryFile(fold.folder / "history.jsonl"), *callbacks, StopOnSignal(checkpoints)],
    )
    count, metrics, answers = out.evaluate(model, held_out)
    if out.PREDICTIONS_FILE.endswith(".json"):
        replace_text(fold.folder / out.PREDICTIONS_FILE, json_text(answers) + "\n")
    else:
        with replacing(fold.folder / out.PREDICTIONS_FILE) as fresh, open(fresh, "wb") as file:
            np.save(file, answers, allow_pickle=False)
    return finish(fold, model, count, metrics)


def answers_of(out: OutOfFold, folder: Path, held_out: np.ndarray) -> Any:
    """The saved predictions of a finished fold, one per example.

    Raises:
        DataError: they belong to other examples than the data have now.
    """
    path = folder / out.PREDICTIONS_FILE
    is_json = path.suffix == ".json"
    saved = json.loads(path.read_text(encoding="utf-8")) if is_json else np.load(path, allow_pickle=False)
    if (answers := out.per_example(saved, held_out)) is None:
        what = f"has predictions for other {out.NOUN} than the data have now"
        raise DataChangedError(what, where=str(folder), fix="Choose another --out")
    return answers


def _check_folder(folder: Path, recipe: Any, folds: int) -> None:
    check_folder_path(folder)
    if not folder.is_dir() or is_empty_folder(folder):
        return
    config, plan = folder / "config.toml", folder / PLAN
    if not (config.is_file() and plan.is_file()):
        fix = "Choose another --out"
        raise ExistsError("exists and is not a cross-validation of ours", where=str(folder), fix=fix)
    existing_folds = json.loads(plan.read_text(encoding="utf-8"))["folds"]
    is_same_recipe = relevant_settings(build_recipe(read_toml(config), str(config))) == relevant_settings(
        recipe
    )
    if existing_folds != folds or not is_same_recipe:
        what = (
            f"holds {existing_folds} folds, not {folds}"
            if is_same_recipe
            else "holds a cross-validation of another recipe"
        )
        raise OtherRunError(what, where=str(folder), fix="Choose another --out, or the same recipe and folds")


def read_plan(folder: Path, examples: int) -> np.ndarray | None:
    """The fold of each example from the folder's plan; None: no plan, or one for other data."""
    plan = folder / PLAN
    if not plan.is_file():
        return None
    fold_numbers = np.array(json.loads(plan.read_text(encoding="utf-8"))["assignment"], np.int64)
    return fold_numbers if len(fold_numbers) == examples else None


def write_plan(folder: Path, recipe: Any, fold_numbers: np.ndarray, folds: int, splits: Any) -> None:
    """Create the folder, and write the recipe and the plan.

    Raises:
        DataError: the folder has finished folds of other data.
    """
    data = data_digest(splits)
    plan = {"folds": folds, "assignment": fold_numbers.tolist(), "data_sha256": data}
    if any(folder.glob(f"fold-*/{MARKER}")):
        old_plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        if old_plan.get("data_sha256", data) != data or len(old_plan["assignment"]) != len(fold_numbers):
            what = "has finished folds of other data: the examples or labels have changed since then"
            raise DataChangedError(what, where=str(folder), fix="Choose another --out, or remove this folder")
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / "config.toml", to_toml(recipe))
    replace_text(folder / PLAN, json_text(plan, ascii=True) + "\n")


def data_digest(splits: Any) -> str:
    """SHA-256 of training and validation data: examples and targets."""
    out = hashlib.sha256()
    for split in (splits.train, splits.validation):
        if split is None:
            continue
        for line in content_lines(split):
            out.update(line)
    return out.hexdigest()


def each_fold(
    folder: Path, fold_numbers: np.ndarray, folds: int, say: Callable[[str], None], started: float
) -> Iterator[tuple[Fold, Callable[[str], None]]]:
    """Yield each fold, with a function that logs its result and the remaining time."""
    for k in range(folds):
        fold = Fold(
            k, np.flatnonzero(fold_numbers != k), np.flatnonzero(fold_numbers == k), folder / f"fold-{k}"
        )
        is_finished = (fold.folder / MARKER).is_file()

        def log_fold(summary: str, k: int = k, is_finished: bool = is_finished) -> None:
            rest = (time.perf_counter() - started) / (k + 1) * (folds - k - 1)
            when = " (kept)" if is_finished else f" (about {time_left(rest)} left)" if rest else ""
            say(f"fold {k + 1} of {folds}: {summary}{when}")

        yield fold, log_fold


def saved_metrics(fold: Fold) -> dict[str, Any] | None:
    """The metrics of a finished fold; otherwise None, and its folder is created."""
    marker = fold.folder / MARKER
    if marker.is_file():
        return json.loads(marker.read_text(encoding="utf-8"))
    with disk_errors(fold.folder):
        fold.folder.mkdir(parents=True, exist_ok=True)
    return None


def finish(fold: Fold, estimator: Any, count: int, metrics: dict[str, Any]) -> dict[str, Any]:
    """Write the fold's metrics and facts, and delete its checkpoints."""
    metrics = {
        "fold": fold.number,
        "n": count,
        "trained_on": len(fold.train),
        **metrics,
        "seconds": estimator.train_seconds_,
        "weights_source": estimator.weights_source_,
        "parameters": sum(p.numel() for p in estimator.model_.parameters()),
    }
    replace_text(fold.folder / MARKER, json_text(metrics, ascii=True) + "\n")
    shutil.rmtree(fold.folder / CHECKPOINTS, ignore_errors=True)
    return metrics


def facts(
    per_fold: Sequence[dict[str, Any]], keys: Sequence[str], recipe: Any, started: float, *packages: str
) -> dict[str, Any]:
    """The entries of metrics.json that do not depend on the task: folds, machine, time."""
    return {
        "train": None,
        "validation": None,
        "judged": NAME,
        "folds": list(per_fold),
        "over_folds": over_folds(per_fold, keys),
        "baselines": {},
        "weights_source": per_fold[0]["weights_source"],
        "parameters": per_fold[0]["parameters"],
        "seconds": {"train": sum(f["seconds"] for f in per_fold), "total": time.perf_counter() - started},
        "peak_memory_mb": peak_memory_mb(),
        "machine": machine_facts(),
        "versions": versions(*packages),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": recipe.train.seed,
    }


def over_folds(per_fold: Sequence[dict[str, Any]], keys: Sequence[str]) -> dict[str, dict[str, float]]:
    """Mean, standard deviation and range of each metric. Since folds share most of their training examples,
    ``sd / sqrt(k)`` is not a standard error."""
    out = {}
    for key in (key for key in keys if all(fold.get(key) is not None for fold in per_fold)):
        values = np.array([fold[key] for fold in per_fold])
        spread = {"mean": values.mean(), "sd": values.std(ddof=1), "min": values.min(), "max": values.max()}
        out[key] = {name: float(value) for name, value in spread.items()}
    return out
