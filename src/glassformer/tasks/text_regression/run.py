"""Numbers of texts: what is particular to their runs.

A run leaves ``predictions.csv`` and ``numbers.json`` (points of the figures, the examples furthest off)
beside what every run leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.inputs.texts import Texts
from glassformer.targets.regression import Numbers, as_baseline, mean_number, tfidf_ridge
from glassformer.tasks.frozen import fit_frozen, left_out
from glassformer.tasks.labelled import judge, labelled, show_numbers
from glassformer.tasks.task import Work
from glassformer.tasks.text_regression.estimator import TextRegressor
from glassformer.tasks.text_regression.recipe import TextNumberRecipe


def frozen_ridge(
    est: Any, train: Sequence[Any], numbers: np.ndarray, judged: Sequence[Any]
) -> tuple[str, np.ndarray] | None:
    """Ridge regression on the vectors of a frozen encoder, where its weights are at hand and the model is not
    this one: its name, and numbers ``[m]``."""
    fitted = fit_frozen(est, train, numbers.tolist())
    return None if fitted is None else (f"{fitted[0]} + ridge", fitted[1].predict(judged))


def judge_texts(work: Work) -> dict[str, Any]:
    """As ``judge``, and which baseline is not there."""
    absent = left_out(work.estimator) if work.recipe.evaluate.baselines else {}
    return judge(work) | ({"baselines_left_out": absent} if absent else {})


TASK = labelled(
    "text-regression",
    TextNumberRecipe,
    TextRegressor,
    Texts(),
    Numbers(),
    tiny=lambda text: float(len(text)),  # how many letters has a text?
    page="numbers",
    judge=judge_texts,
    show=show_numbers,
    baselines=(mean_number, as_baseline(tfidf_ridge), as_baseline(frozen_ridge)),
)
