"""Trying mutants, for `mutants.py`: a child for each, the tests worth running in it, and what became of it."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import shutil
import signal
import time
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.reliability import line_trace, mutation
from benchmarks.reliability.mutation import Mutant


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


UNFIT = 71  # exit code: this one needs its module imported anew


def fits(one: Mutant, source: str) -> bool:
    """Whether a mutant lies in a function's body and nowhere else: defaults and classes are made by an import."""
    if not one.scope[0]:
        return False
    try:
        before, after = _functions(source, one.file), _functions(one.source, one.file)
    except SyntaxError:
        return False
    if len(before) != len(after) or _module_level(source, one.file) != _module_level(one.source, one.file):
        return False
    return "njit" not in source and any(a != b for (_, a), (_, b) in zip(before, after))


def loaded() -> dict[str, list[types.FunctionType]]:
    """Every function of this process by its file."""
    found: dict[str, list[types.FunctionType]] = {}
    for function in gc.get_objects():
        if type(function) is types.FunctionType:
            found.setdefault(function.__code__.co_filename, []).append(function)
    return found


def swap(one: Mutant, source: str, path: str, functions: list[types.FunctionType]) -> bool:
    """Give the loaded functions of a file the mutant's code; False where that cannot be done.

    A file that has not been imported yet needs nothing: its import will read the mutant.
    """
    wanted: dict[tuple[str, int], types.CodeType] = {}
    for (name, before), (_, after) in zip(_functions(source, path), _functions(one.source, path)):
        if before != after:
            wanted[name, before.co_firstlineno] = after
    for function in functions:
        code = wanted.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
        if code is None:
            continue
        if code.co_freevars != function.__code__.co_freevars:
            return False
        function.__code__ = code
    return True


def _functions(source: str, path: str) -> list[tuple[str, types.CodeType]]:
    """The functions of a module and of its classes, those inside functions left out, in their order."""

    def within(code: types.CodeType) -> Iterator[tuple[str, types.CodeType]]:
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType):
                if inner.co_flags & 0x2:  # CO_NEWLOCALS: a function, not a class body
                    yield inner.co_qualname, inner
                else:
                    yield from within(inner)

    return list(within(compile(source, path, "exec", dont_inherit=True)))


def _module_level(source: str, path: str) -> list[object]:
    """What an import of the module runs itself, in a form that compares equal where it does the same."""

    def within(code: types.CodeType) -> Iterator[object]:
        yield code.co_code
        yield [c for c in code.co_consts if not isinstance(c, types.CodeType)]
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType) and not inner.co_flags & 0x2:
                yield from within(inner)

    return list(within(compile(source, path, "exec", dont_inherit=True)))


PACKAGE = "src/glassformer"
SOFT, BUDGET = 8.0, 12.0  # seconds of tests: of the first round, and in all
PATIENCE = (
    60.0  # seconds beside a few times what tests took: the machine may be busy, and an import takes its time
)
MEMORY = 6 << 30  # bytes beyond what this process has


def in_child(work: Callable[[], int], seconds: float, log: Path | None) -> int | None:
    """The exit code of ``work`` in a fork of this process; None when it took longer. What it started ends with it.

    ``log`` takes what it says; None leaves that to pytest.
    """
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.setsid()
            if log is not None:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(said, 1)
                os.dup2(said, 2)
            size = (
                int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
            )
            resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
            code = int(work())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    status = None
    while status is None and time.monotonic() < end:
        pid, answer = os.waitpid(child, os.WNOHANG)
        if pid:
            status = os.waitstatus_to_exitcode(answer)
        else:
            time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
    return status


def run_pytest(base: Path, arguments: Sequence[str], plugin: Any) -> int:
    """pytest in this process, its temporary folders below ``base``."""
    always = ["-q", "-n0", "-p", "no:cacheprovider", "-m", "not slow and not data", f"--basetemp={base}"]
    always += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis is imported already
    return pytest.main([*always, *arguments], plugins=[plugin])


