"""Notebooks hold what their sources hold, and one runs."""

import importlib
import os
import re
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
LABS = ROOT / "labs"


@pytest.fixture
def maker(monkeypatch):
    monkeypatch.syspath_prepend(str(LABS))
    yield importlib.import_module("notebooks")
    for name in ("notebooks", "run"):
        sys.modules.pop(name, None)


def test_notebooks_are_those_of_their_sources(maker):
    made = {f"{path.stem}.ipynb": maker.notebook(path) for path in maker.sources()}
    assert {file.name for file in maker.FOLDER.glob("*.ipynb")} == made.keys()
    stale = [name for name, text in made.items() if (maker.FOLDER / name).read_text(encoding="utf-8") != text]
    assert not stale, "run `make notebooks`"
    assert {"practical.ipynb", "quickstart-texts.ipynb", "01_attention.ipynb"} <= made.keys()


def test_a_quickstart_becomes_cells(maker):
    cells = maker.cells_of(ROOT / "docs" / "quickstart-texts.md")
    code = [source for kind, source in cells if kind == "code"]
    assert code[0].startswith("import csv")
    assert code[1].startswith("!glassformer train --text reviews.csv")
    assert cells[0][1].startswith("# Text classification in five minutes")


def test_links_lead_to_the_same_files(maker):
    text = maker.moved("[a](guide/explain.md#b), [](results.md), [c](https://example.org/x)", ROOT / "docs")
    assert text == (
        "[a](../../docs/guide/explain.md#b), [results.md](../../docs/results.md), [c](https://example.org/x)"
    )
    for path in maker.sources():
        for target in re.findall(r"\]\((\.\.[^)#]+)", maker.notebook(path)):
            assert (maker.FOLDER / target).exists(), (path.name, target)


def test_a_notebook_of_a_lab_shows_the_outputs_of_its_page(maker):
    book = nbformat.reads(maker.notebook(LABS / "01_attention.py"), as_version=4)
    by_source = {cell.source: cell.outputs for cell in book.cells if cell.cell_type == "code"}
    shapes = next(outputs for source, outputs in by_source.items() if '"shapes"' in source)
    assert shapes[0].text.startswith("Q  Which shapes have Q, K, V and the weights?\n")
    images = [o.data["text/html"] for outputs in by_source.values() for o in outputs if "data" in o]
    files = [re.search(r'src="([^"]+)"', image)[1] for image in images]
    assert len(files) >= 3
    assert all((maker.FOLDER / file).is_file() for file in files)


def test_a_notebook_runs(maker, tmp_path, monkeypatch):
    """The cells of a quickstart that make its data and show it: kernel, shell commands and figures work."""
    from nbclient import NotebookClient

    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    book = nbformat.reads(maker.notebook(ROOT / "docs" / "quickstart-texts.md"), as_version=4)
    data = next(i for i, cell in enumerate(book.cells) if cell.cell_type == "code")
    show = nbformat.v4.new_code_cell(
        "!glassformer --version\nprint(len(list(csv.reader(open('reviews.csv')))))"
    )
    book.cells = [*book.cells[: data + 1], show]
    done = NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(output.get("text", "") for output in done.cells[-1].outputs)
    assert re.search(r"\d+\.\d+", printed)
    assert printed.rstrip().endswith("321")  # a line of titles, 2 x 4 x 10 x 4 texts
