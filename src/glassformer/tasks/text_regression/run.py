"""Numbers of texts: what is particular to their runs.

A run leaves ``predictions.csv`` and ``numbers.json`` (points of the figures, the examples furthest off)
beside what every run leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.targets.regression import Numbers, as_baseline, mean_number, tfidf_ridge
from glassformer.tasks.frozen import fit_frozen, left_out
from glassformer.tasks.labelled import evaluate, labelled, show_numbers
from glassformer.tasks.task import RunContext
from glassformer.tasks.text_regression.estimator import TextRegressor
from glassformer.tasks.text_regression.recipe import TextNumberRecipe


def frozen_ridge(
    est: Any, train: Sequence[Any], numbers: np.ndarray, judged: Sequence[Any]
) -> tuple[str, np.ndarray] | None:
    """Ridge regression on the vectors of a frozen encoder, where its weights are at hand and the model is not
    this one: its name, and numbers ``[m]``."""
    fitted = fit_frozen(est, train, numbers.tolist())
    return None if fitted is None else (f"{fitted[0]} + ridge", fitted[1].predict(judged))


def judge_texts(context: RunContext) -> dict[str, Any]:
    """As ``judge``, and which baseline is not there."""
    absent = left_out(context.estimator) if context.recipe.evaluate.baselines else {}
    return evaluate(context) | ({"baselines_left_out": absent} if absent else {})


TASK = labelled(
    "text-regression",
    TextNumberRecipe,
    TextRegressor,
    Numbers(),
    label_of=lambda text: float(len(text)),  # how many letters has a text?
    report="numbers",
    evaluate=judge_texts,
    collect_artifacts=show_numbers,
    baselines=(mean_number, as_baseline(tfidf_ridge), as_baseline(frozen_ridge)),
)
