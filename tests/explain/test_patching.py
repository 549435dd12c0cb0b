"""Activation patching recovers circuits that are planted."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from glassformer import TextClassifier
from glassformer.errors import InputError, NotForThisModelError
from glassformer.explain.patching import patch, patch_subjects
from glassformer.explain.subject import text_subject

from .conftest import TINY, fitted


def pair(clf, clean="a wonderful film", corrupted="a dull film"):
    """Two texts that differ in their second word, under a model that is forced to tell them apart."""
    a, b = text_subject(clf, clean), text_subject(clf, corrupted)
    return replace(a, target=1), replace(b, model=a.model, target=0)


def planted(layer: int, head: int):
    """A model that reads [CLS], in which one head alone moves anything between tokens."""
    clf = fitted("first")
    a, b = pair(clf)
    with torch.no_grad():
        for number, one in enumerate(a.model.encoder.layers):
            weight = one.attention.out.weight
            width = weight.shape[1] // 2
            for h in range(2):
                if (number, h) != (layer, head):
                    weight[:, h * width : (h + 1) * width] = 0
    return a, b


@pytest.fixture
def own_weights():
    """The model of all tests gets its weights back."""
    model = fitted("first").model_
    kept = {name: w.clone() for name, w in model.state_dict().items()}
    yield
    model.load_state_dict(kept)


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1)])
def test_a_planted_head_is_recovered(layer, head, own_weights):
    found = patch_subjects(*planted(layer, head))
    wanted = np.zeros((3, 2))
    wanted[layer, head] = 1
    np.testing.assert_allclose(found.heads, wanted, atol=1e-4)
    # The word carries all up to the layer of that head, [CLS] all from there on.
    assert found.tokens[2] == "wonderful"
    places = np.zeros((4, 5))
    places[: layer + 1, 2] = places[layer + 1 :, 0] = 1
    np.testing.assert_allclose(found.states, places, atol=1e-4)


def test_the_first_states_are_the_inputs_and_the_last_are_what_is_read(tiny):
    a, b = pair(tiny)
    found = patch_subjects(a, b)
    np.testing.assert_allclose(found.states[0], [0, 0, 1, 0, 0], atol=1e-4)  # the word that differs
    np.testing.assert_allclose(found.states[-1], [1, 0, 0, 0, 0], atol=1e-4)
    assert found.states.shape == (4, 5)
    assert found.heads.shape == (3, 2)
    logits = a.logits(np.ones((1, 5), bool))[0] - b.logits(np.ones((1, 5), bool))[0]
    assert found.difference == pytest.approx(logits[1] - logits[0], abs=1e-4)
    back = patch_subjects(b, a)  # the other way round the same difference, of the other sign of both
    assert back.difference == pytest.approx(found.difference, abs=1e-4)


def test_what_cannot_be_patched(tiny, plain):
    a, b = pair(tiny)
    with pytest.raises(InputError, match="the inputs have 5 and 6 tokens"):
        patch_subjects(a, text_subject(tiny, "a very dull film"))
    with pytest.raises(InputError, match="both inputs are predicted as"):
        patch_subjects(a, replace(b, target=1))
    with pytest.raises(NotForThisModelError, match="no layers of attention"):
        patch_subjects(*pair(plain))
    # texts as they are given
    texts = ["a wonderful film", "a dull film"]
    clf = TextClassifier(**TINY).fit(texts * 8, ["pos", "neg"] * 8)
    found = patch(clf, *texts)
    assert found.labels == ("pos", "neg")
    assert found.states[0, 2] == pytest.approx(1, abs=1e-4)
