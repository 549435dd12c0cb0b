"""``maskable``: a model that was trained with hidden parts reads inputs of which half is hidden."""

import numpy as np
import pytest
from tests.commands import values

import glassformer as gf
from glassformer.errors import ConfigError

from .conftest import TINY

RNG = np.random.default_rng(3)
WORDS = {"good": ["fine", "warm", "great", "lovely"], "bad": ["dull", "cold", "poor", "tired"]}
LABELS = [str(label) for label in RNG.permutation(["good", "bad"] * 60)]
TEXTS = [" ".join(RNG.permutation([*RNG.choice(WORDS[y], 5), "the", "film", "was"])) for y in LABELS]
SETTINGS = TINY | {"epochs": 12, "pooling": "mean", "threads": 1}


def half_hidden(texts):
    """The same texts with every other word masked."""
    return [" ".join("[MASK]" if i % 2 else word for i, word in enumerate(text.split())) for text in texts]


def test_hidden_inputs_are_nothing_new():
    plain, maskable = (
        gf.TextClassifier(**SETTINGS, maskable=m).fit(TEXTS[:80], LABELS[:80]) for m in (False, True)
    )
    truth = [int(y == "good") for y in LABELS[80:]]
    hidden = [clf.predict_proba(half_hidden(TEXTS[80:]))[range(40), truth] for clf in (plain, maskable)]
    losses = [-np.log(shares).mean() for shares in hidden]
    assert maskable.score(TEXTS[80:], LABELS[80:]) == 1.0
    assert losses[1] < losses[0]
    told = [
        clf.explain(TEXTS[0], method="occlusion", trust=True).trust["maskable"] for clf in (plain, maskable)
    ]
    assert told == [False, True]


@pytest.mark.parametrize("kind", ["regressor", "tagger", "image"])
def test_every_kind_that_is_explained_has_it(kind):
    if kind == "regressor":
        model = gf.TextRegressor(**SETTINGS | {"epochs": 1}, maskable=True).fit(TEXTS[:20], np.arange(20.0))
        assert np.isfinite(model.predict(TEXTS[:3])).all()
    elif kind == "tagger":
        sentences = [text.split() for text in TEXTS[:20]]
        known = gf.TokenTagger().get_params()
        settings = {k: v for k, v in SETTINGS.items() if k in known} | {"epochs": 1}
        model = gf.TokenTagger(**settings, maskable=True).fit(
            sentences, [["B-LOC"] + ["O"] * (len(s) - 1) for s in sentences]
        )
        assert len(model.predict(sentences[:2])) == 2
    else:
        images = RNG.integers(0, 255, (20, 8, 8, 3), dtype=np.uint8)
        sizes = values(
            "d_model=14 num_heads=2 num_layers=2 d_ff=22 patch_size=4 image_size=8 epochs=1 threads=1"
        )
        fits = (gf.ImageClassifier("vit-tiny", **sizes, maskable=m) for m in (False, True))
        shares = [clf.fit(images, ["a", "b"] * 10).predict_proba(images) for clf in fits]
        assert not np.array_equal(*shares)


def test_what_cannot_learn_it():
    images = RNG.integers(0, 255, (20, 16, 16, 3), dtype=np.uint8)
    with pytest.raises(ConfigError, match="maskable: a linear model has no layers"):
        gf.ImageClassifier("hog", maskable=True).fit(images, ["a", "b"] * 10)
    with pytest.raises(ConfigError, match="a frozen encoder cannot learn from masked inputs"):
        gf.TextClassifier(**SETTINGS, maskable=True, train_layers=0).fit(TEXTS, LABELS)
