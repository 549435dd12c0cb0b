"""Several labels an example: label sets and 0/1 matrices in fit, answers, folders, checkpoints, explanations."""

import json

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import cross_val_score

import glassformer as gf
from glassformer.errors import CheckpointError, ConfigError, DataError

WORDS = {"dog": "dog", "cat": "cat", "run": "runs"}
FILLERS = ["the", "a", "small", "old", "red", "then"]


def make(count: int, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    rng = np.random.default_rng(seed)
    texts, sets = [], []
    for _ in range(count):
        labels = [label for label in WORDS if rng.random() < 0.4]
        words = [*rng.choice(FILLERS, 4).tolist(), *(WORDS[label] for label in labels)]
        rng.shuffle(words)
        texts.append(" ".join(words))
        sets.append(labels)
    return texts, sets


def matrix(sets) -> np.ndarray:
    return np.array([[label in labels for label in sorted(WORDS)] for labels in sets], int)


TEXTS, SETS = make(113)
HELD, HELD_SETS = make(53, seed=1)


@pytest.fixture(scope="module")
def fitted(small):
    return small(epochs=14).fit(TEXTS, SETS, validation=(HELD, HELD_SETS))


def test_sets_are_learnt_and_given(fitted):
    assert fitted.classes_.tolist() == ["cat", "dog", "run"]
    found = fitted.predict(HELD)
    assert isinstance(found, list)
    assert all(isinstance(labels, tuple) for labels in found)
    assert f1_score(matrix(HELD_SETS), matrix(found), average="macro") > 0.95
    p = fitted.predict_proba(HELD)
    np.testing.assert_allclose(p, torch.from_numpy(fitted.logits(HELD)).double().sigmoid().numpy(), rtol=1e-9)
    given = p >= fitted.threshold_
    assert found == [tuple(np.array(["cat", "dog", "run"])[row]) for row in given]
    assert fitted.score(HELD, HELD_SETS) == accuracy_score(matrix(HELD_SETS), given)
    assert {"accuracy", "macro_f1", "micro_f1", "loss"} <= fitted.history_[-1].keys()


def test_a_matrix_gives_a_matrix_with_the_same_numbers(small, fitted):
    y, held = matrix(SETS), matrix(HELD_SETS)
    clf = small(epochs=14).fit(TEXTS, y, validation=(HELD, held))
    assert clf.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(clf.predict_proba(HELD), fitted.predict_proba(HELD))
    found = clf.predict(HELD)
    assert found.shape == held.shape
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, matrix(fitted.predict(HELD)))
    assert clf.score(HELD, held) == accuracy_score(held, found)
    again = clone(clf)
    assert again.get_params() == clf.get_params()
    with pytest.raises(DataError, match="label 'bird' was not seen in training"):
        small(epochs=1).fit(TEXTS, SETS, validation=(HELD[:1], [["bird"]]))
    with pytest.raises(DataError, match="2 columns, but training had 3 labels"):
        small(epochs=1).fit(TEXTS, y, validation=(HELD, matrix(HELD_SETS)[:, :2]))


def test_scikit_learn_scores_it_over_folds(small):
    scores = cross_val_score(
        small(epochs=2), np.array(TEXTS[:40]), matrix(SETS[:40]), cv=2, scoring="f1_macro"
    )
    assert scores.shape == (2,)
    tags = small().__sklearn_tags__()
    assert tags.classifier_tags.multi_label
    assert tags.estimator_type == "classifier"
    # a held-out part keeps every label
    clf = small(epochs=1, validation_fraction=0.2).fit(TEXTS, SETS)
    assert clf.threshold_ is not None
    assert len(clf.threshold_) == 3


