"""Pairs whose sides are read apart: features on paper, packed as padded, saved, explained, exported, chosen by auto."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.commands import values
from tests.similarity.tiny import checkpoint

import glassformer as gf
from glassformer.errors import ConfigError, ShapeError
from glassformer.export.padded import PaddedText
from glassformer.nn.pairs import UV_SCALE, PairPooling, pair_features, split_pairs
from glassformer.nn.pooling import MeanPooling
from glassformer.packing import Packing
from glassformer.tasks import auto
from glassformer.tasks.auto import Candidate

WORDS = ("dog", "cat", "car", "sun", "rain")
FILL = ("a", "the", "red", "and")
RNG = np.random.default_rng(11)


def side(word: str) -> str:
    """A word among two that say nothing."""
    return " ".join(RNG.permutation([word, *RNG.choice(FILL, 2)]))


PAIRS = [(side(a), side(b)) for a, b in zip(RNG.choice(WORDS, 61), RNG.choice(WORDS, 61), strict=True)]
PAIRS += [(side(word), side(word)) for word in RNG.choice(WORDS, 42)]
SAME = ["same" if {*a.split()} & {*b.split()} & {*WORDS} else "other" for a, b in PAIRS]
FAST: dict[str, Any] = {"max_length": 19, "precision": "fp32", "threads": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(checkpoint(tmp_path_factory.mktemp("encoder") / "mean"))


@pytest.fixture(scope="module")
def solved(folder):
    return gf.TextClassifier(folder, pairs="apart", train_layers=0, **FAST).fit(PAIRS, SAME)


def test_the_features_of_a_pair_on_paper():
    u, v = torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, -2.0]])  # (0.6, 0.8) and (0, -1)
    found = pair_features(u, v)
    wanted = [UV_SCALE * 0.6, UV_SCALE * 0.8, 0.0, -UV_SCALE, 0.6, 1.8, 0.0, -0.8, -0.8]
    torch.testing.assert_close(found, torch.tensor([wanted]))


def test_rows_of_two_pairs_are_four_sequences():
    packing, segments = Packing((5, 3)), torch.tensor([0, 0, 1, 1, 1, 0, 0, 1])
    sides = split_pairs(packing, segments)
    assert sides.lengths == (2, 3, 2, 1)
    rows = torch.randn(8, 2)
    pooling = PairPooling(MeanPooling(), "mean", 2)
    u, v = torch.stack([rows[:2].mean(0), rows[5:7].mean(0)]), torch.stack([rows[2:5].mean(0), rows[7]])
    torch.testing.assert_close(pooling(rows, sides), pair_features(u, v))
    with pytest.raises(ShapeError, match="lacks one of its texts"):
        split_pairs(packing, torch.zeros(8, dtype=torch.long))
    with pytest.raises(ShapeError, match="token_type_ids are missing"):
        split_pairs(packing, None)


def test_each_side_is_a_text_by_itself(solved, folder):
    table = solved.encode(solved.check(PAIRS[:1]))
    tokens = [solved.tokenizer_.id_to_token(i) for i in table[0].tolist()]
    first, second = (text.split() for text in PAIRS[0])
    assert tokens == ["[CLS]", *first, "[SEP]", "[CLS]", *second, "[SEP]"]
    assert table.segments.tolist() == [0] * 5 + [1] * 5
    vectors = [gf.Embedder(folder, precision="fp32", threads=1).encode(s) for s in map(list, zip(*PAIRS))]
    features = pair_features(*map(torch.from_numpy, vectors)).numpy()
    np.testing.assert_allclose(solved.embed(PAIRS), features, atol=2e-6)


def test_packed_is_padded_and_batches_change_nothing(solved):
    odd = [*PAIRS[:5], ("dog " * 17, "sun"), ("cat", "a red car and the rain")]
    whole = solved.logits(odd)
    np.testing.assert_allclose(whole, np.concatenate([solved.logits([pair]) for pair in odd]), atol=2e-6)
    assert solved.truncated(odd).tolist() == [False] * 5 + [True, False]
    assert solved.encode(solved.check(odd)).lengths.max() == 19
    ids, mask, segments = torch.zeros(3, len(odd), 23, dtype=torch.long)
    for i, row in enumerate(solved.check(odd)):
        own = solved.encode([row])
        ids[i, -len(own[0]) :] = torch.from_numpy(own[0].astype(np.int64))  # padding on the left
        mask[i, -len(own[0]) :] = 1
        segments[i, -len(own[0]) :] = torch.from_numpy(own.segments.astype(np.int64))
    model = solved.model_
    with torch.inference_mode():
        np.testing.assert_allclose(model(ids, mask, segments).logits.numpy(), whole, atol=2e-6)
        graph = PaddedText(model, 23)(ids, mask, segments)[0]
        np.testing.assert_allclose(graph.numpy(), whole, atol=2e-6)


def test_it_learns_what_neither_text_says_saves_it_and_gives_the_same_bits(solved, folder, tmp_path):
    assert solved.score(PAIRS, SAME) > 0.8
    swapped = [(b, a) for a, b in PAIRS]
    assert np.abs(solved.predict_proba(swapped) - solved.predict_proba(PAIRS)).max() > 1e-4
    back = gf.load(solved.save(tmp_path / "model"))
    np.testing.assert_array_equal(back.predict_proba(PAIRS), solved.predict_proba(PAIRS))
    assert back.pairs == "apart"
    options = {"precision": "fp32", "threads": 1}
    single = [a for a, _ in PAIRS]  # the encoder alone reads single texts as before
    np.testing.assert_allclose(
        gf.Embedder(str(tmp_path / "model"), **options).encode(single),
        gf.Embedder(folder, **options).encode(single),
    )
    again = gf.TextClassifier(folder, pairs="apart", train_layers=0, **FAST).fit(PAIRS, SAME)
    np.testing.assert_array_equal(again.logits(PAIRS), solved.logits(PAIRS))


def test_numbers_and_fine_tuning(folder, tmp_path):
    numbers = [float(same == "same") for same in SAME]
    est = gf.TextRegressor(folder, pairs="apart", train_layers=0, **FAST).fit(PAIRS, numbers)
    assert est.score(PAIRS, numbers) > 0.5
    back = gf.load(est.save(tmp_path / "model"))
    np.testing.assert_allclose(back.predict(PAIRS), est.predict(PAIRS), atol=1e-6)
    tuned = gf.TextClassifier(folder, pairs="apart", epochs=2, lr=1e-3, **FAST).fit(PAIRS, SAME)
    assert tuned.score(PAIRS, SAME) > 0.9
    scratch = gf.TextClassifier(
        "encoder-mini", pairs="apart", epochs=1, min_count=1, d_model=14, num_heads=2, **FAST
    )
    assert scratch.fit(PAIRS, SAME).model_.config.embedding.segments == 0


@pytest.mark.parametrize(
    "method", "occlusion gradient_x_input integrated_gradients attention rollout".split()
)
def test_explanations_see_both_texts(solved, method):
    found = solved.explain(PAIRS[3], method=method)
    assert all(np.abs(found.scores[found.sides == side]).max() > 0 for side in (0, 1))
    if method == "attention":
        assert not found.maps[:, :, :5, 5:].any()
        np.testing.assert_allclose(found.maps.sum(-1), 1, atol=1e-6)
        assert found.scores.sum() == pytest.approx(1)
    if method == "occlusion":
        left_out = solved.explain(PAIRS[3], method=method, by="delete")
        assert np.isfinite(left_out.scores).all()


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ("pooling=attention", "attention pooling does not support a bi-encoder"),
        ("add_special_tokens=False", "adds special tokens to each text"),
        ("model=textcnn", "pairs = apart needs a Transformer"),
    ],
)
def test_what_it_cannot_be_is_said(folder, settings, what):
    settings = {"model": folder, "pairs": "apart", "epochs": 1} | FAST | values(settings)
    with pytest.raises(ConfigError, match=what):
        gf.TextClassifier(**settings).fit(PAIRS, SAME)


def test_texts_do_not_ask_how_pairs_are_read(folder):
    texts, clf = [a for a, _ in PAIRS], gf.TextClassifier(folder, pairs="apart", train_layers=0, **FAST)
    assert clf.fit(texts, ["dog" in t for t in texts]).model_.config.sides is None


def test_auto_takes_it_where_it_is_ahead(folder, monkeypatch, tmp_path):
    frozen = Candidate("tiny, frozen", {"model": folder, "head_start": "solved", "train_layers": 0})
    monkeypatch.setattr(auto, "candidates", lambda clf: [auto.TFIDF, frozen])
    texts = [" ".join(RNG.choice([*WORDS, *FILL], 3)) for _ in range(202)]
    pairs = [*zip(texts[::2], texts[1::2], strict=True)]
    vectors = gf.Embedder(folder, precision="fp32", threads=1).encode(texts)
    cosines = (vectors[::2] * vectors[1::2]).sum(1)
    clf = gf.TextClassifier(**FAST).fit(pairs, ["near" if x > np.median(cosines) else "far" for x in cosines])
    assert [(record["model"], record["chosen"]) for record in clf.tried_] == [
        ("tfidf", False),
        ("tiny, frozen, sides apart", True),
    ]
    back = gf.load(clf.save(tmp_path / "model"))
    np.testing.assert_array_equal(back.predict_proba(pairs), clf.predict_proba(pairs))
    est = gf.TextRegressor(**FAST).fit(pairs, cosines)
    assert [record["chosen"] for record in est.tried_] == [False, True]
    single = gf.TextClassifier(**FAST).fit([a for a, _ in PAIRS], SAME)
    assert [record["model"] for record in single.tried_] == ["tfidf", "tiny, frozen"]
