"""The frozen encoder as a simple model: which runs have it, and what it predicts."""

from typing import Any

import numpy as np
import pytest
from tests.similarity.tiny import checkpoint
from tests.tables import write_csv

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
    write_csv(tmp_path / "own.csv", ("text", "label"), zip(TEXTS, labels, strict=True))
    recipe = tmp_path / "own.toml"
    recipe.write_text(
        f'task = "{task}"\nname = "own"\n[data]\nsource = "{tmp_path / "own.csv"}"\n'
        'test_size = 0.2\nvalidation_size = 0.2\nlabel_column = "label"\n[model]\nmodel = "tfidf"\n'
    )
    quick = ["threads=1", "bootstrap=53", "head_start=solved", "start_share=auto"]
    quick += ["calibration=auto"] if task == "text-classification" else []
    return run_task(load_recipe(recipe, [*quick, *settings]), tmp_path / "run")


SETS = [";".join(word for word in ("dog", "cat") if word in text) or "car" for text in TEXTS]
COUNTS = [1000 * (1 + text.count("dog")) for text in TEXTS]


@pytest.mark.parametrize(
    ("labels", "task", "settings", "name", "key"),
    [
        (LABELS, "text-classification", (), "logistic regression", "accuracy"),
        (SETS, "text-classification", ["label_separator=;"], "logistic regression per label", "macro_f1"),
        (COUNTS, "text-regression", ["number_scale=log"], "ridge", "mae"),
    ],
)
def test_a_run_has_it_among_its_simple_models(small, tmp_path, labels, task, settings, name, key):
    done = run(tmp_path, labels, *settings, task=task)
    name = f"frozen all-minilm-l6-v2 + {name}"
    row = done.metrics["baselines"][name]
    if key == "mae":
        assert row["mae"] < done.metrics["baselines"]["mean of the training numbers"]["mae"]
    else:
        assert 0 < row[key] <= 1
        assert row["difference"]["measure"] == (
            "accuracy" if key == "accuracy" else row["difference"]["measure"]
        )
    assert "baselines_left_out" not in done.metrics
    assert name in done.report.read_text("utf-8")
    assert "frozen all-minilm-l6-v2" in (done.folder / BASELINES_FILE).read_text("utf-8")


@pytest.mark.parametrize(("labels", "task"), [(LABELS, "text-classification"), (COUNTS, "text-regression")])
def test_without_the_weights_the_run_says_why_it_lacks_it(monkeypatch, tmp_path, labels, task):
    monkeypatch.setattr(frozen, "is_available", lambda name: False)
    done = run(tmp_path, labels, task=task)
    assert not any("frozen" in name for name in done.metrics["baselines"])
    assert done.metrics["baselines_left_out"] == {"frozen all-minilm-l6-v2": "its weights are not at hand"}


def test_it_predicts_as_the_frozen_encoder_does(small, folder):
    est = gf.TextClassifier("tfidf", threads=1, precision="fp32").fit(TEXTS, LABELS)
    name, model = frozen.fit_frozen(est, TEXTS, LABELS)
    assert name == "frozen all-minilm-l6-v2"
    options: dict[str, Any] = {"max_length": 13, "precision": "fp32", "threads": 1}
    peer = gf.TextClassifier(folder, train_layers=0, **options).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(model.predict_proba(TEXTS), peer.predict_proba(TEXTS))
    # it reads the sides of pairs apart
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


@pytest.mark.parametrize("frozen_chosen", [True, False])
def test_what_auto_has_chosen_counts(frozen_chosen):
    clf = gf.TextClassifier("auto")
    clf.tried_ = [
        {"model": "tfidf", "chosen": not frozen_chosen},
        {"model": FROZEN.name, "chosen": frozen_chosen},
    ]
    assert frozen.is_frozen(clf) == frozen_chosen
