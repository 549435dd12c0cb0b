"""Noise in the weights, and words that change without changing the meaning."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from tests.commands import values

import glassformer as gf
from glassformer.explain import sanity
from glassformer.explain.methods import explain
from glassformer.explain.subject import text_subject

TEXTS = [
    "a wonderful film , it was not dull",
    "a dull film , it was not wonderful",
    "it was a dull , dull film",
]


def test_parts_become_noise_from_the_output_down(tiny):
    before = {k: v.clone() for k, v in tiny.model_.state_dict().items()}
    changed = []
    for name, model in sanity.shuffled(tiny.model_, seed=3):
        now = model.state_dict()
        touched = {k for k in now if not torch.equal(now[k], before[k])}
        changed.append((name, touched))
        for key in touched:
            torch.testing.assert_close(now[key].flatten().sort().values, before[key].flatten().sort().values)
    assert [name for name, _ in changed] == ["head", "layer 3", "layer 2", "layer 1"]
    assert all(a < b for (_, a), (_, b) in pairwise(changed))
    assert not any(key.startswith("embeddings") for key in changed[-1][1])
    assert not any("layers.0" in key for key in changed[2][1])
    after = tiny.model_.state_dict()
    assert all(torch.equal(after[k], before[k]) for k in before)


def test_what_does_not_read_the_weights_fails_and_what_does_passes(tiny):
    subjects = [text_subject(tiny, text) for text in TEXTS]
    records = sanity.randomization(subjects, "rollout")
    assert [r["down to"] for r in records] == ["head", "layer 3", "layer 2", "layer 1"]
    assert records[0]["mean"] == pytest.approx(1.0)  # attention does not know the head
    assert records[0]["n"] == 3
    assert sanity.passes([{"mean": 0.1}])
    assert not sanity.passes([{"mean": 0.1}, {"mean": 0.9}])
    gradients = sanity.randomization(subjects, "gradient_x_input")
    assert gradients[0]["mean"] < 0.999
    # the explained label stays the same
    subject = text_subject(tiny, TEXTS[0])
    for _, model in sanity.shuffled(tiny.model_):
        assert (
            explain(subject.with_model(model), method="gradient_x_input").target
            == subject.classes[subject.target]
        )


def test_one_word_changes():
    rng = np.random.default_rng(0)
    text, word, other = sanity.with_synonym("Terrible plot, 2 hours.", rng)
    assert (word, other) in {("Terrible", "Awful"), ("plot", "storyline")}
    assert text == "Terrible plot, 2 hours.".replace(word, other)
    assert sanity.with_synonym("xyzzy 42", rng) is None
    text, word, other = sanity.with_typo("a splendid day", rng)
    assert sorted(word) == sorted(other)
    assert word != other
    assert (word[0], word[-1]) == (other[0], other[-1])
    assert sanity.with_typo("a bee saw it", rng) is None
    assert sanity.with_typo("Hello", np.random.default_rng(1)) is not None
    # synonyms go both ways and stay single words
    pairs = sanity.synonyms()
    assert len(pairs) > 130
    assert pairs["movie"] == "film"
    assert pairs["film"] == "movie"
    assert all(a != b and b.isalpha() for a, b in pairs.items())


def test_stability(tiny):
    record = sanity.stability(tiny, [*TEXTS, "it was not"], "attention", change=swap)
    assert record["correlation"]["n"] == 3  # the last has no word to change
    assert -1 <= record["correlation"]["mean"] <= 1
    assert 0 <= record["label_kept"]["mean"] <= 1
    same = sanity.stability(tiny, TEXTS, "occlusion", change=lambda text, rng: (text, "film", "film"))
    assert same["correlation"]["mean"] == pytest.approx(1.0)
    assert same["label_kept"]["mean"] == 1.0
    assert sanity.stability(tiny, ["it was not"], "attention", change=swap)["correlation"] is None
    # of images
    pictures = list(np.random.default_rng(0).integers(0, 256, (12, 13, 11, 3), np.uint8))
    sizes = values(
        "image_size=12 patch_size=4 d_model=14 num_layers=1 num_heads=2 d_ff=11 epochs=1 threads=1"
    )
    clf = gf.ImageClassifier("vit-tiny", **sizes).fit(pictures, ["a", "b"] * 6)
    same = sanity.stability(clf, pictures, "occlusion", change=lambda picture, rng: (picture, "nothing", ""))
    assert same["correlation"]["mean"] == pytest.approx(1)
    assert (same["label_kept"]["mean"], same["correlation"]["n"]) == (1, 12)
    changed = sanity.stability(clf, pictures, "occlusion")
    assert -1 <= changed["correlation"]["mean"] < 0.999
    assert changed == sanity.stability(clf, pictures, "occlusion", change=sanity.with_crop)


def swap(text, rng):
    return (text.replace("film", "dull"), "film", "dull") if "film" in text else None


def test_small_changes_of_pictures():
    rng = np.random.default_rng(0)
    for shape in ((13, 11, 3), (8, 8, 1), (2, 2, 1)):
        picture = rng.integers(60, 190, shape, np.uint8)
        lit, what, factor = sanity.with_brightness(picture, rng)
        assert (lit.shape, lit.dtype, what) == (shape, np.uint8, "brightness")
        np.testing.assert_allclose(lit, np.clip(picture * float(factor), 0, 255), atol=0.5)
        cut, what, _ = sanity.with_crop(picture, rng)
        assert (cut.shape, cut.dtype, what) == (shape, np.uint8, "crop")
        assert not np.array_equal(cut, picture)
    line = rng.integers(0, 256, (1, 9, 3), np.uint8)  # a side of one pixel cannot lose any
    assert sanity.with_crop(line, rng)[0].shape == line.shape
