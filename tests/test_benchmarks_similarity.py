"""The benchmarks of similarity say what their records hold."""

from __future__ import annotations

import numpy as np
import pytest

from .benchmark_tools import benchmark


@pytest.fixture
def tool(monkeypatch):
    return benchmark


def test_ours_stands_beside_each_method_on_the_same_draws(tool):
    few = tool("few_shot")
    scores = {few.OURS: (0.9, 0.8, 0.7), "SetFit": (0.8, 0.8, 0.75)}
    records = [
        {"data": "d", "examples": 8, "draw": draw, "method": name, "accuracy": score, "macro_f1": score}
        | {"cpu_seconds": 2.0 if name == few.OURS else 8.0}
        for name, found in scores.items()
        for draw, score in enumerate(found)
    ]
    records.append(records[0] | {"draw": 3})  # the other method has no such draw yet
    (row,) = few.summarized(records)
    assert row["methods"][few.OURS]["draws"] == 4
    beside = row["ours_less"]["SetFit"]
    assert beside["draws"] == 3
    assert beside["accuracy"] == pytest.approx((0.1 + 0 - 0.05) / 3, abs=1e-4)
    assert beside["interval"][0] < beside["accuracy"] < beside["interval"][1]
    assert beside["time"]["median"] == 0.25


def test_a_draw_has_as_many_examples_of_each_class_and_is_always_the_same(tool):
    few = tool("few_shot")
    texts, labels = [f"text {i}" for i in range(60)], [i % 3 for i in range(60)]
    first, again, other = (few.drawn(texts, labels, 5, draw) for draw in (1, 1, 2))
    assert first == again != other
    assert np.bincount(first[1]).tolist() == [5, 5, 5]
    assert all(int(text.split()[1]) % 3 == label for text, label in zip(*first, strict=True))


def test_tokens_are_taken_out_of_both_texts(tool):
    trust = tool("similarity_trust")
    ids = [np.array([1, 2, 3]), np.array([4, 5, 6, 7])]
    table = trust.removed(ids, [(1, 2), (0, 3)], 9)
    assert [table[i].tolist() for i in range(4)] == [[1, 3], [2, 3], [4, 5, 7], [4, 5, 6]]
    table = trust.masked(ids, [(1, 2)], 9)
    assert [table[i].tolist() for i in range(2)] == [[1, 9, 3], [4, 5, 9, 7]]
