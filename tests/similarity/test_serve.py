"""An embedder over HTTP: the vectors and cosines that it gives offline, one-line refusals, and its place beside others."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")
pytest.importorskip("httpx")

from fastapi.testclient import TestClient

from glassformer.serve.app import create_app
from glassformer.serve.limits import Limits
from glassformer.serve.loading import load_models

from .tiny import PAIRS, tiny

TEXTS = ["a dog", "the red car and the cat", "rain"]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    embedder = tiny().fit(PAIRS)
    folder = embedder.save(tmp_path_factory.mktemp("served") / "alike")
    app = create_app(load_models([folder], Limits(), threads=1, precision="fp32"), Limits())
    with TestClient(app, base_url="http://localhost") as client:
        yield embedder, client


def test_vectors_and_cosines_are_those_of_the_library(served):
    embedder, client = served
    answer = client.post("/v1/embed", json={"texts": TEXTS}).json()
    assert answer["model"] == "alike"
    assert answer["truncated"] == [False] * 3
    np.testing.assert_allclose(answer["vectors"], embedder.encode(TEXTS), atol=1e-5)
    pairs = [[TEXTS[0], TEXTS[1]], [TEXTS[1], TEXTS[2]]]
    found = client.post("/v1/similar", json={"pairs": pairs}).json()
    assert found["cosines"] == pytest.approx([embedder.similarity(a, b) for a, b in pairs], abs=1e-5)
    assert found["explanation"] is None
    told = client.post("/v1/similar", json={"pairs": pairs[:1], "explain": True}).json()["explanation"]
    assert np.sum(told["table"]) == pytest.approx(told["cosine"], abs=1e-5)
    assert np.shape(told["table"]) == tuple(map(len, told["tokens"]))


def test_the_list_of_models_says_what_each_gives(served):
    _, client = served
    (model,) = client.get("/v1/models").json()["models"]
    assert (model["name"], model["gives"], model["labels"]) == ("alike", "vectors", [])
    assert {"/v1/embed", "/v1/similar"} <= client.get("/openapi.json").json()["paths"].keys()


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/v1/embed", {"texts": []}, 422, "at least 1 item"),
        ("/v1/embed", {"texts": ["a", " "]}, 422, "the text is empty"),
        ("/v1/embed", {"texts": ["a"], "model": "other"}, 404, "no such model"),
        ("/v1/similar", {"pairs": [["a"]]}, 422, "at least 2 items"),
        ("/v1/similar", {"pairs": [["a", "b"], ["c", "d"]], "explain": True}, 422, "one pair is explained"),
        ("/v1/similar", {"paris": [["a", "b"]]}, 422, "pairs"),
        ("/v1/predict", {"texts": ["a"]}, 422, "no model here reads texts"),
        ("/v1/predict", {"texts": ["a"], "model": "alike"}, 422, "this model gives vectors"),
        ("/v1/embed", {"texts": ["a"] * 65}, 413, "65 inputs"),
    ],
)
def test_what_cannot_be_answered_is_one_problem(served, path, body, status, said):
    _, client = served
    answer = client.post(path, json=body)
    assert answer.status_code == status
    told = answer.json()["error"]
    assert said in f"{told['what']} {told['fix']}"
