"""A training small enough to run hundreds of times: a one-layer encoder on random ids."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from tests.commands import values

from glassformer.data.batching import BatchSettings
from glassformer.data.text import TokenTable
from glassformer.families.bert import bert
from glassformer.models.text import TextEncoder as Bert
from glassformer.tasks.text_classification.recipe import TextFitConfig
from glassformer.train.loop import StepInfo, TextStream, count_steps, run
from glassformer.train.objectives import Classification
from glassformer.train.optim import MixedPrecisionOptimizer
from glassformer.train.state import Training

V, CLASSES = 31, 3


def random_table(count: int, seed: int = 5, longest: int = 11) -> TokenTable:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, count)
    starts = np.concatenate([[0], lengths.cumsum()]).astype(np.int64)
    ids = rng.integers(0, V, starts[-1]).astype(np.int32)
    return TokenTable(ids, starts, None, np.zeros(count, bool))


@dataclass
class Rig:
    """All that ``run`` takes, built from a few settings."""

    training: Training
    stream: TextStream
    objective: Classification
    evaluate: Callable[[], dict[str, float]] | None

    def steps(self) -> list[StepInfo]:
        return list(run(self.training, self.stream, self.objective, self.evaluate))

    def weights(self) -> dict[str, torch.Tensor]:
        return {n: w.clone() for n, w in self.training.optimizer.tensors().items()}


@pytest.fixture
def make_rig() -> Callable[..., Rig]:
    """``make_rig(count=23, dropout=0.0, dtype=..., evaluate=..., optimizer=..., **TextFitConfig keys)``"""

    def make(
        count: int = 23,
        dropout: float = 0.0,
        dtype: torch.dtype = torch.float32,
        evaluate: Callable[[Rig], dict[str, float]] | None = None,
        optimizer: type[MixedPrecisionOptimizer] = MixedPrecisionOptimizer,
        objective: dict[str, Any] | None = None,
        **keys: Any,
    ) -> Rig:
        usual = values("epochs=2 lr=1e-2 batch_size=5 batch_tokens=0 precision=fp32 warmup=0.06")
        config = TextFitConfig(**usual | keys)
        torch.manual_seed(config.seed)
        sizes = {"head": "classification", "num_labels": CLASSES, "init_std": 0.2}
        model = Bert(bert(V, 14, 1, 2, 11, 17, dropout, **sizes))
        table = random_table(count)
        settings = BatchSettings(config.batch_size, config.batch_tokens, config.length_window)
        stream = TextStream(table, settings, config.accumulate, config.seed, torch.device("cpu"))
        targets = np.random.default_rng(7).integers(0, CLASSES, count)
        steps = count_steps(stream, config.epochs)
        training = Training(model, optimizer(model, config, dtype), config, steps)
        rig = Rig(training, stream, Classification(targets, **(objective or {})), None)
        if evaluate is not None:
            rig.evaluate = lambda: evaluate(rig)
        return rig

    return make
