"""The benchmark of the kernels in fp32: both ways in turn, at the level that switches say, and its table."""

from __future__ import annotations

import json

import pytest
import torch

from glassformer.nn import kernels
from glassformer.nn.encoder import EncoderConfig
from glassformer.nn.kernels import loading
from glassformer.packing import Packing

from .benchmark_tools import benchmark


@pytest.fixture
def tool(monkeypatch):
    """A benchmark by its name."""
    return benchmark


def test_both_ways_are_timed_in_turn_and_told(tool, monkeypatch, tmp_path):
    if kernels.why_not():
        pytest.skip(f"no kernels: {kernels.why_not()}")
    bench, speed = tool("kernels_fp32"), tool("tables_speed")
    monkeypatch.setattr(bench, "SIZES", EncoderConfig(32, 1, 2, 64))
    monkeypatch.setattr(bench, "batches", lambda seed: [Packing((7, 5))])
    monkeypatch.setattr(bench, "keep_freed_memory", lambda: None)
    threads, before = torch.get_num_threads(), loading._loaded[:]
    found = bench.measure(rounds=3, seed=0, least=0.0)
    torch.set_num_threads(threads)
    assert loading._loaded == before
    assert (found["tokens"], found["level"]) == ([12], before[0].level.title)
    for kind, names in (("alone", 3), ("whole", 2)):
        assert len(found[kind]) == names
        assert all(way["min"] > 0 for one in found[kind].values() for way in one["milliseconds"].values())
    monkeypatch.setattr(benchmark("markdown"), "RESULTS", tmp_path)
    assert speed.kernels_fp32().startswith("Not measured yet")
    machine = {"cpu": "a processor", "load_before": [0.5]}
    facts = {"machine": machine, "versions": {"torch": "2"}, "date": "2026-11-25", "threads": 1, "rounds": 3}
    file = tmp_path / "kernels-fp32.json"
    file.write_text(json.dumps({**facts, "levels": {"a": found, "b": found}}), encoding="utf-8")
    lines = speed.kernels_fp32().splitlines()
    assert lines[0] == f"| | {found['level']}: torch takes | {found['level']}: torch takes |"
    ratio = found["whole"]["prediction"]["glassformer_against_torch"]
    told = f"{ratio['median']:.2f} × ({ratio['min']:.2f} to {ratio['max']:.2f})"
    assert lines[3] == f"| prediction | {told} | {told} |"
    assert "over 12 tokens" in lines[-1]


def test_a_level_that_the_processor_lacks_is_refused(tool, monkeypatch, capsys):
    bench = tool("kernels_fp32")
    monkeypatch.setattr(loading, "cpu_flags", lambda: frozenset())
    assert bench.main(["--levels", "avx2"]) == 2
    assert capsys.readouterr().err == "the processor has no avx2\n"


def test_products_in_int8_are_timed_and_the_table_names_wrong_sums(tool, monkeypatch, tmp_path):
    from glassformer.nn.kernels import int8

    if int8.why_not():
        pytest.skip(f"no int8: {int8.why_not()}")
    bench, table = tool("int8"), tool("tables_speed")
    monkeypatch.setattr(bench, "SHAPES", ((13, 7),))
    monkeypatch.setattr(bench, "ROWS", (3, 1024))
    found = bench.products(rounds=1, least=0.0, seed=0)
    assert [(one["rows"], one["inputs"], one["columns"]) for one in found] == [(3, 13, 7), (1024, 13, 7)]
    assert all(way["min"] > 0 for one in found for way in one["microseconds"].values())
    monkeypatch.setattr(benchmark("markdown"), "RESULTS", tmp_path)
    assert table.int8().startswith("Not measured yet")
    found[1]["exact"] = {"torch._int_mm": False, "onednn.qlinear_pointwise": True}
    seconds = {"median": 2.0, "min": 1.5, "max": 2.5}
    part = {
        "reviews": 7,
        "seconds": {"fp32": seconds, "int8": seconds},
        "int8_against": {"fp32": seconds},
        "labels_as_in_fp32": {"fp32": 1.0, "int8": 0.99},
        "accuracy": {"fp32": 0.5, "int8": 0.51},
        "gate": {"agree": 0.996, "n": 1000, "passed": False},
    }
    machine = {"cpu": "a processor", "load_before": [0.5]}
    facts = {"machine": machine, "versions": {"torch": "2"}, "date": "2026-11-25", "threads": 1, "rounds": 1}
    levels = {"a": {"level": "A", "products": found, "prediction": part, "date": "2026-11-27"}}
    (tmp_path / "int8.json").write_text(json.dumps({**facts, "levels": levels}), encoding="utf-8")
    lines = table.int8().splitlines()
    assert lines[2] == "| A | 7 | fp32 | 2.0 (1.5 to 2.5) | 2.0 × (1.5 to 2.5) | 100.00% | 50.00% |"
    assert "(sums wrong)" in lines[7]
    assert lines[7].count("(sums wrong)") == 1
    assert "A: gate not passed, 99.60% of 1,000 labels. Measured on a processor, 1 thread, load" in lines[-1]
    assert lines[-1].endswith("torch 2, 2026-11-27.")  # the level's own day


def test_ways_of_dropout_are_timed_in_turn_and_compared(tool, monkeypatch, tmp_path):
    bench = tool("dropout")
    monkeypatch.setattr(bench, "PLACES", {"few": (3, 7)})
    monkeypatch.setattr(bench, "milliseconds", lambda work: float(bool(work().shape == (3, 7))) + 1.0)
    monkeypatch.setattr(bench, "keep_freed_memory", lambda: None)
    threads = torch.get_num_threads()
    assert bench.main(["--rounds", "2", "--out", str(tmp_path / "dropout.json")]) == 0
    torch.set_num_threads(threads)
    found = json.loads((tmp_path / "dropout.json").read_text(encoding="utf-8"))
    assert list(found["places"]) == ["few, bf16", "few, fp32"]
    for one in found["places"].values():
        assert one["equal"]
        assert {name: times["median"] for name, times in one["milliseconds"].items()} == dict.fromkeys(
            ("bits", "factors", "torch"), 2.0
        )
        assert one["bits_against"]["factors"] == {"median": 1.0, "min": 1.0, "max": 1.0}
    monkeypatch.setitem(bench.WAYS, "factors", lambda x: x)
    assert not bench.equal_to_the_bit((3, 7), torch.float32)
