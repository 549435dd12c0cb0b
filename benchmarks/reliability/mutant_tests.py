"""pytest, from the inside, for `mutants.py`: which test runs which line, and a chosen few tests in a given order."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.reliability import line_trace


class Recorder:
    """Takes down, for each test, the watched lines that it ran, its seconds and whether it passed.

    What a fixture of a wider scope runs belongs to every test that uses it, not to the first alone.
    """

    def __init__(self, files: Sequence[Path], folder: Path):
        self.root = Path(os.path.commonpath([str(file.parent) for file in files]))
        self.folder = folder
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


class Chosen:
    """Only these tests, in this order; the first that fails is written down."""

    def __init__(self, names: Sequence[str], note: Path):
        self.rank = {name: i for i, name in enumerate(names)}
        self.note = note

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.rank), key=lambda i: self.rank[i.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.note.exists():
            self.note.write_text(report.nodeid, encoding="utf-8")


class Collected:
    """A session that has collected every test and then hands itself to ``work`` in the place of running them."""

    def __init__(self, work: Callable[[Collected], None]):
        self.work = work
        self.items: dict[str, pytest.Item] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.session = session
        self.items = {item.nodeid: item for item in session.items}
        self.work(self)
        return True

    def run(self, names: dict[str, float], base: Path, note: Path) -> int:
        """Run these tests in this process until one fails; 1 then, 0 when all passed.

        A test that takes longer than its seconds here ends the process: SIGALRM does that.
        """
        chosen = [self.items[name] for name in names if name in self.items]
        self.session.config._tmp_path_factory._basetemp = base  # type: ignore[attr-defined]
        before = self.session.testsfailed
        for item, following in zip(chosen, [*chosen[1:], None]):
            signal.alarm(int(names[item.nodeid]))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.session.testsfailed > before:
                note.write_text(item.nodeid, encoding="utf-8")
                return 1
        return 0
