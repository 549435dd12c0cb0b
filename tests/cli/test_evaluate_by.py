"""``evaluate --by``: the figures of the rows of each value of another column."""

from __future__ import annotations

import csv
import json
from collections import Counter

import numpy as np
import pytest

from glassformer.cli.evaluate import show_slices
from glassformer.targets.regression import Numbers

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
    counts = Counter(row[2] for row in rows)
    assert {g["value"]: g["n"] for g in by["groups"]} == counts
    assert [g["n"] for g in by["groups"]] == sorted(counts.values(), reverse=True)
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
    counts = Counter(row[2] for row in rows if row[0])
    assert {g["value"]: g["n"] for g in by["groups"]} == counts


def test_the_runs_own_test_rows_can_be_asked_about(gf, tmp_path):
    from .tiny import settings

    rows = [(*row, SHOPS[i % 5]) for i, row in enumerate(sentences(60))]
    data = write_csv(tmp_path / "own.csv", rows, header="text,label,shop")
    assert gf("train", "--text", data, "--out", "run", *settings("test_size=0.4")).code == 0
    by = json.loads(gf("evaluate", "run", "--by", "shop", "--json").out)["by"]
    with (tmp_path / "run" / "predictions.csv").open(newline="", encoding="utf-8") as file:
        judged = [int(row["row"]) for row in csv.DictReader(file)]
    counts = Counter(rows[row - 2][2] for row in judged)
    assert {g["value"]: g["n"] for g in by["groups"]} == counts


def test_what_is_rare_stands_together_at_the_end(gf, run, tmp_path):
    rng = np.random.default_rng(0)
    rows = [(*row, f"town{min(rng.geometric(0.03), 60)}") for row in sentences(300, seed=6)]
    data = write_csv(tmp_path / "new.csv", rows, header="text,label,town")
    groups = json.loads(gf("evaluate", run, data, "--by", "town", "--json").out)["by"]["groups"]
    towns = Counter(row[2] for row in rows)
    assert [g["value"] for g in groups[:-1]] == sorted(towns, key=lambda t: (-towns[t], t))[:30]
    assert groups[-1]["value"] is None
    assert groups[-1]["values"] == len(towns) - 30
    assert groups[-1]["n"] == 300 - sum(g["n"] for g in groups[:-1])
    assert f"({len(towns) - 30} rarer values)" in gf("evaluate", run, data, "--by", "town").out


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


def test_values_of_json_are_told_as_json_has_them(gf, run, tmp_path):
    values = [1, 1.0, True, "true", None, float("nan"), " a ", {"b": 1}, 2.5, ""]
    lines = [
        json.dumps({"text": text, "label": label, "v": values[i % 10]})
        for i, (text, label) in enumerate(sentences(60))
    ]
    data = tmp_path / "New.JSONL"
    data.write_text("\n".join(lines), encoding="utf-8")
    result = gf("evaluate", run, data, "--by", "v", "--json")
    assert result.code == 0, result.err
    groups = json.loads(result.out)["by"]["groups"]
    counts = {"": 18, "1": 12, "true": 12, "a": 6, '{"b": 1}': 6, "2.5": 6}
    assert {g["value"]: g["n"] for g in groups} == counts


@pytest.mark.parametrize("numbers", [[3.3] * 6, [99.9] * 60])
def test_equal_numbers_have_no_share_of_their_spread(numbers):
    true = np.array(numbers)
    found = true + np.random.default_rng(0).normal(size=len(true))
    meter = Numbers().meter(None)
    meter.update(found[:, None], true)
    figures = meter.result()
    assert figures["r2"] is None
    assert figures["r2_interval"] is None


def test_lines_of_numbers_fit_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    group = {"kind": "numbers", "value": "north", "n": 120, "r2": -12345.678, "mae": 1034.5}
    show_slices(
        {"column": "a\x1b[31mshop", "groups": [group | {"r2_interval": [-20000.1, 0.1234]}]}, "accuracy"
    )
    shown = "".join(
        capsys.readouterr()
    )  # beside JSON, which an earlier command may have asked for, on stderr
    assert "north" in shown
    assert "-1.235e+04" in shown
    assert "1034" in shown
    assert "\x1b[31m" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_what_cannot_be_is_refused(gf, refused, made, run, tmp_path):
    rows = [(*row, str(i)) for i, row in enumerate(sentences(80, seed=7))]
    data = write_csv(tmp_path / "new.csv", rows, header="text,label,number")
    assert gf("evaluate", run, data, "--by", "numbers").code == 2
    assert "Did you mean 'number'" in gf("evaluate", run, data, "--by", "numbers").err
    assert "80 values in 80 rows" in gf("evaluate", run, data, "--by", "number").err
    assert "Leave --by or --every-epoch out" in refused("evaluate", run, "--by", "x", "--every-epoch")
    for i in range(2):
        write_csv(
            tmp_path / "parts" / f"test-0000{i}-of-00002.csv",
            [(*row, "x") for row in sentences(12)],
            header="text,label,shop",
        )
    assert "no single table" in gf("evaluate", run, tmp_path / "parts", "--by", "shop").err
    assert "not judged by a column" in gf("evaluate", made.runs["tags"], "--by", "x").err
