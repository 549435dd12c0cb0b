"""Two writers, or a writer and readers, in one folder at once; see ``interrupt_tests.py``."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import glassformer as gf
from benchmarks.reliability.interrupt_tests import (
    JOBS,
    Argv,
    Job,
    command,
    digest,
    forked,
    home,
    litter,
    peaceful,
    quick,
    told,
    training,
)
from benchmarks.reliability.kill_tests import ended, scratch
from glassformer.tasks.run_folder import is_begun


def races(count: int, first: int = 0) -> list[dict]:
    """Two writers, or a writer and readers, in one folder."""
    quick()
    kinds = (fresh_fresh, resume_resume, fresh_resume, resume_evaluate, save_load)
    out = []
    for i in range(first, first + count):
        with scratch() as place:
            race = kinds[i % len(kinds)]
            problems = race(random.Random(i), place)
            out.append({"answer": race.__name__, "problems": problems, "passed": not problems})
    return out


def together(rng: random.Random, place: Path, *argvs: Argv) -> list[tuple[int, str, str]]:
    """Commands that run at the same time, each begun a little after the one before."""
    pids = []
    for i, argv in enumerate(argvs):
        pids.append(forked(argv, place / f"log{i}"))
        time.sleep(rng.choice([0, rng.uniform(0, 0.02), rng.uniform(0, 0.4)]))
    return [told(ended(pid), place / f"log{i}") for i, pid in enumerate(pids)]


def one_writer(results: list[tuple[int, str, str]], place: Path, kind: str) -> list[str]:
    """What is wrong with two trainings in one folder: both right, or one refused in one line, and the run whole."""
    problems = []
    for code, _, err in results:
        refused = code == 2 and err.count("\n") == 1 and (
            "is being written by process" in err or "the output folder exists" in err)  # fmt: skip
        problems += [f"exit code {code}: {err}"] * (code != 0 and not refused)
    problems += ["both refused"] * all(code != 0 for code, _, _ in results)
    problems += ["another result"] * (digest(place / "out") != peaceful(job_of(kind))[1])
    return problems + [f"litter: {x}" for x in litter(place / "out")]


@cache
def job_of(kind: str) -> Job:
    return next(job for job in JOBS if (job.verb, job.kind) == ("train", kind))


def fresh_fresh(rng: random.Random, place: Path) -> list[str]:
    kind = rng.choice(["text", "image", "word2vec"])
    argv = training(kind, place / "out")
    return one_writer(together(rng, place, argv, argv), place, kind)


def resume_resume(rng: random.Random, place: Path) -> list[str]:
    kind = rng.choice(["text", "image", "word2vec"])
    argv = training(kind, place / "out")
    while not (place / "out").is_dir() or not is_begun(place / "out"):
        pid = forked(argv, place / "log")
        time.sleep(rng.uniform(0.2, 0.9) * peaceful(job_of(kind))[0])
        os.kill(pid, signal.SIGKILL)
        ended(pid)
    argv = [*argv, "--resume"]
    return one_writer(together(rng, place, argv, argv), place, kind)


def fresh_resume(rng: random.Random, place: Path) -> list[str]:
    kind = rng.choice(["text", "image", "word2vec"])
    argv = training(kind, place / "out")
    both = [argv, [*argv, "--resume"]]
    rng.shuffle(both)
    return one_writer(together(rng, place, *both), place, kind)


def resume_evaluate(rng: random.Random, place: Path) -> list[str]:
    """A finished run that is judged and saved anew, while others read it."""
    kind = rng.choice(["text", "image"])
    shutil.copytree(home() / f"run-{kind}", place / "out")
    reads = ["evaluate", str(place / "out"), "--json"]
    said = command(reads, place / "log")[1]
    argv = [*training(kind, place / "out"), "--resume"]
    results = together(rng, place, argv, reads, reads, ["report", str(place / "out")], reads)
    problems = one_writer(results[:1], place, kind)
    for code, out, err in (results[1], results[2], results[4]):
        problems += [f"evaluate: {code}: {err}"] * (code != 0 or out != said)
    return problems + [f"report: {results[3][2]}"] * (results[3][0] != 0)


def save_load(rng: random.Random, place: Path) -> list[str]:
    """Two processes that save two models to one path again and again, and two that load them."""
    from glassformer.serve.limits import Limits
    from glassformer.serve.models import load_models

    clf, other = gf.load(home() / "run-text"), gf.load(home() / "run-text")
    other.temperature_ = 2.0
    for weights in other.model_.parameters():
        weights.data.mul_(-1.0)
    text = ["the film is splendid"]
    known = {round(float(one.predict_proba(text)[0, 0]), 9) for one in (clf, other)}
    path, stop = place / "model", place / "stop"
    clf.save(path)

    def save() -> int:
        for turn in range(25):
            (clf, other)[turn % 2].save(path, overwrite=True)
        return 0

    def read(load: Callable[[], Any]) -> Callable[[], int]:
        def work() -> int:
            turns = 0
            while not stop.exists() or turns == 0:
                if round(float(load().predict_proba(text)[0, 0]), 9) not in known:
                    return 3
                turns += 1
            return 0

        return work

    readers = [
        read(lambda: gf.load(path)),
        read(lambda: load_models([path], Limits(), precision="fp32")[0][0].clf),
    ]
    pids = [forked([], place / f"log{i}", work) for i, work in enumerate([save, save, *readers])]
    codes = [ended(pids[0]), ended(pids[1])]
    stop.touch()
    codes += [ended(pids[2]), ended(pids[3])]
    problems = [f"{['saver', 'saver', 'load', 'serve'][i]}: {code}: {told(code, place / f'log{i}')[2][-300:]}"
                for i, code in enumerate(codes) if code]  # fmt: skip
    return problems + [f"litter: {x}" for x in litter(place)]
