"""A linear model over HTTP: its labels, its exact explanation, texts of any length."""

import copy

import numpy as np
import pytest

import glassformer as gf
from glassformer.serve.limits import Limits
from glassformer.serve.models import ServedModel

from .conftest import TEXTS, Running

LABELS = ["good", "bad"] * 20


@pytest.fixture(scope="module")
def models():
    single = gf.TextClassifier("tfidf").fit(TEXTS, LABELS)
    pairs = gf.TextClassifier("tfidf").fit(list(zip(TEXTS, TEXTS[::-1], strict=True)), LABELS)
    number = gf.TextRegressor("tfidf").fit(TEXTS, [float(len(text)) for text in TEXTS])
    return single, pairs, number


@pytest.fixture(scope="module")
def running(models):
    served = [
        ServedModel(name, model, Limits(), threads=1, examples=TEXTS[:2])
        for name, model in zip(("films", "pairs", "lengths"), models, strict=True)
    ]
    server = Running([(each, False) for each in served], Limits())
    yield server
    server.stop()


def test_labels_are_those_offline(running, models):
    long = "a warm film , " * 6000
    answer = running.ask("/v1/predict", {"texts": [TEXTS[0], "ЖЖ", long], "model": "films"})
    assert answer.status == 200
    found = answer.body["predictions"]
    wanted = models[0].predict_proba([TEXTS[0], "ЖЖ", long])
    shares = [[one["probabilities"][label] for label in ("bad", "good")] for one in found]
    np.testing.assert_allclose(shares, wanted, atol=1e-6)
    assert [one["truncated"] for one in found] == [False] * 3


def test_without_held_out_examples_there_is_no_interval(models):
    bare = copy.deepcopy(models[2])
    bare.errors_ = bare.errors_[:3]
    served = ServedModel("lengths", bare, Limits(), threads=1, precision="fp32")
    items = served.prepare(TEXTS[:1])
    assert "interval" not in served.response(items, served.compute(items))["numbers"][0]


def test_it_is_explained_by_its_weights(running, models):
    answer = running.ask("/v1/explain", {"text": TEXTS[0], "model": "films"})
    assert answer.status == 200
    assert answer.body["method"] == "weights"
    scores = [piece["score"] for piece in answer.body["pieces"] if piece["score"] is not None]
    settings = answer.body["settings"]
    assert sum(scores) + settings["bias"] == pytest.approx(settings["logit"], abs=1e-5)
    assert settings["logit"] == pytest.approx(models[0].logits(TEXTS[:1]).max(), abs=1e-5)
    assert "".join(piece["text"] for piece in answer.body["pieces"]) == TEXTS[0]
    long = running.ask("/v1/explain", {"text": "a dull film " * 500, "model": "films", "target": "bad"})
    assert long.status == 200


def test_maps_of_attention_name_another_model(running):
    answer = running.ask("/v1/explain", {"text": TEXTS[0], "model": "films", "method": "rollout"})
    assert answer.status == 422
    assert "Use weights or occlusion" in str(answer.body)


def test_what_is_said_of_it(running):
    films, pairs, _ = running.ask("/v1/models").body["models"]
    assert films["methods"] == ["weights", "occlusion"]
    assert (films["max_length"], films["layers"], films["heads"]) == (None, None, None)
    assert films["examples"] == TEXTS[:2]
    assert pairs["pairs"]
    assert running.ask("/").status == 200
