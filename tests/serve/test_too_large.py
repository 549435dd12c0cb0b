"""A body over the limit: a client that sends all of it first reads the answer, and one that never ends is cut off."""

import math
import socket
import time

HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def test_a_client_that_sends_all_first_reads_that_it_was_too_much(serve):
    server = serve()
    try:
        for _ in range(4):
            answer = server.ask("/v1/predict", b" " * (20 << 20))
            assert (answer.status, answer.headers["connection"]) == (413, "close")
            assert answer.body["error"]["what"] == "more than 8,388,608 bytes"
        assert server.ask("/v1/predict", {"texts": ["a film"]}).status == 200
    finally:
        server.stop()


def test_a_body_that_nobody_waits_for_holds_up_no_end(serve):
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(
            HEAD.replace(b"predict", b"nothing") + b"Content-Length: 1000000\r\n\r\n" + b" " * 1000
        )
        assert b" 404 " in client.recv(4096).splitlines()[0]
        started = time.monotonic()
        server.stop()
        assert time.monotonic() - started < 5  # of the 10 that a body may take


def seconds_of_sending(client: socket.socket, most: float) -> float:
    """How long the other side takes what is sent."""
    started = time.monotonic()
    while time.monotonic() - started < most:
        try:
            client.sendall(b" " * 65_536)
        except OSError:
            return time.monotonic() - started
        time.sleep(0.02)
    return math.inf


def test_who_goes_on_sending_after_the_answer_is_cut_off(serve):
    server = serve(body_bytes=2000, body_seconds=1.0)
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
            client.sendall(HEAD + b"Content-Length: 999999999\r\n\r\n")
            assert b" 413 " in client.recv(4096).splitlines()[0]
            assert 0.5 < seconds_of_sending(client, most=15) < 10
    finally:
        server.stop()
