"""Speed by kind of processor: each level writes a file of its own, and its column says what was not at hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from glassformer.nn.kernels.levels import LEVELS
from glassformer.nn.linear import Linear
from glassformer.packing import Packing

from .benchmark_tools import benchmark


@pytest.fixture
def tool(monkeypatch):
    """A benchmark by its name."""
    return benchmark


def test_a_level_that_was_not_at_hand_says_so(tool, monkeypatch, tmp_path):
    levels = tool("tables_speed")
    monkeypatch.setattr(benchmark("markdown"), "RESULTS", tmp_path)
    ratio = {"median": 2.0, "min": 1.5, "max": 2.5}
    fine = {"glassformer_against": {"HF Trainer, at its best": ratio}}
    (tmp_path / "train_imdb-avx2.json").write_text(json.dumps(fine), encoding="utf-8")
    labels = {"glassformer_against": {"OpenVINO, fp32": ratio}, "int8_against": {"OpenVINO, fp32": ratio}}
    (tmp_path / "inference-avx2.json").write_text(json.dumps({"labels": labels}), encoding="utf-8")
    labels = {"glassformer_against": {"OpenVINO, bf16": ratio | {"median": 2.2}}}
    (tmp_path / "inference.json").write_text(json.dumps({"labels": labels}), encoding="utf-8")
    shut = {"labels": labels, "int8_gate": {"passed": False}}
    (tmp_path / "inference-avx512.json").write_text(json.dumps(shut), encoding="utf-8")
    fit = {"epochs": {"1": {"ratio": ratio}, "5": {"ratio": ratio}}}
    (tmp_path / "word2vec-fit-avx512.json").write_text(json.dumps(fit), encoding="utf-8")
    assert levels.levels().splitlines()[2:] == [
        "| Prediction: OpenVINO | 2.2 × (1.5 to 2.5) | 2.2 × (1.5 to 2.5) | 2.0 × (1.5 to 2.5) |",
        "| Prediction, ours in int8: OpenVINO | not measured | gate not passed | 2.0 × (1.5 to 2.5) |",
        "| Sentences to word vectors, 1 epoch: gensim | not measured | 2.0 × (1.5 to 2.5) | not measured |",
        "| Sentences to word vectors, 5 epochs: gensim | not measured | 2.0 × (1.5 to 2.5) | not measured |",
        "| Fine-tuning MiniLM: HF Trainer, at its best | not measured | not measured | 2.0 × (1.5 to 2.5) |",
    ]


def test_a_level_has_a_file_of_its_own(tool, monkeypatch):
    results = tool("results")
    flags = {"avx2": levels_of("avx2"), "amx": levels_of("amx"), "none": frozenset({"sse2"})}
    for name, ending in (("avx2", "-avx2"), ("amx", ""), ("none", "-none")):
        monkeypatch.setattr(results, "cpu_flags", lambda name=name: flags[name])
        assert results.level() == name
        assert results.result_file("rate").name == f"rate{ending}.json"


def test_products_count_whoever_makes_them(tool):
    layer, x = Linear(64, 96).bfloat16(), torch.randn(31, 64, dtype=torch.bfloat16)
    config = SimpleNamespace(d_model=64, num_layers=3)
    model = SimpleNamespace(encoder=SimpleNamespace(config=config), reads_first_rows_only=True)

    def predict(_: object) -> None:
        with torch.inference_mode():
            layer(x)

    batch = SimpleNamespace(packing=Packing((11, 20)))
    work = tool("rate").RunContext("prediction", [batch], predict, model, backward=False)
    work.count()
    assert work.linear == 2 * 31 * 64 * 96
    assert work.attention == 4 * 64 * (2 * (11**2 + 20**2) + 31)


def levels_of(name: str) -> frozenset[str]:
    return next(level.flags for level in LEVELS if level.name == name)


def test_a_peak_is_of_the_work_alone(tool):
    memory = tool("memory")
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("Linux counts it")
    bytearray(400_000_000)  # before the work, and gone again
    found = memory.peak(lambda: bytearray(b"1") * 200_000_000)
    assert 190 < found["peak_mb"] - found["ready_mb"] < 300


def test_a_process_that_fails_is_told_and_not_timed(tool):
    startup = tool("startup")
    seconds, megabytes = startup.once([sys.executable, "-c", "pass"])
    assert 0 < seconds < 60
    assert 2 < megabytes < 200
    with pytest.raises(RuntimeError, match="no such thing"):
        startup.once([sys.executable, "-c", "raise SystemExit('no such thing')"])
