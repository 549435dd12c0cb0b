"""What the doctor found, answered by one command; figures that say less than they seem to."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from glassformer.cli.app import main
from glassformer.data.dataset import TextDataset, TextSplit
from glassformer.data.doctor import examine
from glassformer.data.remedy import remedy
from glassformer.evaluate.metrics import ClassificationMeter, no_better_than_one
from glassformer.study.corrected import give_back
from glassformer.tasks.labelled import few_to_choose_by


def doctored(labels: list[str], texts: list[str] | None = None):
    texts = texts or [f"a text of number {i}" for i in range(len(labels))]
    splits = {"train": TextSplit(texts, labels, "x")}
    return examine(TextDataset("x", splits)), splits


def test_every_warning_that_an_option_answers():
    report, splits = doctored(["good"] * 20 + ["Good", "bad", "bad", "N/A"])
    assert remedy(report.findings, splits) == [
        "--set",
        "class_weight=balanced",
        "--set",
        "monitor=macro_f1",
        "--set",
        'merge_labels={"Good" = "good", "N/A" = ""}',
    ]
    report, splits = doctored(["good"] * 9 + ["Good", "bad", "bad"])
    assert remedy(report.findings, splits) == ["--set", "merge_labels=spelling"]
    report, splits = doctored(
        ["good", "bad"] * 3, ["a fine film", "a dull film", "A FINE film", "c d e", "f g h", "i j k"]
    )
    assert remedy(report.findings, splits) == ["--set", "drop_duplicates=true"]
    report, splits = doctored(["good", "bad"] * 3)
    assert remedy(report.findings, splits) == []


def test_copies_that_differ_in_case_are_counted():
    report, _ = doctored(
        ["a", "b"] * 2, ["one two three", "ONE two  three", "four five six", "four five six"]
    )
    (found,) = (f for f in report.findings if f.code == "duplicates")
    assert found.severity == "warning"
    assert found.message == (
        "train: 1 of 4 texts (25.0%) repeat an earlier one, 2 (50.0%) when case and spaces do not count"
    )
    assert "one two three ~ ONE two three" in found.examples


def test_the_doctor_gives_the_command(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"film number {i},{'pos' if i % 2 else 'neg'},2026-0{i % 9 + 1}-11,True" for i in range(20)]
    (tmp_path / "a b.csv").write_text(
        "what,said,day,ok\n" + "\n".join([*rows, rows[0], "alone here,odd,,"]) + "\n"
    )
    assert main(["data", "doctor", "a b.csv"]) == 0
    said = capsys.readouterr().out
    assert "labels in 'said'" in " ".join(said.split())  # neither the date nor what is the same everywhere
    command = "glassformer train --text 'a b.csv' --set drop_duplicates=true"
    assert command in said
    assert """--set 'merge_labels={"odd" = ""}'""" in said


def test_several_columns_of_labels_are_a_warning(tmp_path: Path, capsys):
    rows = [f"film number {i},{'pos' if i % 2 else 'neg'},{'x' if i % 3 else 'y'}" for i in range(20)]
    (tmp_path / "a.csv").write_text("what,said,more\n" + "\n".join(rows) + "\n")
    assert main(["data", "doctor", str(tmp_path / "a.csv")]) == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "warning columns no labels were looked at: several columns could be the label (said, more)" in said


@pytest.mark.parametrize(
    ("right", "sentence"),
    [
        ([7, 0], "no better than always answering 'a', which 70.0% are"),
        ([7, 2], ""),
        ([5, 3], ""),  # right less often than 'a' alone, and with the better macro-F1
    ],
)
def test_a_model_that_always_answers_one_label_is_called_so(right, sentence):
    targets = np.array([0] * 7 + [1] * 3)
    predicted = np.array([0] * right[0] + [1] * (7 - right[0]) + [1] * right[1] + [0] * (3 - right[1]))
    meter = ClassificationMeter(["a", "b"])
    meter.update(np.eye(2)[predicted], targets)
    assert no_better_than_one(meter.result(0)) == sentence


def test_few_validation_examples_are_said():
    held = TextSplit(["x"] * 35, ["a"] * 33 + ["b"] * 2, "x")
    train = SimpleNamespace(monitor="macro_f1", keep_best=True)
    assert "35 validation examples only, 2 of class 'b'" in few_to_choose_by(held, train)
    assert few_to_choose_by(held, SimpleNamespace(monitor="loss", keep_best=True)) == ""
    assert few_to_choose_by(TextSplit(["x"] * 101, ["a", "b"] * 50 + ["a"], "x"), train) == ""


def test_a_corrected_table_is_given_back_with_its_settings(tmp_path: Path):
    (tmp_path / "a.csv").write_text("what,said\nx,y\n")
    data = {
        "source": str(tmp_path / "a.csv"),
        "label_column": "said",
        "on_bad_row": "skip",
        "drop_duplicates": True,
        "merge_labels": {"Y": "y"},
    }
    assert give_back(data, Path("c.csv")) == [
        "glassformer",
        "train",
        "--text",
        "c.csv",
        "--label-column",
        "said",
        "--on-bad-row",
        "skip",
        "--set",
        "drop_duplicates=true",
        "--set",
        'merge_labels={"Y" = "y"}',
    ]
    assert give_back({"source": "imdb", "label_column": "said"}, Path("c.csv"))[2:] == ["--text", "c.csv"]
