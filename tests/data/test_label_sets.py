"""Several labels an example, from lists, matrices and the columns of tables."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glassformer.data.doctor import examine
from glassformer.data.label_sets import (
    LabelSet,
    check_sets,
    indicator,
    is_multilabel,
    label_pairs,
    read_matrix,
    split_cell,
)
from glassformer.data.repairs import apply_repairs
from glassformer.data.sources import load_text_dataset
from glassformer.data.splits import strata, stratified_folds, stratified_split
from glassformer.errors import ConfigError, DataError

TEXTS = [f"text number {i} of seven" for i in range(7)]
SETS = [("a", "b"), ("b",), (), ("a",), ("a", "b", "c"), ("c",), ("b", "c")]


def test_sets_are_checked_sorted_and_shown():
    found = check_sets([["b", "a", "b"], {"a"}, (), np.array(["c"])])
    assert found == [("a", "b"), ("a",), (), ("c",)]
    assert [str(labels) for labels in found] == ["a | b", "a", "(none)", "c"]
    assert check_sets([[2, 1.0]]) == [(1, 2)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([["a"], ["b", None]], r"labels\[1\]: the label is missing"),
        ([["a"], [], ["b", 3]], r"labels\[2\]: label 3 is a number where the first is text"),
        ([["a"], None], r"labels\[1\]: the labels are missing"),
        ([["a"], "b"], r"labels\[1\]: the labels are not a list but str.*list of labels for every example"),
    ],
)
def test_a_set_that_cannot_be_one_is_named(given, said):
    with pytest.raises(DataError, match=said):
        check_sets(given)


def test_a_matrix_is_read_as_scikit_learn_has_it():
    from scipy.sparse import csr_matrix

    y = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 1]])
    for given in (y, y.astype(bool), y.astype(float), csr_matrix(y)):
        assert is_multilabel(given)
        sets, labels = read_matrix(given)
        assert (sets, labels) == ([(0, 2), (), (1, 2)], [0, 1, 2])
    np.testing.assert_array_equal(indicator(sets, labels), y)
    with pytest.raises(DataError, match=r"labels\[1\]\[2\]: .*2.* where an indicator matrix has 0 or 1"):
        read_matrix(np.array([[0, 1, 0], [0, 1, 2]]))
    assert not is_multilabel(np.zeros((5, 1)))
    assert not is_multilabel(["a", "b"])


def test_the_columns_of_a_data_frame_are_its_labels():
    pandas = pytest.importorskip("pandas")
    sets, labels = read_matrix(pandas.DataFrame({"joy": [1, 0], "anger": [1, 1]}))
    assert labels == ["joy", "anger"]
    assert sets == [("joy", "anger"), ("anger",)]


@pytest.mark.parametrize(
    ("cell", "separator", "labels"),
    [
        ("joy|anger", "|", ["joy", "anger"]),
        (" joy ; ; anger ", ";", ["joy", "anger"]),
        ("['joy', 'anger']", ",", ["joy", "anger"]),
        ('["joy", "a, b"]', ",", ["joy", "a, b"]),
        ("[3, 5]", ",", ["3", "5"]),
        ("('joy', 'anger')", ",", ["joy", "anger"]),
        ("(other)", ";", ["(other)"]),
        ("(other);(misc)", ";", ["(other)", "(misc)"]),
        ("(R&D, lab)", ";", ["(R&D, lab)"]),
        ("(don't know);x", ";", ["(don't know)", "x"]),
        ("(don't know)", ";", ["(don't know)"]),
        ("[a];[b]", ";", ["[a]", "[b]"]),
        ('["a]", "b"]', ",", ["a]", "b"]),
        ("{a, b}", ",", ["a", "b"]),
        ("(a;b)", ";", ["a", "b"]),
        ("(none)", ";", []),
        ("", "|", []),
        (None, "|", []),
    ],
)
def test_names_in_one_cell(cell, separator, labels):
    assert split_cell(cell, separator) == labels


def test_tables_with_lists_and_with_joined_names_give_the_same(tmp_path):
    lists = [list(labels) for labels in SETS]
    pq.write_table(pa.table({"text": TEXTS, "labels": lists}), tmp_path / "lists.parquet")
    rows = [json.dumps({"text": text, "labels": labels}) for text, labels in zip(TEXTS, lists, strict=True)]
    (tmp_path / "lists.jsonl").write_text("\n".join(rows) + "\n")
    cells = [f"{text},{'|'.join(labels)}" for text, labels in zip(TEXTS, lists, strict=True)]
    (tmp_path / "joined.csv").write_text("\n".join(["text,labels", *cells]) + "\n")
    for name, separator in (("lists.parquet", None), ("lists.jsonl", None), ("joined.csv", "|")):
        dataset = load_text_dataset(tmp_path / name, need_labels=True, label_separator=separator)
        assert dataset.splits["train"].labels == SETS
        assert dataset.label_names == ("a", "b", "c")


def test_numbers_of_lists_get_the_names_that_parquet_notes(tmp_path):
    about = {
        "info": {
            "features": {
                "tags": {"feature": {"names": ["no", "yes"], "_type": "ClassLabel"}, "_type": "List"}
            }
        }
    }
    table = pa.table({"text": TEXTS[:3], "tags": [[1], [0, 1], []]})
    table = table.replace_schema_metadata({"huggingface": json.dumps(about)})
    pq.write_table(table, tmp_path / "named.parquet")
    dataset = load_text_dataset(tmp_path / "named.parquet", label_column="tags", need_labels=True)
    assert dataset.splits["train"].labels == [("yes",), ("no", "yes"), ()]


def test_whole_numbers_of_a_csv_are_numbers(tmp_path):
    (tmp_path / "n.csv").write_text("text,label\none text here,3;1\nanother text here,1\n")
    dataset = load_text_dataset(tmp_path / "n.csv", need_labels=True, label_separator=";")
    assert dataset.splits["train"].labels == [(1, 3), (1,)]


def test_a_bad_label_in_a_list_names_its_row_or_is_left_out(tmp_path):
    rows = [{"text": "one text", "label": ["a"]}, {"text": "two texts", "label": ["a", None]}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, [*rows, rows[0]])) + "\n")
    with pytest.raises(DataError, match=r"t.jsonl, row 2: the label is missing"):
        load_text_dataset(tmp_path / "t.jsonl", need_labels=True)
    dataset = load_text_dataset(tmp_path / "t.jsonl", need_labels=True, on_bad_row="skip")
    assert dataset.splits["train"].labels == [("a",), ("a",)]
    assert dataset.rejected[0].row == 2


def test_every_label_stands_on_both_sides_of_a_split():
    rng = np.random.default_rng(0)
    shares = np.array([0.6, 0.3, 0.1, 0.03])
    sets = [LabelSet(np.flatnonzero(row).tolist()) for row in rng.random((400, 4)) < shares]
    rest, held = stratified_split(sets, 0.25, seed=1)
    assert sorted([*rest, *held]) == list(range(400))
    assert len(held) == 100
    for k in range(4):
        has = np.array([k in labels for labels in sets])
        assert has[held].mean() == pytest.approx(has.mean(), abs=0.06)
        assert has[held].any()
    folds = stratified_folds(sets, 5, seed=1)
    assert all(any(3 in sets[i] for i in np.flatnonzero(folds == k)) for k in range(5))
    assert strata(["x", "y"], 1) == ["x", "y"]


def test_pairs_of_labels_are_counted_by_hand():
    (first, *others) = label_pairs([LabelSet(labels) for labels in SETS])
    assert first["labels"] == ["a", "b"]
    assert first["count"] == 2
    assert first["of_first"] == pytest.approx(2 / 3)  # a stands three times
    assert first["of_second"] == pytest.approx(2 / 4)
    assert first["lift"] == pytest.approx(2 * 7 / (3 * 4))
    assert {tuple(pair["labels"]) for pair in others} == {("a", "c"), ("b", "c")}


def test_the_doctor_speaks_of_labels_not_of_sets(tmp_path):
    (tmp_path / "t.csv").write_text(
        "text,label\n" + "".join(f"a text with number {i},{'x|y' if i % 2 else 'x'}\n" for i in range(40))
    )
    report = examine(load_text_dataset(tmp_path / "t.csv", need_labels=True, label_separator="|"))
    found = {finding.code: finding for finding in report.findings}
    assert found["label-sets"].message == "train: 1.50 labels per example, more than one on 50.0%"
    assert "'x' and 'y' (20)" in found["co-occurrence"].message
    assert "2 labels, 40 examples with 'x' to 20 with 'y'" in found["balance"].message
    assert report.figures["splits"]["train"]["classes"] == {"x": 40, "y": 20}
    assert "label-kind" not in found


def test_empty_sets_are_told_with_a_way_out_that_works(tmp_path):
    cells = ("x", "", "x|y")
    lines = "".join(f"a text with number {i},{cells[i % 3]}\n" for i in range(39))
    (tmp_path / "t.csv").write_text("text,label\n" + lines)
    dataset = load_text_dataset(tmp_path / "t.csv", need_labels=True, label_separator="|")
    found = {finding.code: finding for finding in examine(dataset).findings}["empty-sets"]
    assert (found.severity, found.count) == ("note", 13)
    assert "13 of 39" in found.message
    assert """--set 'merge_labels={"(none)" = ""}'""" in found.fix
    kept, said = apply_repairs(dataset, {"(none)": ""}, False)
    assert said == ["merge_labels: 13 of 39 of train left out because they have no label"]
    assert len(kept.splits["train"]) == 26
    assert all(kept.splits["train"].labels)
    renamed, _ = apply_repairs(dataset, {"(none)": "", "y": "z"}, False)
    assert {label for own in renamed.splits["train"].labels for label in own} == {"x", "z"}
    single = load_text_dataset(tmp_path / "t.csv", need_labels=True, on_bad_row="skip")
    with pytest.raises(ConfigError, match="only multi-label data have"):
        apply_repairs(single, {"(none)": ""}, False)
