"""Connections that mean a server no good, whatever they ask: heads, framing, methods, hosts, paths, patience."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MB = 1_000_000
MOST = 8 << 20  # bytes of a body, by default


@dataclass(frozen=True)
class Hostile:
    """One connection.

    Args:
        parts: sent one after the other.
        answered: whether an answer with 200 is right too, as to a picture that is odd but whole.
        closed: whether to close the connection without an answer is right.
        pause: seconds between the parts.
        leaves: the client closes after so many seconds, and wants no answer.
    """

    kind: str
    name: str
    parts: tuple[bytes, ...]
    closed: bool = False
    pause: float = 0.0
    leaves: float | None = None
    answered: bool = False


def head(path: str, method: str = "POST", *lines: str, host: str = "localhost", json: bool = True) -> bytes:
    """Request line and headers, without the line that ends them."""
    kind = ["Content-Type: application/json"] if json else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", *kind, *lines, ""]).encode("latin-1")


def post(body: bytes, path: str = "/v1/predict", *lines: str) -> bytes:
    return head(path, "POST", *lines, f"Content-Length: {len(body)}") + b"\r\n" + body


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def heads() -> Iterator[Hostile]:
    start = head("/health", "GET", json=False)
    for size in (66_000, MB, 5 * MB):
        unfinished = (start + b"X-A: " + b"a" * size,)
        yield Hostile("heads", f"a value of {size:,} bytes, no end", unfinished, closed=True)
        yield Hostile("heads", f"a value of {size:,} bytes", (unfinished[0] + b"\r\n\r\n",), closed=True)
        yield Hostile("heads", f"a name of {size:,} bytes", (start + b"a" * size,), closed=True)
        yield Hostile("heads", f"a path of {size:,} bytes", (b"GET /" + b"a" * size,), closed=True)
        query = b"GET /health?" + b"a=b&" * (size // 4) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
        yield Hostile("heads", f"a query of {size:,} bytes", (query,), closed=True)
        yield Hostile("heads", f"a method of {size:,} bytes", (b"G" * size,), closed=True)
        lines = b"".join(b"X-%d: a\r\n" % i for i in range(size // 9))
        yield Hostile("heads", f"{size // 9:,} headers", (start + lines + b"\r\n",), closed=True)
    for count in (101, 500, 3000):
        yield Hostile("heads", f"{count} short headers", (start + b"a:\r\n" * count + b"\r\n",), closed=True)
    first = head("/nowhere", "GET", json=False) + b"\r\n"
    yield Hostile("heads", "after another request", (first + start + b"X: " + b"a" * MB,), closed=True)
    for line in (b"X : a", b" X: a", b": a", b"X", b"X\0: a", b"X: a\0b", b"X: a\rb", b"X(: a", b"\xff: a"):
        yield Hostile("heads", repr(line), (start + line + b"\r\n\r\n",), closed=True)


def framing() -> Iterator[Hostile]:
    body, chunked = b'{"texts":["a"]}', "Transfer-Encoding: chunked"
    both = head("/v1/predict", "POST", f"Content-Length: {len(body)}", chunked) + b"\r\n"
    whole = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    yield Hostile("framing", "a length and chunks", (both + whole,), closed=True)
    for lines in (
        ("Content-Length: 15", "Content-Length: 16"), ("Content-Length: 15", "Content-Length: 15"),
        ("Content-Length: 15, 15",), ("Content-Length: +15",), ("Content-Length: -1",), ("Content-Length: 0xf",),
        ("Content-Length: 1 5",), ("Content-Length: ",), ("Content-Length: 9" + "9" * 30,),
        (f"Content-Length: {MOST + 1}",),
        ("Transfer-Encoding: gzip",), ("Transfer-Encoding: chunked, gzip",), ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: identity",), ("Transfer-Encoding : chunked",), ("Transfer-Encoding: chunked",) * 2,
    ):  # fmt: skip
        sent = head("/v1/predict", "POST", *lines) + b"\r\n" + body
        yield Hostile("framing", ", ".join(lines), (sent, b"\r\nx\r\n"), closed=True)
    begin = head("/v1/predict", "POST", chunked) + b"\r\n"
    for size in (b"g", b"-1", b"+1", b"0x1", b"f" * 17, b"", b" ", b"1 1", b"\x001", b"1" * 70_000):
        yield Hostile("framing", f"a chunk of {size[:20]!r}", (begin + size + b"\r\na\r\n",), closed=True)
    for size in (100_000, MB, 5 * MB):
        extended = begin + b"1;" + b"e" * size + b"\r\n{\r\n0\r\n\r\n"
        yield Hostile("framing", f"an extension of {size:,} bytes", (extended,), closed=True)
        one = (b"1;" + b"e" * 20_000 + b"\r\n \r\n") * (8 * size // 20_000)
        yield Hostile(
            "framing", f"extensions of {8 * size:,} bytes", (begin + one + b"0\r\n\r\n",), closed=True
        )
        trailers = begin + b"1\r\n{\r\n0\r\n" + b"X-T: " + b"t" * size + b"\r\n\r\n"
        yield Hostile("framing", f"a trailer of {size:,} bytes", (trailers,), closed=True)
        lines = b"".join(b"X-%d: a\r\n" % i for i in range(size // 9))
        yield Hostile(
            "framing", f"{size // 9:,} trailers", (begin + b"1\r\n{\r\n0\r\n" + lines,), closed=True
        )
    for size in (MOST + 1, 2 * MOST):
        parts = (begin, *[b"%x\r\n" % MB + b" " * MB + b"\r\n"] * (size // MB + 1), b"0\r\n\r\n")
        yield Hostile("framing", f"chunks of {size:,} bytes together", parts, closed=True)
    yield Hostile(
        "framing", "a trailer that names a key", (begin + b"1\r\n{\r\n0\r\nContent-Type: a\r\n\r\n",)
    )
    yield Hostile("framing", "half a line end", (begin + b"1\r{\r\n0\r\n\r\n",), closed=True)


def methods() -> Iterator[Hostile]:
    known = (
        "OPTIONS",
        "PUT",
        "PATCH",
        "DELETE",
        "TRACE",
        "PROPFIND",
        "GET",
        "HEAD",
        "MKCOL",
        "SOURCE",
        "LINK",
    )
    for method, path in itertools.product(known, ("/v1/predict", "/nowhere")):
        sent = head(path, method, "Connection: close", json=False) + b"\r\n"
        yield Hostile("methods", f"{method} {path}", (sent,))
    for line in (
        b"get /health HTTP/1.1", b"FOO /health HTTP/1.1", b"GET /health HTTP/3.0", b"GET /health HTTP/1.9",
        b"GET /nowhere",
        b"GET /health FTP/1.1", b"GET  /nowhere HTTP/1.1", b"GET\t/health HTTP/1.1", b"GET /a b HTTP/1.1",
        b"GET  HTTP/1.1",
        b"CONNECT evil.example:80 HTTP/1.1", b"OPTIONS * HTTP/1.1", b"GET health HTTP/1.1", b"\x16\x03\x01\x02\0\x01\0",
        b"PRI * HTTP/2.0", b"SSH-2.0-OpenSSH_9", b"EHLO a", b"*1\r\n$4\r\nPING", b"\0" * 300, b"GET /\xff HTTP/1.1",
        b"GET http://evil.example/health HTTP/1.1", b"GET http:///health HTTP/1.1",
        b"GET //evil.example/health HTTP/1.1",
        b"GET ftp://localhost/etc/passwd HTTP/1.1", b"GET http://[::1/health HTTP/1.1", b"GET http://a@evil/x HTTP/1.1",
    ):  # fmt: skip
        yield Hostile("methods", repr(line), (line + b"\r\nHost: localhost\r\n\r\n",), closed=True)
    upgrade = "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: eA=="
    for path in ("/ws", "/v1/predict"):
        yield Hostile(
            "methods", f"upgrade of {path}", (head(path, "GET", *upgrade) + b"\r\n\x81\x85",), closed=True
        )


def hosts() -> Iterator[Hostile]:
    for host in (
        "evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "", " ", "[", "[::1", "::2", "localhost@x",
        "a" * 5000, "0.0.0.0", "localhost:80:80", "\xff", "evil.example:localhost", "localhost, x",
    ):  # fmt: skip
        sent = head("/v1/models", "GET", host=host, json=False) + b"\r\n"
        yield Hostile("hosts", host[:40], (sent,), closed=True)
    for second in ("evil.example", "localhost"):
        twice = head("/v1/models", "GET", f"Host: {second}", json=False) + b"\r\n"
        yield Hostile("hosts", f"localhost and {second}", (twice,), closed=True)
    yield Hostile("hosts", "none", (b"GET /v1/models HTTP/1.1\r\n\r\n",), closed=True)


def paths() -> Iterator[Hostile]:
    for path in (
        "/../../etc/passwd", "/static/../../x", "/static/%2e%2e/x", "/static/..%2fx", "/%00", "/%ff%fe", "/%", "/%zz",
        "/static/page.css%00", "/v1/predict/../models", "/v1//models", "/V1/models", "/v1/models;x=1", "/docs",
        "/redoc", "/.env", "/.git/config", "/metrics.json", "/" + "a" * 60_000, "/" + "%41" * 20_000, "/static/",
        "/static/page.css.map", "/health.php", "/%u0041", "/<script>", "/'%22", "/\\", "/~root",
    ):  # fmt: skip
        yield Hostile("paths", path[:40], (head(path, "GET", json=False) + b"\r\n",), closed=True)


def slow() -> Iterator[Hostile]:
    begin = head("/v1/predict", "POST", "Content-Length: 1000") + b"\r\n"
    yield Hostile("slow and gone", "a body that stops", (begin, b"{"))
    yield Hostile("slow and gone", "a body in drops", (begin, *[b" "] * 24), pause=0.5)
    yield Hostile("slow and gone", "a head in drops", (b"G", b"E", b"T", b" ", b"/", b"h"), True, 0.5)
    yield Hostile("slow and gone", "nothing", (), True)
    yield Hostile("slow and gone", "line ends", (b"\r\n",) * 20, True, 0.7)
    yield Hostile("slow and gone", "100-continue, no body", (head("/v1/predict", "POST", "Expect: 100-continue",
                  "Content-Length: 99") + b"\r\n",))  # fmt: skip
    good = post(as_json({"texts": ["a film"] * 64}))
    for cut in (10, 120, len(good) - 5, len(good)):
        yield Hostile("slow and gone", f"gone after {cut} bytes", (good[:cut],), leaves=0.0)
    unread = head("/static/page.js", "GET", json=False) + b"\r\n"
    yield Hostile("slow and gone", "16 answers unread", (unread * 16,), leaves=3.0)
    yield Hostile("slow and gone", "5,000 requests at once, unread", (unread * 5000,), leaves=3.0)
