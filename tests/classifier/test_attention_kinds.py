"""Local and linear attention by a key of the recipe: trained, saved, explained, refused where they cannot be."""

import numpy as np
import pytest
from tests.commands import values

import glassformer as gf
from glassformer.errors import ConfigError
from glassformer.tasks.catalog import load_recipe

KINDS = {"local": {"attention": "local", "attention_window": 2}, "linear": {"attention": "linear"}}


@pytest.fixture(params=KINDS, scope="module")
def fitted(request, small, data):
    return small(**KINDS[request.param]).fit(*data)


def test_it_learns_and_comes_back_from_its_folder(fitted, data, held, tmp_path):
    assert fitted.model_.encoder.config.attention == fitted.attention
    assert fitted.score(*held) > 0.9
    fitted.save(tmp_path / "model")
    again = gf.load(tmp_path / "model")
    assert again.model_.encoder.config == fitted.model_.encoder.config
    assert np.array_equal(again.predict_proba(held[0]), fitted.predict_proba(held[0]))


@pytest.mark.parametrize("method", ["rollout", "attention", "occlusion"])
def test_it_can_be_explained(fitted, held, method):
    found = fitted.explain(held[0][0], method=method)
    assert len(found.tokens) == len(found.scores) > 3
    assert np.isfinite(found.scores).all()


def test_a_window_longer_than_the_texts_trains_the_same_weights(small, data):
    full = small(epochs=1).fit(*data)
    local = small(epochs=1, attention="local", attention_window=16).fit(*data)
    np.testing.assert_allclose(local.predict_proba(data[0]), full.predict_proba(data[0]), atol=1e-3)


def test_pictures_take_the_same_keys():
    pictures = [np.full((8, 8, 3), 20 * i % 256, np.uint8) for i in range(24)]
    names = ["dark" if picture.mean() < 128 else "bright" for picture in pictures]
    sizes = values("image_size=8 patch_size=2 d_model=16 num_heads=2 d_ff=16 num_layers=1 epochs=1")
    kind = values("pooling=mean attention=local attention_window=5 init_std=0.3 precision=fp32")
    clf = gf.ImageClassifier("vit-tiny", **sizes, **kind).fit(pictures, names)
    config = clf.model_.config
    assert (config.encoder.attention, config.encoder.attention_window, config.init_std) == ("local", 5, 0.3)


def test_recipes_take_the_keys_and_a_window_wants_local_attention(small, data):
    recipe = load_recipe("europe", ["attention=local", "attention_window=7", "init_std=0.1"])
    assert (recipe.model.attention, recipe.model.attention_window, recipe.model.init_std) == ("local", 7, 0.1)
    with pytest.raises(ConfigError, match="only local attention has a window"):
        small(attention_window=7).fit(*data)
    with pytest.raises(ConfigError, match="linear attention does not support dropout on its weights"):
        small(attention="linear", attention_dropout=0.1).fit(*data)
    with pytest.raises(ConfigError, match="attention_window: 0 is out of range"):
        small(attention="local", attention_window=0).fit(*data)
    with pytest.raises(ConfigError, match="'lstm' has no attention"):
        gf.TextClassifier("lstm", attention="local").fit(*data)


@pytest.mark.parametrize("key", ["attention", "attention_window", "init_std"])
def test_a_checkpoint_has_its_own(fitted, data, tmp_path, key):
    fitted.save(tmp_path / "model")
    value = {"attention": "local", "attention_window": 3, "init_std": 0.1}[key]
    with pytest.raises(ConfigError, match=f"{key} belongs to from-scratch models"):
        gf.TextClassifier(str(tmp_path / "model"), max_length=16, **{key: value}).fit(*data)
