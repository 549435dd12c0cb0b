"""Paired tests against known answers, and the false alarms of the whole procedure."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk

from glassformer.errors import DataError, ShapeError
from glassformer.evaluate import compare
from glassformer.evaluate.compare import (
    EXACT_BELOW,
    _add_seed_variance,
    accuracy_statistic,
    bootstrap_means,
    bootstrap_p,
    bounds,
    holm,
    macro_f1_statistic,
    mcnemar,
    paired_difference,
)


def answers(wins: int, losses: int, both: int = 31, none: int = 7) -> tuple[np.ndarray, np.ndarray]:
    a = [True] * wins + [False] * losses + [True] * both + [False] * none
    b = [False] * wins + [True] * losses + [True] * both + [False] * none
    return np.array(a), np.array(b)


def test_mcnemar_exact_is_the_binomial_test():
    found = mcnemar(*answers(13, 3))
    assert (found.wins, found.losses, found.method) == (13, 3, "exact")
    tail = sum(stats.binom.pmf(k, 16, 0.5) for k in (0, 1, 2, 3))
    assert found.p == pytest.approx(2 * tail)


def test_mcnemar_with_many_disagreements_is_chi_squared():
    found = mcnemar(*answers(59, 31))
    assert found.method == "chi2"
    assert found.p == pytest.approx(stats.chi2.sf((59 - 31 - 1) ** 2 / 90, 1))
    assert found.p == pytest.approx(stats.binomtest(59, 90).pvalue, abs=2e-3)


def test_mcnemar_is_symmetric_and_says_nothing_about_equals():
    a, b = answers(17, 5)
    assert mcnemar(a, b).p == mcnemar(b, a).p
    assert mcnemar(a, a).p == 1.0
    with pytest.raises(ShapeError):
        mcnemar(a, b[:-1])


def test_holm_by_hand():
    # Holm's own rule on 4 comparisons: 4 * .005, 3 * .01, max(previous, 2 * .03), 1 * .04 raised to that.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.7, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=11))
def test_holm_never_lowers_and_keeps_the_order(p):
    corrected = holm(p)
    assert all(0 <= a <= b <= 1 for a, b in zip(p, corrected, strict=True))
    order = np.argsort(p, kind="stable")
    assert np.all(np.diff(np.array(corrected)[order]) >= 0)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 4), st.integers(1, 3), st.integers(0, 10**6))
def test_macro_f1_of_a_resample_is_scikit_learns(classes, seeds, seed):
    rng = np.random.default_rng(seed)
    y, guess = rng.integers(0, classes, 37), rng.integers(0, classes, (seeds, 37))
    drawn = rng.integers(0, 37, 37)
    counts = np.bincount(drawn, minlength=37).astype(np.float32)[None]
    found = macro_f1_statistic(y, guess, classes)(counts)
    wanted = [[sk.f1_score(y[drawn], g[drawn], average="macro", zero_division=0)] for g in guess]
    assert found == pytest.approx(np.array(wanted), abs=1e-6)


def test_bootstrap_of_one_seed_has_the_width_of_the_binomial():
    rng = np.random.default_rng(0)
    right = rng.random((1, 2003)) < 0.8
    low, high = bounds(bootstrap_means([accuracy_statistic(right)], 2003)[0])
    share = right.mean()
    half = 1.96 * np.sqrt(share * (1 - share) / 2003)
    assert (low, high) == (pytest.approx(share - half, abs=2e-3), pytest.approx(share + half, abs=2e-3))


def test_bootstrap_spreads_with_the_seeds():
    """Seeds that differ widen the interval to what Student's t says of their scatter."""
    rng = np.random.default_rng(0)
    rates = np.array([0.70, 0.76, 0.82, 0.88, 0.79])
    right = rng.random((5, 20_011)) < rates[:, None]
    low, high = bounds(bootstrap_means([accuracy_statistic(right)], 20_011, resamples=4000)[0])
    mean = right.mean(1)
    half = stats.t.ppf(0.975, 4) * mean.std(ddof=1) / np.sqrt(5)
    assert (high - low) / 2 == pytest.approx(half, rel=0.1)
    assert (high + low) / 2 == pytest.approx(mean.mean(), abs=0.01)


def test_seeds_that_agree_add_nothing():
    right = np.tile(np.random.default_rng(0).random(997) < 0.8, (3, 1))
    assert np.allclose(
        *(bootstrap_means([accuracy_statistic(r)], 997, resamples=50) for r in (right, right[:1]))
    )


def test_all_arms_see_the_same_examples():
    right = np.random.default_rng(0).random((1, 211)) < 0.7
    first, second = bootstrap_means([accuracy_statistic(right), accuracy_statistic(right)], 211, resamples=50)
    assert np.array_equal(first, second)
    with pytest.raises(DataError):
        bootstrap_means([], 0)


def test_bootstrap_p():
    assert bootstrap_p(np.full(999, 0.1)) == pytest.approx(2 / 1000)
    assert bootstrap_p(np.zeros(999)) == 1.0
    assert bootstrap_p(np.linspace(-1, 1, 999)) == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "scatter"), [(1, 0.0), (2, 0.3), (3, 0.0), (3, 0.08), (3, 0.5), (5, 0.3)])
