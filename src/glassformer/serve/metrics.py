"""Figures for Prometheus, of one server."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TOKENS = (16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Metrics:
    """The counters; labels are names of ours only, never what a client sends."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        ProcessCollector(registry=r)
        self.requests = Counter(
            "glassformer_requests_total", "Requests by route and status", ["route", "status"], registry=r
        )
        self.seconds = Histogram(
            "glassformer_request_seconds", "From headers to answer", ["route"], buckets=SECONDS, registry=r
        )
        self.inputs = Counter(
            "glassformer_inputs_total", "Texts and pictures answered", ["model"], registry=r
        )
        self.tokens = Counter("glassformer_tokens_total", "Tokens computed", ["model"], registry=r)
        self.batch = Histogram(
            "glassformer_batch_tokens", "Tokens of a batch", ["model"], buckets=TOKENS, registry=r
        )
        self.queue = Gauge("glassformer_queue_tokens", "Tokens waiting or in work", ["model"], registry=r)
        self.refused = Counter(
            "glassformer_refused_total", "Requests refused for load", ["reason"], registry=r
        )

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)
