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
from glassformer.data.rejected import group_reasons, skip_message
from glassformer.data.sources import load_text_dataset
from glassformer.data.splits import grouped_split, stratified_folds, stratified_split
from glassformer.data.tables import StreamedTable, raise_error, read_table
from glassformer.errors import DataError

MOODS = ["joy", "anger", "fear"]


def texts(n: int) -> list[str]:
    return [f"what a day number {i} was" for i in range(n)]


def test_two_columns_with_other_names_are_found_and_said(tmp_path):
    rows = [[text, MOODS[i % 3]] for i, text in enumerate(texts(12))]
    for names in (["comment", "emotion"], ["body", "label"], ["utterance", "emotion"]):
        found = load_text_dataset(write_csv(tmp_path / "two.csv", names, rows), need_labels=True)
        assert found.columns == tuple(names)
        assert found.splits["train"].labels == [MOODS[i % 3] for i in range(12)]
        usual = names[1] in LABEL_COLUMNS
        assert bool(found.messages) is not usual, names
        if found.messages:
            assert f"texts in {names[0]!r}, labels in {names[1]!r}" in found.messages[0]


def test_the_only_text_and_the_only_label_of_many_columns(tmp_path):
    rows = [[i, f"u{i}", text, i % 5, MOODS[i % 3], ""] for i, text in enumerate(texts(20))]
    path = write_csv(tmp_path / "many.csv", ["id", "user", "utterance", "votes", "emotion", "empty"], rows)
    found = load_text_dataset(path, need_labels=True)
    assert found.columns == (
        "utterance",
        "emotion",
    )  # of two columns like labels the one that is not a number
    assert find_text_column(read_table(path)) == "utterance"


def test_a_text_column_goes_before_titles_much_shorter(tmp_path):
    rows = [[f"day {i}", f"{text} and so on and on", MOODS[i % 3]] for i, text in enumerate(texts(12))]
    path = write_csv(tmp_path / "a.csv", ["headline", "article", "emotion"], rows)
    assert load_text_dataset(path, need_labels=True).columns == ("article", "emotion")


def test_two_columns_of_texts_are_not_guessed_between(tmp_path):
    rows = [[text, text[::-1] + " x", MOODS[i % 3]] for i, text in enumerate(texts(12))]
    path = write_csv(tmp_path / "pairs.csv", ["premise", "hypothesis", "relation"], rows)
    with pytest.raises(
        DataError,
        match=r"several columns look like texts.*text_column.*two of a pair with text_column and pair_column",
    ):
        load_text_dataset(path, need_labels=True)


def test_numbers_beside_texts_are_no_labels(tmp_path):
    path = write_csv(
        tmp_path / "n.csv", ["text", "score"], [[text, i / 7] for i, text in enumerate(texts(12))]
    )
    with pytest.raises(
        DataError, match=r"'score' has 12 different values in 12 rows.*bin them into a few classes"
    ):
        load_text_dataset(path, need_labels=True)
    assert load_text_dataset(path, find_labels=True).splits["train"].labels is None


def test_a_table_without_labels_needs_none(tmp_path):
    path = write_csv(tmp_path / "t.csv", ["id", "comment"], [[i, text] for i, text in enumerate(texts(9))])
    found = load_text_dataset(path)
    assert found.splits["train"].labels is None
    assert found.columns == ("comment", None)


def test_other_splits_have_the_columns_of_the_first(tmp_path):
    rows = [[text, MOODS[i % 3]] for i, text in enumerate(texts(12))]
    write_csv(tmp_path / "train.csv", ["utterance", "emotion"], rows)
    write_csv(
        tmp_path / "test.csv", ["utterance", "emotion"], [["so what", "joy"]]
    )  # of itself it tells nothing
    found = load_text_dataset(tmp_path, need_labels=True)
    assert found.splits["test"].labels == ["joy"]


@pytest.mark.parametrize("values", [["a"] * 3 + ["b"] * 3, [0, 1] * 4, ["yes", None, "no", "yes"]])
def test_what_looks_like_labels(values):
    assert looks_like_labels(values)


@pytest.mark.parametrize(
    "values",
    [[], [None] * 5, list(range(9)), [["a"], ["b"]] * 4, ["x" * 90, "y" * 90] * 4, ["a", *[None] * 9]],
)
def test_what_does_not(values):
    assert not looks_like_labels(values)


def test_texts_of_a_script_without_spaces_are_texts():
    assert mean_text_length([f"今日はとても良い天気です{i}" for i in range(5)]) == 13
    assert mean_text_length([f"https://example.org/{i}" for i in range(5)]) is None
    assert mean_text_length(["same words here"] * 5) is None


def test_the_guide_names_every_usual_column():
    page = (Path(__file__).parents[2] / "docs" / "guide" / "tables.md").read_text(encoding="utf-8")
    assert [name for name in (*TEXT_COLUMNS, *LABEL_COLUMNS) if f"`{name}`" not in page] == []


def test_a_doubtful_label_is_told_with_the_rows_that_would_be_refused_next(tmp_path):
    rows = [f'{i},"a long enough comment number {i}",{"NSEW"[i % 4]},{"ab"[i % 2]}' for i in range(40)]
    path = tmp_path / "a.csv"
    path.write_text(
        "\n".join(["id,comment,store,about", *rows, "41, ,N,a", '42,"",E,b', ""]), encoding="utf-8"
    )
    with pytest.raises(DataError) as raised:
        load_text_dataset(path, need_labels=True)
    assert "several columns could be the label (store, about)" in str(raised.value)
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


