"""Which column holds the texts and which the labels, the same in every verb, and what is said of other data."""

from pathlib import Path

import numpy as np
import pytest
from tests.tables import write_csv

from glassformer.data.column_contents import looks_like_labels, mean_text_length
from glassformer.data.columns import (
    LABEL_COLUMNS,
    TEXT_COLUMNS,
    find_columns,
    find_text_column,
    rank_label_candidates,
)
from glassformer.data.doctor import examine
from glassformer.data.kinds import detect_kind
from glassformer.data.sources import load_text_dataset
from glassformer.data.splits import grouped_split, stratified_folds, stratified_split
from glassformer.data.tables import StreamedTable, raise_error, read_table
from glassformer.errors import DataError

from .conftest import by_code

MOODS = ["joy", "anger", "fear"]


def text(i: int) -> str:
    return f"what a day number {i} was"


def mood(i: int) -> str:
    return MOODS[i % 3]


def table(path, names: str, *cells, count: int = 12):
    """A CSV file whose columns hold ``cells(i)``."""
    return write_csv(path, names.split(","), ([cell(i) for cell in cells] for i in range(count)))


@pytest.mark.parametrize(
    ("names", "cells", "columns"),
    [
        ("comment,emotion", (text, mood), ("comment", "emotion")),
        ("body,label", (text, mood), ("body", "label")),
        ("utterance,emotion", (text, mood), ("utterance", "emotion")),
        (  # of two columns like labels the one that is not a number
            "id,user,utterance,votes,emotion,empty",
            (int, "u{}".format, text, lambda i: i % 5, mood, lambda i: ""),
            ("utterance", "emotion"),
        ),
        (  # titles are much shorter
            "headline,article,emotion",
            ("day {}".format, lambda i: f"{text(i)} and so on and on", mood),
            ("article", "emotion"),
        ),
    ],
)
def test_columns_are_found_by_their_content_and_said(tmp_path, names, cells, columns):
    path = table(tmp_path / "train.csv", names, *cells, count=20)
    found = load_text_dataset(path, need_labels=True)
    assert found.columns == columns
    assert found.splits["train"].labels == list(map(mood, range(20)))
    assert find_text_column(read_table(path)) == columns[0]
    usual = columns[1] in LABEL_COLUMNS
    assert bool(found.messages) is not usual
    assert usual or f"texts in {columns[0]!r}, labels in {columns[1]!r}" in found.messages[0]
    table(tmp_path / "test.csv", names, *cells, count=1)  # of itself it tells nothing
    assert load_text_dataset(tmp_path, need_labels=True).splits["test"].labels == ["joy"]


@pytest.mark.parametrize("count", [12, 9_000])
def test_numbers_beside_texts_are_no_labels(tmp_path, count):
    path = table(tmp_path / "n.csv", "text,score", text, lambda i: i / 7, count=count)
    said = rf"'score' has {count:,} different values in {count:,} rows.*bin them into a few classes"
    with pytest.raises(DataError, match=said):
        load_text_dataset(path, need_labels=True)
    assert load_text_dataset(path, find_labels=True).splits["train"].labels is None
    found = load_text_dataset(table(tmp_path / "t.csv", "id,comment", int, text))
    assert (found.splits["train"].labels, found.columns) == (None, ("comment", None))


def test_two_columns_of_texts_are_not_guessed_between(tmp_path):
    cells = text, lambda i: text(i)[::-1] + " x", mood
    path = table(tmp_path / "a.csv", "premise,hypothesis,relation", *cells)
    said = r"several columns look like texts.*text_column.*two of a pair with text_column and pair_column"
    with pytest.raises(DataError, match=said):
        load_text_dataset(path, need_labels=True)


LABELS = [["a"] * 3 + ["b"] * 3, [0, 1] * 4, ["yes", None, "no", "yes"]]
OTHERS = [[], [None] * 5, list(range(9)), [["a"], ["b"]] * 4, ["x" * 90, "y" * 90] * 4, ["a", *[None] * 9]]


@pytest.mark.parametrize(("values", "alike"), [*((x, True) for x in LABELS), *((x, False) for x in OTHERS)])
def test_what_looks_like_labels(values, alike):
    assert looks_like_labels(values) is alike


def test_texts_of_a_script_without_spaces_are_texts():
    assert mean_text_length([f"今日はとても良い天気です{i}" for i in range(5)]) == 13
    assert mean_text_length([f"https://example.org/{i}" for i in range(5)]) is None
    assert mean_text_length(["same words here"] * 5) is None


def test_the_guide_names_every_usual_column():
    page = (Path(__file__).parents[2] / "docs" / "guide" / "tables.md").read_text(encoding="utf-8")
    assert [name for name in (*TEXT_COLUMNS, *LABEL_COLUMNS) if f"`{name}`" not in page] == []


