"""The memory budget of requests, and metrics for Prometheus."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from glassformer.serve.problems import Problem

# Bucket boundaries of the histograms
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TOKENS = (16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384)

# --- memory budget ---------------------------------------------------------------------------------


class MemoryBudget:
    """The memory that all connections together may use for headers, bodies and strings of parsed bodies."""

    def __init__(self, limit: int):
        self.limit, self.used = limit, 0
        self.metrics: Metrics | None = None  # counts rejected requests


class Reservation:
    """The memory of one request, or of the headers of one connection. Its creator must release it."""

    def __init__(self, budget: MemoryBudget):
        self.budget, self.size = budget, 0

    def set(self, size: int) -> None:
        """Set the number of reserved bytes; raises Problem 503 if the budget is exceeded."""
        is_larger = size > self.size
        self.budget.used += size - self.size
        self.size = size
        if is_larger and self.budget.used > self.budget.limit:
            if self.budget.metrics is not None:
                self.budget.metrics.refused.labels("memory").inc()
            raise Problem(503, "too much is being sent at once", fix="Try again later", retry_after=1)

    def add(self, size: int) -> None:
        """Reserve more bytes; see ``set``."""
        self.set(self.size + size)

    def release(self) -> None:
        """Release all bytes."""
        self.set(0)


# --- metrics --------------------------------------------------------------------------------------


class Metrics:
    """Prometheus metrics of one server. The values of labels never come from clients."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        shared: Any = {"namespace": "glassformer", "registry": self.registry}
        routes, models = ["route", "status"], ["model"]
        self.requests = Counter("requests_total", "Requests by route and status", routes, **shared)
        times = {"buckets": SECONDS, **shared}
        self.seconds = Histogram("request_seconds", "From headers to answer", routes[:1], **times)
        self.inputs = Counter("inputs_total", "Texts and images answered", models, **shared)
        self.tokens = Counter("tokens_total", "Tokens computed", models, **shared)
        self.batch = Histogram("batch_tokens", "Tokens of a batch", models, buckets=TOKENS, **shared)
        self.queue = Gauge("queue_tokens", "Tokens waiting or in work", models, **shared)
        self.refused = Counter("refused_total", "Requests refused for load", ["reason"], **shared)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def count_full_queue(self) -> Problem:
        """Count a request that was rejected because of a full queue, and return its error."""
        self.refused.labels("queue").inc()
        return Problem(429, "the queue is full", fix="Try again in a moment", retry_after=1)
