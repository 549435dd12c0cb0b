"""What the tests hold: faults put into the package one at a time, and how many of them a test notices.

    python benchmarks/mutants.py                            a sample of every package, into results/mutants.json
    python benchmarks/mutants.py nn decode --seed 3         two packages, other mutants
    python benchmarks/mutants.py nn/attention.py --count 40 one file
    python benchmarks/mutants.py --try FILE                 the survivors in such a result file once more
    python benchmarks/mutants.py --explained                count again by mutants_explained.json, without a run

It works on a copy of the clone in a temporary folder. One process imports what is heavy (torch, but nothing of ours) and
forks for every mutant; the child runs the tests that reach the mutant's lines until one fails: those of the folder of
the same name first, the quick before the slow. A test that hangs has noticed too. Which test reaches which line is
recorded first (minutes) and remembered until the tests or the package change.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import resource
import runpy
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mutation
import pytest
from mutant_tests import Chosen, Recorder

ROOT = Path(__file__).parents[1]
PACKAGE = "src/glassformer"
FILE = ROOT / "benchmarks" / "results" / "mutants.json"
EXPLAINED = ROOT / "benchmarks" / "mutants_explained.json"
# package: how many mutants of it are tried; None: all
PACKAGES: dict[str, int | None] = {
    "nn": 160,
    "evaluate": 160,
    "checkpoints": 160,
    "train": 100,
    "decode.py": None,
    "serve/guard.py": None,
}
TESTS = (
    "nn", "evaluate", "checkpoints", "train", "sequences", "models", "classifier", "image", "parity", "vectors",
    "serve",
)  # fmt: skip
HEAVY = (
    "torch", "numpy", "hypothesis", "hypothesis.extra.numpy", "sklearn.linear_model", "sklearn.metrics",
    "sklearn.model_selection", "sklearn.feature_extraction.text", "scipy.stats", "pyarrow.parquet", "pandas", "PIL.Image",
    "matplotlib.figure", "numba", "tokenizers", "safetensors.torch", "huggingface_hub", "jinja2", "typer",
    "transformers.models.bert.modeling_bert", "transformers.models.vit.modeling_vit", "sacrebleu", "fastapi", "uvicorn",
    "httptools", "prometheus_client", "peft", "torch.distributed.fsdp", "torch._dynamo", "kornia", "gensim.models",
)  # fmt: skip
SOFT, BUDGET = 20.0, 45.0  # seconds of tests: of the first round, and in all
PATIENCE = 10.0  # seconds beside three times what the tests took
MEMORY = 6 << 30  # bytes beyond what this process has


def prepare() -> Path:
    """The copy of the clone in which mutants live, and this process made ready to fork for them."""
    place = Path(tempfile.gettempdir()) / f"mutants-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]}"
    tree = place / "tree"
    for name in ("src", "tests", "benchmarks", "docs"):
        shutil.rmtree(tree / name, ignore_errors=True)
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "_build"))
    for file in ROOT.glob("*.*"):
        if file.is_file():
            shutil.copy(file, tree)
    start = tree / "tests" / "_offline" / "sitecustomize.py"
    call = f"import runpy\nrunpy.run_path({str(ROOT / 'benchmarks' / 'line_trace.py')!r})\n"
    start.write_text(start.read_text(encoding="utf-8") + "\n" + call, encoding="utf-8")
    os.chdir(tree)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False  # every child imports the package
    runpy.run_path("tests/conftest.py")
    sys.path.insert(0, str(tree / "src"))
    for name in HEAVY:
        with contextlib.suppress(ImportError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(name)
    if any(name.partition(".")[0] == "glassformer" for name in sys.modules):
        raise RuntimeError("the package is loaded before a mutant of it can be")
    return tree


def in_child(work: Callable[[], int], seconds: float, log: Path) -> int | None:
    """The exit code of ``work`` in a fork of this process; None when it took longer. What it started ends with it."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 1)
            os.dup2(said, 2)
            size = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
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


