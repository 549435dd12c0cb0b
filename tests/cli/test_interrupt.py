"""Ctrl-C and kill -9 in the middle of training: --resume ends with the bits of the run left in peace."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .every import Done, call
from .tiny import sentences, settings, snapshot, write_csv

# Dropout, a running mean of the weights, the best weights so far, accumulation: all of it must survive.
KEPT = "epochs=4 batch_size=4 accumulate=2 dropout=0.1 word_dropout=0.1 average=0.9 keep_best=true"
SETTINGS = settings(*KEPT.split(), "evaluate_every=17")
LONG = 120  # seconds that nothing here takes, however busy the machine is
WARNED = "note: 1 warning about the data: above, and in the report\n"  # the only word on standard error


def start(data: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "glassformer.cli.app", "train", "--text", str(data), "--out", str(out)]
    return subprocess.Popen(
        [*command, *SETTINGS, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def train(data: Path, out: Path, *more: str) -> Done:
    """The same in this process: what is stopped is another."""
    return call("train", "--text", data, "--out", out, *SETTINGS, *more)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=LONG)
    return process.returncode, out, err


def wait_for(what: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Until ``what`` holds; fails when the process ends before, or nothing happens."""
    deadline = time.monotonic() + LONG
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def steps_done(run: Path) -> int:
    history = run / "history.jsonl"
    return history.read_bytes().count(b'"step"') if history.exists() else 0


def history(run: Path) -> list[dict]:
    lines = (run / "history.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("interrupt") / "reviews.csv", sentences(240))


@pytest.fixture(scope="module")
def peaceful(data: Path) -> Path:
    """The run that nobody disturbed."""
    assert train(data, data.parent / "peaceful")[::2] == (0, WARNED)
    return data.parent / "peaceful"


def check_same(run: Path, peaceful: Path) -> None:
    for name in ("model/model.safetensors", "predictions.csv"):
        assert (run / name).read_bytes() == (peaceful / name).read_bytes(), name
    assert history(run) == history(peaceful)


def test_ctrl_c_saves_and_resume_goes_on(data: Path, peaceful: Path, tmp_path: Path):
    run = tmp_path / "run"
    process = start(data, run)
    wait_for(lambda: steps_done(run) > 30, process)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert err.count("\n") == 1
    assert err.startswith("error: stopped at step ")
    assert "--resume" in err
    done = len(history(run))
    assert not (run / "model").exists()
    code, out, err = train(data, run, "--resume")
    assert (code, err) == (0, WARNED)
    assert f"resumed at step {[h for h in history(run)[:done] if h['kind'] == 'step'][-1]['step']}" in out
    check_same(run, peaceful)


EVERY = {"the start": 100_000, "a save": 3, "a step": 19, "the judging": 19}


@pytest.mark.slow  # a few kills without the command line: tests/test_reliability.py, damage: tests/checkpoints
@pytest.mark.parametrize("during", EVERY)
def test_kill_and_resume(during: str, data: Path, peaceful: Path, tmp_path: Path):
    every = f"checkpoint_every={EVERY[during]}"
    run = tmp_path / "run"
    saved = run / "checkpoints"
    process = start(data, run, "--set", every)
    wait_for(lambda: steps_done(run) > (3 if during == "the start" else 40), process)
    if during == "a save":
        wait_for(lambda: any(p.name.endswith(".tmp") for p in saved.iterdir()), process)
    elif during == "the judging":
        wait_for((run / "model" / "manifest.json").exists, process)
    process.kill()
    assert finish(process)[0] == -signal.SIGKILL
    assert (run / "model").exists() == (during == "the judging")
    code, out, err = finish(start(data, run, "--set", every, "--resume"))
    assert (code, err) == (0, WARNED)
    assert ("resumed at step" in out) == (during != "the start")
    check_same(run, peaceful)


def test_resume_with_other_data_is_refused(data: Path, peaceful: Path, tmp_path: Path):
    before = snapshot(peaceful)
    other = write_csv(tmp_path / "reviews.csv", sentences(240, seed=1))
    code, _, err = train(other, peaceful, "--resume")
    assert code == 2
    assert err.count("\n") == 1
    assert "another recipe" in err
    assert snapshot(peaceful) == before
