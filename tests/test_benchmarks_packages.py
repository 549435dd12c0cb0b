"""The matrix of packages: its table, and that what the package says of itself was tried."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from .benchmark_tools import benchmark

ROOT = Path(__file__).parents[1]
tables = benchmark("tables")

PASSED = {"seconds": 2.0, "load_before": 0.5}


def column(**steps) -> dict:
    return {"python": "3.13.0", "package": "wheel", "torch": "any", "installer": "uv", "steps": steps}


def told(monkeypatch, *tried: dict) -> list[str]:
    result = {"tried": list(tried), "machine": {"cpu": "a processor"}}
    monkeypatch.setattr(benchmark("markdown"), "read", lambda name: result)
    return tables.packages().splitlines()


def test_a_column_counts_what_passed(monkeypatch):
    steps = {
        "core": PASSED,
        "torch": PASSED | {"said": "2.13.0+cu130"},
        "demo --quick": {"seconds": 17.4, "load_before": 1.26, "processor_seconds": 15.6},
        "tests": PASSED | {"said": "113 passed, 2 skipped in 7.00s"},
        "[onnx]": PASSED,
        "[onnx] imports": PASSED,
        "[onnx] tests": PASSED | {"said": "3 passed in 1.00s"},
        "[scale]": {"failed": "no wheel"},
        "[mlflow]": PASSED,
        "[mlflow] imports": PASSED,
        "[mlflow] tests": {"failed": "1 failed"},
    }
    lines = told(monkeypatch, column(**steps))
    assert lines[2] == (
        "| 3.13.0 | wheel | 2.13.0+cu130 | 17 s, load 1; 16 s of the processor | 113 | 2 of 3, not [scale] | 3, failures in [mlflow] |"
    )
    assert lines[-1].startswith("Installed by uv on 3.13,")


def test_a_core_that_was_not_installed_says_why(monkeypatch):
    lines = told(
        monkeypatch, column(core={"failed": "no torch for this Python\nmore"}), column() | {"python": "3.9.1"}
    )
    assert lines[2] == "| 3.9.1 | wheel | any build | not reached | | | |"
    assert lines[3] == "| 3.13.0 | wheel | any build | no torch for this Python | | | |"


def test_the_named_pythons_were_tried():
    result = json.loads((ROOT / "benchmarks" / "results" / "packages.json").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = set(re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"])))
    needed = ("core", "demo --quick", "tests")
    passed = {
        t["python"].rpartition(".")[0]
        for t in result["tried"]
        if t["package"] == "wheel" and all("seconds" in t["steps"].get(step, {}) for step in needed)
    }
    assert named
    assert named <= passed


def test_pages_that_were_looked_at_before_keep_their_day():
    merged = pytest.importorskip("playwright") and benchmark("pages").merged

    def result(day: str, *names: str, **faults: list[str]) -> dict:
        told = {f"{name}, 400 px, dark": found for name, found in faults.items()}
        return {
            "date": day,
            "commit": day,
            "pages": [*names],
            "views": 4 * len(names),
            "longest_line": 70,
            "faults": told,
        }

    first = result("mon", "a", "b", "c", a=["wide"], b=["pale"])
    second = merged(first, result("tue", "b", "d"))
    assert second["faults"] == {"a, 400 px, dark": ["wide"]}
    third = merged(second, result("wed", "a", a=["long"]))
    assert third["earlier"] == [
        {"date": "mon", "commit": "mon", "pages": ["c"]},
        {"date": "tue", "commit": "tue", "pages": ["b", "d"]},
    ]
    assert (third["pages"], third["views"]) == (["a", "c", "b", "d"], 16)
    assert third["faults"] == {"a, 400 px, dark": ["long"]}
