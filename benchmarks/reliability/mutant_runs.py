"""Trying mutants, for `mutants.py`: which tests reach a line, those worth running for a mutant, and what became of it.

python -m benchmarks.reliability.mutant_runs OUT TESTS SOURCE ...       the lines of these sources that each test runs
"""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.reliability import line_trace
from benchmarks.reliability.mutation import Mutant

PACKAGE = "src/glassformer"
BUDGET = 12.0  # seconds of tests for a mutant
PATIENCE = (
    60.0  # seconds beside a few times what tests took: the machine may be busy, and an import takes its time
)
MEMORY = 24 << 30  # bytes of addresses that a process may have
QUICK = ["-q", "-n0", "-p", "no:cacheprovider", "-m", "not slow and not data"]


class Recorder:
    """Takes down, for each test, the watched lines that it ran, its seconds and whether it passed.

    What a fixture of a wider scope runs belongs to every test that uses it, not to the first alone.
    """

    def __init__(self, files: Sequence[Path], folder: Path):
        self.root, self.folder = Path.cwd() / PACKAGE, folder
        names = [str(file) for file in files]
        os.environ[line_trace.FOLDER], os.environ[line_trace.FILES] = str(folder), os.pathsep.join(names)
        self.lines = line_trace.watch(names)
        self.of_fixture: dict[str, set[tuple[str, int]]] = {}
        self.tests: dict[str, dict[str, Any]] = {}
        self.fixtures: dict[str, list[str]] = {}

    def _take(self) -> set[tuple[str, int]]:
        found = set(self.lines)
        for file in self.folder.glob("*.json"):
            found |= {(name, line) for name, line in json.loads(file.read_text(encoding="utf-8"))}
            file.unlink()
        self.lines.clear()
        return found

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        before = self._take()
        try:
            return (yield)
        finally:
            self.of_fixture.setdefault(fixturedef.argname, set()).update(self._take())
            self.lines |= before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: Any) -> Iterator[None]:
        self._take()
        started = time.perf_counter()
        test = self.tests[item.nodeid] = {"passed": False, "seconds": 0.0, "lines": set()}
        answer = yield
        test["seconds"] = round(time.perf_counter() - started, 3)
        test["lines"] = self._take()
        self.fixtures[item.nodeid] = list(getattr(item, "fixturenames", ()))
        return answer

    def pytest_runtest_logreport(self, report: Any) -> None:
        test = self.tests[report.nodeid]
        if report.when == "setup":
            test["passed"] = report.passed
        elif not report.passed:
            test["passed"] = False

    def found(self) -> dict[str, dict[str, Any]]:
        """For each test that passed: seconds, and for each file (its name below the sources) the lines."""
        out = {}
        for name, test in self.tests.items():
            if not test["passed"]:
                continue
            lines = test["lines"].union(*(self.of_fixture.get(f, set()) for f in self.fixtures[name]))
            of_file: dict[str, list[int]] = {}
            for file, line in sorted(lines):
                of_file.setdefault(Path(file).relative_to(self.root).as_posix(), []).append(line)
            out[name] = {"seconds": test["seconds"], "lines": of_file}
        return out


def in_copy(tree: Path, words: Sequence[str], seconds: float, log: Path) -> int | None:
    """The exit code of Python in the copy; None when it took longer. What it started ends with it."""

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))

    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", *words], cwd=tree, stdin=subprocess.DEVNULL, stdout=said,
            stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=bound,
        )  # fmt: skip
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def tests_for(one: Mutant, tests: dict[str, dict[str, Any]]) -> list[str]:
    """The tests that reach a mutant, the most promising first: its own file, and others within a budget."""

    def reaching(first: int, last: int) -> list[str]:
        return [
            name
            for name, test in tests.items()
            if any(first <= line <= last for line in test["lines"].get(one.file, ()))
        ]

    names = reaching(one.line, one.end) or reaching(*one.statement)
    if not one.scope[0] or b"njit" in one.original:  # run by an import, or where no line can be watched
        names = [name for name, test in tests.items() if one.file in test["lines"]]
    place, stem = Path(one.file).parent.as_posix(), Path(one.file).stem
    folder = f"tests/{place.partition('/')[0] if place != '.' else 'sequences'}/"
    if not one.scope[0]:
        names = names or [name for name in tests if name.startswith(folder)]

    files: dict[str, list[str]] = {}
    for name in names:
        files.setdefault(name.partition("::")[0], []).append(name)

    def rank(file: str) -> tuple[int, float]:
        near = 0 if Path(file).stem == f"test_{stem}" else 1 if file.startswith(folder) else 2
        return near, sum(tests[name]["seconds"] for name in files[file])

    chosen, spent = [], 0.0
    for file in sorted(files, key=rank):
        for name in sorted(files[file], key=lambda n: tests[n]["seconds"]):
            if spent + tests[name]["seconds"] <= BUDGET or not chosen or not rank(file)[0]:
                chosen.append(name)
                spent += tests[name]["seconds"]
    return chosen


class Runs:
    """Tries mutants in the copy, one after the other."""

    def __init__(self, tree: Path, tests: dict[str, dict[str, Any]]):
        self.tree, self.tests = tree, tests
        self.stamp = time.time()

    def write(self, file: Path, source: str) -> None:
        """With a time of its own, so that no compiled file of another mutant passes for this one."""
        self.stamp += 2
        file.write_text(source, encoding="utf-8")
        os.utime(file, (self.stamp, self.stamp))

    def judge(self, one: Mutant) -> dict[str, Any]:
        """What becomes of one mutant: ``killed`` (and by which test) or not, and after how many tests."""
        started, file, log = time.perf_counter(), self.tree / PACKAGE / one.file, self.tree.parent / "log"
        names = tests_for(one, self.tests)
        answer: dict[str, Any] = {
            "file": one.file, "line": one.line, "text": one.text, "mutation": one.mutation, "tests": len(names),
            "killed": False,
        }  # fmt: skip
        limit = 3 * sum(self.tests[name]["seconds"] for name in names) + PATIENCE
        self.write(file, one.source)
        try:
            code = in_copy(self.tree, ["pytest", "-x", *QUICK, *names], limit, log) if names else 0
        finally:
            self.write(file, one.original.decode())
        if code != 0:
            said, line = log.read_text("utf-8", "replace"), r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$"
            failed = re.search(line, said, re.MULTILINE)
            by = "too slow" if code is None else failed[1] if failed else f"exit code {code}"
            answer |= {"killed": True, "by": by}
        return answer | {"seconds": round(time.perf_counter() - started, 1)}


def told(turn: str, answer: dict[str, Any]) -> str:
    """One line about one mutant."""
    fate = f"killed by {answer.get('by')}"
    if not answer["killed"]:
        fate = f"SURVIVED {answer['tests']} tests: {answer['mutation']}"
    return f"{turn} {answer['file']}:{answer['line']} {answer['seconds']} s {fate}"


if __name__ == "__main__":
    out, tests, *sources = map(Path, sys.argv[1:])
    recorder = Recorder([path.resolve() for path in sources], out.parent)
    pytest.main([*QUICK, str(tests)], plugins=[recorder])
    out.write_text(json.dumps(recorder.found()), encoding="utf-8")
