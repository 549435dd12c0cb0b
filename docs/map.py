"""The list of files in architecture.md, made from the package: ``python docs/map.py`` (or ``make map``).

What is written there by hand, the levels, is read here, so that the page is the one place for it; the tests
enforce the levels through this file.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = ROOT / "src" / "glassformer"
START, END = "<!-- map: written by docs/map.py -->\n", "<!-- end of map -->\n"
WIDTH, COLUMN = 110, 30


def read_levels(page: str) -> tuple[dict[str, int], set[tuple[str, str]]]:
    """The level of every unit, and the pairs (importer, imported) of one level that arrows lead along.

    A line of the picture is a number, names with arrows, and after three blanks what it means.
    """
    levels: dict[str, int] = {}
    arrows: set[tuple[str, str]] = set()
    picture = page.split("## Levels", 1)[1].split("```")[1]
    for line in picture.splitlines():
        if not (match := re.match(r" (\d)  (.*)", line)):
            continue
        words = [word.rstrip("/") for word in match[2].split("   ")[0].split()]
        for i, word in enumerate(words):
            if "─" not in word:
                levels[word] = int(match[1])
            if word.endswith("▶"):
                arrows.add((words[i - 1], words[i + 1]))
            if word.startswith("◀"):
                arrows.add((words[i + 1], words[i - 1]))
    while further := {(a, d) for a, b in arrows for c, d in arrows if b == c and a != d} - arrows:
        arrows |= further
    return levels, arrows


def summary(file: Path) -> str:
    """The first paragraph of a module's docstring."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("``", "").rstrip(".")


def tree(levels: dict[str, int]) -> str:
    """Every module with its summary, highest level first."""
    lines: list[str] = []

    def add(name: str, text: str) -> None:
        first, *rest = textwrap.wrap(text, WIDTH - COLUMN) or [""]
        if len(name) >= COLUMN:  # a long name has a line of its own
            lines.append(name)
            name = ""
        lines.append(f"{name:{COLUMN}}{first}".rstrip())
        lines.extend(" " * COLUMN + line for line in rest)

    for unit in sorted(levels, key=lambda unit: -levels[unit]):
        folder, file = PACKAGE / unit, PACKAGE / f"{unit}.py"
        if file.exists():
            add(f"{levels[unit]}  {file.name}", summary(file))
            continue
        add(f"{levels[unit]}  {unit}/", summary(folder / "__init__.py"))
        for module in sorted(folder.rglob("*.py")):
            if module.name != "__init__.py":
                add(f"       {module.relative_to(folder).as_posix()}", summary(module))
    return "\n".join(lines)


def update(page: str) -> str:
    """The page with the list as the package is now."""
    before, rest = page.split(START)
    after = rest.split(END)[1]
    return f"{before}{START}```\n{tree(read_levels(page)[0])}\n```\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(update(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
