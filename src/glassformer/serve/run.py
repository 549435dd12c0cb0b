"""The server process: uvicorn with limits on connections, until a signal."""

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
from glassformer.serve.metrics import MemoryBudget, Reservation
from glassformer.serve.models import load_models, search_in
from glassformer.serve.problems import Problem

# --- limits on connections ------------------------------------------------------------------------
#
# Time, number of connections, and bytes outside of bodies are limited.
#
# Connections that send nothing, or too slowly, are closed; so are the oldest idle ones if there are too many,
# and those whose responses are not read. uvicorn only limits the time between two requests, but not heads,
# chunk extensions, trailers and pipelined requests.


SLICE = 16_384  # bytes that are parsed before limits are checked
PROBE_WRITES, PROBE_INTERVAL = (
    2,
    0.5,
)  # writes to test whether a client is still there, and seconds before each
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LINGER = 2.0  # seconds for a client that is still sending to read its error
BETWEEN, HEAD, BODY = range(3)  # part of a request that the next byte belongs to; or between requests


class Lingering:
    """A transport that closes only when its client has finished sending, or after a timeout.

    If a connection is closed while bytes of a body are unread, it is reset, and a client that reads after
    sending (such as Python's urllib) never sees the response.
    """

    def __init__(self, transport: Any, protocol: Any):
        self._transport, self._protocol = transport, protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        """Close the transport when the client has finished sending."""
        if not self._protocol.lingers():
            self._transport.close()


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits; ``bounded_protocol`` sets the first three attributes."""

    limits: Limits
    budget: MemoryBudget  # memory budget of all requests, including heads
    idle: dict[BoundedProtocol, None]  # connections without a request, oldest first
    timer: asyncio.TimerHandle | None = None
    phase = BETWEEN
    n_requests = 0  # number of requests
    head_bytes = 0  # bytes of an unfinished head
    complete_bytes = 0  # bytes of the request line and of complete headers
    n_headers = 0  # number of complete headers
    overhead_bytes = 0  # bytes since the last byte of the body: chunk extensions, trailers
    body_bytes = 0  # bytes of the body as sent, including chunk sizes
    discarding = False  # whether further input is ignored
    refusal: Problem | None = None

    # --- the connection ----------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.transport = Lingering(transport, self)  # type: ignore[assignment]  # it wraps a transport
        self.reservation = Reservation(self.budget)
        self.pending_bytes: deque[int] = deque()  # bytes of requests without a response
        self.open_requests: deque[Any] = deque()  # these requests; uvicorn only has the last one
        self.idle[self] = None
        self._set_timeout(self.limits.body_seconds)
        if len(self.connections) > self.limits.connections:
            oldest = next(iter(self.idle))
            del self.idle[oldest]  # at once, so that a burst does not abort the same connection repeatedly
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.idle.pop(self, None)
        self._set_timeout(None)
        self.reservation.release()
        for cycle in self.open_requests:  # their responses are lost, and not counted
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def eof_received(self) -> bool:
        """A client that has finished sending, but still reads, gets its responses."""
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            return False
        self._close_after_response()
        self.loop.call_later(PROBE_INTERVAL, self._probe, PROBE_WRITES)
        return True

    def _probe(self, writes_left: int) -> None:
        """Find out with a write whether a client that has finished sending still waits.

        HTTP/1.1 clients ignore interim responses (RFC 9110, section 15.2). If the client has gone, its system
        answers the first write with a reset, and the second one fails.
        """
        if self.transport.is_closing() or not self.open_requests or self.open_requests[0].response_started:
            return
        if self.open_requests[0].scope["http_version"] == "1.1":
            self.transport.write(CONTINUE)
        if writes_left > 1:
            self.loop.call_later(PROBE_INTERVAL, self._probe, writes_left - 1)

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():  # the client does not read the last response
            self.transport.abort()
        super().timeout_keep_alive_handler()

    # --- input -------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        size = min(SLICE, self.limits.header_bytes)
        for start in range(0, len(data), size):
            if self.discarding or self.transport.is_closing():
                return
            self._parse(data[start : start + size])
        if self.timer is None:  # also for line breaks, which do not begin a request
            self._set_timeout(self.limits.body_seconds)

    def _parse(self, part: bytes) -> None:
        phase, requests_before, self.overhead_bytes = (
            self.phase,
            self.n_requests,
            self.overhead_bytes + len(part),
        )
        super().data_received(part)
        if self.discarding:
            return
        if self.parser is not None and self.phase != HEAD and self.parser.should_upgrade():
            self._close_after_response()  # what follows may be another protocol
        elif self.phase == HEAD and phase != BODY and self.n_requests <= requests_before + (phase == BETWEEN):
            self.head_bytes += len(part)  # the whole part; in other cases the share is unknown
        elif self.phase == BODY:
            self.body_bytes += len(part)
        try:
            self._charge()
        except Problem as problem:
            return self._refuse(problem)
        if max(self.head_bytes, self.complete_bytes) > self.limits.header_bytes:
            self._refuse(_too_large(self.limits.header_bytes))
        elif self.phase == BODY and (
            self.overhead_bytes > self.limits.header_bytes
            or self.body_bytes > 2 * self.limits.body_bytes + self.limits.header_bytes
        ):
            self._refuse(
                Problem(413, "more chunk overhead than body", where="body", fix="Send larger chunks")
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.phase, self.head_bytes, self.complete_bytes, self.n_headers = HEAD, 0, 0, 0
        self.n_requests += 1
        if self.cycle is None or self.cycle.response_complete:
            self._set_timeout(self.limits.body_seconds)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._finish(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.phase == BODY:
            return  # a trailer, which the guard does not need
        super().on_header(name, value)
        self.n_headers += 1
        self._finish(len(name) + len(value) + 4)
        if self.n_headers > self.limits.headers:
            self._stop(_too_many(self.limits.headers))

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self.limits.pipelined:
            self._stop(Problem(429, "too many requests wait on this connection"))
        parser: Any = self.parser
        if parser.should_upgrade() and parser.get_method() in (b"POST", b"PUT", b"PATCH"):
            # The parser would treat the body as data of the other protocol.
            self._stop(Problem(400, "not supported", where="Upgrade", fix="Send HTTP/1.1 without it"))
        if not self.url.startswith(b"/"):
            self._name_host()
        super().on_headers_complete()
        self.phase, self.head_bytes, self.overhead_bytes, self.body_bytes = BODY, 0, 0, 0
        self.pending_bytes.append(self.complete_bytes)
        self.open_requests.append(self.cycle)
        self.idle.pop(self, None)
        self._set_timeout(2 * (self.limits.body_seconds + self.limits.seconds))

    def on_body(self, body: bytes) -> None:
        self.overhead_bytes = 0
        if self.pipeline:  # the request waits, so its body stays in memory
            self.pending_bytes[-1] += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.phase = BETWEEN
        super().on_message_complete()

    def _name_host(self) -> None:
        """The host of an absolute URL replaces the Host header."""
        if (host := httptools.parse_url(self.url).host) is not None:
            self.headers[:] = [(name, value) for name, value in self.headers if name != b"host"]
            self.headers.append((b"host", b"[" + host + b"]" if b":" in host else host))

    # --- output ------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.pending_bytes.popleft()
        self.open_requests.popleft()
        self._charge()
        if self.transport.is_closing() or self.discarding:
            return  # the timer for reading the response continues
        if not self.cycle.response_complete:  # the next pipelined request
            return self._set_timeout(2 * (self.limits.body_seconds + self.limits.seconds))
        self.idle[self] = None
        if self.phase != BETWEEN:  # the rest of an unused body, or the next head
            self._set_timeout(self.limits.body_seconds)
        elif not self.transport.get_write_buffer_size():
            self._set_timeout(None)

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn if parsing fails."""
        problem = Problem(400, "not HTTP/1.1", where="request", fix="Send an HTTP/1.1 request (RFC 9112)")
        self._refuse(self.refusal or problem)

    def _refuse(self, problem: Problem) -> None:
        """Refuse the current request and ignore further input; earlier requests still get responses."""
        cycle = self.cycle
        if self.phase != BODY and cycle is not None and not cycle.response_complete:
            return self._close_after_response()
        if self.pipeline or (self.phase == BODY and cycle.response_started):
            return self.transport.abort()  # the error would be taken for the response to another request
        if self.phase == BODY:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.budget.metrics is not None:
            self.budget.metrics.requests.labels("other", str(problem.status)).inc()
        answer = problem.response()
        head = [(k, v) for k, v in answer.raw_headers if k != b"connection"]
        head += [*HEADERS, (b"cache-control", b"no-store"), (b"connection", b"close")]
        status = f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\n".encode()
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in head)
        self.transport.write(status + lines + b"\r\n" + bytes(answer.body))
        self._linger(LINGER)

    def lingers(self) -> bool:
        """Whether the response came before the request was read completely; then closing has to wait."""
        cycle = self.cycle
        if self.discarding or self.phase != BODY or cycle is None or cycle.keep_alive:
            return False
        if not cycle.response_complete:
            return False
        self._linger(self.limits.body_seconds)
        self.idle[self] = None
        return True

    def _linger(self, seconds: float) -> None:
        self.discarding = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._set_timeout(seconds)

    def _close_after_response(self) -> None:
        """Close the connection after the response to the last request."""
        self.discarding = True
        self.cycle.keep_alive = False
        if self.cycle.response_complete:
            self.transport.close()

    # --- counting ----------------------------------------------------------------------------

    def _finish(self, size: int) -> None:
        self.complete_bytes += size
        if self.complete_bytes > self.limits.header_bytes:
            self._stop(_too_large(self.limits.header_bytes))

    def _stop(self, problem: Problem) -> None:
        """Raise an error that ends the parser; it then calls ``send_400_response``."""
        self.refusal = problem
        raise problem

    def _charge(self) -> None:
        self.reservation.set(
            sum(self.pending_bytes) + max(self.head_bytes, self.complete_bytes if self.phase == HEAD else 0)
        )

    def _set_timeout(self, seconds: float | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)


