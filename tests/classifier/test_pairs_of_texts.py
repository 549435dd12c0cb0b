"""TextClassifier on pairs: every kind of model learns what neither text tells alone, saves it, and refuses texts."""

import json

import numpy as np
import pytest
from sklearn.base import clone

import glassformer as gf
from glassformer.errors import ConfigError, DataError

COLORS = ("red", "blue", "green")
PAIRS = [(f"the {a} one", f"a {b} one here") for a in COLORS for b in COLORS] * 8
SAME = ["same" if a.split()[1] == b.split()[1] else "other" for a, b in PAIRS]
SMALL = {
    "max_length": 17, "min_count": 1, "batch_size": 24, "epochs": 60, "lr": 1e-2, "precision": "fp32", "threads": 1,
    "seed": 0, "class_weight": "balanced",
}  # fmt: skip
TINY = {"d_model": 26, "num_layers": 2, "num_heads": 2, "d_ff": 31}


@pytest.fixture(scope="module")
def encoder():
    return gf.TextClassifier("encoder-mini", **SMALL, **TINY, dropout=0.0).fit(PAIRS, SAME)


def test_an_encoder_tells_the_sides_apart_and_learns_what_they_say_together(encoder, tmp_path):
    assert encoder.pairs_ is True
    assert encoder.model_.config.embedding.segments == 2
    assert encoder.score(PAIRS, SAME) == 1.0
    table = encoder.encode(encoder.check(PAIRS[:1]))
    assert encoder.tokenizer_.decode(table[0].tolist(), skip_special_tokens=False).split() == [
        *["[CLS]", "the", "red", "one", "[SEP]", "a", "red", "one", "here", "[SEP]"]
    ]
    assert table.segments.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]
    encoder.save(tmp_path / "saved")
    again = gf.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.predict_proba(PAIRS), encoder.predict_proba(PAIRS))
    assert json.loads((tmp_path / "saved" / "glassformer.json").read_text())["pairs"] is True
    swapped = [(b, a) for a, b in PAIRS[:9]]
    assert np.abs(again.predict_proba(swapped) - again.predict_proba(PAIRS[:9])).max() > 1e-5


def test_batches_change_nothing(encoder):
    whole = encoder.logits(PAIRS[:9])
    alone = np.concatenate([encoder.logits([pair]) for pair in PAIRS[:9]])
    np.testing.assert_allclose(whole, alone, atol=1e-5)
    assert encoder.embed(PAIRS[:9]).shape == (9, 26)
    assert not encoder.truncated(PAIRS[:2]).any()
    assert encoder.truncated([("red " * 30, "blue " * 30)]).all()


@pytest.mark.parametrize(
    ("model", "sizes"), [("lstm", {"d_model": 14, "embedding_dim": 13}), ("textcnn", {"embedding_dim": 13})]
)
def test_models_without_segments_read_both_sides_joined(model, sizes):
    clf = gf.TextClassifier(model, **{**SMALL, "epochs": 1}, **sizes).fit(PAIRS, SAME)
    assert clf.pairs_ is True
    table = clf.encode(clf.check(PAIRS[:1]))
    assert (table.segments is None) == (getattr(clf.model_.config.embedding, "segments", 0) < 2)
    assert len(table[0]) == 10  # three and four words, three special tokens
    assert clf.predict_proba(PAIRS[:5]).shape == (5, 2)


def test_a_model_of_one_text_stays_one_and_refuses_pairs(tmp_path):
    texts = [a for a, _ in PAIRS]
    clf = gf.TextClassifier("encoder-mini", **{**SMALL, "epochs": 1}, **TINY).fit(texts, SAME)
    assert clf.pairs_ is False
    assert clf.model_.config.embedding.segments == 0
    clf.save(tmp_path / "saved")
    assert "pairs" not in json.loads((tmp_path / "saved" / "glassformer.json").read_text())
    for fitted in (clf, gf.load(tmp_path / "saved")):
        with pytest.raises(DataError, match=r"this model reads one text, not pairs"):
            fitted.predict(PAIRS[:3])


def test_a_model_of_pairs_refuses_texts_and_windows(encoder):
    with pytest.raises(DataError, match=r"this model reads pairs of texts\. Give two texts"):
        encoder.predict([PAIRS[0][0]])
    with pytest.raises(DataError, match="reads pairs"):
        clone(encoder).set_params(epochs=1).fit(PAIRS, SAME, validation=(["one text"], ["same"]))
    with pytest.raises(ConfigError, match=r"long_texts.*windows.*pairs"):
        gf.TextClassifier("encoder-mini", **SMALL, **TINY, long_texts="mean").fit(PAIRS, SAME)


def test_a_held_out_part_has_no_copies_even_swapped():
    pairs = [(f"one {i}", f"two {i}") for i in range(30)]
    pairs += [(b, a) for a, b in pairs]
    seen = {}

    class DataPreview(gf.TextClassifier):
        def _prepare(self, fit):
            seen["kept"], seen["held"] = fit.examples.X, fit.validation[0]
            return super()._prepare(fit)

        __init__ = gf.TextClassifier.__init__

    clf = DataPreview("encoder-mini", **{**SMALL, "epochs": 1}, **TINY, validation_fraction=0.3)
    clf.fit(pairs, [i % 2 for i in range(30)] * 2)
    kept, held = ({frozenset(pair.sides) for pair in seen[name]} for name in ("kept", "held"))
    assert len(seen["held"]) >= 16
    assert not kept & held
