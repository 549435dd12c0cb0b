"""The server under load: speed beside a Hugging Face pipeline, right answers, refusals, restarts.

    speed      it and a FastAPI server around a pipeline serve one classifier (MiniLM with BERT's pooler, fitted to a
               few reviews), one text a request; loaded in turn, one window each a round, compared round by round
    answers    1, 8, 64 and 256 clients, texts of mixed lengths, every answer compared with predict_proba
    overload   a queue that holds a few texts, 64 clients: what is refused, and how fast
    restarts   kill -9 under load, start again, time until /ready and the first right answer
    soak       many requests, and the server's memory before and after

Each part can be run alone and is kept in the result file beside the others: --parts speed soak.
"""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from benchmarks.harness.command import command
from benchmarks.harness.results import environment, kept, spread, write_result
from benchmarks.harness.servers import Server, running, serving
from benchmarks.speed.load import Load, press
from glassformer.data.sources import load_text_dataset

MODEL, MAX_LENGTH = "all-minilm-l6-v2", 256
HERE = Path(__file__).parent


def ours(folder: Path, threads: int, *options: str, python: str = sys.executable) -> list[str | Path]:
    return serving([folder], "--threads", str(threads), *options, python=python)


def packages_of(python: str) -> list[str]:
    """What is installed there: scikit-learn loads pandas where it is, which costs a start a second."""
    script = "from importlib.metadata import distributions as d; print(*sorted({x.name for x in d()}))"
    return subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout.split()


def theirs(folder: Path) -> list[str | Path]:
    return [sys.executable, HERE / "serve_peer.py", folder, "PORT", str(MAX_LENGTH)]


class Reviews:
    """Requests of one review each, and whether an answer is right."""

    def __init__(self, folder: Path, texts: Sequence[str], precision: str, tolerance: float):
        from glassformer.tasks.load import load

        clf = load(folder)
        clf.precision = precision
        self.shares = clf.predict_proba(texts)
        self.classes, self.tolerance = [str(c) for c in clf.classes_], tolerance
        self.bodies = [json.dumps({"texts": [text]}).encode() for text in texts]

    def right(self, i: int, answer: bytes) -> bool:
        found = json.loads(answer)["predictions"][0]
        row = np.array([found["probabilities"][name] for name in self.classes])
        ordered = np.sort(self.shares[i])
        sure = ordered[-1] - ordered[-2] > 2 * self.tolerance
        same = int(row.argmax()) == int(self.shares[i].argmax())
        return bool(np.abs(row - self.shares[i]).max() <= self.tolerance and (same or not sure))


def mixed(texts: Sequence[str], count: int, seed: int) -> list[str]:
    """The beginnings of reviews, from three words to all of them."""
    rng = np.random.default_rng(seed)
    rows = [texts[i].split() for i in rng.integers(0, len(texts), count)]
    return [" ".join(row[: int(np.exp(rng.uniform(1, np.log(len(row) + 3))))]) for row in rows]


def load_of(server: Server, reviews: Reviews, clients: int, **options: Any) -> Load:
    return asyncio.run(press(server.url, reviews.bodies, clients, right=reviews.right, **options))


