"""Two processes give what one gives: losses, weights, resumed runs. And a dead one ends the job."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from glassformer.data.batching import split_evenly

SCRIPT = Path(__file__).with_name("several.py")
spec = importlib.util.spec_from_file_location("several", SCRIPT)
several = importlib.util.module_from_spec(spec)
spec.loader.exec_module(several)
LONG = 300  # seconds that nothing here takes, however busy the machine is


def torchrun(*arguments: str, **options) -> subprocess.Popen:
    start = "-m torch.distributed.run --nproc-per-node 2 --master-port 0 --rdzv-backend c10d --rdzv-endpoint localhost:0"
    command = [sys.executable, *start.split()]
    return subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def wait_for_steps(process: subprocess.Popen, run: Path, lines: int = 3) -> None:
    """Until the training has written that much history."""
    deadline = time.monotonic() + LONG
    while not (run / "history.jsonl").exists() or (run / "history.jsonl").read_bytes().count(b"\n") < lines:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def losses(result: dict) -> list[float]:
    return [record["loss"] for record in result["history"]]


def counts(result: dict) -> list[tuple]:
    return [
        (r["kind"], r["step"], r["epoch"], r.get("tokens"), r.get("train_accuracy"))
        for r in result["history"]
    ]


def test_two_processes_have_the_losses_of_one(tmp_path):
    """One test, so that its processes start once, however the suite is divided."""
    several.fit("text", tmp_path / "begun-by-one", stop=12)
    process = torchrun(str(SCRIPT), str(tmp_path))
    said, _ = process.communicate(timeout=LONG)
    assert process.returncode == 0, said
    first, second = (json.loads((tmp_path / f"rank-{r}.json").read_text()) for r in (0, 1))
    alone = {kind: several.fit(kind, tmp_path / f"{kind}-alone") for kind in several.CASES}

    for kind, strategy in several.STRATEGIES:
        theirs, one = first[f"{kind} {strategy}"], alone[kind]
        assert len([r for r in one["history"] if r["kind"] == "step"]) >= several.STEPS
        assert counts(theirs) == counts(one)
        np.testing.assert_allclose(losses(theirs), losses(one), rtol=1e-5)
        assert theirs["weights"] == pytest.approx(one["weights"], rel=1e-3, abs=1e-3)
    for case in first:  # both processes know the same
        assert losses(first[case]) == losses(second[case])
        assert first[case]["weights"] == second[case]["weights"]
    for result in (several.fit("text", tmp_path / "begun-by-two"), first["one to two"]):
        assert counts(result) == counts(alone["text"])
        np.testing.assert_allclose(losses(result), losses(alone["text"]), rtol=1e-5)
    for ours in (first, second):  # two that are resumed by two draw the same dropout
        assert losses(ours["resumed"]) == losses(ours["whole"])
        assert ours["resumed"]["weights"] == ours["whole"]["weights"]
    states = list((tmp_path / "text-fsdp").iterdir())  # one process writes
    assert sorted(p.name for p in states) == ["step-00000020", "step-00000024"]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_rows_are_divided_by_tokens(size):
    lengths = np.random.default_rng(size).integers(1, 50, 31)
    parts = split_evenly(lengths, size)
    assert sorted(np.concatenate(parts).tolist()) == list(range(31))
    tokens = [int(lengths[part].sum()) for part in parts]
    assert max(tokens) - min(tokens) <= lengths.max()
    assert [len(part) for part in split_evenly(lengths[:2], 5)] == [1, 1, 0, 0, 0]


@pytest.mark.slow
def test_a_killed_process_ends_the_job_with_a_clear_line(tmp_path):
    run = tmp_path / "run"
    process = torchrun("-m", "glassformer", "train", "europe", "--out", str(run), "--set", "epochs=500")
    try:
        wait_for_steps(process, run)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        second = next(c for c in children if b"RANK=1\0" in Path(f"/proc/{c}/environ").read_bytes())
        os.kill(int(second), signal.SIGKILL)
        killed = time.monotonic()
        said, _ = process.communicate(timeout=60)
        seconds = time.monotonic() - killed
    finally:
        process.kill()
    assert process.returncode != 0
    assert "lost the connection to another process" in said
    assert seconds < 30  # promised in docs/scale.md


@pytest.mark.slow
def test_a_stopped_job_saves_and_resumes_to_the_same_losses(tmp_path):
    def train(run: Path, *more: str) -> subprocess.Popen:
        settings = "--set epochs=3 --set early_stopping=0".split()
        return torchrun("-m", "glassformer", "train", "europe", "--out", str(run), *settings, *more)

    def steps(run: Path) -> list[tuple]:
        lines = (run / "history.jsonl").read_text(encoding="utf-8").splitlines()
        return [(r["step"], r["loss"]) for r in map(json.loads, lines) if r["kind"] == "step"]

    stopped = train(tmp_path / "stopped")
    processes = [stopped]
    try:
        wait_for_steps(stopped, tmp_path / "stopped")
        stopped.send_signal(signal.SIGTERM)
        said, _ = stopped.communicate(timeout=LONG)
        assert stopped.returncode != 0, said
        assert list((tmp_path / "stopped" / "checkpoints").glob("step-*")), said
        first = steps(tmp_path / "stopped")
        for run, more in (("stopped", ["--resume"]), ("whole", [])):
            processes.append(train(tmp_path / run, *more))
            said, _ = processes[-1].communicate(timeout=LONG)
            assert processes[-1].returncode == 0, said
    finally:
        for process in processes:
            process.kill()
    assert 0 < len(first) < len(steps(tmp_path / "whole"))
    assert steps(tmp_path / "stopped") == steps(tmp_path / "whole")
