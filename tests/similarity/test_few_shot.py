"""A classifier from a few texts a class, in Python and by the commands; and probes as folders."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from tests.cli.tiny import sets
from tests.commands import ok
from tests.tables import write_csv

import glassformer as gf
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.nn.kernels import int8
from glassformer.tasks.load import load
from glassformer.tasks.text_classification import few_shot

GOOD, BAD = ("warm", "wise", "funny", "kind"), ("dull", "flat", "empty", "cold")
TEXTS = [f"a {word} film , number {i}" for i in range(5) for word in (*GOOD, *BAD)]
LABELS = (["good"] * 4 + ["bad"] * 4) * 5
SHAPE = {"d_model": 14, "num_layers": 1, "num_heads": 2, "d_ff": 11}
QUICK = {"precision": "fp32", "threads": 1, "epochs": 1, "lr": 0.01, "max_length": 19}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    pairs = list(pairwise(TEXTS))[:11]
    made = gf.Embedder("encoder-base", min_count=1, tokenizer="word", **SHAPE, **QUICK).fit(pairs)
    return made.save(tmp_path_factory.mktemp("checkpoint") / "encoder")


@pytest.fixture(scope="module")
def fitted(checkpoint) -> gf.TextClassifier:
    return gf.TextClassifier(str(checkpoint), method="few-shot", **QUICK).fit(TEXTS, LABELS)


def test_it_is_the_embedder_of_the_same_settings_with_a_regression_behind_it(checkpoint, fitted):
    peer = gf.Embedder(str(checkpoint), **QUICK).fit(TEXTS, [int(label == "good") for label in LABELS])
    vectors = fitted.embed(TEXTS, head=True)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(units, peer.encode(TEXTS), atol=1e-5)  # the same training
    np.testing.assert_allclose(fitted.embed(TEXTS), peer.encode(TEXTS), atol=1e-5)
    length = np.linalg.norm(vectors, axis=1).mean()
    regression = LogisticRegression(max_iter=1000).fit(vectors / length, LABELS)
    np.testing.assert_allclose(
        fitted.predict_proba(TEXTS), regression.predict_proba(vectors / length), atol=1e-4
    )
    assert list(fitted.tried_) == []  # a third of 40 texts is too small to tell
    assert fitted.score(TEXTS, LABELS) == 1.0
    assert fitted.chosen_ == {"warmup": 0.06, "batch_size": 32}


@pytest.mark.skipif(int8.why_not() is not None, reason=f"no int8: {int8.why_not()}")
def test_in_int8_the_head_is_fitted_before_the_check(checkpoint, fitted):
    clf = gf.TextClassifier(str(checkpoint), method="few-shot", **QUICK | {"precision": "int8"})
    clf.fit(TEXTS, LABELS, validation=(TEXTS * 6, LABELS * 6))
    assert clf.int8_["n"] == 240
    assert (clf.predict(TEXTS) == fitted.predict(TEXTS)).all()


def test_it_saves_clones_and_is_explained_like_any_classifier(fitted, tmp_path, checkpoint):
    from sklearn.base import clone

    back = gf.load(fitted.save(tmp_path / "few"))
    np.testing.assert_array_equal(back.predict_proba(TEXTS[:9]), fitted.predict_proba(TEXTS[:9]))
    assert clone(back).method == "few-shot"
    words = dict(fitted.explain("a dull film", method="occlusion").words())
    assert set(words) == {"a", "dull", "film"}
    # the head alone is fitted where no layer learns
    probe = gf.TextClassifier(str(checkpoint), method="few-shot", train_layers=0, **QUICK).fit(TEXTS, LABELS)
    untouched = gf.Embedder(str(checkpoint), max_length=19, precision="fp32", threads=1)
    np.testing.assert_allclose(probe.embed(TEXTS), untouched.encode(TEXTS), atol=1e-6)


@pytest.mark.parametrize("better", ["frozen", "contrastive"])
def test_a_third_of_the_texts_chooses_the_encoder(checkpoint, monkeypatch, tmp_path, better):
    monkeypatch.setattr(few_shot, "MIN_HELD_OUT", 11)
    monkeypatch.setattr(gf.Embedder, "encode", _blind(gf.Embedder.encode, better != "frozen"))
    clf = gf.TextClassifier(str(checkpoint), method="few-shot", **QUICK).fit(TEXTS, LABELS)
    first, second = clf.tried_
    assert [first["chosen"], second["chosen"]] == [better == "frozen", better == "contrastive"]
    assert (first["model"], second["model"]) == (f"{checkpoint}, frozen", f"{checkpoint}, contrastive")
    assert first["examples"] == second["examples"] == 14
    monkeypatch.undo()
    plain = gf.TextClassifier(str(checkpoint), **(QUICK | {"epochs": None, "lr": None}), train_layers=0)
    same = np.array_equal(plain.fit(TEXTS, LABELS).predict_proba(TEXTS), clf.predict_proba(TEXTS))
    assert same == (better == "frozen")
    assert clf.method == "few-shot"
    back = gf.load(clf.save(tmp_path / "model"))
    np.testing.assert_allclose(back.predict_proba(TEXTS), clf.predict_proba(TEXTS), atol=1e-6)
    assert list(back.tried_) == list(clf.tried_)


def _blind(encode, first):
    """Vectors without a meaning, of the first encoder that is asked, or of all others."""
    asked: list[object] = []

    def without(self, texts, *given, **options):
        asked.append(self)
        found = encode(self, texts, *given, **options)
        return np.zeros_like(found) if (len(asked) == 1) == first else found

    return without


def test_validation_chooses_and_a_failed_fit_leaves_the_one_before(checkpoint, fitted):
    held = TEXTS[:8], LABELS[:8]
    clf = gf.TextClassifier(str(checkpoint), method="few-shot", **QUICK).fit(
        TEXTS[8:], LABELS[8:], validation=held
    )
    assert any(record["kind"] == "evaluation" for record in clf.history_)
    before = clf.predict_proba(TEXTS[:3])
    with pytest.raises(DataError):
        clf.fit(["a"], ["x"])
    np.testing.assert_array_equal(clf.predict_proba(TEXTS[:3]), before)


@pytest.mark.parametrize(
    ("settings", "X", "y", "said"),
    [
        ({"model": "encoder-mini"}, TEXTS, LABELS, "random weights"),
        ({"label_smoothing": 0.1}, TEXTS, LABELS, "label_smoothing = 0.1 has no effect"),
        ({"class_weight": "balanced"}, TEXTS, LABELS, "class_weight = 'balanced' has no effect"),
        ({}, [(t, t) for t in TEXTS], LABELS, "single texts"),
        ({}, TEXTS, [(label,) for label in LABELS], "several labels"),
    ],
)
def test_what_it_cannot_do_is_one_line(checkpoint, settings, X, y, said):
    clf = gf.TextClassifier(**({"model": str(checkpoint)} | QUICK | {"method": "few-shot"} | settings))
    with pytest.raises((ConfigError, DataError), match=said):
        clf.fit(X, y)


def test_the_commands_train_predict_judge_and_calibrate_it(checkpoint, tmp_path):
    table = write_csv(tmp_path / "few.csv", ("text", "label"), zip(TEXTS, LABELS, strict=True))
    settings = [f"{k}={v}" for k, v in QUICK.items() if k != "epochs"]
    settings = sets(*settings, "method=few-shot", "bootstrap=53", "baselines=false")
    run = tmp_path / "run"
    ok("train", "--text", table, "--model", checkpoint, *settings, "--out", run)
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["test"]["accuracy"] > 0.5
    assert (run / "report.html").is_file()
    assert 'method = "few-shot"' in (run / "config.toml").read_text()
    assert load(run).predict(["a dull film"])[0] in ok("predict", run, "a dull film").out
    assert "accuracy" in ok("evaluate", run).out
    assert "temperature" in ok("calibrate", run).out
    from glassformer.serve.limits import Limits
    from glassformer.serve.models import load_models

    pytest.importorskip("fastapi")
    ((served, calibrated),) = load_models([run], Limits(), threads=1)
    assert (served.output_kind, calibrated) == ("labels", True)


@pytest.mark.parametrize("head", ["linear", "knn"])
def test_a_probe_is_a_folder(fitted, head, tmp_path, checkpoint):
    probe = gf.Probe(fitted, head=head, k=3).fit(TEXTS, LABELS)
    folder = probe.save(tmp_path / "probe")
    for back in (gf.Probe.load(folder), gf.load(folder)):
        np.testing.assert_allclose(back.predict_proba(TEXTS), probe.predict_proba(TEXTS), atol=1e-6)
        assert (back.head, back.k, back.classes_.tolist()) == (head, 3, ["bad", "good"])
    with pytest.raises(CheckpointError, match="exists"):
        probe.save(folder)
    with pytest.raises(CheckpointError, match="contains a TextClassifier, not a Probe"):
        gf.Probe.load(fitted.save(tmp_path / "other"))
    (folder / "head.safetensors").write_bytes(b"cut")
    with pytest.raises(CheckpointError, match="head"):
        gf.Probe.load(folder)
    # on a checkpoint it takes that along
    probe = gf.Probe(str(checkpoint)).fit(TEXTS, LABELS)
    back = gf.Probe.load(probe.save(tmp_path / "whole"))
    np.testing.assert_allclose(back.predict_proba(TEXTS), probe.predict_proba(TEXTS), atol=1e-6)
