"""A regressor as an ONNX folder: the graph and its script give the numbers and intervals of the model."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import glassformer as gf
from glassformer.export.onnx_folder import export_onnx

TEXTS = [f"a {word} film {i % 5}" for i, word in enumerate(["good", "bad", "fine"] * 11)]


def test_onnx_gives_the_same_numbers(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    est = gf.TextRegressor(
        "encoder-mini",
        max_length=16,
        d_model=14,
        num_layers=1,
        num_heads=2,
        epochs=1,
        min_count=1,
        seed=1,
        precision="fp32",
        threads=1,
    )
    numbers = [2000.0 + len(text) for text in TEXTS]
    est.fit(TEXTS, numbers, validation=(TEXTS[:11], numbers[:11]))
    checked = export_onnx(est, tmp_path / "onnx", TEXTS[:5])
    assert checked["labels_changed"] == 0
    about = json.loads((tmp_path / "onnx" / "onnx.json").read_text())
    assert about["number"] is True
    assert about["coverage"] == 0.9
    command = [sys.executable, tmp_path / "onnx" / "run.py", *TEXTS[:3]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    cells = np.array([line.split("\t") for line in done.stdout.splitlines()], float)
    wanted = np.column_stack([est.predict(TEXTS[:3]), est.predict_interval(TEXTS[:3])])
    np.testing.assert_allclose(cells, wanted, rtol=1e-5)
