"""scikit-learn's contract."""

import os
import pickle
import random
import tomllib

import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.exceptions import SkipTestWarning
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator
from tests.stopping import same

import glassformer as gf
from glassformer import TextClassifier
from glassformer.config import build
from glassformer.errors import ConfigError, DataError, OtherSpellingWarning
from glassformer.tasks.text_classification.recipe import Recipe

fit_parameters = TextClassifier.defaults


def test_check_estimator(small):
    with pytest.warns(SkipTestWarning, match="string=True"):  # the other checks feed numbers
        results = check_estimator(small(epochs=1), on_skip=None, on_fail=None)
    assert results
    assert not [r for r in results if r["status"] != "passed"]


def test_tags():
    tags = TextClassifier().__sklearn_tags__()
    assert is_classifier(TextClassifier())
    assert tags.input_tags.string
    assert not tags.input_tags.two_d_array
    assert tags.target_tags.required


# --- parameters -----------------------------------------------------------------------------------


def test_the_constructor_only_stores(tmp_path, monkeypatch):
    """Anything goes in, unchanged, even what fit will refuse; nothing is read, written or drawn."""
    monkeypatch.chdir(tmp_path)
    state = (
        torch.get_rng_state(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_num_threads(),
    )
    odd = {name: object() for name in fit_parameters()}
    clf = TextClassifier(**odd)
    assert all(getattr(clf, name) is value for name, value in odd.items())
    assert set(vars(clf)) == set(odd)
    assert torch.equal(torch.get_rng_state(), state[0])
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_num_threads()) == state[1:]
    assert not list(tmp_path.iterdir())


def test_set_params_round_trip(small):
    clf = small()
    values = clf.get_params()
    other = TextClassifier().set_params(**values)
    assert other.get_params() == values
    assert clf.set_params(lr=0.5, class_weight={"pos": 2.0}) is clf
    assert clf.get_params()["lr"] == 0.5
    assert clf.class_weight == {"pos": 2.0}
    with pytest.raises(ValueError, match="epoch"):
        clf.set_params(epoch=3)


def test_repr_shows_what_was_changed(small):
    text = repr(small(lr=0.25))
    assert text.startswith("TextClassifier(")
    assert "lr=0.25" in text
    assert "warmup" not in text


def test_recipe_round_trip(small, tmp_path):
    clf = small(class_weight={"pos": 2.0}, betas=(0.8, 0.95), dropout=None, stochastic_depth=0.1, seed=7)
    text = clf.to_recipe("mine")
    file = tmp_path / "mine.toml"
    file.write_text(text)
    again = TextClassifier.from_recipe(file)
    assert again.get_params() == clf.get_params()
    assert again.to_recipe("mine") == text
    assert TextClassifier.from_recipe(file, lr=0.5).get_params() == clf.get_params() | {"lr": 0.5}
    recipe = build(Recipe, tomllib.loads(text))
    assert recipe.name == "mine"
    assert TextClassifier.from_recipe(recipe).get_params() == clf.get_params()


