"""What the tests hold: faults put into the package one at a time, and how many of them a test notices.

    python -m benchmarks.reliability.mutants                            a sample of every package, into results/mutants.json
    python -m benchmarks.reliability.mutants nn decode --seed 3         two packages, other mutants
    python -m benchmarks.reliability.mutants nn/attention.py --count 40 one file
    python -m benchmarks.reliability.mutants --try FILE                 the survivors in such a result file once more, counted there
    python -m benchmarks.reliability.mutants --explained                count again by mutants_explained.json, without a run

It works on a copy of the clone in a temporary folder. For every mutant pytest runs the tests that reach its lines until
one fails: those of the folder of the same name first, the quick before the slow. A test that hangs has noticed too.
Which test reaches which line is recorded first (minutes) and remembered until the tests or the package change.
"""

import hashlib
import json
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness.options import parse
from benchmarks.reliability import mutant_results as results
from benchmarks.reliability import mutation
from benchmarks.reliability.mutant_runs import PACKAGE, Runs, in_copy, told

ROOT = Path(__file__).parents[2]
FILE = ROOT / "benchmarks" / "results" / "mutants.json"
# package: how many mutants of it are tried; None: all
PACKAGES: dict[str, int | None] = {
    "nn": 150,
    "evaluate": 150,
    "checkpoints": 150,
    "train": 90,
    "models/decode.py": None,
    "serve/guard.py": None,
}
TESTS = (
    "nn", "evaluate", "checkpoints", "train", "sequences", "models", "classifier", "tasks", "image", "parity",
    "vectors", "serve",
)  # fmt: skip


def prepare() -> Path:
    """The copy of the clone in which mutants live; every process that a test starts there notes the lines that it runs."""
    place = Path(tempfile.gettempdir()) / f"mutants-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]}"
    tree = place / "tree"
    for name in ("src", "tests", "benchmarks", "docs"):
        shutil.rmtree(tree / name, ignore_errors=True)
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "_build"))
    for file in ROOT.glob("*.*"):
        if file.is_file():
            shutil.copy(file, tree)
    start = tree / "tests" / "_offline" / "sitecustomize.py"
    call = f"import runpy\nrunpy.run_path({str(ROOT / 'benchmarks' / 'reliability' / 'line_trace.py')!r})\n"
    start.write_text(start.read_text(encoding="utf-8") + "\n" + call, encoding="utf-8")
    return tree


def record(tree: Path, sources: list[Path]) -> dict[str, dict[str, Any]]:
    """Every test that passes here, with its seconds and the lines that it runs."""
    cache = tree.parent / "lines"
    cache.mkdir(exist_ok=True)
    package = b"".join(file.read_bytes() for file in sources)
    tests: dict[str, dict[str, Any]] = {}
    for folder in TESTS:
        others = [f for f in sorted((tree / "tests" / folder).glob("*.py")) if f.name[:5] != "test_"]
        beside = b"".join(f.read_bytes() for f in others)
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
    work, log = tree.parent / "work", tree.parent / "log"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    module, name = "benchmarks.reliability.mutant_runs", str(file.relative_to(tree))
    words = [module, str(work / "found"), name, *map(str, sources)]
    if in_copy(tree, words, 500, log) == 0:
        (work / "found").replace(out)
        return
    print(f"could not record {file}, see {log}: its tests are not used", flush=True)
    out.write_text("{}", encoding="utf-8")


def candidates(tree: Path, package: str) -> dict[str, list[mutation.Mutant]]:
    """The mutants of each file of a package (or of one file), by its name below the package's folder."""
    files = sources_of(tree, package)
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


def controls(runs: Runs, found: dict[str, list[mutation.Mutant]]) -> list[str]:
    """Files whose tests fail although nothing was changed: there must be none."""
    wrong = []
    largest = sorted(found, key=lambda name: -len(found[name]))[:2]
    for name in largest:
        same = replace(found[name][len(found[name]) // 2], mutation="nothing", place=(0, 0), instead="")
        answer = runs.judge(same)
        if answer["killed"]:
            wrong.append(f"{name}: {answer['by']}")
    return wrong


def main() -> int:
    """Try mutants and write the result file."""
    given = parse(
        __doc__,
        ("packages", dict(nargs="*", help=f"of {', '.join(PACKAGES)}, or a file")),
        seed=(0, "draws the mutants"),
        count=(int, "mutants of each package named; 0: all"),
        out=(Path, "result file; without it results/mutants.json takes what was run"),
        again=dict(flag="--try", type=Path, help="the survivors of this result file once more"),
        explained=(False, "count again, without a run"),
    )
    out = (given.out or FILE).resolve()
    given.again = given.again and given.again.resolve()
    again = given.again and json.loads(given.again.read_text(encoding="utf-8"))
    if given.explained:
        results.write(out, {}, [], 0)
        return 0
    tree = prepare()
    there = [name if (tree / PACKAGE / name).exists() else f"{name}.py" for name in given.packages]
    packages = there or [*PACKAGES]
    sources = [file for name in PACKAGES for file in sources_of(tree, name)]
    runs = Runs(tree, record(tree, sources))
    wrong: list[str] = []
    for package in packages:
        found = candidates(tree, package)
        count = PACKAGES.get(package) if given.count is None else given.count or None
        chosen = results.survivors(again, package, found) if again else drawn(found, count, given.seed)
        if not again and given.count is None:
            wrong += controls(runs, found)
        tried = []
        for i, one in enumerate(chosen):
            tried.append(runs.judge(one))
            print(told(f"{i + 1}/{len(chosen)}", tried[-1]), flush=True)
        if again:
            results.tried_again(given.again, package, tried)
        else:
            results.write(out, {package: tried}, wrong, given.seed)
    for line in wrong:
        print(f"fails without a mutant: {line}")
    return 1 if wrong else 0


def sources_of(tree: Path, package: str) -> list[Path]:
    """The source files of a package or the file itself."""
    at = tree / PACKAGE / package
    return [at] if at.is_file() else sorted(at.rglob("*.py"))


if __name__ == "__main__":
    sys.exit(main())
