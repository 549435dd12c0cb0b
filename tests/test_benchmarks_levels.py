"""Speed by kind of processor: a file for each level, products and kernels in turn, memory, and starts."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from glassformer.nn import kernels
from glassformer.nn.encoder import EncoderConfig
from glassformer.nn.kernels import loading
from glassformer.nn.kernels.levels import LEVELS
from glassformer.nn.linear import Linear
from glassformer.packing import Packing

from .benchmark_tools import benchmark


def test_a_level_has_a_file_of_its_own(monkeypatch):
    results = benchmark("results")
    flags = {"avx2": levels_of("avx2"), "amx": levels_of("amx"), "none": frozenset({"sse2"})}
    for name, ending in (("avx2", "-avx2"), ("amx", ""), ("none", "-none")):
        monkeypatch.setattr(results, "cpu_flags", lambda name=name: flags[name])
        assert results.level() == name
        assert results.result_file("rate").name == f"rate{ending}.json"


def test_products_count_whoever_makes_them():
    layer, x = Linear(64, 96).bfloat16(), torch.randn(31, 64, dtype=torch.bfloat16)
    config = SimpleNamespace(d_model=64, num_layers=3)
    model = SimpleNamespace(encoder=SimpleNamespace(config=config), reads_first_rows_only=True)

    def predict(_: object) -> None:
        with torch.inference_mode():
            layer(x)

    batch = SimpleNamespace(packing=Packing((11, 20)))
    work = benchmark("rate").Work("prediction", [batch], predict, model, backward=False)
    work.count()
    assert work.linear == 2 * 31 * 64 * 96
    assert work.attention == 4 * 64 * (2 * (11**2 + 20**2) + 31)


def levels_of(name: str) -> frozenset[str]:
    return next(level.flags for level in LEVELS if level.name == name)


def test_a_peak_is_of_the_work_alone():
    memory = benchmark("memory")
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("Linux counts it")
    bytearray(400_000_000)  # before the work, and gone again
    found = memory.peak(lambda: bytearray(b"1") * 200_000_000)
    assert 190 < found["peak_mb"] - found["ready_mb"] < 300


def test_a_process_that_fails_is_told_and_not_timed():
    startup = benchmark("startup")
    seconds, megabytes = startup.once([sys.executable, "-c", "pass"])
    assert 0 < seconds < 60
    assert 2 < megabytes < 200
    with pytest.raises(RuntimeError, match="no such thing"):
        startup.once([sys.executable, "-c", "raise SystemExit('no such thing')"])


def test_both_ways_are_timed_in_turn(monkeypatch):
    if kernels.why_not():
        pytest.skip(f"no kernels: {kernels.why_not()}")
    bench = benchmark("kernels_fp32")
    monkeypatch.setattr(bench, "SIZES", EncoderConfig(32, 1, 2, 64))
    monkeypatch.setattr(bench, "batches", lambda seed: [Packing((7, 5))])
    monkeypatch.setattr(benchmark("limited"), "keep_freed_memory", lambda: None)
    threads, before = torch.get_num_threads(), loading._loaded[:]
    found = bench.measure(rounds=3, seed=0, least=0.0)
    torch.set_num_threads(threads)
    assert loading._loaded == before
    assert (found["tokens"], found["level"]) == ([12], before[0].level.title)
    for kind, names in (("alone", 3), ("whole", 2)):
        assert len(found[kind]) == names
        assert all(way["min"] > 0 for one in found[kind].values() for way in one["milliseconds"].values())


def test_a_level_that_the_processor_lacks_is_refused(monkeypatch, capsys):
    bench = benchmark("kernels_fp32")
    monkeypatch.setattr(loading, "cpu_flags", lambda: frozenset())
    assert bench.main(["--levels", "avx2"]) == 2
    assert capsys.readouterr().err == "the processor has no avx2\n"


def test_products_in_int8_are_timed(monkeypatch):
    from glassformer.nn.kernels import int8

    if int8.why_not():
        pytest.skip(f"no int8: {int8.why_not()}")
    bench = benchmark("int8")
    monkeypatch.setattr(bench, "SHAPES", ((13, 7),))
    monkeypatch.setattr(bench, "ROWS", (3, 1024))
    found = bench.products(rounds=1, least=0.0, seed=0)
    assert [(one["rows"], one["inputs"], one["columns"]) for one in found] == [(3, 13, 7), (1024, 13, 7)]
    assert all(way["min"] > 0 for one in found for way in one["microseconds"].values())


def test_ways_of_dropout_are_timed_in_turn_and_compared(monkeypatch, tmp_path):
    bench = benchmark("parts")
    monkeypatch.setattr(bench, "PLACES", {"few": (3, 7)})
    took = lambda works, rounds: {way: [1.0 + (run().shape == (3, 7))] * rounds for way, run in works.items()}  # noqa: E731
    monkeypatch.setattr(bench, "in_turn", took)
    monkeypatch.setattr(bench, "keep_freed_memory", lambda: None)
    assert bench.main(["dropout", "--rounds", "2", "--out", str(tmp_path / "dropout.json")]) == 0
    found = json.loads((tmp_path / "dropout.json").read_text(encoding="utf-8"))
    assert list(found["places"]) == ["few, bf16", "few, fp32"]
    for one in found["places"].values():
        assert one["equal"]
        assert {name: times["median"] for name, times in one["milliseconds"].items()} == dict.fromkeys(
            ("bits", "factors", "torch"), 2.0
        )
        assert one["against"]["factors"] == {"median": 1.0, "min": 1.0, "max": 1.0}
    monkeypatch.setitem(bench.WAYS, "factors", lambda x: x)
    assert not bench.equal_to_the_bit((3, 7), torch.float32)
