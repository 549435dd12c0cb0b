"""Write the labs, the practical and the quickstarts as Jupyter notebooks.

    python labs/notebooks.py [--check]      notebooks go to labs/notebooks/, without outputs

The source stays the file that was there before: a lab in percent format, a quickstart in Markdown. A notebook holds the same
cells; blocks of commands become cells that begin with ``!``.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
FOLDER = HERE / "notebooks"
sys.path.insert(0, str(HERE))
import run  # noqa: E402

BLOCK = re.compile(  # and its output, which a notebook makes itself
    r"^```(python|bash)\n(.*?)^```\n?(?:\n```text\n.*?^```\n)?", re.DOTALL | re.MULTILINE
)
BESIDE = 'import sys\n\nsys.path.insert(0, "..")  # the labs\' own files\n%matplotlib inline'


def sources() -> list[Path]:
    """What notebooks are made from, in the order of reading."""
    return [*sorted((ROOT / "docs").glob("quickstart-*.md")), *run.labs(), HERE / "practical.py"]


def moved(text: str, folder: Path) -> str:
    """Markdown whose relative links lead to the same files from the notebooks' folder."""

    def link(match: re.Match[str]) -> str:
        path, mark, anchor = match[1].partition("#")
        there = (folder / path).resolve()
        up = Path(*[".."] * 2) / there.relative_to(ROOT)
        return f"]({up.as_posix()}{mark}{anchor})"

    text = re.sub(
        r"\[\]\((\S+?)\)", lambda m: f"[{m[1]}]({m[1]})", text
    )  # titles are filled in by the docs only
    return re.sub(r"\]\((?!https?:|#)([^)\s]+)\)", link, text)


def cells_of(path: Path) -> list[tuple[str, str]]:
    """(kind, source) of each cell."""
    if path.suffix == ".py":
        found = [(cell.kind, cell.source) for cell in run.cells(path)]
        return [found[0], ("code", BESIDE), *found[1:]]
    found, at = [], 0
    text = path.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        found.append(("markdown", text[at : match.start()].strip()))
        lines = match[2].strip()
        if match[1] == "bash":
            lines = "\n".join(f"!{line}" for line in lines.splitlines())
        found.append(("code", lines))
        at = match.end()
    return [cell for cell in [*found, ("markdown", text[at:].strip())] if cell[1]]


def notebook(path: Path) -> str:
    """The text of a notebook: the same for the same source."""
    cells = []
    for number, (kind, source) in enumerate(cells_of(path)):
        make = new_markdown_cell if kind == "markdown" else new_code_cell
        cell = make(moved(source, path.parent) if kind == "markdown" else source)
        cell["id"] = f"{path.stem}-{number}"[-64:].lstrip("-")
        cells.append(cell)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made = new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})
    nbformat.validate(made)
    return nbformat.writes(made, indent=1) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing, fail where one is out of date")
    check = parser.parse_args().check
    FOLDER.mkdir(exist_ok=True)
    stale = []
    for path in sources():
        file, text = FOLDER / f"{path.stem}.ipynb", notebook(path)
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            stale.append(file.name)
            if not check:
                file.write_text(text, encoding="utf-8")
    print(f"{'out of date' if check else 'written'}: {', '.join(stale) or 'none'}")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
