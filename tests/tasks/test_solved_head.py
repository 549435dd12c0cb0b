"""Heads that are solved on the vectors of a frozen encoder, and the fits that start from them."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score
from tests.similarity.tiny import checkpoint

import glassformer as gf
from glassformer.train.loop import START_SHARES
from glassformer.train.solved_head import solve_classes, solve_label_sets, solve_numbers

WORDS = ("the", "cat", "sat", "on", "a", "mat", "dog", "ran", "it", "rained", "and")
RNG = np.random.default_rng(5)
TEXTS = [" ".join(RNG.choice(WORDS, 5)) for _ in range(61)]
LABELS = ["dog" if "dog" in text else "none" for text in TEXTS]
QUICK = {"max_length": 13, "precision": "fp32", "threads": 1, "head_start": "solved"}


def blobs(classes: int, n: int = 131, width: int = 7) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    centers = rng.normal(size=(classes, width))
    targets = np.arange(n) % classes
    return (centers[targets] + 0.7 * rng.normal(size=(n, width))).astype(np.float32), targets


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_classes_are_scikit_learns_regression_at_the_strength_that_was_chosen(classes):
    vectors, targets = blobs(classes)
    found = solve_classes(vectors, targets, seed=1)
    peer = LogisticRegression(C=found.C, max_iter=1000, tol=1e-6).fit(vectors, targets)
    logits = vectors @ found.weight.T + found.bias
    shares = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_allclose(shares / shares.sum(1, keepdims=True), peer.predict_proba(vectors), atol=5e-3)


def test_held_out_outputs_are_of_heads_that_have_not_learned_from_the_example():
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(149, 97)).astype(np.float32)
    targets = rng.integers(0, 2, 149)  # nothing to learn, and room enough to learn it by heart
    found = solve_classes(vectors, targets)
    learned = accuracy_score(targets, (vectors @ found.weight.T + found.bias).argmax(1))
    held = accuracy_score(targets, found.held_out.argmax(1))
    assert learned > 0.75
    assert held < 0.62


def test_a_class_with_too_few_examples_is_learned_from_and_not_held_out():
    vectors, targets = blobs(3)
    targets[:2], targets[2:][targets[2:] == 2] = 2, 0
    found = solve_classes(vectors, targets)
    assert np.isnan(found.held_out[:2]).all()
    assert np.isfinite(found.held_out[2:, :2]).all()
    assert found.weight.shape == (3, 7)
    # where nothing can be held out the strength is in the middle
    vectors, targets = blobs(7, n=14)  # two of each class
    found = solve_classes(vectors, targets)
    assert found.C == 4
    assert np.isnan(found.held_out).all()


def test_weights_count_examples_as_often():
    rng = np.random.default_rng(3)
    targets = np.arange(61) % 2
    vectors = (rng.normal(size=(61, 7)) + 0.3 * targets[:, None]).astype(np.float32)
    weights = np.where(targets == 1, 5.0, 1.0)
    twice = np.repeat(np.arange(61), weights.astype(int))
    found = solve_classes(vectors, targets, weights)
    peer = LogisticRegression(C=found.C, max_iter=1000, tol=1e-6).fit(vectors[twice], targets[twice])
    yes = 1 / (1 + np.exp(-2 * (vectors @ found.weight[1] + found.bias[1])))  # half of it in each row
    np.testing.assert_allclose(yes, peer.predict_proba(vectors)[:, 1], atol=2e-2)
    unweighted = LogisticRegression(C=found.C, max_iter=1000).fit(vectors, targets)
    apart = np.abs(unweighted.predict_proba(vectors) - peer.predict_proba(vectors)).max()
    assert apart > 0.05  # weights do count


def test_several_labels_and_numbers_are_regressions():
    vectors, targets = blobs(3)
    sets = np.stack([targets == 0, targets != 1, np.zeros(len(targets), bool)], 1).astype(np.float32)
    found = solve_label_sets(vectors, sets)
    peer = LogisticRegression(C=found.C, max_iter=1000, tol=1e-6).fit(vectors, sets[:, 1])
    yes = 1 / (1 + np.exp(-(vectors @ found.weight[1] + found.bias[1])))
    np.testing.assert_allclose(yes, peer.predict_proba(vectors)[:, 1], atol=1e-2)
    assert (vectors @ found.weight[2] + found.bias[2] < -3).all()  # no example has the third
    # numbers are ridge regression
    vectors, _ = blobs(3)
    numbers = vectors @ np.arange(7.0) + 0.1 * np.random.default_rng(1).normal(size=len(vectors))
    found = solve_numbers(vectors, numbers)
    peer = Ridge(alpha=1 / found.C).fit(vectors, numbers)
    np.testing.assert_allclose(found.weight[0], peer.coef_, rtol=1e-4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return checkpoint(tmp_path_factory.mktemp("encoder") / "mean")


def test_a_frozen_checkpoint_is_the_regression_on_its_vectors(folder):
    clf = gf.TextClassifier(str(folder), train_layers=0, **QUICK).fit(TEXTS, LABELS)
    assert clf.model_.config.pooling == "unit-mean"  # as its modules.json says
    np.testing.assert_allclose(clf.embed(TEXTS, head=True), 5 * clf.embed(TEXTS), atol=1e-3)
    assert clf.chosen_["lr"] == 0
    vectors = clf.embed(TEXTS, head=True)
    length = np.linalg.norm(vectors, axis=1).mean()
    found = solve_classes(vectors / length, np.array(np.array("none") == LABELS, int))
    np.testing.assert_allclose(clf.model_.head.out.weight.detach() * length, found.weight, atol=2e-2)
    assert "solved" in clf.weights_source_


def test_fine_tuning_keeps_the_start_where_no_epoch_is_better(folder):
    settings = {"lr": 0.09, "epochs": 1, "batch_size": 7, "schedule": "constant", "warmup": 0.0}
    held = TEXTS[:23], LABELS[:23]
    start = gf.TextClassifier(str(folder), train_layers=0, **QUICK).fit(
        TEXTS[23:], LABELS[23:], validation=held
    )
    clf = gf.TextClassifier(str(folder), **QUICK, **settings).fit(TEXTS[23:], LABELS[23:], validation=held)
    (first,) = [record for record in clf.history_ if record["kind"] == "start"]
    assert first["accuracy"] == pytest.approx(start.score(*held))
    assert clf.best_step_ == 0
    np.testing.assert_allclose(clf.predict_proba(TEXTS), start.predict_proba(TEXTS), atol=1e-6)
    # a share of random weights is refused
    with pytest.raises(
        gf.errors.ConfigError, match=r"start_share = 0\.5 would mix random weights into the model"
    ):
        gf.TextClassifier("encoder-mini", start_share=0.5, epochs=1).fit(TEXTS, LABELS)


def test_probabilities_are_calibrated_on_enough_held_out_examples(folder):
    rng = np.random.default_rng(7)
    texts = [" ".join(rng.choice(WORDS, 5)) for _ in range(241)]
    labels = ["dog" if "dog" in text else "none" for text in texts]
    held = texts[:113], labels[:113]
    few = texts[:43], labels[:43]
    fit = texts[113:], labels[113:]
    settings = {**QUICK, "train_layers": 0}
    clf = gf.TextClassifier(str(folder), calibration="auto", **settings).fit(*fit, validation=held)
    plain = gf.TextClassifier(str(folder), calibration="none", **settings).fit(*fit, validation=held)
    short = gf.TextClassifier(str(folder), calibration="auto", **settings).fit(*fit, validation=few)
    assert short.temperature_ == 1.0
    assert plain.temperature_ == 1.0
    peer = plain.calibrate(*held)
    assert clf.temperature_ == pytest.approx(peer.temperature_)
    assert (clf.predict(texts) == peer.predict(texts)).all()


def test_the_share_of_the_start_is_what_does_best_on_the_validation_examples(folder):
    held, fit = (TEXTS[:23], LABELS[:23]), (TEXTS[23:], LABELS[23:])
    settings = {**QUICK, "epochs": 2, "lr": 3e-3, "keep_best": False, "monitor": "loss"}
    clf = gf.TextClassifier(folder, **settings).fit(*fit, validation=held)
    losses = {}
    for share in START_SHARES:
        one = gf.TextClassifier(folder, **settings, start_share=share).fit(*fit, validation=held)
        losses[share] = -np.log(
            one.predict_proba(held[0])[range(23), [int(y == "none") for y in held[1]]]
        ).mean()
    best = min(losses, key=lambda share: losses[share])
    assert clf.chosen_["start_share"] == best
    assert len({round(loss, 6) for loss in losses.values()}) == len(START_SHARES)
    peer = gf.TextClassifier(folder, **settings, start_share=best).fit(*fit, validation=held)
    np.testing.assert_allclose(clf.predict_proba(TEXTS), peer.predict_proba(TEXTS), atol=1e-6)
    assert "start_share" not in gf.TextClassifier(folder, **settings).fit(*fit).chosen_  # nothing decides
