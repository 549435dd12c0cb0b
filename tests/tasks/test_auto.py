"""``model = "auto"``: what is tried, by which examples it is decided, and what the winner leaves behind."""

import re
import signal
from typing import Any

import numpy as np
import pytest
from tests.similarity.tiny import checkpoint

import glassformer as gf
from glassformer.tasks import auto
from glassformer.tasks.auto import Candidate, needs_encoder
from glassformer.train.callbacks import Callback, Interrupted

WORDS = ("the", "cat", "sat", "on", "a", "mat", "dog", "ran", "it", "rained", "and")
RNG = np.random.default_rng(5)
TEXTS = [" ".join(RNG.choice(WORDS, 5)) for _ in range(61)]
LABELS = ["dog" if "dog" in text else "none" for text in TEXTS]
LABELS[7] = LABELS[29] = "dog"  # which no model learns from a word
QUICK: dict[str, Any] = {"model": "auto", "max_length": 13, "precision": "fp32", "threads": 1}
FROZEN = "tiny, frozen"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(checkpoint(tmp_path_factory.mktemp("encoder") / "mean"))


@pytest.fixture
def tried(folder, monkeypatch):
    """The candidates, with a tiny encoder."""
    solved = {"model": folder, "head_start": "solved"}
    tuned = Candidate("tiny, fine-tuned", solved | {"epochs": 1, "lr": 1e-4}, is_trained=True)
    small = [auto.TFIDF, Candidate(FROZEN, solved | {"train_layers": 0}), tuned]
    monkeypatch.setattr(auto, "candidates", lambda clf: small)
    return small


def fit(texts=TEXTS, labels=LABELS, **options):
    return gf.TextClassifier(**QUICK).fit(texts, labels, **options)


def told(clf, *keys):
    """What was noted of each candidate."""
    found = [tuple(record.get(key) for key in keys) for record in clf.tried_]
    return [one[0] for one in found] if len(keys) == 1 else found


def test_cross_validation_decides_where_there_is_no_validation_set(tried, tmp_path):
    clf = fit()
    assert [record["model"] for record in clf.tried_] == [candidate.name for candidate in tried]
    assert {record["by"] for record in clf.tried_} == {"cross-validation"}
    assert {record["examples"] for record in clf.tried_} == {61}
    assert [record["model"] for record in clf.tried_ if record["chosen"]] == ["tfidf"]  # a word decides
    peer = gf.TextClassifier("tfidf", threads=1).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(clf.predict_proba(TEXTS), peer.predict_proba(TEXTS))
    back = gf.load(clf.save(tmp_path / "model"))
    assert back.model == "auto"
    assert list(back.tried_) == clf.tried_
    np.testing.assert_allclose(back.predict_proba(TEXTS), clf.predict_proba(TEXTS), atol=1e-6)


def test_a_validation_set_that_is_large_enough_decides_alone(tried, monkeypatch, tmp_path):
    monkeypatch.setattr(auto, "MIN_VALIDATION", 20)
    options = {"validation": (TEXTS[:23], LABELS[:23]), "checkpoints": tmp_path / "checkpoints"}
    clf = fit(TEXTS[23:], LABELS[23:], **options)
    assert {*told(clf, "by", "examples")} == {("validation", 23)}
    best = next(record for record in clf.tried_ if record["chosen"])
    assert best["score"] == pytest.approx(clf.score(*options["validation"]))
    again = fit(TEXTS[23:], LABELS[23:], **options, resume=True)  # the winner's checkpoints
    np.testing.assert_array_equal(clf.predict_proba(TEXTS), again.predict_proba(TEXTS))


def test_the_same_seed_gives_the_same_bits(tried):
    first, again = (fit() for _ in range(2))
    np.testing.assert_array_equal(first.predict_proba(TEXTS), again.predict_proba(TEXTS))
    scores = [[record["score"] for record in clf.tried_] for clf in (first, again)]
    assert scores[0] == scores[1]


