"""``Embedder``: learns, answers as before from its folder, and its explanations add up."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

import glassformer as gf
from glassformer.errors import ConfigError, DataError

PAIRS = [
    ("a dog", "the dog"),
    ("a cat", "the car"),
    ("two", "three"),
    ("a red car", "a car"),
    ("rain", "sun"),
]
SIZES = {"min_count": 1, "d_model": 14, "num_layers": 1, "num_heads": 2, "d_ff": 11, "batch_size": 3}


def tiny(**settings) -> gf.Embedder:
    return gf.Embedder("encoder-mini", **SIZES, epochs=2, precision="fp32", threads=1, seed=3, **settings)


@pytest.mark.parametrize("loss", ["cosine", "cosent"])
def test_scores_are_learned_and_the_folder_answers_the_same(loss, tmp_path):
    embedder = tiny(loss=loss).set_params(epochs=40, lr=3e-3).fit(PAIRS, [5, 1, 0, 4, 2])
    assert embedder.score(PAIRS, [5, 1, 0, 4, 2]) > 0.85
    again = gf.Embedder.load(embedder.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.encode(["a dog"]), embedder.encode(["a dog"]))
    assert clone(embedder).get_params() == embedder.get_params()


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_contributions_add_up_to_the_cosine(pooling):
    embedder = tiny(pooling=pooling).fit(PAIRS)
    found = embedder.explain_similarity("a dog", "the red car")
    assert found.table.sum() == pytest.approx(found.score, abs=1e-6)
    assert found.score == pytest.approx(embedder.similarity("a dog", "the red car"), abs=1e-5)
    assert "the red car" in found.html()


def test_search_finds_what_sorting_all_cosines_finds():
    embedder, table = tiny().fit(PAIRS), [text for pair in PAIRS for text in pair]
    rows, cosines = embedder.search(["a dog"], table, k=3)
    wanted = np.sort(embedder.similarity(["a dog"], table)[0])[::-1][:3]
    np.testing.assert_allclose(cosines[0], wanted, atol=1e-6)
    assert rows[0][0] == 0
    assert embedder.index(table).similar("a dog", 1)[0][0] == "a dog"


def test_labels_give_classes():
    embedder = tiny().fit(["a dog", "a cat", "two", "three"], ["animal", "animal", "number", "number"])
    assert embedder.predict(["a dog", "three"]).tolist() == ["animal", "number"]


def test_what_cannot_be_is_one_line():
    with pytest.raises(DataError, match="row 1"):
        tiny().fit([("a",)])
    with pytest.raises(ConfigError, match="needs scores"):
        tiny(loss="cosine").fit(PAIRS)
