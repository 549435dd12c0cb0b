"""The network guard of conftest.py: it refuses, it takes note, and it lets this machine through."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

OUTSIDE = "192.0.2.1"  # reserved for documentation: nobody is there


def attempts() -> str:
    log = Path(os.environ["GLASSFORMER_NETWORK_LOG"])
    return log.read_text(encoding="utf-8") if log.exists() else ""


@pytest.mark.reaches_out
def test_connection_to_another_machine_is_refused_and_noted():
    with socket.socket() as client, pytest.raises(ConnectionRefusedError, match="no network in tests"):
        client.connect((OUTSIDE, 80))
    with pytest.raises(ConnectionRefusedError, match="no network in tests"):
        socket.getaddrinfo("example.invalid", 443)
    assert f"socket.connect to '{OUTSIDE}'" in attempts()


@pytest.mark.reaches_out
def test_processes_that_a_test_starts_are_guarded_too():
    program = f"import socket; socket.create_connection(({OUTSIDE!r}, 81), timeout=1)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no network in tests" in done.stderr


def test_this_machine_can_be_reached():
    # The kernel takes the connection by itself, before accept is called.
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(("localhost", server.getsockname()[1]), timeout=5) as client,
        server.accept()[0] as connection,
    ):
        connection.sendall(b"here")
        assert client.recv(4) == b"here"
