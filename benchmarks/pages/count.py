"""How large is the code? Lines and files of each part, the longest functions, imports between modules.

    .venv/bin/python -m benchmarks.pages.count

Lines are all lines of ``.py`` files, and those that are not blank. An arrow is a module of a folder that imports
another one of it, at the top or inside a function; a circle is a set of modules that reach one another.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "glassformer"
PARTS = ("src", "tests", "benchmarks", "labs")
LONGEST = 5


def sizes(folder: Path) -> tuple[int, int, int]:
    """Files, lines and lines that are not blank below a folder."""
    texts = [path.read_text(encoding="utf-8").splitlines() for path in sorted(folder.rglob("*.py"))]
    return len(texts), sum(map(len, texts)), sum(bool(line.strip()) for lines in texts for line in lines)


def functions(folder: Path) -> Iterator[tuple[int, str]]:
    """Lines and place of each function below a folder."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield lines, f"{path.relative_to(folder.parent)}:{node.name}"


def arrows(folder: Path, package: str) -> dict[str, set[str]]:
    """Module -> the other modules of the folder that it imports; ``package`` is the folder's dotted name."""
    names = {
        ".".join((package, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in folder.rglob("*.py")
    }
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        asked: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                asked |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                whole = {f"{node.module}.{alias.name}" for alias in node.names} & names.keys()
                asked |= whole or {node.module}
        found[name] = asked & names.keys() - {name}
    return found


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The sets of modules that reach one another, each sorted."""
    reached = {name: _reach(graph, name) for name in graph}
    inside = [name for name in graph if name in reached[name]]
    return sorted(map(sorted, {frozenset(x for x in reached[name] if name in reached[x]) for name in inside}))


def _reach(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    todo = [*graph[start]]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += graph[name]
    return seen


def report() -> str:
    """Everything, as Markdown."""
    lines = ["| Part | Files | Lines | Not blank |", "|---|---|---|---|"]
    folders = [path for path in sorted(PACKAGE.iterdir()) if path.is_dir() and any(path.rglob("*.py"))]
    for path in [*(ROOT / part for part in PARTS), *folders]:
        files, every, full = sizes(path)
        lines.append(f"| {path.relative_to(ROOT)} | {files} | {every:,} | {full:,} |")
    lines += ["", "| Folder | Modules | Arrows | Circles | Longest functions |", "|---|---|---|---|---|"]
    for path in folders:
        graph = arrows(path, f"glassformer.{path.name}")
        longest = sorted(functions(path), reverse=True)[:LONGEST]
        told = ", ".join(f"{place.rpartition(':')[2]} {n}" for n, place in longest)
        named = [" ".join(name.rpartition(".")[2] for name in one) for one in circles(graph)]
        round_ = "; ".join(named) or "none"
        lines.append(f"| {path.name} | {len(graph)} | {sum(map(len, graph.values()))} | {round_} | {told} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(report() + "\n")
