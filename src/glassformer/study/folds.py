"""Cross-validation of a recipe: k trainings, each judged on its unseen part, every example once.

    FOLDER/config.toml  folds.json  fold-0/fold.json, probabilities.npy ...  and then, as a run has them,
    metrics.json (the out-of-fold figures)  predictions.csv (out-of-fold)  report.html

The recipe's test split is not touched. A fold that is finished is kept; a broken one goes on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import replace_text, replacing
from glassformer.checkpoints.locks import holds_nothing, writing
from glassformer.config import plain, read_toml
from glassformer.data.copies import groups_of
from glassformer.data.rejected import summary
from glassformer.data.splits import labelled, stratified_folds
from glassformer.errors import ConfigError
from glassformer.evaluate.metrics import measures_of
from glassformer.evaluate.numbers import FIGURES as OF_NUMBERS
from glassformer.evaluate.predictions import write_numbers, write_predictions
from glassformer.finite import json_text
from glassformer.outputs import check_folder_path
from glassformer.study.answer_folds import run_answer_folds
from glassformer.study.fold import (
    NAME,
    PLAN,
    Fold,
    begin,
    begun_plan,
    each_fold,
    end,
    facts,
    fit,
    kept,
)
from glassformer.study.pair_folds import run_pair_folds
from glassformer.study.word_folds import run_word_folds
from glassformer.tasks.catalog import TASKS, build_recipe, check_classifies, known_recipe
from glassformer.tasks.labelled import measure_of
from glassformer.tasks.run_folder import as_begun, what_decides
from glassformer.tasks.target_sets import spread
from glassformer.tasks.task import Work
from glassformer.train.callbacks import Callback

FIGURES = ("accuracy", "macro_f1", "micro_f1", "log_loss", *OF_NUMBERS)  # the third of several labels
Say = Callable[[str], None]


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
    check_classifies(recipe, words=True, answers=True, pairs=True)
    if folds < 2:
        raise ConfigError(f"{folds} folds", where="folds", fix="Use 2 or more")
    _check_folder(folder, recipe, folds)
    with writing(folder):
        _check_folder(folder, recipe, folds)  # another process may have begun one meanwhile
        task = TASKS[recipe.task]
        if task.each_word or task.each_answer or task.pairs:
            run = run_word_folds if task.each_word else run_answer_folds
            run = run_pair_folds if task.pairs else run
            return run(recipe, folder, folds, say, callbacks, started)
        return _run_folds(recipe, folder, folds, say, callbacks, started)


def _run_folds(
    recipe: Any,
    folder: Path,
    folds: int,
    say: Say,
    callbacks: Sequence[Callback],
    started: float,
) -> dict[str, Any]:
    recipe, _ = as_begun(recipe, folder)
    splits = TASKS[recipe.task].load(recipe)
    train, names = splits.train, splits.train.names()
    TASKS[recipe.task].look(
        Work(TASKS[recipe.task], recipe, folder, say, data=splits)
    )  # refuses bad pictures
    numbers = _assignment(recipe, train, folder, folds)
    begin(folder, recipe, numbers, folds, splits)
    for line in getattr(splits.dataset, "said", ()):
        say(line)
    if rejected := getattr(splits.dataset, "rejected", ()):
        say(summary(rejected, listed=False))
    say(f"{len(train):,} examples in {folds} folds")
    kind = TASKS[recipe.task].estimator.kind_for(train.labels)
    classes = np.asarray(kind.classes(train.labels))
    targets = kind.numbered(train.labels, classes.tolist(), train.origin, train.rows)
    out, chosen = np.empty((len(train), len(classes))), np.empty(targets.shape, targets.dtype)
    found, measure = [], kind.measure or measure_of(recipe)
    called = {**measures_of({"kind": "labels" if kind.binary else None}), **OF_NUMBERS}
    for fold, told in each_fold(folder, numbers, folds, say, started):
        figures = run_fold(fold, recipe, train, labelled(splits.validation), callbacks)
        out[fold.held] = p = np.load(fold.folder / "probabilities.npy", allow_pickle=False)
        chosen[fold.held] = kind.chosen(p, figures.get("threshold"))
        found.append(figures)
        said = f"{called[measure]} {(figures[measure] or 0.0):.4f}"
        told(said)
    meter = kind.meter(classes.tolist())
    meter.update(out, targets, predicted=chosen)
    metrics = {
        "test": meter.result(recipe.evaluate.bootstrap),
        "measure": measure,
        **facts(found, FIGURES, recipe, started, "scikit-learn"),
        "label_names": [str(c) for c in classes.tolist()],
    }
    if not kind.labels_given:
        about: dict[str, Any] = {"labels": train.labels, "rows": train.rows, "split": NAME}
        write_numbers(folder / "predictions.csv", names, out[:, 0].tolist(), **about)
        return _reported(recipe, folder, metrics | {"numbers": {"held_out": 0}, "intervals": []})
    write_predictions(
        folder / "predictions.csv",
        names,
        out,
        classes.tolist(),
        labels=list(train.labels),
        predicted=kind.labels(chosen.astype(bool) if kind.binary else chosen, classes).tolist(),
        shares=kind.sureness(out, chosen).tolist(),
        rows=train.rows,
        split=NAME,
    )
    return _reported(recipe, folder, metrics)


def _reported(recipe: Any, folder: Path, metrics: dict[str, Any]) -> dict[str, Any]:
    """The metrics, once they and their page are written."""
    replace_text(folder / "metrics.json", json_text(metrics, indent=1) + "\n")
    TASKS[recipe.task].page(folder, known_recipe(folder))
    return metrics


def _assignment(recipe: Any, train: Any, folder: Path, folds: int) -> np.ndarray:
    """The fold of each example; a cross-validation that goes on has those that it began with."""
    if (begun := begun_plan(folder, len(train))) is not None:
        return begun
    d = recipe.data
    together = d.copies in ("together", "sides")
    groups = groups_of(train, d.copies == "sides") if together else train.names()
    return stratified_folds(train.labels, folds, d.split_seed, groups, blocks=d.hold_out == "blocks")


def run_fold(
    fold: Fold, recipe: Any, train: Any, validation: Any, callbacks: Sequence[Callback] = ()
) -> dict[str, Any]:
    """Train and judge one fold from wherever it stands; a finished one is left as it is. Returns its figures.

    Args:
        train, validation: splits with labels; None: no split chooses.
    """
    if (before := kept(fold)) is not None:
        return before
    clf = fit(
        fold,
        TASKS[recipe.task].estimator.from_recipe(recipe),
        [train.examples[i] for i in fold.train],
        [train.labels[i] for i in fold.train],
        validation=(validation.examples, validation.labels) if validation is not None else None,
        callbacks=callbacks,
    )
    p, labels = (
        clf.kept_outputs([train.examples[i] for i in fold.held]),
        [train.labels[i] for i in fold.held],
    )
    kind, own, cut = clf.kind_, clf.classes_.tolist(), clf.threshold_
    classes = clf.kind_for(train.labels).classes(train.labels)
    if own != classes:  # a rare label stands in the held part alone: it is never given
        cut = spread(kind.thresholds(cut, own)[None], own, classes, 1.0)[0] if kind.binary else cut
        p = spread(p, own, classes, 0.0)
    meter = kind.meter(classes)
    meter.update(p, kind.numbered(labels, classes, train.origin), predicted=kind.chosen(p, cut))
    scores = meter.result(bootstrap=0)
    figures = {key: scores[key] for key in FIGURES if key in scores}
    if kind.binary:
        figures["threshold"] = plain(cut)
    with replacing(fold.folder / "probabilities.npy") as fresh, open(fresh, "wb") as file:
        np.save(file, p, allow_pickle=False)
    return end(fold, clf, scores["n"], figures)


def _check_folder(folder: Path, recipe: Any, folds: int) -> None:
    check_folder_path(folder)
    if not folder.is_dir() or holds_nothing(folder):
        return
    config, plan = folder / "config.toml", folder / PLAN
    if not (config.is_file() and plan.is_file()):
        raise ConfigError(
            "exists and is no cross-validation of ours", where=str(folder), fix="Choose another --out"
        )
    theirs = json.loads(plan.read_text(encoding="utf-8"))["folds"]
    same = what_decides(build_recipe(read_toml(config), str(config))) == what_decides(recipe)
    if theirs != folds or not same:
        what = f"holds {theirs} folds, not {folds}" if same else "holds a cross-validation of another recipe"
        raise ConfigError(what, where=str(folder), fix="Choose another --out, or the same recipe and folds")
