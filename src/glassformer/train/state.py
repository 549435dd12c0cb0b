"""The complete state of a training, for checkpoints."""

from __future__ import annotations

import time
import warnings
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import eq
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.checkpoints.native import LoadedState, check_fingerprint, load_state, save_state
from glassformer.errors import NotBitIdenticalWarning
from glassformer.nn.kernels import loading
from glassformer.train.config import FitConfig, user_stacklevel
from glassformer.train.distributed import Ranks
from glassformer.train.optim import MixedPrecisionOptimizer

# --- history --------------------------------------------------------------------------------------
#
# Keys of the record of a step, in order, with array type codes: q 64-bit integers, d 64-bit floats.
COLUMNS = {"step": "q", "epoch": "q", "loss": "d", "lr": "d", "tokens": "q", "seconds": "d"}
_KEYS = ("kind", *COLUMNS)
_TYPES = {"q": int, "d": float}


class History(Sequence[dict[str, Any]]):
    """A list of history records; the record of a step is stored as six numbers (48 bytes, not about 600)."""

    def __init__(self, records: Iterable[dict[str, Any]] = ()):
        self._columns = {name: array(kind) for name, kind in COLUMNS.items()}
        self._other_records: list[dict[str, Any]] = []
        self._other_indices: list[int] = []  # indices of the other records, ascending
        for record in records:
            self.append(record)

    def append(self, record: dict[str, Any]) -> None:
        """Append a record."""
        has_numbers = tuple(record) == _KEYS and record["kind"] == "step"
        if has_numbers and all(type(record[name]) is _TYPES[kind] for name, kind in COLUMNS.items()):
            for name, column in self._columns.items():
                column.append(record[name])
        else:
            self._other_indices.append(len(self))
            self._other_records.append(record)

    def __len__(self) -> int:
        return len(self._columns["step"]) + len(self._other_records)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]  # also for negative indices; IndexError out of range
        num_before = bisect_left(self._other_indices, i)
        if num_before < len(self._other_indices) and self._other_indices[num_before] == i:
            return self._other_records[num_before]
        return {"kind": "step"} | {name: column[i - num_before] for name, column in self._columns.items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # mutable

    def tensors(self) -> dict[str, Tensor]:
        """The records of steps as tensors ``[n]`` with names such as ``history/step``, for a checkpoint."""
        return {
            f"history/{name}": torch.from_numpy(np.array(column)) for name, column in self._columns.items()
        }

    def other_records(self) -> dict[str, Any]:
        """The records of evaluations, for JSON: ``places`` are their indices in the history."""
        return {"places": self._other_indices, "others": self._other_records}

    @classmethod
    def restore(cls, saved: Any, tensors: Mapping[str, Tensor]) -> History:
        """The inverse of ``other_records`` and ``tensors``; in format 1 ``saved`` lists all records."""
        if isinstance(saved, list):
            return cls(saved)
        history = cls()
        history._other_indices, history._other_records = list(saved["places"]), list(saved["others"])
        for name, kind in COLUMNS.items():
            history._columns[name] = array(kind, tensors[f"history/{name}"].numpy().tobytes())
        return history


# --- state of a training --------------------------------------------------------------------------


def numerics(device: str) -> dict[str, Any]:
    """Device, kernels and number of threads, on which the last bits of results depend."""
    if device != "cpu":
        return {"device": device}
    instruction_set = loading.level()
    return {
        "device": device,
        "kernels": instruction_set.title if instruction_set else "none",
        "torch": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def warn_if_not_reproducible(earlier_runs: list[dict[str, Any]], now: dict[str, Any], where: str) -> None:
    """Warn if a resumed training will not be bit-identical to an uninterrupted training.

    Args:
        earlier_runs: the ``numerics`` of the steps so far.
        where: the position of the resume, such as "step 7".
    """
    earlier = next((other for other in earlier_runs if other != now), None)
    if earlier is None:
        return
    changes = [
        f"{key}: {old} before, {now.get(key, 'none')} now"
        for key, old in earlier.items()
        if old != now.get(key)
    ]
    warnings.warn(
        f"training resumed at {where} on a different setup ({'; '.join(changes)}): "
        "results will not be bit-identical to those of an uninterrupted run",
        NotBitIdenticalWarning,
        stacklevel=user_stacklevel(),
    )


@dataclass
class Training:
    """A model in training: weights, optimizer, position in the data, best weights, history.

    ``fingerprint`` identifies data and settings. Loading a checkpoint with another fingerprint raises an
    error. ``old_defaults`` has the values of settings that older checkpoints lack.
    """

    model: nn.Module
    optimizer: MixedPrecisionOptimizer
    config: FitConfig
    total_steps: int  # number of optimizer steps of all epochs
    fingerprint: dict[str, Any] = field(default_factory=dict)
    old_defaults: dict[str, Any] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)  # chosen values of settings that were unset
    step: int = 0  # number of completed optimizer steps
    epoch: int = 0  # number of completed epochs
    cursor: int = 0  # number of completed optimizer steps in this epoch
    epoch_sums: dict[str, float] = field(default_factory=dict)  # loss, correct, count of this epoch
    best_score: float | None = None
    best_loss: float | None = None  # validation loss of the evaluation with the best score
    ties: Literal["loss", "first"] = "loss"  # which of equal scores is best: the lowest loss, or the first
    best_step: int = 0  # step of the evaluation with the best score
    best_weights: dict[str, Tensor] | None = None
    bad_evaluations: int = 0  # number of evaluations since the best one, without improvement
    stopped_early: bool = False  # whether early stopping has ended the training
    seconds: float = 0.0  # duration of the steps, without evaluations
    seconds_before: float = 0.0  # seconds spent before a resume, with evaluations
    start_time: float = field(default_factory=time.perf_counter)
    history: History = field(default_factory=History)
    evaluate_start: bool = False  # whether to evaluate the initial weights, which may be the best weights
    skipped: list[str] = field(default_factory=list)  # damaged checkpoints that a resume skipped
    # All different ``numerics`` of the steps so far; the key in a checkpoint is ``computed``.
    numerics_so_far: list[dict[str, Any]] = field(default_factory=list)
    _saved: tuple[Path, int] | None = None  # the newest checkpoint of this object, and its step

    def __post_init__(self) -> None:
        self.optimizer.limit_average_decay(self.total_steps)

    SAVED_KEYS: ClassVar[tuple[str, ...]] = (
        "step",
        "epoch",
        "cursor",
        "epoch_sums",
        "best_score",
        "best_step",
        "bad_evaluations",
        "stopped_early",
        "seconds",
        "total_steps",
        "fingerprint",
    )

    # Keys that older checkpoints lack, with the values to use for these.
    NEW_KEYS: ClassVar[dict[str, Any]] = {"best_loss": None, "ties": "first"}

    @property
    def seconds_spent(self) -> float:
        """Seconds of training so far, with evaluations.

        For an interrupted run, only the time up to its checkpoint counts.
        """
        return self.seconds_before + time.perf_counter() - self.start_time

    @property
    def finished(self) -> bool:
        return self.stopped_early or self.epoch >= self.config.epochs

    def better_by_loss(self, loss: float) -> bool:
        """Whether an evaluation that ties with the best score wins because of its lower loss."""
        return self.ties == "loss" and self.best_loss is not None and loss < self.best_loss

    @property
    def ranks(self) -> Ranks:
        """The processes that train together."""
        return self.optimizer.ranks

    @contextmanager
    def evaluation_weights(self):
        """Context in which the model has the optimizer's ``evaluation_weights``."""
        if self.optimizer.evaluates_current_weights:
            with self.ranks.full_weights():
                yield
            return
        masters = {n: m.detach().clone() for n, m in self.optimizer.masters.items()}
        self.optimizer.load(self.optimizer.evaluation_weights())
        try:
            with self.ranks.full_weights():
                yield
        finally:
            self.optimizer.load(masters)

    def final_weights(self) -> dict[str, Tensor]:
        """The best evaluated weights, or the last weights if the best weights were not kept."""
        return self.best_weights if self.best_weights is not None else self.optimizer.weights()

    def save(self, folder: Path, keep_last: int = 2) -> Path:
        """Write a checkpoint, only on rank 0. If the process is killed, the previous one stays complete."""
        tensors = self.optimizer.tensors() | self.ranks.generators() | self.history.tensors()
        if self.best_weights is not None:
            tensors |= {f"best/{n}": w for n, w in self.best_weights.items()}
        state = {key: getattr(self, key) for key in (*self.SAVED_KEYS, *self.NEW_KEYS)}
        state |= {"seconds_spent": self.seconds_spent, "history": self.history.other_records()}
        numerics_now = self._numerics()
        is_new = numerics_now not in self.numerics_so_far
        state["computed"] = [*self.numerics_so_far, numerics_now] if is_new else self.numerics_so_far
        path = Path(folder)
        if self.ranks.is_main:
            path = save_state(folder, self.step, tensors, state, keep_last=keep_last)
        self._saved = path, self.step
        return path

    def current_checkpoint(self, folder: Path) -> Path | None:
        """The checkpoint of the current step in ``folder`` if this object has written it; else None."""
        path, step = self._saved or (None, -1)
        if path is None or step != self.step:
            return None
        return path if path.parent == folder or not self.ranks.is_main else None

    def load(self, folder: Path) -> LoadedState:
        """Continue from the newest complete checkpoint; newer damaged checkpoints are in ``skipped``."""
        saved = self.ranks.share_state(load_state(folder) if self.ranks.is_main else None)
        check_fingerprint(saved, self.fingerprint, self.old_defaults)
        self.skipped = [f"{path.name}: {reason}" for path, reason in saved.skipped]
        for key in self.SAVED_KEYS:
            setattr(self, key, saved.state[key])
        for key, default in self.NEW_KEYS.items():
            setattr(self, key, saved.state.get(key, default))
        # Older checkpoints have the seconds of the steps only.
        self.seconds_before = saved.state.get("seconds_spent", self.seconds)
        self.history = History.restore(saved.state["history"], saved.tensors)
        self.optimizer.load_tensors(saved.tensors)
        best = {n.removeprefix("best/"): t.clone() for n, t in saved.tensors.items() if n.startswith("best/")}
        self.best_weights = best or None
        self.ranks.set_generators(saved.tensors, self.step)
        self.numerics_so_far = saved.state.get("computed", [])
        warn_if_not_reproducible(self.numerics_so_far, self._numerics(), f"step {self.step}")
        return saved

    def _numerics(self) -> dict[str, Any]:
        return numerics(next(self.model.parameters()).device.type)
