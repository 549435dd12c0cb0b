"""A training of very many steps: its memory after a tenth of them, and at every tenth from there on."""

import gc
import io
from pathlib import Path
from typing import Any

import psutil

import glassformer as gf
from benchmarks.harness.processes import ended, forked, scratch
from benchmarks.reliability.kill_tests import NOISY, SIZES, texts
from glassformer.train.callbacks import Callback, HistoryFile, Progress

MOST_GROWTH = 0.05
BATCH, TEXTS = 4, 640


class Memory(Callback):
    """The resident size of the process at every tenth of the steps."""

    def __init__(self, steps: int, path: Path):
        self.every, self.path = steps // 10, path
        self.process = psutil.Process()

    def step(self, training: Any, info: Any) -> None:
        if info.step % self.every == 0 and info.step <= 10 * self.every:
            gc.collect()
            with self.path.open("a") as file:
                file.write(f"{info.step} {self.process.memory_info().rss}\n")


def train(steps: int, home: Path) -> None:
    """A tiny classifier with dropout, evaluations, checkpoints, a history file and progress for no terminal."""
    progress = Progress(io.StringIO())
    clf = gf.TextClassifier(
        "encoder-mini", epochs=-(-steps * BATCH // TEXTS), batch_size=BATCH, batch_tokens=0, min_count=1,
        **{**NOISY, **SIZES, "evaluate_every": 1_000, "checkpoint_every": max(1, steps // 25)},
    )  # fmt: skip
    calls = [HistoryFile(home / "history.jsonl"), progress, Memory(steps, home / "memory")]
    clf.fit(*texts(TEXTS), validation=texts(29, 2), checkpoints=home / "checkpoints", callbacks=calls)


def memory(steps: int) -> list[dict]:
    """The memory at each further tenth of ``steps`` beside that at the first: at most 5 % more."""
    with scratch() as home:
        if code := ended(forked(lambda: train(steps, home))):
            raise RuntimeError(f"the training ended with code {code}")
        lines = [line.split() for line in (home / "memory").read_text().splitlines()]
        assert sum(1 for _ in (home / "history.jsonl").open()) >= steps
    sizes = {int(step): int(size) for step, size in lines}
    first = sizes[steps // 10]
    found = []
    for step, size in sizes.items():
        if step > steps // 10:
            growth = size / first - 1
            about = {"step": step, "mb": round(size / 1e6, 1), "growth": round(growth, 4)}
            found.append(about | {"answer": f"{growth:+.1%}", "passed": growth <= MOST_GROWTH})
    return found
