"""Requests that mean a server no good, by kind.

A kind is a function that yields ``Hostile``; KINDS lists them. Hostile pictures come from ``hostile_pictures``,
where that module is there: its ``pictures()`` yields ``(name, bytes)``.
"""

from __future__ import annotations

import base64
import functools
import json
import zlib
from collections.abc import Callable, Iterator

from benchmarks.reliability import hostile_pictures
from benchmarks.reliability.hostile_wire import (
    MB,
    MOST,
    Hostile,
    as_json,
    framing,
    head,
    heads,
    hosts,
    methods,
    paths,
    post,
    slow,
)


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
        "text/plain",
        "multipart/form-data; boundary=x",
        "application/x-www-form-urlencoded",
        "json",
        "; ; ;",
    )
    for kind in (*called, "x" * 900, "application/jsonx", "application/" + "+" * 500):
        lines = (f"Content-Type: {kind}", f"Content-Length: {len(whole)}")
        sent = head("/v1/predict", "POST", *lines, json=False) + b"\r\n" + whole
        yield Hostile("no JSON", f"called {kind[:40]}", (sent,))
    packed = zlib.compress(b" " * MOST)
    yield Hostile("no JSON", "compressed", (post(packed, "/v1/predict", "Content-Encoding: deflate"),))


def wrong_types() -> Iterator[Hostile]:
    values = (
        None,
        True,
        0,
        -1,
        2**63,
        1e308,
        "",
        "x" * 300,
        [],
        {},
        [[]],
        [None],
        [True],
        [0.5],
        [{}],
        ["", ""],
    )
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
        "",
        " ",
        "\0",
        "a\0b",
        "\u2003",
        "\u3000",
        "\n\n",
        "\t",
        "a" * 100_001,
        "\U0001f600" * 100_001,
    ):
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
        fields = width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\0\0\0\0"
        parts = ((b"IHDR", fields), (b"IDAT", zlib.compress(data)), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            len(d).to_bytes(4, "big") + k + d + zlib.crc32(k + d).to_bytes(4, "big") for k, d in parts
        )

    def sent(name: str, *content: str) -> Hostile:
        return Hostile("pictures", name, (post(as_json({"images": list(content)})),))

    good = base64.b64encode(png(12, 12, bytes(13 * 12))).decode()
    for text in ("***", "a", "=", "====", "aGVsbG8", "aGVsbG8=", "data:image/png;base64," + good, "http://localhost/x.png",
                 "file:///etc/passwd", "/etc/passwd", "\u00e9" * 8, good + "\n", " " + good, good[:-5], "A" * (7 * MB),
                 good.replace("A", "-"), "=" * MB, "A" * (MOST - 40), "\0" * 40):  # fmt: skip
        yield sent(repr(text[:24]), text)
    for width, height in (
        (0, 0),
        (0, 9),
        (2**31, 1),
        (2**31 - 1, 2**31 - 1),
        (50_000, 50_000),
        (16_000_001, 1),
        (1, 10**8),
    ):
        yield sent(f"{width} x {height}", base64.b64encode(png(width, height)).decode())
    for count in (65, 500, 4000):
        yield sent(f"{count} pictures", *[good] * count)
    yield sent("64 of 4000 x 4000", *[base64.b64encode(png(4000, 4000)).decode()] * 64)
    content = base64.b64encode(png(12, 12, bytes(5))).decode()
    yield Hostile("pictures", "cut, explained", (post(as_json({"image": content}), "/v1/explain"),))
    magics = (
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
