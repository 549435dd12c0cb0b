"""Heads whose habits are known, a head that is ablated_head, and a map that misleads on purpose."""

import numpy as np
import pytest
import torch

from glassformer.errors import InputError
from glassformer.explain import heads
from glassformer.explain.subject import text_subject
from glassformer.packing import Packing

from .test_faithfulness import linear_subject

WORDS = np.array([-1, 0, 1, 1, 2, 3, -1])


def test_figures_of_known_maps():
    t = 7
    eye = np.eye(t)
    ends = (np.tile(row, (t, 1)) for row in (eye[0], eye[-1]))
    maps = [np.full((t, t), 1 / t), eye, np.roll(eye, -1, 1), np.roll(eye, 1, 1), *ends]
    maps = np.stack(maps)[None]  # [1, 6, T, T]
    found = heads.map_statistics(maps, WORDS)
    assert found["entropy"].shape == (1, 6)
    np.testing.assert_allclose(found["entropy"][0], [1, 0, 0, 0, 0, 0], atol=1e-6)
    np.testing.assert_allclose(
        found["distance"][0], [np.mean([[abs(i - j) for j in range(7)] for i in range(1, 6)]), 0, 1, 1, 3, 3]
    )
    np.testing.assert_allclose(found["diagonal"][0, 1:], [1, 0, 0, 0, 0])
    # A token back: [CLS], another word, a piece of the same word, another word, another word.
    np.testing.assert_allclose(found["previous"][0], [5 / 35, 0, 0.6, 0, 0, 0])
    np.testing.assert_allclose(found["next"][0], [5 / 35, 0, 0, 0.6, 0, 0])
    np.testing.assert_allclose(found["cls"][0], [1 / 7, 0, 0.2, 0, 1, 0])
    np.testing.assert_allclose(found["sep"][0], [1 / 7, 0, 0, 0.2, 0, 1])
    np.testing.assert_allclose(found["same_word"][0, 2:4], [0.2, 0.2])
    assert heads.describe(found) == [["broad", "diagonal", "previous", "next", "cls", "sep"]]
    # the previous word has all its pieces
    maps = np.zeros((1, 2, 7, 7))
    maps[0, 0, 4, 2:4] = maps[0, 1, 1, 2:4] = 0.5  # word 2 back, and word 0 on, to both pieces of word 1
    found = heads.map_statistics(maps, WORDS)
    np.testing.assert_allclose(found["previous"][0], [0.2, 0])
    np.testing.assert_allclose(found["next"][0], [0, 0.2])
    patches = heads.map_statistics(
        np.roll(np.eye(5), -1, 1)[None, None], np.full(5, -1)
    )  # all rows are looked at
    assert patches["previous"][0, 0] == pytest.approx(0.8)


def test_a_silenced_head_gives_nothing_and_comes_back(tiny):
    model = tiny.model_
    layer = model.encoder.layers[1].attention
    before = layer.out.weight.detach().clone()
    x = torch.randn(5, 22, generator=torch.Generator().manual_seed(0))
    whole = layer(x, Packing((5,)))
    with heads.ablated_head(model, 1, 0):
        first = layer(x, Packing((5,)))
    with heads.ablated_head(model, 1, 1):
        second = layer(x, Packing((5,)))
    torch.testing.assert_close(first + second - layer.out.bias, whole)
    assert torch.equal(layer.out.weight, before)
    with pytest.raises(ZeroDivisionError), heads.ablated_head(model, 1, 0):
        raise ZeroDivisionError
    assert torch.equal(layer.out.weight, before)
    with pytest.raises(InputError, match="no head 2 in layer 0"), heads.ablated_head(model, 0, 2):
        pass


