"""What callbacks see of weights that are solved at once: a training of one step, with nothing to save."""

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
from glassformer.train.callbacks import GO_ON, Callback, Interrupted, StopOnSignal
from glassformer.train.distributed import ALONE, Ranks
from glassformer.train.loop import StepInfo
from glassformer.train.state import History


@dataclass
class Solved:
    """As a ``Training``, of one step. A solution of seconds has no checkpoints: one that was stopped is
    begun again, and gives the same bits.
    """

    model: nn.Module
    config: Any
    ranks: Ranks = ALONE
    chosen: Mapping[str, Any] = field(default_factory=dict)
    step: int = 0
    total_steps: int = 1
    epoch: int = 0
    cursor: int = 0
    began: float = field(default_factory=time.perf_counter)
    history: History = field(default_factory=History)
    skipped: Sequence[str] = ()
    calls: Sequence[Callback] = ()
    solution: str = ""  # what was chosen, in words

    @property
    def finished(self) -> bool:
        return self.step == self.total_steps

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Callbacks are told of the start, and of the end whatever happens."""
        try:
            for call in self.calls:
                call.start(self)  # type: ignore[arg-type]  # what they ask of a training, this has
            yield
        finally:
            with ExitStack() as ends:
                for call in reversed(self.calls):
                    ends.callback(call.end, self)  # type: ignore[arg-type]  # as above

    def pause(self) -> None:
        """Between two solutions: raises Interrupted where a signal has asked for an end."""
        for call in self.calls:
            if isinstance(call, StopOnSignal) and call.signals.received is not None:
                call.signals.obeyed = True
                raise Interrupted(f"stopped before the weights were solved; {GO_ON}")

    def done(self, loss: float, evaluation: dict[str, Any]) -> None:
        """Tell the callbacks of the one step.

        Args:
            loss: of the training examples.
            evaluation: as a record of the history has it.
        """
        seconds = round(time.perf_counter() - self.began, 3)
        self.step = self.epoch = 1
        info: dict[str, Any] = {"step": 1, "epoch": 0, "loss": loss, "lr": 0.0, "tokens": 0}
        self.history.append({"kind": "step", **info, "seconds": seconds})
        self.history.append({"kind": "evaluation", "step": 1, "epoch": 0, **evaluation, "best": True})
        for call in self.calls:
            call.step(self, StepInfo(**info, gradient_norm=0.0, evaluation=evaluation, is_best=True))  # type: ignore[arg-type]  # as above


def refuse_checkpoints(folder: str | Path | None) -> None:
    """Raises CheckpointError where a folder holds checkpoints, which are of a model that learns in steps."""
    if folder is not None and (newest := newest_state(Path(folder))):
        what = "is a checkpoint of a model that learns in steps, and this one is solved at once"
        raise CheckpointError(what, where=str(newest), fix="Use another folder")
