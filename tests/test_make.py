"""What the Makefile says that it would do; nothing is installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_set_up_ends_with_what_to_type_next_and_adds_extras():
    def steps(*settings: str) -> list[str]:
        command = ["make", "--dry-run", "--no-print-directory", "setup", "VENV=absent", *settings]
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.splitlines()

    assert steps()[-1] == 'echo "==> all is there. Next: source absent/bin/activate && glassformer doctor"'
    assert not any(".[serve]" in step for step in steps())
    extras = [step for step in steps("EXTRAS=serve,onnx") if "--editable '.[" in step]
    assert ["--constraint constraints.txt" in step for step in extras] == [True, True]
    assert [step.rpartition(" ")[2] for step in extras] == ["'.[serve]'", "'.[onnx]'"]
