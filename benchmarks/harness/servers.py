"""Servers under test: started in a process of their own on a free port, and watched."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil


class Server:
    """A server process on a port of its own; its stderr goes to the file ``errors``, if one is given."""

    def __init__(self, *command: str | Path, threads: int, errors: Path | None = None):
        self.errors = errors
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.command = [str(part).replace("PORT", str(self.port)) for part in command]
        self.environment = os.environ | {
            "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"
        }  # fmt: skip

    def start(self) -> float:
        """Seconds until it is ready."""
        began = time.perf_counter()
        with contextlib.ExitStack() as files:
            errors = None if self.errors is None else files.enter_context(self.errors.open("ab"))
            quiet = {"stdout": subprocess.DEVNULL, "stderr": errors}
            self.process = subprocess.Popen(self.command, env=self.environment, **quiet)
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/ready", timeout=2):
                return time.perf_counter() - began
            if self.process.poll() is not None or time.perf_counter() - began > 120:
                raise RuntimeError(f"no server: {' '.join(self.command)}")
            time.sleep(0.02)

    def stop(self, how: int = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait(60)

    def pause(self, stopped: bool) -> None:
        """Neither computes while the other is measured."""
        self.process.send_signal(signal.SIGSTOP if stopped else signal.SIGCONT)


def serving(folders: Sequence[str | Path], *options: str, python: str = sys.executable) -> list[str | Path]:
    """The command that serves some saved models, as a user starts it; the port is put in later."""
    return [python, "-m", "glassformer.cli.app", "serve", *folders, "--port", "PORT", *options]


@contextmanager
def running(*command: str | Path, threads: int) -> Iterator[Server]:
    server = Server(*command, threads=threads)
    server.start()
    try:
        yield server
    finally:
        server.stop()


PROBE = """
import http.client, time
while True:
    started = time.monotonic()
    try:
        line = http.client.HTTPConnection("127.0.0.1", {port}, timeout=60)
        line.request("GET", "/health")
        status = line.getresponse().status
        line.close()
    except OSError:
        status = 0
    print(time.monotonic() - started if status == 200 else float("inf"), flush=True)
    time.sleep(0.05)
"""


@dataclass
class Watched:
    """What was seen until now."""

    process: psutil.Process
    health: list[float] = field(default_factory=list)  # seconds
    most_mb: float = 0.0

    def mb(self) -> float:
        """The resident size now."""
        now = self.process.memory_info().rss / 1e6
        self.most_mb = max(self.most_mb, now)
        return now


@contextmanager
def watched(pid: int, port: int) -> Iterator[Watched]:
    """Until the block ends, ``/health`` is asked and the memory looked at every 50 ms."""
    seen, over = Watched(psutil.Process(pid)), threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            seen.mb()

    script = [sys.executable, "-c", PROBE.format(port=port)]
    probe = subprocess.Popen(script, stdout=subprocess.PIPE, text=True)
    hear = lambda: seen.health.extend(map(float, probe.stdout or ()))  # noqa: E731
    threads = [threading.Thread(target=work) for work in (look, hear)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        over.set()
        probe.kill()
        probe.wait()
        for thread in threads:
            thread.join()
        if probe.stdout is not None:
            probe.stdout.close()
