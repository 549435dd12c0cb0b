"""Copies stay on one side of every split made here; classes merged and repeats dropped where that is asked for."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data.dataset import Dataset, TextDataset, TextSplit
from glassformer.data.duplicates import case_insensitive_key, comparison_key, copy_keys, image_digest
from glassformer.data.image_sources import ImageSplit
from glassformer.data.repairs import apply_repairs
from glassformer.data.splits import block_split, grouped_choice, grouped_split, make_splits, stratified_split
from glassformer.errors import ConfigError, DataError


def test_what_counts_as_a_copy():
    assert comparison_key("<b>Great</b>, film!") == comparison_key("great  FILM") == "greatfilm"
    assert case_insensitive_key("Great film") == case_insensitive_key("GREAT\tfilm ")
    assert case_insensitive_key("great :)") != case_insensitive_key("great :(")
    assert comparison_key("!!!") == "!!!" != comparison_key("???")  # nothing but signs: they are what tells
    assert comparison_key("cafe\u0301") == comparison_key("caf\u00e9")
    picture = np.zeros((2, 3, 3), np.uint8)
    assert image_digest(picture) == image_digest(picture.copy()) != image_digest(picture.reshape(3, 2, 3))


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1)), min_size=12, max_size=60), st.integers(0, 5)
)
def test_no_group_is_torn(rows, seed):
    groups, labels = [str(g) for g, _ in rows], [label for _, label in rows]
    try:
        rest, held = grouped_split(labels, groups, 0.3, seed)
    except DataError:
        return
    if len(set(groups)) == 1:
        return
    assert sorted([*rest, *held]) == list(range(len(rows)))
    assert not {groups[i] for i in rest} & {groups[i] for i in held}
    assert len(rest)
    assert len(held)


def test_without_copies_the_split_is_the_one_without_groups():
    labels, groups = ["a"] * 31 + ["b"] * 13, [str(i) for i in range(44)]
    for blocks, plain in ((False, stratified_split), (True, block_split)):
        for ours, theirs in zip(
            grouped_split(labels, groups, 0.2, 5, blocks), plain(labels, 0.2, 5), strict=True
        ):
            assert ours.tolist() == theirs.tolist()
    order = np.random.default_rng(5).permutation(44)[:7]
    assert grouped_choice(groups, 7, 5).tolist() == sorted(order.tolist())


def test_a_class_of_copies_alone_is_said():
    with pytest.raises(DataError, match=r"the 5 examples of class 'b' are copies of one another"):
        grouped_split(["a"] * 11 + ["b"] * 5, [*map(str, range(11)), *["same"] * 5], 0.2, 0)


def test_one_class_is_left_to_the_check_of_classes():
    rest, held = grouped_split(["a"] * 10, ["same"] * 10, 0.2, 0)
    assert (len(rest), len(held)) == (8, 2)


def test_groups_are_chosen_whole():
    groups = ["x"] * 7 + [str(i) for i in range(10)]
    for seed in range(7):
        chosen = grouped_choice(groups, 5, seed)
        assert len({i < 7 for i in chosen.tolist() if groups[i] == "x"}) <= 1
        assert sum(groups[i] == "x" for i in chosen) in (0, 7)


def recipe_data(**settings):
    plain = {
        "test_size": 0.2,
        "validation_size": 0.2,
        "train_size": None,
        "hold_out": "rows",
        "split_seed": 1,
    }
    return SimpleNamespace(**(plain | {"copies": "together", "source": "x"} | settings))


def test_the_parts_of_a_run_share_no_copy():
    texts = [f"film {i % 23} was fine" if i % 2 else f"Film  {i % 23} WAS fine!" for i in range(92)]
    labels = [("a", "b")[i % 23 % 2] for i in range(92)]
    dataset = TextDataset("x", {"train": TextSplit(texts, labels, "x")})
    splits = make_splits(dataset, recipe_data(), "test")
    parts = [set(copy_keys(part)) for part in (splits.train, splits.validation, splits.evaluated)]
    assert not parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2]
    torn = make_splits(dataset, recipe_data(copies=None), "test")
    assert set(copy_keys(torn.train)) & set(copy_keys(torn.evaluated))  # as runs begun before it go on


def test_equal_pictures_share_a_side():
    rng = np.random.default_rng(0)
    eleven = [rng.integers(0, 256, (5, 5, 3), np.uint8) for _ in range(22)]
    split = ImageSplit([x for x in eleven for _ in range(3)], ["a", "b"] * 33, "x")
    splits = make_splits(Dataset("x", {"train": split}), recipe_data(), "test")
    assert not set(copy_keys(splits.train)) & set(copy_keys(splits.evaluated))


def test_classes_in_two_spellings_become_one():
    split = TextSplit(["t"] * 5, ["Good", "good ", "bad", "Good", "BAD"], "x")
    dataset, said = apply_repairs(TextDataset("x", {"train": split}, ("BAD", "Good")), "spelling", False)
    assert Counter(dataset.splits["train"].labels) == {"Good": 3, "BAD": 2}  # as most write it
    assert dataset.label_names == ("BAD", "Good")
    assert said == ["merge_labels: 'bad' becomes 'BAD', 'good ' becomes 'Good'; 2 classes"]
    without, said = apply_repairs(TextDataset("x", {"train": split}), {"bad": "", "BAD": ""}, False)
    assert without.splits["train"].labels == ["Good", "good ", "Good"]
    assert said == ["merge_labels: 'BAD' is left out, 'bad' is left out; 2 classes"]
    named, _ = apply_repairs(TextDataset("x", {"train": split}), {"good ": "Good", "BAD": "bad"}, False)
    assert set(named.splits["train"].labels) == {"Good", "bad"}
    both, said = apply_repairs(TextDataset("x", {"train": split}), {"*": "spelling", "bad": ""}, False)
    assert both.splits["train"].labels == ["Good", "Good", "Good", "BAD"]  # the rest by its spelling
    assert said == ["merge_labels: 'bad' is left out, 'good ' becomes 'Good'; 2 classes"]
    with pytest.raises(ConfigError, match="= 'casing' is not supported"):
        apply_repairs(TextDataset("x", {"train": split}), {"*": "casing"}, False)
    with pytest.raises(ConfigError, match=r"no class 'goood'.*Did you mean 'good '"):
        apply_repairs(TextDataset("x", {"train": split}), {"goood": "fine"}, False)
    with pytest.raises(ConfigError, match="merge_labels = 'casing' is not supported"):
        apply_repairs(TextDataset("x", {"train": split}), "casing", False)


def test_repeats_are_dropped_and_what_is_judged_stays():
    splits = {
        "train": TextSplit(
            ["a b", "A  B", "c d", "e f", "great :)", "great :("], [0, 0, 1, 1, 1, 0], "x", [2, 3, 4, 5, 6, 7]
        ),
        "test": TextSplit(["C D", "g h", "g h"], [1, 0, 0], "x"),
    }
    dataset, said = apply_repairs(TextDataset("x", splits), "none", True)
    assert dataset.splits["train"].texts == ["a b", "e f", "great :)", "great :("]
    assert dataset.splits["train"].rows == [2, 5, 6, 7]
    assert dataset.splits["test"].texts == ["C D", "g h"]
    assert said == ["drop_duplicates: 1 of 3 of test left out", "drop_duplicates: 2 of 6 of train left out"]
    assert list(dataset.splits) == ["train", "test"]
