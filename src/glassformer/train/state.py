"""Everything that decides how training goes on, as one object: what a checkpoint holds."""

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

# --- the history of steps -------------------------------------------------------------------------
#
# Kept in few bytes: a run of a million steps must fit beside its model.


# The keys of a step's record, in order, and how each is stored: q 64-bit integers, d 64-bit floats.
COLUMNS = {"step": "q", "epoch": "q", "loss": "d", "lr": "d", "tokens": "q", "seconds": "d"}
_KEYS = ("kind", *COLUMNS)
_TYPES = {"q": int, "d": float}


class History(Sequence[dict[str, Any]]):
    """Records in the order in which they came. Those of steps are six numbers each (48 bytes, where a dict
    takes some 600); all others are kept as they are. What comes out equals what went in, bit for bit.
    """

    def __init__(self, records: Iterable[dict[str, Any]] = ()):
        self._columns = {name: array(kind) for name, kind in COLUMNS.items()}
        self._others: list[dict[str, Any]] = []
        self._places: list[int] = []  # of the others among all records, rising
        for record in records:
            self.append(record)

    def append(self, record: dict[str, Any]) -> None:
        """Put a record at the end."""
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

    __hash__ = None  # type: ignore[assignment]  # it changes

    def tensors(self) -> dict[str, Tensor]:
        """The numbers of the steps, for a checkpoint: ``history/step`` and so on, ``[n]``."""
        return {
            f"history/{name}": torch.from_numpy(np.array(column)) for name, column in self._columns.items()
        }

    def rest(self) -> dict[str, Any]:
        """All else, for JSON."""
        return {"places": self._places, "others": self._others}

    @classmethod
    def restored(cls, kept: Any, tensors: Mapping[str, Tensor]) -> History:
        """From what ``rest`` and ``tensors`` gave; in checkpoints of format 1 ``kept`` lists all records."""
        if isinstance(kept, list):
            return cls(kept)
        made = cls()
        made._places, made._others = list(kept["places"]), list(kept["others"])
        for name, kind in COLUMNS.items():
            made._columns[name] = array(kind, tensors[f"history/{name}"].numpy().tobytes())
        return made


# --- the state ------------------------------------------------------------------------------------


