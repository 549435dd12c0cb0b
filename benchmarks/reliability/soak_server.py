"""A server that runs for long: requests of all kinds, hostile ones among them, and its memory at each tenth of them.

    python -m benchmarks.reliability.soak_server 3000       so many requests, and what was seen at each tenth
    python -m benchmarks.reliability.reliability soak_server

Every good answer is compared with the offline one: labels and explanations with those of the saved model in this
process, within 1e-5; the page and the list of models with what they were at first.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import glassformer as gf
from benchmarks.harness.processes import scratch
from benchmarks.harness.servers import Server, Watched, watched
from benchmarks.reliability.hostile_kinds import Hostile, requests
from benchmarks.reliability.hostile_pictures import encoded
from benchmarks.reliability.hostile_requests import (
    MOST_SECONDS,
    OVERLOAD,
    WORDS,
    attack,
    good_requests,
    judge,
    judge_stderr,
    models,
    served,
)
from benchmarks.speed.load import ask

CLIENTS = 16
HOSTILE = 200  # one request in so many; more of them in the first tenth, which sees each once if it can
TENTHS = 10  # the first warms up: what is made once is made, and memory that will be asked for again stays
MOST_GROWTH = 0.05
MOST_REFUSED = 0.02  # of good requests, for load

Right = Callable[[int, bytes], bool]


@dataclass(frozen=True)
class Asked:
    """A request, and whether an answer to it is right."""

    name: str
    path: str
    body: bytes | None
    right: Right


@dataclass
class Seen:
    """What came of all requests."""

    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    refused: int = 0
    hostile: int = 0


def refused_with(*statuses: int) -> Right:
    keys = {"code", "what", "where", "fix"}
    return lambda status, body: status in statuses and json.loads(body)["error"].keys() == keys


def explanation(clf: Any, text: str, method: str) -> Right:
    """Whether words and scores are those of the saved model."""
    words, values = zip(*clf.explain(text, method=method).words(), strict=True)

    def right(status: int, body: bytes) -> bool:
        found = [p for p in json.loads(body).get("pieces", ()) if p["score"] is not None]
        same = status == 200 and tuple(p["text"] for p in found) == words
        return same and all(abs(p["score"] - value) <= 1e-5 for p, value in zip(found, values))

    return right


def probabilities(wanted: np.ndarray) -> Right:
    """Whether the shares are those of the saved model."""

    def right(status: int, body: bytes) -> bool:
        found = [list(p["probabilities"].values()) for p in json.loads(body).get("predictions", ())]
        alike = status == 200 and np.shape(found) == wanted.shape
        return alike and bool(np.abs(np.array(found) - wanted).max() <= 1e-5)

    return right


def of_pictures(clf: Any, count: int) -> Iterator[Asked]:
    """Requests of one to 16 pictures."""
    rng = np.random.default_rng(5)
    for _ in range(count):
        pixels = rng.integers(0, 256, (int(np.exp(rng.uniform(0, 2.8))), 12, 12, 3), np.uint8)
        sent = [base64.b64encode(encoded(Image.fromarray(one), "PNG")).decode() for one in pixels]
        body = json.dumps({"images": sent}).encode()
        yield Asked("pictures", "/v1/predict", body, probabilities(clf.predict_proba(pixels)))


def kinds(folders: list[Path], first: dict[str, bytes]) -> list[tuple[int, list[Asked]]]:
    """Of each kind how many in a hundred, and the requests that are sent in turn.

    ``first``: what was answered at first to what is always answered alike.
    """
    good, texts, pictures = good_requests(folders[0], 200), gf.load(folders[0]), gf.load(folders[1])
    texts.precision = pictures.precision = "fp32"

    def labels(i: int) -> Asked:
        return Asked("texts", "/v1/predict", good.body(i), lambda status, body: good.right(i, status, body))

    def same(name: str, path: str) -> Asked:
        return Asked(name, path, None, lambda status, body: status == 200 and body == first[path])

    rng = random.Random(3)
    explained = []
    for i in range(24):
        text = " ".join(rng.choices(WORDS, k=1 + i))
        method = ("rollout", "gradient_x_input", "occlusion")[i % 3]
        body = json.dumps({"text": text, "method": method}).encode()
        explained.append(Asked("explain", "/v1/explain", body, explanation(texts, text, method)))
    wrong = [
        Asked("wrong", "/v1/predict", b'{"texts": [7]}', refused_with(422)),
        Asked("wrong", "/v1/predict", b'{"texts": ["a"], "model": "none"}', refused_with(404)),
        Asked("wrong", "/v1/predict", b'{"texts": [', refused_with(422)),
        Asked("wrong", "/v1/predict", json.dumps({"texts": ["a"] * 65}).encode(), refused_with(413)),
        Asked("wrong", "/v1/explain", b'{"text": "a", "method": "magic"}', refused_with(422)),
        Asked("wrong", "/nowhere", None, refused_with(404)),
        Asked("wrong", "/v1/predict", None, refused_with(405)),
        Asked("wrong", "/v1/predict", b'{"images": ["***"]}', refused_with(422)),
    ]

    def measured(status: int, body: bytes) -> bool:
        return status == 200 and body.startswith(b"# HELP")

    return [
        (52, [labels(i) for i in range(len(good.texts))]),
        (6, list(of_pictures(pictures, 60))),
        (4, explained),
        (10, wrong),
        (12, [same("health", "/health")]),
        (6, [same("models", "/v1/models")]),
        (2, [Asked("metrics", "/metrics", None, measured)]),
        (8, [same("page", path) for path in ("/", "/static/page.js", "/static/page.css")]),
    ]


class Line:
    """A connection that is kept, and made again after the server has closed it."""

    def __init__(self, port: int):
        self.port, self.streams = port, None

    async def ask(self, path: str, body: bytes | None) -> tuple[int, bytes]:
        self.streams = self.streams or await asyncio.open_connection("127.0.0.1", self.port)
        status, answer, closes = await ask(self.streams, "localhost", path, body)
        if closes:
            self.close()
        return status, answer

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
        self.streams = None


async def press(
    port: int, asked: Iterator[Asked], hostile: Iterator[Hostile], count: int, every: int, seen: Seen
) -> None:
    """``count`` requests from all clients together, one in ``every`` hostile."""
    left = count

    async def client() -> None:
        nonlocal left
        line = Line(port)
        while left > 0:
            left -= 1
            if left % every == every // 2:
                one = next(hostile)
                passed, status = judge(one, await asyncio.to_thread(attack, port, one))
                seen.hostile += 1
                seen.answers[f"hostile: {status}"] += 1
                if not passed:
                    seen.wrong.append(f"{one.kind}, {one.name}: {status}")
                continue
            request = next(asked)
            try:
                status, body = await asyncio.wait_for(line.ask(request.path, request.body), 60)
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                line.close()
                seen.wrong.append(f"{request.name}: {type(error).__name__}")
                continue
            seen.answers[f"{request.name}: {status}"] += 1
            if status in (429, 503) and request.name != "wrong":
                what = json.loads(body)["error"]["what"]
                seen.refused += 1
                if status == 503 and not what.startswith(OVERLOAD):
                    seen.wrong.append(f"{request.name}: {what}")
            elif not request.right(status, body):
                seen.wrong.append(f"{request.name}: {status} {body[:99]!r}")
        line.close()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))


def in_turn(of_kinds: list[tuple[int, list[Asked]]]) -> Iterator[Asked]:
    """For ever a random kind, and of it the next request."""
    rng, turns = random.Random(7), [itertools.cycle(asked) for _, asked in of_kinds]
    while True:
        yield next(rng.choices(turns, [share for share, _ in of_kinds])[0])


def shuffled() -> Iterator[Hostile]:
    """For ever all hostile requests, each time in another order; each is made when it is sent."""
    number, rng = sum(1 for _ in requests()), random.Random(11)
    while True:
        order = list(range(number))
        rng.shuffle(order)
        for at in range(0, number, 50):
            wanted = set(order[at : at + 50])
            yield from (one for i, one in enumerate(requests()) if i in wanted)


def tenths(
    count: int, home: Path, server: Server, folders: list[Path]
) -> Generator[tuple[Seen, Watched, float], None, None]:
    """What was seen after each tenth of the requests, and the memory then, in MB."""
    line, first = Line(server.port), {}

    async def ask_first() -> None:
        for path in ("/", "/static/page.js", "/static/page.css", "/health", "/v1/models"):
            first[path] = (await line.ask(path, None))[1]
        line.close()

    asyncio.run(ask_first())
    asked, hostile, seen = in_turn(kinds(folders, first)), shuffled(), Seen()
    with watched(server.process.pid, server.port) as health:
        number = sum(1 for _ in requests())
        for part in range(TENTHS):
            every = HOSTILE if part else min(HOSTILE, max(2, count // TENTHS // number))
            asyncio.run(press(server.port, asked, hostile, count // TENTHS, every, seen))
            yield seen, health, health.mb()


def soak_server(count: int, told: Callable[[str], None] = lambda line: None) -> list[dict[str, Any]]:
    """A test for each tenth behind the first, of memory; and of answers, refusals, ``/health`` and stderr."""
    out: list[dict[str, Any]] = []
    with scratch() as home:
        folders = models(home)
        server, started, first = served(home, folders), time.perf_counter(), 0.0
        server.start()
        try:
            with contextlib.closing(tenths(count, home, server, folders)) as parts:
                for i, (seen, health, mb) in enumerate(parts, 1):
                    first = first or mb
                    growth = mb / first - 1
                    told(
                        f"{i * count // TENTHS:,}: {mb:.0f} MB, {growth:+.1%}; {len(seen.wrong)} wrong,"
                        f" {seen.refused} refused, {seen.hostile} hostile, /health {max(health.health):.2f} s,"
                        f" {time.perf_counter() - started:.0f} s"
                    )
                    if i > 1:
                        about = {
                            "name": f"memory at {i}/{TENTHS}",
                            "mb": round(mb, 1),
                            "growth": round(growth, 4),
                        }
                        out.append(about | {"answer": f"{growth:+.1%}", "passed": growth <= MOST_GROWTH})
        finally:
            server.stop()
        said = (home / "stderr").read_text(encoding="utf-8", errors="replace")
    told(str(dict(sorted(seen.answers.items()))))
    total, slowest = sum(seen.answers.values()), max(health.health)
    few = seen.refused <= MOST_REFUSED * total
    told_all = {"name": "answers", "answer": f"{total:,} answers", "passed": not seen.wrong}
    return [
        *out,
        told_all | {"wrong": seen.wrong[:9]},
        {"name": "refused for load", "answer": f"{seen.refused} refused for load", "passed": few},
        {"name": "/health", "answer": f"/health within {slowest:.2f} s", "passed": slowest <= MOST_SECONDS},
        {"name": "stderr", **judge_stderr(said)},
    ]


if __name__ == "__main__":
    soak_server(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, lambda line: print(line, flush=True))
