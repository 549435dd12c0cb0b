"""What the studies found: all arms over their seeds, with intervals and tests, into a result file.

    .venv/bin/python -m benchmarks.quality.studies hotdog-ladder-cifar [--runs runs] [--set threads=1] [--workers 1]
    .venv/bin/python -m benchmarks.quality.studies hotdog-ladder-cifar --words      the result file's sentences anew, from its figures

A study is a folder of run folders (``runs/NAME``) and goes on where it was stopped. What ``glassformer compare``
found goes to ``benchmarks/results/study-NAME.json``; docs/studies.md is made from these files by tables.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.harness.common import RESULTS, write_result
from glassformer.config import parse_settings
from glassformer.study.compare import compare
from glassformer.study.grid import load_study
from glassformer.study.results import sentences


def say(text: str) -> None:  # of the module's, since processes are sent it
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--set", dest="overrides", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--words", action="store_true", help="train nothing; write the sentences anew")
    args = parser.parse_args()
    if args.words:
        path = RESULTS / f"study-{args.study}.json"
        if not path.is_file():
            parser.error(f"{path} is not there: without --words it is made")
        kept = json.loads(path.read_text(encoding="utf-8"))
        write_result(path, kept | sentences(kept))
        return
    study, settings = load_study(args.study), parse_settings(args.overrides)
    results = compare(study, args.runs / study.name, settings=settings, workers=args.workers, say=say)
    if results["unfinished"]:
        raise SystemExit(f"{len(results['unfinished'])} runs did not end: {results['unfinished'][0]} ...")
    write_result(RESULTS / f"study-{study.name}.json", results)
    say(results["verdict"])


if __name__ == "__main__":
    main()
