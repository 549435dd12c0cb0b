"""Checkpoints of a training: after any accident the newest complete one is found, bit for bit."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from glassformer.checkpoints import files
from glassformer.checkpoints.files import verify_folder
from glassformer.checkpoints.native import list_states, load_state, save_state
from glassformer.errors import CheckpointError, GlassformerError

from .conftest import damage, damages

FILES = ("manifest.json", "state.json", "state.safetensors")


def tensors_of(step: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return {
        "model.weight": torch.randn(3, 4, generator=generator).to(torch.bfloat16),
        "optimizer.exp_avg": torch.randn(3, 4, generator=generator),
        "rng.torch": generator.get_state(),
    }


def save(folder: Path, *steps: int, **options) -> None:
    for step in steps:
        state = {"epoch": step / 10, "best": None, "rng": [step, "x"]}
        save_state(folder, step, tensors_of(step), state, **options)


def assert_holds(folder: Path, step: int) -> list[tuple[Path, str]]:
    """The newest complete checkpoint is that of ``step``, whole; returns what was passed over."""
    loaded = load_state(folder)
    assert loaded.step == step
    assert loaded.path == folder / f"step-{step:08d}"
    assert loaded.state == {"epoch": step / 10, "best": None, "rng": [step, "x"]}
    expected = tensors_of(step)
    assert loaded.tensors.keys() == expected.keys()
    assert all(
        torch.equal(loaded.tensors[k], t) and loaded.tensors[k].dtype == t.dtype for k, t in expected.items()
    )
    return loaded.skipped


def steps(folder: Path) -> list[int]:
    return [step for step, _ in list_states(folder)]


def test_odd_floats_of_the_state_survive(tmp_path):
    state = {"best": float("-inf"), "lr": 0.1 + 0.2, "tiny": 5e-324, "big": 2**80}
    path = save_state(tmp_path, 0, {}, state)
    assert path == load_state(tmp_path).path == tmp_path / "step-00000000"
    assert load_state(tmp_path).state == state


def test_old_ones_go(tmp_path):
    save(tmp_path, 10, 20, 30, 40, keep_last=2)
    assert steps(tmp_path) == [30, 40]
    save(tmp_path, 50, keep_last=1)
    assert steps(tmp_path) == [50]
    assert os.listdir(tmp_path) == ["step-00000050"]


def test_other_files_in_the_folder_are_left_alone(tmp_path):
    others = ["step-1", "notes", ".hidden", "step-00000005x", ".other.old", ".step-00000009.tmp"]
    for name in others:
        (tmp_path / name).mkdir()
    save(tmp_path, 5)
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "step-00000005"])
    assert_holds(tmp_path, 5)
    (tmp_path / "step-00000005").rename(tmp_path / ".step-00000005.old")
    assert steps(tmp_path) == [5]
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "step-00000005"])


@pytest.mark.parametrize(
    ("step", "keep_last", "state"), [(-1, 2, {}), (0, 0, {}), (0, 2, {"x": torch.ones(1)})]
)
def test_impossible_arguments_are_refused(tmp_path, step, keep_last, state):
    with pytest.raises(ValueError, match=r"got|cannot be written as JSON"):
        save_state(tmp_path, step, {}, state, keep_last=keep_last)
    assert os.listdir(tmp_path) == []


def test_nothing_to_resume_from_is_said(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(CheckpointError, match="no checkpoint to resume from"):
            load_state(folder)
    (tmp_path / "step-00000003").mkdir()
    with pytest.raises(
        CheckpointError, match=r"none of 1 checkpoints is complete.*manifest\.json: is missing"
    ):
        load_state(tmp_path)


def test_a_damaged_checkpoint_is_named_and_passed_over(tmp_path):
    save(tmp_path / "whole", 10, 20)
    rng = random.Random(0)
    for name in FILES:
        older, newer = ((tmp_path / "whole" / f"step-000000{n}" / name).read_bytes() for n in (10, 20))
        for kind, data in (damages(newer, rng, 40) | {"swapped": older}).items():
            folder = shutil.copytree(tmp_path / "whole", tmp_path / "damaged")
            damage(folder / "step-00000020" / name, data)
            [(path, reason)] = assert_holds(folder, 10)
            assert path == folder / "step-00000020"
            # Of swapped manifests, the first file whose sum is another is named.
            told = "state.json" if (name, kind) == ("manifest.json", "swapped") else name
            assert f"step-00000020/{told}" in reason, kind
            shutil.rmtree(folder)


def test_a_checkpoint_under_the_name_of_another_step_is_passed_over(tmp_path):
    save(tmp_path, 10, 20)
    shutil.copytree(tmp_path / "step-00000010", tmp_path / "step-00000030")
    [(_, reason)] = assert_holds(tmp_path, 20)
    assert "has the step 10" in reason


def test_all_damaged_is_an_error_not_a_fresh_start(tmp_path):
    save(tmp_path, 10, 20)
    for _, path in list_states(tmp_path):
        (path / "state.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"none of 2 .*/step-00000020/state\.json: was changed"):
        load_state(tmp_path)


def test_pickles_in_a_checkpoint_are_not_executed(tmp_path, bombs):
    for bomb in bombs:
        for name in FILES:
            shutil.rmtree(tmp_path / "run", ignore_errors=True)
            save(tmp_path / "run", 10, 20)
            (tmp_path / "run" / "step-00000020" / name).write_bytes(bomb)
            assert len(assert_holds(tmp_path / "run", 10)) == 1


def test_going_on_after_a_fallback_keeps_two_good_ones(tmp_path):
    save(tmp_path, 10, 20, keep_last=3)
    file = tmp_path / "step-00000020" / "state.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")  # the size is right, so only its sum tells
    assert len(assert_holds(tmp_path, 10)) == 1
    save(tmp_path, 15)
    assert steps(tmp_path) == [10, 15]
    assert assert_holds(tmp_path, 15) == []


SCENARIOS: dict[str, tuple[tuple[int, ...], str | None, int, set[int]]] = {
    # steps saved before, a file of the newest to remove, the step saved then, what may be found
    "first": ((), None, 10, {10}),
    "second": ((10,), None, 20, {10, 20}),
    "third, removing the first": ((10, 20), None, 30, {20, 30}),
    "the same step again": ((10, 20), None, 20, {20}),
    "the same step, damaged": ((10, 20), "state.json", 20, {10, 20}),
    "the same step, no manifest": ((10, 20), "manifest.json", 20, {10, 20}),
    "after a fallback": ((10, 20), "state.safetensors", 15, {10, 15}),
}


@pytest.mark.parametrize("mode", ["kill", "full"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_after_a_crash_at_any_call_the_newest_complete_one_is_found(
    tmp_path, fail_everywhere, scenario, mode
):
    before, removed, step, allowed = SCENARIOS[scenario]
    save(tmp_path / "template", *before)
    if removed:
        (tmp_path / "template" / f"step-{before[-1]:08d}" / removed).unlink()
    (tmp_path / "template").mkdir(exist_ok=True)
    found: list[int] = []
    messages: list[str] = []

    def prepare(k: int) -> Path:
        return shutil.copytree(tmp_path / "template", tmp_path / str(k))

    def act(folder: Path) -> None:
        try:
            save(folder, step)
        except GlassformerError as error:
            messages.append(str(error))
            raise

    def check(folder: Path) -> None:
        if before or steps(folder):
            found.append(load_state(folder).step)
            assert_holds(folder, found[-1])
        if not removed:
            assert all(verify_folder(path) for _, path in list_states(folder)), "half a checkpoint is listed"
        save(folder, 40)  # and training goes on, without leftovers
        assert assert_holds(folder, 40) == []
        assert [name for name in os.listdir(folder) if name.startswith(".")] == []
        shutil.rmtree(folder)

    points = fail_everywhere(mode, prepare, act, check)
    assert points >= 12
    assert set(found) <= allowed
    assert found[-1] == step
    assert found == sorted(found), "once the new checkpoint is visible it stays"
    if mode == "full":  # the caller learns it
        assert len(messages) >= 10
        said = f"step-{step:08d}", "could not be written", "No space left"
        assert [m for m in messages if not all(part in m for part in said)] == []


_SAVE_FOR_EVER = """
import sys, torch
from itertools import count
from glassformer.checkpoints.native import save_state
print("ready", flush=True)
for step in count(1):
    save_state(sys.argv[1], step, {"t": torch.full((200_000,), step)}, {"step": step})
