"""Cross-validation of a recipe.

    FOLDER/config.toml  folds.json  fold-0/fold.json, probabilities.npy ...  and, after the last fold,
    metrics.json (out-of-fold metrics)  predictions.csv (out-of-fold)  report.html

Question answering writes given.json and predictions.jsonl instead of probabilities.npy and predictions.csv,
taggers predictions.conll, and embedders cosines.npy and pairs.csv. The recipe's test split is not used.
Finished folds are not run again, and an interrupted fold resumes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import atomic_replace, disk_errors, replace_text
from glassformer.checkpoints.locks import is_empty_folder, write_lock
from glassformer.config import read_toml, to_toml
from glassformer.data.duplicates import content_lines
from glassformer.data.rejected import skip_message
from glassformer.errors import BadValueError, DataChangedError, ExistsError, OtherRunError
from glassformer.finite import json_text
from glassformer.outputs import check_folder_path
from glassformer.runtime import machine_facts, peak_memory_mb, versions
from glassformer.tasks.catalog import TASKS, build_recipe, check_classifies, known_recipe
from glassformer.tasks.run import relevant_settings, with_run_settings
from glassformer.tasks.task import OUT_OF_FOLD, OutOfFold, RunContext
from glassformer.train.callbacks import Callback, HistoryFile, StopOnSignal, time_left

MARKER = "fold.json"  # written when a fold is finished
PLAN = "folds.json"  # the fold of each example
CHECKPOINTS = "checkpoints"  # sub-folder of a fold; removed after its training
Log = Callable[[str], None]


@dataclass(frozen=True)
class Fold:
    """One fold: the indices of its training and held-out examples, and its folder."""

    number: int
    train: np.ndarray
    held_out: np.ndarray
    folder: Path


def cross_validate(
    recipe: Any,
    folder: str | Path,
    folds: int = 5,
    *,
    log: Log = lambda line: None,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Cross-validate a recipe on its training examples. Finished folds are not run again.

    Copies of an example are in the same fold, because a model must not be evaluated on its training examples.
    The recipe's validation split, if there is one, selects the best epoch in every fold.

    Returns:
        The contents of metrics.json: metrics of all out-of-fold predictions (``test``), of each fold
        (``folds``), and their mean, standard deviation and range (``over_folds``).

    Raises:
        ConfigError: fewer than two folds, a folder of another recipe, or another process writes to it.
        DataError: a class with fewer examples than folds, or unusable data.
    """
    folder, started = Path(folder), time.perf_counter()
    check_classifies(recipe, folds=True, where=recipe.name)
    if folds < 2:
        raise BadValueError(f"{folds} folds", where="folds", fix="Use 2 or more")
    _check_folder(folder, recipe, folds)
    with write_lock(folder):
        _check_folder(folder, recipe, folds)  # once more: another process may have written to it
        recipe, _ = with_run_settings(recipe, folder)
        task = TASKS[recipe.task]
        splits = task.load(recipe)
        task.preview_data(RunContext(task, recipe, folder, log, data=splits))  # raises errors for bad data
        assert task.folds is not None
        out: OutOfFold = task.folds(recipe, splits, task.estimator)
        old_plan = read_plan(folder, len(splits.train))
        fold_numbers = out.assign(folds) if old_plan is None else old_plan
        write_plan(folder, recipe, fold_numbers, folds, splits)
        for line in getattr(splits.dataset, "messages", ()):
            log(line)
        if rejected := getattr(splits.dataset, "rejected", ()):
            log(skip_message(rejected, is_listed=False))
        log(f"{len(splits.train):,} {out.NOUN} in {folds} folds")
        predictions: list[Any] = [None] * len(out.train)
        per_fold = []
        for k in range(folds):
            held_out = fold_numbers == k
            fold = Fold(k, np.flatnonzero(~held_out), np.flatnonzero(held_out), folder / f"fold-{k}")
            was_finished = (fold.folder / MARKER).is_file()
            per_fold.append(run_fold(fold, out, callbacks))
            fold_predictions = load_fold_predictions(out, fold.folder, fold.held_out)
            for index, prediction in zip(fold.held_out.tolist(), fold_predictions, strict=True):
                predictions[index] = prediction
            seconds_left = (time.perf_counter() - started) / (k + 1) * (folds - k - 1)
            note = f" (about {time_left(seconds_left)} left)" if seconds_left else ""
            note = " (kept)" if was_finished else note
            log(f"fold {k + 1} of {folds}: {out.summary(per_fold[-1])}{note}")
        metrics = out.pooled_metrics(folder, predictions, fold_numbers, per_fold)
        metrics |= facts(per_fold, out.METRICS, recipe, started, *out.PACKAGES)
        replace_text(folder / "metrics.json", json_text(metrics, indent=1) + "\n")
        task.render_report(folder, known_recipe(folder))
        return metrics


