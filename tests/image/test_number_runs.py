"""Runs of numbers of images: what is left out is said, and one that is lost on the way costs only itself."""

import csv
import json

import numpy as np
import pytest
from PIL import Image

from glassformer.cli.app import main

SMALL = ["--model", "vit-tiny"]
for setting in "target=number image_size=16 patch_size=8 d_model=14 num_heads=2 num_layers=1".split():
    SMALL += ["--set", setting]
for setting in ("epochs=1", "test_size=11", "validation_size=7", "threads=1", "baselines=false"):
    SMALL += ["--set", setting]


@pytest.fixture
def table(tmp_path):
    """How bright are 43 images? One number is far from all others."""
    rng, path = np.random.default_rng(5), tmp_path / "t.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "score"])
        for i in range(43):
            pixels = rng.integers(0, 256, (16, 16, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"{i}.png")
            writer.writerow([f"{i}.png", 1e6 if i == 3 else 1 + i / 43])
    return path


def train(table, *more):
    out = table.parent / "run"
    code = main(["train", "--images", str(table), "--out", str(out), *SMALL, *more])
    return code, out


def test_numbers_far_from_all_others_are_said(table, capsys):
    code, _ = train(table, "--set", "far_numbers=skip", "--set", "split_seed=1")
    said = capsys.readouterr()
    assert code == 0, said.err
    assert "far from all others and left out: 1 of" in said.out


def test_an_image_lost_while_training_costs_only_itself(table, monkeypatch, capsys):
    lost = []

    def look(splits, image_range):
        lost.append(splits["test"].images[0])
        (table.parent / lost[0]).write_bytes(b"no image any more")

    monkeypatch.setattr("glassformer.inputs.images.check_readable", look)
    code, out = train(table)
    assert code == 0, capsys.readouterr().err
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["test"]["n"] == 10
    assert lost[0] in metrics["left_out"][0]
