"""What is said of data that were not meant so: another column, another encoding, rows like the first bad one."""

from __future__ import annotations

import pytest

from glassformer.data.columns import find_columns, likeliest_labels
from glassformer.data.doctor import examine
from glassformer.data.rejected import by_kind, summary
from glassformer.data.sources import load_text_dataset
from glassformer.data.splits import grouped_split, stratified_folds, stratified_split
from glassformer.data.tables import read_table
from glassformer.errors import DataError


def table(path, names, rows):
    """A CSV file without quotes."""
    path.write_text("\n".join(",".join(row) for row in [names, *rows]) + "\n", encoding="utf-8")
    return path


def test_the_first_bad_row_says_how_many_there_are(tmp_path):
    rows = [("a text", "x"), ("", "y"), ("b text", ""), ("", "x"), ("c text", "y")]
    path = table(tmp_path / "a.csv", ("text", "label"), rows)
    with pytest.raises(DataError, match=r"row 3: the text is empty \(2 more rows cannot be used\)"):
        load_text_dataset(path)
    path = table(tmp_path / "b.csv", ("text", "label"), [("a text", "x"), ("b", "y", "z"), ("c", "x", "y")])
    with pytest.raises(
        DataError, match=r"row 3: 3 fields where .* \(1 more row cannot be used\).*on_bad_row"
    ):
        load_text_dataset(path)


def test_rows_in_another_encoding_are_said_to_be_that(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("text,label\na text,x\ncafé,y\n,x\nnaïve,x\n".encode("cp1252"))
    rejected = load_text_dataset(path, on_bad_row="skip").rejected
    assert summary(rejected).endswith(
        "; 2 of them are not UTF-8: read it with --encoding cp1252, or save it as UTF-8"
    )
    assert by_kind(rejected) == "not UTF-8 (2: rows 3, 5), the text is empty (row 4)"
    report = examine(load_text_dataset(path, on_bad_row="skip"))
    (found,) = [f for f in report.findings if f.code == "bad-rows"]
    assert found.message.startswith("3 rows cannot be used: not UTF-8 (2: rows 3, 5)")
    assert "--encoding cp1252" in found.fix


def test_hardly_any_examples_a_class_asks_whether_it_is_the_label(tmp_path):
    labels = [str(i) for i in range(23)] + [f"c{i // 2}" for i in range(34)]
    with pytest.raises(DataError, match=r"40 classes for 57 examples, 23 of them with one.*label_column"):
        stratified_split(labels, 0.1, 0)
    with pytest.raises(DataError, match=r"40 classes for 57 examples, 23 of them with one.*label_column"):
        stratified_folds(labels, 2, 0)
    days = [(f"text number {i}", f"day {label}") for i, label in enumerate(labels)]
    path = table(tmp_path / "a.csv", ("comment", "date"), days)
    dataset = load_text_dataset(path, text_column="comment", label_column="date")
    (found,) = [f for f in examine(dataset).findings if f.code == "lone-classes"]
    assert "40 classes in 57 rows" in found.message
    assert "are these the labels?" in found.fix


def test_several_lone_classes_are_counted_and_left_out_together():
    with pytest.raises(DataError, match=r"class 'b' has one example, and so have 2 more") as error:
        stratified_split(["a", "a", "b", "c", "d"], 2.0, 0)
    assert """'merge_labels={"b" = "", "c" = "", "d" = ""}'""" in str(error.value)


def test_few_distinct_texts_are_said_to_be_so():
    labels = [f"l{i % 3}" for i in range(61)]
    groups = [f"store {i % 3}" for i in range(61)]
    with pytest.raises(DataError, match=r"3 distinct examples in 61 rows.*text_column") as error:
        grouped_split(labels, groups, 0.1, 0)
    assert "one distinct example (21 copies of it)" in str(error.value)


def test_a_store_is_no_label_unless_it_is_named_or_needed(tmp_path):
    rows = [(f"comment number {i}", f"Store {i % 3}", f"kind {i % 5}") for i in range(31)]
    both = read_table(table(tmp_path / "a.csv", ("comment", "store", "about"), rows))
    assert likeliest_labels(both, ["store", "about"]) == ("about", "store")
    alone = read_table(table(tmp_path / "b.csv", ("comment", "store"), [row[:2] for row in rows]))
    found = find_columns(alone, None, None)
    assert (found.label, found.candidates) == (None, ("store",))
    assert "'store' could be the label" in found.said
    assert find_columns(alone, None, None, need_labels=True).label == "store"
    assert find_columns(alone, None, "store").label == "store"
    report = examine(load_text_dataset(tmp_path / "b.csv", find_labels=True))
    assert "no labels were looked at" in report.findings[0].message


def test_findings_on_texts_name_rows(tmp_path):
    rows = [("a text", "x"), ("--", "y"), ("a text", "y"), ("b text", "x"), ("b text", "x"), ("c text", "y")]
    report = examine(load_text_dataset(table(tmp_path / "a.csv", ("text", "label"), rows)))
    found = {f.code: f for f in report.findings}
    assert found["blank-texts"].message.endswith("(row 3)")
    assert "take the rows out" in found["blank-texts"].fix
    assert found["duplicates"].examples[0] == "2 times (rows 2, 4): a text"
    assert found["contradictions"].examples == ("x and y (rows 2, 4): a text",)