def run_fold(fold: Fold, out: OutOfFold, callbacks: Sequence[Callback] = ()) -> dict[str, Any]:
    """Train (or resume) and evaluate one fold, and return its metrics. A finished fold is only read."""
    marker = fold.folder / MARKER
    if marker.is_file():
        return json.loads(marker.read_text(encoding="utf-8"))
    with disk_errors(fold.folder):
        fold.folder.mkdir(parents=True, exist_ok=True)
    training, held_out = out.train.select(fold.train.tolist()), out.train.select(fold.held_out.tolist())
    checkpoints = fold.folder / CHECKPOINTS
    calls = [HistoryFile(fold.folder / "history.jsonl"), *callbacks, StopOnSignal(checkpoints)]
    options = {"validation": out.validation, "checkpoints": checkpoints, "resume": True, "callbacks": calls}
    model = out.estimator.from_recipe(out.recipe).fit(*out.fit_arguments(training), **options)
    count, metrics, predictions = out.evaluate(model, held_out)
    if out.PREDICTIONS_FILE.endswith(".json"):
        replace_text(fold.folder / out.PREDICTIONS_FILE, json_text(predictions) + "\n")
    else:
        with atomic_replace(fold.folder / out.PREDICTIONS_FILE) as temporary, open(temporary, "wb") as file:
            np.save(file, predictions, allow_pickle=False)
    metrics = {"fold": fold.number, "n": count, "trained_on": len(fold.train), **metrics}
    metrics |= {"seconds": model.train_seconds_, "weights_source": model.weights_source_}
    metrics["parameters"] = sum(p.numel() for p in model.model_.parameters())
    replace_text(marker, json_text(metrics, ascii=True) + "\n")
    shutil.rmtree(checkpoints, ignore_errors=True)
    return metrics


def load_fold_predictions(out: OutOfFold, folder: Path, held_out: np.ndarray) -> Any:
    """The saved predictions of a finished fold, one per example.

    Raises:
        DataError: the examples have changed since the predictions were made.
    """
    path = folder / out.PREDICTIONS_FILE
    is_json = path.suffix == ".json"
    saved = json.loads(path.read_text(encoding="utf-8")) if is_json else np.load(path, allow_pickle=False)
    if (predictions := out.per_example(saved, held_out)) is None:
        what = f"the {out.NOUN} have changed since these predictions were made"
        raise DataChangedError(what, where=str(folder), fix="Choose another --out")
    return predictions


def _check_folder(folder: Path, recipe: Any, folds: int) -> None:
    """Raise an error unless the folder is new or empty, or has a cross-validation of this recipe."""
    check_folder_path(folder)
    if not folder.is_dir() or is_empty_folder(folder):
        return
    config, plan = folder / "config.toml", folder / PLAN
    if not (config.is_file() and plan.is_file()):
        fix = "Choose another --out"
        what = "exists and is not the folder of a cross-validation"
        raise ExistsError(what, where=str(folder), fix=fix)
    fix = "Choose another --out, or the same recipe and folds"
    if relevant_settings(build_recipe(read_toml(config), str(config))) != relevant_settings(recipe):
        raise OtherRunError("contains a cross-validation of another recipe", where=str(folder), fix=fix)
    existing_folds = json.loads(plan.read_text(encoding="utf-8"))["folds"]
    if existing_folds != folds:
        raise OtherRunError(f"contains {existing_folds} folds, not {folds}", where=str(folder), fix=fix)


def read_plan(folder: Path, examples: int) -> np.ndarray | None:
    """The fold of each example ``[n]`` from the folder's plan; None without a plan for these data."""
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
            what = "the examples or labels have changed since the finished folds were trained"
            raise DataChangedError(what, where=str(folder), fix="Choose another --out, or remove this folder")
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / "config.toml", to_toml(recipe))
    replace_text(folder / PLAN, json_text(plan, ascii=True) + "\n")


def data_digest(splits: Any) -> str:
    """The SHA-256 of the training and validation data (examples and targets)."""
    digest = hashlib.sha256()
    for split in filter(None, (splits.train, splits.validation)):
        for line in content_lines(split):
            digest.update(line)
    return digest.hexdigest()


def facts(
    per_fold: Sequence[dict[str, Any]], keys: Sequence[str], recipe: Any, started: float, *packages: str
) -> dict[str, Any]:
    """The entries of metrics.json that all tasks have, such as folds, machine and time."""
    return {
        "train": None,
        "validation": None,
        "judged": OUT_OF_FOLD,
        "folds": list(per_fold),
        "over_folds": summarize_folds(per_fold, keys),
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


def summarize_folds(per_fold: Sequence[dict[str, Any]], keys: Sequence[str]) -> dict[str, dict[str, float]]:
    """Mean, standard deviation and range of each metric that all folds have."""
    out = {}
    for key in (key for key in keys if all(fold.get(key) is not None for fold in per_fold)):
        values = np.array([fold[key] for fold in per_fold])
        statistics = {
            "mean": values.mean(),
            "sd": values.std(ddof=1),
            "min": values.min(),
            "max": values.max(),
        }
        out[key] = {name: float(value) for name, value in statistics.items()}
    return out
