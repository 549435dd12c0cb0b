"""``Training``: the complete state of a training, which a checkpoint saves."""

from __future__ import annotations

import time
import warnings
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import eq
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.checkpoints.native import LoadedState, check_fingerprint, load_state, save_state
from glassformer.errors import OtherBitsWarning
from glassformer.nn.kernels.loading import level
from glassformer.train.config import FitConfig, outside
from glassformer.train.distributed import Ranks
from glassformer.train.optim import MasterOptimizer

# --- history --------------------------------------------------------------------------------------
#
# Stored compactly, so that a run of a million steps fits into memory.


# Keys of the record of a step, in order, with array type codes: q 64-bit integers, d 64-bit floats.
COLUMNS = {"step": "q", "epoch": "q", "loss": "d", "lr": "d", "tokens": "q", "seconds": "d"}
_KEYS = ("kind", *COLUMNS)
_TYPES = {"q": int, "d": float}


class History(Sequence[dict[str, Any]]):
    """A list of records that stores those of steps as six numbers (48 bytes, a dict takes about 600)."""

    def __init__(self, records: Iterable[dict[str, Any]] = ()):
        self._columns = {name: array(kind) for name, kind in COLUMNS.items()}
        self._others: list[dict[str, Any]] = []
        self._places: list[int] = []  # indices of the other records, ascending
        for record in records:
            self.append(record)

    def append(self, record: dict[str, Any]) -> None:
        """Append a record."""
        if tuple(record) == _KEYS and record["kind"] == "step" and self._fits(record):
            for name, column in self._columns.items():
                column.append(record[name])
        else:
            self._places.append(len(self))
            self._others.append(record)

    @staticmethod
    def _fits(record: dict[str, Any]) -> bool:
        return all(type(record[name]) is _TYPES[kind] for name, kind in COLUMNS.items())

    def __len__(self) -> int:
        return len(self._columns["step"]) + len(self._others)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]  # negative ones too; IndexError beyond
        before = bisect_left(self._places, i)
        if before < len(self._places) and self._places[before] == i:
            return self._others[before]
        return {"kind": "step"} | {name: column[i - before] for name, column in self._columns.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # mutable

    def tensors(self) -> dict[str, Tensor]:
        """The records of steps as tensors ``[n]`` named ``history/step`` and so on, for a checkpoint."""
        return {
            f"history/{name}": torch.from_numpy(np.array(column)) for name, column in self._columns.items()
        }

    def rest(self) -> dict[str, Any]:
        """The other records, for JSON."""
        return {"places": self._places, "others": self._others}

    @classmethod
    def restored(cls, kept: Any, tensors: Mapping[str, Tensor]) -> History:
        """The inverse of ``rest`` and ``tensors``; in checkpoints of format 1 ``kept`` is a list of all
        records."""
        if isinstance(kept, list):
            return cls(kept)
        made = cls()
        made._places, made._others = list(kept["places"]), list(kept["others"])
        for name, kind in COLUMNS.items():
            made._columns[name] = array(kind, tensors[f"history/{name}"].numpy().tobytes())
        return made


# --- state of a training --------------------------------------------------------------------------


def numerics(device: str) -> dict[str, Any]:
    """Device, kernels and threads, on which the order of sums and so the last bits of results depend."""
    if device != "cpu":
        return {"device": device}
    kernels = level()
    return {
        "device": device,
        "kernels": kernels.title if kernels else "none",
        "torch": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def warn_of_other_bits(computed: list[dict[str, Any]], ours: dict[str, Any], where: str) -> None:
    """Warn if a training resumed at ``where`` ("step 7") will not equal an uninterrupted one bit for bit,
    since a ``numerics`` of its steps so far differs from ours."""
    theirs = next((other for other in computed if other != ours), None)
    if theirs is None:
        return
    changes = [
        f"{key} {was}, now {ours.get(key, 'none')}" for key, was in theirs.items() if was != ours.get(key)
    ]
    warnings.warn(
        f"the training resumed at {where} was computed before with {'; '.join(changes)}: "
        "results will not be bit-identical to those of an uninterrupted run",
        OtherBitsWarning,
        stacklevel=outside(),
    )


@dataclass
class Training:
    """A model in training: weights, optimizer, position in the data, best weights, history.

    ``fingerprint`` identifies data and settings; loading a checkpoint with another one raises an error.
    ``before`` has the values of settings that older checkpoints lack.
    """

    model: nn.Module
    optimizer: MasterOptimizer
    config: FitConfig
    total_steps: int
    fingerprint: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)  # chosen values of settings that were unset
    step: int = 0  # optimizer steps done
    epoch: int = 0
    cursor: int = 0  # optimizer steps done in this epoch
    epoch_sums: dict[str, float] = field(default_factory=dict)  # loss, correct, count of this epoch
    best_score: float | None = None
    best_loss: float | None = None  # of the validation data, at the best score
    ties: Literal["loss", "first"] = "loss"  # among equal scores, keep the lowest loss or the first
    best_step: int = 0
    best_weights: dict[str, Tensor] | None = None
    bad_evaluations: int = 0
    stopped_early: bool = False
    seconds: float = 0.0  # duration of the steps, without evaluations
    earlier: float = 0.0  # seconds spent before a resume, with evaluations
    began: float = field(default_factory=time.perf_counter)
    history: History = field(default_factory=History)
    judge_start: bool = False  # whether to evaluate the initial weights, which may be the best ones
    skipped: list[str] = field(default_factory=list)  # damaged checkpoints that a resume skipped
    computed: list[dict[str, Any]] = field(default_factory=list)  # all ``numerics`` of the steps so far
    _saved: tuple[Path, int] | None = None  # the checkpoint written last, and its step

    def __post_init__(self) -> None:
        self.optimizer.bound_average(self.total_steps)

    KEPT: ClassVar[tuple[str, ...]] = (
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

    # Values for older checkpoints, which lack these keys.
    LATER: ClassVar[dict[str, Any]] = {"best_loss": None, "ties": "first"}

    @property
    def seconds_spent(self) -> float:
        """Seconds of training so far, with evaluations; before a resume, up to the checkpoint."""
        return self.earlier + time.perf_counter() - self.began

    @property
    def finished(self) -> bool:
        return self.stopped_early or self.epoch >= self.config.epochs

    def better_by_loss(self, loss: float) -> bool:
        """Whether an evaluation that ties with the best score is better because of its loss."""
        return self.ties == "loss" and self.best_loss is not None and loss < self.best_loss

    @property
    def ranks(self) -> Ranks:
        """The processes that train together."""
        return self.optimizer.ranks

    @contextmanager
    def evaluation_weights(self):
        """Context in which the model has the weights to evaluate (``MasterOptimizer.evaluated``)."""
        if self.optimizer.evaluates_masters:
            with self.ranks.gathered():
                yield
            return
        masters = {n: m.detach().clone() for n, m in self.optimizer.masters.items()}
        self.optimizer.load(self.optimizer.evaluated())
        try:
            with self.ranks.gathered():
                yield
        finally:
            self.optimizer.load(masters)

    def final_weights(self) -> dict[str, Tensor]:
        """The best evaluated weights, or the last ones if the best were not kept."""
        return self.best_weights if self.best_weights is not None else self.optimizer.weights()

    def save(self, folder: Path, keep_last: int = 2) -> Path:
        """Write a checkpoint; if killed, the previous one stays complete. Only rank 0 writes."""
        tensors = self.optimizer.tensors() | self.ranks.generators() | self.history.tensors()
        if self.best_weights is not None:
            tensors |= {f"best/{n}": w for n, w in self.best_weights.items()}
        state = {key: getattr(self, key) for key in (*self.KEPT, *self.LATER)}
        state |= {"seconds_spent": self.seconds_spent, "history": self.history.rest()}
        ours = self._numerics()
        state["computed"] = self.computed if ours in self.computed else [*self.computed, ours]
        path = Path(folder)
        if self.ranks.leads:
            path = save_state(folder, self.step, tensors, state, keep_last=keep_last)
        self._saved = path, self.step
        return path

    def saved_at(self, folder: Path) -> Path | None:
        """The checkpoint of the current step in ``folder``, if this object wrote one; else None."""
        path, step = self._saved or (None, -1)
        if path is None or step != self.step:
            return None
        return path if path.parent == folder or not self.ranks.leads else None

    def load(self, folder: Path) -> LoadedState:
        """Continue from the newest complete checkpoint; damaged newer ones are listed in ``skipped``."""
        found = self.ranks.share_state(load_state(folder) if self.ranks.leads else None)
        check_fingerprint(found, self.fingerprint, self.before)
        self.skipped = [f"{path.name}: {reason}" for path, reason in found.skipped]
        for key in self.KEPT:
            setattr(self, key, found.state[key])
        for key, before in self.LATER.items():
            setattr(self, key, found.state.get(key, before))
        # Older checkpoints have the seconds of the steps only.
        self.earlier = found.state.get("seconds_spent", self.seconds)
        self.history = History.restored(found.state["history"], found.tensors)
        self.optimizer.load_tensors(found.tensors)
        best = {n.removeprefix("best/"): t.clone() for n, t in found.tensors.items() if n.startswith("best/")}
        self.best_weights = best or None
        self.ranks.set_generators(found.tensors, self.step)
        self.computed = found.state.get("computed", [])
        warn_of_other_bits(self.computed, self._numerics(), f"step {self.step}")
        return found

    def _numerics(self) -> dict[str, Any]:
        return numerics(next(self.model.parameters()).device.type)
