"""The frozen encoder as a simple model: which runs have it, and what it predicts."""

import csv
from typing import Any

import numpy as np
import pytest
from tests.similarity.tiny import checkpoint

import glassformer as gf
from glassformer.evaluate.predictions import BASELINES_FILE
from glassformer.tasks import auto as frozen
from glassformer.tasks.auto import FROZEN, Candidate
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.run import run_task

WORDS = ("a", "dog", "the", "cat", "and", "two", "three", "red", "car")
RNG = np.random.default_rng(7)
TEXTS = [" ".join(RNG.choice(WORDS, 5)) for _ in range(83)]
LABELS = ["dog" if "dog" in text else "none" for text in TEXTS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(checkpoint(tmp_path_factory.mktemp("encoder") / "mean"))


@pytest.fixture
def small(folder, monkeypatch):
    """A tiny encoder in the place of the real one."""
    settings = FROZEN.settings | {"model": folder}
    monkeypatch.setattr(frozen, "FROZEN", Candidate(FROZEN.name, settings))
    monkeypatch.setattr(frozen, "MAX_FROZEN_LENGTH", 13)
    monkeypatch.setattr(frozen, "is_available", lambda name: True)


def run(tmp_path, labels: Any, *settings: str, task: str = "text-classification"):
    with (tmp_path / "own.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *zip(TEXTS, labels, strict=True)])
    recipe = tmp_path / "own.toml"
    recipe.write_text(
        f'task = "{task}"\nname = "own"\n[data]\nsource = "{tmp_path / "own.csv"}"\n'
        'test_size = 0.2\nvalidation_size = 0.2\nlabel_column = "label"\n[model]\nmodel = "tfidf"\n'
    )
    quick = ["threads=1", "bootstrap=53", "head_start=solved", "start_share=auto"]
    quick += ["calibration=auto"] if task == "text-classification" else []
    return run_task(load_recipe(recipe, [*quick, *settings]), tmp_path / "run")


def test_one_label(small, folder, tmp_path):
    done = run(tmp_path, LABELS)
    row = done.metrics["baselines"]["frozen all-minilm-l6-v2 + logistic regression"]
    assert 0 < row["accuracy"] <= 1
    assert row["difference"]["measure"] == "accuracy"
    assert "baselines_left_out" not in done.metrics
    assert "frozen all-minilm-l6-v2" in done.report.read_text("utf-8")
    assert "frozen all-minilm-l6-v2" in (done.folder / BASELINES_FILE).read_text("utf-8")


def test_it_predicts_as_the_frozen_encoder_does(small, folder):
    est = gf.TextClassifier("tfidf", threads=1, precision="fp32").fit(TEXTS, LABELS)
    name, model = frozen.fit_frozen(est, TEXTS, LABELS)
    assert name == "frozen all-minilm-l6-v2"
    options: dict[str, Any] = {"max_length": 13, "precision": "fp32", "threads": 1}
    peer = gf.TextClassifier(folder, train_layers=0, **options).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(model.predict_proba(TEXTS), peer.predict_proba(TEXTS))


def test_of_pairs_it_reads_the_sides_apart(small, folder):
    pairs = [*zip(TEXTS, TEXTS[::-1], strict=True)]
    est = gf.TextClassifier("tfidf", threads=1, precision="fp32").fit(pairs, LABELS)
    name, model = frozen.fit_frozen(est, pairs, LABELS)
    assert (name, model.pairs, model.model_.config.sides) == ("frozen all-minilm-l6-v2", "apart", "apart")
    est.model, est.train_layers = "all-minilm-l6-v2", 0  # as if it were that encoder, reading both at once
    assert not frozen.is_frozen(est)
    est.pairs = "apart"
    assert frozen.is_frozen(est)


def test_of_many_texts_some_are_learned_and_the_name_says_so(small, monkeypatch):
    monkeypatch.setattr(frozen, "MAX_FROZEN_TEXTS", 31)
    est = gf.TextClassifier("tfidf", threads=1).fit(TEXTS, LABELS)
    name, model = frozen.fit_frozen(est, TEXTS, LABELS, np.ones(83, np.float32))
    assert name == "frozen all-minilm-l6-v2 (31 texts)"
    assert model.examples_["train"] == 31
    numbers = [text.count("dog") for text in TEXTS]
    regressor = gf.TextRegressor("tfidf", threads=1).fit(TEXTS, numbers)
    assert frozen.fit_frozen(regressor, TEXTS, numbers)[1].examples_["train"] == 31


def test_several_labels(small, tmp_path):
    sets = [";".join(word for word in ("dog", "cat") if word in text) or "car" for text in TEXTS]
    done = run(tmp_path, sets, "label_separator=;")
    row = done.metrics["baselines"]["frozen all-minilm-l6-v2 + logistic regression per label"]
    assert row["kind"] == "labels"
    assert row["macro_f1"] > 0


def test_numbers(small, tmp_path):
    numbers = [1000 * (1 + text.count("dog")) for text in TEXTS]
    done = run(tmp_path, numbers, "number_scale=log", task="text-regression")
    row = done.metrics["baselines"]["frozen all-minilm-l6-v2 + ridge"]
    assert row["mae"] < done.metrics["baselines"]["mean of the training numbers"]["mae"]
    assert "frozen all-minilm-l6-v2 + ridge" in done.report.read_text("utf-8")


@pytest.mark.parametrize("task", ["text-classification", "text-regression"])
def test_without_the_weights_the_run_says_why_it_lacks_it(monkeypatch, tmp_path, task):
    monkeypatch.setattr(frozen, "is_available", lambda name: False)
    numbers = [text.count("dog") + 1.5 for text in TEXTS]
    done = run(tmp_path, LABELS if task == "text-classification" else numbers, task=task)
    assert not any("frozen" in name for name in done.metrics["baselines"])
    assert done.metrics["baselines_left_out"] == {"frozen all-minilm-l6-v2": "its weights are not at hand"}


@pytest.mark.parametrize(
    ("settings", "same"),
    [
        ({"model": "all-minilm-l6-v2", "train_layers": 0}, True),
        ({"model": "sentence-transformers/all-MiniLM-L6-v2", "train_layers": 0}, True),
        ({"model": "auto", "train_layers": 0}, True),
        ({"model": "all-minilm-l6-v2"}, False),
        ({"model": "bert-base-uncased", "train_layers": 0}, False),
        ({"model": "all-minilm-l6-v2", "train_layers": 0, "unfreeze_every": 2}, False),
        ({"model": "tfidf"}, False),
    ],
)
def test_a_model_is_not_compared_with_itself(settings, same):
    clf = gf.TextClassifier(**settings)
    assert frozen.is_frozen(clf) == same
    assert not same or frozen.fit_frozen(clf, TEXTS, LABELS) is None
    assert not same or frozen.missing_baselines(clf) == {}


def test_what_auto_has_chosen_counts():
    clf = gf.TextClassifier("auto")
    clf.tried_ = [{"model": "tfidf", "chosen": False}, {"model": FROZEN.name, "chosen": True}]
    assert frozen.is_frozen(clf)
    clf.tried_ = [{"model": "tfidf", "chosen": True}, {"model": FROZEN.name, "chosen": False}]
    assert not frozen.is_frozen(clf)
