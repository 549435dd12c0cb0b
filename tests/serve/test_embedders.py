"""An embedder over HTTP beside a classifier: the library's vectors and cosines, and one-line refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import glassformer as gf
from glassformer.serve.limits import Limits
from glassformer.serve.loading import load_models

from .conftest import TEXTS, Running

ASKED = ["a warm film", "a dull film , and many of them", "number 7"]
PAIRS = [(a, b) for a, b in zip(TEXTS[:6:2], TEXTS[2:8:2], strict=True)]


@pytest.fixture(scope="module")
def served(classifiers, tmp_path_factory) -> Iterator[tuple[Any, Running]]:
    settings: dict[str, Any] = {"d_model": 14, "num_heads": 2, "d_ff": 11, "num_layers": 1, "min_count": 1}
    embedder = gf.Embedder("encoder-mini", max_length=19, precision="fp32", threads=1, **settings).fit(PAIRS)
    folder = tmp_path_factory.mktemp("served")
    runs = [classifiers[0].save(folder / "films"), embedder.save(folder / "alike")]
    running = Running(load_models(runs, Limits(), threads=1, precision="fp32"), Limits())
    yield embedder, running
    running.stop()


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
        ("/v1/similar", {"pairs": [["a", "b"], ["c", "d"]], "explain": True}, 422, "one pair is explained"),
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
