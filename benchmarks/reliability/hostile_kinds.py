"""Requests that mean a server no good, by kind.

A kind is a function that yields ``Hostile``; KINDS lists them. Hostile pictures come from ``hostile_pictures``,
where that module is there: its ``pictures()`` yields ``(name, bytes)``.
"""

import base64
import functools
import itertools
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.reliability import hostile_pictures

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
        "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "GET", "HEAD", "MKCOL", "SOURCE", "LINK",
    )  # fmt: skip
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


def filled(value: bytes, size: int, before: bytes = b'{"texts":[', after: bytes = b"]}") -> bytes:
    """A list of as many copies of a value as fit ``size`` bytes."""
    count = max(2, (size - len(before) - len(after)) // (len(value) + 1))
    return before + (value + b",") * (count - 1) + value + after


def many_values() -> Iterator[Hostile]:
    values = (b"1", b"null", b'""', b'"a"', b"[]", b"{}", b"-0.5e3", b"true", b'{"a":1}', b'["]"]')
    for size in (20_000, MB, MOST):
        for value in values:
            yield Hostile("many values", f"{value.decode()}, {size:,} bytes", (post(filled(value, size)),))
    for value in values[:5]:
        for key in ("text", "image", "method"):
            body = filled(value, 2 * MB, f'{{"{key}":['.encode())
            name = f"{value.decode()} as {key} of an explanation"
            yield Hostile("many values", name, (post(body, "/v1/explain"),))
    yield Hostile("many values", "a list alone", (post(filled(b"1", MOST, b"[", b"]")),))
    yield Hostile("many values", "with blanks", (post(filled(b" \n\t1 ", MOST)),))
    yield Hostile("many values", "quotes without an end", (post(b'{"texts":[' + b'"' * (MOST - 20)),))
    yield Hostile("many values", "as pictures", (post(filled(b'"aGVsbG8="', MOST, b'{"images":[')),))


def many_keys() -> Iterator[Hostile]:
    for count in (900, 1100, 10_000, 600_000):
        for path in ("/v1/predict", "/v1/explain"):
            body = b"{" + b",".join(b'"k%d":1' % i for i in range(count)) + b"}"
            yield Hostile("many keys", f"{count:,} unknown at {path}", (post(body[:MOST], path),))
    for count in (2, 500, 100_000):
        for key in (b"texts", b"text", b"model", b"x", b""):
            body = b"{" + b",".join([b'"%s":["a"]' % key] * count) + b"}"
            yield Hostile("many keys", f"{key.decode()!r} {count:,} times", (post(body),))
    long = b'{"texts":["a"],"' + b"k" * (MOST - 100) + b'":1}'
    yield Hostile("many keys", "one of 8 MB", (post(long),))
    surrogate = b'{"texts":["a"],"\\ud800":1}'
    yield Hostile("many keys", "half a pair", (post(surrogate),))
    for key in ("__proto__", "__class__", "constructor", "texts[0]", "body.texts", "\0", "texts "):
        yield Hostile("many keys", repr(key), (post(as_json({"texts": ["a"], key: 1})),))


def nesting() -> Iterator[Hostile]:
    for depth in (17, 100, 990, 5000, 100_000, 4 * MB):
        yield Hostile("nesting", f"lists, {depth:,}", (post(b"[" * depth + b"]" * depth),))
        yield Hostile("nesting", f"lists without an end, {depth:,}", (post(b'{"texts":' + b"[" * depth),))
        objects = b'{"a":' * min(depth, MB)
        yield Hostile("nesting", f"objects, {min(depth, MB):,}", (post(objects + b"1"),))
        mixed = b'[{"a":' * min(depth, MB)
        yield Hostile("nesting", f"both, {min(depth, MB):,}", (post(mixed, "/v1/explain"),))


def no_json() -> Iterator[Hostile]:
    whole = b'{"texts": ["a film", "b"], "model": "films"}'
    for at in range(0, len(whole) - 1, 3):
        yield Hostile("no JSON", f"cut at {at}", (post(whole[:at]),))
    broken = (
        b"\0", b"\xff\xfe", b"null", b"true", b"7", b'"texts"', b"[]", b"{}", b"{]", b"{'texts': ['a']}",
        b'{"texts": ["a",]}', b'{"texts": ["a"]} x', b'{"texts": ["a"]}{}', b'{"texts": [NaN]}',
        b'{"texts": Infinity}', b'{"texts": [-Infinity]}', b'{"texts": ["\xff"]}', b'{"texts": ["\xed\xa0\x80"]}',
        b'{"texts": ["\\ud800"]}', b'{"texts": ["\\udfff\\ud800"]}', b'{"texts": ["\\x"]}', b'{"texts": ["\\u12"]}',
        b'{"texts": ["\n"]}', b'{"texts": [' + b"9" * 5000 + b"]}", b'{"texts": [1e' + b"9" * 5000 + b"]}",
        b'{"texts": [' + b"9" * MB + b"]}", b'{"texts": [0.' + b"1" * (MOST - 99) + b"]}", b" " * MOST,
        b"\xef\xbb\xbf{", b'{"texts": ["a"]}'.decode().encode("utf-16") + b"\0", b"<xml/>", b"texts=a&model=films",
        b'{"texts": "a"}', b'{"texts": {"0": "a"}}', b"\x1f\x8b\x08\0\0\0\0\0", b"\\" * MOST, b'{"texts": ["\\"]}',
    )  # fmt: skip
    for body in broken:
        yield Hostile("no JSON", repr(body[:30]), (post(body),))
    called = (
        "text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "json", "; ; ;",
    )  # fmt: skip
    for kind in (*called, "x" * 900, "application/jsonx", "application/" + "+" * 500):
        lines = (f"Content-Type: {kind}", f"Content-Length: {len(whole)}")
        sent = head("/v1/predict", "POST", *lines, json=False) + b"\r\n" + whole
        yield Hostile("no JSON", f"called {kind[:40]}", (sent,))
    packed = zlib.compress(b" " * MOST)
    yield Hostile("no JSON", "compressed", (post(packed, "/v1/predict", "Content-Encoding: deflate"),))


def wrong_types() -> Iterator[Hostile]:
    values = (
        None, True, 0, -1, 2**63, 1e308, "", "x" * 300, [], {}, [[]], [None], [True], [0.5], [{}], ["", ""],
    )  # fmt: skip
    for value in values:
        yield Hostile("wrong types", f"texts {str(value)[:20]}", (post(as_json({"texts": value})),))
        yield Hostile("wrong types", f"images {str(value)[:20]}", (post(as_json({"images": value})),))
        if value is not None:
            asked = as_json({"text": "a film", "method": value})
            yield Hostile("wrong types", f"method {str(value)[:20]}", (post(asked, "/v1/explain"),))
            asked = as_json({"texts": ["a film"], "model": value})
            yield Hostile("wrong types", f"model {str(value)[:20]}", (post(asked),))
        if value not in (None, 0, -1, True):
            asked = as_json({"text": "a film", "method": "attention", "layer": value})
            yield Hostile("wrong types", f"layer {str(value)[:20]}", (post(asked, "/v1/explain"),))
    for more in (
        {"target": "\ud800", "method": "occlusion"}, {"target": "x" * 201}, {"layer": 1001}, {"image": "aGVsbG8="},
        {"layer": True, "method": "attention"}, {"head": 10**30, "method": "attention"}, {"model": "\ud800"},
    ):  # fmt: skip
        yield Hostile(
            "wrong types", str(more)[:40], (post(as_json({"text": "a film", **more}), "/v1/explain"),)
        )


def texts() -> Iterator[Hostile]:
    for text in (
        "", " ", "\0", "a\0b", "\u2003", "\u3000", "\n\n", "\t", "a" * 100_001, "\U0001f600" * 100_001,
    ):  # fmt: skip
        yield Hostile("texts", repr(text[:12]), (post(as_json({"texts": ["a film", text]})),))
        yield Hostile("texts", f"{text[:12]!r} explained", (post(as_json({"text": text}), "/v1/explain"),))
    for count in (65, 200, 1000, 5000):
        yield Hostile("texts", f"{count}", (post(as_json({"texts": ["a film"] * count})),))
    yield Hostile(
        "texts", "much to explain", (post(as_json({"text": "a dull film " * 9000}), "/v1/explain"),)
    )
    wide = json.dumps({"texts": ["\U0001f600" * 30_000] * 60 + [""]}, ensure_ascii=False).encode()
    yield Hostile("texts", "wide letters", (post(wide[:MOST]),))


def pictures() -> Iterator[Hostile]:
    def png(width: int, height: int, data: bytes = b"") -> bytes:
        return hostile_pictures.png(width, height, 8, 0, data)

    def sent(name: str, *content: str) -> Hostile:
        return Hostile("pictures", name, (post(as_json({"images": list(content)})),))

    good = base64.b64encode(png(12, 12, bytes(13 * 12))).decode()
    for text in ("***", "a", "=", "====", "aGVsbG8", "aGVsbG8=", "data:image/png;base64," + good, "http://localhost/x.png",
                 "file:///etc/passwd", "/etc/passwd", "\u00e9" * 8, good + "\n", " " + good, good[:-5], "A" * (7 * MB),
                 good.replace("A", "-"), "=" * MB, "A" * (MOST - 40), "\0" * 40):  # fmt: skip
        yield sent(repr(text[:24]), text)
    for width, height in (
        (0, 0), (0, 9), (2**31, 1), (2**31 - 1, 2**31 - 1), (50_000, 50_000), (16_000_001, 1), (1, 10**8),
    ):  # fmt: skip
        yield sent(f"{width} x {height}", base64.b64encode(png(width, height)).decode())
    for count in (65, 500, 4000):
        yield sent(f"{count} pictures", *[good] * count)
    yield sent("64 of 4000 x 4000", *[base64.b64encode(png(4000, 4000)).decode()] * 64)
    content = base64.b64encode(png(12, 12, bytes(5))).decode()
    yield Hostile("pictures", "cut, explained", (post(as_json({"image": content}), "/v1/explain"),))
    magics = (
        b"GIF89a", b"\xff\xd8\xff", b"RIFF\0\0\0\0WEBP", b"II*\0", b"BM", b"\0\0\1\0", b"%PDF-1.7", b"8BPS",
        b"P6\n",
    )  # fmt: skip
    for magic in magics:
        yield sent(repr(magic), base64.b64encode(magic + bytes(99)).decode())
    for name, made in built_pictures():
        body = as_json({"images": [base64.b64encode(made).decode()]})
        if len(body) < MOST:
            yield Hostile("built pictures", name, (post(body),), answered=True)


@functools.cache
def built_pictures() -> tuple[tuple[str, bytes], ...]:
    """Name and bytes of those of ``hostile_pictures``."""
    return tuple(hostile_pictures.pictures())


KINDS: tuple[Callable[[], Iterator[Hostile]], ...] = (
    many_values, many_keys, nesting, no_json, wrong_types, heads, framing, methods, hosts, paths, texts, pictures, slow,
)  # fmt: skip


def requests(count: int = 0) -> Iterator[Hostile]:
    """All of them, or about so many, evenly from all kinds. Some are large: each is made when it is asked for."""
    for kind in KINDS:
        every = 1 if not count else max(1, sum(1 for _ in kind()) * len(KINDS) // count)
        for i, hostile in enumerate(kind()):
            if i % every == 0:
                yield hostile
