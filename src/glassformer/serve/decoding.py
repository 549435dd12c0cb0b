"""Threads that tokenize texts and decode images.

    image ──▶ check header ──▶ small: two threads ──▶ pixels as the model reads them
                            └──▶ large: one thread, which limits memory and does not block small images

The size of an image is checked before it is decoded (``data/image_bounds.py``). If decoding takes too long
anyway, the request gets status 503, and a new thread replaces the busy thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any

from glassformer.inputs.images import ServedImages
from glassformer.inputs.inputs import Item, ServedInputs
from glassformer.runtime import return_freed_memory
from glassformer.serve.problems import Problem

SMALL_THREADS, LARGE_THREADS = 2, 1
MAX_SMALL_PIXELS = 4_000_000
MAX_ABANDONED = 4  # maximum number of busy threads that are replaced; then images wait


class Job:
    """One call in the queue of ``Workers``."""

    def __init__(self, call: Callable[[], Any]):
        self.call: Callable[[], Any] | None = call
        self.future: Future[Any] = Future()
        self.started: float | None = None
        self.is_finished = self.is_abandoned = False


class Workers:
    """Threads that run calls from a queue. They are daemons, so the process does not wait for them."""

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
        # The interpreter would wait for the threads of a ThreadPoolExecutor at exit.
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
        """Abandon a call that takes too long; runs in the event loop."""
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
    """Decode a large image, and return freed memory to the system before and after it."""
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
        """Tokenize inputs; raises InputError if one cannot be used."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, model.encode, inputs, field)


class ImageDecoder:
    """The threads that decode the images of all models."""

    def __init__(self, seconds: float):
        self.small = Workers(SMALL_THREADS, "decode", seconds)
        self.large = Workers(LARGE_THREADS, "decode-large", seconds)

    async def encode(self, model: ServedImages, contents: Sequence[str], field: str) -> list[Item]:
        """Decode base64 images one by one, until the request is canceled."""
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
        """Let the threads end, without waiting for them."""
        self.small.close()
        self.large.close()
