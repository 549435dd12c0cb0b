"""The project's own tests with the network shut, counted: who tried to reach another machine?

python -m benchmarks.reliability.offline_suite OUT.json tests/data tests/train ...      what ``suite`` starts for each part
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.processes import scratch

ROOT = Path(__file__).parents[2]
QUICK = ["-q", "-m", "not slow", "-p", "no:cacheprovider", "-n", "0"]


class Count:
    """A pytest plugin: the attempts in the time of each test, and all there were. tests/conftest.py notes them."""

    def __init__(self) -> None:
        self.tests: list[dict[str, Any]] = []
        self.collected = 0

    def attempts(self) -> int:
        log = Path(os.environ["GLASSFORMER_NETWORK_LOG"])
        return len(log.read_text(encoding="utf-8").splitlines()) if log.exists() else 0

    def pytest_collection_finish(self, session: Any) -> None:
        self.collected = len(session.items)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        before = self.attempts()
        yield
        meant = item.get_closest_marker("reaches_out") is not None  # it tests the guard itself
        tried = self.attempts() - before
        counts = {"tried": 0, "meant": tried} if meant else {"tried": tried, "meant": 0}
        self.tests.append({"test": item.nodeid} | counts)


def count(arguments: list[str]) -> dict[str, Any]:
    """Run pytest in this process; every test with its attempts, and those made between tests."""
    plugin = Count()
    pytest.main(arguments, plugins=[plugin])
    between = plugin.attempts() - sum(test["tried"] + test["meant"] for test in plugin.tests)
    return {"tests": plugin.tests, "between": between, "collected": plugin.collected}


def _in_own_process(*arguments: str) -> dict[str, Any]:
    with scratch() as home:
        out = home / "out.json"
        command = [sys.executable, "-m", "benchmarks.reliability.offline_suite", str(out), *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if not out.exists():
            raise RuntimeError(done.stdout + done.stderr)
        return json.loads(out.read_text(encoding="utf-8"))


def collected() -> int:
    """How many tests ``make test`` has."""
    return _in_own_process("--collect-only", "tests")["collected"]


def suite(parts: list[str]) -> list[dict]:
    """The quick tests of these folders or files, one after the other: did each test keep to this machine?"""
    out = []
    for part in parts:
        found = _in_own_process(part)
        out += [{"test": t["test"], "answer": part, "passed": t["tried"] == 0} for t in found["tests"]]
        if found["between"]:
            out.append({"test": f"between the tests of {part}", "answer": part, "passed": False})
    return out


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(count([*QUICK, *sys.argv[2:]])), encoding="utf-8")
