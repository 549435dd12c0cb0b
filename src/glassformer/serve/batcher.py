"""The queue of a model, which batches requests, and the threads that encode them.

    request ──▶ limit reached? ──▶ encode ──▶ queue of inputs ──▶ packed batch ──▶ outputs
                429              (threads)   waits a few ms      (one computing thread)
                                             for other requests

Each text of a request is a separate entry of the queue. Requests can therefore share a batch, and a short
request does not wait for all texts of a long one.

    image ──▶ check header ──▶ small: two threads ──▶ pixels as the model reads them
                            └──▶ large: one thread, which limits memory and does not block small images

The size of an image is checked before it is decoded (``data/image_bounds.py``). If decoding still takes too
long, the request gets status 503, and a new thread replaces the busy thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

from glassformer.errors import InputError, NotFiniteError
from glassformer.inputs.images import ServedImages
from glassformer.inputs.inputs import Item, ServedInputs
from glassformer.runtime import return_freed_memory
from glassformer.serve.metrics import Metrics
from glassformer.serve.models import ServedModel
from glassformer.serve.problems import Problem, input_problem

# --- threads that tokenize texts and decode images ------------------------------------------------

SMALL_THREADS, LARGE_THREADS = 2, 1  # numbers of threads for small and large images
MAX_SMALL_PIXELS = 4_000_000  # images with more pixels are large
MAX_ABANDONED = 4  # maximum number of busy threads that are replaced; beyond it, images wait


class Job:
    """One call in the queue of ``Workers``."""

    def __init__(self, call: Callable[[], Any]):
        self.call: Callable[[], Any] | None = call
        self.future: Future[Any] = Future()
        self.started: float | None = None  # time.monotonic()
        self.is_finished = self.is_abandoned = False


class Workers:
    """Threads that run calls from a queue. They are daemons: the process does not wait for them at exit.

    Args:
        seconds: timeout of a call.
    """

    def __init__(self, count: int, name: str, seconds: float):
        self.name, self.seconds = name, seconds
        self.queue: SimpleQueue[Job | None] = SimpleQueue()
        self.lock = threading.Lock()
        self.num_threads = self.num_abandoned = 0
        for _ in range(count):
            self._add_thread()

    def start(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Queue a call; the future gets its result or error, or Problem 503 after a timeout.

        If the future is canceled in time, the call does not start.
        """
        job = Job(call)
        loop = asyncio.get_running_loop()
        result = asyncio.wrap_future(job.future)
        timer = loop.call_later(self.seconds, self._check_time, loop, job)
        result.add_done_callback(lambda _: timer.cancel() if job.is_finished else None)
        self.queue.put(job)
        return result

    def close(self) -> None:
        """Let the threads end when the queue is empty."""
        with self.lock:
            for _ in range(self.num_threads):
                self.queue.put(None)

    def _add_thread(self) -> None:
        self.num_threads += 1
        # Not a ThreadPoolExecutor: the interpreter waits for its threads at exit.
        threading.Thread(target=self._run, name=self.name, daemon=True).start()

    def _run(self) -> None:
        while (job := self.queue.get()) is not None:
            call, job.call = job.call, None
            result, error = None, None
            job.started = time.monotonic()
            if not job.future.set_running_or_notify_cancel():
                job.is_finished = True
                continue
            try:
                assert call is not None
                result = call()
            except BaseException as e:
                error = e
            with self.lock:
                job.is_finished = True
                if job.is_abandoned:
                    self.num_abandoned -= 1
                    if self.num_abandoned < MAX_ABANDONED:  # another thread has replaced this one
                        self.num_threads -= 1
                        return
                elif error is None:
                    job.future.set_result(result)
                else:
                    job.future.set_exception(error)
            del call, result, error, job  # free the memory of the image before the next call

    def _check_time(self, loop: asyncio.AbstractEventLoop, job: Job) -> None:
        """Give up a call that takes too long; runs in the event loop."""
        with self.lock:
            if job.is_finished or job.future.cancelled():
                return
            elapsed = 0.0 if job.started is None else time.monotonic() - job.started
            if elapsed < self.seconds:
                loop.call_later(max(0.01, self.seconds - elapsed), self._check_time, loop, job)
                return
            job.is_abandoned = True
            what = f"the image took longer than {self.seconds:g} s to decode"
            fix = "Scale the image down, or save it again"
            job.future.set_exception(Problem(503, what, where="images", fix=fix, retry_after=2))
            self.num_abandoned += 1
            if self.num_abandoned <= MAX_ABANDONED:
                self._add_thread()


def _decode_large(decode: Callable[[], Item]) -> Item:
    """Decode a large image; freed memory is returned to the system before and after it."""
    return_freed_memory()
    try:
        return decode()
    finally:
        return_freed_memory()


class TextEncoder:
    """The threads that tokenize the texts of all models."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(2, "prepare-text")

    async def encode(self, model: ServedInputs, inputs: Sequence[Any], field: str) -> list[Item]:
        """Tokenize inputs; raises InputError for an unusable input."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, model.encode, inputs, field)


class ImageDecoder:
    """The threads that decode the images of all models."""

    def __init__(self, seconds: float):
        self.small = Workers(SMALL_THREADS, "decode", seconds)
        self.large = Workers(LARGE_THREADS, "decode-large", seconds)

    async def encode(self, model: ServedImages, contents: Sequence[str], field: str) -> list[Item]:
        """Decode images in base64 one after the other; stops if the request is canceled."""
        contents_and_pixels = await self.small.start(lambda: model.decode_base64(contents, field))
        items = []
        for i, (content, pixels) in enumerate(contents_and_pixels):
            call = partial(model.decode, content, f"{field}[{i}]")
            if pixels > MAX_SMALL_PIXELS:
                items.append(await self.large.start(partial(_decode_large, call)))
            else:
                items.append(await self.small.start(call))
        return items

    def shutdown(self) -> None:
        """Let the threads end, but do not wait for them."""
        self.small.close()
        self.large.close()


# --- the queue ------------------------------------------------------------------------------------


@dataclass
class QueuedRequest:
    """A request in the queue of a model; its inputs may be in several batches."""

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
        self.waiting: deque[tuple[QueuedRequest, int]] = deque()  # inputs: request, index in the request
        self.waiting_tokens = 0
        self.arrived = asyncio.Event()  # set when inputs are added to ``waiting``
        self.gauge = metrics.queue.labels(served.name)

    def is_full(self, size: int) -> bool:
        """Whether the queue is too full for a body of ``size`` bytes; an estimate, before parsing."""
        min_tokens = self.served.inputs.min_tokens(size)
        return self.tokens > 0 and self.tokens + min_tokens > self.limits.queue_tokens

    async def submit(self, inputs: Sequence[Any], field: str) -> tuple[list[Item], list[Any]]:
        """Compute the outputs of a request; returns its encoded inputs, and one row of outputs per input.

        Args:
            field: name of the inputs in the request, for error messages.

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
                request.outputs.cancel()  # ``_next_batch`` then drops the inputs that still wait
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
            while batch := self._next_batch():
                items = [request.items[i] for request, i in batch]
                try:
                    rows = await loop.run_in_executor(self.computing, self.served.compute, items)
                    self._deliver(batch, rows)
                except Exception as error:  # only the requests of this batch fail
                    for request, _ in batch:
                        if not request.outputs.done():
                            request.outputs.set_exception(error)
            self.arrived.clear()

    def _next_batch(self) -> list[tuple[QueuedRequest, int]]:
        """Remove the inputs of the next batch from the queue: at least one, with at most ``batch_tokens``.

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