def test_counts_that_are_told_are_of_all_rows(tmp_path):
    rows = [[f"a comment of number {i}", f"{i}.5"] for i in range(9_000)]
    write_csv(tmp_path / "t.csv", ["body", "price"], rows)
    with pytest.raises(DataError, match="'price' has 9,000 different values in 9,000 rows"):
        load_text_dataset(tmp_path / "t.csv", need_labels=True)


def test_a_table_whose_rows_are_all_ragged_is_a_table_of_texts(tmp_path):
    write_csv(tmp_path / "t.csv", ["text", "label"], [["Good", " nice place", "pos"]] * 20)
    assert detect_kind(tmp_path / "t.csv") == "texts"


def test_the_separator_of_a_file_of_old_macs_is_seen_in_its_header(tmp_path):
    lines = ["text;label", *(f"well, number {i}, is it, so;{'ab'[i % 2]}" for i in range(9))]
    (tmp_path / "mac.csv").write_bytes("\r".join([*lines, ""]).encode())
    found = load_text_dataset(tmp_path / "mac.csv", need_labels=True).splits["train"]
    assert found.texts[0] == "well, number 0, is it, so"
    assert found.labels == [*"abababab", "a"]


# --- data that were not meant so --------------------------------------------------------------------


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
    assert skip_message(rejected).endswith(
        "; 2 of them are not UTF-8: read it with --encoding cp1252, or save it as UTF-8"
    )
    assert group_reasons(rejected) == "not UTF-8 (2: rows 3, 5), the text is empty (row 4)"
    report = examine(load_text_dataset(path, on_bad_row="skip"))
    (found,) = [f for f in report.findings if f.code == "bad-rows"]
    assert found.message.startswith("3 rows cannot be used: not UTF-8 (2: rows 3, 5)")
    assert "--encoding cp1252" in found.fix


def test_hardly_any_examples_a_class_asks_whether_it_is_the_label(tmp_path):
    labels = [str(i) for i in range(23)] + [f"c{i // 2}" for i in range(34)]
    with pytest.raises(
        DataError, match=r"40 classes for 57 examples, 23 of which have one example.*label_column"
    ):
        stratified_split(labels, 0.1, 0)
    with pytest.raises(
        DataError, match=r"40 classes for 57 examples, 23 of which have one example.*label_column"
    ):
        stratified_folds(labels, 2, 0)
    days = [(f"text number {i}", f"day {label}") for i, label in enumerate(labels)]
    path = table(tmp_path / "a.csv", ("comment", "date"), days)
    dataset = load_text_dataset(path, text_column="comment", label_column="date")
    (found,) = [f for f in examine(dataset).findings if f.code == "lone-classes"]
    assert "40 classes in 57 rows" in found.message
    assert "are these the labels?" in found.fix


def test_several_lone_classes_are_counted_and_left_out_together():
    with pytest.raises(DataError, match=r"3 of 5 classes have only one example \('b', 'c', 'd'\)") as error:
        stratified_split(["a", "a", "b", "c", "d", "e", "e"], 2.0, 0)
    assert """'merge_labels={"b" = "", "c" = "", "d" = ""}'""" in str(error.value)


def test_few_distinct_texts_are_said_to_be_so():
    labels = [f"l{i % 3}" for i in range(61)]
    groups = [f"store {i % 3}" for i in range(61)]
    with pytest.raises(DataError, match=r"3 distinct examples in 61 rows are too few: .*text_column"):
        grouped_split(labels, groups, 0.1, 0)


def test_a_store_is_no_label_unless_it_is_named_or_needed(tmp_path):
    rows = [(f"comment number {i}", f"Store {i % 3}", f"kind {i % 5}") for i in range(31)]
    both = read_table(table(tmp_path / "a.csv", ("comment", "store", "about"), rows))
    assert rank_label_candidates(both, ["store", "about"]) == ("about", "store")
    alone = read_table(table(tmp_path / "b.csv", ("comment", "store"), [row[:2] for row in rows]))
    found = find_columns(alone, None, None)
    assert (found.label, found.candidates) == (None, ("store",))
    assert "'store' could be the label" in found.message
    assert find_columns(alone, None, None, need_labels=True).label == "store"
    assert find_columns(alone, None, "store").label == "store"
    report = examine(load_text_dataset(tmp_path / "b.csv", find_labels=True))
    assert "no labels were checked" in report.findings[0].message


def test_findings_on_texts_name_rows(tmp_path):
    rows = [("a text", "x"), ("--", "y"), ("a text", "y"), ("b text", "x"), ("b text", "x"), ("c text", "y")]
    report = examine(load_text_dataset(table(tmp_path / "a.csv", ("text", "label"), rows)))
    found = {f.code: f for f in report.findings}
    assert found["blank-texts"].message.endswith("(row 3)")
    assert "take the rows out" in found["blank-texts"].fix
    assert found["duplicates"].examples[0] == "2 times (rows 2, 4): a text"
    assert found["contradictions"].examples == ("x and y (rows 2, 4): a text",)
