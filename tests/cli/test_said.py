"""What ``glassformer train`` says before its first step and after each epoch."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from glassformer.cli.output import said_plainly
from glassformer.errors import DataError, IdleSettingWarning
from glassformer.tasks import run as runner
from glassformer.train.callbacks import Callback

from .tiny import settings, write_csv

PICTURES = [
    word
    for pair in (
        "image_size=8",
        "patch_size=4",
        "d_model=16",
        "num_layers=1",
        "num_heads=2",
        "d_ff=16",
        "epochs=1",
        "precision=fp32",
        "baselines=false",
        "bootstrap=20",
        "threads=1",
        "grid=false",
    )
    for word in ("--set", pair)
]


def vietnamese(path: Path) -> Path:
    """43 texts with accents in every word."""
    end = {"tốt": "rất đẹp và ngon", "tệ": "không đáng tiền"}
    rows = [(f"quán số {i} này {text}", label) for i in range(43) for label, text in [[*end.items()][i % 2]]]
    return write_csv(path, rows)


def place_of(lines: list[str], start: str) -> int:
    return next(i for i, line in enumerate(lines) if line.startswith(start))


def test_lost_accents_and_cut_texts_are_said_before_the_first_step(gf, tmp_path: Path):
    path = vietnamese(tmp_path / "quán.csv")
    result = gf("train", "--text", path, "--out", "run", *settings("strip_accents=true", "max_length=5"))
    assert result.code == 0, result
    lines = result.out.splitlines()
    first = place_of(lines, "step ")
    assert place_of(lines, "data doctor: the tokenizer takes the accents from") < first
    assert place_of(lines, "data doctor: train: 100.0% of 35 texts exceed 5 tokens") < first
    assert sum("takes the accents" in line for line in lines) == 1


def test_a_warning_of_ours_is_one_line_said_once_and_others_stay_as_they_are(capsys):
    with warnings.catch_warnings(record=True) as others, said_plainly():
        warnings.simplefilter("always")
        for _ in range(2):
            warnings.warn("lr has no effect", IdleSettingWarning, stacklevel=1)
        warnings.warn("of another", UserWarning, stacklevel=1)
    assert capsys.readouterr().err.splitlines() == ["note: lr has no effect"]
    assert [str(one.message) for one in others] == ["of another"]


def test_a_run_that_is_killed_leaves_what_the_doctor_found(
    gf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    class Killed(Callback):
        def __init__(self, *_, **__):
            pass

        def step(self, training, info):
            raise DataError("killed")

    monkeypatch.setattr(runner, "StopOnSignal", Killed)
    path = vietnamese(tmp_path / "quán.csv")
    assert gf("train", "--text", path, "--out", "run", *settings("strip_accents=true")).code == 2
    findings = json.loads(Path("run/doctor.json").read_text(encoding="utf-8"))["findings"]
    assert {"accents", "truncation", "unknown"} <= {finding["code"] for finding in findings}


def test_a_set_of_pictures_is_described_as_the_guide_says(gf, tmp_path: Path):
    rng = np.random.default_rng(0)
    for split, classes in {
        "train": {"red": 23, "blue": 5, "grey": 3},
        "validation": {"red": 5, "blue": 2},
        "test": {"red": 3, "blue": 2, "grey": 2},
    }.items():
        for label, count in classes.items():
            folder = tmp_path / "squares" / split / label
            folder.mkdir(parents=True)
            for i in range(count):
                Image.fromarray(rng.integers(0, 255, (11, 11, 3), np.uint8)).save(folder / f"{i}.png")
    red = tmp_path / "squares" / "train" / "red"
    (red / "again.png").write_bytes((red / "0.png").read_bytes())
    (tmp_path / "squares" / "test" / "red" / "leak.png").write_bytes((red / "1.png").read_bytes())
    (red / "torn.png").write_bytes((red / "2.png").read_bytes()[:60])
    arguments = ("--model", "vit-tiny", "--set", "broken=skip", *PICTURES)
    result = gf("train", "--images", tmp_path / "squares", "--out", "run", *arguments)
    assert result.code == 0, result
    lines = result.out.splitlines()
    before = lines[: place_of(lines, "step ")]
    for said in (
        "1 pictures of train left out: ",
        "no picture of grey in validation",
        "train is unbalanced: 24 of red, 3 of grey",
        "1 pictures of train are repeats",
        "1 pictures stand in train and in test",
    ):
        assert sum(line.startswith(f"data doctor: {said}") for line in before) == 1, said
