"""What every estimator promises, whichever task it stands for: the suite finds them by itself."""

import inspect
import json
import pickle
import tomllib
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import glassformer as gf
from glassformer.config import build, legacy_values, settings_of, to_toml
from glassformer.errors import CheckpointError, ConfigError
from glassformer.tasks.catalog import TASKS, load_recipe, recipe_names
from glassformer.tasks.estimator import Estimator
from glassformer.train.callbacks import Callback

KINDS = [task.estimator for task in TASKS.values()]
TINY = {task.estimator: task.example_fixture for task in TASKS.values()}


def example(kind: type[Estimator]) -> tuple[Estimator, tuple]:
    """One that is fitted in a blink, and what its ``fit`` takes."""
    return TINY[kind]()


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def fitted(request) -> tuple[Estimator, tuple]:
    estimator, data = example(request.param)
    return estimator.fit(*data), data


@cache
def tasks_of_recipes() -> dict[str, str]:
    return {name: load_recipe(name).task for name in recipe_names()}


def weights(estimator: Estimator) -> bytes:
    arrays = {name: value for name, value in sorted(vars(estimator).items()) if isinstance(value, np.ndarray)}
    tables = estimator.model_.state_dict() if hasattr(estimator, "model_") else arrays
    assert tables
    return b"".join(
        bytes(memoryview(getattr(t, "numpy", lambda t=t: t)()).cast("B")) for t in tables.values()
    )


