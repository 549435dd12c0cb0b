"""``evaluate --by``: the figures of the rows of each value of another column."""

from __future__ import annotations

import csv
import json
from collections import Counter

import numpy as np
import pytest

from .tiny import sentences, write_csv

SHOPS = ("north", "north", "south", "", "east")


def test_each_value_has_the_figures_of_its_rows(gf, run, tmp_path):
    rows = [(*row, SHOPS[i % 5], str(i)) for i, row in enumerate(sentences(53, seed=4))]
    data = write_csv(tmp_path / "new.csv", rows, header="text,label,shop,number")
    found = json.loads(gf("evaluate", run, data, "--by", "shop", "--json").out)
    plain = json.loads(gf("evaluate", run, data, "--json").out)
    by = found.pop("by")
    assert found == plain
    assert by["column"] == "shop"
    counts = Counter(row[2] or "(empty)" for row in rows)
    assert [(g["value"], g["n"]) for g in by["groups"]] == counts.most_common()
    right = sum(round(g["accuracy"] * g["n"]) for g in by["groups"])
    assert right == round(plain["accuracy"] * plain["n"])
    alone = write_csv(tmp_path / "east.csv", [row[:2] for row in rows if row[2] == "east"])
    east = json.loads(gf("evaluate", run, alone, "--json").out)
    one = next(g for g in by["groups"] if g["value"] == "east")
    assert one["confusion"] == east["confusion"]
    assert one["log_loss"] == pytest.approx(east["log_loss"], abs=1e-6)
    shown = gf("evaluate", run, data, "--by", "shop").out
    assert "by shop" in shown
    assert "(empty)" in shown


def test_rows_that_are_left_out_do_not_shift_the_others(gf, run, tmp_path):
    rows = [[*row, SHOPS[i % 5]] for i, row in enumerate(sentences(41, seed=5))]
    rows[3][0] = ""
    data = write_csv(tmp_path / "new.csv", rows, header="text,label,shop")
    by = json.loads(gf("evaluate", run, data, "--by", "shop", "--on-bad-row", "skip", "--json").out)["by"]
    counts = Counter(row[2] or "(empty)" for row in rows if row[0])
    assert {g["value"]: g["n"] for g in by["groups"]} == counts


def test_the_runs_own_test_rows_can_be_asked_about(gf, tmp_path):
    from .tiny import settings

    rows = [(*row, SHOPS[i % 5]) for i, row in enumerate(sentences(60))]
    data = write_csv(tmp_path / "own.csv", rows, header="text,label,shop")
    assert gf("train", "--text", data, "--out", "run", *settings("test_size=0.4")).code == 0
    by = json.loads(gf("evaluate", "run", "--by", "shop", "--json").out)["by"]
    with (tmp_path / "run" / "predictions.csv").open(newline="", encoding="utf-8") as file:
        judged = [int(row["row"]) for row in csv.DictReader(file)]
    counts = Counter(rows[row - 2][2] or "(empty)" for row in judged)
    assert {g["value"]: g["n"] for g in by["groups"]} == counts


def test_what_is_rare_stands_together_at_the_end(gf, run, tmp_path):
    rng = np.random.default_rng(0)
    rows = [(*row, f"town{min(rng.geometric(0.03), 60)}") for row in sentences(300, seed=6)]
    data = write_csv(tmp_path / "new.csv", rows, header="text,label,town")
    groups = json.loads(gf("evaluate", run, data, "--by", "town", "--json").out)["by"]["groups"]
    assert len(groups) == 31
    assert groups[-1]["value"] == "(all others)"
    assert sum(g["n"] for g in groups) == 300


@pytest.mark.parametrize("kind", ["label sets", "text pairs", "numbers"])
def test_other_kinds_of_target_have_it(gf, made, kind, tmp_path):
    data, run = made.data[kind], made.runs[kind]
    with data.open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    path = tmp_path / "by.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([[*head, "half"], *([*row, "ab"[i % 2]] for i, row in enumerate(rows))])
    result = gf("evaluate", run, path, "--by", "half", "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert sorted(g["value"] for g in found["by"]["groups"]) == ["a", "b"]
    assert sum(g["n"] for g in found["by"]["groups"]) == found["n"]
    assert "by half" in gf("evaluate", run, path, "--by", "half").out


def test_what_cannot_be_is_refused(gf, refused, made, run, tmp_path):
    rows = [(*row, str(i)) for i, row in enumerate(sentences(80, seed=7))]
    data = write_csv(tmp_path / "new.csv", rows, header="text,label,number")
    assert gf("evaluate", run, data, "--by", "numbers").code == 2
    assert "Did you mean 'number'" in gf("evaluate", run, data, "--by", "numbers").err
    assert "80 values in 80 rows" in gf("evaluate", run, data, "--by", "number").err
    assert "Leave --by or --every-epoch out" in refused("evaluate", run, "--by", "x", "--every-epoch")
    assert "not judged by a column" in gf("evaluate", made.runs["tags"], "--by", "x").err
