"""What stands before the application: who may ask, how large and how slow a request may be, and safe headers.

The body is read whole before the application sees the request, within bounds of bytes and time, so that no
slow or endless client holds anything but its own connection.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections.abc import Callable, Collection, Coroutine
from ipaddress import IPv6Address, ip_address
from typing import Any

from glassformer.errors import ConfigError
from glassformer.serve.batcher import queue_is_full
from glassformer.serve.held import Held, Share
from glassformer.serve.limits import Limits
from glassformer.serve.metrics import Metrics
from glassformer.serve.problems import Problem
from glassformer.serve.reading import SHARE

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
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
KEPT = ("/v1/", "/metrics", "/openapi.json")  # behind the key, where there is one
GONE = 499  # of a request whose client did not wait for the answer; in the metrics alone
ONCE = (
    b"host",
    b"content-length",
    b"content-type",
    b"authorization",
    b"x-api-key",
)  # two readers, two answers
LOCAL = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})
# A host and perhaps a port (RFC 9110, 7.2); the host is an address in brackets or a name (RFC 3986, 3.2.2).
_HOST = re.compile(
    rb"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+))"
    rb"(?::(?P<port>[0-9]*))?"
)


def host_of(value: bytes) -> str | None:
    """The host that a Host header names, in lower case, without port and brackets, IPv6 in its short form.

    White space around the value is not part of it (RFC 9110, 5.5), nor is the dot behind a full domain name.
    None: the value is not valid.
    """
    found = _HOST.fullmatch(value.strip(b" \t"))
    if found is None:
        return None
    if (address := found["address"]) is not None:
        try:
            return IPv6Address(address.decode()).compressed
        except ValueError:
            return None
    return found["name"].decode().lower().removesuffix(".") or None


def allowed_host(name: str) -> str:
    """A name that clients may use, as ``host_of`` gives it.

    Raises:
        ConfigError: it is not a host name or an IP address, or has a port.
    """
    given = f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name
    port = re.search(r":[0-9]*$", given)
    found = host_of(given.encode("ascii", "replace"))
    if found is None or port is not None or given != given.strip():
        what = f"{name!r} has a port" if found is not None and port else f"{name!r} is not a host name"
        fix = "Give the name or address alone, such as films.example"
        raise ConfigError(what, where="--allow-host", fix=fix)
    return found


def is_local(host: str) -> bool:
    """Whether an address to listen on is reached from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() in LOCAL


class Guard:
    """ASGI middleware.

    Args:
        key: what clients must send as ``Authorization: Bearer KEY`` or ``X-API-Key: KEY``; None: nothing.
        full: whether a body of so many bytes for PREDICT is to be refused before anything reads it.
        hosts: names that a request's Host may have; empty: any valid one. Keeps other sites' pages from
            reaching a local server under a name of theirs.
        held: what all requests hold together, their bodies among it.
    """

    def __init__(
        self,
        app: Any,
        limits: Limits,
        metrics: Metrics,
        routes: Collection[str],
        key: str | None,
        hosts: Collection[str],
        full: Callable[[int], bool],
        held: Held,
    ):
        self.full, self.held = full, held
        self.app, self.limits, self.metrics, self.routes = app, limits, metrics, frozenset(routes)
        self.key, self.hosts = key, frozenset(map(allowed_host, hosts))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        path = scope["path"]
        cache = b"no-store" if path.startswith("/v1/") else b"no-cache"

        async def sending(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS, (b"cache-control", cache)]
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                share.give_back()  # before its client can ask again

        share = scope[SHARE] = Share(self.held)
        try:
            self._admit(scope)
            if scope["method"] in ("POST", "PUT", "PATCH") and path in self.routes:
                body = await self._body(receive, share)
                if path == PREDICT and self.full(len(body)):
                    raise queue_is_full(self.metrics)
                gone = asyncio.Event()
                work = self.app(scope, _replay(body, gone), sending)
                del body
                if not await _while_there(work, receive, gone):
                    status = GONE
            else:
                await self.app(scope, receive, sending)
        except Problem as problem:
            await problem.response()(scope, receive, sending)
        finally:
            share.give_back()
            route = path if path in self.routes else "other"
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(time.perf_counter() - started)

    def _admit(self, scope: Any) -> None:
        headers = dict(scope["headers"])
        for name in ONCE if len(headers) < len(scope["headers"]) else ():
            if sum(name == other for other, _ in scope["headers"]) > 1:
                raise Problem(400, "given twice", where=name.decode(), fix="Send it once")
        host = host_of(headers[b"host"]) if b"host" in headers else ""
        if host is None:
            raise Problem(400, "not a valid host name", where="Host", fix="Send HOST or HOST:PORT")
        if self.hosts and host not in self.hosts:
            raise Problem(400, "this host name is not served here", where="Host", fix="Use --allow-host")
        if self.key is not None and scope["path"].startswith(KEPT):
            given = headers.get(b"x-api-key", b"")
            scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() == b"bearer":
                given = bearer.strip()
            if not hmac.compare_digest(given, self.key.encode()):
                raise Problem(401, "no key, or a wrong one", where="Authorization", fix="Send Bearer KEY")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:18]) > self.limits.body_bytes:
            raise self._too_large()

    async def _body(self, receive: Any, share: Share) -> bytes:
        parts = []
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Problem(400, "the client has gone")
                    parts.append(message.get("body", b""))
                    share.add(len(parts[-1]))
                    if share.size > self.limits.body_bytes:
                        raise self._too_large()
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise Problem(
                408, f"the body did not arrive within {self.limits.body_seconds:g} s", fix="Send it faster"
            ) from None

    def _too_large(self) -> Problem:
        return Problem(
            413, f"more than {self.limits.body_bytes:,} bytes", where="body", fix="Send several requests"
        )


def _replay(body: bytes, gone: asyncio.Event) -> Any:
    """A ``receive`` that gives a body which has been read, and then waits until the client has gone."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        if messages:
            return messages.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    return replay


async def _while_there(work: Coroutine[Any, Any, None], receive: Any, gone: asyncio.Event) -> bool:
    """Run the application on a request, and end it where the client goes away.

    What waits of the request in a queue then leaves it, and is not computed.

    Args:
        receive: of the connection, whose body has been read.
        gone: set where the client has gone.

    Returns:
        Whether it was there until the end.
    """
    running, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_until_gone(receive))
    try:
        await asyncio.wait((running, leaving), return_when=asyncio.FIRST_COMPLETED)
        if running.done() or leaving.exception() is not None:
            await running
            return True
        gone.set()
        await asyncio.sleep(0)  # who waits to hear of it does so first
        return False
    finally:
        leaving.cancel()
        if not running.done():
            running.cancel()
            await asyncio.wait((running,))


async def _until_gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
