"""Scores of translations, beside figures worked out on paper: a translation and its reference are no equals."""

import math
import sys

import pytest

from glassformer.errors import DataError, GlassformerError
from glassformer.targets.target_text import tokenize, translation_scores


@pytest.fixture(autouse=True)
def _sacrebleu():
    pytest.importorskip("sacrebleu")


SHORT, LONG = "One two three four five", "One two three four five six seven"


def test_a_short_translation_pays_for_its_length_and_a_long_one_for_its_words():
    short = translation_scores([SHORT], [LONG])
    brevity = pytest.approx(100 * math.exp(1 - 7 / 5))  # every n-gram is right
    assert short["bleu"] == short["bleu_tokenised"] == brevity
    assert short["length_ratio"] == pytest.approx(5 / 7)
    long = translation_scores([LONG], [SHORT])
    precisions = math.prod(right / all_ for right, all_ in ((5, 7), (4, 6), (3, 5), (2, 4)))
    assert long["bleu"] == long["bleu_tokenised"] == pytest.approx(100 * precisions**0.25)
    assert long["length_ratio"] == pytest.approx(7 / 5)
    assert long["n"] == short["n"] == 1


def test_chrf_counts_what_is_left_out_more_than_what_is_added():
    def by_hand(hypothesis: str, reference: str) -> float:
        scores = []
        for n in range(1, 7):
            ours, theirs = ([t[i : i + n] for i in range(len(t) - n + 1)] for t in (hypothesis, reference))
            both = sum(min(ours.count(g), theirs.count(g)) for g in set(ours))
            precision, recall = both / len(ours), both / len(theirs)
            scores.append((precision, recall))
        p, r = (sum(s) / 6 for s in zip(*scores, strict=True))
        return 100 * 5 * p * r / (4 * p + r)

    short, long = (text.replace(" ", "") for text in (SHORT, LONG))
    assert translation_scores([SHORT], [LONG])["chrf"] == pytest.approx(by_hand(short, long))
    assert translation_scores([LONG], [SHORT])["chrf"] == pytest.approx(by_hand(long, short))
    assert by_hand(short, long) < by_hand(long, short) - 5


def test_case_and_marks_count_for_one_of_the_scores_only():
    scores = translation_scores(["a dog runs, and a cat sleeps."], ["A Dog runs , and a Cat sleeps ."])
    assert scores["bleu_tokenised"] == pytest.approx(100)
    assert scores["bleu"] < 60
    assert tokenize("It's RED, isn't it?") == "it ' s red , isn ' t it ?"
    assert "case:mixed" in scores["signatures"]["bleu"]
    assert "tok:13a" in scores["signatures"]["bleu"]
    assert "nc:6" in scores["signatures"]["chrf"]
    assert "tok:none" in scores["signatures"]["bleu_tokenised"]
    # texts belong to each other in their order
    texts = ["the first of three lines", "and now the second one", "at last the third is here"]
    assert translation_scores(texts, texts)["bleu"] == pytest.approx(100)
    assert translation_scores(texts, texts)["n"] == 3
    assert translation_scores(texts, texts[::-1])["bleu"] < 60
    assert translation_scores(["one two three four"], [""])["length_ratio"] == 4


@pytest.mark.parametrize(("hypotheses", "references"), [(["a"], ["a", "b"]), (["a", "b"], ["a"]), ([], [])])
def test_what_cannot_be_judged_is_refused(hypotheses, references):
    with pytest.raises(DataError, match=f"{len(hypotheses)} translations for {len(references)} references"):
        translation_scores(hypotheses, references)


def test_the_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(GlassformerError, match=r"pip install 'glassformer\[translate\]'"):
        translation_scores(["a"], ["a"])
