"""A server in a process of its own, on a free port of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path


class Server:
    """A server process on a port of its own.

    Args:
        errors: a file for what it says on stderr; None: where this process says it.
    """

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
            self.process = subprocess.Popen(
                self.command, env=self.environment, stdout=subprocess.DEVNULL, stderr=errors
            )
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


@contextlib.contextmanager
def running(*command: str | Path, threads: int) -> Iterator[Server]:
    server = Server(*command, threads=threads)
    server.start()
    try:
        yield server
    finally:
        server.stop()