def record(tree: Path, sources: list[Path]) -> dict[str, dict[str, Any]]:
    """Every test that passes here, with its seconds and the lines that it runs."""
    cache = tree.parent / "lines"
    cache.mkdir(exist_ok=True)
    package = b"".join(file.read_bytes() for file in sources)
    tests: dict[str, dict[str, Any]] = {}
    for folder in TESTS:
        beside = b"".join(f.read_bytes() for f in sorted((tree / "tests" / folder).glob("*.py")) if f.name[:5] != "test_")
        for file in sorted((tree / "tests" / folder).glob("test_*.py")):
            key = hashlib.sha256(package + beside + file.read_bytes()).hexdigest()[:24]
            known = cache / f"{file.stem}-{key}.json"
            if not known.exists():
                started = time.perf_counter()
                _record_one(tree, sources, file, known)
                print(f"recorded {folder}/{file.name}: {time.perf_counter() - started:.1f} s", flush=True)
            tests |= json.loads(known.read_text(encoding="utf-8"))
    return tests


def _record_one(tree: Path, sources: list[Path], file: Path, out: Path) -> None:
    work = tree.parent / "work"
    shutil.rmtree(work, ignore_errors=True)
    (work / "lines").mkdir(parents=True)

    def child() -> int:
        recorder = Recorder(sources, work / "lines")
        recorder.root = tree / PACKAGE
        run_pytest(work / "base", [str(file.relative_to(tree))], recorder)
        draft = work / "found.json"
        draft.write_text(json.dumps(recorder.found()), encoding="utf-8")
        draft.replace(out)
        return 0

    log = tree.parent / "log"
    if in_child(child, 500, log) != 0:
        print(f"could not record {file}, see {log}: its tests are not used", flush=True)
        out.write_text("{}", encoding="utf-8")


def tests_for(one: mutation.Mutant, tests: dict[str, dict[str, Any]]) -> list[str]:
    """The tests that reach a mutant, in the order in which they are worth running, within the budget of seconds."""

    def reaching(first: int, last: int) -> list[str]:
        return [
            name
            for name, test in tests.items()
            if any(first <= line <= last for line in test["lines"].get(one.file, ()))
        ]

    names = reaching(one.line, one.end) if one.scope[0] else []
    if one.scope[0] and not names:
        names = reaching(*one.scope)
    names = names or [name for name, test in tests.items() if one.file in test["lines"]]
    place, stem = Path(one.file).parent.as_posix(), Path(one.file).stem
    folder = f"tests/{place.partition('/')[0] if place != '.' else 'sequences'}/"
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
            if spent + tests[name]["seconds"] <= BUDGET or not chosen:
                chosen.append(name)
                spent += tests[name]["seconds"]
    return chosen


class Patient:
    """Tries mutants in the copy, one after the other."""

    def __init__(self, tree: Path, tests: dict[str, dict[str, Any]]):
        self.tree, self.tests = tree, tests
        self.stamp = time.time()
        self.note = tree.parent / "failed"

    def write(self, file: Path, source: str) -> None:
        """With a time of its own, so that no compiled file of another mutant passes for this one."""
        self.stamp += 2
        file.write_text(source, encoding="utf-8")
        os.utime(file, (self.stamp, self.stamp))

    def judge(self, one: mutation.Mutant) -> dict[str, Any]:
        """What becomes of one mutant: ``killed`` (and by which test) or not, and after how many tests."""
        file = self.tree / PACKAGE / one.file
        original = file.read_text(encoding="utf-8")
        names = tests_for(one, self.tests)
        answer: dict[str, Any] = {
            "file": one.file, "line": one.line, "text": one.text, "mutation": one.mutation, "tests": len(names),
            "killed": False,
        }  # fmt: skip
        self.write(file, one.source)
        try:
            for part in self._rounds(names):
                self.note.unlink(missing_ok=True)
                seconds = sum(self.tests[name]["seconds"] for name in part)
                code = in_child(lambda part=part: self._run(part), 3 * seconds + PATIENCE, self.tree.parent / "log")
                if code not in (0, 5):  # 5: pytest found none of them
                    by = self.note.read_text(encoding="utf-8") if self.note.exists() else f"exit code {code}"
                    return answer | {"killed": True, "by": "too slow" if code is None else by}
        finally:
            self.write(file, original)
        return answer

    def _rounds(self, names: list[str]) -> list[list[str]]:
        first: list[str] = []
        spent = 0.0
        for name in names:
            spent += self.tests[name]["seconds"]
            if first and (spent > SOFT or len({n.partition("::")[0] for n in first}) > 5):
                break
            first.append(name)
        return [part for part in (first, names[len(first) :]) if part]

    def _run(self, names: list[str]) -> int:
        files = list(dict.fromkeys(name.partition("::")[0] for name in names))
        return run_pytest(self.tree.parent / "base", ["-x", *files], Chosen(names, self.note))


