"""Requests that mean a server no good, by kind: a function that yields ``Hostile``; KINDS lists them."""

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


def of_kind(kind: str, **always: Any) -> Callable[..., Hostile]:
    """Requests of a kind: each has a name and the parts that are sent."""
    return lambda name, *parts, **more: Hostile(kind, name, parts, **always | more)


def heads() -> Iterator[Hostile]:
    start, one = head("/health", "GET", json=False), of_kind("heads", closed=True)
    for size in (66_000, MB, 5 * MB):
        unfinished = start + b"X-A: " + b"a" * size
        yield one(f"a value of {size:,} bytes, no end", unfinished)
        yield one(f"a value of {size:,} bytes", unfinished + b"\r\n\r\n")
        yield one(f"a name of {size:,} bytes", start + b"a" * size)
        yield one(f"a path of {size:,} bytes", b"GET /" + b"a" * size)
        query = b"GET /health?" + b"a=b&" * (size // 4) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
        yield one(f"a query of {size:,} bytes", query)
        yield one(f"a method of {size:,} bytes", b"G" * size)
        yield one(f"{size // 9:,} headers", start + many_lines(size) + b"\r\n")
    for count in (101, 500, 3000):
        yield one(f"{count} short headers", start + b"a:\r\n" * count + b"\r\n")
    first = head("/nowhere", "GET", json=False) + b"\r\n"
    yield one("after another request", first + start + b"X: " + b"a" * MB)
    for line in (b"X : a", b" X: a", b": a", b"X", b"X\0: a", b"X: a\0b", b"X: a\rb", b"X(: a", b"\xff: a"):
        yield one(repr(line), start + line + b"\r\n\r\n")


def many_lines(size: int) -> bytes:
    return b"".join(b"X-%d: a\r\n" % i for i in range(size // 9))


def framing() -> Iterator[Hostile]:
    body, chunked, one = b'{"texts":["a"]}', "Transfer-Encoding: chunked", of_kind("framing", closed=True)
    both = head("/v1/predict", "POST", f"Content-Length: {len(body)}", chunked) + b"\r\n"
    yield one("a length and chunks", both + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
    lengths = ("15, 15", "+15", "-1", "0xf", "1 5", "", "9" + "9" * 30, f"{MOST + 1}")
    codings = ("gzip", "chunked, gzip", "xchunked", "identity")
    for lines in (
        ("Content-Length: 15", "Content-Length: 16"), ("Content-Length: 15", "Content-Length: 15"),
        *((f"Content-Length: {length}",) for length in lengths),
        *((f"Transfer-Encoding: {coding}",) for coding in codings),
        ("Transfer-Encoding : chunked",), ("Transfer-Encoding: chunked",) * 2,
    ):  # fmt: skip
        yield one(", ".join(lines), head("/v1/predict", "POST", *lines) + b"\r\n" + body, b"\r\nx\r\n")
    begin = head("/v1/predict", "POST", chunked) + b"\r\n"
    for size in (b"g", b"-1", b"+1", b"0x1", b"f" * 17, b"", b" ", b"1 1", b"\x001", b"1" * 70_000):
        yield one(f"a chunk of {size[:20]!r}", begin + size + b"\r\na\r\n")
    for size in (100_000, MB, 5 * MB):
        yield one(f"an extension of {size:,} bytes", begin + b"1;" + b"e" * size + b"\r\n{\r\n0\r\n\r\n")
        many = (b"1;" + b"e" * 20_000 + b"\r\n \r\n") * (8 * size // 20_000)
        yield one(f"extensions of {8 * size:,} bytes", begin + many + b"0\r\n\r\n")
        trailer = b"X-T: " + b"t" * size + b"\r\n\r\n"
        yield one(f"a trailer of {size:,} bytes", begin + b"1\r\n{\r\n0\r\n" + trailer)
        yield one(f"{size // 9:,} trailers", begin + b"1\r\n{\r\n0\r\n" + many_lines(size))
    for size in (MOST + 1, 2 * MOST):
        parts = [b"%x\r\n" % MB + b" " * MB + b"\r\n"] * (size // MB + 1)
        yield one(f"chunks of {size:,} bytes together", begin, *parts, b"0\r\n\r\n")
    yield one("a trailer that names a key", begin + b"1\r\n{\r\n0\r\nContent-Type: a\r\n\r\n", closed=False)
    yield one("half a line end", begin + b"1\r{\r\n0\r\n\r\n")


def methods() -> Iterator[Hostile]:
    one = of_kind("methods")
    known = "OPTIONS PUT PATCH DELETE TRACE PROPFIND GET HEAD MKCOL SOURCE LINK".split()
    for method, path in itertools.product(known, ("/v1/predict", "/nowhere")):
        yield one(f"{method} {path}", head(path, method, "Connection: close", json=False) + b"\r\n")
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
        yield one(repr(line), line + b"\r\nHost: localhost\r\n\r\n", closed=True)
    upgrade = "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: eA=="
    for path in ("/ws", "/v1/predict"):
        yield one(f"upgrade of {path}", head(path, "GET", *upgrade) + b"\r\n\x81\x85", closed=True)


def hosts() -> Iterator[Hostile]:
    one = of_kind("hosts", closed=True)
    for host in (
        "evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "", " ", "[", "[::1", "::2", "localhost@x",
        "a" * 5000, "0.0.0.0", "localhost:80:80", "\xff", "evil.example:localhost", "localhost, x",
    ):  # fmt: skip
        yield one(host[:40], head("/v1/models", "GET", host=host, json=False) + b"\r\n")
    for second in ("evil.example", "localhost"):
        twice = head("/v1/models", "GET", f"Host: {second}", json=False) + b"\r\n"
        yield one(f"localhost and {second}", twice)
    yield one("none", b"GET /v1/models HTTP/1.1\r\n\r\n")


def paths() -> Iterator[Hostile]:
    one = of_kind("paths", closed=True)
    for path in (
        "/../../etc/passwd", "/static/../../x", "/static/%2e%2e/x", "/static/..%2fx", "/%00", "/%ff%fe", "/%", "/%zz",
        "/static/page.css%00", "/v1/predict/../models", "/v1//models", "/V1/models", "/v1/models;x=1", "/docs",
        "/redoc", "/.env", "/.git/config", "/metrics.json", "/" + "a" * 60_000, "/" + "%41" * 20_000, "/static/",
        "/static/page.css.map", "/health.php", "/%u0041", "/<script>", "/'%22", "/\\", "/~root",
    ):  # fmt: skip
        yield one(path[:40], head(path, "GET", json=False) + b"\r\n")


def slow() -> Iterator[Hostile]:
    one = of_kind("slow and gone")
    begin = head("/v1/predict", "POST", "Content-Length: 1000") + b"\r\n"
    yield one("a body that stops", begin, b"{")
    yield one("a body in drops", begin, *[b" "] * 24, pause=0.5)
    yield one("a head in drops", b"G", b"E", b"T", b" ", b"/", b"h", closed=True, pause=0.5)
    yield one("nothing", closed=True)
    yield one("line ends", *[b"\r\n"] * 20, closed=True, pause=0.7)
    waits = head("/v1/predict", "POST", "Expect: 100-continue", "Content-Length: 99") + b"\r\n"
    yield one("100-continue, no body", waits)
    good = post(as_json({"texts": ["a film"] * 64}))
    for cut in (10, 120, len(good) - 5, len(good)):
        yield one(f"gone after {cut} bytes", good[:cut], leaves=0.0)
    unread = head("/static/page.js", "GET", json=False) + b"\r\n"
    yield one("16 answers unread", unread * 16, leaves=3.0)
    yield one("5,000 requests at once, unread", unread * 5000, leaves=3.0)


def filled(value: bytes, size: int, before: bytes = b'{"texts":[', after: bytes = b"]}") -> bytes:
    """A list of as many copies of a value as fit ``size`` bytes."""
    count = max(2, (size - len(before) - len(after)) // (len(value) + 1))
    return before + (value + b",") * (count - 1) + value + after


def many_values() -> Iterator[Hostile]:
    one = of_kind("many values")
    values = (b"1", b"null", b'""', b'"a"', b"[]", b"{}", b"-0.5e3", b"true", b'{"a":1}', b'["]"]')
    for size, value in itertools.product((20_000, MB, MOST), values):
        yield one(f"{value.decode()}, {size:,} bytes", post(filled(value, size)))
    for value, key in itertools.product(values[:5], ("text", "image", "method")):
        body = filled(value, 2 * MB, f'{{"{key}":['.encode())
        yield one(f"{value.decode()} as {key} of an explanation", post(body, "/v1/explain"))
    yield one("a list alone", post(filled(b"1", MOST, b"[", b"]")))
    yield one("with blanks", post(filled(b" \n\t1 ", MOST)))
    yield one("quotes without an end", post(b'{"texts":[' + b'"' * (MOST - 20)))
    yield one("as pictures", post(filled(b'"aGVsbG8="', MOST, b'{"images":[')))


def many_keys() -> Iterator[Hostile]:
    one = of_kind("many keys")
    for count, path in itertools.product((900, 1100, 10_000, 600_000), ("/v1/predict", "/v1/explain")):
        body = b"{" + b",".join(b'"k%d":1' % i for i in range(count)) + b"}"
        yield one(f"{count:,} unknown at {path}", post(body[:MOST], path))
    for count, key in itertools.product((2, 500, 100_000), (b"texts", b"text", b"model", b"x", b"")):
        body = b"{" + b",".join([b'"%s":["a"]' % key] * count) + b"}"
        yield one(f"{key.decode()!r} {count:,} times", post(body))
    yield one("one of 8 MB", post(b'{"texts":["a"],"' + b"k" * (MOST - 100) + b'":1}'))
    yield one("half a pair", post(b'{"texts":["a"],"\\ud800":1}'))
    for key in ("__proto__", "__class__", "constructor", "texts[0]", "body.texts", "\0", "texts "):
        yield one(repr(key), post(as_json({"texts": ["a"], key: 1})))


def nesting() -> Iterator[Hostile]:
    one = of_kind("nesting")
    for depth in (17, 100, 990, 5000, 100_000, 4 * MB):
        yield one(f"lists, {depth:,}", post(b"[" * depth + b"]" * depth))
        yield one(f"lists without an end, {depth:,}", post(b'{"texts":' + b"[" * depth))
        few = min(depth, MB)
        yield one(f"objects, {few:,}", post(b'{"a":' * few + b"1"))
        yield one(f"both, {few:,}", post(b'[{"a":' * few, "/v1/explain"))


def no_json() -> Iterator[Hostile]:
    one, whole = of_kind("no JSON"), b'{"texts": ["a film", "b"], "model": "films"}'
    for at in range(0, len(whole) - 1, 3):
        yield one(f"cut at {at}", post(whole[:at]))
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
        yield one(repr(body[:30]), post(body))
    called = ("text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "json")
    for kind in (*called, "; ; ;", "x" * 900, "application/jsonx", "application/" + "+" * 500):
        lines = (f"Content-Type: {kind}", f"Content-Length: {len(whole)}")
        yield one(f"called {kind[:40]}", head("/v1/predict", "POST", *lines, json=False) + b"\r\n" + whole)
    packed = zlib.compress(b" " * MOST)
    yield one("compressed", post(packed, "/v1/predict", "Content-Encoding: deflate"))


def wrong_types() -> Iterator[Hostile]:
    def one(name: str, body: dict[str, Any], path: str = "/v1/predict") -> Hostile:
        return Hostile("wrong types", name, (post(as_json(body), path),))

    values: Any = (None, True, 0, -1, 2**63, 1e308, "", "x" * 300, [], {}, [[]], [None], [True], [0.5], [{}])
    for value in (*values, ["", ""]):
        said = str(value)[:20]
        yield one(f"texts {said}", {"texts": value})
        yield one(f"images {said}", {"images": value})
        if value is not None:
            yield one(f"method {said}", {"text": "a film", "method": value}, "/v1/explain")
            yield one(f"model {said}", {"texts": ["a film"], "model": value})
        if value not in (None, 0, -1, True):
            asked = {"text": "a film", "method": "attention", "layer": value}
            yield one(f"layer {said}", asked, "/v1/explain")
    for more in (
        {"target": "\ud800", "method": "occlusion"}, {"target": "x" * 201}, {"layer": 1001}, {"image": "aGVsbG8="},
        {"layer": True, "method": "attention"}, {"head": 10**30, "method": "attention"}, {"model": "\ud800"},
    ):  # fmt: skip
        yield one(str(more)[:40], {"text": "a film", **more}, "/v1/explain")


def texts() -> Iterator[Hostile]:
    one = of_kind("texts")
    long = ("a" * 100_001, "\U0001f600" * 100_001)
    for text in ("", " ", "\0", "a\0b", "\u2003", "\u3000", "\n\n", "\t", *long):
        yield one(repr(text[:12]), post(as_json({"texts": ["a film", text]})))
        yield one(f"{text[:12]!r} explained", post(as_json({"text": text}), "/v1/explain"))
    for count in (65, 200, 1000, 5000):
        yield one(f"{count}", post(as_json({"texts": ["a film"] * count})))
    yield one("much to explain", post(as_json({"text": "a dull film " * 9000}), "/v1/explain"))
    wide = json.dumps({"texts": ["\U0001f600" * 30_000] * 60 + [""]}, ensure_ascii=False).encode()
    yield one("wide letters", post(wide[:MOST]))


def pictures() -> Iterator[Hostile]:
    def png(width: int, height: int, data: bytes = b"") -> str:
        return base64.b64encode(hostile_pictures.png(width, height, 8, 0, data)).decode()

    def sent(name: str, *content: str) -> Hostile:
        return Hostile("pictures", name, (post(as_json({"images": list(content)})),))

    good = png(12, 12, bytes(13 * 12))
    for text in ("***", "a", "=", "====", "aGVsbG8", "aGVsbG8=", "data:image/png;base64," + good, "http://localhost/x.png",
                 "file:///etc/passwd", "/etc/passwd", "\u00e9" * 8, good + "\n", " " + good, good[:-5], "A" * (7 * MB),
                 good.replace("A", "-"), "=" * MB, "A" * (MOST - 40), "\0" * 40):  # fmt: skip
        yield sent(repr(text[:24]), text)
    for width, height in (
        (0, 0), (0, 9), (2**31, 1), (2**31 - 1, 2**31 - 1), (50_000, 50_000), (16_000_001, 1), (1, 10**8),
    ):  # fmt: skip
        yield sent(f"{width} x {height}", png(width, height))
    for count in (65, 500, 4000):
        yield sent(f"{count} pictures", *[good] * count)
    yield sent("64 of 4000 x 4000", *[png(4000, 4000)] * 64)
    cut = post(as_json({"image": png(12, 12, bytes(5))}), "/v1/explain")
    yield Hostile("pictures", "cut, explained", (cut,))
    formats = (
        b"GIF89a",
        b"\xff\xd8\xff",
        b"RIFF\0\0\0\0WEBP",
        b"II*\0",
        b"BM",
        b"\0\0\1\0",
        b"%PDF-1.7",
        b"8BPS",
        b"P6\n",
    )
    for magic in formats:
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
        yield from (hostile for i, hostile in enumerate(kind()) if i % every == 0)
