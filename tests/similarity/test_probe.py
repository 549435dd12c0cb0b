"""Frozen backbones: heads beside scikit-learn, neighbors beside sorting, patch pairs that add up."""

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

import glassformer as gf
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.tasks.catalog import TASKS
from glassformer.train.solved_head import fit_head, restore_head, unit

from .tiny import LABELS, TEXTS, checkpoint


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(3)
    targets = np.repeat(np.arange(3), 17)
    return (rng.normal(size=(51, 7)) + 2 * np.eye(3, 7)[targets]).astype(np.float32), targets


def test_the_heads_are_scikit_learns(vectors):
    x, targets = vectors
    for kept in (targets < 3, targets < 2):
        peer = LogisticRegression(C=0.5, max_iter=1000).fit(x[kept], targets[kept])
        head = fit_head(x[kept], targets[kept], C=0.5)
        np.testing.assert_allclose(head.probabilities(x), peer.predict_proba(x), atol=1e-5)
    # the nearest examples
    head = fit_head(x, targets, "knn", neighbors=1)
    peer = KNeighborsClassifier(1).fit(unit(x), targets)
    others = np.random.default_rng(5).normal(size=(31, 7)).astype(np.float32)
    np.testing.assert_array_equal(head.probabilities(others).argmax(1), peer.predict(unit(others)))
    five = fit_head(x, targets, "knn", neighbors=5)
    np.testing.assert_allclose(five.probabilities(others).sum(1), 1)
    cosines, near = unit(others) @ unit(x).T, peer.kneighbors(unit(others), 5, return_distance=False)
    by_hand = np.zeros((31, 3))
    for i, row in enumerate(near):
        weights = np.exp(cosines[i, row] / 0.07)
        np.add.at(by_hand[i], targets[row], weights / weights.sum())
    np.testing.assert_allclose(five.probabilities(others), by_hand, atol=1e-4)


@pytest.mark.parametrize("kind", ["linear", "knn"])
def test_a_head_comes_back_from_its_arrays_and_others_are_refused(kind, vectors):
    x, targets = vectors
    head = fit_head(x, targets, kind)
    again = restore_head(head.tensors(), 7, 3, "here")
    np.testing.assert_array_equal(again.probabilities(x), head.probabilities(x))
    for arrays, width, classes in ((head.tensors(), 5, 3), (head.tensors(), 7, 2), ({}, 7, 3)):
        with pytest.raises(CheckpointError, match="here: the arrays of its head do not match"):
            restore_head(arrays, width, classes, "here")


@pytest.fixture(scope="module")
def pictures():
    clf, data = TASKS["image-classification"].example_fixture()
    return clf.fit(*data), data


@pytest.mark.parametrize("head", ["linear", "knn"])
@pytest.mark.parametrize("pooling", ["auto", "patches"])
def test_pictures_get_classes_from_a_backbone_that_stays_as_it_is(head, pooling, pictures):
    clf, (x, y) = pictures
    before = clf.embed(x)
    probe = gf.Probe(clf, head=head, k=1, pooling=pooling).fit(x, y)
    assert (probe.predict(x) == np.asarray(y)).mean() > 0.5
    np.testing.assert_array_equal(clf.embed(x), before)
    if pooling == "auto":
        np.testing.assert_array_equal(probe.embed(x), before)
    rows, cosines = probe.neighbors(x[:3], x, k=2)
    np.testing.assert_allclose(cosines[:, 0], 1, atol=1e-5)
    wanted = unit(probe.embed(x[:3])) @ unit(probe.embed(x)).T
    np.testing.assert_allclose(np.take_along_axis(wanted, rows, 1), cosines, atol=1e-5)