def candidates(tree: Path, package: str) -> dict[str, list[mutation.Mutant]]:
    """The mutants of each file of a package (or of one file), by its name below the package's folder."""
    at = tree / PACKAGE / package
    files = [at] if at.is_file() else sorted(at.rglob("*.py"))
    if not files:
        raise SystemExit(f"no package or file {package} in {PACKAGE}")
    found = {}
    for file in files:
        name = file.relative_to(tree / PACKAGE).as_posix()
        found[name] = mutation.mutants(name, file.read_text(encoding="utf-8"))
    return {name: of_file for name, of_file in found.items() if of_file}


def drawn(found: dict[str, list[mutation.Mutant]], count: int | None, seed: int) -> list[mutation.Mutant]:
    """``count`` mutants, of each file in proportion to its own number of them and at least one; None: all."""
    total = sum(map(len, found.values()))
    chosen = []
    for of_file in found.values():
        share = len(of_file) if count is None else max(1, round(count * len(of_file) / total))
        chosen += mutation.sample(of_file, share, seed)
    return chosen


def controls(patient: Patient, found: dict[str, list[mutation.Mutant]]) -> list[str]:
    """Files whose tests fail although nothing was changed: there must be none."""
    wrong = []
    largest = sorted(found, key=lambda name: -len(found[name]))[:2]
    for name in largest:
        one = found[name][len(found[name]) // 2]
        same = mutation.Mutant(
            one.file, one.line, one.end, one.scope, one.text, "nothing", one.original, (0, 0), ""
        )
        answer = patient.judge(same)
        if answer["killed"]:
            wrong.append(f"{name}: {answer['by']}")
    return wrong


def main() -> int:
    """Try mutants and write the result file."""
    import mutant_results as results  # reads what this writes

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", help=f"of {', '.join(PACKAGES)}, or a file")
    parser.add_argument("--seed", type=int, default=0, help="draws the mutants")
    parser.add_argument("--count", type=int, help="mutants of each package named; 0: all")
    parser.add_argument("--out", type=Path, help="result file; without it results/mutants.json takes what was run")
    parser.add_argument("--try", dest="again", type=Path, help="the survivors of this result file once more")
    parser.add_argument("--explained", action="store_true", help="count again, without a run")
    given = parser.parse_args()
    out = (given.out or FILE).resolve()
    again = given.again and json.loads(given.again.read_text(encoding="utf-8"))
    if given.explained:
        results.write(out, {}, [], 0)
        return 0
    tree = prepare()
    packages = [name if (tree / PACKAGE / name).exists() else f"{name}.py" for name in given.packages] or [*PACKAGES]
    sources = [file for name in PACKAGES for file in candidates_files(tree, name)]
    patient = Patient(tree, record(tree, sources))
    tried, wrong = {}, []
    for package in packages:
        found = candidates(tree, package)
        count = PACKAGES.get(package) if given.count is None else given.count or None
        chosen = results.survivors(again, package, found) if again else drawn(found, count, given.seed)
        if not again and given.count is None:
            wrong += controls(patient, found)
        tried[package] = []
        for i, one in enumerate(chosen):
            started = time.perf_counter()
            answer = patient.judge(one)
            answer["seconds"] = round(time.perf_counter() - started, 1)
            tried[package].append(answer)
            said = f"killed by {answer['by']}" if answer["killed"] else f"SURVIVED {answer['tests']} tests: {one.mutation}"
            print(f"{i + 1}/{len(chosen)} {one.file}:{one.line} {answer['seconds']} s {said}", flush=True)
        results.write(out, {package: tried[package]}, wrong, given.seed, again is not None)
    for line in wrong:
        print(f"fails without a mutant: {line}")
    return 1 if wrong else 0


def candidates_files(tree: Path, package: str) -> list[Path]:
    """The source files of a package or the file itself."""
    at = tree / PACKAGE / package
    return [at] if at.is_file() else sorted(at.rglob("*.py"))


if __name__ == "__main__":
    sys.exit(main())
