"""Confident learning against cleanlab, and against labels that were flipped on purpose."""

import numpy as np
import pytest
from cleanlab.count import compute_confident_joint
from cleanlab.filter import find_label_issues
from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class
from cleanlab.rank import get_label_quality_scores

from glassformer.errors import DataError, ShapeError
from glassformer.evaluate.label_noise import confident_joint, review_label_sets, review_labels


def noisy(n: int, classes: int, flipped: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Given labels, probabilities [n, K] of a fair model, and which labels were flipped."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, classes, n)
    logits = rng.normal(0, 1.3, (n, classes)) + 3.1 * np.eye(classes)[true]
    p = np.exp(logits)
    p /= p.sum(1, keepdims=True)
    flip = rng.random(n) < flipped
    labels = np.where(flip, (true + rng.integers(1, classes, n)) % classes, true)
    return labels, p, flip


@pytest.mark.parametrize(("n", "classes", "flipped", "seed"), [
    (997, 2, 0.1, 0), (1009, 2, 0.0, 1), (1511, 3, 0.2, 2), (2003, 7, 0.15, 3), (211, 11, 0.3, 4), (53, 2, 0.4, 5),
])  # fmt: skip
def test_equal_to_cleanlab(n, classes, flipped, seed):
    labels, p, _ = noisy(n, classes, flipped, seed)
    assert np.array_equal(confident_joint(labels, p), compute_confident_joint(labels, p))
    found = review_labels(labels, p)
    wanted = find_label_issues(labels, p, n_jobs=1)
    assert np.array_equal(found.suspicious, wanted)
    assert found.quality == pytest.approx(get_label_quality_scores(labels, p))
    ranked = find_label_issues(labels, p, n_jobs=1, return_indices_ranked_by="self_confidence")
    assert found.order[: len(ranked)].tolist() == ranked.tolist()


def test_flipped_labels_are_found():
    labels, p, flip = noisy(2003, 3, 0.08)
    found = review_labels(labels, p)
    suggestions = found.order[: 2 * flip.sum()]
    assert flip[suggestions].sum() > 0.9 * flip.sum()
    estimated = found.joint.sum() - found.joint.trace()
    assert estimated == pytest.approx(flip.mean(), abs=0.04)
    # the order is a permutation with the suspicious first
    labels, p, _ = noisy(499, 5, 0.2)
    found = review_labels(labels, p)
    assert sorted(found.order) == list(range(499))
    flags = found.suspicious[found.order]
    assert np.all(np.diff(flags.astype(int)) <= 0)
    # one example of a class always stays
    labels = np.array([0] * 2 + [1] * 19)
    p = np.array([[0.1, 0.9], [0.2, 0.8]] + [[0.15, 0.85]] * 19)
    found = review_labels(labels, p)
    assert np.flatnonzero(found.suspicious).tolist() == [0]
    assert found.order[0] == 0


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([0, 1, 0, 1], "class 2"),
        ([1, 2, 1, 2], "class 0"),
        ([0, 1, 2, 3], "class 3"),
        ([0, 0, 2, 2], "class 1"),
        ([0, 1, 2, 5], "class 5"),
    ],
)
def test_a_class_without_an_example_or_a_column_is_named(labels, said):
    for judge in (confident_joint, review_labels):
        with pytest.raises(DataError, match=f"{said} has no example, or no column"):
            judge(labels, np.full((4, 3), 1 / 3))


def test_bad_input():
    for labels, wrong in (([0] * 4, np.ones((4, 1))), ([0] * 4, np.ones(4)), ([0, 1], np.ones((3, 2)))):
        with pytest.raises(ShapeError):
            confident_joint(labels, wrong)
    with pytest.raises(DataError, match="no probabilities"):
        confident_joint(np.zeros(0, int), np.zeros((0, 2)))
    with pytest.raises(DataError, match="finite"):
        review_labels([0, 1], np.full((2, 2), np.nan))


def test_label_sets_equal_to_cleanlab_and_flips_are_found():
    rng = np.random.default_rng(7)
    true = rng.random((997, 3)) < (0.5, 0.3, 0.15)
    p = 1 / (1 + np.exp(-(rng.normal(0, 1.1, true.shape) + 5.0 * true - 2.5)))
    flip = rng.random(true.shape) < 0.05
    has = true ^ flip
    found = review_label_sets(has, p)
    wanted = find_multilabel_issues_per_class([np.flatnonzero(row).tolist() for row in has], p, n_jobs=1)
    for k in range(3):
        assert np.array_equal(found.flips[found.suspicious][:, k], np.asarray(wanted)[found.suspicious, k])
    assert np.array_equal(found.suspicious, np.asarray(wanted).any(1))
    assert (found.flips & flip).sum() > 0.7 * flip.sum()
    assert found.joint[:, [0, 1], [1, 0]].sum(1).mean() == pytest.approx(flip.mean(), abs=0.03)
    assert np.all(np.diff(found.suspicious[found.order].astype(int)) <= 0)
    never = review_label_sets(np.c_[has[:, :2], np.zeros(997)], p)
    assert not never.flips[never.suspicious, 2].any()
    with pytest.raises(DataError, match="belongs to all examples or to none"):
        review_label_sets(np.ones((5, 2)), np.ones((5, 2)))
    with pytest.raises(ShapeError):
        review_label_sets([[0, 1]], np.ones((3, 2)))
