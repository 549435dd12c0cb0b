"""Labels that training never showed: found before inference, and left out where that is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from glassformer.cli.app import main
from glassformer.data.dataset import TextSplit
from glassformer.data.label_sets import LabelSet
from glassformer.errors import DataError
from glassformer.targets.multiclass import Classes
from glassformer.tasks.labelled import unseen, with_known_labels
from glassformer.tasks.text_classification.estimator import TextClassifier

from .tiny import sentences, settings, write_csv


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


def test_evaluate_leaves_them_out(gf, run, other):
    result = gf("evaluate", run, other, "--on-bad-row", "skip", "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["n"] == 21
    said = "3 texts left out, whose labels were not seen in training: 'meh' (2), 'so so' (1)"
    assert found["left_out"] == [said]
    assert said in result.err
    by = gf("evaluate", run, other, "--on-bad-row", "skip", "--by", "label", "--json")
    assert [(group["value"], group["n"]) for group in json.loads(by.out)["by"]["groups"]] == [
        ("neg", 12),
        ("pos", 9),
    ]


def test_calibrate_leaves_them_out(gf, run, other):
    result = gf("calibrate", run, "--data", other, "--on-bad-row", "skip")
    assert result.code == 0, result.err
    assert "3 texts left out, whose labels were not seen in training" in result.out + result.err
    assert "calibrating on 21 " in result.out + result.err


def test_where_none_is_known_the_column_is_asked_about(refused, run, tmp_path):
    table = write_csv(tmp_path / "x.csv", [(text, "abc"[i % 3]) for i, (text, _) in enumerate(sentences(12))])
    said = refused("evaluate", run, table, "--on-bad-row", "skip")
    assert "no label was seen in training, such as 'a'" in said
    assert "--label-column" in said


@pytest.mark.parametrize("split", ["validation", "test"])
def test_training_leaves_out_what_it_cannot_judge(gf, refused, tmp_path, split):
    folder = tmp_path / "mine"
    parts = {"train": sentences(40), "validation": sentences(12, 1), "test": sentences(10, 2)}
    for name, rows in parts.items():
        rows = [[text, "meh" if name == split and i == 4 else label] for i, (text, label) in enumerate(rows)]
        write_csv(folder / f"{name}.csv", rows)
    said = refused("train", "--text", folder, "--out", "new", *settings())
    assert f"{split}.csv, row 6: label 'meh' was not seen in training" in said
    assert "or leave such rows out with --on-bad-row skip" in said
    result = gf("train", "--text", folder, "--out", "new", "--on-bad-row", "skip", *settings())
    assert result.code == 0, result.err
    rejected = [json.loads(line) for line in Path("new/rejected.jsonl").read_text().splitlines()]
    assert [(Path(row["file"]).name, row["row"], row["reason"]) for row in rejected] == [
        (f"{split}.csv", 6, "label 'meh' was not seen in training")
    ]
    metrics = json.loads(Path("new/metrics.json").read_text())
    assert metrics[split]["n"] == len(parts[split]) - 1
    assert main(["train", "--resume", "--out", "new"]) == 0


def test_of_several_labels_one_that_is_unknown_counts():
    sets = [LabelSet(own) for own in (("a",), (), ("b", "c"), ("a", "c"))]
    assert unseen(sets, ["a", "b"]) == {2: "c", 3: "c"}
    assert unseen(["a", "x", "a"], ["a"]) == {1: "x"}


def test_another_spelling_is_a_known_label():
    clf = TextClassifier.__new__(TextClassifier)
    clf.kind_ = Classes()
    clf.classes_ = np.array(["neg", "pos"], object)
    split = TextSplit(["a", "b", "c"], ["Pos", "neg ", "meh"], "a.csv", [2, 3, 4])
    kept, said = with_known_labels(clf, split, True)
    assert kept.labels == ["Pos", "neg "]
    assert said == "1 texts left out, whose labels were not seen in training: 'meh' (1)"
    with pytest.raises(DataError, match=r"a\.csv, row 4: label 'meh'"):
        with_known_labels(clf, split, False)
