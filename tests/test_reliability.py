"""The rows of the reliability scoreboard, a few times each; `make soak` runs them at their full counts."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
PROGRAM = """\
import json, sys
sys.path.insert(0, {benchmarks!r})
import kill_tests, bad_files
{warm}
print(json.dumps([one for one in {call}]))
"""


def run(call: str, warm: bool = False) -> list[dict]:
    """The runs of a row, in a process of its own: it forks, and pytest's has threads."""
    program = PROGRAM.format(benchmarks=str(BENCHMARKS), call=call, warm="kill_tests.warm()" if warm else "")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("count", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_trainings_resume_to_the_same_bits(count):
    runs = run(f"kill_tests.kills({count})", warm=True)
    assert [one["killed"] and one["passed"] for one in runs] == [True] * count


ROWS = {
    "kill_tests.crashes()": 17,
    "kill_tests.full_disks(10)": 10,
    "bad_files.damaged_checkpoints(90)": 90,
    "bad_files.malicious_checkpoints()": 50,
    "bad_files.tables(300)": 360,
    "bad_files.pictures(200)": 240,
    "bad_files.readers(120)": 120,
}


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict]]:
    found = run("[{" + ", ".join(f"{row!r}: {row}" for row in ROWS) + "}]")
    return found[0]


@pytest.mark.parametrize("row", ROWS)
def test_crashes_full_disks_and_bad_files(rows, row):
    assert len(rows[row]) == ROWS[row]
    assert [one for one in rows[row] if not one["passed"]] == []


def test_the_scoreboard_is_the_one_of_the_result_file(monkeypatch):
    pytest.importorskip("accelerate")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    soak = runpy.run_path(str(BENCHMARKS / "reliability.py"))
    assert soak["PAGE"].read_text(encoding="utf-8") == soak["page"](soak["read"]())
