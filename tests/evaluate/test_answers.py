"""Exact match and F1 held to torchmetrics' SQuAD; spans and thresholds held to trying all of them."""

import itertools

import numpy as np
import pytest

from glassformer.data.questions import Answers, Question
from glassformer.targets.answer_span import (
    ERRORS,
    Candidates,
    SpanCandidate,
    answer_metrics,
    best_spans,
    best_threshold,
    document_frequencies,
    error_kind,
    exact_match,
    likeliest_sentence,
    name_or_number,
    normalize,
    word_f1,
)

GIVEN = "The Hague|in Rome, Italy|1,923|an  apple!|nothing like it|Rome|the a an|\u00e9t\u00e9".split("|")
TRUE = "the hague|Rome;Italy|1923|Apple|Hanoi|rome.;Roma|the|\u00e9t\u00e9s"
TRUE = [own.split(";") for own in TRUE.split("|")]


def test_figures_are_those_of_the_library():
    text = pytest.importorskip("torchmetrics.functional.text")
    preds = [{"prediction_text": given, "id": str(i)} for i, given in enumerate(GIVEN)]
    places = [[0] * len(own) for own in TRUE]
    target = [
        {"answers": {"text": own, "answer_start": at}, "id": str(i)}
        for i, (own, at) in enumerate(zip(TRUE, places, strict=True))
    ]
    wanted = text.squad(preds, target)
    truth = [Answers(tuple(own), tuple(at)) for own, at in zip(TRUE, places, strict=True)]
    found = answer_metrics(truth, GIVEN, ["c"] * len(GIVEN), bootstrap=0)
    assert 100 * found["exact_match"] == pytest.approx(float(wanted["exact_match"]), abs=1e-4)
    assert 100 * found["f1"] == pytest.approx(float(wanted["f1"]), abs=1e-4)


def test_figures_on_paper():
    assert normalize(" The  Cat's, a-hat!") == "cats ahat"
    assert exact_match("", []) == word_f1("", []) == 1.0
    assert exact_match("Rome", []) == word_f1("Rome", []) == 0.0
    assert word_f1("New York City", ["York"]) == pytest.approx(2 * 1 / (3 + 1))
    truth = [Answers(("Rome",), (0,)), Answers(), Answers(("Oslo",), (0,)), Answers()]
    found = answer_metrics(truth, ["Rome", "Oslo", "", ""], ["a", "a", "b", "c"], bootstrap=50)
    assert (found["n"], found["contexts"], found["exact_match"], found["f1"]) == (4, 3, 0.5, 0.5)
    assert found["unanswerable"] == {"n": 2, "exact_match": 0.5, "f1": 0.5}
    assert (found["errors"]["missed"], found["errors"]["invented"]) == (1, 1)
    low, high = found["f1_interval"]
    assert 0 <= low < 0.5 < high <= 1


@pytest.mark.parametrize(
    ("given", "truth", "error"),
    [
        ("rome", "Rome", ""),
        ("", "Rome", "missed"),
        ("Rome", "", "invented"),
        ("in Rome today", "Rome", "too_long"),
        ("York", "New York", "too_short"),
        ("York City", "New York", "overlapping"),
        ("Oslo", "Rome", "elsewhere"),
    ],
)
def test_errors_have_kinds(given, truth, error):
    assert error_kind(given, [truth] if truth else []) == error
    assert error in ("", *ERRORS)


def test_the_best_spans_and_threshold_are_those_of_trying_all():
    logits = np.random.default_rng(3).normal(size=(13, 2)).astype(np.float32)
    for longest in (1, 5, 40):
        every = [
            (float(logits[i, 0] + logits[j, 1]), i, j)
            for i, j in itertools.product(range(13), repeat=2)
            if i <= j < i + longest
        ]
        wanted = sorted(every, reverse=True)[:7]
        found = best_spans(logits, longest, 7)
        assert [span[1:] for span in found] == [span[1:] for span in wanted]
        assert np.allclose([s for s, _, _ in found], [s for s, _, _ in wanted])
    assert best_spans(logits[:0], 5, 7) == []
    rng = np.random.default_rng(5)
    leads = np.round(rng.normal(size=23), 1)  # some are equal
    none = rng.random(23) < 0.4
    answered = np.where(none, 0.0, rng.random(23))

    def mean(threshold):
        return np.where(leads > threshold, none, answered).mean()

    best = max(mean(x) for x in np.linspace(-5, 5, 2001))
    assert mean(best_threshold(leads, answered, none.astype(float))) == pytest.approx(best)


def test_no_answer_takes_its_place_among_the_best():
    question = Question("q", "Rome or Oslo")
    found = Candidates((SpanCandidate(3.0, 0, 4), SpanCandidate(1.0, 8, 12)), 2.0)
    assert [one.text for one in found.best_answers(question, 0.0, 5)] == ["Rome", "", "Oslo"]
    assert [one.text for one in found.best_answers(question, -2.0, 5)] == ["", "Rome", "Oslo"]
    assert [one.text for one in found.best_answers(question, None, 5)] == ["Rome", "Oslo"]
    shares = [one.probability for one in found.best_answers(question, 0.0, 5)]
    assert sum(shares) == pytest.approx(1)
    assert sum(one.probability for one in found.best_answers(question, None, 5)) == pytest.approx(1)


def test_baselines_find_the_sentence_and_what_is_asked_for():
    context = "Ada was born in Hanoi in 1923. Bo bakes bread in Rome! Nobody came."
    seen = document_frequencies([context, "Other texts speak of bread.", "And of Rome."])
    asked = Question("When was Ada born?", context)
    sentence = likeliest_sentence(asked, seen)
    assert sentence == "Ada was born in Hanoi in 1923."
    assert name_or_number(asked, sentence) == "1923"
    assert name_or_number(Question("Where was Ada born?", context), sentence) == "Hanoi"
    assert name_or_number(Question("How many came?", context), "Nobody came.") == "Nobody came."
