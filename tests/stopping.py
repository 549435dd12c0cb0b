"""A training that is stopped as a kill would stop it, and what must be the same once it has gone on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

from glassformer.train.callbacks import Callback


class StopAt(Callback):
    """Nothing is saved that was not saved before."""

    def __init__(self, step: int):
        self.at = step

    def step(self, training: Any, info: Any) -> None:
        if info.step == self.at:
            raise KeyboardInterrupt


def without_clock(history: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if k != "seconds"} for record in history]


def same(a: Any, b: Any) -> bool:
    """Whether two fitted estimators have the same weights, to the bit."""
    if not hasattr(a, "model_"):
        return np.array_equal(a.vectors_, b.vectors_)
    ours, theirs = a.model_.state_dict(), b.model_.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)


def stopped_and_resumed(estimator: Any, *data: Any, folder: Path, at: Sequence[int], **options: Any) -> Any:
    """``estimator`` fitted in legs: stopped at each of the steps ``at``, and then to the end."""
    for step in at:
        with pytest.raises(KeyboardInterrupt):
            clone(estimator).fit(*data, checkpoints=folder, resume=True, callbacks=[StopAt(step)], **options)
    return clone(estimator).fit(*data, checkpoints=folder, resume=True, **options)
