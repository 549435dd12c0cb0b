"""Cross-validation of what tags words: k trainings, each judged on the sentences that it has not seen.

    FOLDER/config.toml  folds.json  fold-0/fold.json, probabilities.npy ...  and then, as a run has them,
    metrics.json (the out-of-fold figures)  predictions.conll (out-of-fold)  report.html

``probabilities.npy`` of a fold has a row for each word of its sentences, ``[W, C]``, and a column for each
tag of ``label_names`` in metrics.json.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import replace_text, replacing
from glassformer.data.copies import groups_of
from glassformer.data.rejected import summary
from glassformer.data.splits import labelled, stratified_folds
from glassformer.data.tagged import TaggedSplit, conll
from glassformer.data.tags import Scheme, classes_of, read_tags, repaired, spans_of
from glassformer.errors import DataError
from glassformer.evaluate.tags import MEASURE, tag_figures, word_log_loss
from glassformer.finite import json_text
from glassformer.report.tags import write_tag_report
from glassformer.study.fold import Fold, begin, begun_plan, each_fold, end, facts, fit, kept
from glassformer.tasks.catalog import TASKS, known_recipe
from glassformer.tasks.run_folder import as_begun
from glassformer.train.callbacks import Callback

FIGURES = (MEASURE, "precision", "recall", "accuracy", "log_loss")
Say = Callable[[str], None]


def run_word_folds(
    recipe: Any, folder: Path, folds: int, say: Say, callbacks: Sequence[Callback], started: float
) -> dict[str, Any]:
    """As ``folds.cross_validate``, whose checks are over; figures are those of ``evaluate.tags``.

    Raises:
        DataError: fewer sentences than folds, one tag alone, or unusable data.
    """
    recipe, _ = as_begun(recipe, folder)
    splits = TASKS[recipe.task].load(recipe)
    train: TaggedSplit = splits.train
    tags = train.tags or []
    scheme = read_tags(tags, recipe.text.scheme).scheme
    truth = [repaired(own, scheme) for own in tags]
    classes = classes_of(truth, scheme)
    if len(classes) < 2:
        raise DataError(f"every word has the tag {classes[0]!r}", where=train.origin)
    numbers = _assignment(recipe, train, scheme, folder, folds)
    begin(folder, recipe, numbers, folds, splits)
    if rejected := splits.dataset.rejected:
        say(summary(rejected, listed=False))
    say(f"{len(train):,} sentences in {folds} folds")
    guesses: list[list[str]] = [[] for _ in truth]
    found = []
    for fold, told in each_fold(folder, numbers, folds, say, started):
        found.append(
            run_word_fold(fold, recipe, train, labelled(splits.validation), classes, scheme, callbacks)
        )
        for i, own in zip(fold.held.tolist(), word_answers(fold.folder, train, fold.held), strict=True):
            guesses[i] = repaired([classes[c] for c in own.argmax(1).tolist()], scheme)
        told(f"entity F1 {found[-1][MEASURE]:.4f}")
    metrics = {
        "task": recipe.task,
        "test": tag_figures(truth, guesses, scheme, bootstrap=recipe.evaluate.bootstrap),
        "measure": MEASURE,
        "scheme": scheme,
        **facts(found, FIGURES, recipe, started, "tokenizers", "safetensors"),
        "label_names": classes,
    }
    replace_text(folder / "predictions.conll", conll(train.words, truth, guesses))
    replace_text(folder / "metrics.json", json_text(metrics, indent=1) + "\n")
    write_tag_report(folder, known_recipe(folder))
    return metrics


def _assignment(recipe: Any, train: TaggedSplit, scheme: Scheme, folder: Path, folds: int) -> np.ndarray:
    """The fold of each sentence: those with spans in equal shares, where there are enough of both."""
    if (begun := begun_plan(folder, len(train))) is not None:
        return begun
    groups = groups_of(train) if recipe.data.copies == "together" else None
    kinds = ["spans" if spans_of(own, scheme) else "none" for own in train.tags or []]
    firsts = dict(zip(groups or range(len(kinds)), kinds, strict=True))
    if len(firsts) < folds:
        what = f"{len(firsts)} different sentences for {folds} folds"
        raise DataError(what, where=train.origin, fix="Use fewer folds, or give more sentences")
    if min(Counter(firsts.values()).values()) < folds:
        kinds = ["sentence"] * len(kinds)
    return stratified_folds(kinds, folds, recipe.data.split_seed, groups)


def run_word_fold(
    fold: Fold,
    recipe: Any,
    train: TaggedSplit,
    validation: TaggedSplit | None,
    classes: Sequence[str],
    scheme: Scheme,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Train and judge one fold from wherever it stands; a finished one is left as it is. Its figures."""
    if (before := kept(fold)) is not None:
        return before
    own, held = train.select(fold.train.tolist()), train.select(fold.held.tolist())
    tagger = fit(
        fold,
        TASKS[recipe.task].estimator.from_recipe(recipe),
        own.words,
        own.tags,
        validation=None if validation is None else (validation.words, validation.tags),
        callbacks=callbacks,
    )
    found = tagger.predict_proba(held.words)
    wide = spread_tags(np.concatenate(found), tagger.classes_.tolist(), classes)
    truth = [repaired(tags, scheme) for tags in held.tags or []]
    scores = tag_figures(truth, tagger.decide(found), scheme, bootstrap=0)
    figures = {key: scores[key] for key in FIGURES if key in scores}
    figures["log_loss"] = word_log_loss(wide, [tag for tags in truth for tag in tags], classes)
    with replacing(fold.folder / "probabilities.npy") as fresh, open(fresh, "wb") as file:
        np.save(file, wide.astype(np.float32), allow_pickle=False)
    return end(fold, tagger, scores["n"], figures)


def spread_tags(p: np.ndarray, own: Sequence[str], classes: Sequence[str]) -> np.ndarray:
    """Probabilities ``[W, len(own)]`` in the columns of ``classes``; a tag that was not learned has 0."""
    out = np.zeros((len(p), len(classes)))
    known = [(i, classes.index(tag)) for i, tag in enumerate(own) if tag in classes]
    out[:, [j for _, j in known]] = p[:, [i for i, _ in known]]
    return out


def word_answers(folder: Path, train: TaggedSplit, held: np.ndarray) -> list[np.ndarray]:
    """What a finished fold gave to the words of each of its sentences, ``[W_i, C]``."""
    rows = np.load(folder / "probabilities.npy", allow_pickle=False)
    counts = [len(train.words[i]) for i in held.tolist()]
    if sum(counts) != len(rows):
        what = "has answers for other sentences than the data hold now"
        raise DataError(what, where=str(folder), fix="Choose another --out")
    return np.split(rows, np.cumsum(counts)[:-1])
