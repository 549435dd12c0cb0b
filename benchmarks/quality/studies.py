"""What the studies found: all arms over their seeds, with intervals and tests, into a result file.

    .venv/bin/python -m benchmarks.quality.studies hotdog-ladder-cifar [--runs runs] [--set threads=1] [--workers 1]
    .venv/bin/python -m benchmarks.quality.studies hotdog-ladder-cifar --words      the result file's sentences anew, from its figures

A study is a folder of run folders (``runs/NAME``) and goes on where it was stopped. What ``glassformer compare``
found goes to ``benchmarks/results/study-NAME.json``; docs/studies.md is made from these files by tables.py.
"""

import sys
from pathlib import Path
from typing import Any

from benchmarks.harness.command import command
from benchmarks.harness.options import SETTINGS
from benchmarks.harness.results import RESULTS, kept, write_result
from glassformer.config import parse_settings
from glassformer.study.compare import compare
from glassformer.study.grid import load_study
from glassformer.study.results import sentences


def say(text: str) -> None:  # of the module's, since processes are sent it
    print(text, file=sys.stderr, flush=True)


@command(
    None,
    "study",
    runs=Path("runs"),
    overrides=SETTINGS,
    workers=1,
    words=(False, "train nothing; write the sentences anew"),
)
def main(args: Any) -> None:
    path = RESULTS / f"study-{args.study}.json"
    if args.words:
        if not (old := kept(path)):
            args.error(f"{path} is not there: without --words it is made")
        write_result(path, old | sentences(old))
        return
    study, settings = load_study(args.study), parse_settings(args.overrides)
    results = compare(study, args.runs / study.name, settings=settings, workers=args.workers, log=say)
    if results["unfinished"]:
        raise SystemExit(f"{len(results['unfinished'])} runs did not end: {results['unfinished'][0]} ...")
    write_result(RESULTS / f"study-{study.name}.json", results)
    say(results["verdict"])
