"""Targets, weights and settings at the edge of what can be learned: the right answer, or one clear line."""

import warnings

import numpy as np
import pandas as pd
import pytest

import glassformer as gf
from glassformer.errors import ConfigError, DataError, OtherOrderWarning
from glassformer.tasks.task import TINY

TEXTS = [f"visit {i} {'warm' if i % 2 else 'dull'}" for i in range(31)]
LABELS = [["dull", "warm"][i % 2] for i in range(31)]
SMALL = TINY | {"epochs": 1, "min_count": 1}


@pytest.mark.parametrize(
    ("numbers", "settings", "said"),
    [
        ([1e12 + i % 2 for i in range(31)], {}, "1000000000000 to 1000000000001 differ by too little"),
        ([1e-300 * (1 + i % 2) for i in range(31)], {}, "differ by too little for their size"),
        ([7.0] * 31, {}, "all numbers are 7"),
        ([10**400] * 31, {}, "is not a number that can be learned"),
        ([10.0 ** -(150 + i % 2) for i in range(31)], {"number_scale": "log"}, r"1e-150 is below 1e-100"),
        ([0.0, *range(1, 31)], {"number_scale": "log"}, "0 is not above 0 and has no logarithm"),
    ],
)
@pytest.mark.parametrize("model", ["tfidf", "encoder-mini"])
def test_numbers_that_cannot_be_told_apart_are_named(model, numbers, settings, said):
    with pytest.raises(DataError, match=said):
        gf.TextRegressor(model, **settings, **({} if model == "tfidf" else SMALL)).fit(TEXTS, numbers)


CALLS = (
    ["please call me back"] * 30 + ["I want a refund", "refund now", "my refund please"],
    ["call"] * 30 + ["refund"] * 3,
)
WORD_EACH = (["ok"] * 20 + ["bad"] * 20, ["p"] * 20 + ["n"] * 20)


@pytest.mark.parametrize(
    ("data", "asked"),
    [(CALLS, {"refund": "refund", "call me": "call"}), (WORD_EACH, {"ok": "p", "bad": "n"})],
)
def test_a_linear_model_learns_from_copies(data, asked):
    assert gf.TextClassifier("tfidf").fit(*data).predict([*asked]).tolist() == [*asked.values()]


def test_weights_of_zero_and_that_leave_one_class(capfd):
    clf = gf.TextClassifier("tfidf").fit(TEXTS, LABELS, sample_weight=[i % 2 for i in range(31)])
    assert {*clf.predict(TEXTS).tolist()} == {"warm"}
    assert capfd.readouterr() == ("", "")
    # with a weight of 0 an example counts as absent
    weights = [0.0 if i < 11 else 1.0 for i in range(31)]
    first = gf.TextClassifier("tfidf").fit(TEXTS, LABELS, sample_weight=weights)
    others = [*LABELS[1:12], *LABELS[11:]]
    again = gf.TextClassifier("tfidf").fit(TEXTS, others, sample_weight=weights)
    assert first.predict(TEXTS).tolist() == again.predict(TEXTS).tolist() == LABELS
    # one text with both labels is answered evenly
    clf = gf.TextClassifier("tfidf").fit(["same text"] * 41, [["a", "b"][i % 2] for i in range(41)])
    np.testing.assert_allclose(clf.predict_proba(["same text"])[0], [21 / 41, 20 / 41], atol=0.15)


@pytest.mark.parametrize("asked", [TEXTS[:2], tuple(TEXTS[:2]), np.array(TEXTS[:2])])
def test_two_texts_are_no_pair_for_a_model_of_one(asked):
    clf = gf.TextClassifier("tfidf").fit(TEXTS, LABELS)
    with pytest.raises(
        DataError, match=r"this model reads one text, not pairs|takes one text, got a list of 2"
    ):
        clf.explain(asked)


def test_a_fitted_model_takes_no_setting_that_cannot_be(tmp_path):
    clf = gf.TextClassifier("encoder-mini", **SMALL).fit(TEXTS, LABELS)
    wanted = clf.predict_proba(TEXTS)
    for key, value in {"long_texts": "windows", "max_length": "128"}.items():
        with pytest.raises(ConfigError, match=key):
            clf.set_params(**{key: value})
    np.testing.assert_array_equal(clf.predict_proba(TEXTS), wanted)
    clf.long_texts = "windows"
    with pytest.raises(ConfigError, match="long_texts"):
        clf.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_an_index_in_another_order_is_warned_of():
    table = pd.DataFrame({"text": TEXTS, "label": LABELS})
    y = table["label"].sort_values(kind="stable")
    with pytest.warns(OtherOrderWarning, match=r"y\.loc\[X\.index\]"):
        gf.TextClassifier("tfidf").fit(table["text"], y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gf.TextClassifier("tfidf").fit(table["text"].loc[y.index], y)
        gf.TextClassifier("tfidf").fit(table[["text"]], table["label"].rename("other"))
        gf.TextClassifier("tfidf").fit(table["text"], y.reset_index(drop=True).to_numpy())
        gf.TextClassifier("tfidf").fit(table["text"], [*LABELS])
