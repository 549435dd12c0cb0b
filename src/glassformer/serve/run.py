"""A server process: uvicorn around the application, within its limits, until a signal."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import warnings
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from glassformer.errors import ConfigError
from glassformer.outputs import printable
from glassformer.process import keep_freed_memory
from glassformer.serve.app import create_app
from glassformer.serve.guard import HEADERS, LOCAL, is_local
from glassformer.serve.kinds import Table
from glassformer.serve.limits import Limits
from glassformer.serve.metrics import Held, Share
from glassformer.serve.models import load_models, search_in
from glassformer.serve.problems import Problem

# --- connections within bounds --------------------------------------------------------------------
#
# Of time, of number, and of the bytes that are no body.
#
# Those that send nothing, or drop by drop, are closed; so are the oldest idle ones when there are too many,
# and those whose answer nobody reads. uvicorn bounds the time between two requests only, and neither heads,
# chunk extensions and trailers nor requests that wait behind one another.


SLICE = 16_384  # bytes that are parsed before they are counted
KNOCKS, PAUSE = 2, 0.5  # writes that tell whether a client is still there, and seconds before each
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LINGER = 2.0  # seconds for a client that is still sending to read why it was refused
BETWEEN, HEAD, BODY = range(3)  # requests; what the next byte belongs to


class Lingering:
    """A transport that ends only when its client has sent all, or for too long.

    Closed at once, with bytes of a body unread, a connection is reset, and a client that sends first and
    reads then, as Python's urllib does, never sees its answer.
    """

    def __init__(self, transport: Any, protocol: Any):
        self._transport, self._protocol = transport, protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        """Close it, once nobody sends any more."""
        if not self._protocol.lingers():
            self._transport.close()


class Bounded(HttpToolsProtocol):
    """uvicorn's protocol within limits; see ``bounded_protocol``, which gives the first three."""

    limits: Limits
    held: Held  # what all requests hold together, their heads among it
    idle: dict[Bounded, None]  # connections without a request, the oldest first
    timer: asyncio.TimerHandle | None = None
    phase = BETWEEN
    begun = 0  # requests
    head = 0  # bytes of an unfinished head
    finished = 0  # bytes of its line and of those of its headers that are whole
    fields = 0  # these headers
    quiet = 0  # bytes since the body has grown last: chunk extensions, trailers
    framed = 0  # bytes of the body as it was sent, with its chunks' sizes and all that
    deaf = False  # nothing that still comes is looked at
    refusal: Problem | None = None

    # --- the connection ----------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.transport = Lingering(transport, self)  # type: ignore[assignment]  # it does what one does
        self.share = Share(self.held)
        self.heads: deque[int] = deque()  # bytes, of requests that are not answered
        self.open: deque[Any] = deque()  # these requests; uvicorn knows the last of them
        self.idle[self] = None
        self._within(self.limits.body_seconds)
        if len(self.connections) > self.limits.connections:
            oldest = next(iter(self.idle))
            del self.idle[
                oldest
            ]  # now, not when it is closed: a burst must not close the same one again and again
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.idle.pop(self, None)
        self._within(None)
        self.share.give_back()
        for cycle in self.open:  # their answers go nowhere, and are not counted as given
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def eof_received(self) -> bool:
        """A client that says it sends no more, and still reads, gets the answers to what it has asked."""
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            return False
        self._last()
        self.loop.call_later(PAUSE, self._knock, KNOCKS)
        return True

    def _knock(self, left: int) -> None:
        """Whether a client waits or has gone, its end of sending looks the same: only a write tells.

        Each client of HTTP/1.1 passes over an interim answer (RFC 9110, section 15.2). The first makes
        the system of a client that has gone refuse, and the second fails by that.
        """
        if self.transport.is_closing() or not self.open or self.open[0].response_started:
            return
        if self.open[0].scope["http_version"] == "1.1":
            self.transport.write(CONTINUE)
        if left > 1:
            self.loop.call_later(PAUSE, self._knock, left - 1)

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():  # nobody reads the last answer, nor would wait for a close
            self.transport.abort()
        super().timeout_keep_alive_handler()

    # --- what comes in -----------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        size = min(SLICE, self.limits.header_bytes)
        for start in range(0, len(data), size):
            if self.deaf or self.transport.is_closing():
                return
            self._parse(data[start : start + size])
        if self.timer is None:  # also for line ends, which begin no request
            self._within(self.limits.body_seconds)

    def _parse(self, part: bytes) -> None:
        phase, begun, self.quiet = self.phase, self.begun, self.quiet + len(part)
        super().data_received(part)
        if self.deaf:
            return
        if self.parser is not None and self.phase != HEAD and self.parser.should_upgrade():
            self._last()  # to HTTP/1.1 as it is: what follows may be another protocol
        elif self.phase == HEAD and phase != BODY and self.begun <= begun + (phase == BETWEEN):
            self.head += len(part)  # all of it; otherwise an unknown part of it
        elif self.phase == BODY:
            self.framed += len(part)
        try:
            self._charge()
        except Problem as problem:
            return self._refuse(problem)
        if max(self.head, self.finished) > self.limits.header_bytes:
            self._refuse(_too_large(self.limits.header_bytes))
        elif self.phase == BODY and (
            self.quiet > self.limits.header_bytes
            or self.framed > 2 * self.limits.body_bytes + self.limits.header_bytes
        ):
            self._refuse(Problem(413, "more framing than body", where="body", fix="Send larger chunks"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.phase, self.head, self.finished, self.fields = HEAD, 0, 0, 0
        self.begun += 1
        if self.cycle is None or self.cycle.response_complete:
            self._within(self.limits.body_seconds)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._finish(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.phase == BODY:
            return  # a trailer: it says nothing that the guard has not already judged
        super().on_header(name, value)
        self.fields += 1
        self._finish(len(name) + len(value) + 4)
        if self.fields > self.limits.headers:
            self._stop(_too_many(self.limits.headers))

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self.limits.pipelined:
            self._stop(Problem(429, "too many requests wait on this connection"))
        parser: Any = self.parser
        if parser.should_upgrade() and parser.get_method() in (b"POST", b"PUT", b"PATCH"):
            # The parser takes the body for the other protocol's.
            self._stop(Problem(400, "not taken", where="Upgrade", fix="Send HTTP/1.1 without it"))
        if not self.url.startswith(b"/"):
            self._name_host()
        super().on_headers_complete()
        self.phase, self.head, self.quiet, self.framed = BODY, 0, 0, 0
        self.heads.append(self.finished)
        self.open.append(self.cycle)
        self.idle.pop(self, None)
        self._within(2 * (self.limits.body_seconds + self.limits.seconds))

    def on_body(self, body: bytes) -> None:
        self.quiet = 0
        if self.pipeline:  # it waits, and so does its body
            self.heads[-1] += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.phase = BETWEEN
        super().on_message_complete()

    def _name_host(self) -> None:
        """The host of an absolute address counts, whatever Host says."""
        if (host := httptools.parse_url(self.url).host) is not None:
            self.headers[:] = [(name, value) for name, value in self.headers if name != b"host"]
            self.headers.append((b"host", b"[" + host + b"]" if b":" in host else host))

    # --- what goes out -----------------------------------------------------------------------

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.heads.popleft()
        self.open.popleft()
        self._charge()
        if self.transport.is_closing() or self.deaf:
            return  # the time for the client to read its answer goes on
        if not self.cycle.response_complete:  # the next one, which has waited behind this one
            return self._within(2 * (self.limits.body_seconds + self.limits.seconds))
        self.idle[self] = None
        if self.phase != BETWEEN:  # the rest of a body that nobody waits for, or the next head
            self._within(self.limits.body_seconds)
        elif not self.transport.get_write_buffer_size():
            self._within(None)

    def send_400_response(self, msg: str) -> None:
        """What uvicorn calls where the parser has failed."""
        problem = Problem(400, "not HTTP/1.1", where="request", fix="Send one as RFC 9112 has it")
        self._refuse(self.refusal or problem)

    def _refuse(self, problem: Problem) -> None:
        """Answer the request coming in, and look at nothing more; answers before it are still given."""
        last = self.cycle
        if self.phase != BODY and last is not None and not last.response_complete:
            return self._last()
        if self.pipeline or (self.phase == BODY and last.response_started):
            return self.transport.abort()  # another answer would stand for that of another request
        if self.phase == BODY:
            last.disconnected = True
            last.message_event.set()
        if self.held.metrics is not None:
            self.held.metrics.requests.labels("other", str(problem.status)).inc()
        answer = problem.response()
        head = [(k, v) for k, v in answer.raw_headers if k != b"connection"]
        head += [*HEADERS, (b"cache-control", b"no-store"), (b"connection", b"close")]
        status = f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\n".encode()
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in head)
        self.transport.write(status + lines + b"\r\n" + bytes(answer.body))
        self._linger(LINGER)

    def lingers(self) -> bool:
        """Whether an answer has been given before its request was read, so that the end has to wait."""
        cycle = self.cycle
        if self.deaf or self.phase != BODY or cycle is None or cycle.keep_alive:
            return False
        if not cycle.response_complete:
            return False
        self._linger(self.limits.body_seconds)
        self.idle[self] = None
        return True

    def _linger(self, seconds: float) -> None:
        self.deaf = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._within(seconds)

    def _last(self) -> None:
        """After the answer to the request that came last the connection ends."""
        self.deaf = True
        self.cycle.keep_alive = False
        if self.cycle.response_complete:
            self.transport.close()

    # --- counts ------------------------------------------------------------------------------

    def _finish(self, size: int) -> None:
        self.finished += size
        if self.finished > self.limits.header_bytes:
            self._stop(_too_large(self.limits.header_bytes))

    def _stop(self, problem: Problem) -> None:
        """Raises what ends the parser, which calls ``send_400_response``."""
        self.refusal = problem
        raise problem

    def _charge(self) -> None:
        self.share.set(sum(self.heads) + max(self.head, self.finished if self.phase == HEAD else 0))

    def _within(self, seconds: float | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)


def bounded_protocol(limits: Limits, held: Held | None = None) -> type[Bounded]:
    """uvicorn's protocol within these limits; one server's connections know each other.

    Args:
        held: what all requests hold together, their heads among it.
    """
    return type("Bounded", (Bounded,), {"limits": limits, "held": held or Held(limits.all_bytes), "idle": {}})


def _too_large(header_bytes: int) -> Problem:
    what = f"more than {header_bytes:,} bytes"
    return Problem(431, what, where="headers", fix="Send fewer and shorter ones")


def _too_many(headers: int) -> Problem:
    return Problem(431, f"more than {headers:,}", where="headers", fix="Send fewer")


# --- the process ----------------------------------------------------------------------------------


log = logging.getLogger("glassformer.serve")

SPARE_FILES = 64  # beside the connections
BACKLOG = 2048  # connections that wait to be taken


def run_server(
    runs: Sequence[str | Path],
    limits: Limits,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    key: str | None = None,
    hosts: Collection[str] = (),
    threads: int = 0,
    precision: str = "auto",
    search: Path | Table | None = None,
    said: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM: requests that are in are answered, new ones are not taken.

    Args:
        runs: folders of runs or of saved classifiers.
        host: an address of this machine; anything but a loopback address is open to others.
        port: 0 lets the system choose.
        key: see ``Guard``.
        hosts: names under which clients reach it; on a loopback address always the local names, too.
        search: a saved index, or texts with their rows and other columns, for ``/v1/search``.
        said: called with the address once the socket is open.

    Raises:
        InputError: no model that can be loaded; a port that is taken.
    """
    keep_freed_memory()
    # Sizes are judged before images are decoded; a warning on stderr would be a stranger's to repeat.
    warnings.filterwarnings(
        "ignore", "Image size .* exceeds limit"
    )  # by its text: Pillow is not loaded for texts
    broken: dict[str, str] = {}
    models = load_models(runs, limits, threads=threads, precision=precision, broken=broken)
    for name, error in broken.items():
        log.warning("%s", printable(f"{name} is not served: {error}"))
    if search is not None:
        search_in(models, search)
    if is_local(host):
        hosts = {*LOCAL, host, *hosts}
    _allow_files(limits.connections)
    held = Held(limits.all_bytes)
    app = create_app(models, limits, key=key, hosts=hosts, held=held, broken=broken)
    config = uvicorn.Config(
        app,
        host,
        port,
        http=bounded_protocol(limits, held),
        ws="none",
        lifespan="on",
        access_log=False,
        log_level=logging.ERROR,  # a warning for each request that is no HTTP would be a stranger's to repeat
        server_header=False,
        date_header=True,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=int(limits.seconds) + 1,
        backlog=BACKLOG,
    )
    name = f"[{host}]" if ":" in host else host
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind((host, port))
            # Before the address is told: a client that asks at once waits and is not refused.
            door.listen(BACKLOG)
        except OSError as error:
            reason = error.strerror or "cannot be opened"
            raise ConfigError(reason, where=f"{name}:{port}", fix="Choose another --port or --host") from None
        if said is not None:
            said(f"http://{name}:{door.getsockname()[1]}")
        uvicorn.Server(config).run(sockets=[door])


def _allow_files(connections: int) -> None:
    """Let the process have as many sockets open as the limit says, where the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
