"""An answerer over HTTP beside a classifier: the library's answers, its explanations, one-line refusals."""

from collections.abc import Iterator
from typing import Any

import pytest

import glassformer as gf
from glassformer.serve.schema import ExplainResponse

from .conftest import CHROMIUM, Running, over

X = [("where is Ann ?", "Ann is in Rome now"), ("where is Bo ?", "Bo is in New York now")] * 4
X += [("where is Cy ?", "Cy has a dog")] * 4
Y = ["Rome", "New York"] * 4 + [None] * 4
LONG = ("where is Bo ?", "a dog has a dog " * 9 + "Bo is in New York now")


@pytest.fixture(scope="module")
def served(classifiers, tmp_path_factory) -> Iterator[tuple[Any, Running]]:
    settings: dict[str, Any] = {"d_model": 14, "num_heads": 2, "d_ff": 11, "num_layers": 1, "min_count": 1}
    settings |= {"epochs": 25, "lr": 0.02, "batch_size": 3, "max_length": 17, "threads": 1}
    model = gf.QuestionAnswerer("encoder-mini", precision="fp32", **settings).fit(X, Y)
    with over(tmp_path_factory.mktemp("served"), films=classifiers[0], facts=model) as running:
        yield model, running


def test_answers_are_those_of_the_library(served):
    model, server = served
    asked = [X[0], X[1], X[-1], LONG]
    answer = server.ask("/v1/answer", {"questions": [list(pair) for pair in asked], "n_best": 3})
    assert answer.status == 200, answer.body
    assert answer.body["model"] == "facts"
    for told, ranked in zip(answer.body["answers"], model.answers(asked, 3), strict=True):
        assert (told["answer"], told["start"], told["end"]) == (
            ranked[0].text,
            ranked[0].start,
            ranked[0].end,
        )
        assert told["probability"] == pytest.approx(ranked[0].probability, abs=1e-5)
        assert [one["answer"] for one in told["others"]] == [one.text for one in ranked[1:]]
    one = server.ask("/v1/answer", {"question": X[1][0], "context": X[1][1]})
    assert one.body["answers"][0]["answer"] == "New York"
    assert one.body["answers"][0]["others"] == []


def test_a_request_for_labels_is_told_where_answers_are_asked(served):
    found = served[1].ask("/v1/predict", {"pairs": [["where is Ann ?", "Ann is in Rome"]]})
    assert found.status == 422
    assert found.body["error"]["what"] == "no model here reads pairs of texts"
    assert found.body["error"]["fix"] == "POST /v1/answer for facts"
    picture = served[1].ask("/v1/predict", {"images": ["AAAA"]})
    assert (picture.status, picture.body["error"]["fix"]) == (422, "Start the server with one that does")


def test_an_answer_is_explained(served):
    _, server = served
    body = {"model": "facts", "text": X[0][0], "text_pair": X[0][1], "method": "occlusion"}
    found = server.ask("/v1/explain", body)
    assert found.status == 200, found.body
    assert (found.body["label"], found.body["target"]) == ("Rome", "answer")
    words = [piece["text"] for piece in found.body["pieces"] if piece["score"] is not None]
    assert words == ["where", "is", "Ann", "?", "Ann", "is", "in", "Rome", "now"]
    assert found.body["pieces"][found.body["second"]]["text"] == "Ann"
    nameless = {key: value for key, value in body.items() if key != "model"}
    assert server.ask("/v1/explain", nameless).body == found.body  # nothing else here reads pairs
    rollout = server.ask("/v1/explain", body | {"method": "rollout"}).body
    assert any("not why the model predicts what it does" in note for note in rollout["notes"])
    ExplainResponse.model_validate(rollout)


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/v1/answer", {"question": "q"}, 422, "the context is missing"),
        ("/v1/answer", {}, 422, "question with context, or questions"),
        ("/v1/answer", {"question": "q", "context": "c", "n_best": 0}, 422, "n_best"),
        ("/v1/answer", {"question": "q", "context": " "}, 422, "the context is empty"),
        ("/v1/answer", {"question": "q", "context": "c", "model": "films"}, 422, "this model gives labels"),
        ("/v1/predict", {"texts": ["t"], "model": "facts"}, 422, "Use /v1/answer"),
        ("/v1/explain", {"text": "t", "model": "facts"}, 422, "text_pair"),
    ],
)
def test_refusals_are_one_line(served, path, body, status, said):
    _, server = served
    answer = server.ask(path, body)
    assert answer.status == status, answer.body
    assert said in " ".join(str(part) for part in answer.body["error"].values())


def test_the_list_of_models_says_what_it_gives(served):
    model, server = served
    (about,) = [m for m in server.ask("/v1/models").body["models"] if m["name"] == "facts"]
    assert (about["gives"], about["pairs"], about["labels"]) == ("answers", True, ["answer", "no answer"])
    assert about["no_answer_threshold"] == model.threshold_ == 0.0


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_the_page_keeps_special_tokens_in_their_places_and_speaks_of_answers(served, browser):
    from .test_page import until

    _, server = served
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{server.port}/")
    until(page, "document.querySelectorAll('#model option').length === 2")
    page.select_option("#model", "facts")
    page.select_option("#method", "occlusion")
    assert page.text_content("#whose") == "For the answer"
    assert "label" not in page.text_content("#about")
    page.fill("textarea.first", X[0][0])
    page.fill("textarea.second", X[0][1])
    until(page, "document.querySelector('.caption')?.textContent.startsWith('occlusion')")
    until(page, "document.querySelector('.words').textContent.includes('Rome')")
    shown = page.locator(".words .w").all_text_contents()
    assert shown == ["[CLS]", *X[0][0].split(), "[SEP]", *X[0][1].split(), "[SEP]"]
    page.select_option("#model", "films")
    assert page.text_content("#whose") == "For the label"
    page.close()
