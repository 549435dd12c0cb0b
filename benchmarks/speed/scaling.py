"""What a second process is worth on one machine: the same batches trained by one process and by two.

    python -m benchmarks.speed.scaling [--rounds 3] [--reviews 640]

Fine-tunes MiniLM on IMDb reviews with one thread a process, in turn: one process; two that know nothing of each other
(what the machine has to give when both cores work); two of one training with DDP; the same with FSDP2. Tokens per
second are read from each run's history, the first steps left out. Efficiency is the rate of two over twice that of one.
Writes results/scaling.json.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness.command import command
from benchmarks.harness.results import spread
from benchmarks.harness.rounds import in_turn

WARM = 4  # steps that are left out
KEYS = (
    "baselines=false", "bootstrap=0", "maps=0", "verbose=0", "threads=1", "epochs=1", "validation_fraction=0",
)  # fmt: skip
ARMS = {
    "one process": (1, 1, "auto"),
    "two trainings at once": (2, 1, "auto"),
    "two processes, DDP": (1, 2, "ddp"),
    "two processes, FSDP2": (1, 2, "fsdp"),
}  # trainings at once, processes of each, strategy


def begin(out: Path, processes: int, strategy: str, reviews: int) -> subprocess.Popen:
    """A training by so many processes."""
    program = [sys.executable, "-m"]
    if processes > 1:
        program += ["torch.distributed.run", "--nproc-per-node", str(processes), "--rdzv-backend", "c10d"]
        program += ["--rdzv-endpoint", "localhost:0", "-m"]
    command = [*program, "glassformer", "train", "imdb-minilm", "--out", str(out)]
    for key in (*KEYS, f"limit={reviews}", f"strategy={strategy}"):
        command += ["--set", key]
    environ = os.environ | {"OMP_NUM_THREADS": "1"}
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environ, text=True, **pipes)


def rate(out: Path) -> float:
    """Tokens per second over the steps of a run, without the first ones."""
    lines = (out / "history.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [r for r in map(json.loads, lines) if r["kind"] == "step"]
    counted = steps[WARM:]
    return sum(r["tokens"] for r in counted) / (counted[-1]["seconds"] - steps[WARM - 1]["seconds"])


def measure(name: str, home: Path, reviews: int) -> float:
    """Tokens per second of all of an arm's processes together; RuntimeError where a training failed."""
    trainings, processes, strategy = ARMS[name]
    outs = [home / f"run-{i}" for i in range(trainings)]
    begun = [begin(out, processes, strategy, reviews) for out in outs]
    for process in begun:
        _, said = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{name}: {said[-2000:]}")
    return sum(rate(out) for out in outs)


def summary(rates: dict[str, list[float]]) -> dict[str, dict]:
    """Median and range of each arm's rates, and of its efficiency inside each round."""
    alone = rates["one process"]
    arms = {}
    for name, found in rates.items():
        arms[name] = {"tokens_per_second": spread(found), "rounds": len(found)}
        if name != "one process":
            arms[name]["efficiency"] = spread([two / one / 2 for two, one in zip(found, alone, strict=True)])
    return arms


@command("a second process", out="scaling", rounds=3, reviews=640)
def main(options: Any) -> dict[str, Any]:
    def once(name: str) -> float:
        with tempfile.TemporaryDirectory() as home:
            rate = measure(name, Path(home), options.reviews)
        print(f"{name}: {rate:,.0f} tokens/s", flush=True)
        return rate

    def found(rates: dict[str, list[float]]) -> dict[str, Any]:
        return {"reviews": options.reviews, "arms": summary(rates)}

    names, keep = {name: name for name in ARMS}, lambda rates: options.write(found(rates))
    return found(in_turn(names, options.rounds, once, warm_up=False, after=keep))
