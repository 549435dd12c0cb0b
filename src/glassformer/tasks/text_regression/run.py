"""Runs of regression on texts.

In addition to the files of every run, these write ``predictions.csv`` and ``numbers.json`` (points of the
plots, and the examples with the largest errors).
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
    """Baseline: ridge regression on the embeddings of a frozen encoder. Returns its name and predictions
    ``[m]``; None if the encoder is not downloaded, or is the same model."""
    fitted = fit_frozen(est, train, numbers.tolist())
    return None if fitted is None else (f"{fitted[0]} + ridge", fitted[1].predict(judged))


def evaluate_texts(context: RunContext) -> dict[str, Any]:
    """``evaluate``, with the baseline that is missing, if any."""
    missing = left_out(context.estimator) if context.recipe.evaluate.baselines else {}
    return evaluate(context) | ({"baselines_left_out": missing} if missing else {})


TASK = labelled(
    "text-regression",
    TextNumberRecipe,
    TextRegressor,
    Numbers(),
    label_of=lambda text: float(len(text)),
    report="numbers",
    evaluate=evaluate_texts,
    collect_artifacts=show_numbers,
    baselines=(mean_number, as_baseline(tfidf_ridge), as_baseline(frozen_ridge)),
)