def test_ablation(tiny):
    texts = ["a wonderful film", "a dull film", "it was not dull", "wonderful , it was not"]
    labels = ["pos", "neg", "pos", "neg"]
    before = tiny.predict_proba(texts)
    done = []
    found = heads.ablation(tiny, texts, labels, progress=done.append)
    np.testing.assert_array_equal(tiny.predict_proba(texts), before)
    assert found["accuracy_lost"].shape == (3, 2)
    assert found["interval"].shape == (3, 2, 2)
    assert len(done) == 6
    true = before[np.arange(4), [1, 0, 1, 0]]
    with heads.ablated_head(tiny.predictor(), 2, 1):
        without = tiny.predict_proba(texts)[np.arange(4), [1, 0, 1, 0]]
    assert found["probability_lost"][2, 1] == pytest.approx((true - without).mean())
    with pytest.raises(InputError, match="'meh' was not seen"):
        heads.ablation(tiny, texts, ["meh"] * 4)
    # the figures of a model are means
    subjects = [text_subject(tiny, t) for t in ("a dull film", "it was wonderful , not dull")]
    found = heads.head_statistics(subjects)
    assert all(v.shape == (3, 2) for v in found.values())
    single = [heads.head_statistics([s])["entropy"] for s in subjects]
    np.testing.assert_allclose(found["entropy"], np.mean(single, 0))
    # texts without a misleading map are left out
    assert heads.counter_examples(tiny, ["a film", "!"], progress=done.append) == []
    assert done[6:] == [1, 1]


class Decides:
    """The part of a classifier that turns probabilities into labels."""

    classes_ = np.array(["no", "yes"])

    def decide(self, probabilities):
        return self.classes_[probabilities.argmax(1)]


@pytest.mark.parametrize(("scores", "found"), [([9, 1, 1, 2, 3], True), ([1, 1, 9, 2, 3], False)])
def test_a_map_that_misleads_is_found(scores, found):
    """The answer hangs on "dull" alone; the first map points at "a"."""
    subject, _ = linear_subject(weight=np.array([0.5, -1.0, 4.0, -0.5, -1.0]))
    subject.input_fields.update(
        text="a not dull film !", offsets=[(0, 1), (2, 5), (6, 10), (11, 15), (16, 17)]
    )
    one = heads._counter_example(subject, Decides(), lambda s: np.array(scores, float), "mask")
    assert (one is not None) == found
    if one is not None:
        assert (one.attended, one.decisive, one.label, one.flips_to) == ("a", "dull", "yes", "no")
        assert one.attended_share == pytest.approx(9 / 16)
        assert one.decisive_rank == 5
        assert one.without_attended == pytest.approx(1 / (1 + np.exp(-1.5)))
        assert one.without_decisive == pytest.approx(1 / (1 + np.exp(2.0)))
        assert "“dull” has rank 5 by attention" in one.in_words()


def test_habits_of_known_looks(monkeypatch):
    class Input:
        def __init__(self, *maps):
            self.maps = np.stack(maps)[None, None]  # [1, 1, T, T] of one head

        def __len__(self):
            return self.maps.shape[-1]

    monkeypatch.setattr(heads, "attention_maps", lambda subject: (subject.maps[0],))
    even, itself, ahead = np.full((5, 5), 0.2), np.eye(5), np.roll(np.eye(5), 1, 1)
    found = heads.attention_statistics([Input(even), Input(even)])
    assert found == pytest.approx({"entropy": 1.0, "distance": 1.0, "movement": 0.0})
    found = heads.attention_statistics([Input(itself), Input(itself)])
    assert found == pytest.approx({"entropy": 0.0, "distance": 0.0, "movement": 0.0}, abs=1e-9)
    found = heads.attention_statistics([Input(itself), Input(ahead)])
    assert found["movement"] == pytest.approx(0.5)  # half of each row's weight is where the mean has it
    assert found["distance"] == pytest.approx((0 + 8 / 5) / 2 / 1.6)
    with pytest.raises(InputError, match="no inputs"):
        heads.attention_statistics([])
    with pytest.raises(InputError, match="inputs of 2 lengths"):
        heads.attention_statistics([Input(even), Input(np.eye(3))])