def test_a_clone_shares_the_backbone_which_stays_fitted(pictures):
    clf, (x, y) = pictures
    probe = gf.Probe(clf, head="knn", k=3, C=0.5, pooling="patches").fit(x, y)
    copy = clone(probe)
    assert copy.backbone is clf
    assert copy.get_params(deep=False) == probe.get_params(deep=False)
    assert not hasattr(copy, "head_")
    scores = cross_val_score(gf.Probe(clf), x, y, cv=2, error_score="raise")
    assert scores.shape == (2,)
    search = GridSearchCV(gf.Probe(clf), {"C": [1e-6, 1.0]}, cv=2, error_score="raise").fit(x, y)
    assert (search.predict(x) == gf.Probe(clf, **search.best_params_).fit(x, y).predict(x)).all()
    before = clf.get_params()
    other = clone(gf.Probe(clf)).set_params(backbone__threads=2, k=7)
    assert (other.backbone.threads, other.k) == (2, 7)
    assert clf.get_params() == before
    shouted = [f" {label.upper()}" if isinstance(label, str) else label for label in y]
    assert probe.score(x, shouted) == probe.score(x, y) == np.mean(probe.predict(x) == np.asarray(y))
    with pytest.raises(DataError, match=r"predictions, .* labels"):
        probe.score(x, y[:-1])


def test_pairs_of_patches_add_up_to_the_cosine_of_their_means(pictures, tmp_path):
    clf, (x, _) = pictures
    probe = gf.Probe(clf, pooling="patches")
    found = probe.explain_similarity(x[0], x[1])
    count = int(np.prod(clf.model_.config.embedding.grid))
    assert found.table.shape == (count, count)
    assert found.table.sum() == pytest.approx(found.score, abs=1e-6)
    a, b = unit(probe.embed(x[:2]))
    assert found.score == pytest.approx(float(a @ b), abs=1e-5)
    text = found.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.count("<image") == 2
    assert "img-src data:" in text
    assert 'style="' not in text
    about = json.loads(found.save(tmp_path / "pair.json").read_text())
    assert np.sum(about["table"]) == pytest.approx(found.score, abs=1e-6)
    with pytest.raises(ConfigError, match="not means over patches"):
        gf.Probe(clf).explain_similarity(x[0], x[1])


def test_what_cannot_be_is_one_line(pictures, tmp_path):
    clf, (x, y) = pictures
    for settings, said in (
        ({"head": "forest"}, "unknown head 'forest'"),
        ({"k": 0, "head": "knn"}, "neighbors = 0"),
        ({"C": 0.0}, "C = 0.0"),
        ({"pooling": "sum"}, "no pooling 'sum'"),
    ):
        with pytest.raises(ConfigError, match=said):
            gf.Probe(clf, **settings).fit(x, y)
    of_texts = gf.Probe(str(checkpoint(tmp_path / "c")), pooling="patches")
    for ask, error, said in (
        (lambda: gf.Probe(clf).fit(x, [0] * len(x)), DataError, "all examples have one label"),
        (lambda: gf.Probe(clf).fit(x, [0]), DataError, "examples, 1 labels"),
        (lambda: gf.Probe(clf).neighbors(x, x, k=0), ConfigError, "k = 0 is below 1"),
        (lambda: gf.Probe(clf).neighbors(x, np.zeros((2, 3), np.float32)), DataError, "vectors of 3 numbers"),
        (lambda: gf.Probe(3).embed(x), ConfigError, "has no embeddings"),
        (lambda: gf.Probe("encoder-mini").embed(TEXTS), ConfigError, "has random weights"),
        (lambda: of_texts.embed(TEXTS), ConfigError, "texts have no patches"),
    ):
        with pytest.raises(error, match=said):
            ask()
    # a checkpoint of texts is opened by its name
    folder = checkpoint(tmp_path / "checkpoint")
    probe = gf.Probe(str(folder), head="knn", k=3).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(probe.embed(TEXTS), gf.Embedder(str(folder)).encode(TEXTS))
    assert set(probe.predict(TEXTS)) <= set(LABELS)
    with pytest.raises(ConfigError, match="a probe explains images"):
        probe.explain_similarity("a dog", "the dog")
