"""What a run of a text regressor is made of.

It leaves ``predictions.csv`` and ``numbers.json`` (points of the figures, the examples furthest off) beside
what every run leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from glassformer.data.copies import groups_of
from glassformer.data.dataset import TextDataset, TextSplit
from glassformer.data.doctor import DoctorReport, examine
from glassformer.data.mending import mended
from glassformer.data.scored_pairs import SCORED_SOURCES, load_scored_pairs
from glassformer.data.sources import load_text_dataset
from glassformer.data.splits import Splits
from glassformer.data.text_pairs import TextPair
from glassformer.errors import DataError
from glassformer.targets.regression import Numbers, tfidf_ridge
from glassformer.tasks.export import export
from glassformer.tasks.folds import LabelsOutOfFold
from glassformer.tasks.frozen import fit_frozen, left_out
from glassformer.tasks.labelled import cut_texts
from glassformer.tasks.number_runs import (
    again,
    answers,
    findings,
    fit,
    judge_numbers,
    said_of_intervals,
    said_of_rows,
    show,
    split_numbers,
    without_labels,
)
from glassformer.tasks.task import TINY, TINY_TEXTS, Look, Task, Work, page_of
from glassformer.tasks.text_regression.estimator import TextRegressor
from glassformer.tasks.text_regression.recipe import NumberDataConfig, TextNumberRecipe


def load(recipe: TextNumberRecipe, source: str | None = None, trained: Sequence[str] | None = None) -> Splits:
    """The texts of a recipe and their numbers, split as it says; or those of another source, as they are.

    Args:
        trained: columns of texts, for another source; see ``load_text_dataset``.

    Raises:
        DataError: no such source, no training split, no column of numbers.
    """
    d = recipe.data
    part: dict[str, Any] = {"limit": d.limit, "seed": d.split_seed} if source is None else {}
    dataset = read(d, d.source if source is None else source, trained=trained, **part)
    dataset, said = mended(dataset, "none", d.drop_duplicates and source is None)
    dataset = replace(dataset, said=(*dataset.said, *said))
    return split_numbers(dataset, recipe, source)


def read(d: NumberDataConfig, source: str, trained: Sequence[str] | None = None, **part: Any) -> TextDataset:
    """Texts with their numbers, by name or from tables, there in the columns ``trained``.

    Raises:
        DataError: as ``load``.
    """
    if source in SCORED_SOURCES:
        pairs = load_scored_pairs(source, on_bad_row=d.on_bad_row, **part)
        splits = {
            name: TextSplit(
                [TextPair(a, b) for a, b in zip(split.first, split.second, strict=True)],
                split.scores,
                split.origin,
                split.rows,
            )
            for name, split in pairs.splits.items()
        }
        return TextDataset(pairs.name, splits, rejected=tuple(pairs.rejected))
    return load_text_dataset(
        source,
        text_column=d.text_column,
        label_column=d.label_column,
        pair_column=d.pair_column,
        need_labels=True,
        on_bad_row=d.on_bad_row,
        numbers=True,
        number_format=d.number_format,
        trained=trained,
        **part,
    )


def look(work: Work) -> Look:
    """What is said of the data, and what the validation examples are too few for."""
    splits = work.data
    if splits.judged is not None and splits.judged.labels is None:
        raise DataError("no numbers to judge by", where=splits.judged.origin, fix="Name label_column")
    dataset = splits.dataset
    lines = [*dataset.said, *said_of_rows(dataset), f"{dataset.name}: {splits.sizes()}, numbers"]
    lines += said_of_intervals(splits)
    return Look(lines, dataset.rejected, lambda: _examine(work))


def _examine(work: Work) -> DoctorReport:
    """The data as they are trained on, with the tokenizer that reads them."""
    est, splits, scale = work.estimator, work.data, work.recipe.train.number_scale
    report = examine(
        without_labels(splits.dataset, splits),
        tokenizer=est.tokenizer_ if est.reads_tokens else None,
        max_length=est.max_length,
        clean=work.recipe.text.clean,
    )
    return replace(report, findings=[*report.findings, *findings(splits, groups_of, scale)])


def judge(work: Work) -> dict[str, Any]:
    """Figures of the splits beside the baselines, and how many texts were cut."""
    est, splits = work.estimator, work.data
    cut = {"truncated": cut_texts(est, splits)} if est.reads_tokens else {}
    tried = {"tried": list(est.tried_)} if est.tried_ else {}
    absent = left_out(est) if work.recipe.evaluate.baselines else {}
    more = {"baselines_left_out": absent} if absent else {}
    return judge_numbers(work, tfidf_ridge, partial(frozen_ridge, est)) | cut | tried | more


def frozen_ridge(
    est: Any, train: Sequence[Any], numbers: np.ndarray, judged: Sequence[Any]
) -> tuple[str, np.ndarray] | None:
    """Ridge regression on the vectors of a frozen encoder, where its weights are at hand and the model is not
    this one: its name, and numbers ``[m]``."""
    fitted = fit_frozen(est, train, numbers.tolist())
    return None if fitted is None else (f"{fitted[0]} + ridge", fitted[1].predict(judged))


def tiny() -> tuple[TextRegressor, tuple]:
    """How many letters has a text?"""
    settings: dict[str, Any] = {**TINY, "max_length": 16, "min_count": 1}
    return TextRegressor("encoder-mini", **settings), (TINY_TEXTS, [float(len(t)) for t in TINY_TEXTS])


TASK = Task(
    name="text-regression",
    recipe=TextNumberRecipe,
    estimator=TextRegressor,
    gives="numbers",
    target=Numbers(),
    load=load,
    look=look,
    fit=fit,
    judge=judge,
    again=again,
    page=page_of("numbers"),
    tiny=tiny,
    show=show,
    answer=answers,
    folds=LabelsOutOfFold,
    export=export,
    packages=("tokenizers", "safetensors", "scikit-learn"),
)
