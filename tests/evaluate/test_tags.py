"""Entity figures against seqeval's own, and errors on sentences whose answer is known on paper."""

import random
import warnings

import pytest

from glassformer.data.tags import Span, detect_scheme, repair_tags, spans_to_tags, tags_to_spans
from glassformer.targets.token_tags import span_errors, tag_metrics

seqeval = pytest.importorskip("seqeval.metrics")
from seqeval.metrics.sequence_labeling import get_entities  # noqa: E402

KINDS = ("person", "creative-work", "group")


def drawn(seed: int, letters: str, plain: bool = False) -> list[list[str]]:
    """Sequences of any tags at all, most of them malformed."""
    rng = random.Random(seed)
    tags = ["O", *(k if plain else f"{letter}-{k}" for k in KINDS for letter in letters)]
    return [[rng.choice(tags) for _ in range(rng.choice((1, 2, 7, 13)))] for _ in range(29)]


@pytest.mark.parametrize("letters", ["BI", "BIES"])
@pytest.mark.parametrize("seed", range(7))
def test_spans_are_those_of_seqeval_even_where_malformed(letters, seed):
    for tags in drawn(seed, letters):
        scheme = "BIOES" if "E" in letters else "BIO"
        assert [(s.kind, s.start, s.end - 1) for s in tags_to_spans(tags, scheme)] == get_entities(tags)
        mended = repair_tags(tags, scheme)
        assert tags_to_spans(mended, scheme) == tags_to_spans(tags, scheme)
        assert repair_tags(mended, scheme) == mended
        strict = seqeval.f1_score([tags], [mended], zero_division=1)  # the oracle sees the same spans
        assert strict == 1.0


@pytest.mark.parametrize("letters", ["BI", "BIES"])
@pytest.mark.parametrize("seed", range(5))
def test_every_figure_is_that_of_seqeval(letters, seed):
    truth = drawn(seed, letters)
    rng = random.Random(seed)
    guess = [[rng.choice((t, t, "O", "B-person", "I-group")) for t in tags] for tags in truth]
    scheme = "BIOES" if "E" in letters else "BIO"
    found = tag_metrics(truth, guess, scheme, bootstrap=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kinds without a prediction
        report = seqeval.classification_report(truth, guess, output_dict=True)
    for ours, theirs in (("precision", "precision"), ("recall", "recall"), ("entity_f1", "f1-score")):
        assert found[ours] == pytest.approx(report["micro avg"][theirs])
    assert found["macro_f1"] == pytest.approx(report["macro avg"]["f1-score"])
    assert found["accuracy"] == pytest.approx(seqeval.accuracy_score(truth, guess))
    for kind, scores in found["by_kind"].items():
        assert scores["f1"] == pytest.approx(report[kind]["f1-score"])
        assert scores["precision"] == pytest.approx(report[kind]["precision"])
        assert scores["support"] == report[kind]["support"]


def test_errors_have_the_names_that_they_deserve():
    truth = [Span("a", 0, 2), Span("b", 3, 4), Span("a", 5, 8), Span("b", 11, 13), Span("a", 17, 19)]
    guess = [Span("a", 0, 2), Span("a", 3, 4), Span("a", 5, 7), Span("c", 14, 15), Span("b", 18, 23)]
    assert span_errors(truth, guess) == [
        ("wrong_kind", "b", "a"),
        ("wrong_border", "a", ""),
        ("missed", "b", ""),
        ("wrong_kind", "a", "b"),
        ("invented", "c", ""),
    ]
    found = tag_metrics([spans_to_tags(truth, 23, "BIO")], [spans_to_tags(guess, 23, "BIO")], "BIO")
    assert found["errors"] == {"missed": 1, "invented": 1, "wrong_kind": 2, "wrong_border": 1}
    assert found["errors_by_kind"]["c"] == {"missed": 0, "invented": 1, "wrong_kind": 0, "wrong_border": 0}
    assert (found["precision"], found["recall"]) == (1 / 5, 1 / 5)
    low, high = found["entity_f1_interval"]
    assert low == high == pytest.approx(found["entity_f1"])  # of one sentence there is one resample


def test_schemes_are_told_apart():
    assert detect_scheme([["O", "B-x"], ["I-x"]]) == "BIO"
    assert detect_scheme([["O", "S-x", "B-y", "I-y"]]) == "BIOES"  # a letter of two is enough
    assert detect_scheme([["O", "S-x"], ["B-x", "E-x"]]) == detect_scheme([["U-x", "B-y", "L-y"]]) == "BIOES"
    assert detect_scheme([["NOUN", "VERB"]]) == detect_scheme([["O", "O"]]) == "plain"
    assert detect_scheme([["B", "I", "O"]]) == "BIO"
    assert tags_to_spans(["B", "I", "O", "B"], "BIO") == [Span("entity", 0, 2), Span("entity", 3, 4)]
    assert tags_to_spans(["x", "x", "O", "y"], "plain") == [Span("x", 0, 2), Span("y", 3, 4)]
    assert repair_tags(["U-x", "B-y", "L-y", "I-z"], "BIOES") == ["S-x", "B-y", "E-y", "S-z"]
    with pytest.raises(Exception, match="tag 'person' is neither O nor one with B-"):
        detect_scheme([["B-person", "I-person", "person"]])
