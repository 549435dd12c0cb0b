"""Files whose names are not UTF-8: read, written readably, and found again."""

import json
import os

import numpy as np
import pytest
from PIL import Image

from glassformer.config import to_json_types, toml_literal
from glassformer.evaluate.predictions import table_file
from glassformer.finite import json_text
from glassformer.outputs import escape_surrogates, make_printable, write_text
from glassformer.reading import find_escaped

E = os.fsdecode(b"\xe9")
SMALL = ("--set", "d_model=16", "--set", "num_layers=1", "--set", "num_heads=2", "--set", "d_ff=16")


def test_every_writer_makes_the_name_readable(tmp_path):
    name = f"caf{E}.csv"
    shown = "caf\\xe9.csv"
    assert escape_surrogates(name) == make_printable(name) == to_json_types(name) == shown
    assert escape_surrogates("caf\u00e9 \u4e2d") == "caf\u00e9 \u4e2d"
    assert toml_literal(name) == '"caf\\\\xe9.csv"'
    for ascii in (False, True):
        assert json.loads(json_text({"file": to_json_types(name)}, ascii=ascii)) == {"file": shown}
    assert json.loads(json_text({"file": name})) == {"file": shown}
    write_text(tmp_path / "a.txt", name)
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == shown
    with table_file(tmp_path / "a.csv") as table:
        table.writerow([name, "x"])
    assert (tmp_path / "a.csv").read_text(encoding="utf-8").strip() == f"{shown},x"


def test_the_file_is_found_by_its_readable_name(tmp_path):
    path = str(tmp_path / f"caf{E}.csv")
    with open(path, "w"):
        pass
    assert find_escaped(escape_surrogates(path)) == path
    assert find_escaped(path) == path
    other = str(tmp_path / "none\\xe9.csv")
    assert find_escaped(other) == other


@pytest.mark.slow
def test_a_run_on_images_so_named(gf, as_json, ok, tmp_path):
    rng = np.random.default_rng(3)
    for k, label in enumerate(("dark", "light")):
        os.makedirs(tmp_path / f"dir{E}" / label)
        for i in range(20):
            array = (rng.integers(0, 100, (11, 13, 3)) + k * 150).astype(np.uint8)
            Image.fromarray(array).save(tmp_path / f"dir{E}" / label / f"caf{E}{i}.png")
    sizes = ("--set", "image_size=16", "--set", "patch_size=8", "--set", "epochs=1")
    result = ok("train", "--images", f"dir{E}", "--out", "run", *SMALL, *sizes)
    assert "caf\\xe9" in (tmp_path / "run" / "predictions.csv").read_text(encoding="utf-8")
    ok("evaluate", "run")
    answers = as_json("predict", "run", f"dir{E}")["answers"]
    assert len(answers) == 40
    result = gf("train", "--images", f"dir{E}", "--out", f"run{E}", *SMALL, *sizes)
    assert result.code == 2
    assert "the folder's path is not UTF-8" in result.err


NAME, READABLE = "caf\udce9", "caf\\xe9"


def test_every_table_of_answers_takes_them(tmp_path):
    from glassformer.cli.vectors import write_cosines, write_duplicates, write_results
    from glassformer.data.pairs import PairSplit
    from glassformer.study.results import _write_csv
    from glassformer.tasks.translation.estimator import write_translations

    near = {"cosine": 0.5, "row": 3, "text": NAME, "columns": {"file": NAME}}
    pair = PairSplit([NAME], [NAME], "here", (1,))
    writers = {
        "cosines": lambda out: write_cosines(out, [NAME], [NAME], [0.5]),
        "found": lambda out: write_results(out, [NAME], [[near]]),
        "doubles": lambda out: write_duplicates(out, [(0, 1, 0.5)], [NAME] * 2, [1, 2], [{"file": NAME}] * 2),
        "study": lambda out: _write_csv(out, [{"arm": NAME, "accuracy": 0.25}]),
        "translations": lambda out: write_translations(out, pair, {"greedy": [NAME]}),
    }
    for name, write in writers.items():
        write(tmp_path / f"{name}.csv")
        text = (tmp_path / f"{name}.csv").read_text(encoding="utf-8")
        assert READABLE in text, name
        assert len(text.splitlines()) == 2, name
    assert (tmp_path / "study.csv").read_text().splitlines() == ["arm,accuracy", f"{READABLE},0.25"]