def bounded_protocol(limits: Limits, budget: MemoryBudget | None = None) -> type[BoundedProtocol]:
    """uvicorn's protocol with these limits; a class per server, whose connections share ``idle``.

    Args:
        budget: memory budget of all requests, including heads.
    """
    return type(
        "BoundedProtocol",
        (BoundedProtocol,),
        {"limits": limits, "budget": budget or MemoryBudget(limits.all_bytes), "idle": {}},
    )


def _too_large(header_bytes: int) -> Problem:
    what = f"more than {header_bytes:,} bytes"
    return Problem(431, what, where="headers", fix="Send fewer and shorter headers")


def _too_many(headers: int) -> Problem:
    return Problem(431, f"more than {headers:,} headers", where="headers", fix="Send fewer")


# --- the process ----------------------------------------------------------------------------------


log = logging.getLogger("glassformer.serve")

SPARE_FILES = 64  # open files in addition to connections
BACKLOG = 2048  # connections that wait to be accepted


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
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; then finish open requests and accept no new ones.

    Args:
        runs: folders of runs or of saved classifiers.
        host: an address of this machine; anything but a loopback address is open to others.
        port: 0 lets the system choose.
        key: see ``Guard``.
        hosts: allowed host names; on a loopback address, local names are always allowed.
        search: a saved index, or texts with their rows and other columns, for ``/v1/search``.
        on_ready: called with the address once the socket is open.

    Raises:
        InputError: no model can be loaded, or the port is in use.
    """
    keep_freed_memory()
    # Image sizes are checked before decoding; with this warning, clients could flood stderr.
    # matched by its text, because Pillow is not loaded for text models
    warnings.filterwarnings("ignore", "Image size .* exceeds limit")
    broken: dict[str, str] = {}
    models = load_models(runs, limits, threads=threads, precision=precision, broken=broken)
    for name, error in broken.items():
        log.warning("%s", printable(f"{name} is not served: {error}"))
    if search is not None:
        search_in(models, search)
    if is_local(host):
        hosts = {*LOCAL, host, *hosts}
    _allow_files(limits.connections)
    budget = MemoryBudget(limits.all_bytes)
    app = create_app(models, limits, key=key, hosts=hosts, budget=budget, broken=broken)
    config = uvicorn.Config(
        app,
        host,
        port,
        http=bounded_protocol(limits, budget),
        ws="none",
        lifespan="on",
        access_log=False,
        log_level=logging.ERROR,  # with warnings for invalid requests, clients could flood the log
        server_header=False,
        date_header=True,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=int(limits.seconds) + 1,
        backlog=BACKLOG,
    )
    name = f"[{host}]" if ":" in host else host
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
            # Before the address is printed, so that no client is refused.
            sock.listen(BACKLOG)
        except OSError as error:
            reason = error.strerror or "cannot be opened"
            raise ConfigError(reason, where=f"{name}:{port}", fix="Choose another --port or --host") from None
        if on_ready is not None:
            on_ready(f"http://{name}:{sock.getsockname()[1]}")
        uvicorn.Server(config).run(sockets=[sock])


def _allow_files(connections: int) -> None:
    """Raise the limit of open files for this many connections, if the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        new_limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard))
