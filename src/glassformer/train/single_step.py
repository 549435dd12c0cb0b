"""Trainings of one step, for models without gradient steps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from glassformer.checkpoints.native import newest_state
from glassformer.errors import CheckpointError
from glassformer.train.callbacks import RESUME_HINT, Callback, Interrupted, StopOnSignal
from glassformer.train.distributed import ONE_PROCESS, Ranks
from glassformer.train.loop import StepInfo
from glassformer.train.state import History


@dataclass
class SingleStepTraining:
    """A ``Training`` of one step without checkpoints, so that callbacks work with deterministic fits."""

    model: nn.Module
    config: Any
    ranks: Ranks = ONE_PROCESS
    chosen: Mapping[str, Any] = field(default_factory=dict)
    step: int = 0
    total_steps: int = 1
    epoch: int = 0
    cursor: int = 0
    start_time: float = field(default_factory=time.perf_counter)
    history: History = field(default_factory=History)
    skipped: Sequence[str] = ()
    callbacks: Sequence[Callback] = ()
    solution: str = ""  # description of the chosen settings

    @property
    def finished(self) -> bool:
        return self.step == self.total_steps

    @contextmanager
    def run_callbacks(self) -> Iterator[None]:
        """Context that calls ``start`` and ``end`` of the callbacks, also after an error."""
        try:
            for callback in self.callbacks:
                callback.start(self)  # type: ignore[arg-type]  # has all attributes that callbacks use
            yield
        finally:
            with ExitStack() as ends:
                for callback in reversed(self.callbacks):
                    ends.callback(callback.end, self)  # type: ignore[arg-type]  # as above

    def pause(self) -> None:
        """Raise Interrupted if a signal was received; call this between two fits."""
        for callback in self.callbacks:
            if isinstance(callback, StopOnSignal) and callback.signals.received is not None:
                callback.signals.handled = True
                raise Interrupted(f"stopped before the weights were fitted; {RESUME_HINT}")

    def finish(self, loss: float, evaluation: dict[str, Any]) -> None:
        """Report the step with its training loss and evaluation to the callbacks."""
        seconds = round(time.perf_counter() - self.start_time, 3)
        self.step = self.epoch = 1
        info: dict[str, Any] = {"step": 1, "epoch": 0, "loss": loss, "lr": 0.0, "tokens": 0}
        self.history.append({"kind": "step", **info, "seconds": seconds})
        self.history.append({"kind": "evaluation", "step": 1, "epoch": 0, **evaluation, "best": True})
        for callback in self.callbacks:
            callback.step(self, StepInfo(**info, gradient_norm=0.0, evaluation=evaluation, is_best=True))  # type: ignore[arg-type]  # as above


def check_no_checkpoints(folder: str | Path | None) -> None:
    """Raise CheckpointError if a folder has checkpoints, which must belong to another model."""
    if folder is not None and (newest := newest_state(Path(folder))):
        what = "is a checkpoint of another model; this model is fitted without training steps"
        raise CheckpointError(what, where=str(newest), fix="Use another folder")
