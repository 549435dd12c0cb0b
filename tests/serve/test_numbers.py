"""A regressor over HTTP: a number with its interval, as offline."""

from __future__ import annotations

import pytest

import glassformer as gf
from glassformer.serve.limits import Limits
from glassformer.serve.models import ServedModel
from glassformer.serve.schema import PredictResponse

TEXTS = [f"a {word} film {i % 5}" for i, word in enumerate(["good", "bad", "fine"] * 11)]


@pytest.fixture(scope="module")
def regressor():
    est = gf.TextRegressor(
        "encoder-mini", max_length=16, d_model=14, num_layers=1, num_heads=2, epochs=1, min_count=1, seed=1
    )
    held = TEXTS[:11], [float(len(text)) for text in TEXTS[:11]]
    return est.fit(TEXTS, [float(len(text)) for text in TEXTS], validation=held)


def test_a_number_comes_with_its_interval(regressor):
    served = ServedModel("films", regressor, Limits(), threads=1, precision="fp32")
    served.try_out()
    items = served.prepare(TEXTS[:3])
    answer = served.response(items, served.compute(items))
    assert answer["predictions"] == []
    found = answer["numbers"]
    assert [p["number"] for p in found] == pytest.approx(regressor.predict(TEXTS[:3]).tolist(), abs=1e-5)
    low, high = regressor.predict_interval(TEXTS[:1])[0]
    assert found[0]["interval"] == pytest.approx([low, high], abs=1e-5)
    assert PredictResponse(model="films", **answer).numbers is not None
    assert served.about(False)["labels"] == ["number"]
    why = served.explain(TEXTS[0], "occlusion", None, {})
    assert float(why["label"]) == pytest.approx(why["probability"], rel=1e-4)


def test_without_held_out_examples_there_is_no_interval(regressor):
    import copy

    bare = copy.deepcopy(regressor)
    bare.errors_ = bare.errors_[:3]
    served = ServedModel("films", bare, Limits(), threads=1, precision="fp32")
    items = served.prepare(TEXTS[:1])
    assert "interval" not in served.response(items, served.compute(items))["numbers"][0]
