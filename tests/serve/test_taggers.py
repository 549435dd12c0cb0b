"""A tagger over HTTP beside a classifier: the library's spans, its explanations, and one-line refusals."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import glassformer as gf
from glassformer.inputs.inputs import ServedInputs
from glassformer.serve.limits import Limits
from glassformer.serve.models import load_models

from .conftest import CHROMIUM, Running, over

WORDS = [["Ann", "lives", "in", "New", "York"], ["In", "Rome", "we", "met", "Bo"], ["nobody", "came"]] * 5
TAGS = [["B-person", "O", "O", "B-place", "I-place"], ["O", "B-place", "O", "O", "B-person"], ["O", "O"]] * 5
ASKED = ["Ann  met Bo", "in New York nobody lives", "Rome came " * 17]


@pytest.fixture(scope="module")
def served(classifiers, tmp_path_factory) -> Iterator[tuple[Any, Running]]:
    settings: dict[str, Any] = {"d_model": 14, "num_heads": 2, "d_ff": 11, "num_layers": 1, "min_count": 1}
    settings |= {"epochs": 25, "lr": 0.01, "batch_size": 3, "max_length": 13, "threads": 1}
    tagger = gf.TokenTagger("encoder-mini", precision="fp32", **settings).fit(WORDS, TAGS)
    tagger.temperature_ = 1.7
    with over(tmp_path_factory.mktemp("served"), films=classifiers[0], names=tagger) as running:
        yield tagger, running


def test_spans_are_those_of_the_library(served):
    tagger, server = served
    answer = server.ask("/v1/tag", {"texts": ASKED})
    assert answer.status == 200, answer.body
    assert answer.body["model"] == "names"
    found = [span for spans in tagger.spans(ASKED) for span in spans]
    assert len(found) > 3
    told = [span for sentence in answer.body["sentences"] for span in sentence["spans"]]
    assert [(s["text"], s["label"], s["start"], s["end"], s["first"], s["last"]) for s in told] == [
        (s.text, s.kind, s.start, s.end, s.first, s.last) for s in found
    ]
    np.testing.assert_allclose([s["probability"] for s in told], [s.probability for s in found], atol=1e-5)
    for text, sentence, tags in zip(ASKED, answer.body["sentences"], tagger.predict(ASKED), strict=True):
        assert (sentence["text"], sentence["words"], sentence["tags"]) == (text, text.split(), tags)


def test_a_text_its_words_and_a_list_of_either_are_answered_alike(served):
    _, server = served
    words = ASKED[1].split()
    bodies = [{"text": ASKED[1]}, {"words": words}, {"texts": [ASKED[1]]}, {"sentences": [words]}]
    answers = [server.ask("/v1/tag", body).body for body in bodies]
    assert answers[0]["sentences"][0]["spans"]
    assert all(answer == answers[0] for answer in answers)


def test_a_word_is_explained(served):
    tagger, server = served
    asked = {"text": ASKED[0], "method": "occlusion"}
    told = server.ask("/v1/explain", asked | {"word": 2}).body
    mine = tagger.explain(ASKED[0], word=2, method="occlusion")
    assert told["model"] == "names"
    assert told["label"] == mine.label
    assert told["probability"] == pytest.approx(mine.probability, abs=1e-5)
    np.testing.assert_allclose(told["scores"], mine.scores, atol=1e-4)
    assert "'Bo'" in told["notes"][0]
    named = server.ask("/v1/explain", asked | {"word": "Bo", "model": "names"}).body
    assert named == told
    first = server.ask("/v1/explain", asked | {"model": "names"}).body
    assert "'Ann'" in first["notes"][0]
    assert server.ask("/v1/explain", asked).body["model"] == "films"


def test_a_lone_tagger_explains_without_being_named(served, tmp_path):
    with over(tmp_path, names=served[0]) as running:
        told = running.ask("/v1/explain", {"text": ASKED[0], "method": "occlusion"})
        assert (told.status, told.body["model"]) == (200, "names")
        wrong = running.ask("/v1/explain", {"text": ASKED[0], "method": "occlusion", "word": "--5"})
        assert (wrong.status, wrong.body["error"]["what"]) == (422, "no word '--5'")


def test_a_model_of_images_beside_it_explains_no_text(served, classifiers, tmp_path):
    with over(tmp_path, pictures=classifiers[2], names=served[0]) as running:
        told = running.ask("/v1/explain", {"text": ASKED[0], "method": "occlusion"})
        assert (told.status, told.body["model"]) == (200, "names")


def test_models_say_what_they_give(served):
    _, server = served
    films, names = server.ask("/v1/models").body["models"]
    assert (films["gives"], names["gives"]) == ("labels", "tags")
    assert names["spans"] == ["person", "place"]
    assert names["labels"] == served[0].classes_.tolist()
    assert (names["temperature"], names["calibrated"]) == (1.7, True)
    assert "/v1/tag" in server.ask("/openapi.json").body["paths"]


@pytest.mark.parametrize(
    ("path", "body", "status", "where", "said"),
    [
        ("/v1/tag", {}, 422, "body", "exactly one of text, words, texts and sentences"),
        ("/v1/tag", {"text": "a", "words": ["a"]}, 422, "body", "exactly one of"),
        ("/v1/tag", {"text": ["a"]}, 422, "text", "Send a string"),
        ("/v1/tag", {"words": "a b"}, 422, "words", '{"words": [...]}'),
        ("/v1/tag", {"words": ["a", " "]}, 422, "words", "word 2 is empty"),
        ("/v1/tag", {"text": " "}, 422, "text", "no words"),
        ("/v1/tag", {"texts": ["a", " "]}, 422, "texts[1]", "no words"),
        ("/v1/tag", {"sentences": [["a"], []]}, 422, "sentences[1]", "at least 1 item"),
        ("/v1/tag", {"word": ["a"]}, 422, "word", "words"),
        ("/v1/tag", {"text": "a", "model": "films"}, 422, "model", "Use /v1/predict"),
        ("/v1/tag", {"text": "a", "model": "other"}, 404, "model", "no such model"),
        ("/v1/tag", {"texts": ["a"] * 65}, 413, "texts", "65 inputs"),
        ("/v1/tag", {"text": "a" * 100_001}, 413, "text", "100,001 characters"),
        ("/v1/predict", {"texts": ["a"], "model": "names"}, 422, "model", "Use /v1/tag"),
        ("/v1/explain", {"text": "a b", "word": "c"}, 422, "explain", "no word 'c'"),
        ("/v1/explain", {"text": "a", "word": 0, "model": "films"}, 422, "word", "predicts labels"),
        ("/v1/explain", {"text": "a", "word": 0, "method": "occlusion", "layer": 1}, 422, "layer", "option"),
        ("/v1/explain", {"text": "a " * 300, "word": 0}, 413, "text", "256 at most"),
    ],
)
def test_what_cannot_be_answered_is_one_problem(served, path, body, status, where, said):
    _, server = served
    answer = server.ask(path, body)
    told = answer.body["error"]
    assert (answer.status, told["where"]) == (status, where), told
    assert said in f"{told['what']} {told['fix']}"


def test_without_a_tagger_the_way_out_is_told(classifiers, tmp_path):
    from glassformer.serve.app import Server
    from glassformer.serve.problems import Problem

    models = load_models([classifiers[0].save(tmp_path / "films")], Limits(), threads=1)
    with pytest.raises(Problem) as caught:
        Server(models, Limits()).select_model(None, ServedInputs, "tags")
    assert (caught.value.what, caught.value.fix) == (
        "no model here gives tags",
        "Start the server with a run of a TokenTagger",
    )


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_the_page_shows_spans_and_explains_the_word_that_is_chosen(served, browser):
    from .test_page import until

    tagger, server = served
    page, said = browser.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"http://127.0.0.1:{server.port}/")
    until(page, "document.querySelectorAll('#model option').length === 2")
    page.select_option("#model", "names")
    text = "Ann met <b>Bo</b> in New York"
    page.fill("textarea", text)
    until(page, "document.querySelector('.tagged')?.textContent.includes('York')")
    found = tagger.spans([text])[0]
    assert found
    assert [
        t.split(s.kind)[0]
        for t, s in zip(page.locator(".tagged .span").all_text_contents(), found, strict=True)
    ] == [s.text for s in found]
    assert page.locator(".tagged button").all_text_contents() == text.split()
    page.locator(".tagged button").nth(5).click()
    until(page, "document.querySelector('.caption').textContent.includes(\"'York'\")")
    page.select_option("#model", "films")
    until(page, "document.querySelector('.answer') && !document.querySelector('.answer').hidden")
    assert page.locator(".tagged").first.is_hidden()
    assert said == []
    page.close()
