"""ASGI middleware for authentication, limits and security headers.

The middleware reads the whole body, within limits of size and time, before it calls the application. A slow
client therefore only blocks its own connection.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from ipaddress import IPv6Address, ip_address
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from glassformer.errors import ConfigError
from glassformer.serve.limits import Limits
from glassformer.serve.metrics import MemoryBudget, Metrics, Reservation
from glassformer.serve.problems import JSON, Problem, too_many_inputs

# --- parsing JSON ----------------------------------------------------------------------------------
#
# The values in a body are counted before parsing. To count them, strings are removed from the bytes. The
# number of remaining brackets, commas and colons is an upper bound of the number of parsed objects.


RESERVATION = "glassformer.share"  # key of the request's ``Reservation`` in the ASGI scope
MAX_SMALL_BYTES = 65_536  # larger bodies are parsed in a thread; smaller ones take a millisecond at most
# Bytes to remove with bytes.translate
ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
ALL_BUT_QUOTES = bytes(set(range(256)) - set(b'"'))
ALL_BUT_SEPARATORS = bytes(set(range(256)) - set(b",:[{"))  # all values except the first follow one of these


def parse(body: bytes, limits: Limits) -> Any:
    """Parse the JSON of a body.

    Raises:
        Problem: 413 too many values or inputs, 400 nested too deeply, 422 a repeated key.
    """
    encoding = json.detect_encoding(body)
    # In other encodings, the byte of a quotation mark may be a part of other characters.
    if not encoding.startswith("utf-8"):
        body = body.decode(encoding, "surrogatepass").encode("utf-8", "surrogatepass")
    check_shape(body, limits)
    value = json.loads(body, object_pairs_hook=_unique_keys)
    for name in ("texts", "images", "pairs", "sentences") if isinstance(value, dict) else ():
        if isinstance(inputs := value.get(name), list) and len(inputs) > limits.inputs:
            raise too_many_inputs(len(inputs), limits.inputs, name)
    return value


def check_shape(body: bytes, limits: Limits) -> None:
    """Raise Problem if JSON could have more values, or deeper nesting, than allowed.

    The count is correct up to the first byte that is not JSON, where a parser stops.
    """
    max_values = limits.json_values + limits.inputs
    # Without escapes, each quotation mark begins or ends a string.
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    is_allowed = len(unescaped.translate(None, ALL_BUT_QUOTES)) <= 2 * max_values
    if is_allowed:
        without_strings = b"".join(unescaped.split(b'"')[::2])
        depth = 0
        for bracket in without_strings.translate(None, ALL_BUT_BRACKETS)[: 2 * max_values]:
            depth += 1 if bracket in b"[{" else -1
            if depth > limits.json_depth:
                what = f"nested more than {limits.json_depth} deep"
                raise Problem(400, what, where="body", fix=JSON)
        is_allowed = len(without_strings.translate(None, ALL_BUT_SEPARATORS)) < max_values
    if not is_allowed:
        fix = "Send several requests, or texts instead of words; --json-values allows more"
        raise Problem(413, f"more than {max_values:,} values", where="body", fix=fix)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a dict; raises Problem for a repeated key, because JSON does not define its meaning."""
    values = dict(pairs)
    if len(values) < len(pairs):
        (repeated, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise Problem(422, "this key is given twice", where=repeated, fix="Send it once")
    return values


def string_memory(value: Any) -> int:
    """Bytes of memory of all strings in a parsed value; a character of a string may have 1, 2 or 4 bytes."""
    if isinstance(value, dict):
        return sum(map(string_memory, value)) + sum(map(string_memory, value.values()))
    if isinstance(value, list):
        return sum(map(string_memory, value))
    return sys.getsizeof(value) if isinstance(value, str) else 0


class JsonRequest(Request):
    """A request that checks the limits when it parses its body."""

    async def json(self) -> Any:
        body, server = await self.body(), self.app.state.server
        if len(body) <= MAX_SMALL_BYTES:
            return parse(body, server.limits)
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(server.parsing, parse, body, server.limits)
        reservation: Reservation = self.scope[RESERVATION]
        reservation.add(string_memory(value))
        return value


class JsonRoute(APIRoute):
    """A route that uses ``JsonRequest``."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(JsonRequest(request.scope, request.receive))

        return handle


# --- the middleware -------------------------------------------------------------------------------


CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
)
PREDICT = "/v1/predict"
PROTECTED = ("/v1/", "/metrics", "/openapi.json")  # beginnings of paths that require the key
CLIENT_GONE = 499  # status in the metrics if the client disconnects before the response
# Headers that must not be repeated, because some programs use the first value and others the last
UNIQUE_HEADERS = (b"host", b"content-length", b"content-type", b"authorization", b"x-api-key")
LOCAL = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})
# A host with an optional port (RFC 9110, 7.2), such as "films.example:8000" or "[::1]" (RFC 3986, 3.2.2)
_HOST = re.compile(
    rb"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+))"
    rb"(?::(?P<port>[0-9]*))?"
)


def parse_host(value: bytes) -> str | None:
    """The host in a Host header, without port and brackets; None if the header is not valid.

    Names are converted to lower case, and IPv6 addresses are compressed. Surrounding whitespace (RFC 9110,
    5.5) and the final dot of a domain name are removed.
    """
    match = _HOST.fullmatch(value.strip(b" \t"))
    if match is None:
        return None
    if (address := match["address"]) is not None:
        try:
            return IPv6Address(address.decode()).compressed
        except ValueError:
            return None
    return match["name"].decode().lower().removesuffix(".") or None


def normalize_host(name: str) -> str:
    """A value of ``--allow-host`` in the form of ``parse_host``; raises ConfigError for invalid values."""
    candidate = f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name
    port = re.search(r":[0-9]*$", candidate)
    host = parse_host(candidate.encode("ascii", "replace"))
    if host is None or port is not None or candidate != candidate.strip():
        what = f"{name!r} has a port" if host is not None and port else f"{name!r} is not a host name"
        fix = "Give the name or address alone, such as films.example"
        raise ConfigError(what, where="--allow-host", fix=fix)
    return host


def is_local(host: str) -> bool:
    """Whether an address can only be reached from this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() in LOCAL


class Guard:
    """ASGI middleware for authentication and limits.

    Args:
        key: clients must send it as ``Authorization: Bearer KEY`` or ``X-API-Key: KEY``; None: no key.
        routes: the paths of the application.
        hosts: allowed values of the Host header; empty: all valid values. This protects a local server
            against DNS rebinding: a page of another site calls the server under the site's host name.
        is_full: number of bytes of a body -> whether the queues are too full for it.
        budget: memory budget of all requests.
    """

    def __init__(
        self,
        app: Any,
        limits: Limits,
        metrics: Metrics,
        routes: Collection[str],
        key: str | None,
        hosts: Collection[str],
        is_full: Callable[[int], bool],
        budget: MemoryBudget,
    ):
        self.is_full, self.budget = is_full, budget
        self.app, self.limits, self.metrics, self.routes = app, limits, metrics, frozenset(routes)
        self.key, self.hosts = key, frozenset(map(normalize_host, hosts))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        path = scope["path"]
        cache = b"no-store" if path.startswith("/v1/") else b"no-cache"

        async def send_with_headers(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS, (b"cache-control", cache)]
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                reservation.release()  # before the client can send another request

        reservation = scope[RESERVATION] = Reservation(self.budget)
        try:
            self._check_headers(scope)
            if scope["method"] in ("POST", "PUT", "PATCH") and path in self.routes:
                body = await self._read_body(receive, reservation)
                if path == PREDICT and self.is_full(len(body)):
                    raise self.metrics.count_full_queue()
                disconnected = asyncio.Event()
                call = self.app(scope, _replay(body, disconnected), send_with_headers)
                del body
                if not await _run_until_disconnect(call, receive, disconnected):
                    status = CLIENT_GONE
            else:
                await self.app(scope, receive, send_with_headers)
        except Problem as problem:
            await problem.response()(scope, receive, send_with_headers)
        finally:
            reservation.release()
            route = path if path in self.routes else "other"
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(time.perf_counter() - started)

    def _check_headers(self, scope: Any) -> None:
        headers = dict(scope["headers"])
        for name in UNIQUE_HEADERS if len(headers) < len(scope["headers"]) else ():
            if sum(name == other for other, _ in scope["headers"]) > 1:
                raise Problem(400, "given twice", where=name.decode(), fix="Send it once")
        host = parse_host(headers[b"host"]) if b"host" in headers else ""
        if host is None:
            raise Problem(400, "not a valid host name", where="Host", fix="Send HOST or HOST:PORT")
        if self.hosts and host not in self.hosts:
            raise Problem(400, "this host name is not served here", where="Host", fix="Use --allow-host")
        if self.key is not None and scope["path"].startswith(PROTECTED):
            sent_key = headers.get(b"x-api-key", b"")
            scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() == b"bearer":
                sent_key = bearer.strip()
            if not hmac.compare_digest(sent_key, self.key.encode()):
                raise Problem(401, "no key, or a wrong one", where="Authorization", fix="Send Bearer KEY")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:18]) > self.limits.body_bytes:
            raise self._too_large()

    async def _read_body(self, receive: Any, reservation: Reservation) -> bytes:
        parts = []
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Problem(400, "the client has gone")
                    parts.append(message.get("body", b""))
                    reservation.add(len(parts[-1]))
                    if reservation.size > self.limits.body_bytes:
                        raise self._too_large()
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            what = f"the body did not arrive within {self.limits.body_seconds:g} s"
            raise Problem(408, what, fix="Send it faster") from None

    def _too_large(self) -> Problem:
        fix = "Send fewer or shorter inputs in one request; the server's option --body-bytes allows more"
        return Problem(413, f"more than {self.limits.body_bytes:,} bytes", where="body", fix=fix)


def _replay(body: bytes, disconnected: asyncio.Event) -> Any:
    """A ``receive`` function that first returns ``body``, then waits until the client disconnects."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        if messages:
            return messages.pop()
        await disconnected.wait()
        return {"type": "http.disconnect"}

    return replay


async def _run_until_disconnect(
    call: Coroutine[Any, Any, None], receive: Any, disconnected: asyncio.Event
) -> bool:
    """Run a call of the application to its end; returns False if the client has disconnected before.

    If the client disconnects, ``disconnected`` is set and the call is canceled.
    """
    running, disconnect = asyncio.ensure_future(call), asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait((running, disconnect), return_when=asyncio.FIRST_COMPLETED)
        if running.done() or disconnect.exception() is not None:
            await running
            return True
        disconnected.set()
        await asyncio.sleep(0)  # first run the tasks that wait for the event
        return False
    finally:
        disconnect.cancel()
        if not running.done():
            running.cancel()
            await asyncio.wait((running,))


async def _wait_for_disconnect(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
