"""On the wire: heads, framing, pipelines, patience. Each answer is read from a bare connection."""

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from glassformer.serve import run

from .conftest import PICTURES, Running, asked_for_health, png, soon
from .test_limits import HEAD as POST
from .test_limits import raw, status

GET = b"GET /health HTTP/1.1\r\nHost: x\r\n"
BODY = b'{"texts": ["a film"]}'
SIZE = b"Content-Length: %d\r\n\r\n" % len(BODY)
LAST = b"Connection: close\r\n\r\n"


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def small(launch, request) -> Iterator[Running]:
    """A server with room for little: 4 kB of headers, 7 of them, two requests that wait. On either loop."""
    pytest.importorskip(request.param)
    limits = {"header_bytes": 4000, "headers": 7, "pipelined": 2, "body_bytes": 20_000}
    with launch(loop=request.param, **limits, body_seconds=0.9, seconds=5.0) as running:
        yield running


def connected(server: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def to_the_end(line: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    said = b""
    while data := line.recv(65536):
        said += data
    return said


def statuses(said: bytes) -> list[int]:
    """Of all answers."""
    return [int(found) for found in re.findall(rb"HTTP/1.1 (\d{3}) ", said)]


def held(server: Running) -> int:
    return server.app.state.server.budget.used


@pytest.mark.parametrize(
    "sent",
    [
        GET + b"X: " + b"a" * 4000,
        GET + b"X: " + b"a" * 4000 + b"\r\n\r\n",
        GET + b"x" * 100_000,
        b"GET /" + b"a" * 5000,
        b"GET /health?" + b"a=b&" * 2000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        GET + b"X: " + b"a" * 900 + b"\r\nY: " + b"a" * 3200 + b"\r\n\r\n",
        GET + b"a:\r\n" * 7 + b"\r\n",
    ],
)
def test_heads_end(small: Running, sent: bytes):
    counted = small.app.state.server.metrics.requests.labels("other", "431")._value
    before = counted.get()
    said = raw(small, sent, wait=10)
    assert status(said) == 431
    assert counted.get() == before + 1
    head, _, body = said.partition(b"\r\n\r\n")
    assert json.loads(body)["error"]["where"] == "headers"
    assert b"connection: close" in head
    assert b"x-content-type-options: nosniff" in head
    closing = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n" + LAST
    assert raw(small, closing + sent).count(b"HTTP/1.1") == 1
    assert soon(lambda: held(small) == 0)


def test_what_fits_is_answered(small: Running):
    assert status(raw(small, GET + b"X: " + b"a" * 3900 + b"\r\n" + LAST)) == 200
    assert status(raw(small, GET + b"a:\r\n" * 5 + LAST)) == 200
    parts = [GET, b"X: ", *[b"a" * 390] * 10, b"\r\n", LAST]
    assert status(raw(small, *parts, pause=0.01)) == 200


def test_headers_of_many_requests_on_one_connection_are_counted_anew(small: Running):
    one = GET + b"X: " + b"a" * 3000 + b"\r\n\r\n"
    with connected(small) as line:
        for _ in range(9):
            line.sendall(one)
            said = b""
            while not said.endswith(b"}"):  # head and body may come apart
                said += line.recv(65536)
            assert statuses(said) == [200]
            assert soon(lambda: held(small) == 0)


def test_a_head_is_held_until_it_is_answered_or_gone(small: Running):
    with connected(small) as line:
        line.sendall(GET + b"X: " + b"a" * 2000)
        assert soon(lambda: 2000 < held(small) < 2200)
    assert soon(lambda: held(small) == 0)


def test_heads_count_with_all_that_is_held(serve):
    server = serve(all_bytes=10_000, header_bytes=4000, body_seconds=3.0)
    lines = [connected(server) for _ in range(9)]
    for line in lines[:3]:
        line.sendall(GET + b"X: " + b"a" * 3000)
    assert soon(lambda: held(server) > 9000)
    lines[3].sendall(GET + b"X: " + b"a" * 3000)
    said = lines[3].recv(65536)
    assert status(said) == 503
    assert b"retry-after: 1" in said.lower()
    for line in lines:
        line.close()
    assert soon(lambda: held(server) == 0)
    assert server.ask("/v1/predict", BODY).status == 200
    assert 'refused_total{reason="memory"} 1.0' in server.ask("/metrics").body.decode()


def chunks(*sizes: int, extension: bytes = b"") -> bytes:
    return b"".join(b"%x%s\r\n%s\r\n" % (n, extension, b" " * n) for n in sizes)


CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"


def test_chunks_extensions_and_trailers(small: Running):
    whole = CHUNKED + b"\r\n" + b"%x\r\n%s\r\n" % (len(BODY), BODY)
    assert status(raw(small, whole + b"0\r\n\r\n" + GET + LAST)) == 200
    assert statuses(raw(small, whole + b"0\r\nX-T: a\r\n\r\n" + GET + LAST)) == [200, 200]
    long = CHUNKED + b"\r\n1;" + b"e" * 9000
    assert status(raw(small, long)) == 413
    assert status(raw(small, CHUNKED + b"\r\n" + chunks(1, extension=b";" + b"e" * 900) * 90)) == 413
    assert status(raw(small, whole + b"0\r\nX-T: " + b"t" * 9000)) in (200, 413)  # answered, then cut
    assert status(raw(small, CHUNKED + b"\r\n" + chunks(9) + b"0\r\n" + b"a: b\r\n" * 5000)) in (413, 422)
    assert status(raw(small, CHUNKED + b"\r\n" + chunks(*[9000] * 3))) == 413
    assert soon(lambda: held(small) == 0)


def test_trailers_are_no_headers(serve):
    server = serve(key="k")
    whole = CHUNKED + b"\r\n" + b"%x\r\n%s\r\n0\r\n" % (len(BODY), BODY)
    assert status(raw(server, whole + b"X-API-Key: k\r\n\r\n" + GET + LAST)) == 401
    keyed = whole.replace(b"Host", b"X-API-Key: k\r\nHost")
    said = raw(server, keyed + b"X-API-Key: wrong\r\nContent-Type: a\r\n\r\n" + GET + LAST)
    assert statuses(said) == [200, 200]


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 21\r\nContent-Length: 22\r\n",
        b"Content-Length: 21\r\nContent-Length: 21\r\n",
        b"Content-Length: 21\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 21\r\n",
        b"Content-Length: 21, 21\r\n",
        b"Content-Length: +21\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 0x15\r\n",
        b"Transfer-Encoding: chunked, gzip\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"X: a\r\n folded: b\r\nContent-Length : 21\r\n",
    ],
)
def test_two_readers_of_one_request_would_not_agree(small: Running, lines: bytes):
    said = raw(small, POST + lines + b"\r\n" + BODY + b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
    assert len(statuses(said)) <= 1
    assert 400 <= status(said) < 500 or said == b""


def test_what_is_given_twice(small: Running):
    for line in (b"Host: x\r\n", b"Content-Type: text/plain\r\n"):
        said = raw(small, POST + b"Connection: close\r\n" + line + SIZE + BODY)
        assert status(said) == 400
        assert json.loads(said.partition(b"\r\n\r\n")[2])["error"]["what"] == "given twice"
    assert status(raw(small, GET + b"Accept: a\r\nAccept: b\r\n" + LAST)) == 200


def test_requests_that_wait_behind_one_another(small: Running, monkeypatch):
    assert statuses(raw(small, GET + b"\r\n" + POST + SIZE + BODY + GET + LAST)) == [200] * 3
    with asked_for_health(small):
        said = raw(small, (GET + b"\r\n") * 5000)
    assert statuses(said) == [200] * 3  # one and two that wait; the rest is not looked at
    assert soon(lambda: held(small) == 0)


@pytest.mark.parametrize("is_lost", [False, True])
def test_requests_that_wait_are_held_until_their_connection_is_gone(small, monkeypatch, caplog, is_lost):
    """Each of them is gone, not the last alone: nothing is held for them, nothing is written."""
    served = small.app.state.server.models["films"]
    real = served.compute
    monkeypatch.setattr(served, "compute", lambda items: time.sleep(0.5) or real(items))
    with connected(small) as line:
        line.sendall(POST + SIZE + BODY + POST + b"Content-Length: 9000\r\n\r\n" + b" " * 8000)
        assert soon(lambda: 8000 < held(small) < 8700)
        if not is_lost:
            line.close()
            assert soon(lambda: held(small) == 0)
            return
        (connection,) = small.server.server_state.connections
        connection.loop.call_soon_threadsafe(connection.transport.abort)
        assert soon(lambda: not small.server.server_state.connections)
        assert soon(lambda: not small.server.server_state.tasks)
    assert held(small) == 0
    assert not caplog.records


def test_half_closed_clients_get_their_answers(small: Running):
    with connected(small) as line:
        line.sendall(POST + SIZE + BODY + GET + b"\r\n")
        line.shutdown(socket.SHUT_WR)
        said = to_the_end(line)
    assert [status for status in statuses(said) if status != 100] == [200, 200]
    with connected(small) as line:
        line.sendall(POST + SIZE + BODY[:-1])
        line.shutdown(socket.SHUT_WR)
        assert line.recv(65536) == b""


@pytest.mark.parametrize(("version", "interim"), [(b"1.1", [100, 100]), (b"1.0", [])])
def test_half_closed_clients_wait_for_a_slow_answer(small: Running, monkeypatch, version, interim):
    """A client that has gone is looked for by interim answers, which HTTP/1.0 does not know."""
    served = next(iter(small.app.state.server.batchers.values())).served
    compute = served.compute
    monkeypatch.setattr(run, "PROBE_INTERVAL", 0.1)
    monkeypatch.setattr(served, "compute", lambda items: time.sleep(4 * run.PROBE_INTERVAL) or compute(items))
    with connected(small) as line:
        line.sendall(POST.replace(b"HTTP/1.1", b"HTTP/" + version) + SIZE + BODY)
        line.shutdown(socket.SHUT_WR)
        said = to_the_end(line)
    assert statuses(said) == [*interim, 200]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_answers_that_nobody_reads(serve, loop: str):
    """A client that asks for more than its buffers take, and reads nothing, is cut."""
    pytest.importorskip(loop)
    server = serve(loop=loop, body_seconds=0.4, seconds=0.6, pipelined=1000)
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.connect(("127.0.0.1", server.port))
    line.sendall(b"GET /static/page.js HTTP/1.1\r\nHost: x\r\n\r\n" * 900)
    connections = server.server.server_state.connections
    assert soon(lambda: len(connections) == 1)
    assert soon(lambda: not connections)
    line.close()
    assert soon(lambda: held(server) == 0)
    assert server.ask("/health").status == 200


def test_bytes_that_begin_no_request_and_bodies_that_nobody_waits_for(small: Running):
    started = time.monotonic()
    assert raw(small, *[b"\r\n"] * 15, pause=0.1, wait=5) == b""
    with connected(small) as line, suppress(OSError):  # a GET that is answered before its body, which is cut
        line.sendall(GET + b"Transfer-Encoding: chunked\r\n\r\n")
        assert line.recv(65536).startswith(b"HTTP/1.1 200")
        while time.monotonic() < started + 20:
            line.sendall(b"1\r\na\r\n")
            time.sleep(0.05)
    assert time.monotonic() - started < 15
    begun = raw(small, GET + b"\r\n" + b"GET /h", wait=5)  # the head behind an answer does not end
    assert statuses(begun) == [200]


@pytest.mark.parametrize(
    ("request_line", "wanted"),
    [
        (b"OPTIONS /v1/predict HTTP/1.1", [405]),
        (b"OPTIONS * HTTP/1.1", [404]),
        (b"DELETE /v1/predict HTTP/1.1", [405]),
        (b"TRACE / HTTP/1.1", [405]),
        (b"FOO / HTTP/1.1", [400]),
        (b"CONNECT evil.example:80 HTTP/1.1", [400]),
        (b"GET http://x/health HTTP/1.1", [200]),
        (b"GET ftp:///etc/passwd HTTP/1.1", [400, 404]),
        (b"GET /health HTTP/1.0", [200]),
        (b"GET /health HTTP/3.0", [400]),
        (b"HEAD /health HTTP/1.1", [200]),
        (b"HEAD /v1/predict HTTP/1.1", [405]),
        (b"GET //evil.example/health HTTP/1.1", [404]),
    ],
)
def test_odd_request_lines(small: Running, request_line: bytes, wanted: list[int]):
    assert status(raw(small, request_line + b"\r\nHost: x\r\n" + LAST)) in wanted


def test_the_host_of_an_absolute_address_counts(serve):
    server = serve(hosts=("127.0.0.1", "[::1]"))
    lines = b" HTTP/1.1\r\nHost: 127.0.0.1\r\n" + LAST
    assert status(raw(server, b"GET http://evil.example/health" + lines)) == 400
    assert status(raw(server, b"GET http://127.0.0.1:9/health" + lines)) == 200
    assert status(raw(server, b"GET http://[::1]:9/health" + lines)) == 200
    assert status(raw(server, b"GET /health HTTP/1.1\r\n" + LAST)) == 400
    for path in ("/", "/static/page.css"):
        assert status(raw(server, b"GET " + path.encode() + b" HTTP/1.1\r\nHost: [\r\n" + LAST)) == 400


def test_a_host_that_is_no_address_is_nobody_s_failure(small: Running):
    for path in (b"/", b"/health", b"/health/", b"/nowhere"):
        said = raw(small, b"GET " + path + b" HTTP/1.1\r\nHost: [::1\r\n" + LAST)
        assert 200 <= status(said) < 500, said


def test_upgrades_are_not_taken(small: Running):
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    assert statuses(raw(small, GET + upgrade + b"\r\n" + GET + b"\r\n")) == [200]
    said = raw(small, POST + b"Connection: Upgrade\r\nUpgrade: h2c\r\n" + SIZE + BODY)
    assert statuses(said) == [400]
    assert json.loads(said.partition(b"\r\n\r\n")[2])["error"]["where"] == "Upgrade"


def test_a_body_is_asked_for_only_where_it_will_be_read(small: Running):
    expect = POST + b"Expect: 100-continue\r\n"
    with connected(small) as line:
        line.sendall(expect + SIZE)
        assert line.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.sendall(BODY)
        assert line.recv(65536).startswith(b"HTTP/1.1 200")
    assert status(raw(small, expect + b"Content-Length: 20001\r\n\r\n")) == 413


def test_pictures_pass_by_the_same_door(server: Running):
    body = json.dumps({"images": [png(PICTURES[0])] * 3}).encode()
    parts = [body[i : i + 97] for i in range(0, len(body), 97)]
    sent = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    assert status(raw(server, CHUNKED + b"Connection: close\r\n\r\n" + sent + b"0\r\n\r\n")) == 200