def test_a_doubtful_label_is_told_with_the_rows_that_would_be_refused_next(put):
    rows = [f'{i},"a long enough comment number {i}",{"NSEW"[i % 4]},{"ab"[i % 2]}' for i in range(40)]
    path = put("a.csv", ["id,comment,store,about", *rows, "41, ,N,a", '42,"",E,b'])
    with pytest.raises(DataError, match=r"several columns could be the label \(store, about\)") as raised:
        load_text_dataset(path, need_labels=True)
    assert "2 rows without a text can be skipped with on_bad_row=skip" in str(raised.value)


def test_labels_that_stand_in_turn_are_seen_in_long_tables_too(tmp_path):
    """Every second row alone would have one of them."""
    rng = np.random.default_rng(0)
    rows = [[f"a comment of number {i}", ["pos", "neg"][i % 2], "xyz"[rng.integers(3)]] for i in range(4_000)]
    write_csv(tmp_path / "t.csv", ["body", "polarity", "origin"], rows)
    with pytest.raises(DataError, match=r"several columns could be the label \(polarity, origin\)"):
        load_text_dataset(tmp_path / "t.csv", need_labels=True)
    gaps = [[text, "" if i % 2 else "xy"[i // 2 % 2]] for i, (text, *_) in enumerate(rows)]
    write_csv(tmp_path / "gaps.csv", ["body", "kind"], gaps)
    sample = StreamedTable(tmp_path / "gaps.csv", raise_error).sample()
    assert len(sample.rows) == 2_000
    assert 900 < sum(map(bool, sample.read("kind"))) < 1_100
    whole = read_table(tmp_path / "gaps.csv")
    chosen = [i for i, text in enumerate(whole.read("body")) if text in {*sample.read("body")}]
    assert [whole.read("kind")[i] for i in chosen] == sample.read("kind")


def test_a_table_whose_rows_are_all_ragged_is_a_table_of_texts(tmp_path):
    write_csv(tmp_path / "t.csv", ["text", "label"], [["Good", " nice place", "pos"]] * 20)
    assert detect_kind(tmp_path / "t.csv") == "texts"


def test_hardly_any_examples_a_class_asks_whether_it_is_the_label(tmp_path):
    labels = [str(i) for i in range(23)] + [f"c{i // 2}" for i in range(34)]
    for split, size in ((stratified_split, 0.1), (stratified_folds, 2)):
        said = r"40 classes for 57 examples, 23 of which have one example.*label_column"
        with pytest.raises(DataError, match=said):
            split(labels, size, 0)
    cells = "text number {}".format, lambda i: f"day {labels[i]}"
    path = table(tmp_path / "a.csv", "comment,date", *cells, count=57)
    dataset = load_text_dataset(path, text_column="comment", label_column="date")
    found = by_code(examine(dataset))["lone-classes"]
    assert "40 classes in 57 rows" in found.message
    assert "are these the labels?" in found.fix
    groups = [f"store {i % 3}" for i in range(61)]
    with pytest.raises(DataError, match=r"3 distinct examples in 61 rows are too few: .*text_column"):
        grouped_split([f"l{i % 3}" for i in range(61)], groups, 0.1, 0)


def test_a_store_is_no_label_unless_it_is_named_or_needed(tmp_path):
    cells = "comment number {}".format, lambda i: f"Store {i % 3}", lambda i: f"kind {i % 5}"
    both = read_table(table(tmp_path / "a.csv", "comment,store,about", *cells, count=31))
    assert rank_label_candidates(both, ["store", "about"]) == ("about", "store")
    path = table(tmp_path / "b.csv", "comment,store", *cells[:2], count=31)
    alone = read_table(path)
    found = find_columns(alone, None, None)
    assert (found.label, found.candidates) == (None, ("store",))
    assert "'store' could be the label" in found.message
    assert find_columns(alone, None, None, need_labels=True).label == "store"
    assert find_columns(alone, None, "store").label == "store"
    assert "no labels were checked" in examine(load_text_dataset(path, find_labels=True)).findings[0].message


def test_findings_on_texts_name_rows(put):
    rows = ["a text,x", "--,y", "a text,y", "b text,x", "b text,x", "c text,y"]
    found = by_code(examine(load_text_dataset(put("a.csv", ["text,label", *rows]))))
    assert found["blank-texts"].message.endswith("(row 3)")
    assert "take the rows out" in found["blank-texts"].fix
    assert found["duplicates"].examples[0] == "2 times (rows 2, 4): a text"
    assert found["contradictions"].examples == ("x and y (rows 2, 4): a text",)
