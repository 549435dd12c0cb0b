"""``make count``: lines, functions, imports between the modules of a folder, and circles of them."""

import pytest

from .benchmark_tools import benchmark

FILES = {
    "__init__.py": "",
    "first.py": "from area import second\nfrom area.third import x\n\n\nimport json\n",
    "second.py": "def late():\n    import area.first\n\n    return area.first\n",
    "third.py": "x = 1\n",
}


@pytest.fixture
def count(monkeypatch):
    return benchmark("count")


@pytest.fixture
def area(tmp_path):
    folder = tmp_path / "area"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def test_lines_and_functions_are_counted(count, area):
    assert count.sizes(area) == (4, 10, 7)
    assert list(count.functions(area)) == [(4, "area/second.py:late")]


def test_imports_at_the_top_and_inside_functions_are_arrows(count, area):
    graph = count.arrows(area, "area")
    assert graph["area.first"] == {"area.second", "area.third"}
    assert graph["area.second"] == {"area.first"}
    assert count.circles(graph) == [["area.first", "area.second"]]


@pytest.mark.slow
def test_the_package_is_reported(count):
    rows = [line.strip("| ").split(" | ") for line in count.report().splitlines()]
    files, lines, full = count.sizes(count.ROOT / "src")
    assert ["src", str(files), f"{lines:,}", f"{full:,}"] in rows
    assert sum(int(row[1]) for row in rows if row[0].startswith("src/")) < files  # some stand in no folder
