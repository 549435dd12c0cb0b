"""``glassformer serve``: a process that starts, answers, survives being killed, and stops when told to."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from glassformer.cli.serve import api_key
from glassformer.errors import ConfigError

for package in ("fastapi", "uvicorn", "httptools", "prometheus_client"):
    pytest.importorskip(package)


def start(run: Path, port: int) -> subprocess.Popen:
    command = [sys.executable, "-m", "glassformer.cli.app", "serve", str(run), "--port", str(port)]
    command += ["--threads", "1", "--precision", "fp32"]
    keyed = os.environ | {"GLASSFORMER_API_KEY": "k"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=keyed)
    assert process.stdout is not None
    assert process.stdout.readline() == f"serving on http://127.0.0.1:{port}\n"
    return process


def label(port: int, text: str) -> str:
    """Waits in the socket's queue until the server takes it."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/predict",
        json.dumps({"texts": [text]}).encode(),
        {"content-type": "application/json", "authorization": "Bearer k"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["predictions"][0]["label"]


def test_a_port_that_is_taken(refused, run: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port}: Address already in use" in refused("serve", run, "--port", port)


def test_a_key_is_stripped_and_a_blank_one_refused():
    assert api_key(None) is None
    assert api_key(" k\n") == "k"
    for blank in ("", " \n"):
        with pytest.raises(ConfigError, match="GLASSFORMER_API_KEY: is set but blank"):
            api_key(blank)


def test_it_listens_before_it_tells_its_address(monkeypatch: pytest.MonkeyPatch):
    import uvicorn

    from glassformer.serve import run as serving
    from glassformer.serve.limits import Limits

    monkeypatch.setattr(serving, "load_models", lambda *args, **options: {})
    monkeypatch.setattr(serving, "create_app", lambda *args, **options: None)
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)  # takes no connection
    told = []

    def asks_at_once(address: str) -> None:
        told.append(address)
        socket.create_connection(("127.0.0.1", int(address.rsplit(":", 1)[1])), timeout=10).close()

    serving.run_server([], Limits(), port=0, on_ready=asks_at_once)
    assert len(told) == 1


@pytest.mark.slow
def test_several_servers_of_one_folder(gf, run: Path):
    """Started at once, asked at once; one is killed, the others go on, and it is started again."""
    texts = ["a splendid film", "a dull film", "a film"]
    expected = [line.split("\t")[0] for line in gf("predict", run, *texts).out.splitlines()]
    with ExitStack() as stack:
        doors = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        ports = [door.getsockname()[1] for door in doors]
    with ThreadPoolExecutor(9) as pool:
        processes = list(pool.map(lambda port: start(run, port), ports))
        try:
            asked = [(port, text) for port in ports for text in texts]
            assert list(pool.map(lambda one: label(*one), asked)) == expected * 3
            processes[0].kill()
            assert processes[0].wait(10) == -signal.SIGKILL
            assert list(pool.map(lambda one: label(*one), asked[3:])) == expected * 2
            processes.append(start(run, ports[0]))  # on the port of the one that was killed
            assert list(pool.map(lambda one: label(*one), asked[:3])) == expected
            for process in processes[1:]:  # once they have answered what was in
                process.send_signal(signal.SIGTERM)
                assert process.wait(30) == -signal.SIGTERM
        finally:
            for process in processes:
                process.kill()
                process.wait(10)
                assert process.stdout is not None
                process.stdout.close()
