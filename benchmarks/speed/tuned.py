"""What ``gf.tune_process()`` is worth: training and prediction of a small encoder with it and without.

    .venv/bin/python -m benchmarks.speed.tuned [--rounds 7] [--texts 600] [--threads 2] [--busy 2]

Training steps of the package's own loop and prediction from texts to probabilities, each in a process as
Python starts it and in a tuned one, take turns. Texts are made up: words drawn from 5,000, a few to a few
hundred of them. All rounds are run twice, on the machine as it is and beside ``--busy`` processes that
compute without end.
"""

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness.command import command
from benchmarks.harness.options import count
from benchmarks.harness.processes import peak_mb
from benchmarks.harness.rounds import Contender, Window, in_own_process, ratios, said, steps_of, take_turns
from glassformer.process import SETTINGS, tune_process

WORKS = ("training", "prediction")
SIZES: dict[str, Any] = {"d_model": 128, "num_layers": 2, "num_heads": 4, "d_ff": 512}
MODEL = SIZES | {"max_length": 256, "min_count": 1}


@dataclass(frozen=True)
class Measured(Window):
    """A window, and the largest memory that its process has had so far."""

    peak_mb: float = 0.0


def made_up(number: int, seed: int = 0) -> tuple[list[str], list[int]]:
    """So many texts of 5 to 250 words, and a class for each."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(np.exp(rng.normal(4.0, 0.8, number)), 5, 250).astype(int)
    texts = [" ".join(f"word{w}" for w in rng.integers(0, 5_000, length)) for length in lengths]
    return texts, (np.arange(number) % 2).tolist()


def make(work: str, tuned: bool, number: int, threads: int) -> Contender:
    """One of the two works. The settings of the environment were there before this process began."""
    if tuned:
        tune_process()
    import glassformer as gf

    texts, labels = made_up(number)
    settings: dict[str, Any] = MODEL | {"batch_size": 16, "lr": 1e-3, "precision": "fp32", "threads": threads}

    def train(turn: int) -> Window:
        clf = gf.TextClassifier("encoder-mini", epochs=1, seed=turn + 1, **settings).fit(texts, labels)
        return Measured(number, *steps_of(clf.history_), peak_mb())

    classifier: list[Any] = []

    def predict(turn: int) -> Window:
        if not classifier:
            few: dict[str, Any] = settings | {"vocab_size": 5_000}
            classifier.append(gf.TextClassifier("encoder-mini", epochs=1, seed=1, **few).fit(texts, labels))
        clf = classifier[0]
        tokens = int(clf.encode(texts).lengths.sum())
        started = time.perf_counter()
        sure = float(clf.predict_proba(texts).max(1).mean())
        return Measured(number, tokens, time.perf_counter() - started, sure, peak_mb())

    name = f"{work}, {'tuned' if tuned else 'as Python starts it'}"
    about = {"work": work, "tuned": tuned, "texts": number, "threads": threads, **MODEL}
    return Contender(name, about, train if work == "training" else predict, noun="texts")


def begun(work: str, tuned: bool, given: argparse.Namespace) -> Contender:
    """The contender in a process that begins with the environment of its kind."""
    before = dict(os.environ)
    for name in SETTINGS:
        os.environ.pop(name, None)
    if tuned:
        os.environ.update(SETTINGS)
    try:
        return in_own_process(make, work, tuned, given.texts, given.threads)
    finally:
        os.environ.clear()
        os.environ.update(before)


def compute_without_end() -> None:
    while True:
        sum(range(10_000))


@contextmanager
def busy(number: int) -> Iterator[None]:
    """So many other processes at work."""
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=compute_without_end, daemon=True) for _ in range(number)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.terminate()


def measured(given: argparse.Namespace, others: int) -> dict[str, Any]:
    """All rounds beside so many other processes."""
    pairs = {work: [begun(work, tuned, given) for tuned in (True, False)] for work in WORKS}
    contenders = [contender for pair in pairs.values() for contender in pair]
    with busy(others):
        take_turns(contenders, given.rounds)
    gains = {work: ratios(ours, other) for work, (ours, other) in pairs.items()}
    for work, gain in gains.items():
        print(f"{work} beside {others}: {said(gain)}")
    return {"busy": others, "gain": gains, "contenders": [c.summary() for c in contenders]}


@command(
    "what tuning the process gains",
    out="tuned",
    packages=("scikit-learn",),
    rounds=dict(type=count, default=7),
    texts=dict(type=count, default=600),
    threads=dict(type=count, default=2),
    busy=dict(type=count, default=2, help="other processes of the second part"),
)
def main(options: Any) -> dict[str, Any]:
    parts = (("alone", 0), ("beside", options.busy))
    return {"rounds": options.rounds} | {name: measured(options, others) for name, others in parts}
