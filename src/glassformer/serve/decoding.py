"""The threads that make batches' items of inputs. Texts take milliseconds; images take seconds.

Images are decoded in threads that may be given up: one that hangs costs only its own request an answer.

    image ──▶ header looked through ──▶ small: two threads ──▶ pixels as the model reads them
                                     └──▶ large: one thread: memory is bounded, and no small one waits for it

What a file may ask for is bounded before it is decoded (``data/image_bounds.py``). For what gets past that,
there is a limit of time: the request is answered 503, and another thread takes the place of the busy one.
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
from glassformer.inputs.served import Item, Served
from glassformer.runtime import return_freed_memory
from glassformer.serve.problems import Problem

SMALL_THREADS, LARGE_THREADS = 2, 1
LARGE = 4_000_000  # pixels, from which on an image is decoded one at a time
MOST_LOST = 4  # threads given up and still at it, for which there are others; beyond it, images wait


class Job:
    """One call, from the queue to its end."""

    def __init__(self, call: Callable[[], Any]):
        self.call: Callable[[], Any] | None = call
        self.future: Future[Any] = Future()
        self.started: float | None = None
        self.over = self.given_up = False


class Workers:
    """Threads that take calls from a queue. They end with the process, whatever they are at.

    Args:
        seconds: that one call may take.
    """

    def __init__(self, count: int, name: str, seconds: float):
        self.name, self.seconds = name, seconds
        self.queue: SimpleQueue[Job | None] = SimpleQueue()
        self.lock = threading.Lock()
        self.threads = self.lost = 0
        for _ in range(count):
            self._hire()

    def start(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """A call's result, or its error; 503: it takes too long. A call nobody waits for is not begun."""
        job = Job(call)
        loop = asyncio.get_running_loop()
        answer = asyncio.wrap_future(job.future)
        timer = loop.call_later(self.seconds, self._look, loop, job)
        answer.add_done_callback(lambda _: timer.cancel() if job.over else None)
        self.queue.put(job)
        return answer

    def close(self) -> None:
        """Let the threads end once they have nothing to do."""
        with self.lock:
            for _ in range(self.threads):
                self.queue.put(None)

    def _hire(self) -> None:
        self.threads += 1
        # Not a ThreadPoolExecutor's: the interpreter would wait for those at its end.
        threading.Thread(target=self._work, name=self.name, daemon=True).start()

    def _work(self) -> None:
        while (job := self.queue.get()) is not None:
            call, job.call = job.call, None
            result, error = None, None
            job.started = time.monotonic()
            if not job.future.set_running_or_notify_cancel():
                job.over = True
                continue
            try:
                assert call is not None
                result = call()
            except BaseException as e:
                error = e
            with self.lock:
                job.over = True
                if not job.given_up:
                    if error is None:
                        job.future.set_result(result)
                    else:
                        job.future.set_exception(error)
                else:
                    self.lost -= 1
                    self.threads -= 1
                    if self.lost < MOST_LOST:  # another one is in its place
                        return
                    self.threads += 1
            del call, result, error, job  # an image is not kept until the next one comes

    def _look(self, loop: asyncio.AbstractEventLoop, job: Job) -> None:
        """Whether a call takes too long; in the event loop."""
        with self.lock:
            if job.over or job.future.cancelled():
                return
            taken = 0.0 if job.started is None else time.monotonic() - job.started
            if taken < self.seconds:
                loop.call_later(max(0.01, self.seconds - taken), self._look, loop, job)
                return
            job.given_up = True
            what = f"the image took longer than {self.seconds:g} s to decode"
            fix = "Scale it down, or save it again"
            job.future.set_exception(Problem(503, what, where="images", fix=fix, again=2))
            self.lost += 1
            if self.lost <= MOST_LOST:
                self._hire()


def _decode(model: ServedImages, content: bytes, where: str) -> Item:
    return model.decode(content, where)


def _decode_large(model: ServedImages, content: bytes, where: str) -> Item:
    """As ``decode``; a thread has its own heap, which would go on holding the largest image it has seen."""
    return_freed_memory()  # of the others
    try:
        return model.decode(content, where)
    finally:
        return_freed_memory()


class Encoding:
    """The threads that tokenize the texts of all models."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(2, "prepare-text")

    async def items(self, model: Served, inputs: Sequence[Any], what: str) -> list[Item]:
        """Inputs as a model reads them; raises InputError for one that cannot be used."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, model.encode, inputs, what)

    def shutdown(self, wait: bool = False, cancel_futures: bool = True) -> None:
        """Let the threads end."""
        self.threads.shutdown(wait=wait, cancel_futures=cancel_futures)


class Decoding:
    """The threads that decode the images of all models.

    Args:
        seconds: that one image may take.
    """

    def __init__(self, seconds: float):
        self.small = Workers(SMALL_THREADS, "decode", seconds)
        self.large = Workers(LARGE_THREADS, "decode-large", seconds)

    async def items(self, model: ServedImages, contents: Sequence[str], what: str) -> list[Item]:
        """Images in base64 as a model reads them, one by one; no further one if nobody waits.

        Raises:
            DataError: one that cannot be used, or all that are too large together; nothing is decoded then.
            Problem: one that takes too long.
        """
        opened = await self.small.start(lambda: model.open_all(contents, what))
        items = []
        for i, (content, pixels) in enumerate(opened):
            lane, decode = (self.large, _decode_large) if pixels > LARGE else (self.small, _decode)
            items.append(await lane.start(lambda d=decode, c=content, i=i: d(model, c, f"{what}[{i}]")))
        return items

    def shutdown(self, wait: bool = False, cancel_futures: bool = True) -> None:
        """Let the threads end, as an executor does; nothing is waited for."""
        self.small.close()
        self.large.close()