def speed(folder: Path, texts: Sequence[str], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    reviews = Reviews(folder, texts[:256], "fp32", 0.05)
    with (
        running(*ours(folder, options.threads), threads=options.threads) as us,
        running(*theirs(folder), threads=options.threads) as peer,
    ):
        servers = {"glassformer": us, "FastAPI + pipeline": peer}
        rounds: list[dict[str, Any]] = []
        done: dict[str, Any] = {"window_seconds": options.window, "rounds": rounds}
        peer.pause(True)
        for turn in range(-1, options.rounds):
            found = {}
            for name, server in servers.items():
                server.pause(False)
                window = options.window if turn >= 0 else 2
                loads = {n: load_of(server, reviews, n, seconds=window).summary() for n in (8, 32)}
                found[name] = loads
                server.pause(True)
            if turn < 0:
                continue
            rounds.append(found)
            rates = {name: [r[name][32]["requests_per_second"] for r in rounds] for name in servers}
            tails = [r["glassformer"][8]["p99_ms"] / r["glassformer"][8]["p50_ms"] for r in rounds]
            yield done | {
                "requests_per_second_32_clients": {name: spread(values) for name, values in rates.items()},
                "times_the_peer": spread([a / b for a, b in zip(*rates.values(), strict=True)]),
                "p99_over_p50_8_clients": spread(tails),
            }
        for server in servers.values():
            server.pause(False)


def answers(folder: Path, texts: Sequence[str], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    out = {}
    for precision, tolerance in (("fp32", 1e-5), ("auto", 2e-2)):
        reviews = Reviews(folder, mixed(texts, 200, options.seed), "fp32", tolerance)
        serve = ours(folder, options.threads, "--precision", precision)
        with running(*serve, threads=options.threads) as server:
            for clients in (1, 8, 64, 256):
                count = min(options.requests, 100 * clients)
                load = load_of(server, reviews, clients, requests=count)
                out[f"{precision}, {clients} clients"] = load.summary()
                yield out


def overload(folder: Path, texts: Sequence[str], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    reviews = Reviews(folder, texts[:64], "fp32", 2e-2)
    serve = ours(folder, options.threads, "--queue-tokens", "2000")
    with running(*serve, threads=options.threads) as server:
        yield load_of(server, reviews, 64, seconds=options.window).summary()


def restarts(folder: Path, texts: Sequence[str], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    reviews = Reviews(folder, texts[:16], "fp32", 2e-2)
    command, packages = ours(folder, options.threads, python=options.python), packages_of(options.python)
    server, seconds, wrong = Server(*command, threads=options.threads), [], 0
    server.start()
    for _ in range(options.kills):
        load_of(server, reviews, 4, seconds=0.3)
        server.stop(signal.SIGKILL)
        seconds.append(server.start())
        after = load_of(server, reviews, 1, requests=2)
        wrong += after.wrong + after.broken
        found = {"kills": len(seconds), "seconds_to_ready": spread(seconds), "wrong_or_broken_after": wrong}
        yield found | {"packages": len(packages), "with_pandas": "pandas" in packages}
    server.stop()


def soak(folder: Path, texts: Sequence[str], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    reviews = Reviews(folder, mixed(texts, 2000, options.seed), "fp32", 2e-2)
    with running(*ours(folder, options.threads), threads=options.threads) as server:
        process, memory, done = psutil.Process(server.process.pid), [], Load()
        for part in range(options.parts_of_soak + 1):  # the first warms up: allocators and caches fill
            load = load_of(server, reviews, 16, requests=options.soak // options.parts_of_soak)
            memory.append(round(process.memory_info().rss / 2**20, 1))
            if part:
                done.statuses += load.statuses
                done.wrong, done.broken = done.wrong + load.wrong, done.broken + load.broken
                done.times += load.times
                done.seconds += load.seconds
                growth = memory[-1] / memory[0] - 1
                yield {**done.summary(), "memory_mib": list(memory), "growth": round(growth, 4)}


PARTS = {part.__name__: part for part in (speed, answers, overload, restarts, soak)}


@command(
    "glassformer serve",
    out="serve",
    parts=dict(choices=PARTS, nargs="+", default=list(PARTS)),
    rounds=(5, "of speed"),
    window=(10.0, "seconds of load"),
    requests=(4000, "of answers, at most, for each number of clients"),
    kills=20,
    python=(sys.executable, "of an environment with glassformer[serve], for restarts"),
    soak=(100000, "requests"),
    parts_of_soak=10,
    model=(Path, "a saved text classifier; speed needs the Hub's layout"),
    threads=torch.get_num_threads(),
    training=(512, "reviews to fit the classifier to"),
    seed=0,
)
def main(options: Any) -> None:
    split = load_text_dataset("imdb", limit=512, seed=options.seed, splits=["train"]).splits["train"]
    with tempfile.TemporaryDirectory() as scratch:
        folder, name = options.model, f"MiniLM, fitted to {options.training} reviews"
        if folder is None:
            from glassformer.tasks.text_classification.estimator import TextClassifier

            fit = {"max_length": MAX_LENGTH, "epochs": 1, "seed": options.seed, "threads": options.threads}
            chosen = slice(0, None, max(1, len(split.texts) // options.training))
            clf = TextClassifier(MODEL, **fit).fit(split.texts[chosen], (split.labels or [])[chosen])
            folder = clf.save(Path(scratch) / "labels")
        else:
            name = folder.name
        for part in options.parts:
            facts, old = environment("transformers", "fastapi", "uvicorn"), kept(options.out)
            for found in PARTS[part](folder, split.texts, options):  # kept as it comes: a stop loses little
                entry = {**facts, "model": name, "threads": options.threads, **found}
                write_result(options.out, {"benchmark": "glassformer serve", **old, part: entry})
                print(part, json.dumps({k: v for k, v in found.items() if k != "rounds"}), flush=True)
