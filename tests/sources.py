"""The package's modules as syntax trees, parsed once for all the rules that read them."""

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "glassformer"


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))
