"""What the doctor found, answered by one command; figures that say less than they seem to."""

import shlex
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from glassformer.cli.app import main
from glassformer.data.dataset import Dataset, TextDataset, TextSplit
from glassformer.data.doctor import examine
from glassformer.data.doctor_checks import doubled_quotes
from glassformer.data.label_kinds import find_missing_labels
from glassformer.data.pair_doctor import examine_pairs
from glassformer.data.pairs import PairSplit
from glassformer.data.repairs import apply_repairs, fixing_options, needed_corrections
from glassformer.data.sources import load_text_dataset
from glassformer.data.text import word_tokenizer
from glassformer.study.review import training_command
from glassformer.targets.multiclass import Classes, no_better_than_majority
from glassformer.tasks.supervised import small_validation


def doctored(labels: list[str], texts: list[str] | None = None):
    texts = texts or [f"a text of number {i}" for i in range(len(labels))]
    splits = {"train": TextSplit(texts, labels, "x")}
    return examine(TextDataset("x", splits)), splits


def test_every_warning_that_an_option_answers():
    report, splits = doctored(["good"] * 20 + ["Good", "bad", "bad", "N/A"])
    assert fixing_options(report.findings, splits) == [
        "--set",
        "class_weight=balanced",
        "--set",
        "monitor=macro_f1",
        "--set",
        "merge_labels=spelling",  # never what leaves a label or a class out
    ]
    report, splits = doctored(["good"] * 9 + ["Good", "bad", "bad"])
    assert fixing_options(report.findings, splits) == ["--set", "merge_labels=spelling"]
    report, splits = doctored(
        ["good", "bad"] * 3, ["a fine film", "a dull film", "A FINE film", "c d e", "f g h", "i j k"]
    )
    assert fixing_options(report.findings, splits) == ["--set", "drop_duplicates=true"]
    report, splits = doctored(["good", "bad"] * 3)
    assert fixing_options(report.findings, splits) == []


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
    assert "labels in 'said'" in " ".join(
        said.replace("│", " ").split()
    )  # neither the date nor what is the same everywhere
    command = "glassformer train --text 'a b.csv' --set drop_duplicates=true"
    assert command in said
    assert (
        "classes with one example (odd): add examples first, since a random split needs two per class" in said
    )
    assert "merge_labels" not in said[said.index("suggested command") :]


def test_several_columns_of_labels_are_a_warning(tmp_path: Path, capsys):
    rows = [f"film number {i},{'pos' if i % 2 else 'neg'},{'x' if i % 3 else 'y'}" for i in range(20)]
    (tmp_path / "a.csv").write_text("what,said,more\n" + "\n".join(rows) + "\n")
    assert main(["data", "doctor", str(tmp_path / "a.csv")]) == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "warning columns no labels were checked: several columns could be the label (said, more)" in said


@pytest.mark.parametrize(
    ("right", "sentence"),
    [
        ([7, 0], "no better than always predicting 'a', the label of 70.0%"),
        ([7, 2], ""),
        ([5, 3], ""),  # right less often than 'a' alone, and with the better macro-F1
    ],
)
def test_a_model_that_always_answers_one_label_is_called_so(right, sentence):
    targets = np.array([0] * 7 + [1] * 3)
    predicted = np.array([0] * right[0] + [1] * (7 - right[0]) + [1] * right[1] + [0] * (3 - right[1]))
    scores = Classes().score(np.eye(2)[predicted], targets, ["a", "b"], bootstrap=0)
    assert no_better_than_majority(scores) == sentence


def test_few_validation_examples_are_said():
    held = TextSplit(["x"] * 35, ["a"] * 33 + ["b"] * 2, "x")
    train = SimpleNamespace(monitor="macro_f1", keep_best=True)
    assert "only 35 validation examples (2 of class 'b')" in small_validation(held, train)
    assert small_validation(held, SimpleNamespace(monitor="loss", keep_best=True)) == ""
    assert small_validation(TextSplit(["x"] * 101, ["a", "b"] * 50 + ["a"], "x"), train) == ""


