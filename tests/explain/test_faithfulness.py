"""Faithfulness on a model whose answer is known, against sums written out, and its words."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from glassformer.errors import InputError
from glassformer.explain import faithfulness as f
from glassformer.explain.methods import NETWORK_METHODS, explain
from glassformer.explain.render import faithfulness_svg
from glassformer.explain.subject import Subject, text_subject

from .test_gradients import LinearModel


def linear_subject(n=11, weight=None):
    """The logit is the sum of the tokens' own values."""
    values = np.linspace(-2, 3, n) if weight is None else weight
    n = len(values)
    rows = torch.zeros(n, 3)
    rows[:, 0] = torch.tensor(values, dtype=torch.float32)
    model = LinearModel(torch.tensor([1.0, 0, 0]))
    baselines = {"mask": lambda: torch.zeros(n, 3)}
    return Subject(model, rows, baselines, np.arange(n), ["no", "yes"], 1, np.ones(2) / 2), values


def test_one_explanation_beside_random_orders_as_judge_has_it():
    subject, values = linear_subject()
    told = f.check_faithfulness(subject, values, target=1, draws=7, seed=3)
    judged = f.compare_with_random(subject, {"truth": values}, target=1, draws=7, seed=3)
    assert told["figures"] == pytest.approx(judged["truth"])
    assert told["random"]["figures"] == pytest.approx(judged["random"])
    curve = f.curves(subject, values, 1)
    np.testing.assert_allclose(told["deletion"], curve.deletion, atol=1e-6)
    np.testing.assert_allclose(told["insertion"], curve.insertion, atol=1e-6)
    assert told["shares"] == list(f.SHARES)
    assert told["deletion"][0] == told["random"]["deletion"][0] == told["random"]["insertion"][-1]
    passed = {"mask": {"gap": told["operators"]["mask"]["gap"], "wins": 7, "passes": True}}
    assert passed["mask"].items() <= told["operators"]["mask"].items()
    assert passed["mask"]["gap"] == pytest.approx(
        np.trapezoid(curve.insertion - curve.deletion, f.SHARES), abs=1e-5
    )
    assert told["verdict"] == f.verdict_on_one(
        told["operators"], told["figures"], told["random"]["figures"], 7, 11
    )
    assert json.loads(json.dumps(told)) == told


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x)))


def test_curves_are_the_probabilities_of_what_is_left():
    subject, values = linear_subject()
    curve = f.curves(subject, values, 1)
    order = np.argsort(-values)
    counts = [0, *(max(1, round(s * 11)) for s in f.SHARES[1:])]
    np.testing.assert_allclose(curve.deletion, [sigmoid(values[order[c:]].sum()) for c in counts], atol=1e-6)
    np.testing.assert_allclose(curve.insertion, [sigmoid(values[order[:c]].sum()) for c in counts], atol=1e-6)
    figures = curve.metrics()
    x = np.array(f.SHARES)
    assert figures["deletion"] == pytest.approx(np.trapezoid(curve.deletion, x))
    few = [1, 2, 3, 4, 6]  # the places of 1, 5, 10, 20 and 50 %
    assert figures["comprehensiveness"] == pytest.approx(curve.deletion[0] - curve.deletion[few].mean())
    assert figures["sufficiency"] == pytest.approx(curve.deletion[0] - curve.insertion[few].mean())


def test_the_truth_beats_random_and_its_opposite_loses():
    judged = []
    rng = np.random.default_rng(0)
    for seed in range(30):
        subject, values = linear_subject(weight=rng.normal(0, 1, 13))
        judged.append(
            f.compare_with_random(
                subject, {"truth": values, "lie": -values, "coin": rng.random(13)}, target=1, seed=seed
            )
        )
    table = f.table(judged)
    for name in f.METRICS:
        assert table["truth"][name]["better"]["interval"][0] > 0
        assert table["lie"][name]["better"]["interval"][1] < 0
        low, high = table["coin"][name]["better"]["interval"]
        assert low < 0 < high
        assert table["truth"][name]["n"] == 30
    assert f.verdict(table["truth"]).startswith("Passes the faithfulness test:")
    assert f.verdict(table["lie"]).startswith("Fails the faithfulness test: worse than random")
    assert f.verdict(table["coin"]).startswith("Fails the faithfulness test: not better")
    assert f.verdict(table["truth"], randomized=0.8).startswith(
        "Fails the faithfulness test: it hardly changes"
    )
    assert f.verdict(table["truth"], randomized=0.1).startswith("Passes the faithfulness test:")
    assert f.verdict(f.table(judged[:5])["truth"]).startswith("Too few inputs")