"""


def test_a_process_killed_while_saving_leaves_a_whole_checkpoint(tmp_path):
    rng = random.Random(3)
    for case in range(2):  # more of them: tests/test_reliability.py
        folder = tmp_path / str(case)
        command = [sys.executable, "-c", _SAVE_FOR_EVER, str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            while not steps(folder):
                time.sleep(0.01)
            time.sleep(rng.uniform(0, 0.2))
            process.send_signal(signal.SIGKILL)
        loaded = load_state(folder)
        assert loaded.skipped == []
        assert loaded.state == {"step": loaded.step}
        assert torch.equal(loaded.tensors["t"], torch.full((200_000,), loaded.step))


def test_the_newest_is_the_one_of_the_most_steps_whatever_the_clock_says(tmp_path):
    for step, when in ((2, 4e9), (3, 3e9), (11, 2e9), (99_999_999, 1e9), (100_000_000, 0)):
        path = save_state(tmp_path, step, {"w": torch.full((3,), float(step))}, {"step": step}, keep_last=7)
        os.utime(path, (when, when))
    assert steps(tmp_path) == [2, 3, 11, 99_999_999, 100_000_000]
    assert load_state(tmp_path).step == 100_000_000


@pytest.mark.parametrize("version", ["2", None, [2], -1, 1.5, True])
def test_a_format_that_is_no_number_is_damage(tmp_path, version):
    save(tmp_path, 3, 7)
    folder = tmp_path / "step-00000007"
    manifest = verify_folder(folder)
    manifest["extra"]["format"] = version
    (folder / "manifest.json").write_bytes(files._render(manifest))
    found = load_state(tmp_path)
    assert found.step == 3
    assert [path for path, _ in found.skipped] == [folder]
    assert "is not a whole number of 0 or more" in found.skipped[0][1]
