"""Hostile requests against a real server with default limits: refused, each of them, and nobody else notices.

    python -m benchmarks.reliability.reliability hostile_requests        all of them; --count 60: about sixty

A request passes if it is answered 4xx in the server's own form of an error, or 503 where that says overload, or, where
HTTP asks for no better, its connection is closed. Good requests go in between and must be answered as ``predict_proba``
does. The last tests are of the whole: ``/health`` within a second, memory, no traceback on stderr.
"""

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import glassformer as gf
from benchmarks.harness.processes import scratch
from benchmarks.harness.servers import Server, Watched, serving, watched
from benchmarks.reliability.hostile_kinds import Hostile, requests

MOST_SECONDS = 1.0  # of /health
MOST_MB = 300.0
MOST_WORDS = 100_000  # bytes on stderr: libtiff says there what it does not like
AT_ONCE = 4
EVERY = 5  # hostile requests between two good ones
PATIENCE = 25.0  # seconds for an answer; a slow body gets its 408 after ten
OVERLOAD = ("too much is being sent at once", "no answer within", "no explanation within")
WORDS = "a warm and wise film that is dull , number of many".split()


@dataclass
class Good:
    """Requests whose right answers are known."""

    texts: list[list[str]]
    shares: list[np.ndarray]
    labels: list[str]

    def body(self, i: int) -> bytes:
        return json.dumps({"texts": self.texts[i % len(self.texts)]}).encode()

    def right(self, i: int, status: int, answer: bytes) -> bool:
        if status != 200:
            return False
        found = json.loads(answer)["predictions"]
        rows = [[one["probabilities"][label] for label in self.labels] for one in found]
        wanted = self.shares[i % len(self.shares)]
        return np.shape(rows) == wanted.shape and bool(np.abs(np.array(rows) - wanted).max() <= 1e-5)


def models(home: Path) -> list[Path]:
    """Tiny classifiers of texts and of pictures, saved."""
    sizes: dict[str, Any] = {"d_model": 14, "num_heads": 2, "d_ff": 22, "num_layers": 2}
    small = sizes | {"epochs": 1, "precision": "fp32", "threads": 1}
    films = [f"a {('warm and wise', 'dull')[i % 2]} film , number {i} of many" for i in range(40)]
    texts = gf.TextClassifier("encoder-mini", max_length=61, min_count=1, **small)
    pictures = gf.ImageClassifier("vit-tiny", image_size=12, patch_size=4, **small)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 12, 12, 3), np.uint8)
    texts.fit(films, ["good", "bad"] * 20)
    pictures.fit(pixels, ["x", "y"] * 10)
    return [texts.save(home / "films"), pictures.save(home / "pictures")]


def good_requests(folder: Path, count: int = 40) -> Good:
    """Of one to 64 texts of mixed lengths, and what the saved model says of them offline."""
    clf, rng = gf.load(folder), np.random.default_rng(1)
    clf.precision = "fp32"

    def text() -> str:
        return " ".join(rng.choice(WORDS, int(np.exp(rng.uniform(0, 5)))))

    texts = [[text() for _ in range(int(np.exp(rng.uniform(0, 4.16))))] for _ in range(count)]
    return Good(texts, [clf.predict_proba(one) for one in texts], [str(label) for label in clf.classes_])


def served(home: Path, folders: Sequence[Path], *options: str) -> Server:
    """The command as a user starts it; what it says on stderr goes to a file."""
    command = serving(folders, "--threads", "1", "--precision", "fp32", *options)
    return Server(*command, threads=1, errors=home / "stderr")


def read_answer(line: socket.socket) -> bytes:
    """All that comes until one answer is whole or the connection is closed."""
    found = b""
    while True:
        head, ended, rest = found.partition(b"\r\n\r\n")
        if head.startswith(b"HTTP/1.1 100") and ended:
            found = rest
            continue
        if ended:
            lines = [line.partition(b":") for line in head.lower().split(b"\r\n")]
            sizes = [value for name, _, value in lines if name == b"content-length"]
            if sizes and len(rest) >= int(sizes[0]):
                return found
        try:
            data = line.recv(65536)
        except TimeoutError:
            return found or b"no answer"
        except OSError:
            return found
        if not data:
            return found
        found += data


