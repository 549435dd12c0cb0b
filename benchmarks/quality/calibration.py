"""Is a run as sure as it should be? Its calibration error on validation and test data, before and after a temperature.

    .venv/bin/python -m benchmarks.quality.calibration runs/imdb-minilm-seed0 [--threads 2]

``glassformer calibrate`` on a copy of the run, which stays as it is: the validation split chooses one temperature by
its log loss, and the test split is looked at before and after. Intervals by bootstrap over the examples. Results:
``benchmarks/results/calibration-NAME.json``.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.results import RESULTS, environment, parse, write_result
from glassformer.cli.evaluate import check_run
from glassformer.errors import InputError
from glassformer.study.calibration import calibrate_run


def measure(run: Path) -> dict[str, Any]:
    """What ``calibrate`` finds; checkpoints are not copied."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / run.name
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns("checkpoints"))
        return calibrate_run(copy, say=lambda line: print(line, flush=True))


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(
        __doc__,
        ("run", dict(type=Path, help="a run folder")),
        argv=arguments,
        threads=torch.get_num_threads(),
        results=(RESULTS, "where the result file goes"),
    )
    torch.set_num_threads(options.threads)
    facts = environment()
    try:
        found = measure(check_run(options.run))
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    out = options.results / f"calibration-{options.run.name}.json"
    write_result(out, {"benchmark": "calibration of a run", **facts, "run": options.run.name, **found})
    for name, split in found["splits"].items():
        print(
            f"{name}: calibration error {split['before']['ece']:.4f} before, {split['after']['ece']:.4f} after"
        )
    print(f"written to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