def arithmetic(device: str) -> dict[str, Any]:
    """What decides the order of sums, and so the last bits of a step, beside settings and data."""
    if device != "cpu":
        return {"device": device}
    found = level()
    return {
        "device": device,
        "kernels": found.title if found else "none",
        "torch": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def warn_of_other_bits(computed: list[dict[str, Any]], ours: dict[str, Any], where: str) -> None:
    """Warn where a training that goes on will not have the bits of one that was never stopped.

    Args:
        computed: each arithmetic that it was computed with so far.
        ours: the one that it goes on with.
        where: the place in the training, such as "step 7".
    """
    theirs = next((one for one in computed if one != ours), None)
    if theirs is None:
        return
    other = [
        f"{key} {was}, now {ours.get(key, 'none')}" for key, was in theirs.items() if was != ours.get(key)
    ]
    warnings.warn(
        f"the training that goes on at {where} was computed before with {'; '.join(other)}: "
        "its bits will be others than those of one that was never stopped",
        OtherBitsWarning,
        stacklevel=outside(),
    )


@dataclass
class Training:
    """A model in training: weights, optimizer, place in the data, best so far, patience, history.

    ``fingerprint`` names the data and settings; a checkpoint of another one is refused. ``before`` has the
    values that settings count as in checkpoints made before there were such settings.
    """

    model: nn.Module
    optimizer: MasterOptimizer
    config: FitConfig
    total_steps: int
    fingerprint: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)  # of the settings, those that were left unset
    step: int = 0  # optimizer steps done
    epoch: int = 0
    cursor: int = 0  # optimizer steps done in this epoch
    epoch_sums: dict[str, float] = field(default_factory=dict)  # loss, correct, count of this epoch
    best_score: float | None = None
    best_loss: float | None = None  # of the validation data, at the best score
    ties: Literal["loss", "first"] = "loss"  # which of equal scores is kept: of the lowest loss, or the first
    best_step: int = 0
    best_weights: dict[str, Tensor] | None = None
    bad_evaluations: int = 0
    stopped_early: bool = False
    seconds: float = 0.0  # of the steps, judging left out
    earlier: float = 0.0  # seconds from beginning to stop of what a resumed training did before
    began: float = field(default_factory=time.perf_counter)
    history: History = field(default_factory=History)
    judge_start: bool = False  # whether the first weights are good enough to be the best ones
    skipped: list[str] = field(default_factory=list)  # damaged checkpoints that a resume passed over
    computed: list[dict[str, Any]] = field(
        default_factory=list
    )  # each ``arithmetic`` that the steps so far were computed with
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

    # Checkpoints made before there were these go on by the rule that they began with.
    LATER: ClassVar[dict[str, Any]] = {"best_loss": None, "ties": "first"}

    @property
    def seconds_spent(self) -> float:
        """Seconds that training took so far, judging included; of a stopped one, up to the checkpoint."""
        return self.earlier + time.perf_counter() - self.began

    @property
    def finished(self) -> bool:
        return self.stopped_early or self.epoch >= self.config.epochs

    def surer(self, loss: float) -> bool:
        """Whether an evaluation with the best score so far is to be kept for its validation loss."""
        return self.ties == "loss" and self.best_loss is not None and loss < self.best_loss

    @property
    def ranks(self) -> Ranks:
        """The processes that train together."""
        return self.optimizer.ranks

    @contextmanager
    def evaluation_weights(self):
        """Compute with the weights to be judged (``MasterOptimizer.judged``)."""
        if self.optimizer.judges_masters:
            with self.ranks.gathered():
                yield
            return
        masters = {n: m.detach().clone() for n, m in self.optimizer.masters.items()}
        self.optimizer.load(self.optimizer.judged())
        try:
            with self.ranks.gathered():
                yield
        finally:
            self.optimizer.load(masters)

    def final_weights(self) -> dict[str, Tensor]:
        """The best evaluated weights, or the last where none were kept."""
        return self.best_weights if self.best_weights is not None else self.optimizer.weights()

    def save(self, folder: Path, keep_last: int = 2) -> Path:
        """Write a checkpoint; a kill leaves the one before it whole. Of several processes one writes."""
        tensors = self.optimizer.tensors() | self.ranks.generators() | self.history.tensors()
        if self.best_weights is not None:
            tensors |= {f"best/{n}": w for n, w in self.best_weights.items()}
        state = {key: getattr(self, key) for key in (*self.KEPT, *self.LATER)}
        state |= {"seconds_spent": self.seconds_spent, "history": self.history.rest()}
        ours = self._arithmetic()
        state["computed"] = self.computed if ours in self.computed else [*self.computed, ours]
        path = Path(folder)
        if self.ranks.leads:
            path = save_state(folder, self.step, tensors, state, keep_last=keep_last)
        self._saved = path, self.step
        return path

    def saved_at(self, folder: Path) -> Path | None:
        """The checkpoint in ``folder`` that this object wrote of the step it stands at, if it did."""
        path, step = self._saved or (None, -1)
        if path is None or step != self.step:
            return None
        return path if path.parent == folder or not self.ranks.leads else None

    def load(self, folder: Path) -> LoadedState:
        """Continue from the newest whole checkpoint; damaged newer ones are listed in ``skipped``.

        Raises:
            CheckpointError: none is whole, or it is of other data or settings (names the first difference).
        """
        found = self.ranks.share_state(load_state(folder) if self.ranks.leads else None)
        check_fingerprint(found, self.fingerprint, self.before)
        self.skipped = [f"{path.name}: {reason}" for path, reason in found.skipped]
        for key in self.KEPT:
            setattr(self, key, found.state[key])
        for key, before in self.LATER.items():
            setattr(self, key, found.state.get(key, before))
        # Checkpoints once had the steps' seconds alone.
        self.earlier = found.state.get("seconds_spent", self.seconds)
        self.history = History.restored(found.state["history"], found.tensors)
        self.optimizer.load_tensors(found.tensors)
        best = {n.removeprefix("best/"): t.clone() for n, t in found.tensors.items() if n.startswith("best/")}
        self.best_weights = best or None
        self.ranks.set_generators(found.tensors, self.step)
        self.computed = found.state.get("computed", [])
        warn_of_other_bits(self.computed, self._arithmetic(), f"step {self.step}")
        return found

    def _arithmetic(self) -> dict[str, Any]:
        return arithmetic(next(self.model.parameters()).device.type)
