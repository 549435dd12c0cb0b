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
from tests.commands import values
from tests.stopping import same

import glassformer as gf
from glassformer import TextClassifier
from glassformer.config import build
from glassformer.errors import ConfigError, DataError
from glassformer.tasks.text_classification.recipe import Recipe

fit_parameters = TextClassifier.defaults


def test_check_estimator(small):
    with pytest.warns(SkipTestWarning, match="string=True"):  # the other checks feed numbers
        results = check_estimator(small(epochs=1), on_skip=None, on_fail=None)
    assert results
    assert not [r for r in results if r["status"] != "passed"]
    tags = TextClassifier().__sklearn_tags__()
    assert is_classifier(TextClassifier())
    assert tags.input_tags.string
    assert not tags.input_tags.two_d_array
    assert tags.target_tags.required


# --- parameters -----------------------------------------------------------------------------------


def global_state():
    numbers = torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()
    return *numbers, random.getstate(), torch.get_num_threads()


def test_the_constructor_only_stores(tmp_path, monkeypatch):
    """Anything goes in, unchanged, even what fit will refuse; nothing is read, written or drawn."""
    monkeypatch.chdir(tmp_path)
    state = global_state()
    odd = {name: object() for name in fit_parameters()}
    clf = TextClassifier(**odd)
    assert all(getattr(clf, name) is value for name, value in odd.items())
    assert set(vars(clf)) == set(odd)
    assert global_state() == state
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
    text = repr(small(lr=0.25))
    assert text.startswith("TextClassifier(")
    assert "lr=0.25" in text
    assert "warmup" not in text
    assert pickle.loads(pickle.dumps(small())).get_params() == small().get_params()


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
    shipped = TextClassifier.from_recipe("europe", epochs=2)
    assert (shipped.model, shipped.epochs) == ("encoder-mini", 2)
    with pytest.raises(TypeError, match="epoch"):
        TextClassifier.from_recipe("europe", epoch=2)
    assert TextClassifier.from_recipe(recipe).get_params() == clf.get_params()
    # class weights by number
    file.write_text(small(class_weight={0: 1.0, 1: 2.0}).to_recipe())
    again = TextClassifier.from_recipe(file)
    assert {int(k): v for k, v in again.class_weight.items()} == {0: 1.0, 1: 2.0}


def test_numbers_of_numpy_survive_a_folder(small, data, tmp_path):
    """A grid search hands them over."""
    settings = {"max_length": np.int64(16), "epochs": np.int32(1), "threads": np.int64(1)}
    clf = small(**settings, lr=np.float32(0.125), zero_init=np.bool_(False)).fit(*data)
    again = gf.load(clf.save(tmp_path / "model"))
    plain = small(max_length=16, epochs=1, lr=0.125, threads=1, zero_init=False)
    assert again.get_params() == plain.get_params()
    np.testing.assert_array_equal(again.predict_proba(data[0][:5]), clf.predict_proba(data[0][:5]))
    assert same(again.fit(*data), clf)


KEYS = [["0", np.str_("1")], [np.int64(0), np.int64(1)], [np.False_, np.True_], [0.0, 1.0]]


@pytest.mark.parametrize("keys", [[0, 1], [False, True], *KEYS])
def test_class_weights_are_found_under_any_kind_of_number(small, data, tmp_path, keys):
    labels = [int(label == "pos") for label in data[1]]
    clf = small(epochs=1, class_weight=dict(zip(keys, [1.0, np.float64(5.0)]))).fit(data[0], labels)
    assert same(small(epochs=1, class_weight={"0": 1, "1": 5}).fit(data[0], labels), clf)
    again = gf.load(clf.save(tmp_path / "model"))
    assert same(again.fit(data[0], labels), clf)


REFUSED = """epochs=three epochs; schedule=linaer schedule.*'linear'; lr=fast lr; pooling=maen pooling.*'mean'
precision=fp16 precision; device=gpu device; tokenizer=wrod tokenizer.*'word'; clean=htlm clean.*'html'
batch_size=0,batch_tokens=0 cannot both be 0; num_heads=3 d_model 14 is not a multiple of num_heads 3
model=encoder-smal 'encoder-smal'.*'encoder-small'; dropout=1.0 dropout; seed=-1 seed; betas=(0.9,) betas"""


@pytest.mark.parametrize("case", REFUSED.replace("\n", "; ").split("; "))
def test_fit_refuses_what_cannot_be(small, data, case):
    """Whatever the key: tests/test_settings_ranges.py has the ends of every range."""
    settings, said = case.split(" ", 1)
    with pytest.raises(ConfigError, match=said):
        small(**values(settings if "(" in settings else settings.replace(",", " "))).fit(*data)


# --- scikit-learn's tools -------------------------------------------------------------------------


def test_score_reads_labels_as_everything_else_does(fitted, held):
    texts, labels = held
    right = np.mean(fitted.predict(texts) == np.asarray(labels))
    assert 0 < right == fitted.score(texts, labels)
    assert fitted.score(texts, ["unknown", *labels[1:]]) == pytest.approx(
        right - (fitted.predict(texts[:1])[0] == labels[0]) / len(texts)
    )
    with pytest.raises(DataError, match=f"{len(texts)} texts but {len(texts) - 1} labels"):
        fitted.score(texts, labels[:-1])
    for weights in ([1.0], [0.0] * len(texts)):
        with pytest.raises(DataError, match="sample_weight must be"):
            fitted.score(texts, labels, weights)


def test_grid_search(small, data):
    search = GridSearchCV(
        small(), {"lr": [1e-9, 3e-2], "pooling": ["mean", "max"]}, cv=2, error_score="raise"
    )
    search.fit(*data)
    assert search.best_params_["lr"] == 3e-2
    assert same(search.best_estimator_, clone(search.best_estimator_).fit(*data))
    assert search.predict(data[0][:3]).shape == (3,)
    options = {"method": "predict_proba", "params": {"sample_weight": np.ones(101)}}
    assert cross_val_predict(small(), *map(np.array, data), cv=2, **options).shape == (101, 2)


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


def test_nothing_is_written_or_printed(small, data, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    clf = small(epochs=1).fit(*data)
    clf.predict(data[0])
    assert capfd.readouterr() == ("", "")
    assert os.listdir(tmp_path) == []
