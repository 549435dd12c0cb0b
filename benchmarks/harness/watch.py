"""A server process under watch: its memory, and how long ``/health`` takes, asked by a process of its own."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

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

    probe = subprocess.Popen(
        [sys.executable, "-c", PROBE.format(port=port)], stdout=subprocess.PIPE, text=True
    )
    threads = [
        threading.Thread(target=look),
        threading.Thread(target=lambda: seen.health.extend(map(float, probe.stdout or ()))),
    ]
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
