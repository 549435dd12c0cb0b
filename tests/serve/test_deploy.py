"""The unit and the image under deploy/, as their own tools read them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
HADOLINT = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_reads_the_unit(tmp_path: Path):
    text = (DEPLOY / "glassformer.service").read_text(encoding="utf-8")
    (unit := tmp_path / "glassformer.service").write_text(
        re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE), encoding="utf-8"
    )  # verify wants the program to be there
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if "glassformer" in line]
    assert done.returncode == 0, done.stderr
    assert said == []


@pytest.mark.slow
@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed ([lint])")
def test_hadolint_finds_nothing_in_the_dockerfile():
    done = subprocess.run([str(HADOLINT), str(DEPLOY / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_image_runs_as_nobody_in_particular_and_copies_what_there_is():
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users[-1:] not in ([], ["0"], ["root"])
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            for name in line.split()[1:-1]:
                assert (DEPLOY.parent / name).exists(), name
