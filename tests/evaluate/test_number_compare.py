"""Comparing regressors: figures under resampling against scipy's and scikit-learn's, and the permutation test."""

import itertools

import numpy as np
import pytest
from scipy.stats import pearsonr, rankdata, spearmanr, zscore
from sklearn.metrics import mean_absolute_error, r2_score

from glassformer.targets.permutation import number_statistic, permutation
from glassformer.targets.regression import Numbers

KNOWN = {
    "r2": r2_score,
    "mae": mean_absolute_error,
    "pearson": lambda a, b: pearsonr(a, b)[0],
    "spearman": lambda a, b: spearmanr(a, b)[0],
}
SEEN = {"pearson": zscore, "spearman": rankdata}


def numbers(n: int = 53) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    true = rng.normal(3, 2, n).round(1)
    return true, true + rng.normal(0, [[1.0], [2.5]], (2, n)).round(1)


@pytest.mark.parametrize("measure", Numbers.compared)
def test_figures_of_a_draw_are_those_of_its_examples(measure):
    true, found = numbers()
    counts = np.random.default_rng(1).multinomial(53, np.full(53, 1 / 53), 7)
    drawn = number_statistic(measure, true, found)(counts.astype(np.float32))
    assert drawn.shape == (2, 7)
    for s, c in itertools.product(range(2), range(7)):
        rows = np.repeat(np.arange(53), counts[c])
        assert drawn[s, c] == pytest.approx(KNOWN[measure](true[rows], found[s][rows]), abs=1e-9)


@pytest.mark.parametrize("measure", ["r2", "pearson", "spearman"])
def test_what_is_not_defined_counts_as_nothing(measure):
    once = np.ones((1, 5), np.float32)
    same = number_statistic(measure, np.full(5, 2.0), np.arange(5.0)[None])(once)
    assert same.tolist() == [[0.0]]
    assert np.isfinite(number_statistic(measure, np.arange(5.0), np.full((1, 5), 2.0))(once)).all()


@pytest.mark.parametrize("measure", Numbers.compared)
def test_the_permutation_test_counts_exchanges(measure):
    true, found = numbers(9)
    own, every = SEEN.get(measure, lambda x: x), []
    first, second = (own(x) for x in found)  # what the measure sees of each model's numbers
    for swapped in itertools.product([False, True], repeat=9):
        a, b = np.where(swapped, second, first), np.where(swapped, first, second)
        every.append(KNOWN[measure](true, a) - KNOWN[measure](true, b))
    wanted = np.mean(np.abs(every) >= abs(every[0]) - 1e-12)
    test = permutation(measure, true, *found, resamples=4000)
    assert test["difference"] == pytest.approx(every[0])
    assert test["p"] == pytest.approx(wanted, abs=0.03)
    assert permutation(measure, true, found[0], found[0], resamples=50)["p"] == 1


def test_a_worse_model_is_told_and_noise_is_not():
    rng = np.random.default_rng(2)
    true = rng.normal(0, 1, 211)
    near, far = true + rng.normal(0, 0.3, 211), true + rng.normal(0, 2, 211)
    assert permutation("spearman", true, near, far, resamples=200)["p"] < 0.01
    again = true + rng.normal(0, 0.3, 211)
    assert permutation("mae", true, near, again, resamples=200)["p"] > 0.05


@pytest.mark.parametrize("measure", ["pearson", "spearman"])
def test_correlations_are_told_apart_whatever_the_scale_of_each_model(measure):
    rng = np.random.default_rng(3)
    true = rng.normal(0, 1, 199)
    near, far = true + rng.normal(0, 0.5, 199), true + rng.normal(0, 1.5, 199)
    once = permutation(measure, true, near, far, resamples=400)
    assert once["p"] < 0.01
    moved = permutation(measure, true, 0.9 + near / 100, far / 10 - 0.3, resamples=400)
    assert (moved["p"], moved["difference"]) == (once["p"], pytest.approx(once["difference"]))
    p = [permutation(measure, true, near, np.full(199, same), resamples=50)["p"] for same in (0.0, 0.1)]
    assert p[0] == p[1] < 0.05


def test_r2_of_large_numbers_is_not_lost_beside_them():
    true, found = numbers()
    counts = np.random.default_rng(1).multinomial(53, np.full(53, 1 / 53), 7).astype(np.float32)
    large = number_statistic("r2", true + 1.7e9, found + 1.7e9)(counts)
    np.testing.assert_allclose(large, number_statistic("r2", true, found)(counts), atol=1e-6)
