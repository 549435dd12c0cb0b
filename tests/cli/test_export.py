"""``glassformer export``: what it says, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glassformer.cli.export import held_out


def test_onnx(gf, refused, run: Path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    result = gf("export", run, "--to", "onnx", "--int8", "--int8-tolerance", 50, "--check", 4)
    assert result.code == 0, result
    assert f"{run / 'onnx'}: 4 inputs, same labels" in result.out
    validation = held_out(run)
    assert validation is not None
    assert f" on {len(validation[0])}" in result.err.splitlines()[-1]
    about = json.loads((run / "onnx" / "onnx.json").read_text(encoding="utf-8"))
    assert about["checked"]["inputs"] == 4
    assert "exists" in refused("export", run, "--to", "onnx")


def test_refusals(refused, run: Path, tmp_path: Path):
    assert "Use --to onnx" in refused("export", run, "--to", "hf", "--check", 3)
    assert not (run / "hf").exists()
    assert "no such run folder" in refused("export", tmp_path / "none", "--to", "hf")
    assert "int8 weights are for ONNX" in refused("export", run, "--to", "hf", "--int8")
    assert "--int8-tolerance: -1 points" in refused("export", run, "--to", "onnx", "--int8-tolerance", -1)
    assert "check nothing" in refused("export", run, "--to", "onnx", "--check", 0)
