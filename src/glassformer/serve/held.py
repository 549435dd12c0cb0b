"""The bytes of requests that are in memory now, of all connections together, and a bound on them."""

from __future__ import annotations

from glassformer.serve.metrics import Metrics
from glassformer.serve.problems import Problem


class Held:
    """Heads, bodies, and the strings that bodies were parsed to.

    Args:
        most: bytes.
    """

    def __init__(self, most: int):
        self.most, self.now = most, 0
        self.metrics: Metrics | None = None  # they count the refusals


class Share:
    """What one request, or the heads of one connection, hold of it. Whoever makes one gives it back."""

    def __init__(self, held: Held):
        self.held, self.size = held, 0

    def set(self, size: int) -> None:
        """Hold this many bytes from now on.

        Raises:
            Problem: 503 where all together are too many. They are counted until they are given back.
        """
        grows = size > self.size
        self.held.now += size - self.size
        self.size = size
        if grows and self.held.now > self.held.most:
            if self.held.metrics is not None:
                self.held.metrics.refused.labels("memory").inc()
            raise Problem(503, "too much is being sent at once", fix="Try again later", again=1)

    def add(self, size: int) -> None:
        """Hold so many bytes more; raises as ``set`` does."""
        self.set(self.size + size)

    def give_back(self) -> None:
        """Hold nothing any more."""
        self.set(0)
