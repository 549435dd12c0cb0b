"""Seeded splits; copies stay on one side of each; classes merged and repeats dropped where that is asked for."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data import split_by_distinct_text, stratified_subset
from glassformer.data.dataset import Dataset, TextDataset, TextSplit
from glassformer.data.duplicates import case_insensitive_key, comparison_key, copy_keys, image_digest
from glassformer.data.image_sources import ImageSplit
from glassformer.data.repairs import apply_repairs
from glassformer.data.splits import (
    MAX_BLOCKS,
    block_split,
    grouped_choice,
    grouped_split,
    make_splits,
    random_split,
    stratified_split,
)
from glassformer.errors import BadValueError, ConfigError, DataError

LABELS = ["a"] * 70 + ["b"] * 20 + ["c"] * 10


@pytest.mark.parametrize(("size", "held"), [(0.3, 30), (30, 30), (10, 10)])
def test_split_is_a_stratified_partition(size, held):
    rest_idx, held_idx = stratified_split(LABELS, size, seed=5)
    assert sorted([*rest_idx, *held_idx]) == list(range(100))
    assert len(held_idx) == held
    assert Counter(LABELS[i] for i in held_idx) == {"a": held * 0.7, "b": held * 0.2, "c": held * 0.1}
    assert (np.diff(rest_idx) > 0).all()
    assert (np.diff(held_idx) > 0).all()


def test_split_depends_on_the_seed_alone():
    first, again, other = (stratified_split(LABELS, 0.3, seed)[1] for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize("size", [0, -3, 2.5, float("nan"), float("inf")])
def test_sizes_that_are_neither_shares_nor_numbers(size):
    with pytest.raises(BadValueError, match=r"test_size: .* is neither a share nor a number of examples"):
        stratified_split(LABELS, size, 0, size_name="test_size")


LONE = r"3 of 5 classes have only one example \('b', 'c', 'd'\).*'merge_labels={\"b\" = \"\", \"c\" = \"\", \"d\" = \"\"}'"
OUT = r"leave the class out with --set 'merge_labels={\"N/A\" = \"\"}'"


@pytest.mark.parametrize(
    ("labels", "size", "said"),
    [
        (LABELS, 100, "split size"),
        (LABELS, 1000, "split size"),
        (["a", "b"] * 2, 4.0, r"cannot hold out 4 of 4 examples\. Give more examples"),
        ([*LABELS, "rare"], 0.3, "class 'rare' has only one example, but training and the held-out part"),
        (LABELS, 2, r"2 of .* would be held out, fewer than the 3 classes.* hold out at least 3"),
        (
            [f"c{i}" for i in range(60)],
            60.0,
            "60 classes for 60 examples, 60 of which have one",
        ),  # said first
        (["a", "a", "b", "c", "d", "e", "e"], 2.0, LONE),
        (["a", "b"] * 9 + ["N/A"], 0.2, OUT),
    ],
)
def test_sizes_and_classes_that_do_not_fit(labels, size, said):
    with pytest.raises(DataError, match=said):
        stratified_split(labels, size, 0)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 70), st.integers(0, 9))
def test_subset_has_the_wanted_size_whatever_the_labels(labels, size, seed):
    chosen = stratified_subset(labels, size, seed)
    assert len(chosen) == min(size, len(labels))
    assert (np.diff(chosen) > 0).all()
    assert set(chosen) <= set(range(len(labels)))


def test_subset_keeps_the_shares():
    assert Counter(LABELS[i] for i in stratified_subset(LABELS, 10, 0)) == {"a": 7, "b": 2, "c": 1}


@given(st.lists(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), max_size=100), st.integers(0, 9))
def test_copies_of_a_text_stay_together(letters, seed):
    texts = [*letters, *"abcdefgh"]  # four distinct texts of each class at least: no part stays empty
    labels = [ord(text) % 2 for text in texts]
    parts = split_by_distinct_text(texts, labels, {"train": 0.6, "test": 0.4}, seed)
    assert sorted(np.concatenate(list(parts.values()))) == list(range(len(texts)))
    found = {name: {texts[i] for i in idx} for name, idx in parts.items()}
    assert not found["train"] & found["test"]


def test_distinct_texts_are_shared_out_by_class():
    texts = [f"text {i}" for i in range(100)]
    parts = split_by_distinct_text(texts, LABELS, {"train": 0.8, "validation": 0.1, "test": 0.1}, seed=0)
    assert {k: len(v) for k, v in parts.items()} == {"train": 80, "validation": 10, "test": 10}
    assert Counter(LABELS[i] for i in parts["test"]) == {"a": 7, "b": 2, "c": 1}


@pytest.mark.parametrize(
    ("train", "test", "said"),
    [
        (0.5, 0.4, "add up to 1"),
        (1.2, -0.2, "add up to 1"),
        (0, 0, "add up to 1"),
        (0.9, 0.1, "part 'test' would be empty"),
    ],
)
def test_shares_that_cannot_be(train, test, said):
    sizes = {name: size for name, size in (("train", train), ("test", test)) if size}
    with pytest.raises(DataError, match=said):
        split_by_distinct_text(["a", "b"], [0, 1], sizes, 0)


@given(st.integers(3, 89), st.integers(0, 10), st.permutations(LABELS))
def test_blocks_are_runs_of_neighbours_in_each_class(size, seed, labels):
    rest_idx, held_idx = block_split(labels, size, seed)
    assert sorted([*rest_idx, *held_idx]) == list(range(100))
    both = held_idx, stratified_split(labels, size, seed)[1]
    counts, plain = (Counter(labels[i] for i in idx) for idx in both)
    assert counts == plain
    for name in {labels[i] for i in held_idx}:
        held = np.isin(np.flatnonzero(np.array(labels) == name), held_idx)
        assert 1 <= (np.diff(held.astype(int), prepend=0) == 1).sum() <= MAX_BLOCKS


def test_blocks_keep_groups_whole_but_at_their_ends():
    films = np.repeat(np.arange(500), 20)  # 20 reviews of each film, next to each other
    labels = ["bad"] * 5_000 + ["good"] * 5_000
    rest_idx, held_idx = block_split(labels, 2_000, seed=3)
    torn = set(films[rest_idx]) & set(films[held_idx])
    assert len(torn) <= 4 * MAX_BLOCKS  # two ends of four runs in two classes
    assert len(set(films[stratified_split(labels, 2_000, 3)[1]]) & set(films[rest_idx])) > 400
    assert (block_split(labels, 2_000, seed=3)[1] == held_idx).all()
    assert (block_split(labels, 2_000, seed=4)[1] != held_idx).any()
    with pytest.raises(DataError, match="split size"):
        block_split(LABELS, 100, 0)


def test_rows_are_split_together_and_keep_their_order():
    rows = list(range(101))
    rest, held = random_split([rows, [str(i) for i in rows]], 0.3, seed=5)
    assert len(held[0]) == 30
    assert sorted([*rest[0], *held[0]]) == rows
    for first, second in (rest, held):
        assert first == sorted(first)
        assert second == [str(i) for i in first]
    assert random_split([rows], 30, seed=5)[1] == [held[0]]
    assert random_split([rows], 30, seed=6)[1] != [held[0]]
    with pytest.raises(DataError, match="cannot hold out 101 of 101 examples"):
        random_split([rows], 101, seed=5)


# --- copies, merged classes and dropped repeats -------------------------------------------------------


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
        both = grouped_split(labels, groups, 0.2, 5, blocks), plain(labels, 0.2, 5)
        assert all(ours.tolist() == theirs.tolist() for ours, theirs in zip(*both, strict=True))
    order = np.random.default_rng(5).permutation(44)[:7]
    assert grouped_choice(groups, 7, 5).tolist() == sorted(order.tolist())


def test_one_class_is_left_to_the_check_of_classes_and_a_class_of_copies_alone_is_said():
    rest, held = grouped_split(["a"] * 10, ["same"] * 10, 0.2, 0)
    assert (len(rest), len(held)) == (8, 2)
    with pytest.raises(DataError, match=r"the 5 examples of class 'b' are copies of one another"):
        grouped_split(["a"] * 11 + ["b"] * 5, [*map(str, range(11)), *["same"] * 5], 0.2, 0)


def test_groups_are_chosen_whole():
    groups = ["x"] * 7 + [str(i) for i in range(10)]
    for seed in range(7):
        chosen = grouped_choice(groups, 5, seed)
        assert len({i < 7 for i in chosen.tolist() if groups[i] == "x"}) <= 1
        assert sum(groups[i] == "x" for i in chosen) in (0, 7)


def recipe_data(**settings):
    plain = {"test_size": 0.2, "validation_size": 0.2, "train_size": None, "hold_out": "rows"}
    return SimpleNamespace(**plain | {"copies": "together", "source": "x", "split_seed": 1} | settings)


def test_the_parts_of_a_run_share_no_copy():
    texts = [f"film {i % 23} was fine" if i % 2 else f"Film  {i % 23} WAS fine!" for i in range(92)]
    dataset = TextDataset("x", {"train": TextSplit(texts, [("a", "b")[i % 23 % 2] for i in range(92)], "x")})
    splits = make_splits(dataset, recipe_data(), "test")
    parts = [set(copy_keys(part)) for part in (splits.train, splits.validation, splits.evaluated)]
    assert not parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2]
    torn = make_splits(dataset, recipe_data(copies=None), "test")
    assert set(copy_keys(torn.train)) & set(copy_keys(torn.evaluated))  # as runs begun before it go on
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (5, 5, 3), np.uint8) for _ in range(22)]
    split = ImageSplit([x for x in pictures for _ in range(3)], ["a", "b"] * 33, "x")
    splits = make_splits(Dataset("x", {"train": split}), recipe_data(), "test")
    assert not set(copy_keys(splits.train)) & set(copy_keys(splits.evaluated))


def test_classes_in_two_spellings_become_one():
    labels = ["Good", "good ", "bad", "Good", "BAD"]
    given = TextDataset("x", {"train": TextSplit(["t"] * 5, labels, "x")}, ("BAD", "Good"))

    def merged(table):
        dataset, said = apply_repairs(given, table, False)
        return dataset.splits["train"].labels, dataset.label_names, said

    found, names, said = merged("spelling")
    assert (Counter(found), names) == ({"Good": 3, "BAD": 2}, ("BAD", "Good"))  # as most write it
    assert said == ["merge_labels: 'bad' becomes 'BAD', 'good ' becomes 'Good'; 2 classes"]
    found, _, said = merged({"bad": "", "BAD": ""})
    assert found == ["Good", "good ", "Good"]
    assert said == ["merge_labels: 'BAD' is left out, 'bad' is left out; 2 classes"]
    assert set(merged({"good ": "Good", "BAD": "bad"})[0]) == {"Good", "bad"}
    found, _, said = merged({"*": "spelling", "bad": ""})
    assert found == ["Good", "Good", "Good", "BAD"]  # the rest by its spelling
    assert said == ["merge_labels: 'bad' is left out, 'good ' becomes 'Good'; 2 classes"]
    for table, error in (
        ({"*": "casing"}, "= 'casing' is not supported"),
        ({"goood": "fine"}, r"no class 'goood'.*Did you mean 'good '"),
        ("casing", "merge_labels = 'casing' is not supported"),
    ):
        with pytest.raises(ConfigError, match=error):
            merged(table)


def test_repeats_are_dropped_and_what_is_judged_stays():
    texts = ["a b", "A  B", "c d", "e f", "great :)", "great :("]
    train = TextSplit(texts, [0, 0, 1, 1, 1, 0], "x", [2, 3, 4, 5, 6, 7])
    splits = {"train": train, "test": TextSplit(["C D", "g h", "g h"], [1, 0, 0], "x")}
    dataset, said = apply_repairs(TextDataset("x", splits), "none", True)
    assert dataset.splits["train"].texts == ["a b", "e f", "great :)", "great :("]
    assert dataset.splits["train"].rows == [2, 5, 6, 7]
    assert dataset.splits["test"].texts == ["C D", "g h"]
    assert said == ["drop_duplicates: 1 of 3 of test left out", "drop_duplicates: 2 of 6 of train left out"]
    assert list(dataset.splits) == ["train", "test"]