def test_the_verdict_on_one_input_in_words():
    def verdict(wins, fall=0.4, spread=None, parts=11):
        operators = {
            name: {"wins": w, "passes": None if w is None else w == 19}
            for name, w in zip(("mask", "delete", "unknown"), wins, strict=False)
        }
        return f.verdict_on_one(
            operators, {"comprehensiveness": fall}, {"comprehensiveness": 0.1}, 19, parts, spread
        )

    said = verdict((19, 19, 19))
    assert said.startswith(
        "This explanation passes the faithfulness test under 3 of 3 ways of hiding parts: "
    )
    assert "lowers the probability by 0.400, hiding random parts by 0.100" in said
    assert said.endswith(
        "of 19 random orders it beats 19 (masked), 19 (deleted), 19 (set to the unknown token)."
    )
    assert "passes the faithfulness test only when parts are deleted:" in verdict((18, 19, 0))
    assert "under 2 of 2 ways" in verdict((19, None, 19))
    assert "fails the faithfulness test:" in verdict((18, 0, 1))
    assert "fails the faithfulness test and is worse than random:" in verdict((0, 0, 0))
    assert "The test cannot tell: the probability stays the same within 0.005" in verdict((None,))
    assert "ranks first raises the probability by 0.038, hiding random parts lowers it" in verdict(
        (0,), -0.038
    )
    assert "lowers the number by 2000" in verdict((19,), 2000.0, 1e6)
    assert "3 tokens or patches can be hidden, 4 are needed" in verdict((None,), parts=3)
    assert "the number stays the same within 5e+03" in verdict((None,), spread=1e6)


def test_a_random_order_passes_rarely_and_the_truth_always():
    """Under several operators at once, which is what the verdict says."""
    subject, values = linear_subject()
    subject = replace(
        subject,
        operators=("mask", "mean", "delete"),
        baselines=subject.baselines
        | {"mean": lambda: torch.tensor([[0.3, 0.0, 0.0]]).repeat(len(values), 1)},
    )
    rng = np.random.default_rng(5)
    every = [
        f.check_faithfulness(subject, rng.random(len(values)), target=1, seed=i)["operators"]
        for i in range(100)
    ]
    assert np.mean([all(found["passes"] for found in told.values()) for told in every]) <= 0.05
    assert np.mean([told["mask"]["passes"] for told in every]) <= 0.11  # 5 expected of 100
    for i in range(10):
        truth = f.check_faithfulness(subject, values, target=1, seed=i)
        assert all(found["passes"] and found["wins"] == 19 for found in truth["operators"].values())
        lie = f.check_faithfulness(subject, -values, target=1, seed=i)
        assert "is worse than random" in lie["verdict"]
    few, values = linear_subject(3)
    assert (
        "3 tokens or patches can be hidden, 4 are needed"
        in f.check_faithfulness(few, values, target=1)["verdict"]
    )


def test_every_method_can_be_judged(tiny):
    subject = text_subject(tiny, "it was wonderful , not a dull film")
    scores = {m: explain(subject, method=m).scores for m in NETWORK_METHODS}
    judged = f.compare_with_random(subject, scores, draws=2)
    assert judged.keys() == {*NETWORK_METHODS, "random"}
    assert all(np.isfinite(list(figures.values())).all() for figures in judged.values())
    again = f.compare_with_random(subject, scores, draws=2)
    assert again == judged
    alone = f.curves(subject, scores["occlusion"], subject.target).metrics()
    assert alone == pytest.approx(judged["occlusion"], abs=1e-9)
    pairs = f.agreement(scores, subject.maskable_indices)
    assert pairs["rollout"]["rollout"] == pytest.approx(1.0)
    assert pairs["rollout"]["occlusion"] == pairs["occlusion"]["rollout"]


def test_nothing_to_hide_is_said(tiny):
    subject = text_subject(tiny, "a film")
    subject.words[:] = -1
    with pytest.raises(InputError, match="nothing in this input"):
        f.curves(subject, np.zeros(4), 0)


def test_rank_correlation_is_scipy_s():
    rng = np.random.default_rng(1)
    for _ in range(5):
        a, b = rng.integers(0, 5, 17), rng.normal(size=17)
        assert f.spearman(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert f.spearman(np.ones(5), np.arange(5)) == 0.0


def test_overlap_of_the_highest_fifth():
    a = np.arange(10.0)
    assert f.overlap(a, a) == 1.0
    assert f.overlap(a, -a) == 0.0
    assert f.overlap(a, np.array([0, 0, 0, 0, 0, 0, 0, 5, 0, 9.0])) == 0.5


def test_interval_of_a_mean():
    values = np.random.default_rng(2).normal(3, 1, 400)
    low, high = f.interval(values)
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 / 20, rel=0.2)


def test_the_curves_of_a_number_lie_on_its_page():
    subject, values = linear_subject()
    told = f.check_faithfulness(subject, values, target=1, draws=3)
    assert "number" not in told
    assert (
        'aria-label="The probability in the deletion test (first parts hidden), compared'
        in faithfulness_svg(told)
    )
    curves = {name: [400 + 9 * y for y in told[name]] for name in ("deletion", "insertion")}
    drawn = {name: [400 + 9 * y for y in told["random"][name]] for name in ("deletion", "insertion")}
    page = faithfulness_svg(told | curves | {"random": told["random"] | drawn, "number": True})
    assert 'aria-label="The number in the insertion test' in page
    heights = [
        float(pair.split(",")[1]) for line in re.findall(r'points="([^"]*)"', page) for pair in line.split()
    ]
    assert min(heights) == pytest.approx(16)
    assert max(heights) == pytest.approx(104)
