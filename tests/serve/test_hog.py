"""A linear model of images over HTTP: its labels, numbers and explanations."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.serve.limits import Limits
from glassformer.serve.models import ServedModel

from .conftest import PICTURES, Running, png

LABELS = ["dark", "light"] * 10
SMALL = {"image_size": 12, "patch_size": 4, "threads": 1}


@pytest.fixture(scope="module")
def models():
    numbers = [float(image.mean()) for image in PICTURES]
    shades = gf.ImageClassifier("hog", **SMALL).fit(PICTURES, LABELS)
    return shades, gf.ImageRegressor("hog", **SMALL).fit(PICTURES, numbers)


@pytest.fixture(scope="module")
def running(models):
    served = [
        ServedModel(name, model, Limits(), threads=1)
        for name, model in zip(("shades", "light"), models, strict=True)
    ]
    server = Running([(each, False) for each in served], Limits())
    yield server
    server.stop()


def test_answers_are_those_offline(running, models):
    images = [png(image) for image in PICTURES[:3]]
    found = running.ask("/v1/predict", {"images": images, "model": "shades"}).body["predictions"]
    shares = [[one["probabilities"][label] for label in ("dark", "light")] for one in found]
    np.testing.assert_allclose(shares, models[0].predict_proba(PICTURES[:3]), atol=1e-6)
    found = running.ask("/v1/predict", {"images": images, "model": "light"}).body["numbers"]
    numbers = models[1].predict(PICTURES[:3])
    assert [one["number"] for one in found] == pytest.approx(numbers.tolist(), rel=1e-5)


def test_it_is_explained_and_attention_is_refused_in_one_line(running):
    asked = {"image": png(PICTURES[0]), "model": "shades"}
    answer = running.ask("/v1/explain", asked)
    assert answer.status == 200
    assert answer.body["method"] == "occlusion"
    assert np.shape(answer.body["scores"]) == (3, 3)
    refused = running.ask("/v1/explain", asked | {"method": "rollout"})
    assert refused.status == 422
    assert "a linear model has no attention to show" in str(refused.body)
