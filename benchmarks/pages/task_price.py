"""What each task costs: its folder, the files beyond it that no other task needs, and the lines elsewhere that name these.

    .venv/bin/python -m benchmarks.pages.task_price [--out benchmarks/results/task-price.json]

Read from the imports of the package, wherever they stand in a file. A file beyond the folders belongs to a task where
only that task's folder leads to it (its doctor, report, export), or where it leads to that task's files and to no
other's (its part of the command line, the server, the folds). What several tasks need belongs to none. Of every other
file those lines count that import one of a task's files or name what such an import brought.
"""

import ast
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.harness.options import parse
from benchmarks.harness.results import RESULTS, ROOT, commit, write_result
from benchmarks.pages import markdown

PACKAGE = ROOT / "src" / "glassformer"


@cache
def files() -> dict[str, Path]:
    """Every module by its dotted name below the package."""
    paths = [p for p in sorted(PACKAGE.rglob("*.py")) if p.name != "__init__.py"]
    return {".".join(p.relative_to(PACKAGE).with_suffix("").parts): p for p in paths}


@cache
def tree_of(name: str) -> ast.Module:
    return ast.parse(files()[name].read_text(encoding="utf-8"))


@cache
def brought(name: str, path: Path | None = None) -> tuple[tuple[int, str, str], ...]:
    """(line, module, the name that it is called by there) of every import of one of ours."""
    found = []
    for node in ast.walk(tree_of(name) if path is None else ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("glassformer"):
            continue
        module = (node.module or "").removeprefix("glassformer").lstrip(".")
        for alias in node.names:
            below = f"{module}.{alias.name}".lstrip(".")
            target = below if below in files() else module
            if target in files():
                found.append((node.lineno, target, alias.asname or alias.name))
    return tuple(found)


def folder_of(name: str) -> str | None:
    """The task in whose folder a module lies."""
    parts = name.split(".")
    return parts[1] if parts[0] == "tasks" and len(parts) == 3 else None


# Parts of verbs that every task goes through, though one task's file is all that they import by name.
GENERAL = {
    "cli.app", "cli.data", "cli.demo", "cli.doctor", "cli.evaluate", "cli.explain", "cli.output", "cli.predict",
    "cli.reproduce", "cli.predictions", "cli.train", "serve.app", "serve.models", "serve.run", "study.results",
}  # fmt: skip
DISPATCH = ("cli", "serve", "study", "scale", "glassformer")  # units that lead to every task
HOUSE = {"tasks.catalog", "tasks.load", "tasks.run"}  # and these files


@cache
def importers() -> dict[str, set[str]]:
    """Module -> the modules that import it; a package's own file stands for its folder."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts if parts[-1] != "__init__" else parts[:-1]) or "glassformer"
        for _, target, _ in brought(name, path):
            found[target].add(name)
    return found


def leads(name: str) -> bool:
    """Whether a module leads to every task."""
    return name.split(".")[0] in DISPATCH or name in HOUSE


def owners() -> dict[str, str]:
    """Module -> the task that it is there for; what several need, or the package gives to its users, is nobody's."""
    found: dict[str, str] = {name: task for name in files() if (task := folder_of(name))}
    while True:  # downward: what only one task's files import
        more: dict[str, str] = {}
        for name in files():
            if name in found or leads(name):
                continue
            asking = [one for one in importers()[name] if not leads(one)]
            tasks = {found.get(one) for one in asking}
            if len(tasks) == 1 and (task := tasks.pop()) is not None:
                more[name] = task
        if not more:
            break
        found |= more
    below = dict(found)
    for name in files():  # upward: what leads to one task's files and to no other's
        if name.split(".")[0] in DISPATCH[:-1] and name not in GENERAL:
            led = {below[target] for _, target, _ in brought(name) if target in below}
            found |= {name: led.pop()} if len(led) == 1 else {}
    return found


def lines_of(name: str) -> int:
    return len(files()[name].read_text(encoding="utf-8").splitlines())


def prices() -> list[dict[str, Any]]:
    """Of each task what it costs, the dearest first."""
    there = owners()
    tasks = sorted({t for name in files() if (t := folder_of(name))})
    out = []
    for task in tasks:
        own = {name for name, tasks in there.items() if tasks == task}
        inside = sorted(name for name in own if folder_of(name))
        elsewhere = {name: count for name in files() if name not in own and (count := len(naming(name, own)))}
        folder = {"files": len(inside), "lines": sum(map(lines_of, inside))}
        beyond = {name: lines_of(name) for name in sorted(own - set(inside))}
        about = {"task": task.replace("_", "-"), "folder": folder}
        out.append(about | {"beyond": beyond, "elsewhere": elsewhere})
    return sorted(out, key=lambda row: -sum(row["beyond"].values()))


def table(found: list[dict[str, Any]] | None = None) -> str:
    """Prices as a table for the documentation: those of the result file, unless others are given."""
    rows = found or json.loads((RESULTS / "task-price.json").read_text(encoding="utf-8"))["tasks"]
    cells = []
    for row in rows:
        folder, beyond, elsewhere = row["folder"], row["beyond"], row["elsewhere"]
        own = f"{folder['files']}, {folder['lines']:,}", f"{len(beyond)}, {sum(beyond.values()):,}"
        cells.append((row["task"], *own, f"{sum(elsewhere.values())}, {len(elsewhere)}"))
    head = "Task | Its folder: files, lines | Files beyond it, their lines | Lines elsewhere, in files"
    return "\n".join(markdown.table(head, cells))


@cache
def functions_of(name: str) -> list[Any]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in ast.walk(tree_of(name)) if isinstance(node, kinds)]


def naming(name: str, own: set[str]) -> set[int]:
    """The lines of a module that import from some modules, or name what these imports brought where it holds."""
    out: set[int] = set()
    for line, target, called in brought(name):
        if target not in own:
            continue
        around = [f for f in functions_of(name) if f.lineno <= line <= (f.end_lineno or 0)]
        inner: ast.AST = max(around, key=lambda f: f.lineno) if around else tree_of(name)
        out |= {n.lineno for n in ast.walk(inner) if isinstance(n, ast.Name) and n.id == called} | {line}
    return out


def main() -> None:
    args = parse(__doc__, out=RESULTS / "task-price.json")
    found = prices()
    write_result(args.out, {"commit": commit(), "tasks": found})
    print(table(found))


if __name__ == "__main__":
    main()