@pytest.mark.parametrize("y", [SETS, matrix(SETS)], ids=["sets", "matrix"])
def test_a_folder_gives_the_same_answers(small, y, tmp_path):
    clf = small(epochs=2).fit(TEXTS, y, validation=(TEXTS[:31], y[:31]))
    clf.save(tmp_path / "model")
    about = json.loads((tmp_path / "model" / "glassformer.json").read_text())
    assert about["targets"] == ("label-matrix" if isinstance(y, np.ndarray) else "label-sets")
    assert (
        json.loads((tmp_path / "model" / "config.json").read_text())["problem_type"]
        == "multi_label_classification"
    )
    again = gf.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(HELD), clf.predict_proba(HELD))
    np.testing.assert_array_equal(again.threshold_, clf.threshold_)
    assert np.asarray(again.predict(HELD) == clf.predict(HELD)).all()
    for key, value, said in (
        ("targets", "poem", "is not a known kind of target"),
        ("threshold", [0.5, 2.0, 0.5], "threshold = 2.0 is not between 0 and 1"),
        ("threshold", [0.5], "1 numbers under 'threshold' for 3 outputs"),
        ("temperature", [0.5, -1.0, 1.0], "not between 0.001 and 1000"),
        ("threshold", ["high"] * 3, "is not between 0 and 1"),
    ):
        with pytest.raises(CheckpointError, match=said):
            gf.TextClassifier.restore(tmp_path / "model", about | {key: value})


def test_what_a_yes_counts(small):
    def mean(pos_weight):
        clf = small(epochs=3, pos_weight=pos_weight, tune_thresholds=False).fit(TEXTS, SETS)
        assert clf.threshold_ is None
        return clf.predict_proba(HELD).mean()

    plain = mean(None)
    assert mean(5.0) > plain + 0.05
    assert mean({"cat": 5.0, "dog": 5.0, "run": 5.0}) == pytest.approx(mean(5.0))
    assert mean("balanced") > plain


@pytest.mark.parametrize(
    ("settings", "y", "error", "said"),
    [
        ({}, [["a"]] * 9, DataError, "one class only"),
        ({}, [["a"], "b"] + [["a"]] * 7, DataError, r"labels\[1\]: the labels are not a list but str"),
        ({}, np.full((9, 2), 3), DataError, r"labels\[0\]\[0\]: .*3.* has 0 or 1"),
        (
            {"class_weight": "balanced"},
            [["a"], ["b"], []] * 3,
            ConfigError,
            "For multi-label, use pos_weight",
        ),
        ({"pos_weight": "heavy"}, [["a"], ["b"], []] * 3, ConfigError, "'heavy' is not valid"),
        ({"pos_weight": {"z": 2.0}}, [["a"], ["b"], []] * 3, ConfigError, "unknown label 'z'"),
        ({"pos_weight": 2.0}, ["a", "b", "a"] * 3, ConfigError, "Weight classes with class_weight"),
    ],
)
def test_bad_targets_and_settings_are_one_line(small, settings, y, error, said):
    with pytest.raises(error, match=said):
        small(epochs=1, **settings).fit(TEXTS[:9], y)


def test_one_labels_logit_is_explained(fitted):
    text = "the dog runs"
    for target in ("dog", "run"):
        e = fitted.explain(text, method="occlusion", target=target, unit="word")
        assert e.target == target
        words = dict(e.words())
        assert max(words, key=lambda word: words[word]) == WORDS[target]
    e = fitted.explain(text, method="integrated_gradients", target="cat")
    whole, hidden = (fitted.logits([x])[0, 0] for x in (text, text))
    assert whole == hidden
    assert e.notes[0] == "labels given: dog | run"
    made = fitted.explain(text, method="occlusion", target="dog", trust=True)
    assert 0 <= made.trust["figures"]["comprehensiveness"] <= 1


def test_pictures_too():
    rng = np.random.default_rng(0)
    sets = [[name for name in ("left", "right") if rng.random() < 0.5] for _ in range(61)]
    pictures = np.full((61, 8, 8, 3), 40, np.uint8)
    for i, labels in enumerate(sets):
        for name in labels:
            pictures[i, :, slice(0, 4) if name == "left" else slice(4, 8)] = 220
    settings = {"d_model": 14, "num_layers": 1, "num_heads": 2, "d_ff": 11, "image_size": 8, "patch_size": 4}
    clf = gf.ImageClassifier(**settings, epochs=30, lr=1e-2, batch_size=8, precision="fp32", mix="mixup")
    clf.fit(list(pictures), sets, validation=(list(pictures), sets))
    assert clf.score(list(pictures), sets) > 0.9
    assert clf.predict([np.full((8, 8, 3), 220, np.uint8)]) == [("left", "right")]
