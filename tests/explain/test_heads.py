"""Heads whose habits are known, a head that is silenced, and a map that misleads on purpose."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glassformer.errors import InputError
from glassformer.explain import heads
from glassformer.explain.subject import text_subject

WORDS = np.array([-1, 0, 1, 1, 2, 3, -1])


def test_figures_of_known_maps():
    t = 7
    eye = np.eye(t)
    maps = np.stack([
        np.full((t, t), 1 / t), eye, np.roll(eye, -1, 1), np.roll(eye, 1, 1),
        np.tile(eye[0], (t, 1)), np.tile(eye[-1], (t, 1)),
    ])[None]  # [1, 6, T, T]  # fmt: skip
    found = heads.map_figures(maps, WORDS)
    assert found["entropy"].shape == (1, 6)
    np.testing.assert_allclose(found["entropy"][0], [1, 0, 0, 0, 0, 0], atol=1e-6)
    np.testing.assert_allclose(found["distance"][0], [np.mean([[abs(i - j) for j in range(7)] for i in range(1, 6)]),
                                                      0, 1, 1, 3, 3])  # fmt: skip
    np.testing.assert_allclose(found["diagonal"][0, 1:], [1, 0, 0, 0, 0])
    np.testing.assert_allclose(found["previous"][0, 1:], [0, 1, 0, 0.2, 0])
    np.testing.assert_allclose(found["next"][0, 1:], [0, 0, 1, 0, 0.2])
    np.testing.assert_allclose(found["cls"][0], [1 / 7, 0, 0.2, 0, 1, 0])
    np.testing.assert_allclose(found["sep"][0], [1 / 7, 0, 0, 0.2, 0, 1])
    np.testing.assert_allclose(found["same_word"][0, 2:4], [0.2, 0.2])
    assert heads.describe(found) == [["broad", "diagonal", "previous", "next", "cls", "sep"]]


def test_figures_of_a_model_are_means(tiny):
    subjects = [text_subject(tiny, t) for t in ("a dull film", "it was wonderful , not dull")]
    found = heads.head_figures(subjects)
    assert all(v.shape == (3, 2) for v in found.values())
    single = [heads.head_figures([s])["entropy"] for s in subjects]
    np.testing.assert_allclose(found["entropy"], np.mean(single, 0))


def test_a_silenced_head_gives_nothing_and_comes_back(tiny):
    model = tiny.model_
    layer = model.encoder.layers[1].attention
    before = layer.out.weight.detach().clone()
    x = torch.randn(5, 22, generator=torch.Generator().manual_seed(0))
    from glassformer.packing import Packing

    whole = layer(x, Packing((5,)))
    with heads.silenced(model, 1, 0):
        first = layer(x, Packing((5,)))
    with heads.silenced(model, 1, 1):
        second = layer(x, Packing((5,)))
    torch.testing.assert_close(first + second - layer.out.bias, whole)
    assert torch.equal(layer.out.weight, before)
    with pytest.raises(ZeroDivisionError), heads.silenced(model, 1, 0):
        raise ZeroDivisionError
    assert torch.equal(layer.out.weight, before)
    with pytest.raises(InputError, match="no head 2 in layer 0"), heads.silenced(model, 0, 2):
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
    with heads.silenced(tiny._predictor(), 2, 1):
        without = tiny.predict_proba(texts)[np.arange(4), [1, 0, 1, 0]]
    assert found["probability_lost"][2, 1] == pytest.approx((true - without).mean())
    with pytest.raises(InputError, match="'meh' was not seen"):
        heads.ablation(tiny, texts, ["meh"] * 4)


def test_a_map_that_misleads_is_found(tiny):
    """Scores made to point at a word that does not matter, while another one decides."""
    text = "a film it was dull"
    probabilities = tiny.predict_proba(["a film it was", text])
    subject = text_subject(tiny, text)
    keep = np.arange(5)[:, None] != subject.words[None]
    labels = tiny.decide(subject.chance(subject.logits(keep)))
    decisive = [w for w in range(5) if labels[w] != subject.classes[subject.target]]
    if not decisive:
        pytest.skip(f"the tiny model learned something else: {probabilities}")
    idle = next(w for w in range(5) if w not in decisive)

    def pointing(subject):
        scores = np.full(7, 0.01)
        scores[idle + 1] = 0.9
        scores[[w + 1 for w in decisive]] = 0.001
        return scores

    (found,) = heads.counter_examples(tiny, [text], scores=pointing)
    words = text.split()
    assert found.attended == words[idle]
    assert found.decisive in {words[w] for w in decisive}
    assert found.flips_to != found.label
    assert found.without_decisive < found.without_attended
    assert found.attended in found.in_words()

    def honest(subject):
        return pointing(subject)[::-1] * 0 + np.eye(7)[decisive[0] + 1]

    assert heads.counter_examples(tiny, [text], scores=honest) == []
    assert heads.counter_examples(tiny, ["a film"]) == []
