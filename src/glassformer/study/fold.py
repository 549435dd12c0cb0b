"""One fold of a cross-validation, and what all folds together say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.errors import DataError

MARKER = "fold.json"  # of a fold, written last
NAME = "out-of-fold"  # of the split that the figures are of


@dataclass(frozen=True)
class Fold:
    """One training: what it learns from and what it is judged on, as indices of the examples."""

    number: int
    train: np.ndarray
    held: np.ndarray
    folder: Path


def over_folds(found: Sequence[dict[str, Any]], figures: Sequence[str]) -> dict[str, dict[str, float]]:
    """Mean, standard deviation and range of each figure. The folds share most of their training examples, so
    the deviation divided by the root of k is no standard error."""
    out = {}
    for key in (key for key in figures if all(fold.get(key) is not None for fold in found)):
        values = np.array([fold[key] for fold in found])
        spread = {"mean": values.mean(), "sd": values.std(ddof=1), "min": values.min(), "max": values.max()}
        out[key] = {name: float(value) for name, value in spread.items()}
    return out


def several_labels(where: str) -> DataError:
    """What is said where labels are to be ranked and an example has several."""
    what = "its examples have several labels each, and one label an example can be ranked"
    fix = "Use glassformer cross-validate, and look at each label's probability in predictions.csv"
    return DataError(what, where=where, fix=fix)
