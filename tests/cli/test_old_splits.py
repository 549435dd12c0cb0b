"""Copies stay together in new runs; what was begun before goes on as it was split."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer.config import read_toml
from glassformer.data.copies import alike
from glassformer.errors import CheckpointError
from glassformer.evaluate.predictions import read_predictions
from glassformer.study.arms import Job, split_as_others
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.run import run_task
from glassformer.tasks.run_folder import as_begun, begin

from .tiny import sentences, settings, write_csv


@pytest.fixture
def twice(tmp_path: Path) -> Path:
    """60 texts, each a second time in capitals."""
    return write_csv(
        tmp_path / "twice.csv", [r for t, label in sentences(60) for r in ((t, label), (t.upper(), label))]
    )


def judged(run: str) -> set[str]:
    return {alike(row.text) for row in read_predictions(f"{run}/predictions.csv")}


def old(run: str) -> bytes:
    """The run as one that was begun before there was the setting, and that was stopped while judging."""
    config = Path(run, "config.toml")
    lines = config.read_text(encoding="utf-8").splitlines(keepends=True)
    config.write_text("".join(line for line in lines if not line.startswith("copies")), encoding="utf-8")
    Path(run, "metrics.json").unlink()
    return Path(run, "model", "model.safetensors").read_bytes()


def test_new_runs_keep_copies_on_one_side(gf, twice: Path):
    assert gf("train", "--text", twice, "--out", "run", *settings()).code == 0
    assert read_toml("run/config.toml")["data"]["copies"] == "together"
    report = json.loads(Path("run/doctor.json").read_text(encoding="utf-8"))
    assert {f["severity"] for f in report["findings"] if f["code"] == "leaks"} == {"ok"}
    assert gf("train", "--text", twice, "--out", "run", "--resume", *settings()).code == 0
    assert gf("evaluate", "run").code == 0


def test_a_stopped_run_goes_on_as_it_was_split(gf, refused, twice: Path):
    assert gf("train", "--text", twice, "--out", "run", *settings("copies=apart")).code == 0
    before, weights = judged("run"), old("run")
    result = gf("train", "--text", twice, "--out", "run", "--resume", *settings())
    assert result.code == 0, result
    assert judged("run") == before
    assert Path("run/model/model.safetensors").read_bytes() == weights
    assert "copies" not in read_toml("run/config.toml")["data"]
    line = refused("train", "--text", twice, "--out", "run", "--resume", *settings("copies=together"))
    assert "was begun with copies = apart" in line


def test_further_arms_of_a_study_are_split_as_its_first(twice: Path, tmp_path: Path):
    toml = tmp_path / "mine.toml"
    toml.write_text(f'name = "mine"\n[data]\nsource = "{twice}"\ntest_size = 0.2\n', encoding="utf-8")
    recipe = load_recipe(toml)
    arms = tmp_path / "study" / "arms"
    job = Job("b", 0, recipe, arms / "b" / "seed-0")
    assert split_as_others(job).data.copies is None
    begin(arms / "a" / "seed-0", recipe)  # before there was the setting
    assert split_as_others(job).data.copies == "apart"
    begin(arms / "0" / "seed-0", as_begun(recipe, arms / "0" / "seed-0")[0])
    assert split_as_others(job).data.copies == "together"


def test_named_data_are_split_as_ever(gf):
    small = settings("limit=60", "validation_size=0.2", "sentences=[]")
    assert gf("train", "europe", "--out", "run", *small).code == 0
    assert "copies" not in read_toml("run/config.toml")["data"]


def test_in_python_too(twice: Path, tmp_path: Path):
    toml = tmp_path / "mine.toml"
    values = "\n".join(
        f'{k} = "{v}"' if not v[0].isdigit() else f"{k} = {v}"
        for k, v in (pair.split("=") for pair in settings()[1::2] if not pair.endswith(("true", "false")))
        if k in ("epochs", "precision", "threads")
    )
    toml.write_text(
        f'name = "mine"\n[data]\nsource = "{twice}"\ntest_size = 0.2\n[model]\nmodel = "encoder-mini"\nd_model = 16\n'
        f"num_layers = 1\nnum_heads = 2\nd_ff = 16\n[train]\n{values}\n[evaluate]\nbaselines = false\nmaps = 1\n"
    )
    run_task(load_recipe(toml), tmp_path / "run")
    found = {alike(row.text) for row in read_predictions(tmp_path / "run" / "predictions.csv")}
    assert 2 * len(found) == sum(1 for _ in read_predictions(tmp_path / "run" / "predictions.csv"))


def test_folds_keep_spellings_together_and_go_on_as_they_were(gf, twice: Path):
    assert gf("cross-validate", "--text", twice, "--folds", "2", "--out", "folds", *settings()).code == 0
    plan = json.loads(Path("folds/folds.json").read_text(encoding="utf-8"))
    assert plan["assignment"][::2] == plan["assignment"][1::2]
    torn = [i // 2 % 2 for i in range(60) for _ in range(2)]
    torn[1] = 1 - torn[1]  # as exact copies alone were kept together
    Path("folds/folds.json").write_text(json.dumps(plan | {"assignment": torn}), encoding="utf-8")
    for fold in Path("folds").glob("fold-*"):
        shutil.rmtree(fold)
    assert gf("cross-validate", "--text", twice, "--folds", "2", "--out", "folds", *settings()).code == 0
    assert json.loads(Path("folds/folds.json").read_text(encoding="utf-8"))["assignment"] == torn


TINY = {
    "d_model": 8,
    "num_layers": 1,
    "num_heads": 2,
    "d_ff": 13,
    "epochs": 1,
    "min_count": 1,
    "precision": "fp32",
}


def fitted(monkeypatch, together: bool, folder: Path, resume: bool = False):
    """A fit whose held-out part is drawn with copies together, or as it was before."""
    texts, labels = zip(
        *[r for t, label in sentences(20) for r in ((t, label), (t.upper(), label))], strict=True
    )
    clf = gf.TextClassifier("encoder-mini", validation_fraction=0.2, max_length=16, **TINY)
    held: list[set[str]] = []
    inner = gf.TextClassifier._examples

    def look(self, fit, *data):
        if not together and not resume:
            fit.together = False
        found = inner(self, fit, *data)
        held.append(({alike(t) for t in found[0].X}, {alike(t) for t in found[1][0]}))
        return found

    monkeypatch.setattr(gf.TextClassifier, "_examples", look)
    clf.fit(list(texts), list(labels), checkpoints=folder, resume=resume)
    return clf, held[0]


def test_a_held_out_fraction_shares_no_copy(monkeypatch, tmp_path: Path):
    _, (train, held) = fitted(monkeypatch, True, tmp_path / "c")
    assert held
    assert not train & held
    _, again = fitted(monkeypatch, True, tmp_path / "c", resume=True)
    assert again == (train, held)


def test_a_fit_stopped_before_goes_on_as_it_was_split(monkeypatch, tmp_path: Path):
    first, (train, held) = fitted(monkeypatch, False, tmp_path / "c")
    assert train & held
    monkeypatch.undo()
    second, again = fitted(monkeypatch, False, tmp_path / "c", resume=True)
    assert again == (train, held)
    a, b = first.predict_proba(["a film"]), second.predict_proba(["a film"])
    assert np.array_equal(a, b)
    with pytest.raises(CheckpointError):
        gf.TextClassifier("encoder-mini", validation_fraction=0.3, max_length=16, **TINY).fit(
            ["a film", "no film"] * 9, ["a", "b"] * 9, checkpoints=tmp_path / "c", resume=True
        )
