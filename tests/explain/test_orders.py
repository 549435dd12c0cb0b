"""The best and the worst order, against all orders of a short input and a model whose answer is known."""

from itertools import permutations

import numpy as np
import pytest

from glassformer.errors import InputError
from glassformer.explain import orders
from glassformer.explain.faithfulness import curves
from glassformer.explain.subject import text_subject

from .test_faithfulness import linear_subject


@pytest.mark.parametrize("n", [5, 23, 61])  # 23 and 61: several parts a step
def test_of_a_sum_the_extremes_are_the_sorted_orders(n):
    subject, values = linear_subject(weight=np.random.default_rng(n).normal(size=n))
    lowest, highest = orders.deletion_bounds(subject, 1)
    best, worst = (curves(subject, scores, 1).metrics() for scores in (values, -values))
    assert lowest == pytest.approx(min(best["deletion"], worst["insertion"]), abs=1e-6)
    assert highest == pytest.approx(max(worst["deletion"], best["insertion"]), abs=1e-6)
    for scores, wanted in ((values, 1.0), (-values, 0.0)):
        shares = orders.normalize_metrics(curves(subject, scores, 1).metrics(), lowest, highest)
        assert min(shares.values()) > wanted - 0.05
        assert max(shares.values()) < wanted + 0.05
    random = curves(subject, np.random.default_rng(0).normal(size=n), 1).metrics()
    assert all(0 <= share <= 1 for share in orders.normalize_metrics(random, lowest, highest).values())


def test_of_a_transformer_no_order_of_a_short_text_lies_outside(tiny):
    subject = text_subject(tiny, "a wonderful dull film not")
    parts = subject.maskable_indices
    assert 4 <= len(parts) <= 6
    areas = []
    for order in permutations(range(len(parts))):
        scores = np.zeros(len(subject))
        scores[parts[list(order)]] = np.arange(len(parts), 0, -1)
        areas.append(curves(subject, scores, subject.target).metrics()["deletion"])
    lowest, highest = orders.deletion_bounds(subject, subject.target, width=120)
    assert lowest <= min(areas) + 1e-3
    assert highest >= max(areas) - 1e-3
    few = orders.deletion_bounds(subject, subject.target)  # a beam of 5 finds nearly the same
    assert few == pytest.approx((lowest, highest), abs=0.1 * (highest - lowest) + 1e-6)


def test_nothing_can_be_hidden():
    subject, _ = linear_subject(weight=np.ones(2))
    subject.words[:] = -1
    with pytest.raises(InputError, match="nothing in this input can be hidden"):
        orders.deletion_bounds(subject, 1)
