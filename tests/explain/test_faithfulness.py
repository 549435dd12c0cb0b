"""Faithfulness on a model whose answer is known, against sums written out, and its words."""

import json
import re
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from glassformer.errors import InputError
from glassformer.explain import faithfulness as f
from glassformer.explain import orders
from glassformer.explain.faithfulness import curves
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
        scores = {"truth": values, "lie": -values, "coin": rng.random(13)}
        judged.append(f.compare_with_random(subject, scores, target=1, seed=seed))
    table = f.table(judged)
    for name in f.METRICS:
        assert table["truth"][name]["better"]["interval"][0] > 0
        assert table["lie"][name]["better"]["interval"][1] < 0
        low, high = table["coin"][name]["better"]["interval"]
        assert low < 0 < high
        assert table["truth"][name]["n"] == 30
    few = f.table(judged[:5])["truth"]
    for row, randomized, said in (
        (table["truth"], None, "Passes the faithfulness test:"),
        (table["lie"], None, "Fails the faithfulness test: worse than random"),
        (table["coin"], None, "Fails the faithfulness test: not better"),
        (table["truth"], 0.8, "Fails the faithfulness test: it hardly changes"),
        (table["truth"], 0.1, "Passes the faithfulness test:"),
        (few, None, "Too few inputs"),
    ):
        assert f.verdict(row, randomized=randomized).startswith(said)


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
    assert said.endswith("random orders it beats 19 (masked), 19 (deleted), 19 (set to the unknown token).")
    for given, words in (
        (((18, 19, 0),), "passes the faithfulness test only when parts are deleted:"),
        (((19, None, 19),), "under 2 of 2 ways"),
        (((18, 0, 1),), "fails the faithfulness test:"),
        (((0, 0, 0),), "fails the faithfulness test and is worse than random:"),
        (((None,),), "The test cannot tell: the probability stays the same within 0.005"),
        (((0,), -0.038), "ranks first raises the probability by 0.038, hiding random parts lowers it"),
        (((19,), 2000.0, 1e6), "lowers the number by 2000"),
        (((None,), 0.4, None, 3), "3 tokens or patches can be hidden, 4 are needed"),
        (((None,), 0.4, 1e6), "the number stays the same within 5e+03"),
    ):
        assert words in verdict(*given[:3], **({"parts": given[3]} if len(given) > 3 else {}))


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
    # nothing to hide is said
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
    # the overlap of the highest fifth
    a = np.arange(10.0)
    assert f.overlap(a, a) == 1.0
    assert f.overlap(a, -a) == 0.0
    assert f.overlap(a, np.array([0, 0, 0, 0, 0, 0, 0, 5, 0, 9.0])) == 0.5
    # the interval of a mean
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


# --- the best and the worst order -----------------------------------------------------------------


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
    # where nothing can be hidden
    subject, _ = linear_subject(weight=np.ones(2))
    subject.words[:] = -1
    with pytest.raises(InputError, match="nothing in this input can be hidden"):
        orders.deletion_bounds(subject, 1)
