"""Cross-validation of what answers from texts: k trainings, each judged on texts that it has not seen.

FOLDER/config.toml  folds.json  fold-0/fold.json, given.json ...  and then, as a run has them,
metrics.json (the out-of-fold figures)  predictions.jsonl (out-of-fold)  report.html
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from glassformer.checkpoints.files import replace_text
from glassformer.data.answered import AnsweredSplit
from glassformer.data.rejected import summary
from glassformer.data.splits import labelled
from glassformer.errors import DataError
from glassformer.evaluate.answers import FIGURES, MEASURE, answer_figures, scores_of
from glassformer.finite import json_text
from glassformer.report.answers import write_answer_report
from glassformer.study.fold import NAME, Fold, begin, each_fold, end, facts, fit, in_groups, kept
from glassformer.tasks.catalog import TASKS, known_recipe
from glassformer.tasks.run_folder import as_begun
from glassformer.train.callbacks import Callback

GIVEN = "given.json"  # of a fold: the answer to each of its questions
Say = Callable[[str], None]


def run_answer_folds(
    recipe: Any, folder: Path, folds: int, say: Say, callbacks: Sequence[Callback], started: float
) -> dict[str, Any]:
    """As ``folds.cross_validate``, whose checks are over; figures are those of ``evaluate.answers``.

    Raises:
        DataError: fewer texts than folds, or unusable data.
    """
    recipe, _ = as_begun(recipe, folder)
    splits = TASKS[recipe.task].load(recipe)
    train: AnsweredSplit = splits.train
    truth = train.answers or []
    numbers = in_groups(recipe, train, folder, folds, "question", "texts")
    begin(folder, recipe, numbers, folds, splits)
    if rejected := splits.dataset.rejected:
        say(summary(rejected, listed=False))
    say(f"{len(train):,} questions in {folds} folds")
    given, found = [""] * len(train), []
    for fold, told in each_fold(folder, numbers, folds, say, started):
        found.append(run_answer_fold(fold, recipe, train, labelled(splits.validation), callbacks))
        own = json.loads((fold.folder / GIVEN).read_text(encoding="utf-8"))
        if len(own) != len(fold.held):
            what = "has answers to other questions than the data hold now"
            raise DataError(what, where=str(fold.folder), fix="Choose another --out")
        for i, text in zip(fold.held.tolist(), own, strict=True):
            given[i] = text
        told(f"F1 {found[-1][MEASURE]:.4f}")
    metrics = {
        "task": recipe.task,
        "test": answer_figures(truth, given, train.texts, bootstrap=recipe.evaluate.bootstrap),
        "measure": MEASURE,
        "threshold": None,
        "answers": {},
        **facts(found, FIGURES, recipe, started, "tokenizers", "safetensors"),
    }
    replace_text(folder / "predictions.jsonl", "".join(_lines(train, given)))
    replace_text(folder / "metrics.json", json_text(metrics, indent=1) + "\n")
    write_answer_report(folder, known_recipe(folder))
    return metrics


def _lines(train: AnsweredSplit, given: Sequence[str]) -> list[str]:
    lines = []
    for i, (question, text) in enumerate(zip(train.questions, given, strict=True)):
        truth = (train.answers or [])[i]
        exact, f1 = scores_of(text, truth)
        line = {"split": NAME, "row": None if train.rows is None else train.rows[i]}
        line |= {"question": question.question, "context": question.context, "answer": text}
        line |= {"answers": truth.to_dict(), "exact_match": exact, "f1": f1}
        lines.append(json_text(line) + "\n")
    return lines


def run_answer_fold(
    fold: Fold,
    recipe: Any,
    train: AnsweredSplit,
    validation: AnsweredSplit | None,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Train and judge one fold from wherever it stands; a finished one is left as it is. Its figures."""
    if (before := kept(fold)) is not None:
        return before
    own, held = train.select(fold.train.tolist()), train.select(fold.held.tolist())
    model = fit(
        fold,
        TASKS[recipe.task].estimator.from_recipe(recipe),
        own.questions,
        own.answers,
        validation=None if validation is None else (validation.questions, validation.answers),
        callbacks=callbacks,
    )
    given = model.predict(held.questions)
    scores = answer_figures(held.answers or [], given, held.texts, bootstrap=0)
    replace_text(fold.folder / GIVEN, json_text(given) + "\n")
    figures = {**{key: scores[key] for key in FIGURES}, "threshold": model.threshold_}
    return end(fold, model, scores["n"], figures)
