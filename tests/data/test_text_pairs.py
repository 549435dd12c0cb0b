"""Pairs of texts: what is taken for one, which columns of a table hold them, what the doctor says, how they split."""

import copy
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.feature_extraction.text import CountVectorizer
from tests.tables import write_csv

from glassformer.data import TextSplit, examine, load_text_dataset, word_tokenizer
from glassformer.data.columns import columns_for_pair_model, find_pair_columns
from glassformer.data.duplicates import case_insensitive_key, comparison_key, copy_keys, keys_by_shared_text
from glassformer.data.kinds import detect_kind
from glassformer.data.repairs import apply_repairs, fixing_options
from glassformer.data.splits import grouped_split
from glassformer.data.tables import read_table
from glassformer.data.text_pairs import TextPair, check_inputs
from glassformer.errors import DataError
from glassformer.evaluate.baselines import PairVectorizer, tfidf_logistic

from .conftest import dataset, json_lines

ANIMALS = ("dog", "cat", "horse", "bird", "fish", "cow", "hen")
ROWS = [
    (f"a {animal} number {i} runs", f"some {animal if i % 2 else 'tree'} moves now {i}", ("no", "yes")[i % 2])
    for i, animal in enumerate(ANIMALS * 5)
]


def table(path: Path, names: str, rows=ROWS) -> Path:
    records = [dict(zip(names.split(","), row, strict=True)) for row in rows]
    if path.suffix == ".jsonl":
        path.write_text(json_lines(records))
    elif path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(records), path)
    else:
        write_csv(path, names.split(","), rows)
    return path


load_pairs = partial(load_text_dataset, need_labels=True, pair_column="auto")


def test_a_pair_is_a_text_that_knows_its_sides():
    pair = TextPair("one", "two words")
    assert pair == "one\ntwo words"
    assert pair.sides == ("one", "two words")
    for other in (copy.deepcopy(pair), pickle.loads(pickle.dumps(pair)), copy.copy(pair)):
        assert isinstance(other, TextPair)
        assert other.sides == pair.sides


@pytest.mark.parametrize(
    "X",
    [
        [("a", "b"), ("c", "d")],
        [["a", "b"], ["c", "d"]],
        np.array([["a", "b"], ["c", "d"]]),
        np.array([["a", "b"], ["c", "d"]], object),
        pd.DataFrame({"x": ["a", "c"], "y": ["b", "d"]}),
        pa.table({"x": ["a", "c"], "y": ["b", "d"]}),
        [TextPair("a", "b"), TextPair("c", "d")],
    ],
)
def test_what_is_taken_for_pairs(X):
    assert [pair.sides for pair in check_inputs(X)] == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("X", "said"),
    [
        ([("a", "b"), "c"], r"texts\[1\]: one text where the first input is a pair"),
        (["a", ("b", "c")], r"texts\[1\]: a pair of texts where the first input is one text"),
        ([("a", "b"), ("c", "d", "e")], r"texts\[1\]: 3 texts where a pair is expected"),
        ([("a", "b"), ("c", " ")], r"texts\[1\]: the second text is empty"),
        ([("a", "b"), (None, "d")], r"texts\[1\]: the first text is missing"),
        ([("a", "b"), ("c", 3)], r"texts\[1\]: the second text is not a string but int"),
        (pd.DataFrame({"x": ["a"], "y": ["b"], "z": ["c"]}), "a table with 3 columns"),
        ([], "no texts"),
        ("ab", "one string where a list"),
    ],
)
def test_what_is_refused(X, said):
    with pytest.raises(DataError, match=said):
        check_inputs(X)


