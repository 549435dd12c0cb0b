"""An embedder over HTTP beside a classifier: the library's vectors and cosines, and one-line refusals."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import glassformer as gf
from glassformer.cli.serve import search_source
from glassformer.errors import ConfigError
from glassformer.serve.limits import Limits
from glassformer.serve.models import load_models, set_search_texts

from .conftest import TEXTS, Running, over

ASKED = ["a warm film", "a dull film , and many of them", "number 7"]
PAIRS = [(a, b) for a, b in zip(TEXTS[:6:2], TEXTS[2:8:2], strict=True)]


@pytest.fixture(scope="module")
def served(classifiers, tmp_path_factory) -> Iterator[tuple[Any, Running]]:
    settings: dict[str, Any] = {"d_model": 14, "num_heads": 2, "d_ff": 11, "num_layers": 1, "min_count": 1}
    embedder = gf.Embedder("encoder-mini", max_length=19, precision="fp32", threads=1, **settings).fit(PAIRS)
    with over(tmp_path_factory.mktemp("served"), films=classifiers[0], alike=embedder) as running:
        yield embedder, running


def test_vectors_and_cosines_are_those_of_the_library(served):
    embedder, server = served
    answer = server.ask("/v1/embed", {"texts": [*ASKED, "a film " * 30]})
    assert answer.status == 200, answer.body
    assert answer.body["model"] == "alike"
    assert answer.body["truncated"] == [False] * 3 + [True]
    np.testing.assert_allclose(answer.body["vectors"][:3], embedder.encode(ASKED), atol=1e-5)
    pairs = [ASKED[:2], ASKED[1:]]
    found = server.ask("/v1/similar", {"pairs": pairs}).body
    assert found["cosines"] == pytest.approx([embedder.similarity(a, b) for a, b in pairs], abs=1e-5)
    assert found["explanation"] is None
    told = server.ask("/v1/similar", {"pairs": pairs[:1], "explain": True}).body["explanation"]
    assert np.sum(told["table"]) == pytest.approx(told["cosine"], abs=1e-5)
    assert np.shape(told["table"]) == tuple(map(len, told["tokens"]))


def test_one_text_needs_no_list(served):
    _, server = served
    many = server.ask("/v1/embed", {"texts": ASKED[:1]}).body
    assert server.ask("/v1/embed", {"text": ASKED[0]}).body == many
    missing = server.ask("/v1/embed", {})
    assert (missing.status, missing.body["error"]["where"]) == (422, "texts")
    assert server.ask("/v1/embed", {"text": "a", "texts": ["b"]}).status == 422


def test_each_question_goes_to_the_model_that_answers_it(served):
    _, server = served
    models = {m["name"]: m["gives"] for m in server.ask("/v1/models").body["models"]}
    assert models == {"films": "labels", "alike": "vectors"}
    assert server.ask("/v1/predict", {"texts": ASKED}).body["model"] == "films"
    assert {"/v1/embed", "/v1/similar"} <= server.ask("/openapi.json").body["paths"].keys()


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/v1/embed", {"texts": []}, 422, "Send at least 1 item"),
        ("/v1/embed", {"texts": ["a", " "]}, 422, "the text is empty"),
        ("/v1/embed", {"texts": ["a"], "model": "other"}, 404, "no such model"),
        ("/v1/embed", {"texts": ["a"], "model": "films"}, 422, "this model gives labels"),
        ("/v1/similar", {"pairs": [["a"]]}, 422, "Send at least 2 items"),
        (
            "/v1/similar",
            {"pairs": [["a", "b"], ["c", "d"]], "explain": True},
            422,
            "only one pair can be explained",
        ),
        ("/v1/similar", {"paris": [["a", "b"]]}, 422, "pairs"),
        ("/v1/predict", {"texts": ["a"], "model": "alike"}, 422, "this model gives vectors"),
        ("/v1/explain", {"text": "a", "model": "alike"}, 422, "this model gives vectors"),
        ("/v1/embed", {"texts": ["a"] * 65}, 413, "65 inputs"),
        ("/v1/similar", {"pairs": [["a", "b"]] * 33}, 413, "66 inputs"),
    ],
)
def test_what_cannot_be_answered_is_one_problem(served, path, body, status, said):
    _, server = served
    answer = server.ask(path, body)
    assert answer.status == status
    told = answer.body["error"]
    assert said in f"{told['what']} {told['fix']}"


def test_a_text_that_cannot_be_used_is_named_in_its_pair(served):
    _, server = served
    answer = server.ask("/v1/similar", {"pairs": [["a", "b"], ["c", "   "]]})
    assert answer.status == 422
    assert answer.body["error"]["where"] == "pairs[1][1]"


# --- a list to search in ----------------------------------------------------------------------------


LISTED = (
    ["a warm film", "a dull film", "number 7 , many"],
    [2, 4, 5],
    [{"id": 1, "price": float("nan")}, {}, {"id": 3}],
)


@pytest.fixture(scope="module")
def searching(served, classifiers, tmp_path_factory) -> Iterator[tuple[Any, Running]]:
    folder = tmp_path_factory.mktemp("searching")
    runs = [classifiers[0].save(folder / "films"), served[0].save(folder / "alike")]
    models = load_models(runs, Limits(), threads=1, precision="fp32")
    set_search_texts(models, LISTED)
    running = Running(models, Limits())
    yield served[0], running
    running.stop()


def test_a_list_is_searched_as_the_library_does(searching):
    embedder, server = searching
    answer = server.ask("/v1/search", {"texts": ASKED, "count": 2})
    assert answer.status == 200, answer.body
    rows, cosines = embedder.search(ASKED, LISTED[0], 2)
    for found, places, values in zip(answer.body["answers"], rows, cosines, strict=True):
        assert [one["row"] for one in found["found"]] == [LISTED[1][i] for i in places]
        assert [one["text"] for one in found["found"]] == [LISTED[0][i] for i in places]
        np.testing.assert_allclose([one["cosine"] for one in found["found"]], values, atol=1e-5)
        assert found["nearest"] == found["found"][0]["cosine"]
    assert answer.body["answers"][0]["found"][0]["columns"] == {"id": 1, "price": None}
    assert answer.body["truncated"] == [False] * 3
    most = server.ask("/v1/search", {"texts": ["a dull film"], "count": 100, "least": 0.9999}).body[
        "answers"
    ][0]
    assert [one["row"] for one in most["found"]] == [4]
    assert server.ask("/v1/search", {"texts": ["number"], "least": 1}).body["answers"][0]["found"] == []
    (about,) = (m for m in server.ask("/v1/models").body["models"] if m["name"] == "alike")
    assert about["searched"] == 3


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"texts": ["a"], "count": 0}, 422, "count"),
        ({"texts": ["a"], "count": 101}, 422, "count"),
        ({"texts": ["a"], "least": 2}, 422, "least"),
        ({"texts": [" "]}, 422, "the text is empty"),
        ({"texts": ["a"], "model": "films"}, 422, "this model gives labels"),
        ({"query": "a"}, 422, "texts"),
    ],
)
def test_a_search_that_cannot_be_is_one_problem(searching, body, status, said):
    answer = searching[1].ask("/v1/search", body)
    assert answer.status == status
    assert said in str(answer.body["error"])


def test_without_a_list_or_vectors_nothing_is_searched(served, classifiers, tmp_path):
    refused = served[1].ask("/v1/search", {"texts": ["a"]})
    assert refused.status == 422
    assert "--search TABLE" in refused.body["error"]["fix"]
    films = load_models([classifiers[0].save(tmp_path / "films")], Limits(), threads=1)
    with pytest.raises(ConfigError, match="searching needs embeddings, but films gives labels"):
        set_search_texts(films, LISTED)
    alike = [served[0].save(tmp_path / name) for name in ("one", "two")]
    with pytest.raises(ConfigError, match="one and two both give vectors"):
        set_search_texts(load_models(alike, Limits(), threads=1), LISTED)


def test_the_command_reads_a_table_or_an_index(served, tmp_path):
    table = tmp_path / "list.csv"
    table.write_text("id,question\n1,can I send it back\n2,where is my parcel\n")
    texts, rows, beside = search_source(str(table), "question")
    assert (list(texts), list(rows)) == (["can I send it back", "where is my parcel"], [2, 3])
    assert [own["id"] for own in beside] == [1, 2] or [own["id"] for own in beside] == ["1", "2"]
    index = served[0].index(texts).save_index(tmp_path / "index")
    assert search_source(str(index), None) == index
    assert search_source(None, None) is None
    with pytest.raises(ConfigError, match="no such table or index"):
        search_source(str(tmp_path / "nothing.csv"), None)
    with pytest.raises(ConfigError, match="has an effect only with --search"):
        search_source(str(index), "question")
