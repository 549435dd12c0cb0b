"""What a training did at each step, kept in few bytes: a run of a million steps must fit beside its model."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import eq
from typing import Any

import numpy as np
import torch
from torch import Tensor

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