def test_false_alarms(seeds, scatter):
    """Two arms that are equal on average: how often is a difference found at the 5 % level?

    One seed can only say whether two *trained* models differ, so there the arms are equal without scatter.
    """
    rng = np.random.default_rng(1)
    alarms = 0
    for trial in range(400):
        hard = rng.normal(0, 1.2, 499)
        arms = []
        for _ in range(2):
            skill = 1.2 + rng.normal(0, scatter, (seeds, 1))
            arms.append(accuracy_statistic(rng.random((seeds, 499)) < 1 / (1 + np.exp(-(skill + hard)))))
        drawn = bootstrap_means(arms, 499, resamples=500, seed=trial)
        alarms += bootstrap_p(drawn[0] - drawn[1]) < 0.05
    assert alarms / 400 < 0.08


def test_chi_squared_begins_at_its_bound():
    assert mcnemar(*answers(EXACT_BELOW - 1, 0)).method == "exact"
    found = mcnemar(*answers(EXACT_BELOW - 7, 7))
    assert (found.method, found.wins, found.losses) == ("chi2", EXACT_BELOW - 7, 7)
    assert found.p == pytest.approx(stats.chi2.sf((EXACT_BELOW - 15) ** 2 / EXACT_BELOW, 1))
    assert mcnemar(*answers(13, 13)).p == pytest.approx(1.0)  # no correction below 0
    with pytest.raises(ShapeError):
        mcnemar(np.ones((2, 2), bool), np.ones((2, 2), bool))


class Ones:
    """A generator whose Student's t is always 1; it keeps the degrees of freedom."""

    def standard_t(self, freedom, count):
        self.freedom = freedom
        return np.ones(count)


def test_what_seeds_add_is_their_scatter_less_that_of_the_examples():
    observed = np.array([0.5, 0.7, 0.9, 0.7])
    drawn = np.array([[0.49, 0.51], [0.71, 0.69], [0.9, 0.9], [0.7, 0.7]])
    rng = Ones()
    found = _add_seed_variance(observed, drawn, rng)
    mean = drawn.mean(0)
    own = observed.var(ddof=1) - (drawn - mean).var(1).sum() / 3
    assert own > 0.01
    assert found == pytest.approx(mean + np.sqrt(own / 4))
    assert rng.freedom == 3
    assert _add_seed_variance(observed[:1], drawn[:1], rng).tolist() == drawn[0].tolist()
    noisy = drawn + np.array([[0.3, -0.3], [-0.3, 0.3], [0.3, -0.3], [-0.3, 0.3]])
    assert _add_seed_variance(observed, noisy, rng) == pytest.approx(noisy.mean(0))  # never below nothing


def test_resamples_are_as_many_as_asked_and_repeat_themselves(monkeypatch):
    right = np.random.default_rng(0).random((3, 31)) < 0.7
    whole = bootstrap_means([accuracy_statistic(right)], 31, resamples=23, seed=5)
    assert whole.shape == (1, 23)
    assert bootstrap_means([accuracy_statistic(right)], 31).shape == (1, 2000)
    assert np.array_equal(whole, bootstrap_means([accuracy_statistic(right)], 31, resamples=23, seed=5))
    assert not np.array_equal(whole, bootstrap_means([accuracy_statistic(right)], 31, resamples=23, seed=6))
    monkeypatch.setattr(compare, "CHUNK", 31 * 5)  # in parts of five
    assert np.allclose(whole, bootstrap_means([accuracy_statistic(right)], 31, resamples=23, seed=5))
    monkeypatch.setattr(compare, "CHUNK", 7)  # less than the examples: one at a time
    assert np.allclose(whole, bootstrap_means([accuracy_statistic(right)], 31, resamples=23, seed=5))
    assert bootstrap_means([accuracy_statistic(right[:, :1])], 1, resamples=2).shape == (1, 2)
    default = bootstrap_means([accuracy_statistic(right)], 31, resamples=23)
    assert np.array_equal(default, bootstrap_means([accuracy_statistic(right)], 31, resamples=23, seed=0))


def test_bounds_hold_95_percent():
    assert bounds(np.arange(1001)) == [25, 975]


def test_a_paired_difference_is_narrower_than_two_intervals():
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 211)
    theirs = np.where(rng.random(211) < 0.7, y, (y + 1) % 3)
    ours = theirs.copy()
    mended = np.flatnonzero(theirs != y)[:13]
    ours[mended] = y[mended]  # right wherever the other is, and on 13 more
    found = paired_difference(y, ours, theirs, 3)
    assert found["value"] == pytest.approx(13 / 211)
    assert 0 < found["interval"][0] < 13 / 211 < found["interval"][1]
    own = bounds(bootstrap_means([accuracy_statistic((ours == y)[None])], 211)[0])
    assert found["interval"][1] - found["interval"][0] < own[1] - own[0]
    macro = paired_difference(y, ours, theirs, 3, measure="macro_f1")
    expected = sk.f1_score(y, ours, average="macro") - sk.f1_score(y, theirs, average="macro")
    assert macro["value"] == pytest.approx(expected)
    sets = paired_difference(
        np.eye(3, dtype=int)[y], np.eye(3, dtype=int)[ours], np.eye(3, dtype=int)[theirs], 3
    )
    assert sets["value"] == pytest.approx(found["value"])
