"""Labels that are no classes: what they look like is said, with what to do."""

import pytest

from glassformer.data.checks import check_classes, check_labels, check_pairs
from glassformer.data.dataset import TextDataset, TextSplit
from glassformer.data.doctor_checks import twin_classes
from glassformer.data.label_kinds import find_label_problem, match_known_labels
from glassformer.data.repairs import apply_repairs
from glassformer.data.sources import load_text_dataset
from glassformer.data.splits import grouped_split, stratified_folds, stratified_split
from glassformer.errors import DataError

from .conftest import json_lines

PRICES = [*(f"{i / 4}" for i in range(60)), "11,00", "60,00", "11"]
FOOD = ["good", "good;food", "bad;food", "bad"]


@pytest.mark.parametrize(
    ("labels", "what", "fix"),
    [
        (["0.0", "0.31", "2.5", "1.7", "0.0"], "numbers, not classes ('0.0', '0.31', '1.7')", "bin them"),
        ([0.5, 1.5, 2.25, 3.75], "numbers", "Learn the numbers"),
        (PRICES, "numbers", "Learn the numbers"),
        ([*range(40)] * 3 + [1000], "numbers", "Learn the numbers"),  # one that never comes again among many
        (list(range(30)), "numbers", "Learn the numbers"),
        (["['joy']", "['joy', 'fear']"], "lists, several labels", "label_separator"),
        (["joy", "fear", "joy|fear", "joy"], "several labels per example ('joy|fear')", "label_separator"),
        (["a", "b", "a, b"], "several labels", "label_separator"),
        (FOOD, "several labels per example ('bad;food', 'good;food')", "label_separator"),
    ],
)
def test_what_they_look_like(labels, what, fix):
    found = find_label_problem(labels)
    assert found is not None
    assert what in found[0]
    assert fix in found[1]


@pytest.mark.parametrize(
    "labels",
    [
        [],
        ["pos", "neg"],
        [1, 2, 3, 4, 5] * 20,
        ["0.5", "1.0", "1.5"] * 30,
        ["Arts, Culture", "Sport"],
        ["Arts, Culture", "Culture, Sport", "News"],  # no part stands alone
        ["0.0", "1.0"] * 3,
        [*range(40)] * 3,  # three examples of each class
    ],
)
def test_what_may_be_classes(labels):
    assert find_label_problem(labels) is None


def test_lists_in_json_are_label_sets_and_fractions_say_so(put):
    path = put("a.jsonl", json_lines({"text": f"t {i}", "label": ["a", "b"]} for i in range(4)))
    assert load_text_dataset(path, need_labels=True).splits["train"].labels == [("a", "b")] * 4
    path = put("a.jsonl", json_lines({"text": f"t {i}", "label": i + 0.5} for i in range(4)))
    with pytest.raises(DataError, match=r"fraction.*the labels look like numbers"):
        load_text_dataset(path, need_labels=True)


@pytest.mark.parametrize(
    ("known", "labels", "wanted"),
    [
        (["1", "0"], ["1.0", "0.00", 1], ["1", "0", "1"]),
        ([0, 1, 2], ["2.0", "1", "-0.0", "2.5"], [2, 1, "-0.0", "2.5"]),
        (["1.0", "2.0"], [1, "2", "3"], ["1.0", "2.0", "3"]),
        (["1", "1.0"], ["1.00", "1", "1.0"], ["1.00", "1", "1.0"]),  # two classes: neither is meant
        (["07", "7"], ["7.0", "007"], ["7", "007"]),  # a code is not a number
        (["pos", "neg"], ["Pos", "neg"], ["Pos", "neg"]),
    ],
)
def test_whole_numbers_of_two_files_meet(known, labels, wanted):
    assert match_known_labels(labels, known) == wanted


def test_names_that_differ_in_case_meet_where_asked():
    found = match_known_labels(["POS ", "neg", "none"], ["pos", "neg"], ignore_spelling=True)
    assert found == ["pos", "neg", "none"]
    assert match_known_labels(["POS"], ["pos", "Pos"], ignore_spelling=True) == ["POS"]


def test_splits_of_two_files_are_one_spelling(put, tmp_path):
    put("train.csv", "text,label\na b c,1\nd e f,0\ng h i,1\n")
    put("test.csv", "text,label\na b,1.0\nd e,0.0\n")
    splits = load_text_dataset(tmp_path, need_labels=True).splits
    assert (splits["train"].labels, splits["test"].labels) == ([1, 0, 1], [1, 0])


@pytest.mark.parametrize(
    "road",
    [
        check_labels,
        lambda labels: check_classes([round(10 * x) for x in labels]),
        lambda labels: stratified_split(list(map(str, labels)), 0.2, 0),
        lambda labels: grouped_split([*map(str, labels)], ["a", *map(str, range(len(labels) - 1))], 0.2, 0),
        lambda labels: stratified_folds(list(map(str, labels)), 5, 0),
        lambda labels: check_pairs([f"text {x}" for x in labels], labels, "fit", "texts", "labels"),
    ],
)
def test_numbers_are_called_so_on_every_road(road):
    with pytest.raises(DataError, match=r"the labels look like numbers, not classes.*Learn the numbers"):
        road([i / 7 for i in range(1, 60)])


TWINS = [("good", other) for other in ("Good", "good\u200b", "\ufeffgood", "go\u200dod")]
TWINS += [
    ("co-op", "co\u00ad-op"),
    ("good film", "good\u00a0film"),
    ("1", "1.0"),
    ("caf\u00e9", "cafe\u0301"),
]


@pytest.mark.parametrize("names", TWINS)
def test_one_class_in_two_ways_is_told_and_merged(names):
    split = TextSplit([f"text {i}" for i in range(6)], [*names, "bad"] * 2, "a.csv")
    (finding,) = twin_classes({"train": split}, {})
    assert (finding.severity, finding.count) == ("warning", 1)
    assert finding.fix == "merge them with --set merge_labels=spelling"
    assert " and ".join(map(repr, sorted(names))) in finding.message
    merged, said = apply_repairs(TextDataset("a", {"train": split}), "spelling", False)
    assert len(set(merged.splits["train"].labels)) == 2
    assert len(said) == 1


@pytest.mark.parametrize("names", [("1", "10"), ("1.5", "1.50"), ("a", "b"), ("C", "C++"), ("0", "-0.5")])
def test_classes_that_differ_in_more_are_two(names):
    split = TextSplit(["a", "b"], [*names], "a.csv")
    assert [f.severity for f in twin_classes({"train": split}, {})] == ["ok"]