def attack(port: int, hostile: Hostile) -> bytes:
    """What comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as line:
        with contextlib.suppress(OSError):  # refused before all was sent
            for part in hostile.parts:
                line.sendall(part)
                time.sleep(hostile.pause)
        if hostile.leaves is not None:
            time.sleep(hostile.leaves)
            return b""
        return read_answer(line)


def judge(hostile: Hostile, answer: bytes) -> tuple[bool, str]:
    """Whether it passes, and the status."""
    if not answer:
        return hostile.closed or hostile.leaves is not None, "closed"
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head[9:12].decode("latin-1") if head.startswith(b"HTTP/1.1 ") else "no HTTP"
    if status == "200" and hostile.answered:
        return True, status
    try:
        error = json.loads(body)["error"]
        whole = error.keys() == {"code", "what", "where", "fix"} and isinstance(error["what"], str)
    except (ValueError, KeyError, TypeError, AttributeError):
        error, whole = {"what": ""}, not body  # HEAD has none
    refused = status[0] == "4" or (status == "503" and str(error["what"]).startswith(OVERLOAD))
    return refused and whole, status


def ask_good(line: http.client.HTTPConnection, good: Good, i: int) -> bool:
    """Whether a good request is answered right, on a connection that is kept."""
    line.request("POST", "/v1/predict", good.body(i), {"Content-Type": "application/json"})
    answer = line.getresponse()
    return good.right(i, answer.status, answer.read())


def send_all(port: int, all_of_them: Iterator[Hostile], good: Good) -> list[dict[str, Any]]:
    """Each hostile request, a few at once, and the good ones in between."""
    out: list[dict[str, Any]] = []
    lock, sent = threading.Lock(), 0

    def work(hostile: Hostile) -> None:
        nonlocal sent
        started = time.monotonic()
        passed, status = judge(hostile, attack(port, hostile))
        out.append({
            "kind": hostile.kind, "name": hostile.name, "answer": status, "passed": passed,
            "seconds": round(time.monotonic() - started, 2),
        })  # fmt: skip
        with lock:
            sent += 1
            i = sent
        if i % EVERY == 0:
            line = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            right = ask_good(line, good, i)
            line.close()
            told = "200, right" if right else "wrong"
            out.append({"kind": "good", "name": f"{i}", "answer": told, "passed": right})

    slots = threading.Semaphore(2 * AT_ONCE)  # no more are made than are sent: some have 8 MB
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waiting = []
        for hostile in all_of_them:
            slots.acquire()
            done = pool.submit(work, hostile)
            done.add_done_callback(lambda _: slots.release())
            waiting.append(done)
        for done in waiting:
            done.result()
    return out


def judge_stderr(said: str) -> dict[str, Any]:
    """No traceback, and no more than a decoder's few words about pictures."""
    passed = "Traceback" not in said and len(said) <= MOST_WORDS
    answer = "words on stderr" if said else "a silent stderr"
    return {"passed": passed, "answer": answer, "said": said[-2000:]}


def of_the_whole(seen: Watched, before: float, errors: Path) -> list[dict[str, Any]]:
    """The tests that are not of one request."""
    slowest, more = max(seen.health, default=float("inf")), seen.most_mb - before
    said = errors.read_text(encoding="utf-8", errors="replace")
    return [
        {"kind": "whole", "name": "/health", "passed": slowest <= MOST_SECONDS, "seconds": round(slowest, 3),
         "answer": f"/health within {slowest:.2f} s"},
        {"kind": "whole", "name": "memory", "passed": more <= MOST_MB, "answer": f"memory +{more:.0f} MB"},
        {"kind": "whole", "name": "stderr", **judge_stderr(said)},
    ]  # fmt: skip


def hostile_requests(count: int = 0) -> list[dict[str, Any]]:
    """All of them, or about ``count``, and the tests of the whole."""
    with scratch() as home:
        folders = models(home)
        good, server = good_requests(folders[0]), served(home, folders)
        server.start()
        try:
            line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
            for i in range(len(good.texts)):  # what is made once is made
                assert ask_good(line, good, i)
            line.close()
            with watched(server.process.pid, server.port) as seen:
                before = seen.mb()
                out = send_all(server.port, requests(count), good)
                out += of_the_whole(seen, before, home / "stderr")
        finally:
            server.stop()
    return out
