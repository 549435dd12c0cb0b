"""``evaluate`` on other data: figures by a column, labels that training never showed, columns of other names."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.tables import read_csv

import glassformer
from glassformer.cli.app import main
from glassformer.cli.evaluate import show_slices
from glassformer.data.dataset import TextSplit
from glassformer.data.label_sets import LabelSet
from glassformer.errors import DataError
from glassformer.targets.multiclass import Classes
from glassformer.targets.regression import Numbers
from glassformer.tasks.supervised import unseen_labels, with_known_labels
from glassformer.tasks.text_classification.estimator import TextClassifier

from .tiny import sentences, settings, write_csv

SHOPS = ("north", "north", "south", "", "east")


def test_each_value_has_the_figures_of_its_rows(gf, as_json, run, tmp_path):
    rows = [(*row, SHOPS[i % 5], str(i)) for i, row in enumerate(sentences(53, seed=4))]
    data = write_csv(tmp_path / "new.csv", rows, header="text,label,shop,number")
    found = as_json("evaluate", run, data, "--by", "shop")
    plain = as_json("evaluate", run, data)
    by = found.pop("by")
    assert found == plain
    assert by["column"] == "shop"
    counts = Counter(row[2] for row in rows)
    assert {g["value"]: g["n"] for g in by["groups"]} == counts
    assert [g["n"] for g in by["groups"]] == sorted(counts.values(), reverse=True)
    right = sum(round(g["accuracy"] * g["n"]) for g in by["groups"])
    assert right == round(plain["accuracy"] * plain["n"])
    alone = write_csv(tmp_path / "east.csv", [row[:2] for row in rows if row[2] == "east"])
    east = as_json("evaluate", run, alone)
    one = next(g for g in by["groups"] if g["value"] == "east")
    assert one["confusion"] == east["confusion"]
    assert one["log_loss"] == pytest.approx(east["log_loss"], abs=1e-6)
    shown = gf("evaluate", run, data, "--by", "shop").out
    assert "by shop" in shown
    assert "(empty)" in shown


def test_rows_that_are_left_out_do_not_shift_the_others(as_json, run, tmp_path):
    rows = [[*row, SHOPS[i % 5]] for i, row in enumerate(sentences(41, seed=5))]
    rows[3][0] = ""
    data = write_csv(tmp_path / "new.csv", rows, header="text,label,shop")
    by = as_json("evaluate", run, data, "--by", "shop", "--on-bad-row", "skip")["by"]
    counts = Counter(row[2] for row in rows if row[0])
    assert {g["value"]: g["n"] for g in by["groups"]} == counts


def test_the_runs_own_test_rows_can_be_asked_about(as_json, ok, tmp_path):
    rows = [(*row, SHOPS[i % 5]) for i, row in enumerate(sentences(60))]
    data = write_csv(tmp_path / "own.csv", rows, header="text,label,shop")
    ok("train", "--text", data, "--out", "run", *settings("test_size=0.4"))
    by = as_json("evaluate", "run", "--by", "shop")["by"]
    judged = [int(row["row"]) for row in read_csv(tmp_path / "run" / "predictions.csv")]
    counts = Counter(rows[row - 2][2] for row in judged)
    assert {g["value"]: g["n"] for g in by["groups"]} == counts


def test_what_is_rare_stands_together_at_the_end(gf, as_json, run, tmp_path):
    rng = np.random.default_rng(0)
    rows = [(*row, f"town{min(rng.geometric(0.03), 60)}") for row in sentences(300, seed=6)]
    data = write_csv(tmp_path / "new.csv", rows, header="text,label,town")
    groups = as_json("evaluate", run, data, "--by", "town")["by"]["groups"]
    towns = Counter(row[2] for row in rows)
    assert [g["value"] for g in groups[:-1]] == sorted(towns, key=lambda t: (-towns[t], t))[:30]
    assert groups[-1]["value"] is None
    assert groups[-1]["values"] == len(towns) - 30
    assert groups[-1]["n"] == 300 - sum(g["n"] for g in groups[:-1])
    assert f"({len(towns) - 30} rarer values)" in gf("evaluate", run, data, "--by", "town").out


def test_tags_have_no_column_to_go_by(gf, made, tmp_path):
    assert "not evaluated by a column" in gf("evaluate", made.runs["tags"], "--by", "x").err
    for i in range(2):
        rows = [(*row, "x") for row in sentences(12)]
        write_csv(tmp_path / "parts" / f"test-0000{i}-of-00002.csv", rows, "text,label,shop")
    assert "not a single table" in gf("evaluate", made.runs["texts"], "parts", "--by", "shop").err


def test_values_of_json_are_told_as_json_has_them(as_json, run, tmp_path):
    values = [1, 1.0, True, "true", None, float("nan"), " a ", {"b": 1}, 2.5, ""]
    rows = [{"text": t, "label": y, "v": values[i % 10]} for i, (t, y) in enumerate(sentences(60))]
    (tmp_path / "New.JSONL").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    groups = as_json("evaluate", run, "New.JSONL", "--by", "v")["by"]["groups"]
    counts = {"": 18, "1": 12, "true": 12, "a": 6, '{"b": 1}': 6, "2.5": 6}
    assert {g["value"]: g["n"] for g in groups} == counts


@pytest.mark.parametrize("numbers", [[3.3] * 6, [99.9] * 60])
def test_equal_numbers_have_no_share_of_their_spread(numbers):
    found = np.array(numbers) + np.random.default_rng(0).normal(size=len(numbers))
    figures = Numbers().score(found[:, None], np.array(numbers))
    assert (figures["r2"], figures["r2_interval"]) == (None, None)


def test_lines_of_numbers_fit_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    group = {"kind": "numbers", "value": "north", "n": 120, "r2": -12345.678, "mae": 1034.5}
    group |= {"r2_interval": [-20000.1, 0.1234]}
    show_slices({"column": "a\x1b[31mshop", "groups": [group]}, "accuracy")
    shown = "".join(capsys.readouterr())  # on stderr, if an earlier command has asked for JSON
    assert "north" in shown
    assert "-1.235e+04" in shown
    assert "1034" in shown
    assert "\x1b[31m" not in shown
    assert max(map(len, shown.splitlines())) <= 80


# --- labels that training never showed --------------------------------------------------------------


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A table of 24 reviews, of which three have two labels that were not learned."""
    rows = [list(row) for row in sentences(24, seed=1)]
    for i, label in ((3, "meh"), (5, "meh"), (17, "so so")):
        rows[i][1] = label
    return write_csv(tmp_path / "other.csv", rows)


