"""Labels that are no classes: what they look like is said, with what to do."""

from __future__ import annotations

import json

import pytest

from glassformer.data.label_kinds import what_labels_are
from glassformer.data.sources import load_text_dataset
from glassformer.data.splits import stratified_split
from glassformer.errors import DataError


@pytest.mark.parametrize(
    ("labels", "what", "fix"),
    [
        (
            ["0.0", "0.31", "2.5", "1.7", "0.0"],
            "numbers, not classes ('0.0', '0.31', '1.7')",
            "Cut them into a few",
        ),
        ([0.5, 1.5, 2.25, 3.75], "numbers", "Cut them"),
        (list(range(30)), "numbers", "Cut them"),
        (["['joy']", "['joy', 'fear']"], "lists, several labels", "one label"),
        (["joy", "fear", "joy|fear", "joy"], "several labels an example ('joy|fear')", "for each label"),
        (["a", "b", "a, b"], "several labels", "one label"),
    ],
)
def test_what_they_look_like(labels, what, fix):
    found = what_labels_are(labels)
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
        ["0.0", "1.0"] * 3,
    ],
)
def test_what_may_be_classes(labels):
    assert what_labels_are(labels) is None


def test_a_split_of_numbers_says_so():
    with pytest.raises(DataError, match=r"has one example.*these look like numbers, not classes.*Cut them"):
        stratified_split([f"{i / 7:.2f}" for i in range(30)], 0.2, 0)


def test_lists_in_json_say_so(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"t {i}", "label": ["a", "b"]}) + "\n" for i in range(4)))
    with pytest.raises(
        DataError, match=r"row 1.*these look like lists, several labels.*classifier for each label"
    ):
        load_text_dataset(path, need_labels=True)
    path.write_text("".join(json.dumps({"text": f"t {i}", "label": i + 0.5}) + "\n" for i in range(4)))
    with pytest.raises(DataError, match=r"fraction.*these look like numbers"):
        load_text_dataset(path, need_labels=True)
