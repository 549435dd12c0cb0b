"""Pairs of texts over HTTP: a field of their own, both boxes of the page's explanation, and clear refusals."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.tasks.task import TINY

from .conftest import over

COLORS = ("red", "blue", "green")
PAIRS = [(f"the {a} one", f"a {b} one here") for a in COLORS for b in COLORS]
SAME = ["same" if a.split()[1] == b.split()[1] else "other" for a, b in PAIRS]
SETTINGS = TINY | {"d_model": 22, "d_ff": 31, "max_length": 17, "min_count": 1, "lr": 1e-2, "batch_size": 9}


@pytest.fixture(scope="module")
def models():
    pairs = gf.TextClassifier("encoder-mini", **SETTINGS).fit(PAIRS * 2, SAME * 2)
    single = gf.TextClassifier("encoder-mini", **SETTINGS).fit([a for a, _ in PAIRS * 2], SAME * 2)
    return pairs, single


@pytest.fixture(scope="module")
def served(models):
    with over(nli=models[0], one=models[1]) as running:
        yield running


def test_pairs_are_answered_as_offline_whatever_shares_their_batch(served, models):
    asked = [*PAIRS, ("red " * 40, "blue one")]
    answer = served.ask("/v1/predict", {"pairs": [list(pair) for pair in asked]})
    assert answer.status == 200, answer
    assert answer.body["model"] == "nli"
    shares = [list(p["probabilities"].values()) for p in answer.body["predictions"]]
    np.testing.assert_allclose(shares, models[0].predict_proba(asked), atol=1e-5)
    assert [p["truncated"] for p in answer.body["predictions"]] == [False] * len(PAIRS) + [True]
    assert served.ask("/v1/predict", {"texts": ["the red one"]}).body["model"] == "one"


def test_sides_that_are_read_apart_are_answered_as_offline():
    clf = gf.TextClassifier("encoder-mini", pairs="apart", **SETTINGS).fit(PAIRS * 2, SAME * 2)
    with over(apart=clf) as running:
        answer = running.ask("/v1/predict", {"pairs": [list(pair) for pair in PAIRS]})
        shares = [list(p["probabilities"].values()) for p in answer.body["predictions"]]
        np.testing.assert_allclose(shares, clf.predict_proba(PAIRS), atol=1e-5)
        asked = {"text": PAIRS[1][0], "text_pair": PAIRS[1][1], "method": "rollout"}
        explained = running.ask("/v1/explain", asked)
        assert explained.status == 200, explained
        assert explained.body["second"]


def test_an_explanation_says_where_the_second_text_begins(served, models):
    first, second = PAIRS[1]
    answer = served.ask("/v1/explain", {"text": first, "text_pair": second, "method": "occlusion"})
    assert answer.status == 200, answer
    words = [piece["text"] for piece in answer.body["pieces"]]
    assert "".join(words) == f"{first}\n{second}"
    assert words[answer.body["second"] :] == ["a", " ", "blue", " ", "one", " ", "here"]
    e = models[0].explain(PAIRS[1], method="occlusion")
    scored = [piece["score"] for piece in answer.body["pieces"] if piece["score"] is not None]
    np.testing.assert_allclose(scored, [score for _, score in e.words()], atol=1e-5)


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("predict", {"texts": ["a"], "model": "nli"}, "this model reads pairs of texts"),
        ("predict", {"pairs": [["a", "b"]], "model": "one"}, "this model reads one text"),
        ("predict", {"pairs": [["a", "b"]], "texts": ["a"]}, "exactly one of"),
        ("explain", {"text": "a", "model": "nli"}, "this model reads pairs of texts"),
        ("explain", {"text_pair": "a"}, "exactly one of"),
    ],
)
def test_what_does_not_fit_is_refused(path, body, said, served):
    answer = served.ask(f"/v1/{path}", body)
    assert answer.status == 422
    assert said in answer.body["error"]["what"]


@pytest.fixture(scope="module")
def alone(models):
    """A server of the model of pairs, or of the other one, and of no second one."""
    with over(m=models[0]) as of_pairs, over(m=models[1]) as of_one:
        yield of_pairs, of_one


@pytest.mark.parametrize("named", [{}, {"model": "m"}])
@pytest.mark.parametrize(
    ("path", "body"),
    [("predict", {"text": "a"}), ("predict", {"texts": ["a", "b"]}), ("explain", {"text": "a"})],
)
def test_single_texts_for_a_model_of_pairs(path, body, named, alone):
    answer = alone[0].ask(f"/v1/{path}", body | named)
    assert answer.status == 422
    assert answer.body["error"]["what"] == "this model reads pairs of texts"
    assert answer.body["error"]["fix"].startswith('Send "pairs": [["FIRST", "SECOND"]] to /v1/predict')


@pytest.mark.parametrize("named", [{}, {"model": "m"}])
def test_pairs_for_a_model_of_single_texts(named, alone):
    answer = alone[1].ask("/v1/predict", {"pairs": [["a", "b"]]} | named)
    assert answer.status == 422
    assert (answer.body["error"]["what"], answer.body["error"]["fix"]) == (
        "this model reads one text",
        'Send "text" or "texts"',
    )


@pytest.mark.parametrize("pair", [["a"], ["a", "b", "c"], ["a", ""], ["a", " "], "ab"])
def test_half_a_pair_is_refused(pair, served):
    assert served.ask("/v1/predict", {"pairs": [pair]}).status == 422


def test_models_say_which_reads_pairs(served):
    about = {m["name"]: m for m in served.ask("/v1/models").body["models"]}
    assert (about["nli"]["pairs"], about["one"]["pairs"]) == (True, False)
