"""Bounds: of size, number, time and load; and that a hostile client takes nothing from the others."""

import base64
import json
import os
import socket
import sys
import threading
import time
import zlib
from contextlib import ExitStack, suppress

import pytest

from glassformer.errors import ConfigError
from glassformer.serve.guard import is_local
from glassformer.serve.limits import Limits

from .conftest import TEXTS, Running, asked_for_health, in_background, soon

HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def raw(server: Running, *parts: bytes, pause: float = 0.0, wait: float = 10.0) -> bytes:
    """What comes back for bytes on a bare connection until it is closed."""
    found = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait) as line:
        try:
            for part in parts:
                line.sendall(part)
                time.sleep(pause)
            while data := line.recv(65536):
                found += data
        except ConnectionError:  # cut
            pass
    return found


def status(said: bytes) -> int:
    """Of the first answer; 0: none."""
    return int(said[9:12]) if said.startswith(b"HTTP/1.1 ") else 0


def test_a_key(serve):
    server = serve(key="s3cret")
    assert server.ask("/v1/models").status == 401
    assert server.ask("/v1/predict", {"texts": ["a"]}, authorization="Bearer wrong").status == 401
    assert server.ask("/metrics").status == 401
    assert server.ask("/v1/models", authorization="Bearer s3cret").status == 200
    assert server.ask("/v1/models", authorization="bearer s3cret").status == 200
    assert server.ask("/v1/models", x_api_key="s3cret").status == 200
    assert server.ask("/health").status == server.ask("/").status == 200


