"""Connections that send nothing, or drop by drop, are closed; so are the oldest idle ones when there are too many.

uvicorn bounds the time between two requests, not the time until the first one's headers are there.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from glassformer.serve.limits import Limits


def bounded_protocol(limits: Limits) -> type[HttpToolsProtocol]:
    """uvicorn's protocol within these limits; one server's connections know each other."""
    idle: dict[Any, None] = {}  # connections without a request, the oldest first

    class Bounded(HttpToolsProtocol):
        timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            idle[self] = None
            self._within(limits.body_seconds)
            if len(self.connections) > limits.connections:
                oldest = next(iter(idle))
                del idle[
                    oldest
                ]  # now, not when it is closed: a burst must not close the same one again and again
                oldest.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            idle.pop(self, None)
            self._within(None)
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if self.cycle is None or self.cycle.response_complete:
                self._within(limits.body_seconds)

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            idle.pop(self, None)
            # Body, answer, and a client that does not read it: all in all no longer than this.
            self._within(2 * (limits.body_seconds + limits.seconds))

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.cycle.response_complete and not self.transport.is_closing():
                self._within(None)
                idle[self] = None

        def _within(self, seconds: float | None) -> None:
            if self.timer is not None:
                self.timer.cancel()
            self.timer = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    return Bounded
