"""Load for a server, from many clients at once: python -m benchmarks.speed.load http://127.0.0.1:8000 --clients 32.

Each client keeps one connection and asks again as soon as it has its answer. Answers are counted by status and, where
the right ones are known, compared. The clients cost processor time too: on the same machine they
take it from the server.
"""

import asyncio
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from benchmarks.harness.options import parse


@dataclass
class Load:
    """What came of it; times in seconds."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)  # of answers with 200
    refused: list[float] = field(default_factory=list)  # of 429 and 503
    wrong: int = 0
    broken: int = 0  # connections that ended without an answer

    def summary(self) -> dict[str, Any]:
        """Rates and times as a result file has them."""

        def at(values: Sequence[float], share: float) -> float | None:
            ordered = sorted(values)
            place = min(len(ordered) - 1, int(share * len(ordered)))
            return round(1000 * ordered[place], 1) if ordered else None

        done = self.statuses[200]
        return {
            "requests_per_second": round(done / self.seconds, 1),
            "p50_ms": at(self.times, 0.5), "p99_ms": at(self.times, 0.99),
            "statuses": {str(k): n for k, n in sorted(self.statuses.items())},
            "refused_p99_ms": at(self.refused, 0.99), "wrong": self.wrong, "broken": self.broken,
        }  # fmt: skip


async def ask(line: Any, host: str, path: str, body: bytes | None, key: str = "") -> tuple[int, bytes, bool]:
    """One request on an open connection ``(reader, writer)``; status, body, and whether the server closes it."""
    reader, writer = line
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"Host: {host}"]
    lines += [f"Authorization: Bearer {key}"] if key else []
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    writer.write("\r\n".join([*lines, "", ""]).encode() + (body or b""))
    await writer.drain()
    answer = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(answer.split(b"content-length:")[1].split(b"\r\n")[0])
    status, closes = int(answer.split(b" ", 2)[1]), b"connection: close" in answer
    return status, await reader.readexactly(length), closes


async def press(
    url: str,
    bodies: Sequence[bytes],
    clients: int,
    *,
    seconds: float | None = None,
    requests: int | None = None,
    right: Callable[[int, bytes], bool] | None = None,
    path: str = "/v1/predict",
    key: str = "",
) -> Load:
    """Ask for some seconds, or some number of times, whichever ends first.

    ``bodies`` are taken in turn; ``right`` says whether the answer to body ``i`` is right.
    """
    where = urlsplit(url)
    host, port = where.hostname or "127.0.0.1", where.port or 80
    load, turn, started = Load(), 0, time.perf_counter()

    def goes_on() -> bool:
        in_time = seconds is None or time.perf_counter() - started < seconds
        return in_time and (requests is None or turn < requests)

    async def client() -> None:
        nonlocal turn
        line = None
        while goes_on():
            i, turn = turn % len(bodies), turn + 1
            try:
                line = line or await asyncio.open_connection(host, port)
                begin = time.perf_counter()
                status, answer, _ = await ask(line, f"{host}:{port}", path, bodies[i], key)
            except (OSError, asyncio.IncompleteReadError, IndexError):
                load.broken += 1
                line = None
                continue
            took = time.perf_counter() - begin
            load.statuses[status] += 1
            if status == 200:
                load.times.append(took)
                load.wrong += right is not None and not right(i, answer)
            elif status in (429, 503):
                load.refused.append(took)
                await asyncio.sleep(0.02)
        if line is not None:
            line[1].close()

    await asyncio.gather(*(client() for _ in range(clients)))
    load.seconds = time.perf_counter() - started
    return load


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(
        __doc__,
        ("url", "of the server, such as http://127.0.0.1:8000"),
        argv=arguments,
        clients=32,
        seconds=10.0,
        text=dict(action="append", help="what to ask; several times"),
        words=(60, "of made-up texts, 1 to twice this many"),
        key=("", "the server's API key"),
    )
    texts = options.text or [" ".join(["film"] * n) for n in range(1, 2 * options.words, 7)]
    bodies = [json.dumps({"texts": [text]}).encode() for text in texts]
    load = asyncio.run(press(options.url, bodies, options.clients, seconds=options.seconds, key=options.key))
    print(json.dumps(load.summary(), indent=2))
    failed = load.broken + sum(n for status, n in load.statuses.items() if status >= 500 and status != 503)
    mean = f"{statistics.fmean(load.times) * 1000:.1f} ms on average" if load.times else "no answer"
    print(mean, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
