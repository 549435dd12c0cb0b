"""Every number of every recipe outside its range: a typed error that names the key, in recipes and in Python."""

import math
from dataclasses import fields, is_dataclass
from typing import get_type_hints

import numpy as np
import pytest

import glassformer as gf
from glassformer.data.checks import check_weights
from glassformer.errors import ConfigError
from glassformer.tasks.catalog import build_recipe, recipe_classes
from glassformer.train.objectives import class_weights

NUMBERS = [
    (task, section.name, f.name)
    for task, cls in recipe_classes().items()
    for section in fields(cls)
    if is_dataclass(get_type_hints(cls)[section.name])
    for f in fields(get_type_hints(cls)[section.name])
    if isinstance(f.default, int | float) and not isinstance(f.default, bool)
]


@pytest.mark.parametrize("task", recipe_classes())
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1e300, 2**70, -(2**70)])
def test_numbers_that_none_can_be(task, value):
    asked = [(section, key) for name, section, key in NUMBERS if name == task]
    assert len(asked) > 10
    for section, key in asked:
        if key in ("validation_size", "test_size") and value == 2**70:
            continue  # a count: the data says how many there are
        with pytest.raises(ConfigError, match=key):
            build_recipe({"task": task, section: {key: value}}, "r.toml")


BETAS = [
    (1, 1),
    (0.9, 1),
    (0.9, 1 - 1e-17),
    (math.nan, 0.9),
    (-0.1, 0.9),
    (2, 0.9),
    (0.9, math.inf),
    (0.9,),
    (0.9, "a"),
]


@pytest.mark.parametrize("betas", BETAS)
def test_betas(betas):
    with pytest.raises(ConfigError, match="betas"):
        gf.TextClassifier("encoder-mini", betas=betas).fit(["a film", "a plot"] * 3, [0, 1] * 3)
    for task in ("text-classification", "image-classification", "translation", "masked-lm"):
        with pytest.raises(ConfigError, match="betas"):
            build_recipe({"task": task, "train": {"betas": list(betas)}}, "r.toml")


@pytest.mark.parametrize(
    "weights",
    [
        {0: 1e300, 1: 1},
        {0: 10**400},
        {0: 1e-300, 1: 1},
        {0: math.nan},
        {0: math.inf},
        {0: -1},
        {0: 0, 1: 0},
        {0: "a"},
        {0: None},
        {7: 1},
        [1, 2],
        "balanced?",
        3,
    ],
)
def test_class_weights(weights):
    with pytest.raises(ConfigError, match="class_weight"):
        class_weights(np.array([0, 1, 1]), [0, 1], weights)


def test_weights_within_range_have_mean_one():
    found = class_weights(np.array([0, 1, 1]), [0, 1], {0: 1e9, 1: 1e-9})
    assert found is not None
    assert np.isfinite(found).all()
    assert found.mean() == pytest.approx(1.0)
    with pytest.raises(ConfigError, match="every example has the weight 0"):
        class_weights(np.array([0, 0, 0]), [0, 1], {0: 0, 1: 1})


@pytest.mark.parametrize("weights", [[1e308, 1e308, 0], [5e-324, 5e-324, 0], [1e-200, 3e-200, 0]])
def test_sample_weights_of_any_size(weights):
    found = check_weights(weights, 3)
    assert np.isfinite(found).all()
    assert found.mean() == pytest.approx(1.0)
