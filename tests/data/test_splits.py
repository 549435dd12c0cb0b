"""Seeded splits."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data import split_by_distinct_text, stratified_split, stratified_subset
from glassformer.data.splits import MAX_BLOCKS, block_split, random_split
from glassformer.errors import BadValueError, DataError

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


@pytest.mark.parametrize("size", [100, 1000])
def test_sizes_that_do_not_fit(size):
    with pytest.raises(DataError, match="split size"):
        stratified_split(LABELS, size, 0)


def test_classes_too_small_to_split():
    with pytest.raises(
        DataError, match="class 'rare' has only one example, but training and the held-out part each need one"
    ):
        stratified_split([*LABELS, "rare"], 0.3, 0)
    with pytest.raises(
        DataError, match=r"2 of .* would be held out, fewer than the 3 classes.* hold out at least 3"
    ):
        stratified_split(LABELS, 2, 0)


def test_a_label_of_its_own_for_every_text_is_said_before_the_size():
    with pytest.raises(DataError, match="60 classes for 60 examples, 60 of which have one example"):
        stratified_split([f"c{i}" for i in range(60)], 60.0, 0)
    with pytest.raises(DataError, match=r"cannot hold out 4 of 4 examples\. Give more examples"):
        stratified_split(["a", "b"] * 2, 4.0, 0)


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


@pytest.mark.parametrize("sizes", [{}, {"train": 0.5, "test": 0.4}, {"train": 1.2, "test": -0.2}])
def test_shares_must_add_up(sizes):
    with pytest.raises(DataError, match="add up to 1"):
        split_by_distinct_text(["a", "b"], [0, 1], sizes, 0)


def test_no_part_may_be_empty():
    with pytest.raises(DataError, match="part 'test' would be empty"):
        split_by_distinct_text(["a", "b"], [0, 1], {"train": 0.9, "test": 0.1}, 0)


@given(st.integers(3, 89), st.integers(0, 10), st.permutations(LABELS))
def test_blocks_are_runs_of_neighbours_in_each_class(size, seed, labels):
    rest_idx, held_idx = block_split(labels, size, seed)
    assert sorted([*rest_idx, *held_idx]) == list(range(100))
    assert Counter(labels[i] for i in held_idx) == Counter(
        labels[i] for i in stratified_split(labels, size, seed)[1]
    )
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


def test_blocks_refuse_what_does_not_fit():
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