def test_texts_stay_texts():
    assert check_inputs(["a b", "c"]) == ["a b", "c"]
    assert not any(isinstance(text, TextPair) for text in check_inputs(("a", "b")))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize(
    "names", ["premise,hypothesis", "sentence1,sentence2", "Text_A,Text_B", "question,answer"]
)
def test_columns_with_usual_names_are_found_and_said(names, suffix, tmp_path):
    path = table(tmp_path / f"t{suffix}", f"{names},label")
    found = load_pairs(path)
    one, other = names.split(",")
    assert (found.columns, found.pair_column) == ((one, "label"), other)
    assert [pair.sides for pair in found.splits["train"].texts] == [(a, b) for a, b, _ in ROWS]
    assert f"{one!r} and {other!r}" in found.messages[0]
    assert detect_kind(path) == "texts"


def test_two_columns_of_texts_of_like_length_are_a_pair(tmp_path):
    found = load_pairs(table(tmp_path / "t.csv", "claim,source,verdict"))
    assert (found.columns, found.pair_column) == (("claim", "verdict"), "source")
    assert "detected by content" in found.messages[0]
    assert "labels in 'verdict'" in found.messages[0]
    longer = [(a, f"{b} and so on and on and on and on and on", label) for a, b, label in ROWS]
    alone = load_pairs(table(tmp_path / "u.csv", "title,body,verdict", longer))
    assert (alone.columns, alone.pair_column) == (("body", "verdict"), None)  # a title is no side


def test_columns_that_are_named(tmp_path):
    path = table(tmp_path / "t.csv", "x,y,premise,label", [(a, b, a[::-1], y) for a, b, y in ROWS])
    read = load_pairs(path, text_column="x", pair_column="y")
    assert read.splits["train"].texts[0].sides == ROWS[0][:2]
    assert read.messages == ()
    assert not isinstance(load_pairs(path, text_column="x").splits["train"].texts[0], TextPair)
    for options, said in (
        ({"pair_column": "z"}, "no column 'z'"),
        ({"pair_column": "y"}, "'y' has the second texts, but no column of first texts.*text_column"),
        ({"text_column": "x", "pair_column": "x"}, "'x' is used both as the first text and as the second"),
    ):
        with pytest.raises(DataError, match=said):
            load_pairs(path, **options)
    assert find_pair_columns(read_table(path), None, "none") is None


OWN = ("a", "b")


@pytest.mark.parametrize(
    ("names", "named", "trained", "found", "said"),
    [
        (["id", "b", "a"], (None, "auto"), OWN, OWN, ""),
        (["id", "b", "a"], OWN, (), OWN, ""),
        (["B", "A"], (None, None), OWN, ("A", "B"), ""),
        (["a", "A", "b"], (None, None), OWN, OWN, ""),
        (["x", "b"], (None, None), OWN, ("x", "b"), "the only other column"),
        (["x", "b", "label"], (None, None), OWN, ("x", "b"), "the only other column"),
        (["id", "hypothesis", "premise"], OWN, OWN, ("premise", "hypothesis"), "by their usual names"),
        (["x", "y"], (None, "auto"), (), ("x", "y"), "by their order"),
        (["x", "y"], (None, "auto"), ("column1", "column2"), ("x", "y"), "by their order"),
        (["column1", "column2"], (None, "auto"), OWN, ("column1", "column2"), "by their order"),
        (["x", "y"], ("y", "auto"), OWN, ("y", "x"), "the only other column"),
        (["a", "b"], ("b", "a"), OWN, ("b", "a"), ""),
        (["id", "b", "x"], ("x", None), (None, "b"), ("x", "b"), ""),
        (["b", "x"], (None, None), (None, "b"), ("x", "b"), "the only other column"),
    ],
)
def test_a_table_to_be_answered_has_the_columns_of_the_training(names, named, trained, found, said):
    *sides, message = columns_for_pair_model(names, *named, "t", trained)
    assert tuple(sides) == found
    assert said in message
    assert bool(said) is bool(message)


