"""Batches requests: a queue with a limit in tokens, from which one thread computes packed batches.

    request ──▶ admitted? ──▶ prepared ──▶ queue of texts and images ──▶ one packed batch ──▶ outputs
                429 if not    (a thread)   waits some ms for others        (the one computing thread)

The texts of a request are queued one by one, so that requests share batches and a short request does not have
to wait for all texts of a long one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from glassformer.errors import InputError, NotFiniteError
from glassformer.inputs.inputs import Item
from glassformer.serve.metrics import Metrics
from glassformer.serve.models import ServedModel
from glassformer.serve.problems import Problem, input_problem


@dataclass
class Job:
    """One request; its outputs arrive batch by batch."""

    items: list[Item]
    answer: asyncio.Future[list[Any]]
    rows: list[Any] = field(default_factory=list)  # outputs of ``ServedModel.compute``
    n_left: int = 0


class Batcher:
    """The queue of one model."""

    def __init__(self, served: ServedModel, preparing: Any, computing: Executor, metrics: Metrics):
        self.served, self.limits = served, served.limits
        self.preparing, self.computing, self.metrics = preparing, computing, metrics
        self.tokens = 0  # of all admitted requests that are not answered yet
        self.waiting: deque[tuple[Job, int]] = deque()
        self.waiting_tokens = 0
        self.arrived = asyncio.Event()
        self.gauge = metrics.queue.labels(served.name)

    def full(self, size: int) -> bool:
        """Whether the queue is too full for a body of ``size`` bytes, estimated before parsing."""
        return (
            self.tokens > 0 and self.tokens + self.served.inputs.min_tokens(size) > self.limits.queue_tokens
        )

    async def submit(self, inputs: Sequence[Any], field: str) -> tuple[list[Item], list[Any]]:
        """The prepared inputs of a request, and one row of outputs for each.

        Problem 429: the queue is full, 503: too slow, 413 and 422: an input that cannot be used.
        """
        self.served.check(inputs, field)
        estimate = sum(map(self.served.inputs.estimate_tokens, inputs))
        if self.tokens and self.tokens + estimate > self.limits.queue_tokens:
            raise self.metrics.queue_is_full()
        self._admit(estimate)
        job = None
        try:
            async with asyncio.timeout(self.limits.seconds):
                items = await self.preparing.items(self.served.inputs, inputs, field)
                exact = sum(item.tokens for item in items)
                self._admit(exact - estimate)
                estimate = exact
                future = asyncio.get_running_loop().create_future()
                job = Job(items, future, [None] * len(items), len(items))
                self.waiting.extend((job, i) for i in range(len(items)))
                self.waiting_tokens += exact
                self.arrived.set()
                return items, await job.answer
        except TimeoutError:
            self.metrics.refused.labels("time").inc()
            fix = "Try again later"
            raise Problem(
                503, f"no answer within {self.limits.seconds:g} s", fix=fix, retry_after=2
            ) from None
        except InputError as error:
            raise input_problem(error) from None
        finally:
            if job is not None:
                job.answer.cancel()  # its inputs that still wait are dropped
            self._admit(-estimate)

    def _admit(self, tokens: int) -> None:
        self.tokens += tokens
        self.gauge.set(self.tokens)

    async def work(self) -> None:
        """Compute batches forever; one task of the server runs this."""
        loop = asyncio.get_running_loop()
        while True:
            await self.arrived.wait()
            if self.waiting_tokens < self.limits.batch_tokens:
                await asyncio.sleep(self.limits.wait_ms / 1000)
            while batch := self._take():
                items = [job.items[i] for job, i in batch]
                try:
                    rows = await loop.run_in_executor(self.computing, self.served.compute, items)
                    self._deliver(batch, rows)
                except Exception as error:  # only these requests fail; the next batch is computed as usual
                    for job, _ in batch:
                        if not job.answer.done():
                            job.answer.set_exception(error)
            self.arrived.clear()

    def _take(self) -> list[tuple[Job, int]]:
        """The next inputs up to ``batch_tokens``, at least one; those of cancelled requests are dropped."""
        batch, tokens = [], 0
        while self.waiting:
            job, i = self.waiting[0]
            size = job.items[i].tokens
            if batch and tokens + size > self.limits.batch_tokens:
                break
            self.waiting.popleft()
            self.waiting_tokens -= size
            if not job.answer.done():
                batch.append((job, i))
                tokens += size
        if batch:
            self.metrics.batch.labels(self.served.name).observe(tokens)
            self.metrics.tokens.labels(self.served.name).inc(tokens)
        return batch

    def _deliver(self, batch: Sequence[tuple[Job, int]], rows: list[Any]) -> None:
        self.metrics.inputs.labels(self.served.name).inc(len(batch))
        for (job, i), row in zip(batch, rows, strict=True):
            job.rows[i] = row
            job.n_left -= 1
            if not job.n_left and not job.answer.done():
                try:  # only this request fails; others in the batch may be fine
                    job.answer.set_result(self.served.check_answers(job.rows))
                except NotFiniteError as error:
                    job.answer.set_exception(error)
