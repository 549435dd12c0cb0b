"""A study that is stopped from outside: nothing goes on unseen, what was done is kept, and the rest goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

LONG = 200  # seconds that nothing here takes, however busy the machine is
STUDY = """\
recipe = {recipe!r}
[set]
epochs = 40
batch_size = 4
checkpoint_every = 40
early_stopping = 0
[grid]
pooling = ["mean", "max"]
"""

pytestmark = pytest.mark.slow


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "glassformer.cli.app", "compare", str(folder / "mine.toml")]
    command += ["--out", str(folder / "out"), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def steps(folder: Path) -> int:
    history = folder / "out" / "arms" / "pooling=mean" / "seed-0" / "history.jsonl"
    return history.read_bytes().count(b'"step"') if history.exists() else 0


def wait_for(folder: Path, wanted: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + LONG
    while steps(folder) < wanted:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def comes_to_rest(folder: Path) -> bool:
    """Whether nobody writes there any more."""
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        before = steps(folder)
        time.sleep(3)
        if steps(folder) == before:
            return True
    return False


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_stopped_and_given_again(base: Path, tmp_path: Path, by: signal.Signals):
    (tmp_path / "mine.toml").write_text(STUDY.format(recipe=str(base)), encoding="utf-8")
    process = start(tmp_path)
    wait_for(tmp_path, 100, process)
    os.kill(process.pid, by)  # the command alone: the run in its own process must notice
    if by == signal.SIGINT:
        _, err = process.communicate(timeout=LONG)
        assert process.returncode == 130
        assert err.splitlines()[-1].startswith("error: interrupted; finished runs are kept")
    else:
        process.wait(LONG)
    assert comes_to_rest(tmp_path)
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()
    done = steps(tmp_path)
    assert done < 40 * 16
    again = start(tmp_path)
    out, err = again.communicate(timeout=LONG)
    assert again.returncode == 0, err
    assert "resumed at step" in out
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [len(arm["seeds"]) for arm in results["arms"]] == [1, 1]