@pytest.mark.parametrize(
    ("names", "named", "trained", "said"),
    [
        (["x", "y"], (None, "auto"), OWN, "from 'a' and 'b', but the table lacks 'a' and 'b'.*: x, y"),
        (["x", "y", "a"], (None, "auto"), OWN, "lacks 'b'"),
        (["x", "y", "z"], (None, "auto"), (), "unclear which two columns have the texts.*text_column"),
        (["x", "y"], ("X", None), OWN, "no column 'X'. Known: x, y"),
        (["a", "b"], ("b", None), OWN, "text_column"),
    ],
)
def test_columns_that_do_not_tell_their_sides_end_the_reading(names, named, trained, said):
    with pytest.raises(DataError, match=said):
        columns_for_pair_model(names, *named, "t", trained)


def test_bad_rows_say_which_side(tmp_path):
    rows = [*ROWS, ("fine", "", "yes"), ("", "fine", "no")]
    path = table(tmp_path / "t.csv", "premise,hypothesis,label", rows)
    with pytest.raises(DataError, match=rf"row {len(ROWS) + 3}: the first text is empty.*on_bad_row=skip"):
        load_pairs(path)
    found = load_pairs(path, on_bad_row="skip")
    assert [row.reason for row in found.rejected] == ["the second text is empty", "the first text is empty"]
    assert len(found.splits["train"]) == len(ROWS)


# --- copies, leaks ---------------------------------------------------------------------------------


def test_copies_are_pairs_alike_in_either_order():
    pair, swapped = TextPair("A dog.", "a Cat"), TextPair("a cat", "a dog")
    assert comparison_key(pair) == comparison_key(swapped) != comparison_key(TextPair("a dog a", "cat"))
    assert case_insensitive_key(pair) != case_insensitive_key(swapped)


def test_pairs_that_share_a_text_stay_together_where_asked():
    pairs = [TextPair(a, b) for a, b in ("ab", "bc", "de", "fg", "gd", "hi")]
    keys = keys_by_shared_text(pairs)
    assert keys[0] == keys[1]
    assert keys[2] == keys[3] == keys[4]
    assert len(set(keys)) == 3
    split = TextSplit(pairs, None, "made up")
    assert copy_keys(split, linked=True) == keys
    assert len(set(copy_keys(split))) == 6
    many = [TextPair(f"text {i % 11}", f"other {i}") for i in range(77)]
    kept, held = grouped_split([i % 2 for i in range(77)], keys_by_shared_text(many), 0.3, 0)
    assert not {many[i].first for i in kept.tolist()} & {many[i].first for i in held.tolist()}


def test_repeats_are_left_out_but_not_what_is_swapped():
    pairs = [TextPair("a dog", "a cat"), TextPair("A Dog", "a cat"), TextPair("a cat", "a dog")]
    kept, said = apply_repairs(dataset(train=(pairs, ["x", "x", "y"])), "none", True)
    assert [pair.sides for pair in kept.splits["train"].texts] == [("a dog", "a cat"), ("a cat", "a dog")]
    assert said


def findings(report, code):
    return [(f.severity, f.message, f.count) for f in report.findings if f.code == code]


def test_the_doctor_knows_leaks_by_either_side_and_by_the_swapped_pair():
    train = [TextPair(f"first text {i}", f"second text {i}") for i in range(20)]
    test = [
        TextPair("first text 3", "another one altogether"),
        TextPair("one of its own here", "SECOND text 4"),
        TextPair("second text 5", "first text 5"),
        TextPair("quite new to us", "and this one too"),
        TextPair("the very same here", "the very same here"),
    ]
    given = dataset(train=(train, ["a", "b"] * 10), test=(test, ["a", "b", "a", "b", "a"]))
    report = examine(given, tokenizer=word_tokenizer([*train, *test], min_count=1), max_length=9)
    ((severity, message, count),) = findings(report, "side-leaks")
    assert (severity, count) == ("warning", 3)
    assert "3 (60.0%; the first 2, the second 2, both 1)" in message
    assert ("warning", "pairs of test that are also in train, swapped: 1", 1) in findings(report, "swapped")
    assert ("note", "test: pairs whose two texts are the same: 1", 1) in findings(report, "same-sides")
    leaks = {"rows": 3, "first": 2, "second": 2, "both": 1, "swapped": 1}
    assert report.figures["sides"]["leaks"]["train/test"] == leaks
    cut = {message: count for _, message, count in findings(report, "truncation")}
    cut_none = "train: 0.0% of 20 texts exceed 9 tokens; 0.0% of the tokens are cut"  # 3 + 3 and 3 special
    assert cut[cut_none] == 0
    assert sum(cut.values()) == 3  # 5 + 3, 4 + 5 and 4 + 4 words, beside three special tokens


