"""Several labels an example: from lists, matrices, joined names, and columns of 0 and 1."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from glassformer.data.columns import parse_columns
from glassformer.data.doctor import examine
from glassformer.data.image_sources import load_image_dataset
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

from .conftest import by_code, class_labels, json_lines

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
    sets, labels = read_matrix(pd.DataFrame({"joy": [1, 0], "anger": [1, 1]}))  # whose columns are its labels
    assert (sets, labels) == ([("joy", "anger"), ("anger",)], ["joy", "anger"])
    with pytest.raises(DataError, match=r"labels\[1\]\[2\]: .*2.* where an indicator matrix has 0 or 1"):
        read_matrix(np.array([[0, 1, 0], [0, 1, 2]]))
    assert not is_multilabel(np.zeros((5, 1)))
    assert not is_multilabel(["a", "b"])


@pytest.mark.parametrize(
    ("cell", "separator", "labels"),
    [
        ("joy|anger", "|", ["joy", "anger"]),
        (" joy ; ; anger ", ";", ["joy", "anger"]),
        ("['joy', 'anger']", ",", ["joy", "anger"]),
        ('["joy", "a, b"]', ",", ["joy", "a, b"]),
        ("[3, 5]", ",", ["3", "5"]),
        ("('joy', 'anger')", ",", ["joy", "anger"]),
        ("(don't know);x", ";", ["(don't know)", "x"]),
        *(
            (cell, ";", cell.split(";"))
            for cell in ("(other)", "(other);(misc)", "(R&D, lab)", "(don't know)", "[a];[b]")
        ),
        ('["a]", "b"]', ",", ["a]", "b"]),
        ("{a, b}", ",", ["a", "b"]),
        ("(a;b)", ";", ["a", "b"]),
        *((cell, ";|"[i], []) for i, cell in enumerate(("(none)", ""))),
        (None, "|", []),
    ],
)
def test_names_in_one_cell(cell, separator, labels):
    assert split_cell(cell, separator) == labels


def test_tables_with_lists_and_with_joined_names_give_the_same(put, tmp_path):
    lists = [list(labels) for labels in SETS]
    rows = [{"text": text, "labels": labels} for text, labels in zip(TEXTS, lists, strict=True)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "lists.parquet")
    joined = [f"{row['text']},{'|'.join(row['labels'])}" for row in rows]
    for path, separator in (
        (tmp_path / "lists.parquet", None),
        (put("lists.jsonl", json_lines(rows)), None),
        (put("joined.csv", ["text,labels", *joined]), "|"),
    ):
        dataset = load_text_dataset(path, need_labels=True, label_separator=separator)
        assert dataset.splits["train"].labels == SETS
        assert dataset.label_names == ("a", "b", "c")


def test_numbers_of_lists_get_the_names_that_parquet_notes(tmp_path):
    columns = {"text": TEXTS[:3], "tags": [[1], [0, 1], []]}
    path = class_labels(tmp_path / "named.parquet", columns, ["no", "yes"], several=True)
    dataset = load_text_dataset(path, label_column="tags", need_labels=True)
    assert dataset.splits["train"].labels == [("yes",), ("no", "yes"), ()]


def test_whole_numbers_of_a_csv_are_numbers(put):
    path = put("n.csv", "text,label\none text here,3;1\nanother text here,1\n")
    dataset = load_text_dataset(path, need_labels=True, label_separator=";")
    assert dataset.splits["train"].labels == [(1, 3), (1,)]


def test_a_bad_label_in_a_list_names_its_row_or_is_left_out(put):
    labels = ["a"], ["a", None], ["a"]
    path = put("t.jsonl", json_lines({"text": "a text", "label": label} for label in labels))
    with pytest.raises(DataError, match=r"t.jsonl, row 2: the label is missing"):
        load_text_dataset(path, need_labels=True)
    dataset = load_text_dataset(path, need_labels=True, on_bad_row="skip")
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


def test_the_doctor_speaks_of_labels_not_of_sets(put):
    path = put("t.csv", ["text,label", *(f"a text with number {i},{('x', 'x|y')[i % 2]}" for i in range(40))])
    report = examine(load_text_dataset(path, need_labels=True, label_separator="|"))
    found = by_code(report)
    assert found["label-sets"].message == "train: 1.50 labels per example, more than one on 50.0%"
    assert "'x' and 'y' (20)" in found["co-occurrence"].message
    assert "2 labels, 40 examples with 'x' to 20 with 'y'" in found["balance"].message
    assert report.figures["splits"]["train"]["classes"] == {"x": 40, "y": 20}
    assert "label-kind" not in found


def test_empty_sets_are_told_with_a_way_out_that_works(put):
    rows = [f"a text with number {i},{('x', '', 'x|y')[i % 3]}" for i in range(39)]
    path = put("t.csv", ["text,label", *rows])
    dataset = load_text_dataset(path, need_labels=True, label_separator="|")
    found = by_code(examine(dataset))["empty-sets"]
    assert (found.severity, found.count) == ("note", 13)
    assert "13 of 39" in found.message
    assert """--set 'merge_labels={"(none)" = ""}'""" in found.fix
    kept, said = apply_repairs(dataset, {"(none)": ""}, False)
    assert said == ["merge_labels: 13 of 39 of train left out because they have no label"]
    assert len(kept.splits["train"]) == 26
    assert all(kept.splits["train"].labels)
    renamed, _ = apply_repairs(dataset, {"(none)": "", "y": "z"}, False)
    assert {label for own in renamed.splits["train"].labels for label in own} == {"x", "z"}
    single = load_text_dataset(path, need_labels=True, on_bad_row="skip")
    with pytest.raises(ConfigError, match="only multi-label data have"):
        apply_repairs(single, {"(none)": ""}, False)


# --- columns of 0 and 1 are found, named together, and what is wrong in one is named ------------------


NAMES = ("joy", "anger", "fear")
BITS = np.random.default_rng(0).integers(0, 2, (29, 3))
OF_BITS = [tuple(sorted(np.array(NAMES)[row == 1].tolist())) for row in BITS]
MANY = [f"text number {i} of many" for i in range(29)]


def write(path, bits=BITS, extra=()):
    """A table of texts with a column for each label; ``extra``: (name, values) of more."""
    rows = [
        {"text": MANY[i]} | dict(zip(NAMES, row, strict=True)) | {name: values[i] for name, values in extra}
        for i, row in enumerate(bits.tolist())
    ]
    if path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        between = "\t" if path.suffix == ".tsv" else ","
        lines = [between.join(rows[0]), *(between.join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("named", [None, "joy,anger,fear", " joy , anger,fear"])
@pytest.mark.parametrize("kind", [int, float, bool])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
def test_columns_of_0_and_1_are_several_labels(tmp_path, name, kind, named):
    path = write(tmp_path / name, BITS.astype(kind))
    dataset = load_text_dataset(path, need_labels=True, label_column=named)
    assert dataset.splits["train"].labels == OF_BITS
    assert dataset.label_names == tuple(sorted(NAMES))
    assert dataset.columns == ("text", "joy,anger,fear")
    found = "multi-label, detected by content: joy, anger, fear" in " ".join(dataset.messages)
    assert found == (named is None)


def without(label: str, sets=OF_BITS) -> list[tuple[str, ...]]:
    return [tuple(x for x in own if x != label) for own in sets]


def test_some_of_them_can_be_named(tmp_path):
    path = write(tmp_path / "a.csv")
    assert load_text_dataset(path, label_column="fear,joy").splits["train"].labels == without("anger")
    assert load_text_dataset(path, label_column="joy").splits["train"].labels == BITS[:, 0].tolist()
    assert load_text_dataset(path).splits["train"].labels is None  # nobody asked for labels
    assert len(load_text_dataset(path, find_labels=True).splits["train"].labels) == 29


@pytest.mark.parametrize(
    ("name", "values", "found"),
    [
        ("id", list(range(29)), "joy,anger,fear"),  # tells rows apart
        ("source", ["web"] * 29, "joy,anger,fear"),  # one value
        ("user", ["ann", "bob"] * 14 + ["ann"], "joy,anger,fear"),  # a person
        ("mood", ["good", "bad"] * 14 + ["good"], "mood"),  # labels of their own
        ("label", ["pos", "neg"] * 14 + ["pos"], "label"),  # a usual name
        ("stars", [1, 2, 3, 4] * 7 + [5], None),
    ],
)
def test_other_columns_beside_them(tmp_path, name, values, found):
    path = write(tmp_path / "a.csv", extra=[(name, values)])
    if found:
        assert load_text_dataset(path, need_labels=True).columns[1] == found
        return
    with pytest.raises(DataError, match="several columns could be the label") as error:
        load_text_dataset(path, need_labels=True)
    assert "label_column=joy,anger,fear" in error.value.fix


@pytest.mark.parametrize(("cell", "what"), [("2", "'2'"), ("", "nothing"), ("yes", "'yes'")])
def test_another_value_is_named_with_its_row(tmp_path, cell, what):
    path = write(tmp_path / "a.csv")
    lines = path.read_text().splitlines()
    lines[4] = ",".join([*lines[4].split(",")[:3], cell])
    path.write_text("\n".join(lines))
    with pytest.raises(DataError) as error:
        load_text_dataset(path, label_column="joy,anger,fear")
    assert error.value.where == f"{path}, row 5"
    assert error.value.what == f"column 'fear' has {what} instead of 0 or 1"
    dataset = load_text_dataset(path, label_column="joy,anger,fear", on_bad_row="skip")
    assert dataset.splits["train"].labels == OF_BITS[:3] + OF_BITS[4:]
    assert [row.row for row in dataset.rejected] == [5]


def test_every_split_has_them(tmp_path):
    write(tmp_path / "train.csv")
    write(tmp_path / "test.csv", BITS[:5] * [1, 1, 0])
    splits = load_text_dataset(tmp_path, need_labels=True).splits
    assert splits["train"].labels == OF_BITS
    assert splits["test"].labels == without("fear", OF_BITS[:5])


def test_images_too(tmp_path):
    for i in range(29):
        Image.new("RGB", (5, 7), (i, 0, 0)).save(tmp_path / f"{i}.png")
    path = write(tmp_path / "a.csv", extra=[("image", [f"{i}.png" for i in range(29)])])
    path.write_text("\n".join(line.split(",", 1)[1] for line in path.read_text().splitlines()))
    assert load_image_dataset(path).splits["train"].labels == OF_BITS
    assert load_image_dataset(path, label_column="joy,anger").splits["train"].labels == without("fear")


def test_names_with_a_comma_of_their_own():
    assert parse_columns(["text", "a,b", "c"], "a,b") == []
    assert parse_columns(["text", "a", "b"], "a,b") == ["a", "b"]
    assert parse_columns(["text", "a", "b"], "a,c") == []
    assert parse_columns(["text", "a"], None) == []
