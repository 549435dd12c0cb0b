"""A folder of pictures of one's own, cross-validated and reviewed without a recipe."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SMALL = [
    word for pair in ("image_size=8", "patch_size=4", "d_model=8", "num_layers=1", "num_heads=1", "d_ff=7", "epochs=1",
                      "precision=fp32", "bootstrap=20", "baselines=false", "threads=1", "augment=none")
    for word in ("--set", pair)
]  # fmt: skip


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Seven red and seven blue squares, and a file that is no picture."""
    for tint, label in ((0, "red"), (2, "blue")):
        (tmp_path / "mine" / label).mkdir(parents=True)
        for i in range(7):
            values = np.full((11, 13, 3), 10 * i, np.uint8)
            values[..., tint] = 250
            Image.fromarray(values).save(tmp_path / "mine" / label / f"{i}.png")
    (tmp_path / "mine" / "red" / "note.png").write_text("no picture")
    return tmp_path / "mine"


@pytest.mark.parametrize("given", [("--images", "mine"), ("mine",)])
def test_they_go_into_the_folds_and_come_back_to_be_corrected(gf, refused, pictures, tmp_path, given):
    asked = [*given, "--folds", "2", "--out", "folds", *SMALL]
    assert "broken=skip" in refused("review-labels", *asked)
    result = gf("review-labels", *asked, "--on-bad-row", "skip")
    assert result.code == 0, result.err
    assert "14 examples in 2 folds" in result.out
    assert "give it back: glassformer train --images folds/to_correct.csv" in result.out
    with (tmp_path / "folds" / "to_correct.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 14
    assert sorted(Path(row["file"]).parent.name for row in rows) == sorted(row["label"] for row in rows)


def test_texts_and_pictures_at_once_are_refused(refused, reviews, pictures):
    said = refused("cross-validate", "--text", reviews, "--images", pictures)
    assert "both --text and --images are given" in said