@pytest.mark.parametrize(("errors", "chosen"), [((10, 10, 2), 2), ((2, 2, 2), 0)])
def test_a_dearer_model_must_be_ahead_by_the_margin(tried, monkeypatch, errors, chosen):
    truth = np.array([int(label == "none") for label in LABELS])
    found = iter(np.eye(2)[np.where(np.arange(61) < wrong, 1 - truth, truth)] for wrong in errors)
    monkeypatch.setattr(auto.Search, "_cross_validate", lambda self, candidate: {0.0: next(found)})
    assert told(fit(), "chosen") == [i == chosen for i in range(3)]


def test_a_model_without_an_error_leaves_the_dearer_ones_out(tried, monkeypatch):
    clf = fit(TEXTS, ["dog" if "dog" in text else "none" for text in TEXTS])
    assert told(clf, "score", "left out") == [(1.0, None), (None, auto.PERFECT), (None, auto.PERFECT)]
    # with no time later candidates are left out
    clf = gf.TextClassifier(time_limit=0.0, **QUICK).fit(TEXTS, LABELS)
    assert told(clf, "left out") == [None, "time_limit", "time_limit"]
    assert clf.tried_[0]["chosen"]
    # of many examples a part is held out
    monkeypatch.setattr(auto, "MAX_CROSS_VALIDATED", 50)
    assert {*told(fit(), "by", "examples")} - {(None, None)} == {("validation", 6)}


