"""What a run of a picture regressor is made of.

It leaves ``predictions.csv`` and ``numbers.json`` (points of the figures, the examples furthest off) beside
what every run leaves.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from glassformer.data.copies import groups_of
from glassformer.data.findings import DoctorReport
from glassformer.data.image import refuse_unreadable
from glassformer.data.image_doctor import examine_pictures
from glassformer.data.image_sources import load_image_dataset
from glassformer.data.mending import mended
from glassformer.data.splits import Splits
from glassformer.targets.regression import Numbers, pixel_ridge
from glassformer.tasks.export import export
from glassformer.tasks.folds import LabelsOutOfFold
from glassformer.tasks.image_data import first_range, leave_out
from glassformer.tasks.image_regression.estimator import ImageRegressor
from glassformer.tasks.image_regression.recipe import ImageNumberRecipe
from glassformer.tasks.number_runs import (
    again,
    answers,
    findings,
    fit,
    judge_numbers,
    said_of_intervals,
    show,
    split_numbers,
    without_labels,
)
from glassformer.tasks.task import TINY, Look, Task, Work, page_of


def load(recipe: ImageNumberRecipe, source: str | None = None) -> Splits:
    """The pictures of a recipe and their numbers, split as it says; or those of another source, as they are.

    Raises:
        DataError: no such source, no training split, no column of numbers.
    """
    d = recipe.data
    part: dict[str, Any] = {"limit": d.limit, "seed": d.split_seed} if source is None else {}
    dataset = load_image_dataset(
        d.source if source is None else source,
        image_column=d.image_column,
        label_column=d.label_column,
        broken=d.broken,
        image_range=recipe.image.image_range,
        numbers=True,
        **part,
    )
    dataset, said = mended(dataset, "none", d.drop_duplicates and source is None)
    dataset = replace(dataset, notes=(*dataset.notes, *said))
    return split_numbers(dataset, recipe, source)


def look(work: Work) -> Look:
    """Pictures that cannot be read are found before the training, not after it.

    Raises:
        DataError: there are some.
    """
    splits = work.data
    used = without_labels(splits.dataset, splits)
    refuse_unreadable(used.splits, first_range(work.recipe.image, work.recipe.model, work.folder))
    lines = [f"{used.name}: {splits.sizes()}, numbers", *said_of_intervals(splits)]

    def doctor() -> DoctorReport:
        scale = work.recipe.train.number_scale
        report = examine_pictures(used.name, used.splits, used.notes, transform=work.estimator.transform_)
        return replace(report, findings=[*report.findings, *findings(splits, groups_of, scale)])

    return Look(lines, doctor=doctor, speak=("warning", "note"))


def judge(work: Work) -> dict[str, Any]:
    """Figures of the splits beside the baselines."""
    est = work.estimator
    tried = {"tried": list(est.tried_)} if est.tried_ else {}
    tokens = {"tokens_per_picture": est.model_.config.embedding.num_tokens}
    return judge_numbers(work, partial(pixel_ridge, image_range=est.transform_.image_range)) | tokens | tried


def tiny() -> tuple[ImageRegressor, tuple]:
    """How bright is a picture?"""
    pictures = list(np.random.default_rng(1).integers(0, 256, (7, 8, 8, 3)).astype(np.uint8))
    settings: dict[str, Any] = {**TINY, "image_size": 8, "patch_size": 4}
    return ImageRegressor(**settings), (pictures, [float(picture.mean()) for picture in pictures])


TASK = Task(
    name="image-regression",
    recipe=ImageNumberRecipe,
    estimator=ImageRegressor,
    gives="numbers",
    target=Numbers(),
    load=load,
    look=look,
    fit=fit,
    judge=judge,
    again=again,
    page=page_of("numbers"),
    leave_out=leave_out,
    tiny=tiny,
    show=show,
    answer=answers,
    folds=LabelsOutOfFold,
    export=export,
    packages=("pillow", "kornia", "safetensors", "scikit-learn"),
)
