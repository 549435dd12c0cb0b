"""Figures and tests of arms from what their runs answered: what is drawn, and which test says what of what."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from glassformer.evaluate.compare import multilabel_f1_statistic, paired_difference
from glassformer.report.wording import bounds, how_tested
from glassformer.study.results import add_tests, sentences
from glassformer.targets import AnswerSpan, LabelSets, TokenTags
from glassformer.targets.target import RunPredictions
from glassformer.targets.token_tags import SpanCounts


def compared(measure: str, *arms: RunPredictions) -> dict:
    """The results of arms with one seed each, the first the baseline."""
    names = [f"arm {i}" for i in range(len(arms))]
    told = [{"name": name} for name in names]
    runs = {name: {0: (None, own)} for name, own in zip(names, arms, strict=True)}
    add_tests(told, runs, names[0], arms[0], 400, measure)
    about = {"n": arms[0].n, "baseline": names[0], "seeds": [0], "unfinished": [], "measure": measure}
    return about | {"arms": told, "baselines": {}}


def of_questions(exact: np.ndarray, f1: np.ndarray, contexts: np.ndarray) -> RunPredictions:
    shares = np.stack([exact, f1], 1).astype(float)
    return RunPredictions(AnswerSpan(), "d", len(exact), None, shares, groups=contexts)


def test_of_questions_their_texts_are_drawn():
    """Five questions on each of 40 texts are right or wrong together: they say as much as 40 questions."""
    rng, contexts = np.random.default_rng(0), np.repeat(np.arange(40), 5)
    one, other = (np.repeat(rng.random(40) < 0.5, 5) for _ in range(2))
    answers = [of_questions(own, own, contexts) for own in (one, other)]
    assert answers[0].num_units == 40
    results = compared("f1", *answers)
    low, high = results["arms"][0]["f1"]["interval"]
    share = one.mean()
    assert (high - low) / 2 == pytest.approx(1.96 * np.sqrt(share * (1 - share) / 40), rel=0.2)
    assert results["arms"][1]["test"] == "bootstrap"
    by_accuracy = compared("accuracy", *answers)
    assert by_accuracy["arms"][1]["test"] == "bootstrap"
    assert by_accuracy["arms"][1]["mcnemar"] == []  # nothing to call two seeds an arm undecided by
    alone = [of_questions(own, own, np.arange(200)) for own in (one, other)]
    assert compared("accuracy", *alone)["arms"][1]["p"] < by_accuracy["arms"][1]["p"]


def of_tags(made: list[int], exact: list[int], right: list[int]) -> RunPredictions:
    true, words = np.array([[3], [2], [4], [1]]), np.array([9, 8, 9, 7])
    spans = SpanCounts(true, np.array(made)[:, None], np.array(exact)[:, None], np.array(right), words)
    return RunPredictions(TokenTags(), "d", 4, None, spans)


def test_arms_without_one_sentence_all_right_can_differ():
    worse = of_tags([1, 1, 1, 1], [0, 0, 0, 0], [3, 2, 3, 1])
    better = of_tags([3, 2, 4, 1], [2, 2, 3, 1], [8, 7, 8, 6])
    for measure in ("entity_f1", "accuracy"):
        results = compared(measure, worse, better)
        (arm,) = results["arms"][1:]
        assert arm["mcnemar"] == []  # of whole sentences it would say that they are the same
        assert (arm["test"], arm["significant"]) == ("bootstrap", True)
        said = sentences(results)
        assert said["verdict"].startswith("Significantly better than arm 0: arm 1.")
        assert "No difference" not in said["sentences"]["arm 1"]
        assert how_tested(results) == "paired bootstrap over examples"
    same = sentences(compared("entity_f1", worse, worse))["sentences"]["arm 1"]
    assert same.startswith("No significant difference: as good as arm 0")


def test_a_label_that_is_nowhere_counts_as_in_a_runs_own_figure():
    rng = np.random.default_rng(0)
    y = rng.random((67, 4)) < 0.4
    y[:, 3] = False
    made = [np.where(rng.random(y.shape) < noise, ~y, y) & [True, True, True, False] for noise in (0.1, 0.3)]
    options = {"bootstrap": 0, "curves": False}
    own = LabelSets().score(made[0].astype(float), y, ["a", "b", "c", "d"], made[0], **options)["macro_f1"]
    once = np.ones((1, 67), np.float32)
    assert multilabel_f1_statistic(y, made[0][None])(once)[0, 0] == pytest.approx(own)
    assert own == pytest.approx(f1_score(y, made[0], average="macro", zero_division=0))
    answers = [RunPredictions(LabelSets(), "d", len(y), y, m, ("a", "b", "c", "d")) for m in made]
    results = compared("macro_f1", *answers)
    low, high = results["arms"][0]["macro_f1"]["interval"]
    assert low <= results["arms"][0]["macro_f1"]["mean"] <= high
    assert results["arms"][0]["macro_f1"]["mean"] == pytest.approx(own)
    apart = paired_difference(y, *made, 4, measure="macro_f1", resamples=50)
    assert apart["value"] == pytest.approx(own - f1_score(y, made[1], average="macro", zero_division=0))


def test_an_interval_of_nothing_right_is_that_of_accuracy_alone():
    scores = {"n": 10, "kind": "labels", "accuracy": 0.0, "accuracy_interval": [0.0, 0.0]}
    scores |= {"macro_f1": 0.575, "macro_f1_interval": [0.4, 0.7], "micro_f1": 1.0}
    assert bounds(scores, "accuracy").startswith("at most 30.0")
    assert bounds(scores, "macro_f1").startswith("40.0 to 70.0")
    assert bounds(scores, "micro_f1").startswith("at least 70.0")
    nothing = {"n": 10, "accuracy": 0.0, "macro_f1": 0.0, "macro_f1_interval": [0.0, 0.0]}
    assert bounds(nothing, "macro_f1").startswith("at most 30.0")


def test_arms_that_are_right_on_the_same_examples_are_said_to_be():
    def arm(name, **more):
        share = {"mean": 0.714, "difference": 0.0, "difference_interval": [0.0, 0.0]}
        return {"name": name, "accuracy": share, "significant": False, "p_holm": 1.0, **more}

    arms = [arm("encoder-mini"), arm("textcnn", mcnemar=[{"wins": 0, "losses": 0, "p": 1.0}])]
    results = {"n": 35, "baseline": "encoder-mini", "arms": arms, "seeds": [0], "unfinished": []}
    said = sentences(results | {"baselines": {"TF-IDF": {"accuracy": 0.943}}})
    start = "No difference: right on the same examples as encoder-mini"
    assert said["sentences"]["textcnn"].startswith(start)
    assert "No variant reaches TF-IDF (94.3" in said["verdict"]
    weaker = sentences(results | {"baselines": {"TF-IDF": {"accuracy": 0.7}}})
    assert "reaches" not in weaker["verdict"]
