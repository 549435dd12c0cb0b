"""Is a run as sure as it should be? Its calibration error on validation and test data, before and after a temperature.

    .venv/bin/python -m benchmarks.quality.calibration runs/imdb-minilm-seed0 [--threads 2]

``glassformer calibrate`` on a copy of the run, which stays as it is: the validation split chooses one temperature by
its log loss, and the test split is looked at before and after. Intervals by bootstrap over the examples. Results:
``benchmarks/results/calibration-NAME.json``.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.command import command
from benchmarks.harness.results import RESULTS
from glassformer.cli.evaluate import check_run
from glassformer.study.calibration import calibrate_run


def measure(run: Path) -> dict[str, Any]:
    """What ``calibrate`` finds; checkpoints are not copied."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / run.name
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns("checkpoints"))
        return calibrate_run(copy, log=lambda line: print(line, flush=True))


@command(
    "calibration of a run",
    ("run", dict(type=Path, help="a run folder")),
    out=lambda options: RESULTS / f"calibration-{options.run.name}.json",
    threads=torch.get_num_threads(),
)
def main(options: Any) -> dict[str, Any]:
    found = measure(check_run(options.run))
    for name, split in found["splits"].items():
        before, after = (split[when]["ece"] for when in ("before", "after"))
        print(f"{name}: calibration error {before:.4f} before, {after:.4f} after")
    return {"run": options.run.name, **found}
