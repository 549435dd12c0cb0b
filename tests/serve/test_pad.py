"""The drawing pad without a browser: what it paints, on stand-ins for a canvas and its surroundings."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import glassformer.serve

NODE = shutil.which("node")
STATIC = Path(glassformer.serve.__file__).parent / "static"
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
    assert json.loads(done.stdout) == [
        "#000",
        "channels 3",
        "photo true",
        "#fff",
        "line #000",
        "channels 1",
        "photo false",
        "#000",
        "line #fff",
    ]
