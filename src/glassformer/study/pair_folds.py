"""Cross-validation of an embedder: k trainings, each judged on pairs whose first texts it has not seen.

FOLDER/config.toml  folds.json  fold-0/fold.json, cosines.npy ...  and then, as a run has them,
metrics.json (the out-of-fold figures)  pairs.csv (out-of-fold)  report.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import replace_text, replacing
from glassformer.data.rejected import summary
from glassformer.data.scored_pairs import ScoredSplit
from glassformer.errors import DataError
from glassformer.finite import json_text
from glassformer.study.fold import NAME, Fold, begin, each_fold, end, facts, fit, in_groups, kept
from glassformer.tasks.catalog import TASKS, known_recipe
from glassformer.tasks.run_folder import as_begun
from glassformer.train.callbacks import Callback

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
    numbers = in_groups(recipe, train, folder, folds, "pair", "first texts")
    begin(folder, recipe, numbers, folds, splits)
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
    replace_text(folder / "metrics.json", json_text(metrics, indent=1) + "\n")
    task.page(folder, known_recipe(folder))
    return metrics


def run_pair_fold(
    fold: Fold,
    recipe: Any,
    train: ScoredSplit,
    validation: ScoredSplit | None,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Train and judge one fold from wherever it stands; a finished one is left as it is. Its figures."""
    if (before := kept(fold)) is not None:
        return before
    task = TASKS[recipe.task]
    assert task.pairs is not None
    own, held = train.select(fold.train.tolist()), train.select(fold.held.tolist())
    model = fit(
        fold,
        task.estimator.from_recipe(recipe),
        *task.pairs.given(own),
        validation=None if validation is None else task.pairs.given(validation),
        callbacks=callbacks,
    )
    scores, cosines = task.pairs.figures(model, held, 0)
    with replacing(fold.folder / COSINES) as fresh, open(fresh, "wb") as file:
        np.save(file, cosines, allow_pickle=False)
    return end(fold, model, len(held), {key: scores[key] for key in FIGURES if key in scores})
