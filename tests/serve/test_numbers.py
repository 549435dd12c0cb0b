"""A regressor over HTTP: a number with its interval, as offline."""

import pytest

import glassformer as gf
from glassformer.serve.limits import Limits
from glassformer.serve.models import ServedModel

TEXTS = [f"a {word} film {i % 5}" for i, word in enumerate(["good", "bad", "fine"] * 11)]


@pytest.fixture(scope="module")
def regressor():
    est = gf.TextRegressor(
        "encoder-mini", max_length=16, d_model=14, num_layers=1, num_heads=2, epochs=1, min_count=1, seed=1
    )
    held = TEXTS[:11], [float(len(text)) for text in TEXTS[:11]]
    return est.fit(TEXTS, [float(len(text)) for text in TEXTS], validation=held)


def test_without_held_out_examples_there_is_no_interval(regressor):
    import copy

    bare = copy.deepcopy(regressor)
    bare.errors_ = bare.errors_[:3]
    served = ServedModel("films", bare, Limits(), threads=1, precision="fp32")
    items = served.prepare(TEXTS[:1])
    assert "interval" not in served.response(items, served.compute(items))["numbers"][0]
