"""What ``fit`` and ``predict`` promise: kinds of input, labels, refits, weights of examples."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from tests.stopping import same

from glassformer import TextClassifier
from glassformer.errors import ConfigError, DataError

# --- fit and predict ------------------------------------------------------------------------------


def test_it_learns(fitted, held, monkeypatch):
    assert fitted.score(*held) >= 0.9
    assert fitted.score(*held) == accuracy_score(held[1], fitted.predict(held[0]))
    wanted, seen = fitted.predict_proba(held[0]), []
    monkeypatch.setattr("glassformer.TextClassifier.CHUNK", 7)
    found = fitted.predict_proba(held[0], progress=seen.append)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert sum(seen) == 29
    assert len(seen) >= 5
    # a batch changes nothing but the last bits
    texts = held[0]
    together = fitted.predict_proba(texts)
    np.testing.assert_allclose(
        np.concatenate([fitted.predict_proba([t]) for t in texts]), together, atol=1e-6
    )
    order = np.random.default_rng(1).permutation(len(texts))
    np.testing.assert_allclose(fitted.predict_proba([texts[i] for i in order]), together[order], atol=1e-6)


@pytest.mark.parametrize(
    "labels",
    [["zebra", "ant", "Bee"], [7, -2, 3], [np.int32(2), np.int32(0), np.int32(1)], ["1", "10", "2"]],
    ids=["text", "numbers", "numpy", "digits as text"],
)
def test_classes_are_sorted_and_columns_follow_them(small, labels):
    texts = [f"word{i % 3} again" for i in range(30)]
    y = [labels[i % 3] for i in range(30)]
    clf = small(epochs=12, lr=5e-2).fit(texts, y)
    assert clf.classes_.tolist() == sorted(labels)
    proba = clf.predict_proba(texts[:3])
    assert proba.shape == (3, 3)
    assert proba.dtype == np.float64
    np.testing.assert_allclose(proba.sum(1), 1.0, rtol=1e-12)
    predicted = clf.predict(texts[:3])
    assert predicted.tolist() == labels
    assert predicted.dtype == clf.classes_.dtype
    assert [clf.classes_[row.argmax()] for row in proba] == labels


KINDS = {  # more are in tests/data/test_checks.py
    "object array": lambda t: np.array(t, dtype=object),
    "string Series": lambda t: pd.Series(t, index=range(100, 100 + len(t))).astype("string"),
    "iterator": iter,
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_input(small, data, fitted, held, kind):
    given = KINDS[kind]
    clf = small().fit(given(data[0]), given(data[1]))
    assert same(clf, fitted)
    np.testing.assert_array_equal(clf.predict_proba(given(held[0])), fitted.predict_proba(held[0]))


def test_a_second_fit_starts_anew(small, data, fitted):
    clf = small().fit(["one word", "two words"] * 8, [3, 5] * 8)
    assert clf.classes_.tolist() == [3, 5]
    clf.predict(["one"])
    clf.fit(*data)
    assert same(clf, fitted)
    assert clf.classes_.tolist() == ["neg", "pos"]
    np.testing.assert_array_equal(clf.predict_proba(data[0][:5]), fitted.predict_proba(data[0][:5]))
    assert clf.history_[0]["step"] == 1


def test_a_first_fit_that_fails_leaves_it_unfitted(small):
    clf = small(d_model=15)  # two heads do not divide it: found after the tokenizer was made
    with pytest.raises(ConfigError, match="num_heads"):
        clf.fit(["one word", "two words"] * 8, ["x", "y"] * 8)
    assert not [name for name in vars(clf) if name.endswith("_")]
    with pytest.raises(NotFittedError):
        clf.predict(["one word"])


@pytest.mark.parametrize(
    ("method", "given"),
    [
        *((m, [["a text"]]) for m in ("predict", "predict_proba", "embed", "explain")),
        ("score", [["a"], ["x"]]),
    ],
)
def test_unfitted(method, given):
    with pytest.raises(NotFittedError, match="TextClassifier"):
        getattr(TextClassifier(), method)(*given)


def test_embed_gives_what_the_head_reads(fitted, held):
    features = fitted.embed(held[0])
    assert features.shape == (29, 14)
    assert features.dtype == np.float32
    head = fitted.model_.head.out
    logits = features @ head.weight.detach().numpy().T + head.bias.detach().numpy()
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(fitted.predict_proba(held[0]), shares, atol=1e-6)


# --- weights of examples --------------------------------------------------------------------------


def test_equal_weights_are_no_weights(small, data, fitted):
    assert same(small().fit(*data, sample_weight=np.full(101, 0.5)), fitted)
    assert same(small().fit(*data, sample_weight=[3] * 101), fitted)
    # a setting may come as an array
    clf = small(epochs=1, betas=np.array([0.8, 0.99])).fit(*data)
    assert same(clf, small(epochs=1, betas=(0.8, 0.99)).fit(*data))
    # fit returns the estimator and leaves its input alone
    texts, labels, weights = list(data[0]), list(data[1]), np.ones(101)
    clf = small(epochs=1)
    assert clf.fit(texts, labels, sample_weight=weights) is clf
    assert (texts, labels) == data
    assert weights.tolist() == [1.0] * 101


def test_weights_of_examples_and_of_classes_multiply(small, data):
    rng = np.random.default_rng(1)
    weights = rng.random(101)
    product = weights * np.where(np.array(data[1]) == "pos", 3.0, 1.0)
    both = small().fit(*data, sample_weight=product).predict_proba(data[0])
    ours = small(class_weight={"pos": 3.0}).fit(*data, sample_weight=weights).predict_proba(data[0])
    np.testing.assert_allclose(ours, both, atol=1e-3)
    alone = small().fit(*data, sample_weight=weights).predict_proba(data[0])
    assert np.abs(ours - alone).max() > 0.01


def test_weights_pull_the_prediction(small):
    """The same text with both labels: the weights decide, and a weight of 0 teaches nothing."""
    texts, y = ["a film", "a film"] * 10, ["neg", "pos"] * 10
    for share, weights in ((0.1, [9, 1] * 10), (0.9, [1, 9] * 10), (1.0, [0, 1] * 10)):
        proba = small(epochs=20).fit(texts, y, sample_weight=weights).predict_proba(["a film"])[0]
        assert proba[1] == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize(
    "weights",
    [[1.0] * 100, [1.0] * 100 + [-1.0], [0.0] * 101, [1.0] * 100 + [np.nan], [[1.0]] * 101],
    ids=["too few", "negative", "all 0", "nan", "a column"],
)
def test_weights_that_cannot_be(small, data, weights):
    with pytest.raises(DataError, match="101 non-negative finite numbers"):
        small().fit(*data, sample_weight=weights)


@pytest.mark.parametrize("class_weight", ["balanced", {"rare": 9.0}])
def test_class_weights_help_the_rare_class(small, class_weight):
    texts, y = ["a film"] * 20, ["rare"] * 2 + ["usual"] * 18
    plain = small(epochs=20).fit(texts, y).predict_proba(["a film"])[0]
    weighted = small(epochs=20, class_weight=class_weight).fit(texts, y).predict_proba(["a film"])[0]
    assert plain[0] == pytest.approx(0.1, abs=0.05)
    assert weighted[0] == pytest.approx(0.5, abs=0.1)


def test_precision_set_after_a_prediction_counts_for_the_next(small, data):
    texts, labels = data
    clf = small(epochs=1).fit(texts, labels)
    exact = clf.predict_proba(texts)
    rounded = clf.set_params(precision="bf16").predict_proba(texts)
    assert not np.array_equal(rounded, exact)
    np.testing.assert_allclose(rounded, exact, atol=0.05)
    np.testing.assert_array_equal(clf.set_params(precision="fp32").predict_proba(texts), exact)
    # dropout stays out of predictions, whatever the mode
    clf = small(dropout=0.5).fit(*data)
    wanted = clf.predict_proba(data[0])
    clf.model_.train()
    np.testing.assert_array_equal(clf.predict_proba(data[0]), wanted)