@pytest.mark.parametrize("verb", [["evaluate", "RUN", "DATA"], ["calibrate", "RUN", "--data", "DATA"]])
def test_one_ends_the_command_before_inference(refused, monkeypatch, run, other, verb):
    def late(*_, **__):
        raise AssertionError("inference")

    monkeypatch.setattr(TextClassifier, "logits", late)
    monkeypatch.setattr(TextClassifier, "outputs", late)
    said = refused(*({"RUN": run, "DATA": other}.get(word, word) for word in verb))
    assert "other.csv, row 5: label 'meh' was not seen in training" in said
    assert "or leave such texts out with --on-bad-row skip" in said


def test_evaluate_and_calibrate_leave_them_out(ok, run, other):
    result = ok("evaluate", run, other, "--on-bad-row", "skip", "--by", "label", "--json")
    found = json.loads(result.out)
    said = "texts left out, whose labels were not seen in training: 'meh' (2), 'so so' (1)"
    assert (found["n"], found["left_out"]) == (21, [said])
    assert said in result.err
    assert {group["value"]: group["n"] for group in found["by"]["groups"]} == {"neg": 12, "pos": 9}
    result = ok("calibrate", run, "--data", other, "--on-bad-row", "skip")
    assert "texts left out, whose labels were not seen in training" in result.out + result.err
    assert "calibrating on 21 " in result.out + result.err


def test_where_none_is_known_the_column_is_asked_about(refused, run, tmp_path):
    table = write_csv(tmp_path / "x.csv", [(text, "abc"[i % 3]) for i, (text, _) in enumerate(sentences(12))])
    said = refused("evaluate", run, table, "--on-bad-row", "skip")
    assert "none of its labels (a, b, c) was seen in training" in said
    assert "--label-column" in said


