"""Slices: which groups there are, and which of them are found."""

import numpy as np
import pytest
from tests.audit.conftest import messages

from glassformer.audit.slices import (
    Slice,
    find_slices,
    more_errors_test,
    more_losses_test,
    quarters,
    significant,
)


def test_every_kind_of_group_of_a_text_is_named(judged):
    rows = [(text, label, str(i % 7), "ab"[i % 2]) for i, (text, label) in enumerate(messages(211, 1))]
    found = {part.name: part for part in find_slices(judged(rows, "shop", "side"))}
    assert {"label refund", "shop = 3", "side = b", "with 'parcel'"} <= {*found}
    assert found["shop = 3"].rows.tolist() == [i % 7 == 3 for i in range(211)]
    assert sum(part.kind == "length" for part in found.values()) == 4
    assert any(part.kind == "label and length" for part in found.values())


def test_quarters_have_each_number_once_and_name_their_bounds():
    found = quarters("length", "words", [1, 2, 3, 4, 5, 6, 7, np.nan])
    assert np.sum([part.rows for part in found], 0).tolist() == [1] * 7 + [0]
    assert [part.name for part in found] == ["1 to 2 words", "3 to 4 words", "5 to 6 words", "7 words"]
    assert quarters("column", "x", [np.nan]) == []


def test_p_values_are_those_of_the_exact_tests():
    wrong = np.array([True] * 5 + [False] * 12)
    rows = np.zeros(17, bool)
    rows[:4] = True
    p, floor = more_errors_test(wrong)(rows)
    assert p == floor == pytest.approx(5 * 4 * 3 * 2 / (17 * 16 * 15 * 14))  # all four errors of five
    losses, gains = wrong, np.roll(wrong, 5)
    p, floor = more_losses_test(losses, gains)(np.ones(17, bool))
    assert (p, floor) == pytest.approx((638 / 1024, 1 / 1024))  # 5 or more of 10 tosses


def test_a_group_too_small_to_be_significant_costs_the_others_nothing():
    """Tarone: of two hundred groups of two examples none can be found, and the large one is."""
    rng = np.random.default_rng(0)
    wrong = rng.random(403) < 0.1
    wrong[:40] = rng.random(40) < 0.35
    large = Slice("column", "large", np.arange(403) < 40)
    small = [Slice("word", str(i), np.isin(np.arange(403), [i, i + 1])) for i in range(200, 400)]
    found = significant([large, *small], more_errors_test(wrong), wrong)
    assert [one.slice.name for one in found] == ["large"]
    assert found[0].p == pytest.approx(more_errors_test(wrong)(large.rows)[0])  # multiplied by one


def test_a_part_of_a_weak_group_is_named_if_it_is_weaker_and_not_otherwise():
    rng = np.random.default_rng(1)
    wrong = rng.random(1009) < 0.05
    whole = np.arange(1009) < 300
    wrong[whole] = rng.random(300) < 0.3
    part = np.arange(1009) < 40
    slices = [Slice("label", "whole", whole), Slice("word", "part", part)]
    assert [f.slice.name for f in significant(slices, more_errors_test(wrong), wrong)] == ["whole"]
    wrong[part] = True
    found = significant(slices, more_errors_test(wrong), wrong)
    assert {f.slice.name for f in found} == {"whole", "part"}


def test_nothing_is_named_in_at_most_one_case_of_twenty_where_nothing_is_to_be_found():
    rng = np.random.default_rng(2)
    n, named = 601, 0
    slices = [Slice("word", str(i), rng.random(n) < rng.uniform(0.03, 0.5)) for i in range(41)]
    for _ in range(100):
        wrong = rng.random(n) < 0.2
        named += bool(significant(slices, more_errors_test(wrong), wrong))
    assert named <= 9  # of 100 with a chance of 0.05 each: more in less than 3 of 100 such tests