def tests_for(one: mutation.Mutant, tests: dict[str, dict[str, Any]]) -> list[str]:
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
        self.note = tree.parent / "failed"
        self.loaded: dict[str, list[Any]] = {}
        self.slowest: dict[str, float] = {}  # test of each file, which may have made what its others use too
        for name, test in tests.items():
            file = name.partition("::")[0]
            self.slowest[file] = max(self.slowest.get(file, 0.0), test["seconds"])

    def write(self, file: Path, source: str) -> None:
        """With a time of its own, so that no compiled file of another mutant passes for this one."""
        self.stamp += 2
        file.write_text(source, encoding="utf-8")
        os.utime(file, (self.stamp, self.stamp))

    def judge(self, one: mutation.Mutant, collected: Collected | None = None) -> dict[str, Any]:
        """What becomes of one mutant: ``killed`` (and by which test) or not, and after how many tests.

        In a process that has the tests ``collected`` and the package loaded, the mutant is swapped in; without, its
        child imports everything. ``killed`` is None where only the latter will do.
        """
        started = time.perf_counter()
        file = self.tree / PACKAGE / one.file
        original = one.original.decode()
        names = tests_for(one, self.tests)
        answer: dict[str, Any] = {
            "file": one.file, "line": one.line, "text": one.text, "mutation": one.mutation, "tests": len(names),
            "killed": False,
        }  # fmt: skip
        self.write(file, one.source)
        try:
            for part in [names] if collected and names else self._rounds(names):
                self.note.unlink(missing_ok=True)
                files = {name.partition("::")[0] for name in part}
                limit = 3 * sum(self.tests[name]["seconds"] for name in part) + PATIENCE
                limit += 3 * sum(self.slowest[file] for file in files)
                if collected:
                    code = in_child(lambda part=part: self._swapped(one, part, collected), limit, None)
                else:
                    code = in_child(lambda part=part: self._imported(part), limit, self.tree.parent / "log")
                if code == UNFIT:
                    return answer | {"killed": None}
                if code not in (0, 5):  # 5: pytest found none of them
                    by = self.note.read_text(encoding="utf-8") if self.note.exists() else f"exit code {code}"
                    answer |= {"killed": True, "by": "too slow" if code in (None, -signal.SIGALRM) else by}
                    break
        finally:
            self.write(file, original)
            shutil.rmtree(self.tree.parent / "base", ignore_errors=True)
        return answer | {"seconds": round(time.perf_counter() - started, 1)}

    def _rounds(self, names: list[str]) -> list[list[str]]:
        first: list[str] = []
        spent = 0.0
        for name in names:
            spent += self.tests[name]["seconds"]
            if first and (spent > SOFT or len({n.partition("::")[0] for n in first}) > 5):
                break
            first.append(name)
        return [part for part in (first, names[len(first) :]) if part]

    def _imported(self, names: list[str]) -> int:
        files = list(dict.fromkeys(name.partition("::")[0] for name in names))
        return run_pytest(self.tree.parent / "base", ["-x", *files], Chosen(names, self.note))

    def _swapped(self, one: mutation.Mutant, names: list[str], collected: Collected) -> int:
        path = str(self.tree / PACKAGE / one.file)
        if not swap(one, one.original.decode(), path, self.loaded.get(path, [])):
            return UNFIT
        base = self.tree.parent / "base"
        base.mkdir(exist_ok=True)
        patience = {name: 30 + 4 * self.slowest[name.partition("::")[0]] for name in names}
        return collected.run(patience, base, self.note)

    def judge_all(self, chosen: list[mutation.Mutant]) -> list[dict[str, Any]]:
        """All of a package: first those that can be swapped in, in a process that has everything loaded."""
        answers: dict[mutation.Mutant, dict[str, Any]] = {}
        out = self.tree.parent / "answers"
        out.write_text("", encoding="utf-8")
        quick = [one for one in chosen if fits(one, one.original.decode())]
        say = os.fdopen(os.dup(1), "w", buffering=1)

        def work(collected: Collected) -> None:
            self.loaded = loaded()
            gc.collect()
            gc.freeze()  # no child copies what it only looks at
            for i, one in enumerate(quick):
                answer = self.judge(one, collected)
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(answer) + "\n")
                say.write(told(f"{i + 1}/{len(chosen)}", answer))

        def session() -> int:
            return run_pytest(self.tree.parent / "session", ["-x", *self._files(quick)], Collected(work))

        if quick:
            in_child(session, 24 * 3600, self.tree.parent / "session.log")
        lines = out.read_text(encoding="utf-8").splitlines()
        for one, line in zip(quick, lines):
            answers[one] = json.loads(line)
        for one in chosen:
            if answers.get(one, {}).get("killed") is None:
                answers[one] = self.judge(one)
                say.write(told(f"{len(answers)}/{len(chosen)}", answers[one]))
        return [answers[one] for one in chosen]

    def _files(self, chosen: list[mutation.Mutant]) -> list[str]:
        names = (name for one in chosen for name in tests_for(one, self.tests))
        return sorted({name.partition("::")[0] for name in names})


def told(turn: str, answer: dict[str, Any]) -> str:
    """One line about one mutant."""
    fate = {True: f"killed by {answer.get('by')}", None: "needs an import"}.get(
        answer["killed"], f"SURVIVED {answer['tests']} tests: {answer['mutation']}"
    )
    return f"{turn} {answer['file']}:{answer['line']} {answer.get('seconds', 0)} s {fate}\n"
