"""The server process: uvicorn, with limits on connections."""

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
from glassformer.outputs import make_printable
from glassformer.process import keep_freed_memory
from glassformer.serve.app import create_app
from glassformer.serve.guard import HEADERS, LOCAL, is_local
from glassformer.serve.kinds import Table
from glassformer.serve.limits import Limits
from glassformer.serve.metrics import MemoryBudget, Reservation
from glassformer.serve.models import load_models, set_search_texts
from glassformer.serve.problems import Problem

# --- limits on connections ------------------------------------------------------------------------
#
# uvicorn only limits the time between two requests. This protocol also limits the size of the request line,
# the headers, chunk extensions and trailers, and the number of pipelined requests. It closes connections on
# which a client sends nothing, sends too slowly, or does not read the response. If there are too many
# connections, it closes the oldest idle one.


PARSE_BYTES = 16_384  # number of bytes that are parsed between two checks of limits
PROBE_WRITES = 2  # number of writes that test whether a client is still connected
PROBE_INTERVAL = 0.5  # seconds before each of these writes
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LINGER_SECONDS = 2.0  # time that a client that is still sending has to read an error
BETWEEN, HEAD, BODY = range(3)  # phase of the next byte: between requests, in a head, in a body


class LingeringTransport:
    """A transport that closes when its client has finished sending, or after a timeout.

    A connection that is closed with unread bytes is reset. A client that reads only after sending, such as
    Python's urllib, would then not get the response.
    """

    def __init__(self, transport: Any, protocol: Any):
        self._transport, self._protocol = transport, protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        """Close the transport when the client has finished sending."""
        if not self._protocol.linger():
            self._transport.close()


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits. ``bounded_protocol`` sets the first three attributes."""

    limits: Limits
    budget: MemoryBudget  # of all requests
    idle: dict[BoundedProtocol, None]  # connections without a request, oldest first
    timer: asyncio.TimerHandle | None = None
    phase = BETWEEN
    num_requests = 0
    head_bytes = 0  # bytes of an incomplete head (request line and headers)
    complete_bytes = 0  # bytes of the request line and of complete headers
    num_headers = 0  # number of complete headers
    overhead_bytes = 0  # bytes of chunk extensions and trailers since the last byte of the body
    body_bytes = 0  # bytes of the body as sent, including chunk sizes
    ignores_input = False
    parse_error: Problem | None = None

    # --- the connection ----------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.transport = LingeringTransport(transport, self)  # type: ignore[assignment]  # same interface
        self.reservation = Reservation(self.budget)
        self.open_requests: deque[Any] = deque()  # requests without a response; uvicorn stores only the last
        self.pending_bytes: deque[int] = deque()  # sizes of these requests
        self.idle[self] = None
        self._set_timeout(self.limits.body_seconds)
        if len(self.connections) > self.limits.connections:
            oldest = next(iter(self.idle))
            del self.idle[oldest]  # the next new connection closes another one
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.idle.pop(self, None)
        self._set_timeout(None)
        self.reservation.release()
        for cycle in self.open_requests:  # the application must not count responses that are not received
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def eof_received(self) -> bool:
        """Keep the connection open for the responses when the client has finished sending."""
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            return False
        self._close_after_response()
        self.loop.call_later(PROBE_INTERVAL, self._probe, PROBE_WRITES)
        return True

    def _probe(self, writes_left: int) -> None:
        """Send an interim response, to test whether a client that has finished sending still waits.

        HTTP/1.1 clients ignore interim responses (RFC 9110, section 15.2). If the client has disconnected,
        its system answers the first write with a reset, and the second write fails.
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
        size = min(PARSE_BYTES, self.limits.header_bytes)
        for start in range(0, len(data), size):
            if self.ignores_input or self.transport.is_closing():
                return
            self._parse(data[start : start + size])
        if self.timer is None:  # for example after line breaks, which do not begin a request
            self._set_timeout(self.limits.body_seconds)

    def _parse(self, part: bytes) -> None:
        phase_before, requests_before = self.phase, self.num_requests
        self.overhead_bytes += len(part)
        super().data_received(part)
        if self.ignores_input:
            return
        max_requests = requests_before + (phase_before == BETWEEN)
        if self.parser is not None and self.phase != HEAD and self.parser.should_upgrade():
            self._close_after_response()  # the next bytes may belong to another protocol
        elif self.phase == HEAD and phase_before != BODY and self.num_requests <= max_requests:
            self.head_bytes += len(part)  # all bytes belong to one head; otherwise their number is unknown
        elif self.phase == BODY:
            self.body_bytes += len(part)
        try:
            self._update_reservation()
        except Problem as problem:
            return self._refuse(problem)
        if max(self.head_bytes, self.complete_bytes) > self.limits.header_bytes:
            self._refuse(_too_large(self.limits.header_bytes))
        elif self.phase == BODY and (
            self.overhead_bytes > self.limits.header_bytes
            or self.body_bytes > 2 * self.limits.body_bytes + self.limits.header_bytes
        ):
            what = "more chunk overhead than body"
            self._refuse(Problem(413, what, where="body", fix="Send larger chunks"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.phase, self.head_bytes, self.complete_bytes, self.num_headers = HEAD, 0, 0, 0
        self.num_requests += 1
        if self.cycle is None or self.cycle.response_complete:
            self._set_timeout(self.limits.body_seconds)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._add_complete(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.phase == BODY:
            return  # ignore trailers
        super().on_header(name, value)
        self.num_headers += 1
        self._add_complete(len(name) + len(value) + 4)
        if self.num_headers > self.limits.headers:
            what = f"more than {self.limits.headers:,} headers"
            self._stop(Problem(431, what, where="headers", fix="Send fewer"))

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self.limits.pipelined:
            self._stop(Problem(429, "too many requests wait on this connection"))
        parser: Any = self.parser
        if parser.should_upgrade() and parser.get_method() in (b"POST", b"PUT", b"PATCH"):
            # The parser would treat the body as data of the other protocol.
            self._stop(Problem(400, "not supported", where="Upgrade", fix="Send HTTP/1.1 without it"))
        if not self.url.startswith(b"/"):
            self._replace_host()
        super().on_headers_complete()
        self.phase, self.head_bytes, self.overhead_bytes, self.body_bytes = BODY, 0, 0, 0
        self.pending_bytes.append(self.complete_bytes)
        self.open_requests.append(self.cycle)
        self.idle.pop(self, None)
        self._set_timeout(2 * (self.limits.body_seconds + self.limits.seconds))

    def on_body(self, body: bytes) -> None:
        self.overhead_bytes = 0
        if self.pipeline:  # the request waits for an earlier one, so its body stays in memory
            self.pending_bytes[-1] += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.phase = BETWEEN
        super().on_message_complete()

    def _replace_host(self) -> None:
        """Replace the Host header by the host of an absolute URL."""
        if (host := httptools.parse_url(self.url).host) is not None:
            self.headers[:] = [(name, value) for name, value in self.headers if name != b"host"]
            self.headers.append((b"host", b"[" + host + b"]" if b":" in host else host))

    # --- output ------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.pending_bytes.popleft()
        self.open_requests.popleft()
        self._update_reservation()
        if self.transport.is_closing() or self.ignores_input:
            return  # the current timer continues
        if not self.cycle.response_complete:  # the next pipelined request
            return self._set_timeout(2 * (self.limits.body_seconds + self.limits.seconds))
        self.idle[self] = None
        if self.phase != BETWEEN:  # the client sends the rest of a body, or the next head
            self._set_timeout(self.limits.body_seconds)
        elif not self.transport.get_write_buffer_size():
            self._set_timeout(None)

    def send_400_response(self, msg: str) -> None:
        """Send an error; uvicorn calls this if parsing fails."""
        problem = Problem(400, "not HTTP/1.1", where="request", fix="Send an HTTP/1.1 request (RFC 9112)")
        self._refuse(self.parse_error or problem)

    def _refuse(self, problem: Problem) -> None:
        """Send an error for the current request, and ignore further input. Earlier requests get responses."""
        cycle = self.cycle
        if self.phase != BODY and cycle is not None and not cycle.response_complete:
            return self._close_after_response()
        if self.pipeline or (self.phase == BODY and cycle.response_started):
            # the client would read the error as the response to another request
            return self.transport.abort()
        if self.phase == BODY:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.budget.metrics is not None:
            self.budget.metrics.requests.labels("other", str(problem.status)).inc()
        response = problem.response()
        headers = [(k, v) for k, v in response.raw_headers if k != b"connection"]
        headers += [*HEADERS, (b"cache-control", b"no-store"), (b"connection", b"close")]
        status = f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\n".encode()
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        self.transport.write(status + lines + b"\r\n" + bytes(response.body))
        self._ignore_input(LINGER_SECONDS)

    def linger(self) -> bool:
        """Keep the connection open while the client sends a body; returns False if it does not send one."""
        cycle = self.cycle
        if self.ignores_input or self.phase != BODY or cycle is None or cycle.keep_alive:
            return False
        if not cycle.response_complete:
            return False
        self._ignore_input(self.limits.body_seconds)
        self.idle[self] = None
        return True

    def _ignore_input(self, seconds: float) -> None:
        """Ignore further input, and close the connection after this time."""
        self.ignores_input = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._set_timeout(seconds)

    def _close_after_response(self) -> None:
        """Close the connection after the response to the last request."""
        self.ignores_input = True
        self.cycle.keep_alive = False
        if self.cycle.response_complete:
            self.transport.close()

    # --- counting ----------------------------------------------------------------------------

    def _add_complete(self, size: int) -> None:
        self.complete_bytes += size
        if self.complete_bytes > self.limits.header_bytes:
            self._stop(_too_large(self.limits.header_bytes))

    def _stop(self, problem: Problem) -> None:
        """Raise an error in the parser, which then calls ``send_400_response``."""
        self.parse_error = problem
        raise problem

    def _update_reservation(self) -> None:
        complete_bytes = self.complete_bytes if self.phase == HEAD else 0
        self.reservation.set(sum(self.pending_bytes) + max(self.head_bytes, complete_bytes))

    def _set_timeout(self, seconds: float | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)


def bounded_protocol(limits: Limits, budget: MemoryBudget | None = None) -> type[BoundedProtocol]:
    """Create the protocol class of one server.

    Args:
        budget: memory budget of all requests; None: a new one with ``limits.all_bytes``.
    """
    return type(
        "BoundedProtocol",
        (BoundedProtocol,),
        {"limits": limits, "budget": budget or MemoryBudget(limits.all_bytes), "idle": {}},
    )


def _too_large(header_bytes: int) -> Problem:
    what = f"more than {header_bytes:,} bytes"
    return Problem(431, what, where="headers", fix="Send fewer and shorter headers")


# --- the process ----------------------------------------------------------------------------------


log = logging.getLogger("glassformer.serve")

SPARE_FILES = 64  # number of open files in addition to connections
BACKLOG = 2048  # maximum number of connections that wait to be accepted


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
    """Serve until SIGINT or SIGTERM; open requests are then finished, and new requests are rejected.

    Args:
        runs: folders of runs or of saved classifiers.
        host: address to listen on; a loopback address can only be reached from this machine.
        port: 0 selects a free port.
        key: see ``Guard``.
        hosts: allowed host names; on a loopback address, local names are always allowed.
        search: the texts for ``/v1/search``, as a saved index or as a table.
        on_ready: called with the server's URL once the socket is open.

    Raises:
        InputError: no model can be loaded, or the port is in use.
    """
    keep_freed_memory()
    # Clients could flood stderr with this warning of Pillow. It is not needed, because sizes are checked
    # before decoding. The filter has no class, because Pillow is not imported for text models.
    warnings.filterwarnings("ignore", "Image size .* exceeds limit")
    broken: dict[str, str] = {}
    models = load_models(runs, limits, threads=threads, precision=precision, broken=broken)
    for name, error in broken.items():
        log.warning("%s", make_printable(f"{name} is not served: {error}"))
    if search is not None:
        set_search_texts(models, search)
    if is_local(host):
        hosts = {*LOCAL, host, *hosts}
    _allow_files(limits.connections)
    budget = MemoryBudget(limits.all_bytes)
    app = create_app(models, limits, key=key, hosts=hosts, budget=budget, broken=broken)
    options: dict[str, Any] = {"ws": "none", "lifespan": "on", "backlog": BACKLOG}
    options |= {"access_log": False, "server_header": False, "date_header": True}
    options |= {"timeout_keep_alive": 15, "timeout_graceful_shutdown": int(limits.seconds) + 1}
    options["log_level"] = logging.ERROR  # clients could flood the log with warnings about invalid requests
    config = uvicorn.Config(app, host, port, http=bounded_protocol(limits, budget), **options)
    name = f"[{host}]" if ":" in host else host
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
            sock.listen(BACKLOG)  # before the address is printed: clients may connect at once
        except OSError as error:
            reason = error.strerror or "cannot be opened"
            raise ConfigError(reason, where=f"{name}:{port}", fix="Choose another --port or --host") from None
        if on_ready is not None:
            on_ready(f"http://{name}:{sock.getsockname()[1]}")
        uvicorn.Server(config).run(sockets=[sock])


def _allow_files(connections: int) -> None:
    """Increase the limit on open files for this number of connections, if the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        new_limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard))