def test_a_corrected_table_is_given_back_with_its_settings(tmp_path: Path):
    (tmp_path / "a.csv").write_text("what,said\nx,y\n")
    data = {
        "source": str(tmp_path / "a.csv"),
        "label_column": "said",
        "on_bad_row": "skip",
        "drop_duplicates": True,
        "merge_labels": {"Y": "y"},
    }
    assert training_command(data, Path("c.csv")) == [
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
    assert training_command({"source": "imdb", "label_column": "said"}, Path("c.csv"))[2:] == [
        "--text",
        "c.csv",
    ]


def test_a_monitor_that_was_chosen_is_respected():
    held = TextSplit(["x"] * 35, ["a"] * 33 + ["b"] * 2, "x")
    chosen = small_validation(held, SimpleNamespace(monitor="macro_f1", keep_best=True))
    assert "monitor=loss" not in chosen
    assert "monitor=macro_f1 is less noisy with more" in chosen
    usual = small_validation(held, SimpleNamespace(monitor="accuracy", keep_best=True))
    assert "--set monitor=loss" in usual


def doctor(capsys, *arguments: str) -> tuple[str, list[str]]:
    """What the doctor's verb prints: the table on one line, and all lines."""
    assert main(["data", "doctor", *arguments]) == 0
    out = capsys.readouterr().out
    return " ".join(out.replace("│", " ").split()), out.strip().splitlines()


def test_where_the_label_is_not_known_the_last_line_is_a_command_that_works(tmp_path: Path, capsys):
    file = tmp_path / "a.csv"
    people = ("Ana", "Bo", "Cy")
    rows = [f"film number {i // 2},{people[i % 3]},{'abcd'[i % 4]}" for i in range(23)]
    file.write_text("what,Handled by,Kind of film\n" + "\n".join(rows) + "\n")
    said, lines = doctor(capsys, str(file))
    assert "name it with --label-column" in said
    assert "label_column" not in said
    guess, command = lines[-1].split(": glassformer data doctor ")
    assert guess == "no labels were checked; 'Kind of film' is a guess (or: 'Handled by')"
    arguments = shlex.split(command)
    assert arguments == [str(file), "--label-column", "Kind of film"]
    said, lines = doctor(capsys, *arguments)
    assert "labels were checked" not in said
    assert f"train --text {file} --label-column 'Kind of film'" in lines[-1]


def test_a_table_of_numbers_is_sent_to_the_task_of_numbers(tmp_path: Path, capsys):
    file = tmp_path / "rated.csv"
    file.write_text("id,what,rated\n" + "".join(f"{i},film number {i},{i / 7:.3f}\n" for i in range(41)))
    _, lines = doctor(capsys, str(file))
    known, command = lines[-1].split(": glassformer train ")
    looks = "(to check them, add --set target=number)"
    assert known == f"no column looks like labels; 'rated' has numbers {looks}"
    assert shlex.split(command) == ["--text", str(file), "--set", "target=number", "--label-column", "rated"]


def test_a_file_without_labels_is_not_to_be_trained_on(tmp_path: Path, capsys):
    file = tmp_path / "new.csv"
    file.write_text("number,what\n" + "".join(f"{100 + i},film number {i // 2}\n" for i in range(23)))
    _, lines = doctor(capsys, str(file))
    assert lines[-1] == (f"no column looks like labels: to label these texts, glassformer predict RUN {file}")
    assert not any("glassformer train" in line for line in lines)


def test_the_texts_named_as_labels_are_called_so(tmp_path: Path, capsys):
    rows = "".join(f"{i},film number {i},{'ab'[i % 2]}\n" for i in range(23))
    (tmp_path / "a.csv").write_text("number,what,kind\n" + rows)
    assert main(["data", "doctor", str(tmp_path / "a.csv"), "--label-column", "what"]) == 2
    error = capsys.readouterr().err
    assert "'what' is named as the column of labels but contains the texts: 23 different texts" in error
    assert "Name the column of classes with --label-column, such as 'kind'" in error


@pytest.mark.parametrize(
    ("classes", "found"),
    [
        (["a", "b", "N/A", "?"], ["?", "N/A"]),
        (["a", "b", " Unknown "], [" Unknown "]),
        (["none", "insult"], []),  # one class beside it: it is the other
        (["+", "-", "so so"], []),
        (["a", "b", "nab"], []),
        ([0, 1, 2], []),
    ],
)
def test_classes_that_mean_no_label(classes, found):
    assert find_missing_labels(classes) == found


def test_a_missing_label_as_a_class_is_left_out_by_a_person():
    report, splits = doctored(["good"] * 7 + ["Good"] * 3 + ["bad"] * 5 + ["n/a"] * 2)
    (finding,) = (f for f in report.findings if f.code == "no-label")
    assert (finding.severity, finding.count) == ("warning", 2)
    assert """--set 'merge_labels={"*" = "spelling", "n/a" = ""}'""" in finding.sentence
    assert fixing_options(report.findings, splits)[-1] == "merge_labels=spelling"
    table = tomllib.loads(
        "table = " + shlex.split(finding.sentence.partition("--set ")[2])[0].partition("=")[2]
    )
    table = table["table"]
    kept, _ = apply_repairs(TextDataset("x", splits), table, False)
    assert set(kept.splits["train"].labels) == {"good", "bad"}


def test_copies_with_another_label_are_said_when_they_are_left_out():
    texts = ["one two", "three four", "ONE two", "one two", "five six", "three four"]
    split = TextSplit(texts, ["a", "b", "b", "a", "b", "a"], "x.csv", [2, 3, 4, 5, 6, 7])
    kept, (said,) = apply_repairs(TextDataset("x", {"train": split}), "none", True)
    assert kept.splits["train"].labels == ["a", "b", "b"]
    assert said == (
        "drop_duplicates: 3 of 6 of train left out; 2 of them had another label: the first was kept "
        "(row 4 'b', kept: row 2 'a'; row 7 'a', kept: row 3 'b')"
    )
    test = TextSplit(["three four"], ["a"], "y.csv", [2])
    _, said = apply_repairs(TextDataset("x", {"train": split, "test": test}), "none", True)
    assert "row 3 'b', kept: row 2 of test 'a'" in said[-1]


def test_contradictions_are_to_be_corrected_first():
    report, splits = doctored(["a", "b", "a", "b"], ["one two three", "one two three", "d e f", "g h i"])
    options = fixing_options(report.findings, splits)
    assert "correct them first" in needed_corrections(report.findings, options, splits)
    assert needed_corrections(report.findings, [], splits) == ""
    report, splits = doctored(["a", "a", "a", "b"], ["one two three", "one two three", "d e f", "g h i"])
    assert "correct them" not in needed_corrections(
        report.findings, fixing_options(report.findings, splits), splits
    )


def test_rows_that_make_most_of_what_is_cut_are_named():
    texts = [f"w{i} is short" for i in range(17)]
    texts[5] = "w1 " * 97
    tokenizer = word_tokenizer(texts, min_count=1)
    rows = list(range(2, 19))
    report = examine(
        TextDataset("x", {"train": TextSplit(texts, ["a"] * 17, "x.csv", rows)}),
        tokenizer=tokenizer,
        max_length=13,
    )
    (cut,) = (f for f in report.findings if f.code == "truncation")
    assert cut.message.endswith("100% of them in row 7")
    assert cut.examples[0].startswith("x.csv, row 7: ")
    many = TextDataset("x", {"train": TextSplit(["w1 " * 29] * 17, ["a"] * 17, "x.csv", rows)})
    report = examine(many, tokenizer=tokenizer, max_length=13)
    (cut,) = (f for f in report.findings if f.code == "truncation")
    assert cut.message.endswith("tokens are cut")
    assert cut.examples == ()


def test_doubled_quotes_are_shown():
    texts = ["plain", '"It is ""so"" and so"', 'he said "no" twice', 'a ""b"" c', '""', "5'11\""]
    split = SimpleNamespace(texts=texts, origin="x.csv", rows=[2, 3, 4, 5, 6, 7])
    (found,) = doubled_quotes({"train": split}, {})
    assert found.count == 3
    assert [example.split(":")[0] for example in found.examples] == [f"x.csv, row {i}" for i in (3, 5, 6)]
    pairs = Dataset("x", {"train": PairSplit(["a", '"b ""c"""'], ["d", "e"], "x", None)})
    assert [f.count for f in examine_pairs(pairs).findings if f.code == "quotes"] == [1]


@pytest.mark.parametrize(
    ("more", "options"),
    [("", ["--encoding", "cp1252"]), (",pos\n", ["--encoding", "cp1252", "--on-bad-row", "skip"])],
)
def test_a_table_in_another_encoding_is_read_so_and_no_row_is_lost(tmp_path: Path, more, options):
    rows = "".join(
        f"a film number {i} is {('good', 'poor')[i % 2]},{('pos', 'neg')[i % 2]}\n" for i in range(20)
    )
    path = tmp_path / "latin.csv"
    path.write_bytes(f"text,label\n{rows}the café – naïve,pos\n{more}".encode("cp1252"))
    dataset = load_text_dataset(path, on_bad_row="skip", need_labels=True)
    (found,) = (f for f in examine(dataset).findings if f.code == "bad-rows")
    assert found.fix.startswith("read it with --encoding cp1252, or save it as UTF-8; correct them")
    assert fixing_options([found], dataset.splits) == options


def test_numbers_for_labels_are_learned_and_not_merged():
    report, splits = doctored([f"{i % 23 / 7:.2f}" for i in range(47)])
    assert [f.code for f in report.findings if f.severity == "warning"] == ["label-kind"]
    assert fixing_options(report.findings, splits) == ["--set", "target=number"]


def test_what_is_merged_and_what_is_left_out_is_one_table():
    report, _ = doctored(["good", "bad"] * 11 + ["Good"] * 3 + ["n/a"] * 2)
    fixes = {f.code: f.fix for f in report.findings}
    both = """merge and leave out with --set 'merge_labels={"*" = "spelling", "n/a" = ""}'"""
    assert fixes["twin-classes"] == fixes["no-label"] == both
    split = TextSplit(
        [f"text {i}" for i in range(27)], ["good", "bad"] * 11 + ["Good"] * 3 + ["n/a"] * 2, "x"
    )
    merged, _ = apply_repairs(TextDataset("x", {"train": split}), {"*": "spelling", "n/a": ""}, False)
    assert sorted({*merged.splits["train"].labels}) == ["bad", "good"]
