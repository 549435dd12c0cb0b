"""Intervals of macro-F1: that they hold the figure, hold the truth as often as they say, and know rare classes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from glassformer.data.questions import Answers
from glassformer.evaluate.compare import bootstrap_means, bounds, macro_f1_statistic
from glassformer.evaluate.intervals import macro_f1_interval, multilabel_f1_interval, wilson
from glassformer.report import wording
from glassformer.report.card import _metrics_in
from glassformer.targets.answer_span import answer_metrics
from glassformer.targets.multiclass import Classes
from glassformer.targets.multilabel import LabelSets
from glassformer.targets.token_tags import tag_metrics
from glassformer.tasks.classifier import abstention

RARE = (2, 5, 19, 199)  # examples of each class


def examples(confusion: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """True and predicted classes ``[n]`` of a confusion matrix."""
    true, made = np.nonzero(confusion)
    return np.repeat(true, confusion[true, made]), np.repeat(made, confusion[true, made])


def drawn_table(rng: np.random.Generator, recalls: tuple[float, ...]) -> np.ndarray:
    """Counts of a model whose classes are right so often and wrong in the others' proportion."""
    return np.stack([rng.multinomial(n, row) for n, row in zip(RARE, chances(recalls), strict=True)])


def chances(recalls: tuple[float, ...]) -> np.ndarray:
    out = np.tile(np.array(RARE, float), (len(RARE), 1))
    np.fill_diagonal(out, 0)
    out *= (1 - np.array(recalls))[:, None] / out.sum(1, keepdims=True)
    return out + np.diag(recalls)


def macro_f1(table: np.ndarray) -> float:
    return float(np.mean(2 * np.diag(table) / (table.sum(0) + table.sum(1))))


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.integers(1, 61), st.integers(0, 10**6))
def test_an_interval_holds_its_figure_and_stays_a_share(classes, n, seed):
    rng = np.random.default_rng(seed)
    cells = rng.dirichlet(np.full(classes**2, 0.2))
    table = rng.multinomial(n, cells).reshape(classes, classes)
    y, guess = examples(table)
    figure = sk.f1_score(y, guess, average="macro", zero_division=0)
    low, high = macro_f1_interval(table, resamples=20)
    assert 0 <= low <= figure + 1e-12
    assert figure - 1e-12 <= high <= 1
    several = multilabel_f1_interval(
        np.eye(classes)[y], np.eye(classes)[guess][None], include_absent=False, resamples=20
    )
    assert several == pytest.approx([low, high], abs=0.08)  # the same but for the draws


def test_a_class_of_two_right_examples_is_not_taken_for_certain():
    table = np.diag(RARE)
    low, high = macro_f1_interval(table)
    assert high == 1.0
    assert 0.75 < low < 0.95  # resampled examples are all right, so percentiles say 1.0 to 1.0


@pytest.mark.parametrize("recalls", [(0.9, 0.9, 0.9, 0.97), (0.5, 0.6, 0.8, 0.95), (0.97, 0.97, 0.99, 0.995)])
def test_coverage_with_rare_classes(recalls):
    rng = np.random.default_rng(3)
    truth = macro_f1(chances(recalls) * np.array(RARE)[:, None])
    held = [
        low <= truth <= high
        for low, high in (macro_f1_interval(drawn_table(rng, recalls), resamples=100) for _ in range(211))
    ]
    assert 0.9 <= np.mean(held) <= 1.0


def test_with_many_examples_it_is_the_bootstraps_own():
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 1009)
    guess = np.where(rng.random((3, 1009)) < [[0.8], [0.81], [0.79]], y, rng.integers(0, 3, (3, 1009)))
    for seeds in (guess[:1], guess):
        wanted = bounds(bootstrap_means([macro_f1_statistic(y, seeds, 3)], 1009, resamples=4000)[0])
        eye = np.eye(3)
        found = multilabel_f1_interval(eye[y], eye[seeds], include_absent=False)
        assert found == pytest.approx(wanted, abs=0.004)


def test_seeds_that_answer_alike_add_nothing_and_others_narrow_it():
    rng = np.random.default_rng(7)
    y = rng.integers(0, 2, (211, 5))
    flip = rng.random((23, 211, 5)) < 0.2
    made = np.where(flip, 1 - y, y)
    one, same = (multilabel_f1_interval(y, made[[0] * k]) for k in (1, 3))
    assert same == pytest.approx(one, abs=0.002)
    low, high = multilabel_f1_interval(y, made)
    assert high - low < 0.7 * (one[1] - one[0])


def test_seeds_that_scatter_widen_it():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, (997, 3))
    apart = np.stack([np.where(rng.random(y.shape) < rate, y, 1 - y) for rate in (0.7, 0.85, 0.95)])
    low, high = multilabel_f1_interval(y, apart)
    alone = multilabel_f1_interval(y, apart[:1])
    assert high - low > 4 * (alone[1] - alone[0])


