"""The queue of a model, which batches requests.

    request ──▶ limit reached? ──▶ encode ──▶ queue of inputs ──▶ packed batch ──▶ outputs
                429              (threads)   waits a few ms      (one computing thread)
                                             for other requests

Each text of a request has its own place in the queue. So requests share batches, and a short request does not
wait for all texts of a long one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from glassformer.errors import InputError, NotFiniteError
from glassformer.inputs.inputs import Item
from glassformer.serve.decoding import ImageDecoder, TextEncoder
from glassformer.serve.metrics import Metrics
from glassformer.serve.models import ServedModel
from glassformer.serve.problems import Problem, input_problem


@dataclass
class QueuedRequest:
    """A request whose outputs are computed batch by batch."""

    items: list[Item]
    outputs: asyncio.Future[list[Any]]
    rows: list[Any]  # outputs of ``ServedModel.compute``; None: not computed yet
    num_missing: int  # number of items without outputs


class Batcher:
    """The queue of one model.

    Args:
        encoder: encodes the inputs of requests in other threads.
        computing: the thread that computes batches.
    """

    def __init__(
        self, served: ServedModel, encoder: TextEncoder | ImageDecoder, computing: Executor, metrics: Metrics
    ):
        self.served, self.limits = served, served.limits
        self.encoder: Any = encoder
        self.computing, self.metrics = computing, metrics
        self.tokens = 0  # of all accepted requests without a response
        self.waiting: deque[tuple[QueuedRequest, int]] = deque()  # requests, and positions of inputs in them
        self.waiting_tokens = 0
        self.arrived = asyncio.Event()
        self.gauge = metrics.queue.labels(served.name)

    def is_full(self, size: int) -> bool:
        """Whether the queue is too full for a body of ``size`` bytes, estimated before parsing."""
        min_tokens = self.served.inputs.min_tokens(size)
        return self.tokens > 0 and self.tokens + min_tokens > self.limits.queue_tokens

    async def submit(self, inputs: Sequence[Any], field: str) -> tuple[list[Item], list[Any]]:
        """The encoded inputs of a request, and one row of outputs per input.

        Raises:
            Problem: 429 the queue is full, 503 timeout, 413 or 422 an input cannot be used.
        """
        self.served.check(inputs, field)
        tokens = sum(map(self.served.inputs.estimate_tokens, inputs))
        if self.tokens and self.tokens + tokens > self.limits.queue_tokens:
            raise self.metrics.count_full_queue()
        self._add_tokens(tokens)
        request = None
        try:
            async with asyncio.timeout(self.limits.seconds):
                items = await self.encoder.encode(self.served.inputs, inputs, field)
                exact_tokens = sum(item.tokens for item in items)
                self._add_tokens(exact_tokens - tokens)
                tokens = exact_tokens
                future = asyncio.get_running_loop().create_future()
                request = QueuedRequest(items, future, [None] * len(items), len(items))
                self.waiting.extend((request, i) for i in range(len(items)))
                self.waiting_tokens += tokens
                self.arrived.set()
                return items, await request.outputs
        except TimeoutError:
            self.metrics.refused.labels("time").inc()
            what = f"no answer within {self.limits.seconds:g} s"
            raise Problem(503, what, fix="Try again later", retry_after=2) from None
        except InputError as error:
            raise input_problem(error) from None
        finally:
            if request is not None:
                request.outputs.cancel()  # ``_take`` then drops the inputs that still wait
            self._add_tokens(-tokens)

    def _add_tokens(self, tokens: int) -> None:
        self.tokens += tokens
        self.gauge.set(self.tokens)

    async def run(self) -> None:
        """Compute batches forever."""
        loop = asyncio.get_running_loop()
        while True:
            await self.arrived.wait()
            if self.waiting_tokens < self.limits.batch_tokens:
                await asyncio.sleep(self.limits.wait_ms / 1000)
            while batch := self._take():
                items = [request.items[i] for request, i in batch]
                try:
                    rows = await loop.run_in_executor(self.computing, self.served.compute, items)
                    self._deliver(batch, rows)
                except Exception as error:  # only the requests of this batch fail
                    for request, _ in batch:
                        if not request.outputs.done():
                            request.outputs.set_exception(error)
            self.arrived.clear()

    def _take(self) -> list[tuple[QueuedRequest, int]]:
        """Take the inputs of the next batch from the queue: up to ``batch_tokens``, at least one input.

        Inputs of canceled requests are dropped.
        """
        batch, tokens = [], 0
        while self.waiting:
            request, i = self.waiting[0]
            size = request.items[i].tokens
            if batch and tokens + size > self.limits.batch_tokens:
                break
            self.waiting.popleft()
            self.waiting_tokens -= size
            if not request.outputs.done():
                batch.append((request, i))
                tokens += size
        if batch:
            self.metrics.batch.labels(self.served.name).observe(tokens)
            self.metrics.tokens.labels(self.served.name).inc(tokens)
        return batch

    def _deliver(self, batch: Sequence[tuple[QueuedRequest, int]], rows: list[Any]) -> None:
        self.metrics.inputs.labels(self.served.name).inc(len(batch))
        for (request, i), row in zip(batch, rows, strict=True):
            request.rows[i] = row
            request.num_missing -= 1
            if not request.num_missing and not request.outputs.done():
                try:
                    request.outputs.set_result(self.served.check_outputs(request.rows))
                except NotFiniteError as error:  # the other requests of the batch may be fine
                    request.outputs.set_exception(error)
