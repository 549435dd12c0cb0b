"""One command from start to report, before the work on speed and now: ``glassformer train imdb-minilm``.

    .venv/bin/python -m benchmarks.speed.end_to_end [--before 94ab35f] [--limit 2500] [--rounds 3] [--threads 2]

The commit of ``--before`` is checked out beside this tree, and both train the recipe as they have it, in turn, with the
same packages: a process each time, from the command line until it has ended, with data, tokenizer, doctor, baselines,
training, judging and report. ``--limit`` takes that many examples of every split (0: all of them; then one round takes
half an hour or more).
"""

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness.command import command
from benchmarks.harness.results import ROOT, result_file, spread
from benchmarks.harness.rounds import in_turn, said

RECIPE = "imdb-minilm"
START = "import sys; from glassformer.cli.app import main; sys.exit(main())"


@contextlib.contextmanager
def checked_out(revision: str, folder: Path) -> Iterator[Path]:
    """The tree of a commit in ``folder``, for as long as it is needed."""
    subprocess.run(["git", "-C", ROOT, "worktree", "add", "-q", "--detach", folder, revision], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", folder], check=True)


def train(tree: Path, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of the whole command, and what its run folder says."""
    settings = [f"train.threads={options.threads}"] if options.threads else []
    settings += [f"data.limit={options.limit}"] if options.limit else []
    command = [sys.executable, "-c", START, "train", RECIPE, "--out", out]
    command += [part for setting in settings for part in ("--set", setting)]
    started = time.perf_counter()
    environ = {**os.environ, "PYTHONPATH": str(tree / "src")}
    with (out.parent / f"{out.name}.log").open("w") as log:
        subprocess.run(command, check=True, cwd=out.parent, env=environ, stdout=log, stderr=log)
    seconds = time.perf_counter() - started
    metrics = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    assert (out / "report.html").is_file()
    return {
        "seconds": round(seconds, 1),
        "of_it": metrics["seconds"],
        "accuracy": metrics["test"]["accuracy"],
        "judged": metrics["test"]["n"],
        "peak_memory_mb": round(metrics["peak_memory_mb"]),
        "tokens_per_second": round(metrics["tokens_per_second"]),
    }


@command(
    f"glassformer train {RECIPE}, command to report, before the work on speed and now",
    out=lambda options: result_file("end-to-end"),
    before=("94ab35f", "the commit to compare with"),
    limit=(2500, "examples of every split; 0 for all"),
    rounds=3,
    threads=2,
)
def main(options: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, checked_out(options.before, Path(name) / "tree") as before:
        turn = itertools.count()

        def once(tree: Path) -> dict[str, Any]:
            run = train(tree, Path(name) / f"{tree.name}-{next(turn)}", options)
            print(f"{tree.name}: {run['seconds']:.1f} s  accuracy {run['accuracy']:.4f}")
            return run

        runs = in_turn({"before": before, "now": ROOT}, options.rounds, once, warm_up=False)
    quicker = spread([b["seconds"] / n["seconds"] for b, n in zip(runs["before"], runs["now"], strict=True)])
    print(f"before took {said(quicker)} as long")
    return {
        "before": options.before,
        "limit": options.limit,
        "seconds": {when: spread([run["seconds"] for run in found]) for when, found in runs.items()},
        "before_against_now": quicker,
        "runs": runs,
    }
