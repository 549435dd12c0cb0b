"""Temperature, calibration error and threshold against answers that are known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t
from sklearn import metrics as sk

from glassformer.errors import DataError, InputError, ShapeError
from glassformer.evaluate.calibrate import (
    BINS,
    MAX_TEMPERATURE,
    calibration_error,
    confidences,
    describe,
    error_interval,
    fit_temperature,
    log_loss,
    reliability_curve,
    smoothed_loss,
    tune_threshold,
)
from glassformer.evaluate.predict import softmax


def reliability(p, targets, bins=BINS):
    return reliability_curve(p.max(1), p.argmax(1) == np.asarray(targets), bins)


def honest(n: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits [n, K] whose softmax is the true chance of each class, and classes drawn from it."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1.7, (n, classes))
    p = softmax(logits)
    y = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    return logits, y


@pytest.mark.parametrize("factor", [0.3, 1.0, 2.5])
def test_temperature_is_found_again(factor):
    logits, y = honest(20_011, 3)
    assert fit_temperature(logits * factor, y) == pytest.approx(factor, rel=0.04)


def test_temperature_is_the_minimum_of_the_smoothed_log_loss():
    logits, y = honest(503, 5)
    best = fit_temperature(3.0 * logits, y)
    losses = [smoothed_loss(3.0 * logits, y, t) for t in (best * 0.99, best, best * 1.01)]
    assert losses[1] == min(losses)
    p, soft = softmax(logits), np.full((503, 5), 1 / 505 / 4)
    soft[np.arange(503), y] = 1 - 1 / 505
    assert smoothed_loss(logits, y) == pytest.approx(-(soft * np.log(p)).sum(1).mean())
    assert log_loss(logits, y) == pytest.approx(sk.log_loss(y, softmax(logits)))


def test_temperature_scaling_lowers_the_error_and_changes_no_answer():
    logits, y = honest(5003, 2)
    sure = 4.0 * logits
    t = fit_temperature(sure, y)
    before, after = softmax(sure), softmax(sure, t)
    assert np.array_equal(before.argmax(1), after.argmax(1))
    assert calibration_error(*confidences(before, y)) > 0.1
    assert calibration_error(*confidences(after, y)) < 0.03


@pytest.mark.parametrize(
    ("n", "classes", "stated"), [(121, 5, 0.992), (121, 5, 0.9), (29, 2, 0.7), (499, 3, 1 - 1e-6)]
)
def test_without_a_mistake_answers_are_as_sure_as_their_number_allows(n, classes, stated):
    y = np.arange(n) % classes
    logits = np.zeros((n, classes))
    logits[np.arange(n), y] = np.log(stated / (1 - stated) * (classes - 1))
    t = fit_temperature(logits, y)
    assert softmax(logits, t).max(1) == pytest.approx((n + 1) / (n + 2), abs=1e-5)
    logits[0] = logits[0, ::-1]  # one mistake: two in n + 2, the smoothed one too
    y[0] = 0
    after = softmax(logits, fit_temperature(logits, y)).max(1).mean()
    assert after == pytest.approx(1 - 2 / (n + 2), abs=0.3 / n)


def test_a_model_that_is_always_wrong_gets_the_hottest_temperature():
    logits = np.array([[9.0, 0.0]] * 13)
    assert fit_temperature(logits, np.ones(13, int)) == pytest.approx(MAX_TEMPERATURE, rel=1e-3)


def test_calibration_error_by_hand():
    # Stated 0.9 four times, right three times; stated 0.6 twice, right twice: (4 * .15 + 2 * .4) / 6.
    p = np.array([[0.9, 0.1]] * 4 + [[0.4, 0.6]] * 2)
    y = np.array([0, 0, 0, 1, 1, 1])
    assert calibration_error(*confidences(p, y), bins=10) == pytest.approx((4 * 0.15 + 2 * 0.4) / 6)
    curve = reliability(p, y, bins=10)
    assert [(b["n"], b["accuracy"]) for b in curve] == [(2, 1.0), (4, 0.75)]
    assert [b["confidence"] for b in curve] == pytest.approx([0.6, 0.9])


def test_every_example_is_in_one_bin():
    p = softmax(np.random.default_rng(0).normal(0, 3, (997, 4)))
    p[0] = [1, 0, 0, 0]
    p[1] = [0.25] * 4
    assert sum(b["n"] for b in reliability(p, np.zeros(997, int))) == 997


def test_interval_holds_the_error_of_other_draws():
    logits, y = honest(3001, 2)
    p = softmax(2.2 * logits)
    low, high = error_interval(*confidences(p, y), resamples=300)
    others = [honest(3001, 2, seed) for seed in range(1, 9)]
    errors = [calibration_error(*confidences(softmax(2.2 * z), t)) for z, t in others]
    assert low < np.mean(errors) < high
    assert high - low < 0.06


def test_description_is_ready_for_json():
    logits, y = honest(211, 3)
    found = describe(softmax(logits), y, resamples=20)
    assert found["n"] == sum(b["n"] for b in found["curve"]) == 211
    assert found["log_loss"] == pytest.approx(log_loss(logits, y))


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 41), st.integers(0, 10**6), st.sampled_from(["accuracy", "f1", "macro_f1"]))
def test_no_threshold_is_better(n, seed, metric):
    rng = np.random.default_rng(seed)
    p, y = rng.random(n).round(1), rng.integers(0, 2, n)
    y[:2] = 0, 1
    threshold, score = tune_threshold(p, y, metric)

    def judge(t: float) -> float:
        guess = (p >= t).astype(int)
        if metric == "accuracy":
            return float((guess == y).mean())
        return float(
            sk.f1_score(y, guess, average="macro" if metric == "macro_f1" else "binary", zero_division=0)
        )

    assert score == pytest.approx(judge(threshold))
    assert score >= max(judge(t) for t in np.linspace(0, 1.01, 52)) - 1e-9


def test_threshold_stays_at_half_where_that_is_as_good():
    assert tune_threshold([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1])[0] == pytest.approx(0.5)


def test_bad_input():
    with pytest.raises(DataError, match="both classes"):
        tune_threshold([0.2, 0.7], [1, 1])
    with pytest.raises(InputError, match="Did you mean 'accuracy'"):
        tune_threshold([0.2, 0.7], [0, 1], "acuracy")  # type: ignore[arg-type]
    with pytest.raises(ShapeError):
        fit_temperature(np.zeros((3, 2)), np.zeros(2, int))
    with pytest.raises(DataError, match="no example"):
        fit_temperature(np.zeros((0, 2)), np.zeros(0, int))
    with pytest.raises(ShapeError):
        calibration_error(*confidences(np.zeros((3, 2)), np.zeros(2, int)))


def test_thresholds_by_hand():
    p, y = [0.1, 0.3, 0.5, 0.8, 0.9], [0, 1, 0, 1, 1]
    assert tune_threshold(p, y) == (
        pytest.approx(0.65),
        pytest.approx(0.8),
    )  # 0.2 is as good, and further off
    assert tune_threshold(p, y, "f1") == (pytest.approx(0.2), pytest.approx(6 / 7))
    assert tune_threshold(p, y, "macro_f1") == (pytest.approx(0.65), pytest.approx((0.8 + 0.8) / 2))
    assert tune_threshold([0.9, 0.8, 0.3], [0, 0, 1], "f1") == (pytest.approx(0.15), pytest.approx(0.5))
    all_negative = tune_threshold([0.6, 0.7, 0.8, 0.9], [1, 0, 0, 0])
    assert all_negative == (pytest.approx(0.95), pytest.approx(0.75))
    certain = tune_threshold([0.2, 1.0, 1.0, 1.0], [1, 0, 0, 0])
    assert certain == (np.nextafter(1.0, 2), pytest.approx(0.75))  # nothing is positive, a 1 neither
    low, high = 0.5, np.nextafter(0.5, 1)
    threshold, score = tune_threshold([low, high], [0, 1])
    assert (threshold, score) == (high, 1.0)  # no number lies between


def test_thresholds_that_serve_equally_are_compared_by_their_distance_to_a_half():
    p, y = [0.2, 0.4, 0.45, 0.6, 0.9], [0, 1, 0, 1, 1]
    assert tune_threshold(p, y)[0] == pytest.approx(0.525)
    assert tune_threshold([1 - x for x in p], [1 - x for x in y])[0] == pytest.approx(0.475)


def test_a_probability_beside_1_is_in_the_last_bin_and_0_in_the_first():
    p = np.array([[1 + 1e-12, -1e-12], [0.5, 0.5], [0.5 + 1e-9, 0.5 - 1e-9]])
    found = reliability(p, [0, 0, 0], bins=2)
    assert [(b["low"], b["high"], b["n"]) for b in found] == [(0.0, 0.5, 1), (0.5, 1.0, 2)]
    (first,) = reliability(np.zeros((3, 2)), [0, 0, 1], bins=7)
    assert tuple(first[key] for key in ("low", "high", "n", "accuracy")) == (
        0.0,
        1 / 7,
        3,
        pytest.approx(2 / 3),
    )
    assert calibration_error(*confidences(np.zeros((0, 2)), np.zeros(0, int))) == 0
    assert (
        len(reliability(np.linspace(0.5, 1, 1000)[:, None] * [1, 0], np.zeros(1000, int))) == BINS - BINS // 2
    )


def test_the_interval_is_reflected_about_the_estimate_and_repeats_itself():
    logits, y = honest(101, 3)
    p = softmax(2 * logits)
    rng = np.random.default_rng(7)
    drawn = [
        calibration_error(*confidences(p[i], y[i]), 5) for i in (rng.integers(0, 101, 101) for _ in range(50))
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    estimate = calibration_error(*confidences(p, y), 5)
    found = error_interval(*confidences(p, y), bins=5, resamples=50, seed=7)
    above, few = np.mean(drawn) - estimate, t.ppf(0.975, 100) / 1.959964 * np.sqrt(101 / 100)
    low, high = (np.mean(drawn) + few * (end - np.mean(drawn)) for end in (low, high))
    assert found == pytest.approx([2 * estimate - high - above, max(2 * estimate - low, high - above)])
    assert found[0] > 0
    assert error_interval(*confidences(p, y), resamples=50) == error_interval(
        *confidences(p, y), resamples=50, seed=0
    )
    sure = np.array([[1.0, 0.0]] * 7)
    assert error_interval(*confidences(sure, np.zeros(7, int)), resamples=5) == [0.0, 0.0]
    assert error_interval(*confidences(p, y), resamples=0) == [calibration_error(*confidences(p, y))] * 2
    assert describe(p, y, resamples=5)["ece_interval"] == error_interval(*confidences(p, y), resamples=5)
    assert describe(p, y)["ece_interval"] == error_interval(*confidences(p, y), resamples=1000)
    assert describe(p, y)["ece_interval"] == error_interval(*confidences(p, y))


@pytest.mark.parametrize(("off", "size"), [(0.0, 1), (0.03, 1), (0.1, 1), (0.1, 10)])
def test_the_interval_holds_the_true_error_about_as_often_as_it_says(off, size):
    """Of answers whose chance of being right is known, as stated or so much less; alone, or as groups that
    are right and wrong together."""
    rng, stated = np.random.default_rng(0), np.linspace(0.6, 0.95, 400)
    held, groups = [], rng.permutation(np.repeat(np.arange(400 // size), size))
    for seed in range(80):
        right = rng.random(400 // size)[groups] < stated - off
        p = np.stack([stated, 1 - stated], 1)
        low, high = error_interval(*confidences(p, 1 - right), resamples=150, seed=seed, groups=groups)
        assert low <= calibration_error(*confidences(p, 1 - right)) <= high
        held.append(low <= off <= high)
    assert np.mean(held) >= 0.9


def test_answers_that_stand_and_fall_together_say_less():
    rng, p = np.random.default_rng(0), np.tile([0.7, 0.3], (400, 1))
    groups = np.repeat(np.arange(20), 20)
    right = np.repeat(rng.random(20) < 0.45, 20)
    alone, together = (
        error_interval(*confidences(p, 1 - right), resamples=200, groups=g) for g in (None, groups)
    )
    assert alone[0] > 0.1
    assert together[0] < alone[0]
    assert together[1] > alone[1]


def test_certain_and_wrong_has_a_finite_loss():
    found = describe(np.array([[1.0, 0.0], [0.0, 1.0]]), [1, 1], resamples=3)
    assert found["log_loss"] == pytest.approx(-np.log(np.finfo(np.float64).eps) / 2)
    assert found["curve"] == [{"low": 14 / 15, "high": 1.0, "n": 2, "confidence": 1.0, "accuracy": 0.5}]
    assert log_loss([[0.0, 1000.0]], [0]) == pytest.approx(1000)
    assert log_loss([[0.0, 2.0]], [1], 2.0) == pytest.approx(np.log(1 + np.exp(-1)))
