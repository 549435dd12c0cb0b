"""Tags, answers, numbers, sentence vectors and hidden patches on a GPU: learned there, saved, and answered alike here."""

from typing import Any

import numpy as np
import pytest

import glassformer as gf

PRECISIONS = pytest.mark.parametrize("precision", ["fp32", "bf16"])
SIZES = {
    "d_model": 16,
    "num_layers": 1,
    "num_heads": 2,
    "d_ff": 23,
    "batch_size": 5,
    "device": "cuda",
    "seed": 3,
}
WORDS = {"model": "encoder-mini", "max_length": 19, "min_count": 1}
FAR = {"fp32": 1e-3, "bf16": 0.1}  # how far a processor's fp32 may be from what was computed there


def fitted_and_here(estimator, folder, *data) -> tuple[Any, Any]:
    """The estimator after ``fit`` on the GPU, and its folder opened on a processor in fp32."""
    estimator.fit(*data)
    assert next(estimator.model_.parameters()).is_cuda
    return estimator, gf.load(estimator.save(folder / "model")).set_params(device="cpu", precision="fp32")


@PRECISIONS
def test_tags(gpu, tmp_path, precision):
    kinds = {"Ann": "B-person", "Bo": "B-person", "Rome": "B-place", "Oslo": "B-place"}
    sentences = [
        f"{a} lives in {b} now".split() if i % 3 else f"in {b} we met {a}".split()
        for i, (a, b) in enumerate([(a, b) for a in ("Ann", "Bo") for b in ("Rome", "Oslo")] * 7)
    ]
    tags = [[kinds.get(word, "O") for word in words] for words in sentences]
    tagger = gf.TokenTagger(**SIZES | WORDS, precision=precision, epochs=20, lr=0.01)
    there, here = fitted_and_here(tagger, tmp_path, sentences, tags)
    assert there.predict(sentences) == here.predict(sentences) == tags
    for ours, theirs in zip(there.predict_proba(sentences), here.predict_proba(sentences), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=FAR[precision])


@PRECISIONS
def test_answers(gpu, tmp_path, precision):
    questions, wanted = [], []
    for i in range(24):
        person, city = ("Ann", "Bo", "Cleo", "Dan")[i % 4], ("Rome", "New York", "Oslo")[i % 3]
        context = f"{person} lives in {city} now ." if i % 5 else f"{person} has a dog ."
        questions.append((f"where does {person} live ?", context))
        wanted.append({"text": [city], "answer_start": [context.index(city)]} if i % 5 else None)
    answerer = gf.QuestionAnswerer(**SIZES | WORDS, precision=precision, epochs=30, lr=0.02)
    there, here = fitted_and_here(answerer, tmp_path, questions, wanted)
    texts = [own["text"][0] if own else "" for own in wanted]
    assert there.predict(questions) == here.predict(questions) == texts
    for ours, theirs in zip(there.answers(questions), here.answers(questions), strict=True):
        assert ours[0].probability == pytest.approx(theirs[0].probability, abs=FAR[precision])


@PRECISIONS
@pytest.mark.parametrize("kind", ["texts", "pictures"])
def test_numbers(gpu, tmp_path, precision, kind):
    values = {"good": 2.0, "bad": -7.0, "fine": 0.5}
    names = [*values] * 17
    numbers = [1990 + values[name] for name in names]
    if kind == "texts":
        X = [f"the {name} film {i % 7}" for i, name in enumerate(names)]
        regressor = gf.TextRegressor(**SIZES | WORDS, precision=precision, epochs=8, lr=0.02)
    else:
        rng = np.random.default_rng(3)
        X = [
            np.clip(rng.integers(0, 40, (8, 8, 3)) + 12 * (values[name] + 7), 0, 255).astype(np.uint8)
            for name in names
        ]
        sizes = {"image_size": 8, "patch_size": 4}
        regressor = gf.ImageRegressor(**SIZES | sizes, precision=precision, epochs=20, lr=5e-3)
    there, here = fitted_and_here(regressor, tmp_path, X, numbers)
    assert there.score(X, numbers) > 0.8
    np.testing.assert_allclose(there.predict(X), here.predict(X), atol=10 * FAR[precision])


@PRECISIONS
def test_sentence_vectors(gpu, tmp_path, precision):
    pairs = [
        ("a dog", "the dog"),
        ("a cat", "the car"),
        ("two", "three"),
        ("a red car", "a car"),
        ("rain", "sun"),
    ]
    scores = [5, 1, 0, 4, 2]
    words = {k: v for k, v in WORDS.items() if k != "max_length"}
    embedder = gf.Embedder(**SIZES | words, precision=precision, epochs=40, lr=3e-3)
    there, here = fitted_and_here(embedder, tmp_path, pairs, scores)
    assert there.score(pairs, scores) > 0.8
    texts = [text for pair in pairs for text in pair]
    np.testing.assert_allclose(
        there.similarity(texts, texts), here.similarity(texts, texts), atol=FAR[precision]
    )


@PRECISIONS
def test_hidden_patches(gpu, tmp_path, precision):
    ramp = np.broadcast_to(np.arange(0, 240, 60)[:, None], (4, 4))  # each patch is one, down or to the right
    patches = [np.tile(ramp if i % 2 else ramp.T, (4, 4))[:, :, None].repeat(3, 2) for i in range(30)]
    pictures = [(patch + i).astype(np.uint8) for i, patch in enumerate(patches)]
    sizes = {"image_size": 16, "patch_size": 4, "epochs": 30, "lr": 5e-3}
    there, here = fitted_and_here(gf.MaskedPatches(**SIZES | sizes, precision=precision), tmp_path, pictures)
    losses = [record["loss"] for record in there.history_ if record["kind"] == "step"]
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])
    assert there.score(pictures) == pytest.approx(here.score(pictures), abs=FAR[precision])
