"""Figures of numbers beside scikit-learn and scipy; intervals beside what the theory of split conformal says."""

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

from glassformer.errors import ConfigError, DataError, GlassformerError
from glassformer.targets.regression import (
    Numbers,
    bootstrap_intervals,
    conformal_rank,
    coverage_metrics,
    examples_needed,
    half_width,
    ridge,
    tfidf_ridge,
)

KNOWN = {
    "r2": lambda f, t: r2_score(t, f),
    "mae": lambda f, t: mean_absolute_error(t, f),
    "pearson": lambda f, t: pearsonr(t, f)[0],
    "spearman": lambda f, t: spearmanr(t, f)[0],
}


@pytest.fixture
def numbers():
    rng = np.random.default_rng(3)
    true = rng.integers(0, 7, 131) * 2.5  # with ties
    return true + rng.normal(0, 2, 131).round(), true


def test_figures_are_those_of_scikit_learn_and_scipy(numbers):
    found, true = numbers
    out = Numbers(mean=3.0, unit=0.5).score(found[:, None], (true - 3.0) / 0.5, bootstrap=0)
    assert out["n"] == 131
    wanted = {key: measure(found, true) for key, measure in KNOWN.items()}
    wanted |= {"mse": mean_squared_error(true, found), "rmse": mean_squared_error(true, found) ** 0.5}
    assert {key: out[key] for key in wanted} == pytest.approx(wanted)
    assert out["r2_interval"] is None


def test_the_bootstrap_is_that_of_drawn_rows(numbers):
    """Weights of a draw give what its rows would give, ties and all."""
    found, true = numbers
    bounds = bootstrap_intervals(found, true, resamples=200, seed=5)
    rng = np.random.default_rng(5)
    draws = np.concatenate([rng.multinomial(131, np.full(131, 1 / 131), 100) for _ in range(2)])
    rows = [np.repeat(np.arange(131), draw) for draw in draws]
    for key, measure in KNOWN.items():
        values = [measure(found[r], true[r]) for r in rows]
        np.testing.assert_allclose(bounds[key], np.quantile(values, [0.025, 0.975]), atol=1e-12)


def test_what_is_not_defined_is_none_and_what_diverged_is_refused():
    out = Numbers().score([1.0, 1.0, 1.0], [0.5, 2.0, 3.5])
    assert (out["pearson"], out["spearman"]) == (None, None)
    assert out["r2"] == pytest.approx(r2_score([0.5, 2.0, 3.5], [1.0, 1.0, 1.0]))
    assert Numbers().score([1.0, 2.0], [3.0, 3.0])["r2"] is None
    with pytest.raises(GlassformerError, match="diverged"):
        Numbers().score([np.nan], [1.0])
    with pytest.raises(DataError, match="no example"):
        Numbers().score([], [])
    # coverage is told of each level that can be
    found, true = np.zeros(4), np.array([0.0, 1.0, 2.0, 30.0])
    levels = coverage_metrics(np.arange(11.0), found, true)
    assert [level["asked"] for level in levels] == [0.8, 0.9, 0.95]
    assert levels[1]["covered"] == 0.75
    assert levels[1]["width"] == 20.0  # the 11th of 11 errors is 10
    assert levels[2] == {"asked": 0.95, "covered": None, "width": None, "needed": 19}


@pytest.mark.parametrize(("coverage", "fewest"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99)])
def test_the_rank_is_the_finite_sample_one(coverage, fewest):
    assert examples_needed(coverage) == fewest
    errors = np.arange(fewest, dtype=float)[::-1]
    assert half_width(errors, coverage) == fewest - 1  # the largest
    if fewest > 1:
        with pytest.raises(ConfigError, match=f"hold out {fewest} or more"):
            half_width(errors[:-1], coverage)
    assert conformal_rank(99, 0.9) == 90
    assert conformal_rank(100, 0.9) == 91  # 90.9 upwards


@pytest.mark.parametrize("coverage", [0.0, 1.0, 1.5, -0.1, True, "0.9", float("nan")])
def test_a_coverage_is_a_share(coverage):
    with pytest.raises(ConfigError, match="is not between 0 and 1"):
        half_width(np.arange(31.0), coverage)


def test_intervals_cover_what_they_promise_on_average():
    """Over many draws of 19 and one new number: exactly (19 + 1) 0.9 / 20 = 18 / 20 of them are covered."""
    rng = np.random.default_rng(0)
    errors = np.abs(rng.standard_t(3, (20_000, 20)))
    covered = [one[-1] <= half_width(one[:-1], 0.9) for one in errors]
    assert np.mean(covered) == pytest.approx(0.9, abs=0.007)


def test_ridge_finds_a_line():
    x = np.random.default_rng(1).normal(size=(61, 3))
    y = x @ [1.0, -2.0, 0.5] + 7
    np.testing.assert_allclose(ridge([x[:50], x[50:]], y[:50], penalties=(1e-6,)), y[50:], atol=1e-4)
    assert np.abs(ridge([x[:50], x[50:]], y[:50], penalties=(1e-6, 1e6)) - y[50:]).max() < 1e-3
    # large numbers in fp32 do not overflow
    x = np.random.default_rng(1).normal(size=(61, 3)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0, 0.5], np.float32)).astype(np.float64) * 1e30
    found = ridge([x[:50], x[50:]], y[:50], penalties=(1e-6,))
    np.testing.assert_allclose(found / 1e30, y[50:] / 1e30, atol=1e-3)


def test_counted_words_of_texts_and_of_pairs():
    from glassformer.data.text_pairs import TextPair

    texts = [f"{word} film {i % 5}" for i, word in enumerate(["good", "bad"] * 20)]
    y = np.array([1.0, -1.0] * 20)
    name, found = tfidf_ridge(None, texts, y, ["good film", "bad film"])
    assert name == "TF-IDF + ridge"
    assert found[0] > 0 > found[1]
    pairs = [TextPair(text, "a film") for text in texts]
    name, found = tfidf_ridge(
        None, pairs, y, [TextPair("good film", "a film"), TextPair("bad film", "a film")]
    )
    assert "both sides" in name
    assert found[0] > 0 > found[1]
