"""Threads that prepare inputs for batches. Texts take milliseconds; images take seconds.

Images are decoded in threads that can be abandoned: one that hangs only fails its own request.

    image ──▶ header checked ──▶ small: two threads ──▶ pixels as the model reads them
                              └──▶ large: one thread, which bounds memory and does not block small ones

The size of an image is checked before it is decoded (``data/image_bounds.py``). If decoding still takes too
long, the request gets status 503, and a new thread replaces the busy one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from glassformer.inputs.images import ServedImages
from glassformer.inputs.inputs import Item, ServedInputs
from glassformer.runtime import return_freed_memory
from glassformer.serve.problems import Problem

SMALL_THREADS, LARGE_THREADS = 2, 1
LARGE = 4_000_000  # pixels; larger images are decoded one at a time
MAX_ABANDONED = 4  # busy threads that were replaced; with more, images wait


class Job:
    """One call in the queue of ``Workers``."""

    def __init__(self, call: Callable[[], Any]):
        self.call: Callable[[], Any] | None = call
        self.future: Future[Any] = Future()
        self.started: float | None = None
        self.finished = self.abandoned = False


class Workers:
    """Threads that run calls from a queue. They are daemons, so they end with the process."""

    def __init__(self, count: int, name: str, seconds: float):
        self.name, self.seconds = name, seconds
        self.queue: SimpleQueue[Job | None] = SimpleQueue()
        self.lock = threading.Lock()
        self.threads = self.n_abandoned = 0
        for _ in range(count):
            self._add_thread()

    def start(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Queue a call; the future has its result or error, 503 on timeout. Cancelled calls do not start."""
        job = Job(call)
        loop = asyncio.get_running_loop()
        answer = asyncio.wrap_future(job.future)
        timer = loop.call_later(self.seconds, self._check_time, loop, job)
        answer.add_done_callback(lambda _: timer.cancel() if job.finished else None)
        self.queue.put(job)
        return answer

    def close(self) -> None:
        """Let the threads end when the queue is empty."""
        with self.lock:
            for _ in range(self.threads):
                self.queue.put(None)

    def _add_thread(self) -> None:
        self.threads += 1
        # Not in a ThreadPoolExecutor, whose threads the interpreter waits for at exit.
        threading.Thread(target=self._work, name=self.name, daemon=True).start()

    def _work(self) -> None:
        while (job := self.queue.get()) is not None:
            call, job.call = job.call, None
            result, error = None, None
            job.started = time.monotonic()
            if not job.future.set_running_or_notify_cancel():
                job.finished = True
                continue
            try:
                assert call is not None
                result = call()
            except BaseException as e:
                error = e
            with self.lock:
                job.finished = True
                if not job.abandoned:
                    if error is None:
                        job.future.set_result(result)
                    else:
                        job.future.set_exception(error)
                else:
                    self.n_abandoned -= 1
                    self.threads -= 1
                    if self.n_abandoned < MAX_ABANDONED:  # another thread has replaced this one
                        return
                    self.threads += 1
            del call, result, error, job  # do not keep the image until the next call

    def _check_time(self, loop: asyncio.AbstractEventLoop, job: Job) -> None:
        """Abandon a call that takes too long; runs in the event loop."""
        with self.lock:
            if job.finished or job.future.cancelled():
                return
            elapsed = 0.0 if job.started is None else time.monotonic() - job.started
            if elapsed < self.seconds:
                loop.call_later(max(0.01, self.seconds - elapsed), self._check_time, loop, job)
                return
            job.abandoned = True
            what = f"the image took longer than {self.seconds:g} s to decode"
            fix = "Scale the image down, or save it again"
            job.future.set_exception(Problem(503, what, where="images", fix=fix, retry_after=2))
            self.n_abandoned += 1
            if self.n_abandoned <= MAX_ABANDONED:
                self._add_thread()


def _decode(model: ServedImages, content: bytes, where: str) -> Item:
    return model.decode(content, where)


def _decode_large(model: ServedImages, content: bytes, where: str) -> Item:
    """Decode a large image, and return its memory, which the thread's own heap would keep."""
    return_freed_memory()  # of other threads
    try:
        return model.decode(content, where)
    finally:
        return_freed_memory()


class Encoding:
    """The threads that tokenize the texts of all models."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(2, "prepare-text")

    async def items(self, model: ServedInputs, inputs: Sequence[Any], field: str) -> list[Item]:
        """Tokenize inputs; raises InputError if one cannot be used."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, model.encode, inputs, field)

    def shutdown(self, wait: bool = False, cancel_futures: bool = True) -> None:
        """Let the threads end."""
        self.threads.shutdown(wait=wait, cancel_futures=cancel_futures)


class Decoding:
    """The threads that decode the images of all models."""

    def __init__(self, seconds: float):
        self.small = Workers(SMALL_THREADS, "decode", seconds)
        self.large = Workers(LARGE_THREADS, "decode-large", seconds)

    async def items(self, model: ServedImages, contents: Sequence[str], field: str) -> list[Item]:
        """Decode images in base64, one by one; stops if the request is cancelled."""
        contents_and_pixels = await self.small.start(lambda: model.decode_base64(contents, field))
        items = []
        for i, (content, pixels) in enumerate(contents_and_pixels):
            lane, decode = (self.large, _decode_large) if pixels > LARGE else (self.small, _decode)
            items.append(await lane.start(lambda d=decode, c=content, i=i: d(model, c, f"{field}[{i}]")))
        return items

    def shutdown(self, wait: bool = False, cancel_futures: bool = True) -> None:
        """Let the threads end, without waiting for them."""
        self.small.close()
        self.large.close()