def test_a_recipe_that_names_auto_alone_tries_every_model(tried, tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text('task = "text-classification"\nname = "mine"\n[model]\nmodel = "auto"\n')
    clf = gf.TextClassifier.from_recipe(recipe, **QUICK)  # keys that it lacks are as in earlier files
    assert (clf.head_start, clf.start_share) == ("random", 0.0)
    clf.fit(TEXTS, LABELS)
    assert [record["model"] for record in clf.tried_] == [candidate.name for candidate in tried]


def test_without_the_encoders_weights_the_linear_model_is_left(monkeypatch):
    def away(name: str) -> Any:
        raise gf.errors.CheckpointError("is not in the local cache")

    monkeypatch.setattr(auto, "resolve_checkpoint", away)
    clf = fit()
    assert [record["model"] for record in clf.tried_] == ["tfidf"]


def test_one_example_of_each_class_compares_nothing_and_two_decide(tried):
    clf = fit(WORDS, [f"class {word}" for word in WORDS])
    assert list(clf.tried_) == []
    peer = gf.TextClassifier(**{**QUICK, **tried[1].settings}).fit(WORDS, [f"class {word}" for word in WORDS])
    np.testing.assert_array_equal(clf.predict_proba(TEXTS), peer.predict_proba(TEXTS))
    assert {*told(fit(WORDS[:10], [f"class {k // 2}" for k in range(10)]), "examples")} == {10}
    # one example of each truth value keeps the kind of the labels
    clf = gf.TextClassifier(**QUICK).fit(["a warm film", "a dull play"], np.array([True, False]))
    assert clf.classes_.tolist() == [False, True]
    assert clf.predict(["a warm film"]).dtype == bool
    assert clf.train_seconds_ > 0


def test_an_encoder_that_does_not_know_the_language_is_not_fine_tuned_from_behind(tried, folder, monkeypatch):
    asked = []
    monkeypatch.setattr(auto, "foreign_tokens_per_word", lambda name, *_: asked.append(name) or 2.2)
    clf = fit()  # tfidf is ahead
    assert asked == [folder]
    assert clf.tried_[-1] == {"model": "tiny, fine-tuned", "left out": auto.FOREIGN}
    monkeypatch.setattr(auto.Search, "_is_better", lambda self, dearer, cheaper: True)
    ahead = fit()
    assert "score" in ahead.tried_[-1]


@pytest.mark.parametrize(
    ("settings", "encoder"),
    [
        ({}, False),
        ({"max_length": 31, "seed": 3, "class_weight": "balanced"}, False),
        ({"epochs": 2}, True),
        ({"lora_rank": 2}, True),
        ({"pooling": "mean"}, True),
        ({"precision": "int8"}, True),
    ],
)
def test_settings_that_only_an_encoder_has_name_the_encoder(settings, encoder):
    assert needs_encoder(gf.TextClassifier("auto", **settings)) == encoder


def test_every_kind_of_target(tried, tmp_path):
    pairs = [(text, TEXTS[(i + 1) % 61]) for i, text in enumerate(TEXTS)]
    clf = gf.TextClassifier(**QUICK).fit(pairs, LABELS)
    assert clf.reads_pairs
    sets = [tuple(word for word in ("cat", "dog") if word in text) for text in TEXTS]
    clf = gf.TextClassifier(**QUICK).fit(TEXTS, sets)
    assert clf.tried_[0]["metric"] == "average precision"
    assert clf.predict(TEXTS)[0] == sets[0]
    numbers = [1e7 + text.count("dog") for text in TEXTS]
    model = gf.TextRegressor(**QUICK).fit(TEXTS, numbers)
    assert model.tried_[0]["metric"] == "R²"
    assert np.corrcoef(model.predict(TEXTS), numbers)[0, 1] > 0.9
    back = gf.load(model.save(tmp_path / "numbers"))
    np.testing.assert_allclose(back.predict(TEXTS), model.predict(TEXTS))


def test_callbacks_hear_what_each_candidate_reached(tried):
    lines: list[str] = []
    notes = Callback()
    notes.note = lines.append
    fit(callbacks=[notes])
    reached = [line for line in lines if "accuracy" in line]
    assert [line.split(":")[0] for line in reached] == [candidate.name for candidate in tried]
    expected = [line for line in lines if line not in reached]
    assert len(expected) == sum(candidate.is_trained for candidate in tried)
    assert all(re.fullmatch(r".+: at most about \d+ (s|min)", line) for line in expected)


def test_a_stop_in_a_fold_leaves_no_checkpoint(tried, tmp_path):
    class Signal(Callback):
        def step(self, training, info):
            signal.raise_signal(signal.SIGTERM)

    stop, folder = auto.StopUnsaved(tmp_path / "checkpoints"), tmp_path / "checkpoints"
    clf = gf.TextClassifier("encoder-mini", d_model=14, num_layers=1, num_heads=2, d_ff=11, min_count=1)
    with pytest.raises(Interrupted, match="stopped while models were being compared"):
        clf.fit(TEXTS, LABELS, callbacks=[Signal(), stop])
    assert not folder.exists()


def test_tables_truth_values_and_columns_of_labels_come_back_as_they_were_given(monkeypatch, tmp_path):
    pd = pytest.importorskip("pandas")
    monkeypatch.setattr(auto, "candidates", lambda clf: [auto.TFIDF])
    table = pd.DataFrame({"premise": TEXTS, "hypothesis": TEXTS[::-1]})
    clf = gf.TextClassifier(**QUICK).fit(table, LABELS)
    turned = table[["hypothesis", "premise"]]
    assert list(clf.feature_names_in_) == ["premise", "hypothesis"]
    np.testing.assert_array_equal(clf.predict_proba(turned), clf.predict_proba(table))
    back = gf.load(clf.save(tmp_path / "model"))
    np.testing.assert_allclose(back.predict_proba(turned), clf.predict_proba(table), atol=1e-6)
    truth = [label == "dog" for label in LABELS]
    assert gf.TextClassifier(**QUICK).fit(TEXTS, truth).predict(TEXTS).dtype == bool
    sets = pd.DataFrame({word: [int(word in text) for text in TEXTS] for word in ("dog", "cat")})
    several = gf.TextClassifier(**QUICK).fit(TEXTS, sets)
    assert several.classes_.tolist() == ["dog", "cat"]
    assert several.predict(TEXTS[:7]).shape == (7, 2)