@pytest.mark.parametrize("split", ["validation", "test"])
def test_training_leaves_out_what_it_cannot_judge(ok, refused, tmp_path, split):
    folder = tmp_path / "mine"
    parts = {"train": sentences(40), "validation": sentences(12, 1), "test": sentences(10, 2)}
    for name, rows in parts.items():
        rows = [[text, "meh" if name == split and i == 4 else label] for i, (text, label) in enumerate(rows)]
        write_csv(folder / f"{name}.csv", rows)
    said = refused("train", "--text", folder, "--out", "new", *settings())
    assert f"{split}.csv, row 6: label 'meh' was not seen in training" in said
    assert "or leave such rows out with --on-bad-row skip" in said
    ok("train", "--text", folder, "--out", "new", "--on-bad-row", "skip", *settings())
    (row,) = map(json.loads, Path("new/rejected.jsonl").read_text().splitlines())
    assert (Path(row["file"]).name, row["row"]) == (f"{split}.csv", 6)
    assert row["reason"] == "label 'meh' was not seen in training"
    metrics = json.loads(Path("new/metrics.json").read_text())
    assert metrics[split]["n"] == len(parts[split]) - 1
    assert main(["train", "--resume", "--out", "new"]) == 0


def test_of_several_labels_one_that_is_unknown_counts():
    sets = [LabelSet(own) for own in (("a",), (), ("b", "c"), ("a", "c"))]
    assert unseen_labels(sets, ["a", "b"]) == {2: "c", 3: "c"}
    assert unseen_labels(["a", "x", "a"], ["a"]) == {1: "x"}


def test_another_spelling_is_a_known_label():
    clf = TextClassifier.__new__(TextClassifier)
    clf.kind_ = Classes()
    clf.classes_ = np.array(["neg", "pos"], object)
    split = TextSplit(["a", "b", "c"], ["Pos", "neg ", "meh"], "a.csv", [2, 3, 4])
    kept, said = with_known_labels(clf, split, True)
    assert kept.labels == ["Pos", "neg "]
    spelling, left_out = said
    assert "'Pos' as 'pos' (1)" in spelling
    assert left_out == "texts left out, whose labels were not seen in training: 'meh' (1)"
    with pytest.raises(DataError, match=r"a\.csv, row 4: label 'meh'"):
        with_known_labels(clf, split, False)


# --- columns ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_bodies(tmp_path_factory) -> Path:
    """A run whose column of texts was found by what it holds."""
    folder = tmp_path_factory.mktemp("bodies")
    table = write_csv(folder / "own.csv", sentences(41), header="body,label")
    fast = ["--set", "baselines=false", "--set", "bootstrap=20"]
    assert main(["train", "--text", str(table), "--model", "tfidf", *fast, "--out", str(folder / "run")]) == 0
    return folder / "run"


OTHERS = [(text[::-1], text, label) for text, label in sentences(11, seed=3)]


def test_the_column_of_the_training_is_read_among_others(of_bodies, gf, as_json, tmp_path):
    table = write_csv(tmp_path / "t.csv", OTHERS, header="text,body,label")
    wanted = glassformer.load(of_bodies).predict([text for _, text, _ in OTHERS]).tolist()
    found = gf("predict", of_bodies, table)
    assert [line.split("\t")[0] for line in found.out.splitlines()] == wanted
    figures = as_json("evaluate", of_bodies, table)
    assert figures["accuracy"] == sum(a == b[2] for a, b in zip(wanted, OTHERS, strict=True)) / 11


@pytest.mark.parametrize("verb", ["evaluate", "predict", "calibrate"])
@pytest.mark.parametrize("names", ["title,content_of_it,label", "premise,hypothesis,label"])
def test_a_model_of_single_texts_reads_no_pairs(verb, names, of_bodies, refused, tmp_path):
    table = write_csv(tmp_path / "t.csv", OTHERS, header=names)
    said = refused(verb, of_bodies, "--data", table)
    assert "several columns look like texts: " in said
    assert said.endswith("Name one with --text-column")
