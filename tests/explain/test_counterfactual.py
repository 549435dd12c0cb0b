"""Counterfactuals: as few changes as any subset of words, replacements that the language model proposes."""

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

import glassformer as gf
from glassformer.errors import BadValueError, InputError, UnknownLabelError
from glassformer.explain.counterfactual import counterfactual

GOOD, BAD, PLAIN = (
    ["superb", "warm", "clever"],
    ["dull", "cold", "clumsy"],
    ["the", "film", "was", "and", "with"],
)


def texts(n, seed=0):
    rng = np.random.default_rng(seed)
    y = [("bad", "good")[i % 2] for i in range(n)]
    words = {"good": GOOD, "bad": BAD}
    return [" ".join(rng.permutation([*rng.choice(PLAIN, 5), *rng.choice(words[one], 2)])) for one in y], y


@pytest.fixture(scope="module")
def clf():
    return gf.TextClassifier("tfidf").fit(*texts(200))


def proposing(words):
    """A language model that proposes the same words everywhere and keeps what it was asked."""
    asked = []
    tokens = gf.TextClassifier("encoder-mini", min_count=1, epochs=1, d_model=8, num_heads=1, d_ff=8)

    def fill(text, top):
        asked.append(text)
        return [(word, 0.5) for word in words[:top]]

    tokenizer = tokens.fit(*texts(20)).tokenizer_
    return SimpleNamespace(max_length=14, tokenizer_=tokenizer, fill=fill, asked=asked)


def fewest(clf, text):
    """The least number of words whose absence turns the prediction, by trying all subsets; None: none."""
    words = text.split()
    own = clf.predict([text])[0]
    for count in range(1, len(words)):
        left = [
            " ".join(w for i, w in enumerate(words) if i not in gone)
            for gone in combinations(range(len(words)), count)
        ]
        if (clf.predict(left) != own).any():
            return count
    return None


def test_no_subset_of_words_is_smaller(clf):
    found = turned = 0
    for text in texts(12, seed=3)[0] + ["a dull superb warm film", "dull cold and superb superb warm"]:
        least, got = fewest(clf, text), counterfactual(clf, text, most=7)
        assert (least is None) == (got is None)
        if got is not None:
            turned += 1
            found += len(got.changes) == least
            assert clf.predict([got.text])[0] == got.label != got.before == clf.predict([text])[0]
            assert got.probability == pytest.approx(clf.predict_proba([got.text]).max())
            assert all(new == "" for _, new in got.changes)
    assert turned >= 4
    assert found == turned


def test_the_words_of_the_language_model_stand_in_their_places(clf):
    model = proposing(["the", "superb", "clever"])
    got = counterfactual(clf, "the film was dull", model)
    assert got.changes == [("dull", "superb")] or got.changes == [("dull", "clever")]
    assert got.text in ("the film was superb", "the film was clever")
    assert (got.before, got.label) == ("bad", "good")
    assert "the film was [MASK]" in model.asked
    kept = counterfactual(clf, "The film, was dull!", model, target="good")
    assert kept.text.startswith("The film, was ")
    assert kept.text.endswith("!")
    # of a long text the model is asked about the words around
    model = proposing(["superb"])
    text = "the film " * 30 + "was dull " + "and the film " * 30
    got = counterfactual(clf, text.strip(), model)
    assert got.changes == [("dull", "superb")]
    assert all(len(asked.split()) <= 14 for asked in model.asked)
    assert "the film was [MASK] and the film" in model.asked
    # none is found where one word is not enough
    assert counterfactual(clf, "dull cold clumsy dull cold clumsy", most=1) is None
    assert counterfactual(clf, "dull", most=3) is None  # an empty text is none


def test_a_change_that_is_not_needed_is_taken_back(clf):
    got = counterfactual(
        clf, "dull cold clumsy film with the superb warm clever", proposing(["superb"]), width=1
    )
    assert got is not None
    places = dict(got.changes)
    for word in places:
        fewer = got.text.replace(places[word], word) if places[word] else None
        if fewer and len(places) > 1:
            assert clf.predict([fewer])[0] == got.before


def test_what_cannot_be_asked(clf):
    with pytest.raises(UnknownLabelError, match="no label 'fine'"):
        counterfactual(clf, "dull film", target="fine")
    with pytest.raises(BadValueError, match="already predicted as 'bad'"):
        counterfactual(clf, "dull film", target="bad")
    with pytest.raises(BadValueError, match="most 0"):
        counterfactual(clf, "dull film", most=0)
    numbers = gf.TextRegressor("tfidf").fit(texts(20)[0], np.arange(20.0))
    with pytest.raises(InputError, match="predicts several labels or a number"):
        counterfactual(numbers, "dull film")
