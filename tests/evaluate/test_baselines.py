"""The simple models beside ours learn what can be learnt, and say what they cannot use."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from glassformer.errors import DataError, ShapeError
from glassformer.evaluate.baselines import bag_of_embeddings, pixel_logistic, tfidf_logistic


def reviews(n: int, seed: int) -> tuple[list[str], np.ndarray]:
    """ "not good" against "good": word pairs decide, single words alone do not."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    filler = ["the film", "a story", "this cast", "its end"]
    texts = []
    for label in y:
        word, other = ("good", "bad") if rng.random() < 0.5 else ("bad", "good")
        negated = (word == "good") != bool(label)
        says = f"not {word} but {other} is plain" if negated else f"{word} but not {other} is plain"
        texts.append(f"{filler[rng.integers(4)]} {says}")
    return texts, y


def bags(n: int, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return [np.append(rng.integers(3, 50, rng.integers(1, 9)), [label] * 2) for label in y], y


def test_tfidf_reads_word_pairs():
    (train, y), (test, z) = reviews(400, 0), reviews(101, 1)
    p = tfidf_logistic(train, y, test)
    assert p.shape == (101, 2)
    assert p.sum(1) == pytest.approx(np.ones(101))
    assert (p.argmax(1) == z).mean() > 0.95


def test_tfidf_keeps_the_columns_of_classes_it_never_saw():
    p = tfidf_logistic(["a b", "c d", "a b", "c d"], [0, 2, 0, 2], ["a b", "c d"], num_classes=4)
    assert p.shape == (2, 4)
    assert p.argmax(1).tolist() == [0, 2]
    assert not p[:, [1, 3]].any()
    assert tfidf_logistic(["a", "b"], [0, 1], []).shape == (0, 2)


def test_bag_of_embeddings_learns_and_repeats_itself():
    (train, y), (test, z) = bags(600, 0), bags(101, 1)
    state = torch.get_rng_state()
    p = bag_of_embeddings(train, y, test, vocab_size=50, epochs=8, dim=11, seed=3)
    assert torch.equal(state, torch.get_rng_state())
    assert p.shape == (101, 3)
    assert p.sum(1) == pytest.approx(np.ones(101))
    assert (p.argmax(1) == z).mean() > 0.9
    table = SimpleNamespace(
        ids=np.concatenate(train).astype(np.int32), starts=np.cumsum([0, *map(len, train)]), segments=None
    )
    again = bag_of_embeddings(table, y, test, vocab_size=50, epochs=8, dim=11, seed=3)
    assert np.array_equal(p, again)


def test_bad_input_is_named():
    with pytest.raises(ShapeError, match="2 texts"):
        tfidf_logistic(["a", "b"], [0], ["a"])
    with pytest.raises(DataError, match="two classes"):
        tfidf_logistic(["a", "b"], [1, 1], ["a"])
    with pytest.raises(DataError, match="no words"):
        tfidf_logistic(["!!", "??"], [0, 1], ["a"])
    with pytest.raises(DataError, match="two classes"):
        bag_of_embeddings([[1], [2]], [1, 1], [[1]], vocab_size=3)


def test_pixels_are_drawn_from_every_class_where_there_are_many():
    dark, light = np.zeros((4, 4, 3), np.uint8), np.full((4, 4, 3), 255, np.uint8)
    pictures = [dark] * 30 + [light] * 10  # as a folder gives them: class by class
    targets = np.array([0] * 30 + [1] * 10)
    p, name = pixel_logistic(pictures, targets, [dark, light], num_classes=2, most=20)
    assert name.endswith("(20 pictures)")
    assert p.argmax(1).tolist() == [0, 1]
