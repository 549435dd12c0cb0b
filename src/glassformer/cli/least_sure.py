"""``predict --least-sure N``: the answers that a person should look at first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glassformer.cli.output import excerpt, show_table
from glassformer.cli.rows import Row
from glassformer.errors import ConfigError

OPTION = "--least-sure"
MOST = 10_000  # rows that one look can hold


@dataclass
class LeastSure:
    """The ``count`` answers whose label is least probable; of equal ones the earlier rows.

    Raises:
        ConfigError: a count that cannot be.
    """

    count: int
    classes: Sequence[Any]
    _heap: list[tuple[float, int, dict[str, Any]]] = field(default_factory=list)
    _seen: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST:
            raise ConfigError(f"{self.count} rows", where=OPTION, fix=f"Use 1 to {MOST:,}")

    def add(self, rows: Sequence[Row], labels: Sequence[Any], shares: Sequence[float], p: Any) -> None:
        """Answered rows ``[m]``, their labels (None: it abstains), how sure each is, and ``[m, K]``."""
        chances = np.asarray(p)
        for row, label, share, own in zip(rows, labels, shares, chances, strict=True):
            self._seen += 1
            key = (-float(share), -self._seen)  # of the kept, the smallest is the surest
            if len(self._heap) == self.count and key <= self._heap[0][:2]:
                continue
            first, second = np.argsort(-own, kind="stable")[:2].tolist()
            found = {
                "file": row.file or None,
                "row": row.row if row.row is not None else self._seen,
                "text": row.text,
                "label": label,
                "probability": float(share),
                "likeliest": [[self.classes[k], float(own[k])] for k in (first, second)],
            }
            push = heapq.heappush if len(self._heap) < self.count else heapq.heapreplace
            push(self._heap, (*key, found))

    def found(self) -> list[dict[str, Any]]:
        """The least sure first."""
        return [found for _, _, found in sorted(self._heap, key=lambda kept: (-kept[0], -kept[1]))]

    def show(self, noun: str) -> None:
        """A table: the row, its two likeliest labels, and its text."""
        rows = [
            [
                str(f["row"]),
                *(f"{label} {share:.3f}" for label, share in f["likeliest"]),
                excerpt(str(f["text"]), 60),
            ]
            for f in self.found()
        ]
        title = f"the {len(rows):,} least sure of {self._seen:,} {noun}"
        show_table(title, ("row", "likeliest", "then", "text"), rows, right=("row",))

    def notes(self, run: str) -> Iterator[str]:
        """How such answers are left out."""
        yield (
            f"to give no label to the doubtful: glassformer calibrate {run} shows what each limit leaves, "
            "and --abstain-below P sets one"
        )