def test_the_baseline_of_both_sides_sees_what_neither_side_tells():
    pairs = [TextPair(f"a {a} runs", f"the {b} runs") for a in ANIMALS for b in ANIMALS]
    same = [int(a == b) for a in ANIMALS for b in ANIMALS]
    balanced = [i for i, y in enumerate(same) for _ in range(6 if y else 1)]
    said = tfidf_logistic([pairs[i] for i in balanced], [same[i] for i in balanced], pairs)
    assert (said.argmax(1) == same).mean() == 1.0


def test_words_of_both_sides_are_counted_apart():
    pairs = [TextPair("red dog", "red cat"), TextPair("cat", "dog")]
    found = PairVectorizer(CountVectorizer()).fit_transform(pairs)
    assert found.shape == (2, 4 * 3)  # cat, dog, red: in the first, in the second, in both, in one alone
    assert found.toarray()[0].reshape(4, 3).tolist() == [[0, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 0]]


def premises(distinct: int, each: int) -> list[tuple[str, str, str]]:
    """Every premise stands with several claims."""
    begins = [f"the {ANIMALS[i % 7]} number {i} runs over the hill" for i in range(distinct)]
    pairs = [(begin, i, k) for i, begin in enumerate(begins) for k in range(each)]
    return [(begin, f"this claim {i} of {k} says so", ("yes", "no")[k % 2]) for begin, i, k in pairs]


def test_a_premise_that_repeats_is_a_side_where_the_labels_are_known(tmp_path):
    path = table(tmp_path / "t.csv", "policy,says,verdict", premises(11, 6))
    for wanted in ({"need_labels": True}, {"need_labels": False, "find_labels": True}):
        found = load_pairs(path, label_column="verdict", **wanted)
        assert (found.columns, found.pair_column) == (("policy", "verdict"), "says")
    kinds = [(("bad", "good")[i % 2], b, label) for i, (_, b, label) in enumerate(premises(11, 6))]
    path = table(tmp_path / "u.csv", "mood,says,verdict", kinds)
    one = load_pairs(path, label_column="verdict", need_labels=False)
    assert (one.columns[0], one.pair_column) == ("says", None)


def test_the_doctor_of_one_table_tells_what_a_test_part_would_know():
    rows = premises(13, 5)
    given = dataset(train=([TextPair(a, b) for a, b, _ in rows], [label for _, _, label in rows]))
    report = examine(given)
    ((severity, message, count),) = findings(report, "known-sides")
    assert severity == "warning"
    assert "would not be valid for new texts" in message
    assert count == report.figures["sides"]["held_out"]["shared"] > 0
    assert report.figures["sides"]["held_out"]["families"] == 13
    assert fixing_options(report.findings, given.splits)[-2:] == ["--set", "copies=sides"]
    tied = [TextPair("one text for all", f"claim number {i}") for i in range(30)]
    report = examine(dataset(train=(tied, ["a", "b"] * 15)))
    assert not findings(report, "known-sides")
    assert [severity for severity, *_ in findings(report, "side-leaks")] == ["note"]
    apart = [TextPair(f"text {i} alone", f"claim number {i}") for i in range(30)]
    assert not findings(examine(dataset(train=(apart, ["a", "b"] * 15))), "known-sides")
