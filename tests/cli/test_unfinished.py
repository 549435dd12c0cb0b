"""Verbs on a run whose training has not ended, and how one goes on with it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import glassformer
from glassformer.errors import ConfigError

from .tiny import snapshot

VERBS = [
    ["predict", "{run}", "a text"],
    ["evaluate", "{run}"],
    ["explain", "{run}", "a text"],
    ["serve", "{run}"],
    ["export", "{run}", "--to", "onnx", "--out", "out"],
    ["calibrate", "{run}"],
    ["report", "{run}"],
    ["compare", "{run}", "{run}"],
    ["embed", "{run}", "a text", "--out", "out.npy"],
    ["similar", "one", "two", "--model", "{run}"],
    ["fill", "{run}", "a [MASK]"],
    ["translate", "{run}", "a text"],
    ["vectors", "{run}", "word"],
    ["doctor", "{run}"],
]


@pytest.fixture
def unfinished(run: Path) -> Path:
    """A run as a stop leaves it: its recipe and its checkpoints."""
    for path in run.iterdir():
        if path.name not in ("config.toml", "checkpoints", "history.jsonl"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return run


def newest(run: Path) -> tuple[int, int]:
    state = json.loads((max((run / "checkpoints").glob("step-*")) / "state.json").read_text())
    return state["step"], state["total_steps"]


@pytest.mark.parametrize("verb", VERBS, ids=[verb[0] for verb in VERBS])
def test_every_verb_says_that_the_training_is_not_finished(refused, unfinished: Path, verb: list[str]):
    step, total = newest(unfinished)
    said = refused(*(word.format(run=unfinished) for word in verb))
    assert f"training is not finished (step {step} of {total})" in said
    assert said.endswith(f"Go on with: glassformer train --resume --out {unfinished}")


def test_so_does_the_library_and_a_run_in_training_is_waited_for(unfinished: Path):
    with pytest.raises(ConfigError, match="training is not finished"):
        glassformer.load(unfinished)
    shutil.rmtree(unfinished / "checkpoints")
    with pytest.raises(ConfigError, match="no checkpoint yet"):
        glassformer.load(unfinished)


def test_a_run_goes_on_by_its_name_alone(gf, refused, unfinished: Path):
    assert "no run is named" in refused("train", "--resume")
    assert "two runs are named" in refused("train", unfinished, "--resume", "--out", "other")
    assert gf("train", unfinished, "--resume").code == 0
    assert (unfinished / "report.html").is_file()


def test_a_copy_of_hard_links_stays_as_it_is_when_the_run_goes_on(gf, unfinished, tmp_path):
    """Backups are made with ``cp -al``: both folders name the same files."""
    copy = tmp_path / "copy"
    shutil.copytree(unfinished, copy, copy_function=os.link)
    before = snapshot(copy)
    assert gf("train", "--resume", "--out", unfinished).code == 0
    assert snapshot(copy) == before
    assert snapshot(unfinished).keys() > before.keys()
    assert gf("train", "--resume", "--out", copy).code == 0  # and goes on to the same model
    for name in ("model.safetensors", "config.json"):
        assert (copy / "model" / name).read_bytes() == (unfinished / "model" / name).read_bytes()
