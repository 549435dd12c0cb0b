"""What a task costs is counted from the imports: its folder, files of its own beyond it, lines that name these."""

from pathlib import Path

import pytest

from glassformer.tasks.catalog import TASKS

from .benchmark_tools import benchmark

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def price():
    return benchmark("task_price")


@pytest.mark.slow
def test_every_task_has_a_price_and_its_own_files_are_found(price):
    rows = {row["task"]: row for row in price.prices()}
    assert rows.keys() == {*TASKS} - {
        "text-regression",
        "image-regression",
    }  # in the folders of classification
    folder = [*(ROOT / "src/glassformer/tasks/similarity").glob("[a-z]*.py")]
    assert rows["similarity"]["folder"] == {
        "files": len(folder),
        "lines": sum(len(path.read_text().splitlines()) for path in folder),
    }
    assert {"data.pair_doctor"} <= rows["similarity"]["beyond"].keys()
    assert {"data.tag_doctor"} <= rows["token-tagging"]["beyond"].keys()
    alone = [name for row in rows.values() for name in row["beyond"]]
    assert len(alone) == len(set(alone))
    assert not {"tasks.estimator", "tasks.classifier"} & {*alone}


def test_lines_count_where_an_import_holds(price):
    own = {"targets.target_text"}
    lines = price.naming("tasks.translation.estimator", own)
    text = (ROOT / "src/glassformer/tasks/translation/estimator.py").read_text().splitlines()
    assert any("glassformer.targets.target_text" in text[line - 1] for line in lines)
    assert 2 <= len(lines) < 30
