"""What is not Python, as its own tools read it: the unit and the image under deploy/, and the page's drawing pad."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import glassformer.serve

DEPLOY = Path(__file__).parents[2] / "deploy"
NODE = shutil.which("node")
STATIC = Path(glassformer.serve.__file__).parent / "static"
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


PROGRAM = """
import { Pad } from "./pad.mjs";
const painted = [];
const ink = {
  fillRect() { painted.push(this.fillStyle); },
  beginPath() {}, moveTo() {}, lineTo() {},
  stroke() { painted.push(`line ${this.strokeStyle}`); },
};
const any = { addEventListener() {}, classList: { add() {}, remove() {}, toggle(name, on) { painted.push(`${name} ${on}`); } } };
const canvas = { ...any, getContext: () => ink };
const pad = new Pad({ querySelector: (what) => (what === "canvas" ? canvas : any), addEventListener() {} }, () => {});
for (const channels of [3, 1]) {
  painted.push(`channels ${channels}`);
  pad.suit(channels);
  pad.line([0, 0], [1, 1]);
}
console.log(JSON.stringify(painted));
"""


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_a_model_of_photos_gets_white_paper_and_one_of_digits_black(tmp_path):
    shutil.copy(STATIC / "pad.js", tmp_path / "pad.mjs")
    (tmp_path / "try.mjs").write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run([str(NODE), "try.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    photos = ["channels 3", "photo true", "#fff", "line #000"]
    assert json.loads(done.stdout) == ["#000", *photos, "channels 1", "photo false", "#000", "line #fff"]