def test_every_task_has_an_estimator():
    assert {kind.RECIPE for kind in KINDS} == {task.recipe for task in TASKS.values()}
    assert all(getattr(gf, kind.saved_as(), kind) is kind for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_the_keys_of_the_recipe_with_their_defaults(kind):
    parameters = {name: p.default for name, p in inspect.signature(kind).parameters.items()}
    assert parameters == kind.defaults() == kind().get_params()
    by_name = [p for name, p in inspect.signature(kind).parameters.items() if name != "model"]
    assert {p.kind for p in by_name} == {inspect.Parameter.KEYWORD_ONLY}
    keys = [key for config in kind.SECTIONS.values() for key in settings_of(config)]
    assert len(keys) == len(set(keys)) == len(parameters)
    for section, config in kind.SECTIONS.items():
        assert type(getattr(kind.RECIPE(), section)) is config


@pytest.mark.parametrize("kind", KINDS)
def test_recipes_become_estimators_and_back(kind, tmp_path):
    for name in [name for name, task in tasks_of_recipes().items() if task == kind.RECIPE().task]:
        estimator = kind.from_recipe(name, epochs=2)
        (tmp_path / "again.toml").write_text(estimator.to_recipe())
        assert kind.from_recipe(tmp_path / "again.toml").get_params() == estimator.get_params()
        assert estimator.epochs == 2
    other = "digits" if kind is not gf.ImageClassifier else "europe"
    with pytest.raises(ConfigError, match=f"'{other}' is a recipe of the task '.*Name one of the task '"):
        kind.from_recipe(other)
    with pytest.raises(ConfigError, match=r"'europa'.*'europe'"):
        kind.from_recipe("europa")


def test_a_fitted_one_survives_folder_pickle_and_clone(fitted, tmp_path):
    estimator, data = fitted
    again = gf.load(estimator.save(tmp_path / "model"))
    assert type(again) is type(estimator)
    assert again.get_params() == estimator.get_params()
    assert weights(again) == weights(estimator) == weights(pickle.loads(pickle.dumps(estimator)))
    assert again.train_seconds_ == estimator.train_seconds_
    if hasattr(estimator, "predict") and not isinstance(estimator, gf.Embedder):
        assert [*map(str, again.predict(data[0]))] == [*map(str, estimator.predict(data[0]))]
    copy = clone(estimator)
    assert not [name for name in vars(copy) if name.endswith("_")]
    with pytest.raises((NotFittedError, ConfigError)):
        copy.save(tmp_path / "none")
    about = json.loads((tmp_path / "model" / "glassformer.json").read_text())
    assert about.keys() >= {"format", "kind", "parameters", "train_seconds", "versions"}


def test_a_fit_that_fails_leaves_the_one_before(fitted):
    estimator, _ = fitted
    before = dict(vars(estimator))
    with pytest.raises(gf.errors.InputError):
        estimator.fit([], *([],) * (len(fitted[1]) - 1))
    assert vars(estimator).keys() == before.keys()
    assert all(vars(estimator)[name] is value for name, value in before.items())
    # nor does one that breaks off change it
    estimator, data = fitted
    if isinstance(estimator, gf.Word2Vec):
        estimator = (
            clone(estimator).set_params(optimizer="adam", subsample=0).fit(*data)
        )  # the other way calls nobody
    before = dict(vars(estimator))
    with pytest.raises(RuntimeError, match="broken off"):
        estimator.fit(*data, callbacks=[Breaks()])
    assert vars(estimator).keys() == before.keys()
    assert all(vars(estimator)[name] is value for name, value in before.items())


class Breaks(Callback):
    def step(self, training, info):
        raise RuntimeError("broken off")


def test_a_setting_that_a_checkpoint_does_not_know_counts_as_it_was_then(fitted, tmp_path, monkeypatch):
    """As if the checkpoint had been made before there was a seed: its value then is the default."""
    estimator, data = fitted
    clone(estimator).fit(*data, checkpoints=tmp_path)
    told = type(estimator)._fingerprint

    def without(self, **about):
        found = told(self, **about)
        return {key: value for key, value in found.items() if key != "seed"}

    old = tmp_path / "old"
    with monkeypatch.context() as patch:
        patch.setattr(type(estimator), "_fingerprint", without)
        clone(estimator).set_params(seed=0).fit(*data, checkpoints=old)
    same = clone(estimator).set_params(seed=0).fit(*data, checkpoints=old, resume=True)
    assert same.seed == 0
    with pytest.raises(CheckpointError, match="was made with seed = 0, now it is 3"):
        clone(estimator).fit(*data, checkpoints=old, resume=True)
    assert clone(estimator).fit(*data, checkpoints=tmp_path, resume=True).seed == 3


def test_a_setting_whose_default_came_later_counts_as_what_was_done_before_it():
    models = gf.MaskedLM.SECTIONS["model"]
    assert settings_of(models)["neighbours"] is True
    assert legacy_values(models) == settings_of(models) | {"neighbours": False}


@pytest.mark.parametrize("kind", [k for k in KINDS if "train" in k.SECTIONS])
def test_validation_is_taken_out_of_the_data_where_asked(kind):
    estimator, data = example(kind)
    estimator.set_params(validation_fraction=0.3).fit(*data)
    assert [
        r for r in estimator.history_ if r["kind"] == "evaluation" and {"accuracy", "score", "r2"} & r.keys()
    ]
    assert estimator.best_step_ > 0
    assert weights(clone(estimator).fit(*data)) == weights(estimator)


@pytest.mark.filterwarnings("ignore::glassformer.errors.IdleSettingWarning")  # the weights at the start
@pytest.mark.parametrize("kind", [k for k in KINDS if "train" in k.SECTIONS])
@pytest.mark.parametrize("settings", [{"train_layers": 0}, {"lora_rank": 3}], ids=str)
def test_an_encoder_that_shall_not_learn_stays_as_it_is(kind, settings):
    estimator, data = example(kind)
    if kind is gf.Embedder and "train_layers" in settings:  # it has no head that could learn alone
        with pytest.raises(ConfigError, match="no weight would be trained"):
            estimator.set_params(**settings).fit(*data)
        return
    frozen = estimator.set_params(**settings).fit(*data)
    still = clone(estimator).set_params(lr=0.0).fit(*data)
    name = "encoder.layers.0.feedforward." if "lora_rank" in settings else "encoder.layers.0."
    kept = {n: w for n, w in still.model_.state_dict().items() if n.startswith(name)}
    assert kept or "lora_rank" in settings
    assert all(w.equal(frozen.model_.state_dict()[n]) for n, w in kept.items())
    assert weights(frozen) != weights(still)
    assert bool(frozen.adapter_) == ("lora_rank" in settings)


# --- keys that a task once had ----------------------------------------------------------------------


RETIRED = [(k, c, key) for k in KINDS for c in k.SECTIONS.values() for key in getattr(c, "RETIRED", {})]


@pytest.mark.parametrize(("kind", "config", "key"), RETIRED)
def test_a_key_that_a_task_once_had_is_read_at_its_neutral_value_only(kind, config, key, tmp_path):
    neutral, why = config.RETIRED[key]
    assert kind(**{key: neutral}).configs() == kind().configs()
    with pytest.raises(ConfigError, match=why):
        kind(**{key: 0.5}).configs()
    text = to_toml(kind.RECIPE(name="old"))
    assert key not in text
    if neutral is not None:  # written by a version that had it
        text = text.replace("[train]\n", f"[train]\n{key} = {neutral}\n")
        assert build(kind.RECIPE, tomllib.loads(text)) == kind.RECIPE(name="old")
    with pytest.raises(ConfigError, match=why):
        build(kind.RECIPE, {"train": {key: 0.5}})
    (tmp_path / "old.toml").write_text(text)
    assert kind.from_recipe(tmp_path / "old.toml").get_params()[key] == neutral


def test_some_keys_are_of_that_kind():
    keys = {"Translator": {"class_weight", "word_dropout"}}
    keys["MaskedLM"] = keys["Translator"] | {"label_smoothing"}
    assert {(kind.__name__, key) for kind, _, key in RETIRED} == {(n, key) for n in keys for key in keys[n]}
