"""Write the labs, the practical and the quickstarts as Jupyter notebooks.

    python labs/notebooks.py [--check]      notebooks go to labs/notebooks/

The source stays the file that was there before: a lab in percent format, a quickstart in Markdown. A notebook holds the same
cells; blocks of commands become cells that begin with ``!``. The outputs of a lab are those of its page in docs/labs: printed
text is copied, plots are shown from the page's files. The practical and the quickstarts have none.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
FOLDER = HERE / "notebooks"
sys.path.insert(0, str(HERE))
import run

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


def outputs_of(path: Path) -> dict[str, list[Any]]:
    """Source of a code cell -> its outputs, of a lab that has a page of the same code."""
    page = run.PAGES / f"{path.stem}.md"
    found: dict[str, list[Any]] = {}
    for cell, printed, figures in (
        run.shown_on(page.read_text(encoding="utf-8"), path) if page.is_file() else ()
    ):
        text = [new_output("stream", name="stdout", text=f"{printed}\n")] if printed else []
        images = [f'<img src="../../docs/labs/figures/{name}" alt="{cell.heading}">' for name in figures]
        shown = [new_output("display_data", {"text/html": image}) for image in images]
        found[cell.source] = text + shown
    return found


def notebook(path: Path) -> str:
    """The text of a notebook: the same for the same source and page."""
    cells, outputs = [], outputs_of(path)
    for number, (kind, source) in enumerate(cells_of(path)):
        if kind == "markdown":
            cell = new_markdown_cell(moved(source, path.parent))
        else:
            cell = new_code_cell(source, outputs=outputs.get(source, []))
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