def test_bodies_have_bounds(serve):
    server = serve(body_bytes=2000, body_seconds=1.0)
    large = server.ask("/v1/predict", b" " * 2001)
    assert large.status == 413
    assert large.headers["connection"] == "close"
    assert status(raw(server, HEAD + b"Content-Length: 99999999999999999999\r\n\r\n")) in (400, 413)
    chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
    assert status(raw(server, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", chunk * 3)) == 413
    assert status(raw(server, HEAD + b"Content-Length: 1000\r\n\r\n{", wait=5)) == 408
    assert server.ask("/v1/predict", {"texts": ["a film"]}).status == 200


def test_idle_and_dripping_connections_are_cut(server: Running):
    started = time.monotonic()
    assert raw(server, wait=5) == b""  # nothing sent
    assert raw(server, b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ", wait=5) == b""  # headers that do not end
    assert time.monotonic() - started < 6  # twice body_seconds, and no third connection's patience
    with asked_for_health(server):
        drip = raw(server, *[b"G", b"E", b"T"] * 6, pause=0.1, wait=5)
    assert status(drip) in (0, 400)
    assert server.ask("/health").status == 200


def test_too_many_idle_connections_make_room(serve):
    server = serve(connections=20, body_seconds=30.0)
    with ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        for _ in range(5):
            assert server.ask("/health").status == 200
        assert soon(lambda: len(server.server.server_state.connections) <= 21)  # some are still being closed


@pytest.mark.parametrize(
    "garbage",
    [b"\x00" * 100, b"GET", b"GET /\xff\xfe HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\n", b"\x16\x03\x01"],
)
def test_what_is_no_http(server: Running, garbage: bytes):
    said = raw(server, garbage + b"\r\n\r\n", wait=5)
    assert status(said) in (0, 400, 404)
    assert server.ask("/health").status == 200


def png_of_zeros(width: int, height: int, content: bytes = b"\0" * 10_000) -> bytes:
    """A PNG whose header speaks of that many grey pixels, whatever its content holds."""
    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\x00\x00\x00\x00"
    found = b"\x89PNG\r\n\x1a\n"
    for kind, data in ((b"IHDR", head), (b"IDAT", zlib.compress(content)), (b"IEND", b"")):
        found += len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
    return found


def test_pictures_that_would_not_fit(server: Running):
    def bomb(width: int, height: int) -> str:
        return base64.b64encode(png_of_zeros(width, height)).decode()

    assert server.ask("/v1/predict", {"images": [bomb(50_000, 50_000)]}).status in (413, 422)
    assert server.ask("/v1/predict", {"images": [bomb(5000, 4000)]}).status == 413
    cut = server.ask("/v1/predict", {"images": [bomb(100, 100)]})
    assert cut.status == 422
    assert "damaged" in cut.body["error"]["what"]


def test_many_pictures_of_few_bytes(server: Running, monkeypatch):
    """Each alone is small enough: a request of 64 is refused by its headers, and texts are answered meanwhile."""
    whole = base64.b64encode(png_of_zeros(4000, 4000, bytes(4001 * 4000))).decode()
    served = server.app.state.server.models["pictures"]
    monkeypatch.setattr(type(served.clf.transform_), "read", None)  # decoding anything would fail
    with asked_for_health(server):
        refused = server.ask("/v1/predict", {"images": [whole] * 64})
    assert refused.status == 413
    error = refused.body["error"]
    assert error["what"] == "1,024,000,000 pixels in all images, at most 64,000,000 in one request"
    assert error["where"] == "images"


def test_pictures_that_decode_slowly_hold_up_no_text(serve, going, monkeypatch):
    server, seen = serve(request_pixels=3 * 12 * 12, seconds=1.0), []
    kind = type(server.app.state.server.models["pictures"].clf.transform_)
    monkeypatch.setattr(kind, "read", lambda self, content, where: seen.append(where) or going.wait(20))
    asked = {"images": [base64.b64encode(png_of_zeros(12, 12)).decode()] * 3}
    answers, clients = in_background(server, "/v1/predict", asked, 3)
    assert soon(lambda: len(seen) >= 2)
    assert server.ask("/v1/predict", {"texts": ["a film"]}).status == 200
    for client in clients:
        client.join(20)
    assert [answer.status for answer in answers] == [503] * 3
    going.set()
    server.app.state.server.image_decoder.shutdown()
    assert seen == ["images[0]"] * 2  # given up: no second picture is decoded, the third request not begun


def test_an_icon_is_not_opened(server: Running):
    """Pillow decodes what an ICO holds before it says how large it is."""
    inner = png_of_zeros(12, 12, bytes(13 * 12))
    entry = bytes([16, 16, 0, 0, 1, 0, 32, 0]) + len(inner).to_bytes(4, "little") + (22).to_bytes(4, "little")
    icon = base64.b64encode(b"\0\0\1\0\1\0" + entry + inner).decode()
    answer = server.ask("/v1/predict", {"images": [icon]})
    assert answer.status == 422
    assert "an icon, which is not read" in answer.body["error"]["what"]


def test_a_full_queue_is_said_at_once(serve, going, hold, monkeypatch):
    server = serve(queue_tokens=20)
    batcher = server.app.state.server.batchers["films"]
    entered = hold(batcher.served)
    first, clients = in_background(server, "/v1/predict", {"texts": TEXTS[:3]})
    assert entered.wait(10)
    refused, more = in_background(server, "/v1/predict", {"texts": TEXTS[:3]}, 7)
    assert soon(lambda: len(refused) == 7)
    assert {answer.status for answer in refused} == {429}
    assert refused[0].headers["retry-after"] == "1"
    assert server.ask("/health").status == 200
    assert server.ask("/v1/predict", b"no JSON " * 99).status == 422  # another model may have a place
    monkeypatch.setattr(server.app.state.server, "batchers", {"films": batcher})
    unread = server.ask("/v1/predict", b"no JSON " * 99)  # a full queue reads nothing
    assert (unread.status, unread.headers["retry-after"]) == (429, "1")
    assert unread.headers["x-content-type-options"] == "nosniff"
    going.set()
    for client in clients + more:
        client.join(20)
    assert server.ask("/v1/predict", b"no JSON " * 99).status == 422
    assert [answer.status for answer in first] == [200]
    assert batcher.tokens == batcher.waiting_tokens == 0


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness of their own on Linux only")
def test_what_computes_stands_back(serve):
    server = serve()
    state = server.app.state.server
    nice = lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id())  # noqa: E731
    for pool in (state.computing, state.explaining):
        assert pool.submit(nice).result(10) == min(nice() + 5, 19)


def test_no_answer_in_time_and_a_failing_model(serve, going, hold, monkeypatch):
    server = serve(seconds=0.3)
    batcher = server.app.state.server.batchers["films"]
    hold(batcher.served)
    late = server.ask("/v1/predict", {"texts": ["a film"]})
    assert late.status == 503
    assert "0.3 s" in late.body["error"]["what"]
    going.set()

    def fails(items):
        raise RuntimeError("boom")

    monkeypatch.setattr(batcher.served, "compute", fails)
    broken = server.ask("/v1/predict", {"texts": ["a film"]})
    assert broken.status == 500
    assert "boom" not in str(broken.body)
    monkeypatch.undo()
    assert server.ask("/v1/predict", {"texts": ["a film"]}).status == 200  # the worker has survived
    assert batcher.tokens == 0


def test_explanations_have_bounds(serve, going, hold):
    server = serve(explain_tokens=8, explain_queue=1)
    long = server.ask("/v1/explain", {"text": "a dull film " * 9})
    assert long.status == 413
    assert "8 at most" in long.body["error"]["what"]
    many = server.ask("/v1/explain", {"image": base64.b64encode(png_of_zeros(12, 12)).decode()})
    assert (many.status, many.body["error"]["where"]) == (413, "image")
    assert many.body["error"]["what"] == "10 tokens, but explanations accept 8 at most"
    entered = hold(server.app.state.server.models["films"], "explain")
    _, (first,) = in_background(server, "/v1/explain", {"text": "a"})
    assert entered.wait(10)
    assert server.ask("/v1/explain", {"text": "a"}).status == 429
    assert server.ask("/v1/predict", {"texts": ["a film"]}).status == 200  # not held up
    going.set()
    first.join(10)


def test_stopping_answers_what_is_in(launch, going, hold):
    with launch() as server:
        entered = hold(server.app.state.server.batchers["films"].served)
        answers, (client,) = in_background(server, "/v1/predict", {"texts": ["a film"]})
        assert entered.wait(10)
        server.server.should_exit = True
        time.sleep(0.2)
        going.set()
        client.join(20)
    assert answers[0].status == 200


def test_limits_are_checked():
    for wrong, said in (
        ({"inputs": 0}, "--inputs: 0 is not above 0"),
        ({"wait_ms": -1}, "--wait-ms"),
        ({"body_seconds": float("nan")}, "--body-seconds: nan is not a finite number"),
        ({"body_seconds": float("inf")}, "--body-seconds: inf is not a finite number"),
    ):
        with pytest.raises(ConfigError, match=said):
            Limits(**wrong)


def test_every_loopback_address_is_local():
    assert all(map(is_local, ("localhost", "127.0.0.1", "127.0.0.2", "::1")))
    assert not any(map(is_local, ("0.0.0.0", "::", "10.0.0.1", "films.example")))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_client_that_has_gone_is_not_computed_for(serve, going, hold, monkeypatch, loop):
    pytest.importorskip(loop)
    server = serve(loop=loop, batch_tokens=64)
    batcher = next(iter(server.app.state.server.batchers.values()))
    computed, compute = [], batcher.served.compute
    monkeypatch.setattr(batcher.served, "compute", lambda items: computed.append(1) or compute(items))
    entered = hold(batcher.served)
    body = json.dumps({"texts": ["a warm and wise film , number one of many"] * 40}).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert entered.wait(20)
        assert len(batcher.waiting) > 20
    assert soon(lambda: batcher.tokens == 0)  # its place is free while its first batch is still computed
    going.set()
    assert soon(lambda: not batcher.waiting)
    assert len(computed) == 1
    assert server.ask("/v1/predict", {"texts": ["a dull film"]}).status == 200


# --- bodies over the limit: a client that sends all of it first, and one that never ends ------------------


def test_a_client_that_sends_all_first_reads_that_it_was_too_much(serve):
    server = serve()
    for _ in range(4):
        answer = server.ask("/v1/predict", b" " * (20 << 20))
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert answer.body["error"]["what"] == "more than 8,388,608 bytes"
    assert server.ask("/v1/predict", {"texts": ["a film"]}).status == 200


def test_a_body_that_nobody_waits_for_holds_up_no_end(launch):
    head = HEAD.replace(b"predict", b"nothing") + b"Content-Length: 1000000\r\n\r\n"
    with ExitStack() as stack, launch() as server:
        client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
        client.sendall(head + b" " * 1000)
        assert status(client.recv(4096)) == 404
        started = time.monotonic()
    assert time.monotonic() - started < 5  # of the 10 that a body may take


def test_who_goes_on_sending_after_the_answer_is_cut_off(serve):
    server = serve(body_bytes=2000, body_seconds=1.0)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(HEAD + b"Content-Length: 999999999\r\n\r\n")
        assert status(client.recv(4096)) == 413
        started = time.monotonic()
        with suppress(OSError):  # cut
            while time.monotonic() < started + 15:
                client.sendall(b" " * 65_536)
                time.sleep(0.02)
        assert 0.5 < time.monotonic() - started < 10