def test_the_targets_give_it():
    y, guess = examples(drawn_table(np.random.default_rng(0), (0.5, 0.6, 0.8, 0.95)))
    table, sets = sk.confusion_matrix(y, guess, labels=range(4)), (np.eye(4)[y], np.eye(4)[guess][None])
    options = {"classes": list("abcd"), "bootstrap": 50, "seed": 1}
    found = Classes().score(np.eye(4)[guess], y, **options)["macro_f1_interval"]
    assert found == macro_f1_interval(table, resamples=50, seed=1)
    found = LabelSets().score(np.eye(4)[guess], np.eye(4)[y], **options)["macro_f1_interval"]
    assert found == multilabel_f1_interval(*sets, resamples=50, seed=1)


def all_or_none(right: bool, n: int) -> dict[str, tuple[float, list[float]]]:
    """Shares of ``n`` examples that are all right, or all wrong, from every place that counts them."""
    y = np.arange(n) % 2
    guess = y if right else 1 - y
    p, names = np.eye(2)[guess], ["a", "b"]
    tags = [["B-a"]] * n, [["B-a" if right else "B-b"]] * n
    answers = [Answers(("Rome",), (0,))] * n
    asked = answer_metrics(answers, ["Rome" if right else "Oslo"] * n, [str(i) for i in range(n)])
    left = abstention(Classes(), p, y, None, 0.5)
    found = {"classes": Classes().score(p, y, names), "sets": LabelSets().score(p, np.eye(2)[y], names)}
    found |= {"tags": tag_metrics(*tags, "BIO")}
    keys = {"classes": ("accuracy",), "sets": ("accuracy", "micro_f1"), "tags": ("entity_f1",)}
    found |= {"answers": asked, "abstaining": left}
    keys |= {"answers": ("exact_match", "f1"), "abstaining": ("accuracy",)}
    return {f"{w} {k}": (found[w][k], found[w][f"{k}_interval"]) for w in found for k in keys[w]}


@pytest.mark.parametrize(
    ("right", "n", "wanted"),
    [
        (True, 32, [0.90625, 1.0]),
        (True, 1, [0.05, 1.0]),
        (True, 3, [0.05 ** (1 / 3), 1.0]),
        (True, 9, [0.05 ** (1 / 9), 1.0]),
        (True, 199, [1 - 3 / 199, 1.0]),
        (False, 32, [0.0, 0.09375]),
        (False, 1, [0.0, 0.95]),
        (False, 199, [0.0, 3 / 199]),
    ],
)
def test_all_right_and_none_right_have_one_interval_everywhere(right, n, wanted):
    for place, (share, interval) in all_or_none(right, n).items():
        assert share == float(right), place
        assert interval == pytest.approx(wanted, abs=1e-12), place
        digits = wording.digits_for(n)
        end = wording.percent(wanted[0] if right else wanted[1], digits)
        told = f"at least {end}" if right else f"at most {end}"
        assert wording.share_interval(share, interval, n, digits) == told
        assert wording.share_interval(share, [share, share], n, digits) == told  # a file of before


def test_what_a_macro_f1_knows_of_rare_classes_stays():
    y = np.repeat([0, 1], [97, 3])
    scores = Classes().score(np.eye(2)[y], y, ["a", "b"])
    assert scores["accuracy_interval"] == [0.97, 1.0]
    low, high = scores["macro_f1_interval"]
    assert low < 0.9
    assert high == 1.0
    assert wording.bounds(scores, "macro_f1") == f"at least {wording.percent(low)}"
    card = {f.name: f.interval for f in _metrics_in(scores, "this model", "test")}
    assert (card["accuracy"], card["macro-F1"]) == ((0.97, 1.0), (low, high))
    before = scores | {"accuracy_interval": [1.0, 1.0]}
    assert {f.name: f.interval for f in _metrics_in(before, "this model", "test")}["accuracy"] == (0.97, 1.0)
    assert f"the accuracy on such texts is at least {wording.percent(0.97)}" in wording.verdict(
        scores, "test"
    )


def test_a_label_without_examples_counts_as_nothing_in_sets_and_is_left_out_of_classes():
    y = np.eye(3)[[0, 0, 1, 1, 1]]
    every, some = (multilabel_f1_interval(y, y[None], include_absent=flag) for flag in (True, False))
    assert every[0] < 2 / 3 < every[1] < 0.75
    assert some[1] == 1.0


def test_wilson_of_few():
    low, high = wilson(np.array([2.0]), np.array([2.0]))
    assert (low[0], high[0]) == (pytest.approx(0.342, abs=1e-3), pytest.approx(1.0))
