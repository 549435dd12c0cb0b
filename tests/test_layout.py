"""Lines are laid out by the formatter; it passes over tables of numbers only."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Long tables of words and calls, whose files would be over their length if they were laid out.
BY_HAND = {
    "tests/cli/test_signals.py",
    "tests/data/test_tokenizer_file.py",
    "tests/recipes/facts.py",
    "tests/study/test_compare.py",
}


def cells_of(table: ast.expr) -> list[ast.expr]:
    """What stands in a table, row by row; the keys of a dictionary are names of rows."""
    if isinstance(table, ast.Dict):
        return [cell for value in table.values for cell in cells_of(value)]
    if isinstance(table, ast.List | ast.Tuple | ast.Set):
        return [cell for row in table.elts for cell in cells_of(row)]
    return [table.operand] if isinstance(table, ast.UnaryOp) else [table]


def is_table_of_numbers(statement: ast.AST) -> bool:
    """Whether the largest display in it has six cells or more, half of them numbers (or constants by name)."""
    displays = (n for n in ast.walk(statement) if isinstance(n, ast.List | ast.Tuple | ast.Set | ast.Dict))
    cells = max((cells_of(display) for display in displays), key=len, default=[])
    numbers = [
        cell
        for cell in cells
        if (isinstance(cell, ast.Name) and cell.id.isupper())
        or (isinstance(cell, ast.Constant) and isinstance(cell.value, int | float))
    ]
    known = len(numbers) + sum(isinstance(c, ast.Constant) and isinstance(c.value, str) for c in cells)
    return len(cells) >= 6 and known >= 0.9 * len(cells) and len(numbers) >= 0.5 * len(cells)


def laid_out_by_hand(path: Path) -> Iterator[tuple[int, bool]]:
    """Each line that ends what the formatter passes over, and whether that is a table of numbers."""
    text = path.read_text(encoding="utf-8")
    if "# fmt: " not in text:
        return
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    nodes += [decorator for node in nodes for decorator in getattr(node, "decorator_list", [])]
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"# fmt: (skip|off)$", line):
            ending = [n for n in nodes if n.end_lineno == number and not hasattr(n, "body")]
            yield number, any(map(is_table_of_numbers, ending))


def test_only_tables_of_numbers_are_laid_out_by_hand():
    places = [path for name in ("src", "tests") for path in sorted((ROOT / name).rglob("*.py"))]
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in places
        if str(path.relative_to(ROOT)) not in BY_HAND
        for line, is_table in laid_out_by_hand(path)
        if not is_table
    ]
    assert not wrong, "let the formatter lay it out: take `# fmt: skip` away"


@pytest.mark.parametrize(
    ("line", "is_table"),
    [
        ("a = {'x': (1, INF), 'y': (2, 3), 'z': (0, 1)}", True),
        ("a = [[1, -2], [3, 4], [5, 6]]", True),
        ("a = ['u', 'v', 'w', 'x', 'y', 'z']", False),
        ("a = f(1, 2, 3, 4, 5, 6, 7)", False),
        ("a = [1, 2, 3, 4, 5, f(6)]", False),
    ],
)
def test_a_table_of_numbers_is_known(line, is_table):
    assert is_table_of_numbers(ast.parse(line).body[0]) is is_table