def test_recipe_of_class_weights_by_number(small, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(small(class_weight={0: 1.0, 1: 2.0}).to_recipe())
    again = TextClassifier.from_recipe(file)
    assert {int(k): v for k, v in again.class_weight.items()} == {0: 1.0, 1: 2.0}


def test_numbers_of_numpy_survive_a_folder(small, data, tmp_path):
    """A grid search hands them over."""
    settings = {
        "max_length": np.int64(16),
        "epochs": np.int32(1),
        "lr": np.float32(0.125),
        "threads": np.int64(1),
    }
    clf = small(**settings).fit(*data)
    again = gf.load(clf.save(tmp_path / "model"))
    assert again.get_params() == small(max_length=16, epochs=1, lr=0.125, threads=1).get_params()
    np.testing.assert_array_equal(again.predict_proba(data[0][:5]), clf.predict_proba(data[0][:5]))
    assert same(again.fit(*data), clf)


@pytest.mark.parametrize(
    "keys",
    [
        [0, 1],
        ["0", np.str_("1")],
        [np.int64(0), np.int64(1)],
        [False, True],
        [np.False_, np.True_],
        [0.0, 1.0],
    ],
)
def test_class_weights_are_found_under_any_kind_of_number(small, data, tmp_path, keys):
    labels = [int(label == "pos") for label in data[1]]
    clf = small(epochs=1, class_weight=dict(zip(keys, [1.0, np.float64(5.0)]))).fit(data[0], labels)
    assert same(small(epochs=1, class_weight={"0": 1, "1": 5}).fit(data[0], labels), clf)
    again = gf.load(clf.save(tmp_path / "model"))
    assert same(again.fit(data[0], labels), clf)


def test_recipes_that_ship(tmp_path):
    clf = TextClassifier.from_recipe("europe", epochs=2)
    assert (clf.model, clf.epochs) == ("encoder-mini", 2)
    with pytest.raises(TypeError, match="epoch"):
        TextClassifier.from_recipe("europe", epoch=2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epochs": "three"}, "epochs"),
        ({"schedule": "linaer"}, "schedule.*'linear'"),
        ({"lr": "fast"}, "lr"),
        ({"pooling": "maen"}, "pooling.*'mean'"),
        ({"precision": "fp16"}, "precision"),
        ({"device": "gpu"}, "device"),
        ({"tokenizer": "wrod"}, "tokenizer.*'word'"),
        ({"batch_size": 0, "batch_tokens": 0}, "cannot both be 0"),
        ({"num_heads": 3}, "d_model 14 is not a multiple of num_heads 3"),
        ({"clean": "htlm"}, "clean.*'html'"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_fit_refuses_what_cannot_be(small, data, changes, said):
    with pytest.raises(ConfigError, match=said):
        small(**changes).fit(*data)


def test_fit_names_the_nearest_model(small, data):
    with pytest.raises(ConfigError, match=r"'encoder-smal'.*'encoder-small'"):
        small(model="encoder-smal").fit(*data)


@pytest.mark.parametrize(
    "changes",
    [{"seed": -1}, {"lr": -0.1}, {"warmup": 1.5}, {"attention_dropout": 1.0}, {"accumulate": 0},
     {"label_smoothing": 1.5}, {"average": 1.0}, {"betas": (0.9,)}, {"word_dropout": 1.5},
     {"length_window": -1}, {"early_stopping": -1}, {"threads": -1}],
    ids=str,
)  # fmt: skip
def test_fit_refuses_numbers_out_of_range(small, data, changes):
    with pytest.raises(ConfigError, match=next(iter(changes))):
        small(**changes).fit(*data)


@pytest.mark.parametrize(
    "changes", [{"epochs": np.int64(2)}, {"lr": np.float32(0.01)}, {"zero_init": np.bool_(True)}]
)
def test_numpy_numbers_from_a_grid(small, data, changes):
    assert small(**changes).fit(*data).model_ is not None


# --- scikit-learn's tools -------------------------------------------------------------------------


def test_score_reads_labels_as_everything_else_does(fitted, held):
    texts, labels = held
    right = np.mean(fitted.predict(texts) == np.asarray(labels))
    with pytest.warns(
        OtherSpellingWarning, match="labels in another spelling than the model's: ' NEG' as 'neg'"
    ):
        spelled = fitted.score(texts, [f" {x.upper()}" for x in labels])
    assert 0 < right == fitted.score(texts, labels) == spelled
    assert fitted.score(texts, ["unknown", *labels[1:]]) == pytest.approx(
        right - (fitted.predict(texts[:1])[0] == labels[0]) / len(texts)
    )
    with pytest.raises(DataError, match=f"{len(texts)} texts but {len(texts) - 1} labels"):
        fitted.score(texts, labels[:-1])
    for weights in ([1.0], [0.0] * len(texts)):
        with pytest.raises(DataError, match="sample_weight must be"):
            fitted.score(texts, labels, weights)


def test_cross_val_predict_with_sample_weights(small, data):
    proba = cross_val_predict(
        small(),
        np.array(data[0]),
        np.array(data[1]),
        cv=2,
        method="predict_proba",
        params={"sample_weight": np.ones(101)},
    )
    assert proba.shape == (101, 2)


def test_grid_search(small, data):
    search = GridSearchCV(
        small(), {"lr": [1e-9, 3e-2], "pooling": ["mean", "max"]}, cv=2, error_score="raise"
    )
    search.fit(*data)
    assert search.best_params_["lr"] == 3e-2
    assert same(search.best_estimator_, clone(search.best_estimator_).fit(*data))
    assert search.predict(data[0][:3]).shape == (3,)


def test_pipeline(small, data, fitted):
    def shout(texts):
        return [text.upper() for text in texts]

    pipe = Pipeline([("shout", FunctionTransformer(shout)), ("clf", small(lr=0.5))])
    pipe.set_params(clf__lr=3e-2).fit(*data)
    assert same(pipe[-1], fitted)  # the tokenizer makes them small again
    assert pipe.predict(data[0][:3]).tolist() == fitted.predict(data[0][:3]).tolist()
    assert pipe.score(*data) > 0.9
    weights = np.linspace(0.1, 2, 101)
    pipe.fit(*data, clf__sample_weight=weights)
    assert same(pipe[-1], small().fit(*data, sample_weight=weights))


@pytest.mark.slow
def test_two_processes(small, data):
    """``n_jobs=2`` gives what one process gives: bits, not luck."""
    one, two = (
        cross_val_predict(small(epochs=2), *data, cv=2, method="predict_proba", n_jobs=jobs)
        for jobs in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_pickle_for_other_processes(fitted, held, protocol):
    before = fitted.predict_proba(held[0])
    again = pickle.loads(pickle.dumps(fitted, protocol))
    assert same(again, fitted)
    assert again.get_params() == fitted.get_params()
    np.testing.assert_array_equal(again.predict_proba(held[0]), before)
    assert len(pickle.dumps(fitted)) < 200_000


def test_pickle_unfitted(small):
    assert pickle.loads(pickle.dumps(small())).get_params() == small().get_params()


def test_nothing_is_written_or_printed(small, data, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    clf = small(epochs=1).fit(*data)
    clf.predict(data[0])
    assert capfd.readouterr() == ("", "")
    assert os.listdir(tmp_path) == []
