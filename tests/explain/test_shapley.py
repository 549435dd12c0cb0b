"""Shapley values: exact ones of a small game, completeness, and what cannot be asked for."""

from itertools import combinations
from math import factorial

import numpy as np
import pytest

from glassformer.errors import InputError
from glassformer.explain.methods import explain
from glassformer.explain.subject import text_subject

from .conftest import fitted


@pytest.fixture
def subject():
    return text_subject(fitted("mean"), "it was not dull")


def exact(subject, target):
    """By the definition, over all sets of words."""
    words = subject.words[subject.maskable_indices]
    n = int(words.max()) + 1
    value = {}
    for size in range(n + 1):
        for shown in combinations(range(n), size):
            keep = np.isin(subject.words, shown)
            value[shown] = subject.logits(keep[None])[0, target]
    out = np.zeros(n)
    for shown, y in value.items():
        for i in set(range(n)) - set(shown):
            share = factorial(len(shown)) * factorial(n - len(shown) - 1) / factorial(n)
            out[i] += share * (value[tuple(sorted((*shown, i)))] - y)
    return out


def test_many_orders_come_to_the_exact_values(subject):
    wanted = exact(subject, subject.target)
    e = explain(subject, method="shapley", pairs=300)
    found = np.array([score for _, score in e.words()])
    np.testing.assert_allclose(found, wanted, atol=0.05 * np.abs(wanted).max())


@pytest.mark.parametrize("options", [{}, {"unit": "token", "pairs": 1}, {"by": "delete", "seed": 7}])
def test_scores_add_up(subject, options):
    e = explain(subject, method="shapley", **options)
    keep = np.array([[True] * len(subject), [False] * len(subject)])
    ends = subject.logits(keep, options.get("by", "mask"))[:, subject.target]
    assert e.scores.sum() == pytest.approx(ends[0] - ends[1], abs=1e-6)
    assert (e.scores[subject.words < 0] == 0).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [({"unit": "span"}, "unknown unit 'span'"), ({"pairs": 0}, "0 pairs"), ({"seed": -1}, "seed -1")],
)
def test_options_that_cannot_be(subject, options, said):
    with pytest.raises(InputError, match=said):
        explain(subject, method="shapley", **options)
