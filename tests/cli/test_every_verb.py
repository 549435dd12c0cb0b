"""A finished run of every kind: what it is asked again changes nothing. What each verb says stands in tests/records."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from glassformer.tasks.catalog import TASKS

from .every import KINDS, call
from .tiny import snapshot


def test_there_is_a_run_of_every_task(made):
    assert made.runs.keys() == {*KINDS}
    saved = [run / "model" / "glassformer.json" for run in made.runs.values()]
    kinds = {json.loads(file.read_text())["kind"] for file in saved}
    assert kinds == {task.estimator.__name__ for task in TASKS.values()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_run_goes_on_to_itself_and_its_report_is_written_anew(kind, made, tmp_path):
    run = Path(shutil.copytree(made.runs[kind], tmp_path / "run"))
    page = run / "report.html"
    before = page.read_text(encoding="utf-8")
    page.unlink()
    assert call("report", run).code == 0
    assert page.read_text(encoding="utf-8") == before
    weights = {k: v for k, v in snapshot(run / "model").items() if k.endswith((".safetensors", ".npy"))}
    assert weights
    done = call("train", "--resume", "--out", run)
    assert done.code == 0, done.err
    after = snapshot(run / "model")
    assert {name: after[name] for name in weights} == weights
