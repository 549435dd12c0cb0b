"""Cross-validation of an embedder: k trainings, each judged on pairs whose first texts it has not seen.

FOLDER/config.toml  folds.json  fold-0/fold.json, cosines.npy ...  and then, as a run has them,
metrics.json (the out-of-fold figures)  pairs.csv (out-of-fold)  report.html
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import disk_errors, replace_text, replacing
from glassformer.data.copies import groups_of
from glassformer.data.rejected import summary
from glassformer.data.scored_pairs import ScoredSplit
from glassformer.data.splits import stratified_folds
from glassformer.errors import DataError
from glassformer.study.fold import MARKER, NAME, Fold, begin, begun_plan, each_fold, facts
from glassformer.tasks.catalog import TASKS, known_recipe
from glassformer.tasks.run_folder import as_begun
from glassformer.train.callbacks import Callback, HistoryFile, StopOnSignal

COSINES = "cosines.npy"  # of a fold: the cosine of each of its pairs
FIGURES = ("spearman", "pearson", "found", "reciprocal_rank")  # the last two of pairs without scores
Say = Callable[[str], None]


def run_pair_folds(
    recipe: Any, folder: Path, folds: int, say: Say, callbacks: Sequence[Callback], started: float
) -> dict[str, Any]:
    """As ``folds.cross_validate``, whose checks are over; figures are those of the task's ``pairs``.

    Of pairs without scores partners are looked for within a fold, and figures are means over its pairs.

    Raises:
        DataError: fewer first texts than folds, or unusable data.
    """
    recipe, _ = as_begun(recipe, folder)
    task = TASKS[recipe.task]
    splits = task.load(recipe)
    train: ScoredSplit = splits.train
    numbers = _assignment(recipe, train, folder, folds)
    begin(folder, recipe, numbers, folds)
    if rejected := splits.dataset.rejected:
        say(summary(rejected, listed=False))
    say(f"{len(train):,} pairs in {folds} folds")
    cosines, found = np.empty(len(train)), []
    for fold, told in each_fold(folder, numbers, folds, say, started):
        found.append(run_pair_fold(fold, recipe, train, splits.validation, callbacks))
        own = np.load(fold.folder / COSINES, allow_pickle=False)
        if own.shape != fold.held.shape:
            what = "has cosines of other pairs than the data hold now"
            raise DataError(what, where=str(fold.folder), fix="Choose another --out")
        cosines[fold.held] = own
        measure = next(key for key in FIGURES if key in found[-1])
        told(f"{measure} {found[-1][measure]:.4f}")
    assert task.pairs is not None
    test = task.pairs.together(train, cosines, found, recipe.evaluate.bootstrap)
    task.pairs.write(folder / "pairs.csv", train, cosines)
    metrics = {
        "task": recipe.task,
        "test": test,
        "similarity": {NAME: test},
        "columns": list(splits.dataset.columns),
        "measure": next(key for key in FIGURES if key in test),
        **facts(found, FIGURES, recipe, started, "tokenizers", "safetensors"),
    }
    replace_text(folder / "metrics.json", json.dumps(metrics, indent=1, ensure_ascii=False) + "\n")
    task.page(folder, known_recipe(folder))
    return metrics


def _assignment(recipe: Any, train: ScoredSplit, folder: Path, folds: int) -> np.ndarray:
    """The fold of each pair: all pairs with one first text in one."""
    if (begun := begun_plan(folder, len(train))) is not None:
        return begun
    groups = groups_of(train)
    if (count := len(set(groups))) < folds:
        what = f"{count} different first texts for {folds} folds"
        raise DataError(what, where=train.origin, fix="Use fewer folds, or give more texts")
    return stratified_folds(["pair"] * len(train), folds, recipe.data.split_seed, groups)


def run_pair_fold(
    fold: Fold,
    recipe: Any,
    train: ScoredSplit,
    validation: ScoredSplit | None,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Train and judge one fold from wherever it stands; a finished one is left as it is. Its figures."""
    marker = fold.folder / MARKER
    if marker.is_file():
        return json.loads(marker.read_text(encoding="utf-8"))
    with disk_errors(fold.folder):
        fold.folder.mkdir(parents=True, exist_ok=True)
    task = TASKS[recipe.task]
    assert task.pairs is not None
    model, checkpoints = task.estimator.from_recipe(recipe), fold.folder / "checkpoints"
    own, held = train.select(fold.train.tolist()), train.select(fold.held.tolist())
    model.fit(
        *task.pairs.given(own),
        validation=None if validation is None else task.pairs.given(validation),
        checkpoints=checkpoints,
        resume=True,
        callbacks=[HistoryFile(fold.folder / "history.jsonl"), *callbacks, StopOnSignal(checkpoints)],
    )
    scores, cosines = task.pairs.figures(model, held, 0)
    figures = {
        "fold": fold.number,
        "n": len(held),
        "trained_on": len(own),
        **{key: scores[key] for key in FIGURES if key in scores},
        "seconds": model.train_seconds_,
        "weights_source": model.weights_source_,
        "parameters": sum(p.numel() for p in model.model_.parameters()),
    }
    with replacing(fold.folder / COSINES) as fresh, open(fresh, "wb") as file:
        np.save(file, cosines, allow_pickle=False)
    replace_text(marker, json.dumps(figures) + "\n")
    shutil.rmtree(checkpoints, ignore_errors=True)
    return figures
